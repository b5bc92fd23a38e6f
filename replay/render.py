"""A run as a tree for people: one heading a step, under it the calls with their results and what the kernel decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernel.canonical import compact_json
from kernel.run import Attempt, BudgetReading, Call, CallRecord, Decision, GuardVerdict, Run, Step, StepMarks
from replay.literal import cut, line, literal, quoted, width_of
from replay.recording import Recording

FOLD_BEYOND = 40
"""Longer runs are folded to their head, their tail and the steps around what matters."""

_ENDS, _AROUND = 5, 3
_MAX_CALLS = 8
_MAX_BLOCK_LINES = 200
_MARGIN = 5
_LABEL = 9


class Paint(Struct, frozen=True):
    """Colours of a terminal, or none. Takes text that is already harmless."""

    on: bool = False

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.on and text else text


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
    paint, room = view.paint, view.columns - _MARGIN
    decision = step.decision
    used = _used(step.budget)
    thought = line(decision.thought if decision is not None else "", max(20, room - len(used) - 2))
    heading = thought or _kind_words(decision)
    sign = paint("bad", "≠") if marked else " "
    gap = " " * max(2, room - width_of(heading) - len(used)) if used else ""
    number = paint("strong", f"{step.index:>3}")
    yield f"{sign}{number} {heading if thought else paint('quiet', heading)}{gap}{paint('quiet', used)}"
    for label, text, style in _parts(step):
        yield _labelled(label, text, style, view)
    limit = len(step.calls) if view.verbose else _MAX_CALLS
    for position, record in enumerate(step.calls[:limit]):
        yield from _call_lines(record, view, last=position == len(step.calls) - 1)
    if len(step.calls) > limit:
        yield " " * _MARGIN + paint("quiet", f"⋮ {len(step.calls) - limit} more calls (--verbose)")
    for label, text, style in _after(step):
        yield _labelled(label, text, style, view)


def _kind_words(decision: Decision | None) -> str:
    if decision is None:
        return "(cut short before a decision)"
    return {"calls": "(no thought)", "finish": "(finish)", "fault": "(not readable as an action)"}[decision.kind]


def _labelled(label: str, text: str, style: str, view: View) -> str:
    room = max(20, view.columns - _MARGIN - _LABEL)
    return " " * _MARGIN + view.paint(style, f"{label:<{_LABEL}}") + line(text, room)


def _parts(step: Step) -> Iterator[tuple[str, str, str]]:
    """What came before the calls: label, foreign text, style."""
    if step.chat is not None:
        if step.chat.condensed:
            yield "condensed", f"older steps, {step.chat.condensed} messages", "quiet"
        for attempt in step.chat.attempts:
            yield "attempt", attempt_words(attempt), "warn"
    decision = step.decision
    if decision is None:
        return
    if decision.kind == "fault":
        reply = step.chat.reply if step.chat is not None else None
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


def _after(step: Step) -> Iterator[tuple[str, str, str]]:
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


def _used(reading: BudgetReading | None) -> str:
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
    room = max(20, view.columns - _MARGIN - 2)
    name = literal(record.call.name) or '""'
    asked = cut(name + "(" + arguments(record.call) + ")", room)
    outcome, style = outcome_words(record)
    margin = " " * _MARGIN
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


def block(label: str, text: str, view: View, *, indent: int = _MARGIN) -> Iterator[str]:
    """Text of many lines under a label, whole but for what is beyond 200 lines, unless `verbose`."""
    if not text:
        return
    lines = text.split("\n")
    margin = " " * indent
    padded = f"{label:<{_LABEL - 1}} "
    if len(lines) == 1 and width_of(text[:1000]) <= view.columns - indent - len(padded):
        yield f"{margin}{view.paint('quiet', padded)}{literal(text)}"
        return
    yield f"{margin}{view.paint('quiet', label)}"
    limit = len(lines) if view.verbose else _MAX_BLOCK_LINES
    for one in lines[:limit]:
        yield (
            f"{margin}  {literal(one)}" if view.verbose else f"{margin}  {cut(literal(one[:20_000]), 4 * view.columns)}"
        )
    if len(lines) > limit:
        yield f"{margin}  " + view.paint("quiet", f"⋮ {len(lines) - limit} more lines (--verbose)")


def step_detail(step: Step, marks: StepMarks | None, view: View) -> Iterator[str]:
    """One step in full: its request's new messages, the raw reply, the decision, each call with all it carries."""
    paint = view.paint
    used = _used(step.budget)
    yield f" {paint('strong', f'step {step.index}')}" + (f"   {paint('quiet', 'used so far: ' + used)}" if used else "")
    if marks is not None:
        yield from block("span", marks.step.span_id, view)
    if (chat := step.chat) is not None:
        yield f"   {paint('strong', 'request')} {paint('quiet', f'{chat.kept} messages kept, {len(chat.new)} new')}"
        for at, message in enumerate(chat.new, chat.kept):
            yield from block(f"/messages/{at} {literal(message.role)}", message.content, view)
            for call in message.tool_calls:
                yield from block("call", f"{call.name} {call.arguments}", view, indent=_MARGIN + 2)
        for attempt in chat.attempts:
            yield from block("attempt", attempt_words(attempt), view)
        if (reply := chat.reply) is not None:
            yield f"   {paint('strong', 'reply')} {paint('quiet', literal(reply.finish_reason or ''))}"
            yield from block("reasoning", reply.reasoning or "", view)
            yield from block("text", reply.text, view)
            for call in reply.tool_calls:
                yield from block("call", f"{call.name} {call.arguments} {call.id}", view)
    if (decision := step.decision) is not None:
        yield f"   {paint('strong', 'decision')} {decision.kind} {paint('quiet', literal(decision.family))}"
        yield from block("thought", decision.thought, view)
    for label, text, _ in _parts(step):
        if label not in ("attempt", "reply"):
            yield from block(label, text, view)
    for position, record in enumerate(step.calls):
        yield f"   {paint('strong', f'call {position}')} {literal(record.call.name)} {paint('quiet', record.outcome)}"
        yield from block("args", compact_json(record.call.args), view)
        if record.call.coerced:
            yield from block("coerced", ", ".join(record.call.coerced), view)
        yield from _record_detail(record, view)
        if marks is not None and position < len(marks.calls):
            yield from block("span", marks.calls[position].span_id, view)
    for label, text, _ in _after(step):
        yield from block(label, text, view)


def _record_detail(record: CallRecord, view: View) -> Iterator[str]:
    if record.result is not None:
        result = record.result
        yield from block("result", result if isinstance(result, str) else compact_json(result), view)
    if record.error is not None:
        yield from block("error", f"{record.error.type}: {record.error.message}", view)
    if record.shown is not None:
        yield from block("shown", record.shown, view)
    if record.approval is not None:
        yield from block("approval", "given" if record.approval.approved else "refused", view)
    for label, text in (("key", record.key), ("served by", record.served_by), ("artifact", record.artifact)):
        yield from block(label, text or "", view)


def _beside(left: str, right: str, columns: int) -> str:
    return left + " " * max(1, columns - len(left) - len(right)) + right
