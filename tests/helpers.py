"""Builders and hypothesis strategies that several tests share: records of every shape, agents that need no network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from fixtures.record import CountingClock, CountingIds
from kernel import Agent, Budget, Reply, RunResult, ScriptedModel, ToolRegistry, Usage
from kernel.record.canonical import compact_json
from kernel.record.messages import Message, ModelParams, Reading, ToolCall, ToolSpec
from kernel.record.run import (
    OUTCOMES,
    STOP_REASONS,
    Approval,
    Attempt,
    BudgetReading,
    Call,
    CallRecord,
    Chat,
    ContextLimits,
    Decision,
    Fault,
    Guard,
    GuardVerdict,
    Mark,
    Policy,
    Price,
    Run,
    RunEnd,
    RunHead,
    Step,
    StepMarks,
    ToolFault,
)
from kernel.record.texts import CATALOGUES
from kernel.record.transcript import messages_after
from kernel.trace.decode import NOT_BEGUN

# ---- runs without a network


def act(name: str, **args: Any) -> str:
    """A reply of the text protocol that calls a tool."""
    return f"Thought: next\n{compact_json({'action': name, 'args': args})}"


def finish(answer: str) -> str:
    """A reply of the text protocol that ends the run."""
    return act("finish", answer=answer)


def calls(*pairs: tuple[str, Any], usage: Usage | None = None) -> Reply:
    """A reply of function calling: `(tool, arguments)`, arguments as a dict or as raw text; ids `c0`, `c1` …"""
    return Reply(
        tool_calls=tuple(
            ToolCall(id=f"c{i}", name=name, arguments=args if isinstance(args, str) else compact_json(args))
            for i, (name, args) in enumerate(pairs)
        ),
        finish_reason="tool_calls",
        usage=usage or Usage(),
    )


def registry(*functions: Callable[..., Any], **options: Any) -> ToolRegistry:
    """A registry of functions, all registered with the same options."""
    tools = ToolRegistry()
    for function in functions:
        tools.register(**options)(function)
    return tools


class Played:
    """A finished run with the model it asked."""

    def __init__(self, result: RunResult, model: ScriptedModel) -> None:
        self.result = result
        self.model = model

    @property
    def last_request(self) -> list[Message]:
        return list(self.model.requests[-1].messages)


def play(
    replies: Sequence[Any],
    tools: ToolRegistry | None = None,
    *,
    protocol: Any = "text",
    task: str = "do it",
    usage: Usage | None = None,
    trace: Any = False,
    confirm: Any = None,
    clock: Any = None,
    ids: Any = None,
    **agent: Any,
) -> Played:
    """Run an agent on a script, in an event loop of its own."""
    model = ScriptedModel(replies, protocol=protocol, usage=usage)
    work = Agent(tools=tools, **agent).run(task, llm=model, trace=trace, confirm=confirm, clock=clock, ids=ids)
    return Played(asyncio.run(work), model)


def counting(name: str = "test") -> dict[str, Any]:
    """A clock and ids that count, for runs whose trace must be equal each time."""
    return {"clock": CountingClock(), "ids": CountingIds(name)}


# ---- strategies: records of every shape

_TEXTS = ("", " ", "a", "{}", "null", "中文", "a\nb\x00", "\u2028", "😀", '"', "é" * 40, "x=1", "/0", "\x7f\t", "x y")
texts = st.sampled_from(_TEXTS) | st.text(st.characters(codec="utf-8"), max_size=3)
maybe_texts = st.none() | texts
integers = st.sampled_from([0, 1, -1, 7, 2**31, 2**53 + 1, -(2**63), 2**63 - 1, 2**64, 2**70, -(2**70)])
counts = st.sampled_from([0, 1, 2, 3, 40, 2**40])
floats = st.sampled_from([0.0, -0.0, 1.0, 0.1, -2.5, 1e-9, 1e16, 1.7e308, 5e-324, 1e22])
_leaves = st.none() | st.booleans() | integers | floats | texts
_nested = st.sampled_from([{"a": [1, {"b": None}]}, [[], {}], {"": {"": [0.5, "x"]}}, [[["deep"]]]])
json_objects = st.dictionaries(texts, _leaves | _nested, max_size=2)
json_values = _leaves | _nested | st.lists(_leaves | _nested, max_size=2) | json_objects
argument_texts = texts | json_objects.map(json.dumps) | json_objects.map(compact_json)


def few(strategy: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


tool_calls = st.builds(ToolCall, name=texts, arguments=argument_texts, id=texts)
usages = st.builds(
    Usage,
    input_tokens=st.none() | counts,
    output_tokens=st.none() | counts,
    cache_read_tokens=st.none() | counts,
    cache_write_tokens=st.none() | counts,
    reasoning_tokens=st.none() | counts,
    estimated=st.booleans(),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    tool_calls=few(tool_calls),
    tool_call_id=maybe_texts,
    name=maybe_texts,
    reasoning=maybe_texts,
)
replies = st.builds(
    Reply,
    text=texts,
    tool_calls=few(tool_calls),
    reasoning=maybe_texts,
    finish_reason=maybe_texts,
    refusal=maybe_texts,
    usage=usages,
    model=maybe_texts,
    response_id=maybe_texts,
    reading=st.none()
    | st.builds(Reading, calls=few(tool_calls), answer=maybe_texts, complaint=maybe_texts, kernel=texts),
)
attempts = st.builds(
    Attempt,
    kind=texts,
    message=texts,
    status=st.none() | st.integers(100, 599),
    retry_after_s=st.none() | floats,
    retryable=st.booleans(),
    wait_s=st.none() | floats,
    elapsed_ns=counts,
    input_tokens=st.none() | counts,
)
faults = st.builds(Fault, rule=texts, message=texts, position=st.integers(-1, 99))
call_values = st.builds(
    Call,
    name=texts,
    args=json_objects,
    id=texts,
    raw=maybe_texts,
    repaired=st.booleans(),
    coerced=few(texts),
    fault=st.none() | faults,
)
call_records = st.builds(
    CallRecord,
    call=call_values,
    outcome=st.sampled_from(OUTCOMES),
    result=json_values,
    error=st.none() | st.builds(ToolFault, type=texts, message=texts),
    shown=maybe_texts,
    key=maybe_texts,
    approval=st.none()
    | st.builds(
        Approval,
        approved=st.booleans(),
        binding=texts,
        reason=st.sampled_from(["side_effect", "cost"]),
        failure=maybe_texts,
    ),
    served_by=st.sampled_from([None, "guard", "ledger"]),
    artifact=maybe_texts,
    fixed=st.booleans(),
)
verdicts = st.builds(
    GuardVerdict,
    verdict=st.sampled_from(["ok", "warned", "answered", "loop"]),
    rule=texts,
    tool=texts,
    seen_step=st.integers(0, 9),
    period=st.integers(0, 9),
    cycle=few(texts),
    warnings=st.integers(0, 9),
)
readings = st.builds(
    BudgetReading,
    prompt_tokens=counts,
    output_tokens=counts,
    cost_usd=st.none() | floats,
    elapsed_ns=counts,
    estimated=st.booleans(),
)
tool_specs = st.builds(
    ToolSpec,
    name=texts,
    description=texts,
    parameters=json_objects,
    returns=texts,
    timeout_s=st.none() | floats,
    side_effect=st.booleans(),
    volatile=st.booleans(),
    repeats=counts,
    isolate=st.booleans(),
    idempotency=st.sampled_from(["arguments", "position"]),
    max_calls=st.none() | counts,
    calls_per_second=st.none() | floats,
)
replaced_texts = st.sampled_from([{}, {key: f"{CATALOGUES['en'][key]}!" for key in ("observation", "notes")}])
params = st.builds(
    ModelParams,
    model=texts,
    temperature=st.none() | floats,
    top_p=st.none() | floats,
    seed=st.none() | integers,
    max_output_tokens=st.none() | counts,
    stop=few(texts),
    extra=json_objects,
)
heads = st.builds(
    RunHead,
    agent=texts,
    task=texts,
    run_id=texts,
    system=texts,
    protocol=st.sampled_from(["text", "tools"]),
    language=st.sampled_from(["en", "zh"]),
    provider=texts,
    params=params,
    model_params=st.none() | params,
    confirm_by_run=st.booleans(),
    dropped=few(texts),
    tools=few(tool_specs),
    budget=st.builds(
        Budget,
        max_steps=st.none() | counts,
        max_prompt_tokens=st.none() | counts,
        max_total_output_tokens=st.none() | counts,
        max_cost_usd=st.none() | floats,
        timeout_s=st.none() | floats,
        max_errors=counts,
        max_output_tokens=st.none() | counts,
        max_finish_refusals=counts,
        model_retries=counts,
    ),
    guard=st.builds(Guard, enabled=st.booleans(), window=counts, max_warnings=counts, similarity=st.none() | floats),
    policy=st.builds(
        Policy, mode=st.sampled_from(["read_only", "dry_run", "allowlist", "full"]), allow=few(texts), source=texts
    ),
    context=st.builds(ContextLimits, max_observation_chars=counts, window_tokens=st.none() | counts, keep_steps=counts),
    price=st.none()
    | st.builds(
        Price,
        input_usd=floats,
        output_usd=floats,
        cache_read_usd=st.none() | floats,
        cache_write_usd=st.none() | floats,
    ),
    texts=replaced_texts,
    notes=few(texts),
    require_finish=st.booleans(),
    finish_check=st.booleans(),
    confirm=st.booleans(),
    conversation_id=maybe_texts,
    turn=st.integers(1, 99),
    masked=few(texts),
    resumes=maybe_texts,
    effects=st.none() | few(texts),
    witnessed=few(texts),
    source=maybe_texts,
    absent=few(texts),
    masked_tokens=counts,
)


class _Marks:
    """Marks with ids and times that count up."""

    def __init__(self) -> None:
        self._count = 0

    def mark(self, *, ended: bool = True) -> Mark:
        self._count += 1
        start = 1_700_000_000_000_000_000 + self._count * 1000
        return Mark(span_id=f"{self._count:016x}", start_ns=start, end_ns=start + 7 if ended else None)


@st.composite
def _chat(draw: st.DrawFn, head: RunHead, previous: Step | None, *, ended: bool = True) -> Chat:
    new = draw(few(messages))
    if previous is not None and draw(st.booleans()):
        new = (*messages_after(previous, head), *new)
    bound = draw(st.none() | counts)
    chat = Chat(
        kept=draw(st.integers(0, 50)),
        new=new,
        digest=draw(texts),
        condensed=draw(st.integers(0, 9)),
        max_output_tokens=bound,
        bounded_by="" if bound is None else draw(texts),
    )
    if not ended:
        return chat
    reply = draw(st.none() | replies)
    return msgspec.structs.replace(chat, reply=reply, attempts=draw(few(attempts)))


@st.composite
def _finished_step(draw: st.DrawFn, index: int, head: RunHead, previous: Step | None) -> Step:
    chat = draw(st.none() | _chat(head, previous))
    kind = draw(st.sampled_from([None, "finish", "fault", "calls"]))
    records: tuple[CallRecord, ...] = draw(few(call_records, 3)) if kind == "calls" else ()
    decision = None
    if kind is not None:
        decision = Decision(
            kind=kind,  # type: ignore[arg-type]
            thought=draw(texts),
            calls=(*(record.call for record in records), *(draw(few(call_values, 1)) if kind == "calls" else ())),
            answer=draw(maybe_texts),
            fault=draw(st.none() | faults),
            ignored=draw(few(texts)),
            end=draw(st.none() | counts),
            family=draw(texts),
            intent=draw(maybe_texts),
            estimated_cost=draw(st.none() | floats),
        )
    return Step(
        index=index,
        chat=chat,
        decision=decision,
        calls=records,
        guard=draw(verdicts),
        feedback=draw(maybe_texts),
        refusal=draw(maybe_texts),
        errors=draw(counts),
        budget=draw(st.none() | readings),
        masked_tokens=draw(counts),
    )


@st.composite
def _open_step(draw: st.DrawFn, index: int, head: RunHead, previous: Step | None) -> tuple[Step, bool, int]:
    """A step in which the process died; whether its chat had ended, and how many of its calls."""
    stage = draw(st.sampled_from(["step", "chat", "calls"]))
    if stage == "step":
        return Step(index=index), False, 0
    if stage == "chat":
        return Step(index=index, chat=draw(_chat(head, previous, ended=False))), False, 0
    ended = draw(few(call_records.map(lambda r: msgspec.structs.replace(r, shown=None, artifact=None, fixed=False))))
    begun = draw(few(st.builds(_open_call, call_values, st.booleans(), st.just(head))))
    return Step(index=index, chat=draw(_chat(head, previous)), calls=(*ended, *begun)), True, len(ended)


def _open_call(call: Call, has_begun: bool, head: RunHead) -> CallRecord:
    """A call in which the process died: only one with a side effect says whether that had begun."""
    if not any(tool.name == call.name and tool.side_effect for tool in head.tools):
        return CallRecord(call=call, outcome="unknown_outcome")
    if has_begun:
        return CallRecord(call=call, outcome="unknown_outcome", key="tf1-key")
    return CallRecord(call=call, outcome="cancelled", error=NOT_BEGUN)


@st.composite
def runs(draw: st.DrawFn, *, cut: bool | None = None, most: int = 2) -> Run:
    """A whole run (`cut` False), one cut short at any level (True), or either (None)."""
    head, marks = draw(heads), _Marks()
    is_cut = draw(st.booleans()) if cut is None else cut
    root = marks.mark(ended=not is_cut)
    steps: list[Step] = []
    step_marks: list[StepMarks] = []
    previous: Step | None = None
    for index in range(1, draw(st.integers(0, most)) + 1):
        previous = draw(_finished_step(index, head, previous))
        steps.append(previous)
        chat = marks.mark() if previous.chat is not None else None
        step_marks.append(StepMarks(step=marks.mark(), chat=chat, calls=tuple(marks.mark() for _ in previous.calls)))
    if is_cut and draw(st.booleans()):
        step, chat_ended, calls_ended = draw(_open_step(len(steps) + 1, head, previous))
        steps.append(step)
        step_marks.append(
            StepMarks(
                step=marks.mark(ended=False),
                chat=marks.mark(ended=chat_ended) if step.chat is not None else None,
                calls=tuple(marks.mark(ended=i < calls_ended) for i in range(len(step.calls))),
            )
        )
    end = None if is_cut else draw(_ends(tuple(steps)))
    return Run(head=head, steps=tuple(steps), end=end, mark=root, marks=tuple(step_marks))


@st.composite
def _ends(draw: st.DrawFn, steps: tuple[Step, ...]) -> RunEnd:
    reason = draw(st.sampled_from(STOP_REASONS))
    return RunEnd(
        ok=reason == "finish",
        stop_reason=reason,  # type: ignore[arg-type]
        answer=draw(texts) if reason == "finish" else None,
        detail=draw(texts),
        usage=draw(usages),
        cost_usd=draw(st.none() | floats),
        steps=len(steps),
        model_calls=sum(step.chat is not None for step in steps),
        tool_calls=sum(len(step.calls) for step in steps),
        alive=draw(few(texts)),
    )
