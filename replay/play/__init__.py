"""Runs the kernel's own loop again on a recording, with doubles at every seam, and finds the differences.

May import the kernel and `readers`; never a report.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from replay.play.agents import NotLoaded, load_agents, load_object
    from replay.play.comparison import compare
    from replay.play.divergence import ABSENT, DRIFT, UNCHECKED, Divergence, Verdict, differences
    from replay.play.doubles import DerivedIds, RecordedTranscript, recorded_toolbox
    from replay.play.forking import Change, fork, resume
    from replay.play.heads import Setting
    from replay.play.live import UNRECORDED, Attempt, record_anew, recorded_outcome, try_model, try_tools
    from replay.play.play import Digests, ReplayResult, RuleUse, play_run, replay, why_not_replayable
    from replay.play.recording import RecordedRun, Recording, is_own, own_recording
    from replay.play.rules import Rule, Rules, rules_for
    from replay.play.withholding import withheld
else:
    __getattr__ = door(
        __name__,
        agents="NotLoaded load_agents load_object",
        comparison="compare",
        divergence="ABSENT DRIFT UNCHECKED Divergence Verdict differences",
        doubles="DerivedIds RecordedTranscript recorded_toolbox",
        forking="Change fork resume",
        heads="Setting",
        live="UNRECORDED Attempt record_anew recorded_outcome try_model try_tools",
        play="Digests ReplayResult RuleUse play_run replay why_not_replayable",
        rules="Rule Rules rules_for",
        recording="RecordedRun Recording is_own own_recording",
        withholding="withheld",
    )
