"""The codec: a `Run` as spans, and spans as a `Run`. `decode_run(encode_run(run, ...)) == run`, also when cut short.

A run is one `invoke_agent` span; under it a `step` span a step; under that one `chat` and an `execute_tool` a call. Order
and identity come from `tracefirst.step.index` and `tracefirst.call.position`, never from times. A message is stored
once: what a step's reply and results added to the conversation is not written again with the next request; the number
of such messages is in `tracefirst.request.carried`.

Each finished span carries a *seal* over its attributes, so that a reader knows when something downstream cut, masked
or edited one, and which.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from kernel import semconv as sc
from kernel.canonical import canonical_json, compact_json, parse_json
from kernel.genai import message_from_json, message_to_json, reply_to_json, tool_from_json, tool_to_json
from kernel.messages import Message, ModelParams, Reply, Usage
from kernel.run import (
    FORMAT_VERSION,
    Approval,
    Attempt,
    Budget,
    BudgetReading,
    Call,
    CallRecord,
    Chat,
    ContextLimits,
    Decision,
    Guard,
    GuardVerdict,
    Mark,
    Policy,
    Run,
    RunEnd,
    RunHead,
    Step,
    StepMarks,
    ToolFault,
)
from kernel.span import CLIENT, ERROR, INTERNAL, Event, Span
from kernel.transcript import messages_after

Attributes = dict[str, Any]
T = TypeVar("T")


class Problem(Struct, frozen=True, kw_only=True):
    """Something in a trace that is not as it was recorded. `step` 0 is the run itself."""

    kind: str
    step: int
    span_id: str
    attribute: str
    message: str


# ---------------------------------------------------------------- encode

_CONFIG_FIELDS = (
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
    "source",
    "absent",
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
    config = {f: getattr(head, f) for f in _CONFIG_FIELDS if getattr(head, f) != getattr(_HEAD_DEFAULTS, f)}
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
    out[sc.STEPS], out[sc.MODEL_CALLS], out[sc.TOOL_CALLS] = end.steps, end.model_calls, end.tool_calls
    if end.alive:
        out[sc.ALIVE] = list(end.alive)
    return out


def step_attributes(index: int) -> Attributes:
    """Attributes of `step` at its start."""
    return {sc.OPERATION: sc.STEP, sc.STEP_INDEX: index}


def step_end_attributes(step: Step) -> Attributes:
    """What `step` gains at its end."""
    out: Attributes = {}
    if (decision := step.decision) is not None:
        calls = () if decision.calls == tuple(r.call for r in step.calls) else decision.calls
        plain = msgspec.structs.replace(decision, calls=calls) if calls is not decision.calls else decision
        out[sc.DECISION] = compact_json(plain)
        if plain.calls:
            out[sc.DECIDED_CALLS] = True
    if step.guard.verdict != "ok":
        out[sc.GUARD_VERDICT] = step.guard.verdict
    if step.guard != _GUARD_OK:
        out[sc.GUARD_DETAIL] = compact_json(step.guard)
    if any(record.shown is not None for record in step.calls):
        out[sc.SHOWN] = compact_json([record.shown for record in step.calls])
    if any(record.artifact is not None for record in step.calls):
        out[sc.ARTIFACTS] = compact_json([record.artifact for record in step.calls])
    if step.feedback is not None:
        out[sc.FEEDBACK] = step.feedback
    if step.refusal is not None:
        out[sc.REFUSAL] = step.refusal
    if step.errors:
        out[sc.ERRORS] = step.errors
    if step.budget is not None:
        out[sc.BUDGET_AFTER] = compact_json(step.budget)
    if step.errors or step.guard.verdict != "ok" or step.refusal is not None:
        out[sc.FLAGGED] = True
    return out


_GUARD_OK = GuardVerdict()


def chat_attributes(index: int, chat: Chat, head: RunHead, carried: int) -> Attributes:
    """Attributes of `chat` at its start. The first `carried` of the new messages are already in the trace."""
    out: Attributes = {sc.OPERATION: sc.CHAT, sc.STEP_INDEX: index, sc.PROVIDER: head.provider}
    if head.params.model:
        out[sc.REQUEST_MODEL] = head.params.model
    out[sc.KEPT], out[sc.CARRIED] = chat.kept, carried
    new = chat.new[carried:] if carried else chat.new
    if new:
        out[sc.INPUT_MESSAGES] = compact_json([message_to_json(m) for m in new])
    if chat.digest:
        out[sc.DIGEST] = chat.digest
    if chat.condensed:
        out[sc.CONDENSED] = chat.condensed
    return out


def chat_end_attributes(chat: Chat) -> Attributes:
    """What `chat` gains at its end."""
    out: Attributes = {}
    if (reply := chat.reply) is not None:
        out[sc.OUTPUT_MESSAGES] = compact_json([reply_to_json(reply)])
        if reply.finish_reason is not None:
            out[sc.FINISH_REASONS] = [reply.finish_reason]
        if reply.refusal is not None:
            out[sc.REPLY] = compact_json({"refusal": reply.refusal})
        if reply.model is not None:
            out[sc.RESPONSE_MODEL] = reply.model
        if reply.response_id is not None:
            out[sc.RESPONSE_ID] = reply.response_id
        _usage_attributes(out, reply.usage)
    elif chat.attempts:
        out[sc.ERROR_TYPE] = chat.attempts[-1].kind
        out[sc.FLAGGED] = True
    return out


def chat_events(chat: Chat, time_ns: int) -> tuple[Event, ...]:
    """One event a failed attempt, in order."""
    return tuple(
        Event(
            name=sc.ATTEMPT_EVENT,
            time_ns=time_ns,
            attributes={sc.ATTEMPT_NUMBER: number, sc.ATTEMPT: compact_json(attempt)},
        )
        for number, attempt in enumerate(chat.attempts, 1)
    )


def call_attributes(index: int, position: int, call: Call) -> Attributes:
    """Attributes of `execute_tool` at its start."""
    out: Attributes = {sc.OPERATION: sc.EXECUTE_TOOL, sc.STEP_INDEX: index, sc.POSITION: position}
    out[sc.TOOL_NAME] = call.name
    out[sc.TOOL_TYPE] = "function"
    if call.id:
        out[sc.TOOL_CALL_ID] = call.id
    out[sc.TOOL_ARGUMENTS] = compact_json(call.args)
    if call.raw is not None or call.repaired or call.coerced or call.fault is not None:
        read = {"raw": call.raw, "repaired": call.repaired, "coerced": call.coerced, "fault": call.fault}
        out[sc.CALL_READ] = compact_json({k: v for k, v in read.items() if v or v == ""})
    return out


def call_end_attributes(record: CallRecord) -> Attributes:
    """What `execute_tool` gains at its end; `shown` goes to the step."""
    out: Attributes = {sc.OUTCOME: record.outcome}
    if isinstance(record.result, str):
        out[sc.TOOL_RESULT], out[sc.RESULT_TYPE] = record.result, "text"
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


def seal(attributes: Attributes) -> str:
    """Digest of a span's attributes: 16 hex digits over all, a dot, then three for each in the order of their keys."""
    total = hashlib.blake2b(digest_size=8)
    each = []
    for key in sorted(attributes):
        value = attributes[key]
        kind = type(value)
        if kind is str:
            text = value
        elif kind is bool or value is None:
            text = f"\x00{value}"
        elif kind is int or kind is float:
            text = f"\x01{float(value)!r}" if abs(value) < 2**53 else f"\x01{value}"
        else:
            text = canonical_json(value)
        data = f"{key}\x00{text}\x00".encode("utf-8", "surrogatepass")
        total.update(data)
        each.append(f"{zlib.crc32(data) & 0xFFF:03x}")
    return f"{total.hexdigest()}.{''.join(each)}"


