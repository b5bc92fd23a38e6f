"""The replayability report: what a recording holds step by step, what is missing, and what nobody ever recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kernel.record import CallRecord, RunHead, Step
from kernel.trace import Problem
from replay.play import RecordedRun, Recording, why_not_replayable
from replay.report import View, line, literal, title

Replayability = Literal["whole", "part", "no"]
Presence = Literal["recorded", "missing", "none", "open"]


class StepCheck(Struct, frozen=True, kw_only=True):
    """What is there of one step. `none` means that there was nothing to record. `read_otherwise`: a reply of another program,
    which acted on it as it is replayed; what the kernel would do with it instead."""

    turn: int
    step: int
    request: Presence
    reply: Presence
    decision: Presence
    results: Presence
    budget: Presence
    problems: tuple[str, ...] = ()
    read_otherwise: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """The replayability of one recording. `whole`: strict replay means all it can; `part`: something is missing or
    changed, named below; `no`: `why_not` says why it cannot be replayed."""

    recording: Recording
    replayable: Replayability
    why_not: str
    present: tuple[str, ...]
    absent: tuple[str, ...]
    steps: tuple[StepCheck, ...]
    problems: tuple[tuple[int, Problem], ...]
    complete: bool


def check(recording: Recording) -> Check:
    """Examine a recording without running anything. O(steps)."""
    why_not = why_not_replayable(recording)
    steps = tuple(
        _step(step, turn, recorded) for turn, recorded in enumerate(recording.runs, 1) for step in recorded.run.steps
    )
    problems = tuple((turn, problem) for turn, run in enumerate(recording.runs, 1) for problem in run.problems)
    absent = tuple(dict.fromkeys(name for recorded in recording.runs for name in recorded.run.head.absent))
    complete = bool(recording.runs) and all(recorded.run.end is not None for recorded in recording.runs)
    gaps = any("missing" in (s.request, s.reply, s.decision, s.results) for s in steps)
    state: Replayability = "no" if why_not else "part" if problems or absent or gaps or not complete else "whole"
    return Check(
        recording=recording,
        replayable=state,
        why_not=why_not,
        present=_present(recording.runs[0].run.head) if recording.runs else (),
        absent=absent,
        steps=steps,
        problems=problems,
        complete=complete,
    )


def _step(step: Step, turn: int, recorded: RecordedRun) -> StepCheck:
    run = recorded.run
    last = run.end is None and step is run.steps[-1]
    ended = run.end is not None and not run.end.ok and step is run.steps[-1]
    gone: Presence = "open" if last else "none" if ended else "missing"
    chat = step.chat
    found = tuple(problem.message for problem in recorded.problems if problem.step == step.index)
    return StepCheck(
        turn=turn,
        step=step.index,
        request=_of(chat is not None and bool(chat.new or chat.kept), gone),
        reply=_of(chat is not None and (chat.reply is not None or bool(chat.attempts)), gone),
        decision=_decided(step, gone),
        results=_results(step, last),
        budget="none" if "budget" in run.head.absent else _of(step.budget is not None, gone),
        problems=found,
        read_otherwise=_read_otherwise(step),
    )


def _read_otherwise(step: Step) -> str:
    reply = step.chat.reply if step.chat is not None else None
    return reply.reading.kernel if reply is not None and reply.reading is not None else ""


def _of(there: bool, otherwise: Presence) -> Presence:
    return "recorded" if there else otherwise


def _decided(step: Step, gone: Presence) -> Presence:
    if step.decision is not None:
        return "recorded"
    failed = step.chat is not None and step.chat.reply is None and bool(step.chat.attempts)
    return "none" if failed else gone


def _results(step: Step, last: bool) -> Presence:
    if not step.calls:
        return "none"
    if all(_has_result(record) for record in step.calls):
        return "recorded"
    return "open" if last else "missing"


def _has_result(record: CallRecord) -> bool:
    """An unknown outcome that no ledger answered is a call whose end nobody saw."""
    return not (record.outcome == "unknown_outcome" and record.served_by is None and record.error is None)


def _present(head: RunHead) -> tuple[str, ...]:
    """The settings a replay needs, as far as they were recorded."""
    named = {
        "system prompt": bool(head.system),
        "task": bool(head.task),
        f"{len(head.tools)} tool definitions": bool(head.tools),
        "model parameters": bool(head.params.model),
        "budget": "budget" not in head.absent,
        "loop guard": "guard" not in head.absent,
        "policy": "policy" not in head.absent,
        "prices": head.price is not None,
        "texts": bool(head.texts),
        "notes": bool(head.notes),
    }
    return tuple(name for name, there in named.items() if there)


def check_document(check: Check) -> dict[str, Any]:
    """The report as JSON."""
    recording = check.recording
    return {
        "trace_id": recording.trace_id,
        "agent": recording.agent,
        "file": recording.file,
        "replayable": check.replayable,
        "why_not": check.why_not or None,
        "complete": check.complete,
        "source": recording.foreign or "tracefirst",
        "service": recording.service,
        "recorded": list(check.present),
        "not_recorded": list(check.absent),
        "steps": [msgspec.to_builtins(step) for step in check.steps],
        "problems": [{"turn": turn, **msgspec.to_builtins(problem)} for turn, problem in check.problems],
        "notes": list(recording.notes),
    }


_VERDICTS = {
    "whole": ("good", "REPLAYABLE", "all that a strict replay compares was recorded"),
    "part": ("warn", "REPLAYABLE IN PART", "what is missing or changed is named above"),
    "no": ("bad", "NOT REPLAYABLE", ""),
}
_COLUMNS = ("request", "reply", "decision", "results", "budget")
_MAX_ROWS = 60


def check_lines(check: Check, view: View) -> Iterator[str]:
    """The report as text: settings, one row a step, problems, and the conclusion."""
    paint, recording = view.paint, check.recording
    yield title(recording, view)
    source = literal(recording.foreign) or "tracefirst"
    yield f"  source    {source}" + (f", service {literal(recording.service)}" if recording.service else "")
    yield f"  recorded  {', '.join(check.present) or 'no settings'}"
    if check.absent:
        yield f"  {paint('warn', 'absent')}    nobody recorded: {line(', '.join(check.absent), 4 * view.columns)}"
    for note in recording.notes:
        yield f"  note      {line(note, 4 * view.columns)}"
    if check.steps:
        yield ""
        yield paint("quiet", "  step  " + "".join(f"{name:<10}" for name in _COLUMNS).rstrip())
    several = len(recording.runs) > 1
    rows = check.steps if view.verbose or len(check.steps) <= _MAX_ROWS else _notable(check.steps)
    for row in rows:
        number = f"{row.turn}.{row.step}" if several else str(row.step)
        cells = "".join(_cell(getattr(row, name), view) for name in _COLUMNS)
        yield f"  {number:>4}  {cells}".rstrip()
    if len(rows) < len(check.steps):
        yield paint("quiet", f"  ⋮ {len(check.steps) - len(rows)} whole steps not shown (--verbose)")
    otherwise = [row for row in check.steps if row.read_otherwise]
    for row in otherwise if view.verbose else otherwise[:_MAX_ROWS]:
        where = f"turn {row.turn}, step {row.step}" if several else f"step {row.step}"
        yield f"  {paint('warn', 'otherwise')}  {where}: the kernel would {line(row.read_otherwise, 4 * view.columns)}"
    if len(otherwise) > _MAX_ROWS and not view.verbose:
        yield paint(
            "quiet", f"  ⋮ {len(otherwise) - _MAX_ROWS} more steps that the kernel would read otherwise (--verbose)"
        )
    if check.problems:
        yield ""
    limit = len(check.problems) if view.verbose else 20
    for turn, problem in check.problems[:limit]:
        where = f"turn {turn}, " if several else ""
        where += f"step {problem.step}" if problem.step else "the run"
        where += f", {literal(problem.attribute)}, span {literal(problem.span_id)}"
        yield f"  {paint('bad', problem.kind)}  {where}: {line(problem.message, 4 * view.columns)}"
    if len(check.problems) > limit:
        yield paint("quiet", f"  ⋮ {len(check.problems) - limit} more problems (--verbose)")
    yield ""
    style, word, meaning = _VERDICTS[check.replayable]
    if check.replayable == "part" and not check.complete:
        meaning += "; the recording is cut short, a replay compares it as far as it goes"
    yield f"{paint(style, word)}  {meaning or line(check.why_not, 4 * view.columns)}"


def _notable(steps: tuple[StepCheck, ...]) -> list[StepCheck]:
    return [s for s in steps if s.problems or {"missing", "open"} & {getattr(s, name) for name in _COLUMNS}][:_MAX_ROWS]


def _cell(presence: Presence, view: View) -> str:
    shown = {"recorded": "yes", "none": "-", "missing": "MISSING", "open": "open"}[presence]
    style = {"missing": "bad", "open": "warn", "none": "quiet"}.get(presence, "")
    padding = " " * (10 - len(shown))
    return (view.paint(style, shown) if style else shown) + padding


def summary_document(found: Sequence[Check]) -> dict[str, Any]:
    """Many reports as counts: how many are whole, in part and not replayable, and for which reasons, most frequent first."""
    reasons = Counter(reason for one in found for reason in dict.fromkeys(_reasons(one)))
    states = Counter(one.replayable for one in found)
    return {
        "recordings": len(found),
        "whole": states["whole"],
        "part": states["part"],
        "no": states["no"],
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    }


def _reasons(found: Check) -> Iterator[str]:
    if found.why_not:
        yield re.sub(r"\d+", "N", found.why_not.partition(":")[0])
        return
    if not found.complete:
        yield "cut short: no end was recorded"
    yield from (f"nobody recorded {name}" for name in found.absent)
    yield from (f"{problem.kind} {problem.attribute}" for _, problem in found.problems)
    for column in ("request", "reply", "decision", "results"):
        if any(getattr(step, column) == "missing" for step in found.steps):
            yield f"missing {column}"


def summary_lines(found: Sequence[Check], unusable: int, view: View) -> Iterator[str]:
    """Many reports as a few lines."""
    counts = summary_document(found)
    more = f", {unusable} unusable" if unusable else ""
    yield f"{counts['recordings']} recordings: {counts['whole']} whole, {counts['part']} in part, {counts['no']} not{more}"
    reasons = list(counts["reasons"].items())
    limit = len(reasons) if view.verbose else _MAX_ROWS
    for reason, count in reasons[:limit]:
        yield f"  {count:>5}  {line(reason, view.columns - 9)}"
    if len(reasons) > limit:
        yield view.paint("quiet", f"  ⋮ {len(reasons) - limit} more reasons (--verbose)")
