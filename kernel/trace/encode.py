"""A `Run` as spans: the attributes of each span at its start and at its end, for the recorder and for `encode_run`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kernel.record import (
    FORMAT_VERSION,
    GUARD_OK,
    Attempt,
    Call,
    CallRecord,
    Chat,
    Mark,
    ModelParams,
    Run,
    RunEnd,
    RunHead,
    Step,
    StepMarks,
    Usage,
    compact_json,
    digest,
    messages_after,
)
from kernel.trace import semconv as sc
from kernel.trace.genai import message_to_json, reply_to_json, tool_to_json
from kernel.trace.sealing import seal
from kernel.trace.span import CLIENT, ERROR, INTERNAL, Event, Span

Attributes = dict[str, Any]
_MAX_TOOL_NAME = 100

CONFIG_FIELDS = (
    "protocol",
    "language",
    "price",
    "texts",
    "notes",
    "require_finish",
    "finish_check",
    "confirm",
    "masked",
    "resumes",
    "effects",
    "witnessed",
    "source",
    "absent",
    "masked_tokens",
    "model_params",
    "confirm_by_run",
    "dropped",
)
_HEAD_DEFAULTS = RunHead(agent="", task="", run_id="")


def head_attributes(head: RunHead) -> Attributes:
    """Attributes of `invoke_agent` at its start."""
    out: Attributes = {sc.OPERATION: sc.INVOKE_AGENT, sc.FORMAT: FORMAT_VERSION, sc.AGENT_NAME: head.agent}
    out[sc.PROVIDER] = head.provider
    out[sc.RUN_ID] = head.run_id
    if head.conversation_id is not None:
        out[sc.CONVERSATION_ID] = head.conversation_id
    out[sc.TURN] = head.turn
    out.update(_params_attributes(head.params))
    if head.system:
        out[sc.SYSTEM_INSTRUCTIONS] = compact_json([{"type": "text", "content": head.system}])
    out[sc.INPUT_MESSAGES] = compact_json([{"role": "user", "parts": [{"type": "text", "content": head.task}]}])
    if head.tools:
        out[sc.TOOL_DEFINITIONS] = compact_json([tool_to_json(tool) for tool in head.tools])
    for name, value in ((sc.BUDGET, head.budget), (sc.GUARD, head.guard), (sc.POLICY, head.policy)):
        out[name] = compact_json(value)
    out[sc.CONTEXT] = compact_json(head.context)
    config = {f: getattr(head, f) for f in CONFIG_FIELDS if getattr(head, f) != getattr(_HEAD_DEFAULTS, f)}
    out[sc.CONFIG] = compact_json(config)
    return out


def end_attributes(end: RunEnd) -> Attributes:
    """What `invoke_agent` gains at its end."""
    out: Attributes = {sc.OK: end.ok, sc.STOP_REASON: end.stop_reason}
    if end.answer is not None:
        out[sc.OUTPUT_MESSAGES] = compact_json(
            [{"role": "assistant", "parts": [{"type": "text", "content": end.answer}], "finish_reason": "stop"}]
        )
    if end.detail:
        out[sc.DETAIL] = end.detail
    if not end.ok:
        out[sc.ERROR_TYPE] = end.stop_reason
    _usage_attributes(out, end.usage)
    if end.cost_usd is not None:
        out[sc.COST] = end.cost_usd
    out.update(_counts(end.steps, end.model_calls, end.tool_calls))
    if end.alive:
        out[sc.ALIVE] = compact_json(end.alive)
    return out


def _counts(steps: int, model_calls: int, tool_calls: int) -> Attributes:
    return {sc.STEPS: steps, sc.MODEL_CALLS: model_calls, sc.TOOL_CALLS: tool_calls}


def step_attributes(index: int) -> Attributes:
    """Attributes of `step` at its start. It is no operation of the conventions: its index alone marks it."""
    return {sc.STEP_INDEX: index}


def step_end_attributes(step: Step) -> Attributes:
    """What `step` gains at its end."""
    out: Attributes = {}
    if (decision := step.decision) is not None:
        if decision.calls == tuple([record.call for record in step.calls]):
            decision = msgspec.structs.replace(decision, calls=())
        elif decision.calls:
            out[sc.DECIDED_CALLS] = True
        out[sc.DECISION] = compact_json(decision)
    if step.guard.verdict != "ok":
        out[sc.GUARD_VERDICT] = step.guard.verdict
    if step.guard != GUARD_OK:
        out[sc.GUARD_DETAIL] = compact_json(step.guard)
    if any(record.shown is not None for record in step.calls):
        out[sc.SHOWN] = compact_json([record.shown for record in step.calls])
    if any(record.artifact is not None for record in step.calls):
        out[sc.ARTIFACTS] = compact_json([record.artifact for record in step.calls])
    if any(record.fixed for record in step.calls):
        out[sc.FIXED] = compact_json([record.fixed for record in step.calls])
    if step.masked_tokens:
        out[sc.MASKED_TOKENS] = step.masked_tokens
    if step.feedback is not None:
        out[sc.FEEDBACK] = step.feedback
    if step.refusal is not None:
        out[sc.REFUSAL] = step.refusal
    if step.errors:
        out[sc.ERRORS] = step.errors
    if step.budget is not None:
        out[sc.BUDGET_AFTER] = compact_json(step.budget)
    if step.errors or step.guard.verdict != "ok" or step.refusal is not None or torn(step):
        out[sc.FLAGGED] = True
    return out


def torn(step: Step) -> bool:
    """Whether the end of the run tore the step: every other ended step has its budget reading."""
    return step.budget is None


def chat_attributes(index: int, chat: Chat, head: RunHead, previous: Step | None) -> Attributes:
    """Attributes of `chat` at its start. What the previous step added is not stored again with the new messages, unless
    the request does not begin with it: `tracefirst.request.carried` is then 0."""
    carried = known = 0
    if previous is not None:
        known = len(before := messages_after(previous, head))
        carried = known if chat.new[:known] == before else 0
    out: Attributes = {sc.OPERATION: sc.CHAT, sc.STEP_INDEX: index, sc.PROVIDER: head.provider}
    if head.params.model:
        out[sc.REQUEST_MODEL] = head.params.model
    out[sc.KEPT] = chat.kept
    if carried != known:
        out[sc.CARRIED] = carried
    new = chat.new[carried:] if carried else chat.new
    if new:
        out[sc.INPUT_MESSAGES] = compact_json([message_to_json(m) for m in new])
    if chat.digest:
        out[sc.DIGEST] = chat.digest
    if chat.condensed:
        out[sc.CONDENSED] = chat.condensed
    if chat.max_output_tokens is not None:
        out[sc.REQUEST_MAX_TOKENS], out[sc.BOUNDED_BY] = chat.max_output_tokens, chat.bounded_by
    return out


def chat_end_attributes(chat: Chat) -> Attributes:
    """What `chat` gains at its end. Failed attempts are events, which no seal covers: their digest is an attribute."""
    out: Attributes = {}
    if chat.attempts:
        out[sc.ATTEMPTS] = attempts_digest(chat.attempts)
    if (reply := chat.reply) is not None:
        out[sc.OUTPUT_MESSAGES] = compact_json([reply_to_json(reply)])
        if reply.finish_reason is not None:
            out[sc.FINISH_REASONS] = [reply.finish_reason]
        if reply.refusal is not None or reply.reading is not None:
            more = {"refusal": reply.refusal, "reading": msgspec.to_builtins(reply.reading)}
            out[sc.REPLY] = compact_json({key: value for key, value in more.items() if value is not None})
        if reply.model is not None:
            out[sc.RESPONSE_MODEL] = reply.model
        if reply.response_id is not None:
            out[sc.RESPONSE_ID] = reply.response_id
        _usage_attributes(out, reply.usage)
    else:
        if chat.attempts:
            out[sc.ERROR_TYPE] = chat.attempts[-1].kind
        out[sc.FLAGGED] = True
    return out


def attempts_digest(attempts: tuple[Attempt, ...]) -> str:
    """How many attempts failed, and a digest over them in order."""
    return f"{len(attempts)} {digest(compact_json(attempts))}"


def attempt_event(number: int, attempt: Attempt, run_start_ns: int) -> Event:
    """A failed attempt at a model call, on the span of the call."""
    attributes: Attributes = {sc.ATTEMPT_NUMBER: number, sc.ATTEMPT: compact_json(attempt)}
    return Event(name=sc.ATTEMPT_EVENT, time_ns=run_start_ns + attempt.elapsed_ns, attributes=attributes)


def call_attributes(index: int, position: int, call: Call, *, effect: bool = False) -> Attributes:
    """Attributes of `execute_tool` at its start; `effect`: its span will say when its side effect begins."""
    out: Attributes = {sc.OPERATION: sc.EXECUTE_TOOL, sc.STEP_INDEX: index, sc.POSITION: position}
    out[sc.TOOL_NAME] = call.name
    if call.id:
        out[sc.TOOL_CALL_ID] = call.id
    out[sc.TOOL_ARGUMENTS] = compact_json(call.args)
    if call.raw is not None or call.repaired or call.coerced or call.fault is not None:
        read = {"raw": call.raw, "repaired": call.repaired, "coerced": call.coerced, "fault": call.fault}
        out[sc.CALL_READ] = compact_json({k: v for k, v in read.items() if v or v == ""})
    if effect:
        out[sc.EFFECT] = True
    return out


def effect_begun_event(key: str, time_ns: int) -> Event:
    """The side effect of a call begins, on the span of the call."""
    return Event(name=sc.EFFECT_BEGUN, time_ns=time_ns, attributes={sc.IDEMPOTENCY_KEY: key})


def effects_of(head: RunHead) -> frozenset[str]:
    """The tools of a run that have side effects."""
    return frozenset([tool.name for tool in head.tools if tool.side_effect])


def call_end_attributes(record: CallRecord) -> Attributes:
    """What `execute_tool` gains at its end; `shown` goes to the step."""
    out: Attributes = {sc.OUTCOME: record.outcome}
    if isinstance(record.result, str):
        out[sc.TOOL_RESULT] = record.result
    elif record.result is not None:
        out[sc.TOOL_RESULT], out[sc.RESULT_TYPE] = compact_json(record.result), "json"
    if record.error is not None:
        out[sc.ERROR_TYPE], out[sc.ERROR_MESSAGE] = record.error.type, record.error.message
    if record.key is not None:
        out[sc.IDEMPOTENCY_KEY] = record.key
    if record.approval is not None:
        out[sc.APPROVAL] = compact_json(record.approval)
    if record.served_by is not None:
        out[sc.SERVED_BY] = record.served_by
    if record.outcome != "ok":
        out[sc.FLAGGED] = True
    return out


def span_name(operation: str, subject: str) -> str:
    """`operation subject`: low-cardinality and equal in recording and replay, as Jaeger's comparison needs it."""
    return f"{operation} {subject}" if subject else operation