def carried_count(previous: Step | None, head: RunHead, new: Sequence[Message]) -> int:
    """How many of the first new messages the trace already holds through the previous step."""
    if previous is None:
        return 0
    known = messages_after(previous, head)
    return len(known) if known and tuple(new[: len(known)]) == known else 0


def span_name(operation: str, subject: str) -> str:
    """`operation subject`: low-cardinality and equal in recording and replay, as Jaeger's comparison needs it."""
    return f"{operation} {subject}" if subject else operation


def encode_run(run: Run, *, trace_id: str, parent_id: str | None = None) -> list[Span]:
    """All spans of a run, in order: root, then each step with its chat and calls."""
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
    return spans


def _encode_step(step: Step, marks: StepMarks, previous: Step | None, head: RunHead, root: Span) -> Iterable[Span]:
    span = _child(root, marks.step, sc.STEP, INTERNAL, step_attributes(step.index))
    if marks.step.end_ns is not None:
        finish_span(span, step_end_attributes(step))
    yield span
    if step.chat is not None and marks.chat is not None:
        carried = carried_count(previous, head, step.chat.new)
        attributes = chat_attributes(step.index, step.chat, head, carried)
        chat = _child(span, marks.chat, span_name(sc.CHAT, head.params.model), CLIENT, attributes)
        if marks.chat.end_ns is not None:
            chat.events = chat_events(step.chat, marks.chat.end_ns)
            finish_span(chat, chat_end_attributes(step.chat), failed=step.chat.reply is None)
        yield chat
    for position, (record, mark) in enumerate(zip(step.calls, marks.calls, strict=True)):
        attributes = call_attributes(step.index, position, record.call)
        call = _child(span, mark, span_name(sc.EXECUTE_TOOL, record.call.name), INTERNAL, attributes)
        if mark.end_ns is not None:
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


