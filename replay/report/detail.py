"""One step in full: every text on lines of its own, harmless, for `replay show --step`."""

from __future__ import annotations

from collections.abc import Iterator

from kernel.record import CallRecord, Step, StepMarks, compact_json
from replay.report.literals import cut, literal, width_of
from replay.report.render import LABEL, MARGIN, View, attempt_words, parts_after, parts_before, used_words

_MAX_BLOCK_LINES = 200


def block(label: str, text: str, view: View, *, indent: int = MARGIN) -> Iterator[str]:
    """Text of many lines under a label, whole but for what is beyond 200 lines, unless `verbose`."""
    if not text:
        return
    lines = text.split("\n")
    margin = " " * indent
    padded = f"{label:<{LABEL - 1}} "
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
    used = used_words(step.budget)
    yield f" {paint('strong', f'step {step.index}')}" + (f"   {paint('quiet', 'used so far: ' + used)}" if used else "")
    if marks is not None:
        yield from block("span", marks.step.span_id, view)
    if (chat := step.chat) is not None:
        yield f"   {paint('strong', 'request')} {paint('quiet', f'{chat.kept} messages kept, {len(chat.new)} new')}"
        for at, message in enumerate(chat.new, chat.kept):
            yield from block(f"/messages/{at} {literal(message.role)}", message.content, view)
            for call in message.tool_calls:
                yield from block("call", f"{call.name} {call.arguments}", view, indent=MARGIN + 2)
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
    for label, text, _ in parts_before(step):
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
    for label, text, _ in parts_after(step):
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