def call_name(tool: str) -> str:
    """The name of a call's span; a model may call anything, at any length."""
    return span_name(sc.EXECUTE_TOOL, tool[:_MAX_TOOL_NAME])


def encode_run(run: Run, *, trace_id: str, parent_id: str | None = None, closed: bool = False) -> list[Span]:
    """All spans of a run, in order: root, then each step with its chat and calls.

    `closed` tells that nothing comes after what is here: a run without an end gets its counts, and its open spans their
    seals, so that a reader knows of whatever is changed, added or lost later.
    """
    head = run.head
    root = Span(
        trace_id=trace_id,
        span_id=run.mark.span_id,
        parent_id=parent_id,
        name=span_name(sc.INVOKE_AGENT, head.agent),
        kind=INTERNAL,
        start_ns=run.mark.start_ns,
        end_ns=run.mark.end_ns,
        attributes=head_attributes(head),
    )
    if run.end is not None:
        finish_span(root, end_attributes(run.end), failed=not run.end.ok)
    spans = [root]
    previous: Step | None = None
    for step, marks in zip(run.steps, run.marks, strict=True):
        spans.extend(_encode_step(step, marks, previous, head, root))
        previous = step
    if (closed or head.source is not None) and run.end is None:  # what was imported is whole when it is written
        root.attributes[sc.CLOSED] = True
        chats, calls = sum(step.chat is not None for step in run.steps), sum(len(step.calls) for step in run.steps)
        root.attributes.update(_counts(len(run.steps), chats, calls))
        for span in spans:
            span.attributes[sc.SEAL] = seal({k: v for k, v in span.attributes.items() if k != sc.SEAL})
    return spans


