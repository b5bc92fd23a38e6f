"""Read traces, run them again, explain the first difference.

    from replay import load, replay

    [recording] = load("incident.trace.json")
    result = replay(recording)                # the kernel of today, alone
    result = replay(recording, agent)         # today's agent against yesterday's answers
    print(result)                             # one line; result.first is the difference that leads

| name | what it does | raises |
| --- | --- | --- |
| `load(file, trace_id=None)` | all recordings in a file: our own, or of any software whose spans can be read | `TraceError` |
| `import_file(file)` | the same, and chat messages | `TraceError` |
| `replay(recording, agent=None)` | runs it again with doubles at every seam, compares at every seam | `ConfigError` |
| `diff(a, b)` | two recordings, turn by turn and step by step | |
| `check(recording)` | what is there to replay, step by step, and what is missing | |
| `with serving(file) as server` | a recording made at the wire, served to an agent that the caller runs | `TraceError` `NotSame` |
| `scan_file(file)` | secrets that a file still holds | `TraceError` |
| `await fork(recording, agent, at_step=n)` | plays the steps before `n`, changes something, goes on live | `ConfigError` |
| `await resume(recording, agent)` | goes on live with a run that was cut short | `ConfigError` |

The errors are those of `kernel`. Names are imported when first used, so that `import replay` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.explain import Check, Diff, Finding, check, diff, scan_file
    from replay.loading import import_file, load
    from replay.play import Change, Divergence, Recording, ReplayResult, fork, replay, resume
    from replay.wire import serving
else:

    def __getattr__(name: str) -> Any:
        from kernel.door import door

        return door(
            __name__,
            explain="Check Diff Finding check diff scan_file",
            loading="import_file load",
            play="Change Divergence Recording ReplayResult fork replay resume",
            wire="serving",
        )(name)


__all__ = [
    "Change",
    "Check",
    "Diff",
    "Divergence",
    "Finding",
    "Recording",
    "ReplayResult",
    "check",
    "diff",
    "fork",
    "import_file",
    "load",
    "replay",
    "resume",
    "scan_file",
    "serving",
]


def __dir__() -> list[str]:
    return sorted(__all__)
