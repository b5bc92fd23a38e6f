"""Looking at recordings without running an agent: check, diff, stats, scan.

May import `play`, `readers` and `report`.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from replay.explain.diffing import Diff, diff, diff_document, diff_lines
    from replay.explain.replayability import Check, check, check_document, check_lines, summary_document, summary_lines
    from replay.explain.scan import Finding, scan_file
    from replay.explain.stats import Stats, stats_lines
else:
    __getattr__ = door(
        __name__,
        diffing="Diff diff diff_document diff_lines",
        replayability="Check check check_document check_lines summary_document summary_lines",
        scan="Finding scan_file",
        stats="Stats stats_lines",
    )