_USAGE = (
    (sc.INPUT_TOKENS, "input_tokens"),
    (sc.OUTPUT_TOKENS, "output_tokens"),
    (sc.CACHE_READ_TOKENS, "cache_read_tokens"),
    (sc.CACHE_WRITE_TOKENS, "cache_write_tokens"),
    (sc.REASONING_TOKENS, "reasoning_tokens"),
)


def _usage_attributes(out: Attributes, usage: Usage) -> None:
    for name, field in _USAGE:
        if (value := getattr(usage, field)) is not None:
            out[name] = value
    if usage.estimated:
        out[sc.ESTIMATED] = True


# ---------------------------------------------------------------- decode


class _Reader:
    """Reads attributes of known type; what cannot be read becomes a problem and the fallback is used."""

    def __init__(self, problems: list[Problem], span: Span, step: int) -> None:
        self._problems, self._span, self._step = problems, span, step
        self._attributes = span.attributes

    def problem(self, kind: str, attribute: str, message: str) -> None:
        self._problems.append(
            Problem(kind=kind, step=self._step, span_id=self._span.span_id, attribute=attribute, message=message)
        )

    def json(self, name: str, kind: Any, fallback: T, convert: Callable[[Any], Any] | None = None) -> Any | T:
        value = self._attributes.get(name)
        if value is None:
            return fallback
        try:
            if convert is None:
                if isinstance(value, str):
                    return msgspec.json.decode(value, type=kind)
                return msgspec.convert(value, kind)
            return convert(parse_json(value) if isinstance(value, str) else value)
        except (ValueError, TypeError, KeyError, AttributeError, msgspec.MsgspecError, RecursionError) as error:
            self.problem("unreadable", name, f"cannot be read: {error}")
            return fallback

    def value(self, name: str, kind: type[T]) -> T | None:
        value = self._attributes.get(name)
        if value is None or isinstance(value, kind):
            return value
        if kind is float and isinstance(value, int):
            return float(value)  # type: ignore[return-value]
        if kind is int and isinstance(value, (str, float)) and str(value).lstrip("-").removesuffix(".0").isdigit():
            return int(float(value))  # type: ignore[return-value]
        self.problem("unreadable", name, f"is not {kind.__name__}: {value!r:.60}")
        return None

    def text(self, name: str) -> str:
        return self.value(name, str) or ""

    def sealed(self) -> None:
        """Compare the seal with the attributes; foreign attributes added downstream do not count."""
        recorded = self._attributes.get(sc.SEAL)
        if recorded is None:
            if self._span.end_ns is not None:
                self.problem("unsealed", sc.SEAL, "the seal is missing: the span was changed after it was recorded")
            return
        own = {k: v for k, v in self._attributes.items() if k != sc.SEAL and k.startswith(_OWN)}
        now = seal(own)
        if now == recorded:
            return
        was, is_ = str(recorded).partition(".")[2], now.partition(".")[2]
        keys = sorted(own)
        if len(was) != len(is_):
            message = f"{len(was) // 3} attributes were recorded, {len(keys)} are here: some were dropped or added"
            self.problem("changed", _first_difference(was, is_, keys), message)
            return
        changed = [k for i, k in enumerate(keys) if was[3 * i : 3 * i + 3] != is_[3 * i : 3 * i + 3]]
        for key in changed or [sc.SEAL]:
            self.problem("changed", key, "is not as it was recorded: cut, masked or edited since")


