"""Side effects that a run which went live did not run, because nobody had allowed them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel.loop import FORK, MASKED
from kernel.record import CallRecord, Step, canonical_json
from replay.play.prefix import NOBODY_TO_ASK


def withheld(steps: Sequence[Step]) -> list[str]:
    """One text for each such call: where, what, why, and how to let it run."""
    return list(_texts(steps))


def _texts(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        for record in step.calls:
            if (why := _why(record)) is not None:
                call = f"{record.call.name}({canonical_json(record.call.args)})"
                yield f"step {step.index}: {call} was not run: {why}"


def _why(record: CallRecord) -> str | None:
    allow = f'allow "{record.call.name}" to run it'
    kind = record.error.type if record.error is not None else ""
    if record.outcome == "unknown_outcome":
        return f"it was begun before, and it is unknown whether it took effect; look first, then {allow}"
    if record.approval is not None and record.approval.failure == NOBODY_TO_ASK:
        return f"{NOBODY_TO_ASK}; {allow}"
    if record.outcome == "denied" and kind == FORK:
        return f"a fork runs no side effect unasked; {allow}"
    if record.outcome == "denied" and kind == MASKED:
        return "its arguments hold a masked secret, whose real value is not in the recording"
    return None
