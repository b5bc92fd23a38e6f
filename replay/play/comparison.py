"""Compare a recorded run with its replay at every seam, step by step. A difference is a value; equal steps cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from kernel.record import BudgetReading, CallRecord, Chat, Run, Step, StepMarks, ToolSpec
from kernel.trace import Problem
from replay.play.divergence import ABSENT, Divergence, Kind, differences

_MAX_PER_PLACE = 5
NO_END = "no end"
_plain = msgspec.to_builtins


def compare(recorded: Run, observed: Run, *, turn: int = 1, from_recording: bool = True) -> list[Divergence]:
    """All differences between two runs, in order of step and seam. O(steps) where they are equal.

    `from_recording` tells that the head was taken from the recording; else today's tools and parameters are compared too.
    """
    return [
        *compare_steps(recorded, observed, turn=turn, from_recording=from_recording),
        *compare_ends(recorded, observed, turn=turn),
    ]


def compare_steps(recorded: Run, observed: Run, *, turn: int = 1, from_recording: bool = True) -> list[Divergence]:
    """The differences of requests and of the steps that both runs have. Unequal steps never give none."""
    found: list[Divergence] = []
    if not from_recording:
        found.extend(_heads(recorded, observed, turn))
    pairs = zip(recorded.steps, observed.steps, strict=False)
    for index, (was, now) in enumerate(pairs):
        if _same(was, now):
            continue
        marks = recorded.marks[index] if index < len(recorded.marks) else None
        cut = recorded.end is None and index == len(recorded.steps) - 1
        unequal = list(_steps(was, now, marks, turn, cut))
        if not unequal and not (cut and was.decision is None):
            unequal = list(_rest(was, now, marks, turn))
        found.extend(unequal)
    return found


def _same(was: Step, now: Step) -> bool:
    """Whether two steps are equal, also in what Python takes for equal: `1`, `1.0` and `True` are three arguments."""
    return was == now and all(
        one.call.args is other.call.args or next(differences(one.call.args, other.call.args), None) is None
        for one, other in zip(was.calls, now.calls, strict=True)
    )


def content_divergences(problems: Sequence[Problem], turn: int) -> list[Divergence]:
    """What was changed, cut or lost in the file since it was recorded, as differences."""
    return [
        Divergence(
            step=problem.step,
            kind="missing" if problem.kind == "missing" else "content",
            path=f"/{problem.attribute}",
            recorded="as recorded",
            observed=problem.message,
            span_id=problem.span_id,
            cause="file",
            turn=turn,
        )
        for problem in problems
    ]


def _heads(recorded: Run, observed: Run, turn: int) -> Iterator[Divergence]:
    """Tools and parameters of the requests, which stand in the head."""
    span = recorded.mark.span_id

    def at(path: str, one: Any, other: Any, cause: str) -> Divergence:
        return Divergence(
            step=1, kind="request", path=path, recorded=one, observed=other, span_id=span, cause=cause, turn=turn
        )

    was = {tool.name: _seen(tool) for tool in recorded.head.tools}
    now = {tool.name: _seen(tool) for tool in observed.head.tools}
    for path, one, other in differences(was, now, "/tools"):
        yield at(path, one, other, "tool schema")
    if list(was) != list(now) and set(was) == set(now):
        yield at("/tools", list(was), list(now), "tool schema")
    params = recorded.head.params, observed.head.params
    if params[0] != params[1] or next(differences(params[0].extra, params[1].extra), None) is not None:
        for path, one, other in differences(_plain(params[0]), _plain(params[1]), "/params"):
            yield at(path, one, other, "parameters")


def _seen(tool: ToolSpec) -> dict[str, Any]:
    return {"description": tool.description, "parameters": tool.parameters, "returns": tool.returns}


def _steps(was: Step, now: Step, marks: StepMarks | None, turn: int, cut: bool) -> Iterator[Divergence]:
    """One step, in the order of its seams. Of a step that was cut short only what was recorded is compared."""
    step_span = marks.step.span_id if marks is not None else ""
    chat_span = marks.chat.span_id if marks is not None and marks.chat is not None else step_span

    def each(kind: Kind, path: str, one: Any, other: Any, span: str, cause: str) -> Iterator[Divergence]:
        for count, (place, left, right) in enumerate(differences(one, other, path)):
            if count >= _MAX_PER_PLACE:
                return
            yield Divergence(
                step=was.index,
                kind=kind,
                path=place,
                recorded=left,
                observed=right,
                span_id=span,
                cause=_cause(cause, kind, place),
                turn=turn,
            )

    yield from _requests(was, now, chat_span, turn)
    unfinished = cut and was.decision is None
    if unfinished and (was.chat is None or was.chat.reply is None):
        return
    if was.chat is not None and now.chat is not None and was.chat.attempts != now.chat.attempts:
        yield from each(
            "attempt", "/attempts", _plain(was.chat.attempts), _plain(now.chat.attempts), chat_span, "budget"
        )
    if was.chat is not None and now.chat is not None and was.chat.reply != now.chat.reply:
        yield from each("reply", "", _reply(was.chat), _reply(now.chat), chat_span, "budget")
    if not unfinished:
        yield from each("decision", "", _decision(was), _decision(now), step_span, "parser")
    spans = [mark.span_id for mark in marks.calls] if marks is not None else []
    for position in range(max(len(was.calls), 0 if unfinished else len(now.calls))):
        left = was.calls[position] if position < len(was.calls) else None
        right = now.calls[position] if position < len(now.calls) else None
        span = spans[position] if position < len(spans) else step_span
        prefix = "" if max(len(was.calls), len(now.calls)) == 1 else f"/{position}"
        for kind, path, one, other, cause in _calls(left, right):
            yield from each(kind, prefix + path, one, other, span, cause)
    if unfinished:
        return
    if was.guard != now.guard:
        yield from each("guard", "", _plain(was.guard), _plain(now.guard), step_span, "guard")
    yield from each("feedback", "/refusal", was.refusal, now.refusal, step_span, "finish check")
    yield from each("feedback", "", was.feedback, now.feedback, step_span, "texts")
    yield from each("budget", "/errors", was.errors, now.errors, step_span, "budget")
    if was.budget != now.budget:
        yield from each("budget", "", _budget(was.budget), _budget(now.budget), step_span, "budget")


_KINDS: dict[str, Kind] = {"chat": "request", "calls": "call", "guard": "guard", "budget": "budget"}


def _rest(was: Step, now: Step, marks: StepMarks | None, turn: int) -> Iterator[Divergence]:
    """Whatever else two steps differ in, by the names of their fields: what no seam has named is still a difference."""
    one, other = (_plain(_comparable(step)) for step in (was, now))
    for path, left, right in differences(one, other):
        yield Divergence(
            step=was.index,
            kind=_KINDS.get(path.split("/")[1], "decision"),
            path=path,
            recorded=left,
            observed=right,
            span_id=marks.step.span_id if marks is not None else "",
            cause="parser",
            turn=turn,
        )


def _comparable(step: Step) -> Step:
    """A step without what may differ, the noise of a cost and how masked texts were counted, and what is compared above."""
    budget = step.budget and msgspec.structs.replace(step.budget, cost_usd=_nano(step.budget.cost_usd))
    chat = step.chat and msgspec.structs.replace(step.chat, digest="", attempts=())
    return msgspec.structs.replace(step, masked_tokens=0, budget=budget, chat=chat)


def _requests(was: Step, now: Step, span: str, turn: int) -> Iterator[Divergence]:
    one, other = was.chat, now.chat
    if one is None or other is None:
        if one is not other:
            left, right = ("a model call" if chat is not None else ABSENT for chat in (one, other))
            yield Divergence(
                step=was.index, kind="missing", path="/chat", recorded=left, observed=right, span_id=span,
                cause="budget", turn=turn,
            )  # fmt: skip
        return
    count = 0
    for path, left, right in _messages(one, other):
        count += 1
        if count > _MAX_PER_PLACE:
            return
        yield Divergence(
            step=was.index, kind="request", path=path, recorded=left, observed=right, span_id=span,
            cause=_message_cause(path, one, other), turn=turn,
        )  # fmt: skip
    if not count and one.digest and other.digest and one.digest != other.digest:
        yield Divergence(
            step=was.index, kind="request", path="/digest", recorded=one.digest, observed=other.digest, span_id=span,
            cause="prompt", turn=turn,
        )  # fmt: skip


def _messages(one: Chat, other: Chat) -> Iterator[tuple[str, Any, Any]]:
    if one.kept != other.kept:
        yield "/kept", one.kept, other.kept
        return
    if one.condensed != other.condensed:
        yield "/condensed", one.condensed, other.condensed
    if one.max_output_tokens != other.max_output_tokens:
        yield "/params/max_output_tokens", one.max_output_tokens, other.max_output_tokens
    for index in range(max(len(one.new), len(other.new))):
        left = one.new[index] if index < len(one.new) else None
        right = other.new[index] if index < len(other.new) else None
        if left == right:
            continue
        place = f"/messages/{one.kept + index}"
        if left is None or right is None:
            yield place, ABSENT if left is None else _plain(left), ABSENT if right is None else _plain(right)
        else:
            yield from differences(_plain(left), _plain(right), place)


def _message_cause(path: str, chat: Chat, now: Chat) -> str:
    parts = path.split("/")
    if parts[1] == "params":
        return "budget"
    if len(parts) > 2 and parts[1] == "messages" and parts[2].isdigit():
        position = int(parts[2]) - chat.kept
        if any(0 <= position < len(one.new) and one.new[position].role == "system" for one in (chat, now)):
            return "prompt"
        return "task" if chat.kept == 0 and position <= 1 else "observation"
    return "condensing"


def _reply(chat: Chat) -> Any:
    return ABSENT if chat.reply is None else _plain(chat.reply)


def _decision(step: Step) -> Any:
    """A decision without the calls, which are compared one by one."""
    if step.decision is None:
        return None
    return _plain(msgspec.structs.replace(step.decision, calls=()))


def _calls(was: CallRecord | None, now: CallRecord | None) -> Iterator[tuple[Kind, str, Any, Any, str]]:
    if was is None or now is None:
        left, right = (ABSENT if record is None else _brief(record) for record in (was, now))
        yield "call", "", left, right, "parser"
        return
    yield "call", "/tool", was.call.name, now.call.name, "parser"
    yield "call", "/args", was.call.args, now.call.args, "arguments"
    yield "call", "/id", was.call.id, now.call.id, "parser"
    yield "call", "/raw", was.call.raw, now.call.raw, "parser"
    yield "call", "/fault", _plain(was.call.fault), _plain(now.call.fault), "tool schema"
    yield "call", "/coerced", list(was.call.coerced), list(now.call.coerced), "tool schema"
    yield "call", "/repaired", was.call.repaired, now.call.repaired, "parser"
    yield "call", "/outcome", was.outcome, now.outcome, _outcome_cause(was.outcome, now.outcome)
    yield "call", "/served_by", was.served_by, now.served_by, "guard"
    yield "call", "/approval", _plain(was.approval), _plain(now.approval), "approval"
    yield "call", "/key", was.key, now.key, "arguments"
    yield "result", "/result", was.result, now.result, "arguments"
    yield "result", "/error", _plain(was.error), _plain(now.error), "tool"
    yield "observation", "/shown", was.shown, now.shown, "truncation"
    yield "observation", "/artifact", was.artifact, now.artifact, "truncation"
    yield "observation", "/fixed", was.fixed, now.fixed, "truncation"


def _outcome_cause(was: str, now: str) -> str:
    for outcome in (now, was):
        if outcome in ("unknown_tool", "bad_args"):
            return "tool schema"
        if outcome == "denied":
            return "policy"
        if outcome == "duplicate":
            return "guard"
    return "tool"


def _brief(record: CallRecord) -> dict[str, Any]:
    return {"tool": record.call.name, "args": record.call.args, "outcome": record.outcome}


def _budget(reading: BudgetReading | None) -> Any:
    return None if reading is None else _plain(msgspec.structs.replace(reading, cost_usd=_nano(reading.cost_usd)))


def compare_ends(recorded: Run, observed: Run, *, turn: int = 1) -> Iterator[Divergence]:
    """Stop reason, answer and counts, and which run was longer. An end on one side only is a difference."""
    was, now = recorded.end, observed.end
    last = max(len(recorded.steps), len(observed.steps))
    if len(recorded.steps) != len(observed.steps):
        last = min(len(recorded.steps), len(observed.steps)) + 1
    at = partial(Divergence, step=last, span_id=recorded.mark.span_id, turn=turn)
    if was is None or now is None:
        if was is not now:
            one, other = (NO_END if end is None else end.stop_reason for end in (was, now))
            yield at(kind="stop", path="/stop_reason", recorded=one, observed=other, cause="parser")
        return
    stop_cause = _stop_cause(was.stop_reason, now.stop_reason)
    if was.stop_reason != now.stop_reason:
        yield at(
            kind="stop",
            path="/stop_reason",
            recorded=was.stop_reason,
            observed=now.stop_reason,
            cause=stop_cause,
        )
    elif was.detail != now.detail:
        yield at(kind="stop", path="/detail", recorded=was.detail, observed=now.detail, cause=stop_cause)
    if len(recorded.steps) != len(observed.steps):
        steps = len(recorded.steps), len(observed.steps)
        yield at(kind="missing", path="/steps", recorded=steps[0], observed=steps[1], cause="budget")
    if was.answer != now.answer:
        yield at(kind="answer", path="/answer", recorded=was.answer, observed=now.answer, cause="parser")
    if was.stop_reason == "cancelled":  # calls that ran together are torn together, and a replay runs them one by one
        now = msgspec.structs.replace(now, tool_calls=was.tool_calls)
    for name, one, other in _fields(was, now):
        told = name == "steps" and len(recorded.steps) != len(observed.steps)
        if not told and name not in ("stop_reason", "detail", "answer"):
            for path, left, right in differences(one, other, f"/{name}"):
                yield at(kind="budget", path=path, recorded=left, observed=right, cause="budget")


def _fields(was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The fields in which two records of one kind differ, as JSON values."""
    for name in was.__struct_fields__:
        one, other = getattr(was, name), getattr(now, name)
        if name == "cost_usd":
            one, other = _nano(one), _nano(other)
        if one != other:
            yield name, _plain(one), _plain(other)


def _nano(cost_usd: float | None) -> float | None:
    """A cost in whole nano-dollars: below that, floating point is noise."""
    return None if cost_usd is None else round(cost_usd, 9)


def _stop_cause(was: str, now: str) -> str:
    for reason in (now, was):
        if reason in ("max_steps", "token_budget", "cost_budget", "model_error") or reason.endswith("_exhausted"):
            return "budget"  # max_errors, max_finish_refusals and model_retries are limits too
        if reason == "timeout":
            return "clock"
        if reason == "loop_detected":
            return "guard"
    return "parser"


def _cause(cause: str, kind: Kind, path: str) -> str:
    if kind == "budget" and path.endswith("/elapsed_ns"):
        return "clock"
    if kind == "decision" and path.startswith("/answer"):
        return "parser"
    return cause
