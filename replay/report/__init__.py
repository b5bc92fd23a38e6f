"""What is shown to a person or a program: text, JSON, and spans of a replay.

May import `play` and `readers`.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from replay.report.attempts import Tried, parting, tried_document, tried_lines
    from replay.report.contrasts import contrast
    from replay.report.detail import step_detail
    from replay.report.documents import Emitted, document, to_json
    from replay.report.emit import traces_url, unwritable
    from replay.report.literals import cut, line, literal, width_of
    from replay.report.render import Paint, View, arguments, step_lines, title
    from replay.report.reporting import MEANINGS, end_lines, heading, plural, report, run_lines
else:
    __getattr__ = door(
        __name__,
        attempts="Tried parting tried_document tried_lines",
        contrasts="contrast",
        detail="step_detail",
        documents="Emitted document to_json",
        emit="traces_url unwritable",
        literals="cut line literal width_of",
        render="Paint View arguments step_lines title",
        reporting="MEANINGS end_lines heading plural report run_lines",
    )
