"""A run as a tree for people: one heading a step, under it the calls with their results and what the kernel decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernel.record import Attempt, BudgetReading, Call, CallRecord, Decision, GuardVerdict, Run, Step, compact_json
from replay.play import Recording
from replay.report.literals import cut, line, literal, quoted, width_of

FOLD_BEYOND = 40
"""Longer runs are folded to their head, their tail and the steps around what matters."""

_ENDS, _AROUND = 5, 3
_MAX_CALLS = 8
MARGIN = 5
LABEL = 9


class Paint(Struct, frozen=True):
    """Colours of a terminal, or none. Takes text that is already harmless."""

    on: bool = False

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.on and style and text else text


_STYLES = {"strong": "1", "quiet": "2", "bad": "31", "good": "32", "warn": "33", "name": "36"}


class View(Struct, frozen=True, kw_only=True):
    """How much is shown. `columns` bounds a line; `steps` are the chosen ones, None lets the fold choose."""

    columns: int = 100
    paint: Paint = Paint()
    verbose: bool = False
    steps: tuple[range, ...] | None = None

    def wants(self, step: int) -> bool:
        return self.steps is None or any(step in chosen for chosen in self.steps)


def title(recording: Recording, view: View) -> str:
    """Agent, trace and file of a recording, harmless."""
    trace = f"trace {literal(recording.trace_id)}" if recording.trace_id else ""
    agent = view.paint("strong", literal(recording.agent) or "agent")
    return "  ".join(filter(None, (agent, trace, literal(recording.file))))


def tree(run: Run, view: View, *, notes: Mapping[int, Sequence[str]] | None = None) -> Iterator[str]:
    """The steps of a run, folded where it is long. `notes` are whole, harmless lines to show under a step;
    the fold leaves what is around the first such step."""
    notes = notes or {}
    yield view.paint("quiet", _beside(" step", "used so far", view.columns))
    shown = chosen_steps([step.index for step in run.steps], view, focus=sorted(notes))
    hidden: list[int] = []
    for step in run.steps:
        if step.index not in shown:
            hidden.append(step.index)
            continue
        if hidden:
            yield _fold(hidden, view)
            hidden = []
        marked = step.index in notes
        yield from step_lines(step, view, marked=marked)
        yield from notes.get(step.index, ())
    if hidden:
        yield _fold(hidden, view)


def chosen_steps(indexes: Sequence[int], view: View, focus: Sequence[int] = ()) -> set[int]:
    """Which steps are shown: the chosen ones, or all of a short run, or the ends and what is around `focus`."""
    if view.steps is not None:
        return {index for index in indexes if view.wants(index)}
    if view.verbose or len(indexes) <= FOLD_BEYOND:
        return set(indexes)
    shown = {*indexes[:_ENDS], *indexes[-_ENDS:]}
    for index in focus[:1]:
        shown.update(range(index - _AROUND, index + _AROUND + 1))
    return shown


def _fold(hidden: list[int], view: View) -> str:
    span = f"step {hidden[0]}" if len(hidden) == 1 else f"steps {hidden[0]}-{hidden[-1]}"
    return view.paint("quiet", f"   ⋮ {span} not shown (--steps {hidden[0]}-{hidden[-1]} or --verbose)")


def step_lines(step: Step, view: View, *, marked: bool = False) -> Iterator[str]:
    """One step: heading with thought and budget, then its parts, each on a line of its own."""
    paint, room = view.paint, view.columns - MARGIN
    decision = step.decision
    used = used_words(step.budget)
    thought = line(decision.thought if decision is not None else "", max(20, room - len(used) - 2))
    heading = thought or _kind_words(decision)
    sign = paint("bad", "≠") if marked else " "
    gap = " " * max(2, room - width_of(heading) - len(used)) if used else ""
    number = paint("strong", f"{step.index:>3}")
    yield f"{sign}{number} {heading if thought else paint('quiet', heading)}{gap}{paint('quiet', used)}"
    for label, text, style in parts_before(step):
        yield _labelled(label, text, style, view)
    limit = len(step.calls) if view.verbose else _MAX_CALLS
    for position, record in enumerate(step.calls[:limit]):
        yield from _call_lines(record, view, last=position == len(step.calls) - 1)
    if len(step.calls) > limit:
        yield " " * MARGIN + paint("quiet", f"⋮ {len(step.calls) - limit} more calls (--verbose)")
    for label, text, style in parts_after(step):
        yield _labelled(label, text, style, view)


def _kind_words(decision: Decision | None) -> str:
    if decision is None:
        return "(cut short before a decision)"
    return {"calls": "(no thought)", "finish": "(finish)", "fault": "(not readable as an action)"}[decision.kind]


def _labelled(label: str, text: str, style: str, view: View) -> str:
    room = max(20, view.columns - MARGIN - LABEL)
    return " " * MARGIN + view.paint(style, f"{label:<{LABEL}}") + line(text, room)


def parts_before(step: Step) -> Iterator[tuple[str, str, str]]:
    """What came before the calls: label, foreign text, style."""
    if step.chat is not None:
        if step.chat.condensed:
            yield "condensed", f"older steps, {step.chat.condensed} messages", "quiet"
        for attempt in step.chat.attempts:
            yield "attempt", attempt_words(attempt), "warn"
    decision = step.decision
    reply = step.chat.reply if step.chat is not None else None
    if reply is not None and reply.reading is not None and reply.reading.kernel:
        yield "otherwise", f"the kernel would {reply.reading.kernel}", "warn"
    if decision is None:
        return
    if decision.kind == "fault":
        if reply is not None:
            yield "reply", reply.text or "(empty)", "quiet"
        if decision.fault is not None:
            yield "fault", f"{decision.fault.rule}: {decision.fault.message}", "bad"
    if decision.intent:
        yield "intent", decision.intent, "quiet"
    if decision.estimated_cost is not None:
        yield "estimate", str(decision.estimated_cost), "quiet"
    if decision.ignored:
        yield "ignored", ", ".join(decision.ignored), "warn"


def parts_after(step: Step) -> Iterator[tuple[str, str, str]]:
    """What came after the calls."""
    if step.guard.verdict != "ok":
        yield "guard", guard_words(step.guard), "warn"
    if step.decision is not None and step.decision.kind == "finish":
        yield "finish", step.decision.answer or "", "good" if step.refusal is None else "quiet"
    if step.refusal is not None:
        yield "refused", step.refusal, "warn"
    if step.feedback:
        yield "told", step.feedback, "quiet"


def attempt_words(attempt: Attempt) -> str:
    """A failed attempt at a model call."""
    status = f" {attempt.status}" if attempt.status is not None else ""
    wait = f" (next after {attempt.wait_s:g} s)" if attempt.wait_s is not None else ""
    return f"{attempt.kind}{status}: {attempt.message}{wait}"


def guard_words(guard: GuardVerdict) -> str:
    """A guard verdict in words; holds text of the trace."""
    words = {"warned": "warned", "answered": "answered without running it", "loop": "loop detected"}
    parts = [words.get(guard.verdict, guard.verdict)]
    if guard.rule:
        parts.append(guard.rule)
    if guard.tool:
        parts.append(guard.tool)
    if guard.seen_step:
        parts.append(f"seen in step {guard.seen_step}")
    if guard.period:
        parts.append(f"period {guard.period}")
    if guard.warnings:
        parts.append("1 warning" if guard.warnings == 1 else f"{guard.warnings} warnings")
    return ", ".join(parts)


def used_words(reading: BudgetReading | None) -> str:
    """What had been used after a step, or "" where that is not known."""
    if reading is None:
        return ""
    return usage_words(reading.prompt_tokens, reading.output_tokens, reading.cost_usd, reading.elapsed_ns)


def usage_words(prompt: int | None, output: int | None, cost_usd: float | None, elapsed_ns: int | None) -> str:
    """Tokens, cost and time in a few columns; what is not known is left out."""
    parts = []
    if prompt is not None or output is not None:
        parts.append(f"{_count(prompt)} in {_count(output)} out")
    if cost_usd is not None:
        parts.append(f"${cost_usd:.4f}")
    if elapsed_ns is not None:
        parts.append(f"{elapsed_ns / 1e6:.0f} ms" if elapsed_ns < 1e9 else f"{elapsed_ns / 1e9:,.1f} s")
    return " · ".join(parts)


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else f"{tokens:,}"


def _call_lines(record: CallRecord, view: View, *, last: bool) -> Iterator[str]:
    """`tool(arguments) → result` on one line where it fits, else on two."""
    paint = view.paint
    branch, below = ("└ ", "  ") if last else ("├ ", "│ ")
    room = max(20, view.columns - MARGIN - 2)
    name = literal(record.call.name) or '""'
    asked = cut(name + "(" + arguments(record.call) + ")", room)
    outcome, style = outcome_words(record)
    margin = " " * MARGIN
    painted = paint("name", asked[: len(name)]) + asked[len(name) :]
    free = room - width_of(asked) - 1
    if free >= 24 and width_of(outcome[:2000]) <= free:
        yield f"{margin}{paint('quiet', branch)}{painted} {paint(style, outcome)}"
    else:
        yield f"{margin}{paint('quiet', branch)}{painted}"
        yield f"{margin}{paint('quiet', below)}  {paint(style, cut(outcome, room - 2))}"


def arguments(call: Call) -> str:
    """The arguments of a call as `name=value, …`, harmless; the raw text where they could not be read."""
    if not call.args and call.raw is not None:
        return literal(call.raw[:2000])
    return ", ".join(f"{literal(key)}={value_text(value)}" for key, value in call.args.items())


def outcome_words(record: CallRecord) -> tuple[str, str]:
    """The result of a call on one line, harmless, and its style."""
    by = f" (by the {literal(record.served_by)})" if record.served_by else ""
    if record.outcome == "ok":
        return f"→ {_result_text(record.result)}{by}", "" if not by else "warn"
    text = record.error.message if record.error is not None else ""
    kind = record.error.type if record.error is not None else ""
    said = f"{kind}: {text}" if kind and kind != record.outcome else text
    if not said and record.result is not None:
        return f"✗ {record.outcome}{by}: {_result_text(record.result)}", "bad"
    return f"✗ {record.outcome}{by}" + (f": {line(said, 2000)}" if said else ""), "bad"


def _result_text(result: Any) -> str:
    return line(result, 2000) if isinstance(result, str) else value_text(result)


def value_text(value: Any) -> str:
    """A JSON value on one line, harmless. Text is quoted."""
    if isinstance(value, str):
        return quoted(value if len(value) <= 20_000 else value[:20_000] + "…")
    return literal(compact_json(value))


def _beside(left: str, right: str, columns: int) -> str:
    return left + " " * max(1, columns - len(left) - len(right)) + right
