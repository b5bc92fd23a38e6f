"""Spans as a `Run`: the inverse of `kernel.trace.encode`, total over damaged traces; each damage found is a `Problem`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from kernel.record import (
    GUARD_OK,
    OUTCOMES,
    STOP_REASONS,
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
    ModelParams,
    Policy,
    Reading,
    Reply,
    Run,
    RunEnd,
    RunHead,
    Step,
    StepMarks,
    ToolFault,
    Usage,
    messages_after,
    replacement_problem,
)
from kernel.trace import semconv as sc
from kernel.trace.attributes import Problem, Reader
from kernel.trace.encode import CONFIG_FIELDS, USAGE, attempts_digest, call_name, span_name, torn
from kernel.trace.genai import message_from_json, tool_from_json
from kernel.trace.span import CLIENT, INTERNAL, Span

NOT_BEGUN = ToolFault(type="not_begun", message="the run was cut short before this call began")


def decode_run(root: Span | None, spans: Iterable[Span]) -> tuple[Run, tuple[Problem, ...]]:
    """One run from its root (None where it is lost) and the other spans of the run, in any order."""
    problems: list[Problem] = []
    steps: dict[int, Span] = {}
    chats: dict[int, Span] = {}
    calls: dict[int, list[Span]] = {}
    others: list[Span] = []
    ordered = sorted(spans, key=lambda s: (s.start_ns, s.span_id))
    for span in ordered:
        operation = span.attributes.get(sc.OPERATION)
        index = span.attributes.get(sc.STEP_INDEX)
        if not isinstance(index, int) or index < 1:
            if sc.SEAL in span.attributes and sc.WIRE_EXCHANGE not in span.attributes:
                problems.append(_misplaced(span, 0, sc.STEP_INDEX, "the span no longer says which step it belongs to"))
            else:
                others.append(span)
        elif operation == sc.EXECUTE_TOOL:
            calls.setdefault(index, []).append(span)
        elif operation is None or operation == sc.CHAT:
            place = steps if operation is None else chats
            if index in place:
                message = f"step {index} has this span twice, the other is {place[index].span_id}: it is not read"
                problems.append(_misplaced(span, index, sc.STEP_INDEX, message))
            else:
                place[index] = span
        elif sc.SEAL in span.attributes:
            problems.append(_misplaced(span, index, sc.OPERATION, f"{operation!r} is no part of a step"))
    head, end, mark = _decode_root(root, problems)
    own = {span.span_id for span in (root, *steps.values()) if span is not None}
    problems.extend(_strays(others, own, root))
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
    _check_complete(root, end, done, problems)
    if root is not None and end is None:
        _check_closed(root, head, ordered, problems)
    return Run(head=head, steps=tuple(done), end=end, mark=mark, marks=tuple(marks)), tuple(problems)


def _strays(others: Iterable[Span], own: set[str], root: Span | None) -> Iterable[Problem]:
    """Spans without mark or seal of ours that stand where only the kernel writes: an action below the run or a step that
    the run does not know. What tools, `confirm` or a finish check start is below their own spans."""
    for span in others:
        operation = span.attributes.get(sc.OPERATION)
        below_root = root is not None and span.parent_id == root.span_id
        known = (sc.EXECUTE_TOOL, sc.CHAT, sc.STEP) if below_root else (sc.EXECUTE_TOOL,)
        if span.parent_id in own and operation in known:
            message = f"{span.name!r:.80} is no span of this run: it was added since"
            yield _misplaced(span, 0, sc.OPERATION, message)


def _misplaced(span: Span, step: int, attribute: str, message: str) -> Problem:
    return Problem(kind="missing", step=step, span_id=span.span_id, attribute=attribute, message=message)


def _check_complete(root: Span | None, end: RunEnd | None, steps: list[Step], problems: list[Problem]) -> None:
    """No step is missing, and there are as many steps and calls as the root counted, at its end or its closing mark."""
    counted = [step.index for step in steps]
    gaps = [(a + 1, b - 1) for a, b in pairwise([0, *counted]) if b - a > 1]
    if gaps:
        lost = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in gaps)
        message = f"steps {lost} are missing from the trace"
        problems.append(Problem(kind="missing", step=gaps[0][0], span_id="", attribute="step", message=message))
    if root is None or (end is None and sc.CLOSED not in root.attributes):
        return
    calls = sum(len(step.calls) for step in steps)
    chats = sum(step.chat is not None for step in steps)
    read = Reader(problems, root, 0)
    for name, found in ((sc.STEPS, len(steps)), (sc.TOOL_CALLS, calls), (sc.MODEL_CALLS, chats)):
        recorded = read.value(name, int) or 0
        if recorded != found:
            message = f"the run counted {recorded}, the trace holds {found}: spans are missing or added"
            read.problem("missing", name, message)


def _check_closed(root: Span, head: RunHead, spans: Iterable[Span], problems: list[Problem]) -> None:
    """A recording without an end that was closed has a seal on every span; one that was imported was closed."""
    closed = sc.CLOSED in root.attributes or head.source is not None
    if not closed and not any(sc.SEAL in span.attributes for span in spans if span.end_ns is None):
        return
    if sc.CLOSED not in root.attributes:
        message = "the closing mark of an imported recording is missing: import it again"
        problems.append(Problem(kind="unsealed", step=0, span_id=root.span_id, attribute=sc.CLOSED, message=message))
    for span in (root, *spans):
        index = 0 if span is root else span.attributes.get(sc.STEP_INDEX)
        if span.end_ns is None and isinstance(index, int) and sc.SEAL not in span.attributes:
            Reader(problems, span, index).problem(
                "unsealed", sc.SEAL, "the seal is missing: the span was changed since"
            )


def _decode_root(root: Span | None, problems: list[Problem]) -> tuple[RunHead, RunEnd | None, Mark]:
    if root is None:
        message = "the root span of the run is not in the file: the run was cut short, or its spans were split"
        problems.append(Problem(kind="missing", step=0, span_id="", attribute=sc.INVOKE_AGENT, message=message))
        return RunHead(agent="", task="", run_id="", absent=("root",)), None, Mark()
    read = Reader(problems, root, 0)
    read.sealed()
    head = _decode_head(read)
    mark = Mark(span_id=root.span_id, start_ns=root.start_ns, end_ns=root.end_ns)
    stop = read.value(sc.STOP_REASON, str)
    ok = bool(read.value(sc.OK, bool))
    read.shaped(span_name(sc.INVOKE_AGENT, head.agent), INTERNAL, failed=stop is not None and not ok)
    if stop is None:
        return head, None, mark
    read.same(sc.ERROR_TYPE, None if ok else stop, "the stop reason")
    read.closed(sc.STOP_REASON, stop, STOP_REASONS)
    answer = read.json(sc.OUTPUT_MESSAGES, None, None, lambda data: message_from_json(data[0]).content)
    end = RunEnd(
        ok=ok,
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


def _decode_head(read: Reader) -> RunHead:
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
        budget=read.setting(sc.BUDGET, Budget),
        guard=read.setting(sc.GUARD, Guard),
        policy=read.setting(sc.POLICY, Policy),
        context=read.setting(sc.CONTEXT, ContextLimits),
        conversation_id=read.value(sc.CONVERSATION_ID, str),
        turn=read.value(sc.TURN, int) or 1,
    )
    if not config:
        return head
    try:
        known = msgspec.convert(
            {**{f: config[f] for f in CONFIG_FIELDS if f in config}, "agent": "", "task": "", "run_id": ""}, RunHead
        )
    except msgspec.ValidationError as error:
        read.problem("unreadable", sc.CONFIG, f"cannot be read: {error}")
        return head
    texts = {key: text for key, text in known.texts.items() if replacement_problem(key, text) is None}
    if len(texts) != len(known.texts):
        lost = next(key for key in known.texts if key not in texts)
        read.problem("unreadable", sc.CONFIG, f"the text {lost!r} cannot be used here, the kernel's own stands for it")
        known = msgspec.structs.replace(known, texts=texts)
    return msgspec.structs.replace(head, **{f: getattr(known, f) for f in CONFIG_FIELDS if f in config})


def _decode_usage(read: Reader) -> Usage:
    values = [read.value(name, int) for name, _ in USAGE]
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
        chat = _decode_chat(Reader(problems, chat_span, index), chat_span, head, previous)
        chat_mark = _mark(chat_span)
    call_spans.sort(key=_position)
    for position, call_span in enumerate(call_spans):
        if call_span.attributes.get(sc.POSITION) != position:
            message = f"the call is number {position} of its step here: others are missing, added or changed"
            problems.append(_misplaced(call_span, index, sc.POSITION, message))
    records = tuple(_decode_call(Reader(problems, s, index), s) for s in call_spans)
    step = Step(index=index, chat=chat, calls=records)
    mark = Mark()
    if span is None:
        message = "the step's own span is missing: the run was cut short, or spans were lost"
        problems.append(Problem(kind="missing", step=index, span_id="", attribute=sc.STEP, message=message))
    else:
        mark = _mark(span)
        read = Reader(problems, span, index)
        read.sealed()
        if span.end_ns is not None:
            step = _decode_step_end(read, step, records)
        read.shaped(sc.STEP, INTERNAL, failed=torn(step))
    return step, StepMarks(step=mark, chat=chat_mark, calls=tuple(_mark(s) for s in call_spans))


def _position(span: Span) -> int:
    position = span.attributes.get(sc.POSITION)
    return position if isinstance(position, int) else 0


def _mark(span: Span) -> Mark:
    return Mark(span_id=span.span_id, start_ns=span.start_ns, end_ns=span.end_ns)


def _decode_step_end(read: Reader, step: Step, records: tuple[CallRecord, ...]) -> Step:
    decision = read.json(sc.DECISION, Decision, None)
    if decision is not None and not read.value(sc.DECIDED_CALLS, bool) and records:
        decision = msgspec.structs.replace(decision, calls=tuple(r.call for r in records))
    records = _with(records, "shown", read.json(sc.SHOWN, list[str | None], []))
    records = _with(records, "artifact", read.json(sc.ARTIFACTS, list[str | None], []))
    records = _with(records, "fixed", read.json(sc.FIXED, list[bool], []))
    guard: GuardVerdict = read.json(sc.GUARD_DETAIL, GuardVerdict, GUARD_OK)
    read.same(sc.GUARD_VERDICT, None if guard.verdict == "ok" else guard.verdict, "the guard's verdict")
    return Step(
        index=step.index,
        chat=step.chat,
        decision=decision,
        calls=records,
        guard=guard,
        feedback=read.value(sc.FEEDBACK, str),
        refusal=read.value(sc.REFUSAL, str),
        errors=read.value(sc.ERRORS, int) or 0,
        masked_tokens=read.value(sc.MASKED_TOKENS, int) or 0,
        budget=read.json(sc.BUDGET_AFTER, BudgetReading, None),
    )


def _with(records: tuple[CallRecord, ...], field: str, values: Sequence[str | bool | None]) -> tuple[CallRecord, ...]:
    if not values or len(values) != len(records):
        return records
    return tuple(
        msgspec.structs.replace(record, **{field: value}) if value is not None else record
        for record, value in zip(records, values, strict=True)
    )


def _decode_chat(read: Reader, span: Span, head: RunHead, previous: Step | None) -> Chat:
    stored = read.json(sc.INPUT_MESSAGES, None, (), lambda data: tuple(message_from_json(m) for m in data))
    if previous is not None and read.value(sc.CARRIED, int) is None:
        stored = messages_after(previous, head) + stored
    chat = Chat(
        kept=read.value(sc.KEPT, int) or 0,
        new=stored,
        digest=read.text(sc.DIGEST),
        condensed=read.value(sc.CONDENSED, int) or 0,
        max_output_tokens=read.value(sc.REQUEST_MAX_TOKENS, int),
        bounded_by=read.text(sc.BOUNDED_BY),
    )
    read.sealed()
    name = span_name(sc.CHAT, head.params.model)
    if "root" in head.absent:
        name = span.name
    else:
        read.same(sc.REQUEST_MODEL, head.params.model or None, "the model of the run")
        read.same(sc.PROVIDER, head.provider, "the provider of the run")
    attempts = []
    for event in span.events:
        if event.name == sc.ATTEMPT_EVENT:
            number = event.attributes.get(sc.ATTEMPT_NUMBER, 0)
            try:
                attempts.append((number, msgspec.json.decode(event.attributes[sc.ATTEMPT], type=Attempt)))
            except (KeyError, TypeError, msgspec.MsgspecError) as error:
                read.problem("unreadable", sc.ATTEMPT_EVENT, f"attempt {number} cannot be read: {error}")
    attempts.sort(key=lambda pair: pair[0])
    kept = tuple(attempt for _, attempt in attempts)
    if span.end_ns is None:
        read.shaped(name, CLIENT, failed=False)
        return msgspec.structs.replace(chat, attempts=kept)
    recorded = read.value(sc.ATTEMPTS, str)
    if recorded != (attempts_digest(kept) if kept else None):
        read.problem("changed", sc.ATTEMPTS, f"the events of failed attempts are not as recorded; {len(kept)} are here")
    reply: Reply | None = read.json(sc.OUTPUT_MESSAGES, None, None, lambda data: _reply(read, data[0]))
    read.shaped(name, CLIENT, failed=reply is None)
    said = reply.finish_reason if reply is not None else None
    read.same(sc.FINISH_REASONS, None if said is None else [said], "the finish reason of the reply")
    read.same(sc.ERROR_TYPE, kept[-1].kind if kept and reply is None else None, "the last failed attempt")
    return msgspec.structs.replace(chat, reply=reply, attempts=kept)


def _reading(data: dict[str, Any]) -> Reading | None:
    return msgspec.convert(data["reading"], Reading) if "reading" in data else None


def _reply(read: Reader, data: dict[str, Any]) -> Reply:
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
        reading=read.json(sc.REPLY, None, None, _reading),
    )


def _open_call(read: Reader, span: Span, call: Call) -> CallRecord:
    """A call that has no end. One with a side effect says whether that had begun; of any other nobody knows."""
    if not read.value(sc.EFFECT, bool):
        return CallRecord(call=call, outcome="unknown_outcome")
    begun = next((event for event in span.events if event.name == sc.EFFECT_BEGUN), None)
    if begun is None:
        return CallRecord(call=call, outcome="cancelled", error=NOT_BEGUN)
    return CallRecord(call=call, outcome="unknown_outcome", key=str(begun.attributes.get(sc.IDEMPOTENCY_KEY, "")))


def _decode_call(read: Reader, span: Span) -> CallRecord:
    args: Any = read.json(sc.TOOL_ARGUMENTS, None, {}, lambda data: data)
    call = Call(
        name=read.text(sc.TOOL_NAME), args=args if isinstance(args, dict) else {"": args}, id=read.text(sc.TOOL_CALL_ID)
    )
    if sc.CALL_READ in span.attributes:
        more = read.json(sc.CALL_READ, Call, Call(name=""), lambda d: msgspec.convert({**d, "name": ""}, Call))
        call = msgspec.structs.replace(
            call, raw=more.raw, repaired=more.repaired, coerced=more.coerced, fault=more.fault
        )
    read.sealed()
    name = call_name(call.name)
    if span.end_ns is None:
        read.shaped(name, INTERNAL, failed=False)
        return _open_call(read, span, call)
    result: Any = span.attributes.get(sc.TOOL_RESULT)
    if read.text(sc.RESULT_TYPE) == "json":
        result = read.json(sc.TOOL_RESULT, None, None, lambda data: data)
    error = read.value(sc.ERROR_TYPE, str)
    read.closed(sc.OUTCOME, read.text(sc.OUTCOME), OUTCOMES)
    read.shaped(name, INTERNAL, failed=read.text(sc.OUTCOME) not in ("ok", "duplicate"))
    return CallRecord(
        call=call,
        outcome=read.text(sc.OUTCOME) or "unknown_outcome",  # type: ignore[arg-type]
        result=result,
        error=None if error is None else ToolFault(type=error, message=read.text(sc.ERROR_MESSAGE)),
        key=read.value(sc.IDEMPOTENCY_KEY, str),
        approval=read.json(sc.APPROVAL, Approval, None),
        served_by=read.value(sc.SERVED_BY, str),
    )