def _encode_step(step: Step, marks: StepMarks, previous: Step | None, head: RunHead, root: Span) -> Iterable[Span]:
    span = _child(root, marks.step, sc.STEP, INTERNAL, step_attributes(step.index))
    if marks.step.end_ns is not None:
        finish_span(span, step_end_attributes(step), failed=torn(step))
    yield span
    if step.chat is not None and marks.chat is not None:
        attributes = chat_attributes(step.index, step.chat, head, previous)
        chat = _child(span, marks.chat, span_name(sc.CHAT, head.params.model), CLIENT, attributes)
        attempts = enumerate(step.chat.attempts, 1)
        chat.events = tuple([attempt_event(number, attempt, root.start_ns) for number, attempt in attempts])
        if marks.chat.end_ns is not None:
            finish_span(chat, chat_end_attributes(step.chat), failed=step.chat.reply is None)
        yield chat
    effects = effects_of(head) if step.calls else frozenset()
    for position, (record, mark) in enumerate(zip(step.calls, marks.calls, strict=True)):
        is_open = mark.end_ns is None
        told = record.call.name in effects and not (is_open and record.key is None and record.error is None)
        attributes = call_attributes(step.index, position, record.call, effect=told)
        call = _child(span, mark, call_name(record.call.name), INTERNAL, attributes)
        if told and is_open and record.key is not None:
            call.events = (effect_begun_event(record.key, mark.start_ns),)
        if not is_open:
            finish_span(call, call_end_attributes(record), failed=record.outcome not in ("ok", "duplicate"))
        yield call


