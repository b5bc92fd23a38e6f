"""A replay as text for review: one line a step, then stop reason, answer, what was used, verdict and evidence.

Ids, times and versions are left out; each step carries the first digits of its request's digest, so that a prompt which
changed shows in the steps it reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kernel.record import CallRecord, Run, RunEnd, Step, compact_json, digest
from replay.play import Recording, ReplayResult
from replay.report import MEANINGS, cut, line, literal

FORMAT = "replay snapshot 1"

_ARGS, _TEXT = 100, 160
_DIGEST = 8
_DIFFERENCES = 20


def snapshot_text(result: ReplayResult, *, accepted: bool = False) -> str:
    """The snapshot of a replay; ends with a newline. O(steps).

    `accepted`: its drift is accepted, and shown where that is kept; here it reads as the recording, so that nothing changes.
    """
    return "\n".join([*_lines(result, accepted), ""])


def recording_digest(recording: Recording) -> str:
    """Names the content of a recording, whatever the spelling of its file."""
    return digest(compact_json([[one.run.head, one.run.steps, one.run.end] for one in recording.runs]))


def header(text: str) -> tuple[str, str]:
    """Format and recording that a snapshot says it is of; "" where it does not say."""
    first, _, rest = text.partition("\n")
    second = rest.partition("\n")[0]
    return first, second.removeprefix("recording ") if second.startswith("recording ") else ""


def _lines(result: ReplayResult, accepted: bool) -> Iterator[str]:
    recording = result.recording
    yield FORMAT
    yield f"recording {recording_digest(recording)}"
    yield f"agent {literal(recording.agent)}, ran with the {result.ran_with}"
    several = len(recording.runs) > 1
    runs = [one.run for one in recording.runs] if accepted else result.observed
    for turn, run in enumerate(runs, 1):
        yield f"turn {turn}" if several else "run"
        yield f"task {line(run.head.task, _TEXT)}"
        for step in run.steps:
            yield from _step(step)
        yield from _end(run)
    yield from _verdict(msgspec.structs.replace(result, verdict="same", divergences=()) if accepted else result)


def _step(step: Step) -> Iterator[str]:
    """One line, and one more for each further call."""
    mark = step.chat.digest[:_DIGEST] if step.chat is not None else ""
    margin = f"{step.index:>4} {mark:<{_DIGEST}}  "
    parts = [*_decided(step)]
    parts[-1] += _after(step)
    for part in parts:
        yield (margin + part).rstrip()
        margin = " " * len(margin)


def _decided(step: Step) -> Iterator[str]:
    decision = step.decision
    if decision is None:
        yield "cut short before a decision"
    elif decision.kind == "fault":
        fault = decision.fault
        yield "fault" if fault is None else f"fault {fault.rule}: {line(fault.message, _TEXT)}"
    elif decision.kind == "finish":
        yield "finish"
    if step.calls:
        yield from map(_call, step.calls)
    elif decision is not None and decision.kind == "calls":
        yield "no call was made"


def _call(record: CallRecord) -> str:
    call = record.call
    asked = literal(call.name) + " " + cut(literal(compact_json(call.args)), _ARGS)
    by = f" by the {record.served_by}" if record.served_by else ""
    error = record.error
    said = f": {line(error.message, _TEXT // 2)}" if error is not None and error.message else ""
    return f"{asked} -> {record.outcome}{by}{said}"


def _after(step: Step) -> str:
    """What the kernel made of a step, where that is worth a word."""
    parts: list[str] = []
    if step.chat is not None and step.chat.attempts:
        parts.append(f"failed attempts {len(step.chat.attempts)}")
    if step.chat is not None and step.chat.condensed:
        parts.append(f"condensed {step.chat.condensed} messages")
    if step.decision is not None and step.decision.ignored:
        parts.append(f"ignored {len(step.decision.ignored)} more actions")
    guard = step.guard
    if guard.verdict != "ok":
        seen = f", seen in step {guard.seen_step}" if guard.seen_step else ""
        parts.append(f"guard {guard.verdict} {literal(guard.rule)}{seen}, warnings {guard.warnings}")
    if step.refusal is not None:
        parts.append(f"finish refused: {line(step.refusal, _TEXT // 2)}")
    if step.errors:
        parts.append(f"errors {step.errors}")
    return "".join(f" | {part}" for part in parts)


def _end(run: Run) -> Iterator[str]:
    end = run.end
    if end is None:
        yield "stop none: cut short"
        return
    yield f"stop {end.stop_reason}" + (f": {line(end.detail, _TEXT)}" if end.detail else "")
    if end.answer is not None:
        yield f"answer {line(end.answer, _TEXT)}"
    yield f"used {_used(end)}"


def _used(end: RunEnd) -> str:
    usage: Any = end.usage
    cost = "unknown" if end.cost_usd is None else f"${end.cost_usd:.6f}"
    tokens = f"tokens {_known(usage.input_tokens)} in {_known(usage.output_tokens)} out"
    return f"model calls {end.model_calls}, tool calls {end.tool_calls}, {tokens}, cost {cost}"


def _known(tokens: int | None) -> str:
    return "unknown" if tokens is None else str(tokens)


def _verdict(result: ReplayResult) -> Iterator[str]:
    served, unused = result.served, result.unused
    evidence = (
        f"served {served.model} model replies, {served.tools} tool results; "
        f"unused {unused.model + unused.tools}; live 0"
    )
    told = f"{MEANINGS['imported']}; {evidence}" if result.verdict == "imported" else evidence
    yield f"verdict {result.verdict}: {result.why_not or told}"
    if not result.complete and not result.why_not:
        yield "recording is cut short: no stop was recorded"
    leading = [divergence for divergence in result.divergences if not divergence.downstream][:_DIFFERENCES]
    for divergence in leading:
        yield f"difference at step {divergence.step}: {divergence.kind} {literal(divergence.path)} ({divergence.cause})"
    if more := len(result.divergences) - len(leading):
        yield f"and {more} more that follow from it"