_OWN = ("gen_ai.", "tracefirst.", "error.")


def _first_difference(was: str, now: str, keys: list[str]) -> str:
    for index, key in enumerate(keys):
        if was[3 * index : 3 * index + 3] != now[3 * index : 3 * index + 3]:
            return key
    return sc.SEAL


def decode_run(root: Span | None, spans: Iterable[Span]) -> tuple[Run, tuple[Problem, ...]]:
    """One run from its root (None where it is lost) and the other spans of the run, in any order."""
    problems: list[Problem] = []
    steps: dict[int, Span] = {}
    chats: dict[int, Span] = {}
    calls: dict[int, list[Span]] = {}
    for span in spans:
        operation = span.attributes.get(sc.OPERATION)
        index = span.attributes.get(sc.STEP_INDEX)
        if not isinstance(index, int):
            continue
        if operation == sc.STEP:
            steps[index] = span
        elif operation == sc.CHAT:
            chats[index] = span
        elif operation == sc.EXECUTE_TOOL:
            calls.setdefault(index, []).append(span)
    head, end, mark = _decode_root(root, problems)
    done: list[Step] = []
    marks: list[StepMarks] = []
    previous: Step | None = None
    for index in sorted({*steps, *chats, *calls}):
        step, step_marks = _decode_step(
            index, steps.get(index), chats.get(index), calls.get(index, []), head, previous, problems
        )
        done.append(step)
        marks.append(step_marks)
        previous = step
    _check_complete(end, done, mark, problems)
    return Run(head=head, steps=tuple(done), end=end, mark=mark, marks=tuple(marks)), tuple(problems)


def _check_complete(end: RunEnd | None, steps: list[Step], mark: Mark, problems: list[Problem]) -> None:
    counted = [step.index for step in steps]
    wanted = list(range(1, len(steps) + 1))
    if counted != wanted:
        lost = sorted(set(range(1, (counted or [0])[-1] + 1)) - set(counted))
        message = f"steps {', '.join(map(str, lost))} are missing from the trace"
        problems.append(Problem(kind="missing", step=lost[0], span_id="", attribute="step", message=message))
    if end is None:
        return
    calls = sum(len(step.calls) for step in steps)
    chats = sum(step.chat is not None for step in steps)
    for name, recorded, found in (
        (sc.STEPS, end.steps, len(steps)),
        (sc.TOOL_CALLS, end.tool_calls, calls),
        (sc.MODEL_CALLS, end.model_calls, chats),
    ):
        if recorded != found:
            message = f"the run counted {recorded}, the trace holds {found}: spans are missing or added"
            problems.append(Problem(kind="missing", step=0, span_id=mark.span_id, attribute=name, message=message))


def _decode_root(root: Span | None, problems: list[Problem]) -> tuple[RunHead, RunEnd | None, Mark]:
    if root is None:
        message = "the root span of the run is not in the file: the run was cut short, or its spans were split"
        problems.append(Problem(kind="missing", step=0, span_id="", attribute=sc.INVOKE_AGENT, message=message))
        return RunHead(agent="", task="", run_id="", absent=("root",)), None, Mark()
    read = _Reader(problems, root, 0)
    if root.end_ns is not None:
        read.sealed()
    head = _decode_head(read)
    mark = Mark(span_id=root.span_id, start_ns=root.start_ns, end_ns=root.end_ns)
    stop = read.value(sc.STOP_REASON, str)
    if stop is None:
        return head, None, mark
    answer = read.json(sc.OUTPUT_MESSAGES, None, None, lambda data: message_from_json(data[0]).content)
    end = RunEnd(
        ok=bool(read.value(sc.OK, bool)),
        stop_reason=stop,  # type: ignore[arg-type]
        answer=answer,
        detail=read.text(sc.DETAIL),
        usage=_decode_usage(read),
        cost_usd=read.value(sc.COST, float),
        steps=read.value(sc.STEPS, int) or 0,
        model_calls=read.value(sc.MODEL_CALLS, int) or 0,
        tool_calls=read.value(sc.TOOL_CALLS, int) or 0,
        alive=tuple(read.json(sc.ALIVE, list[str], [])),
    )
    return head, end, mark