def _child(parent: Span, mark: Mark, name: str, kind: int, attributes: Attributes) -> Span:
    return Span(
        trace_id=parent.trace_id,
        span_id=mark.span_id,
        parent_id=parent.span_id,
        name=name,
        kind=kind,
        start_ns=mark.start_ns,
        end_ns=mark.end_ns,
        attributes=attributes,
    )


def finish_span(span: Span, attributes: Attributes, *, failed: bool = False) -> None:
    """Add the end attributes and the seal to a span, and its status."""
    span.attributes.update(attributes)
    span.attributes[sc.SEAL] = seal(span.attributes)
    if failed:
        span.status = ERROR


def _params_attributes(params: ModelParams) -> Attributes:
    out: Attributes = {}
    named = (
        (sc.REQUEST_MODEL, params.model or None),
        (sc.REQUEST_TEMPERATURE, params.temperature),
        (sc.REQUEST_TOP_P, params.top_p),
        (sc.REQUEST_SEED, params.seed),
        (sc.REQUEST_MAX_TOKENS, params.max_output_tokens),
        (sc.REQUEST_STOP, list(params.stop) or None),
    )
    for name, value in named:
        if value is not None:
            out[name] = value
    if params.extra:
        out[sc.PARAMS] = compact_json(params.extra)
    return out


USAGE = (
    (sc.INPUT_TOKENS, "input_tokens"),
    (sc.OUTPUT_TOKENS, "output_tokens"),
    (sc.CACHE_READ_TOKENS, "cache_read_tokens"),
    (sc.CACHE_WRITE_TOKENS, "cache_write_tokens"),
    (sc.REASONING_TOKENS, "reasoning_tokens"),
)


def _usage_attributes(out: Attributes, usage: Usage) -> None:
    for name, field in USAGE:
        if (value := getattr(usage, field)) is not None:
            out[name] = value
    if usage.estimated:
        out[sc.ESTIMATED] = True
