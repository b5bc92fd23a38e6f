"""A trace of another framework as a recording: model calls become steps, linked into conversations by their content.

What a run of ours is made from is taken from the requests themselves: they show what the model was told, tool results
included. Tool spans add the times, and the results after the last request.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel.errors import TraceError
from kernel.record import (
    Attempt,
    Call,
    CallRecord,
    Chat,
    Guard,
    Mark,
    Reply,
    Run,
    RunHead,
    Step,
    ToolFault,
    ToolSpec,
    Usage,
    canonical_json,
)
from kernel.trace import Span, tool_from_json
from replay.importers.build import OPEN_ENDED, build_runs
from replay.importers.link import Chain, Heard, hear, link, without_nested
from replay.importers.marks import Marker, derived_id
from replay.importers.model import Dialogue, Result, Round, Turn
from replay.importers.spans import ModelCall, agent_name, framework_of, read_model_call, role_of
from replay.importers.tool_spans import ToolCallSpan, ToolSpans, read_tool_call, result_of
from replay.importers.turns import UNANSWERED, read_turns
from replay.play import RecordedRun, Recording
from replay.readers import RawTrace

ACCEPTED = (
    "Accepted: traces of tracefirst, and spans of OpenTelemetry GenAI, OpenLLMetry, OpenInference, "
    "pydantic-ai / Logfire, LangSmith, Vercel AI SDK, Google ADK and Langfuse"
)
_ABSENT = ("raw requests", "tool outcomes", "tool effects", "budget", "guard", "policy")
_NAMES_SHOWN = 3


def import_trace(raw: RawTrace, file: str) -> Recording:
    """The recording of a trace that other software wrote.

    Each conversation of the trace is a run, or one for each of its turns. Where no call has its messages there is one
    run an agent, with a step for each model call and nothing to replay.

    Raises:
        TraceError: no span is a known model call; the message names the file, what was found and what is accepted.
    """
    spans = {span.span_id: span for span in raw.spans}
    frameworks = {span.span_id: framework_of(span, raw.resources.get(span.span_id)) for span in raw.spans}
    roles = {span.span_id: role_of(span, frameworks[span.span_id]) for span in raw.spans}
    calls = [read_model_call(s, frameworks[s.span_id]) for s in raw.spans if roles[s.span_id] == "model"]
    if not calls:
        raise TraceError(_nothing(raw, file), file=file)
    tools = ToolSpans([read_tool_call(span) for span in raw.spans if roles[span.span_id] == "tool"])
    trace_id = raw.trace_id or derived_id(canonical_json([sorted(spans), calls[0].provider]), 16)
    agents = {call.span.span_id: _agent(call.span, spans, roles) for call in calls}
    notes = list(raw.notes)
    chains, lost = link(hear(without_nested(calls, spans, roles, notes), file))
    total = len(lost) + sum(len(chain.calls) for chain in chains)
    marker = Marker(trace_id, min(call.span.start_ns for call in calls))
    conversation_id = marker.span_id()
    runs: list[Run] = []
    for number, chain in enumerate(chains):
        name = agents[chain.calls[0].call.span.span_id]
        try:
            dialogue = _dialogue(chain, name, tools, file)
            made = build_runs(dialogue, f"{trace_id}/{number}", file)
        except TraceError as error:
            why = str(error).removeprefix(f"{file}: ")
            lost.extend(msgspec.structs.replace(call, lost=why) for call in chain.calls)
            continue
        runs.extend(marker.mark(run, turn) for run, turn in zip(made, dialogue.turns, strict=False))
    if runs and lost:
        gap = f"{len(lost)} of {total} model calls"
        runs[0] = _with_absent(runs[0], gap, lost[0].lost)
    elif lost:
        runs = _bare(lost, agents, tools, trace_id, marker)
    runs.sort(key=lambda run: (run.head.turn, run.mark.start_ns, run.mark.span_id))
    notes.extend(dict.fromkeys(call.lost for call in lost))
    emitter = raw.resources.get(calls[0].span.span_id)
    service = str(emitter.attributes.get("service.name", "")) if emitter is not None else ""
    return Recording(
        trace_id=trace_id,
        runs=tuple(RecordedRun(run=run) for run in runs),
        file=file,
        service=service,
        conversation=_around(runs, conversation_id) if len(runs) > 1 else None,
        foreign=next((run.head.source for run in runs if run.head.source), ""),
        notes=tuple(notes),
    )


def _nothing(raw: RawTrace, file: str) -> str:
    names = list(dict.fromkeys(span.name for span in raw.spans))
    shown = ", ".join(repr(name)[:60] for name in names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    count = f"{len(raw.spans)} {'span' if len(raw.spans) == 1 else 'spans'}"
    trace = f"trace {raw.trace_id} " if raw.trace_id else "its trace "
    return f"{file}: {trace}holds no model call of an agent; it has {count}: {shown}. {ACCEPTED}."


def _agent(span: Span, spans: dict[str, Span], roles: dict[str, str]) -> str:
    """The name of the nearest agent above a span, or ""."""
    seen: set[str] = set()
    parent = span.parent_id
    while parent is not None and parent in spans and parent not in seen:
        if roles[parent] == "agent":
            return agent_name(spans[parent])
        seen.add(parent)
        parent = spans[parent].parent_id
    return str(span.attributes.get("gen_ai.agent.name") or "")


# ---- a conversation


def _dialogue(chain: Chain, agent: str, tools: ToolSpans, file: str) -> Dialogue:
    first, last = chain.calls[0], chain.calls[-1]
    read = read_turns(chain.messages, file)
    replies = {chain.messages[at].place: call for at, call in zip(chain.at, chain.calls, strict=True) if call.reply}
    turns = [_turn(turn, replies, first, tools) for turn in read.turns]
    absent = [*_ABSENT, *read.absent]
    if last.reply is None:
        _await_reply(turns, chain, last, absent)
    if chain.from_history:
        absent.append("replies as received: they are known from the next request")
    if chain.kept_by_server:
        absent.append("requests as sent: the server kept the history")
    specs = [_specs(call) for call in chain.calls]
    if any(spec != specs[0] for spec in specs):
        absent.append("changes of the tool list")
    if any(call.call.params != first.call.params for call in chain.calls):
        absent.append("changes of the model parameters")
    return Dialogue(
        agent=agent or "imported",
        source=first.call.framework,
        turns=tuple(turns),
        sent=read.sent,
        system=read.system,
        provider=first.call.provider or "custom",
        params=first.call.params,
        tools=specs[0],
        absent=tuple(dict.fromkeys([*absent, *_gaps(chain.calls, agent)])),
    )


def _gaps(calls: Sequence[Heard], agent: str) -> list[str]:
    """What the spans of a conversation do not tell."""
    gone = []
    if not agent:
        gone.append("agent name")
    if not calls[0].call.params.model:
        gone.append("model")
    if all(call.call.usage.input_tokens is None for call in calls):
        gone.append("usage")
    if all(call.call.reply is None or "finish_reason" not in call.call.reply for call in calls):
        gone.append("finish reasons")
    if any(call.call.span.start_ns <= 0 or not call.call.span.end_ns for call in calls):
        gone.append("times")
    further = sum((call.call.reply or {}).get("choices", 1) - 1 for call in calls)
    if further:
        gone.append(f"{further} further choices of replies: the first counts")
    if any(_contradicts(call.call.usage) for call in calls):
        gone.append("usage that adds up: a part of the tokens is larger than the whole")
    return gone


def _contradicts(usage: Usage) -> bool:
    """Whether cached tokens are more than the input that holds them, or reasoning more than the output."""
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    too_many = usage.input_tokens is not None and cached > usage.input_tokens
    return too_many or (usage.output_tokens is not None and (usage.reasoning_tokens or 0) > usage.output_tokens)


def _turn(turn: Turn, replies: dict[str, Heard], first: Heard, tools: ToolSpans) -> Turn:
    return msgspec.structs.replace(turn, rounds=tuple(_round(round, replies, first, tools) for round in turn.rounds))


def _round(round: Round, replies: dict[str, Heard], first: Heard, tools: ToolSpans) -> Round:
    """A round with what the spans know of it. One before the first call is history: it has no span."""
    call = replies.get(round.place)
    if call is None or round.reply is None:
        start_ns = first.call.span.start_ns
        return msgspec.structs.replace(round, mark=Mark(start_ns=start_ns, end_ns=start_ns))
    span, made = call.call.span, call.call
    reason = (made.reply or {}).get("finish_reason")
    reply = msgspec.structs.replace(
        round.reply,
        finish_reason=reason if isinstance(reason, str) else None,
        usage=made.usage,
        model=made.response_model,
        response_id=made.response_id,
    )
    found = [tools.take(call, span.start_ns) for call in reply.tool_calls]
    results = tuple(_result(result, tool) for result, tool in zip(round.results, found, strict=True))
    marks = tuple(None if tool is None else _mark(tool.span) for tool in found)
    return msgspec.structs.replace(
        round,
        reply=reply,
        results=results,
        mark=_mark(span),
        call_marks=marks,
        attempts=tuple(_attempt(made) for made in call.failed),
    )


def _result(told: Result | None, tool: ToolCallSpan | None) -> Result | None:
    """A result as the next request tells it, else as the tool's span does; whether it is a failure is the span's to say."""
    if tool is None or told is None:
        return told if tool is None else result_of(tool)
    return msgspec.structs.replace(told, error=tool.error) if tool.error else told


def _attempt(failed: ModelCall) -> Attempt:
    kind, message = failed.failure or ("error", "")
    return Attempt(kind=kind, message=message)


def _mark(span: Span) -> Mark:
    return Mark(span_id=span.span_id, start_ns=span.start_ns, end_ns=span.end_ns)


def _await_reply(turns: list[Turn], chain: Chain, last: Heard, absent: list[str]) -> None:
    """Add the round whose reply the last span does not have."""
    failed = [*last.failed, last.call] if last.call.failure is not None else last.failed
    attempts = tuple(_attempt(made) for made in failed)
    waiting = Round(reply=None, place=f"span {last.call.span.span_id}", mark=_mark(last.call.span), attempts=attempts)
    told = f": the call failed with {attempts[-1].kind}: {attempts[-1].message}" if attempts else ""
    absent.append(f"the last reply{told}")
    if (
        chain.messages[-1].message.role == "assistant"
    ):  # it would come behind an answer, or behind calls without results
        return
    if UNANSWERED in absent:
        absent.remove(UNANSWERED)
        asked = chain.messages[-1]
        turns.append(Turn(task=asked.message.content, rounds=(waiting,), place=asked.place))
    elif turns:
        turns[-1] = msgspec.structs.replace(turns[-1], rounds=(*turns[-1].rounds, waiting))


def _specs(heard: Heard) -> tuple[ToolSpec, ...] | None:
    found = heard.call.tools
    if found is None:
        return None
    return tuple(tool_from_json({**tool, "parameters": _schema(tool.get("parameters"))}) for tool in found)


def _schema(value: object) -> object:
    return value if isinstance(value, dict) else {}


# ---- model calls without their content


def _bare(lost: Sequence[Heard], agents: dict[str, str], tools: ToolSpans, trace_id: str, marker: Marker) -> list[Run]:
    """A run an agent, with a step for each of its model calls: what was called and when, but nothing to replay."""
    groups: dict[str, list[Heard]] = {}
    for call in lost:
        groups.setdefault(agents[call.call.span.span_id], []).append(call)
    return [_bare_run(name, group, tools, trace_id, marker) for name, group in groups.items()]


def _bare_run(agent: str, group: Sequence[Heard], tools: ToolSpans, trace_id: str, marker: Marker) -> Run:
    first = group[0].call
    reasons = dict.fromkeys(call.lost for call in group)
    head = RunHead(
        agent=agent or "imported",
        task="",
        run_id=derived_id(f"{trace_id}/bare/{agent}", 16),
        protocol="tools",
        provider=first.provider or "custom",
        params=first.params,
        budget=OPEN_ENDED,
        guard=Guard(enabled=False),
        source=first.framework,
        absent=tuple(dict.fromkeys(["messages", *_ABSENT, *_gaps(group, agent), *reasons])),
    )
    steps, rounds = [], []
    for index, call in enumerate(group, 1):
        message = call.reply.message if call.reply is not None else None
        reply = (
            None
            if message is None
            else Reply(text=message.content, tool_calls=message.tool_calls, usage=call.call.usage)
        )
        attempts = () if call.call.failure is None else (_attempt(call.call),)
        until = group[index].call.span.start_ns if index < len(group) else None
        ran = tools.between(call.call.span.start_ns, until)
        chat = Chat(kept=0, new=(), reply=reply, attempts=attempts)
        steps.append(Step(index=index, chat=chat, calls=tuple(_bare_record(tool) for tool in ran)))
        marks = tuple(_mark(tool.span) for tool in ran)
        rounds.append(Round(reply=reply, mark=_mark(call.call.span), call_marks=marks))
    return marker.mark(Run(head=head, steps=tuple(steps)), Turn(task="", rounds=tuple(rounds)))


def _bare_record(tool: ToolCallSpan) -> CallRecord:
    """What a tool's span tells where no model call tells what was asked for."""
    call = Call(name=tool.name, args=tool.args if isinstance(tool.args, dict) else {}, id=tool.call_id)
    if tool.error:
        return CallRecord(call=call, outcome="error", error=ToolFault(type=tool.error, message=tool.message))
    return CallRecord(call=call, outcome="ok" if tool.has_result else "unknown_outcome", result=tool.result)


def _with_absent(run: Run, *names: str) -> Run:
    head = run.head
    changed = msgspec.structs.replace(head, absent=(*head.absent, *names), dropped=(*head.dropped, *names))
    return msgspec.structs.replace(run, head=changed)


def _around(runs: Sequence[Run], span_id: str) -> Mark:
    """The span over all runs."""
    ends = [mark.end_ns or 0 for run in runs for step in run.marks for mark in (step.step, step.chat, run.mark) if mark]
    starts = [run.mark.start_ns for run in runs]
    return Mark(span_id=span_id, start_ns=min(starts), end_ns=max([*ends, *starts]) or None)