def _decode_head(read: _Reader) -> RunHead:
    params = ModelParams(
        model=read.text(sc.REQUEST_MODEL),
        temperature=read.value(sc.REQUEST_TEMPERATURE, float),
        top_p=read.value(sc.REQUEST_TOP_P, float),
        seed=read.value(sc.REQUEST_SEED, int),
        max_output_tokens=read.value(sc.REQUEST_MAX_TOKENS, int),
        stop=tuple(read.json(sc.REQUEST_STOP, list[str], [])),
        extra=read.json(sc.PARAMS, dict[str, Any], {}),
    )
    config: dict[str, Any] = read.json(sc.CONFIG, dict[str, Any], {})
    head = RunHead(
        agent=read.text(sc.AGENT_NAME),
        task=read.json(sc.INPUT_MESSAGES, None, "", lambda data: message_from_json(data[0]).content),
        run_id=read.text(sc.RUN_ID),
        system=read.json(sc.SYSTEM_INSTRUCTIONS, None, "", lambda data: "".join(p["content"] for p in data)),
        provider=read.text(sc.PROVIDER),
        params=params,
        tools=read.json(sc.TOOL_DEFINITIONS, None, (), lambda data: tuple(tool_from_json(t) for t in data)),
        budget=read.json(sc.BUDGET, Budget, Budget()),
        guard=read.json(sc.GUARD, Guard, Guard()),
        policy=read.json(sc.POLICY, Policy, Policy()),
        context=read.json(sc.CONTEXT, ContextLimits, ContextLimits()),
        conversation_id=read.value(sc.CONVERSATION_ID, str),
        turn=read.value(sc.TURN, int) or 1,
    )
    if not config:
        return head
    try:
        known = msgspec.convert(
            {**{f: config[f] for f in _CONFIG_FIELDS if f in config}, "agent": "", "task": "", "run_id": ""}, RunHead
        )
    except msgspec.ValidationError as error:
        read.problem("unreadable", sc.CONFIG, f"cannot be read: {error}")
        return head
    return msgspec.structs.replace(head, **{f: getattr(known, f) for f in _CONFIG_FIELDS if f in config})


def _decode_usage(read: _Reader) -> Usage:
    values = [read.value(name, int) for name, _ in _USAGE]
    estimated = bool(read.value(sc.ESTIMATED, bool))
    return Usage(
        input_tokens=values[0],
        output_tokens=values[1],
        cache_read_tokens=values[2],
        cache_write_tokens=values[3],
        reasoning_tokens=values[4],
        estimated=estimated,
    )


def _decode_step(
    index: int,
    span: Span | None,
    chat_span: Span | None,
    call_spans: list[Span],
    head: RunHead,
    previous: Step | None,
    problems: list[Problem],
) -> tuple[Step, StepMarks]:
    chat, chat_mark = None, None
    if chat_span is not None:
        chat = _decode_chat(_Reader(problems, chat_span, index), chat_span, head, previous)
        chat_mark = _mark(chat_span)
    call_spans.sort(key=lambda s: s.attributes.get(sc.POSITION) or 0)
    records = tuple(_decode_call(_Reader(problems, s, index), s) for s in call_spans)
    step = Step(index=index, chat=chat, calls=records)
    mark = Mark()
    if span is None:
        message = "the step's own span is missing: the run was cut short, or spans were lost"
        problems.append(Problem(kind="missing", step=index, span_id="", attribute=sc.STEP, message=message))
    else:
        mark = _mark(span)
        if span.end_ns is not None:
            step = _decode_step_end(_Reader(problems, span, index), step, records)
    return step, StepMarks(step=mark, chat=chat_mark, calls=tuple(_mark(s) for s in call_spans))


def _mark(span: Span) -> Mark:
    return Mark(span_id=span.span_id, start_ns=span.start_ns, end_ns=span.end_ns)


def _decode_step_end(read: _Reader, step: Step, records: tuple[CallRecord, ...]) -> Step:
    read.sealed()
    decision = read.json(sc.DECISION, Decision, None)
    if decision is not None and not read.value(sc.DECIDED_CALLS, bool) and records:
        decision = msgspec.structs.replace(decision, calls=tuple(r.call for r in records))
    records = _with(records, "shown", read.json(sc.SHOWN, list[str | None], []))
    records = _with(records, "artifact", read.json(sc.ARTIFACTS, list[str | None], []))
    return Step(
        index=step.index,
        chat=step.chat,
        decision=decision,
        calls=records,
        guard=read.json(sc.GUARD_DETAIL, GuardVerdict, _GUARD_OK),
        feedback=read.value(sc.FEEDBACK, str),
        refusal=read.value(sc.REFUSAL, str),
        errors=read.value(sc.ERRORS, int) or 0,
        budget=read.json(sc.BUDGET_AFTER, BudgetReading, None),
    )


def _with(records: tuple[CallRecord, ...], field: str, values: list[str | None]) -> tuple[CallRecord, ...]:
    if not values or len(values) != len(records):
        return records
    return tuple(
        msgspec.structs.replace(record, **{field: value}) if value is not None else record
        for record, value in zip(records, values, strict=True)
    )


def _decode_chat(read: _Reader, span: Span, head: RunHead, previous: Step | None) -> Chat:
    stored = read.json(sc.INPUT_MESSAGES, None, (), lambda data: tuple(message_from_json(m) for m in data))
    carried = read.value(sc.CARRIED, int) or 0
    if carried:
        known = messages_after(previous, head) if previous is not None else ()
        if len(known) != carried:
            read.problem("missing", sc.CARRIED, f"{carried} messages of the previous step are needed, {len(known)} found")
        stored = known[:carried] + stored
    chat = Chat(
        kept=read.value(sc.KEPT, int) or 0,
        new=stored,
        digest=read.text(sc.DIGEST),
        condensed=read.value(sc.CONDENSED, int) or 0,
    )
    if span.end_ns is None:
        return chat
    read.sealed()
    attempts = []
    for event in span.events:
        if event.name == sc.ATTEMPT_EVENT:
            number = event.attributes.get(sc.ATTEMPT_NUMBER, 0)
            try:
                attempts.append((number, msgspec.json.decode(event.attributes[sc.ATTEMPT], type=Attempt)))
            except (KeyError, TypeError, msgspec.MsgspecError) as error:
                read.problem("unreadable", sc.ATTEMPT_EVENT, f"attempt {number} cannot be read: {error}")
    attempts.sort(key=lambda pair: pair[0])
    reply = read.json(sc.OUTPUT_MESSAGES, None, None, lambda data: _reply(read, data[0]))
    return msgspec.structs.replace(chat, reply=reply, attempts=tuple(a for _, a in attempts))


def _reply(read: _Reader, data: dict[str, Any]) -> Reply:
    message = message_from_json(data)
    more: dict[str, Any] = read.json(sc.REPLY, dict[str, Any], {})
    return Reply(
        text=message.content,
        tool_calls=message.tool_calls,
        reasoning=message.reasoning,
        finish_reason=data.get("finish_reason"),
        refusal=more.get("refusal"),
        usage=_decode_usage(read),
        model=read.value(sc.RESPONSE_MODEL, str),
        response_id=read.value(sc.RESPONSE_ID, str),
    )


def _decode_call(read: _Reader, span: Span) -> CallRecord:
    args: Any = read.json(sc.TOOL_ARGUMENTS, None, {}, lambda data: data)
    call = Call(
        name=read.text(sc.TOOL_NAME), args=args if isinstance(args, dict) else {"": args}, id=read.text(sc.TOOL_CALL_ID)
    )
    if sc.CALL_READ in span.attributes:
        more = read.json(sc.CALL_READ, Call, Call(name=""), lambda d: msgspec.convert({**d, "name": ""}, Call))
        call = msgspec.structs.replace(
            call, raw=more.raw, repaired=more.repaired, coerced=more.coerced, fault=more.fault
        )
    if span.end_ns is None:
        return CallRecord(call=call, outcome="unknown_outcome")
    read.sealed()
    result: Any = span.attributes.get(sc.TOOL_RESULT)
    if read.text(sc.RESULT_TYPE) == "json":
        result = read.json(sc.TOOL_RESULT, None, None, lambda data: data)
    error = read.value(sc.ERROR_TYPE, str)
    return CallRecord(
        call=call,
        outcome=read.text(sc.OUTCOME) or "unknown_outcome",  # type: ignore[arg-type]
        result=result,
        error=None if error is None else ToolFault(type=error, message=read.text(sc.ERROR_MESSAGE)),
        key=read.value(sc.IDEMPOTENCY_KEY, str),
        approval=read.json(sc.APPROVAL, Approval, None),
        served_by=read.value(sc.SERVED_BY, str),
    )
