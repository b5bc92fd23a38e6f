"""A dialogue as a recording: the kernel's own loop runs over the source's replies and results, and its run is kept.

The messages that it sent are then compared with the source's. Where the kernel would not do what the source did with a
reply (arguments that it refuses, a text that is a call here and was an answer there), the source's reading stands in the reply
and the kernel's is named beside it: nothing is cut, nothing is bent to fit.
"""

from __future__ import annotations

import msgspec

from kernel.errors import TraceError
from kernel.loop import Rules, evaluate
from kernel.record import (
    Budget,
    BudgetReading,
    Call,
    CallRecord,
    Chat,
    ContextLimits,
    Decision,
    Guard,
    Mark,
    Message,
    Reading,
    Reply,
    Run,
    RunEnd,
    RunHead,
    Step,
    ToolFault,
    ToolSpec,
    canonical_json,
    texts_for,
)
from replay.importers.marks import Marker, derived_id, ended_ns
from replay.importers.messages import refuse
from replay.importers.model import Dialogue, Result, Round, Turn
from replay.play import Digests, RecordedRun, RecordedTranscript, Recording, play_run, recorded_toolbox

_UNLIMITED = 1_000_000_000
OPEN_ENDED = Budget(
    max_steps=None,
    max_prompt_tokens=None,
    max_total_output_tokens=None,
    max_cost_usd=None,
    timeout_s=None,
    max_errors=_UNLIMITED,
    max_finish_refusals=_UNLIMITED,
    model_retries=_UNLIMITED,
)
"""Limits of an imported run: the source's own have already had their say."""


def build(dialogue: Dialogue, file: str, *, ordinal: int = 0) -> Recording:
    """The recording of a dialogue. Equal content gives equal ids; `ordinal` tells equal dialogues of one file apart.

    Raises:
        TraceError: the source has no reply that can be imported, or contradicts itself.
    """
    seed = canonical_json([dialogue.source, dialogue.agent, ordinal, msgspec.to_builtins(dialogue)])
    trace_id = derived_id(seed, 16)
    runs = build_runs(dialogue, trace_id, file)
    marker = Marker(trace_id)
    conversation = marker.start() if len(runs) > 1 else None
    marked = tuple(RecordedRun(run=marker.mark(run, turn)) for run, turn in zip(runs, dialogue.turns, strict=False))
    if conversation is not None:
        conversation = marker.end(conversation)
    return Recording(
        trace_id=trace_id,
        runs=marked,
        file=file,
        service="tracefirst",
        conversation=conversation,
        foreign=dialogue.source,
    )


def build_runs(dialogue: Dialogue, seed: str, file: str) -> list[Run]:
    """The runs of a dialogue, without marks; ids are derived from `seed`.

    Raises:
        TraceError: the source has no reply that can be imported, or contradicts itself.
    """
    if not any(turn.rounds for turn in dialogue.turns):
        raise refuse(file, "messages", "no user message with a reply of the assistant", "There is nothing to replay")
    tools, absent = _tools(dialogue)
    transcript, tracer = RecordedTranscript(), Digests()
    runs: list[Run] = []
    why = ""
    for number, turn in enumerate(dialogue.turns, 1):
        head = RunHead(
            agent=dialogue.agent,
            task=turn.task,
            run_id=derived_id(f"{seed}/run/{number}", 16),
            system=dialogue.system,
            protocol=dialogue.protocol,
            provider=dialogue.provider,
            params=dialogue.params,
            tools=tools,
            budget=OPEN_ENDED,
            guard=Guard(enabled=False),
            context=ContextLimits(max_observation_chars=_UNLIMITED),
            texts=dialogue.texts,
            conversation_id=derived_id(f"{seed}/conversation", 16) if len(dialogue.turns) > 1 else None,
            turn=number,
            source=dialogue.source,
            absent=absent,
        )
        run, why = _run(head, turn, transcript, tracer, file)
        runs.append(run)
        if why:
            break
    if why:
        if not any(step.chat is not None and step.chat.reply is not None for run in runs for step in run.steps):
            raise TraceError(f"{file}: {why}. There is nothing before it to replay.", file=file)
        last = runs[-1]
        head = msgspec.structs.replace(last.head, absent=(*absent, why), dropped=(*last.head.dropped, why))
        runs[-1] = msgspec.structs.replace(last, head=head)
    _verify(runs, dialogue, file)
    return runs


def _tools(dialogue: Dialogue) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The source's tools, and a bare one for each that was called but not listed; what is absent because of it."""
    listed = dialogue.tools or ()
    names = {tool.name for tool in listed}
    called = [
        call.name
        for turn in dialogue.turns
        for round in turn.rounds
        if round.reply is not None
        for call in round.reply.tool_calls
    ]
    bare = [name for name in dict.fromkeys(called) if name not in names]
    absent = list(dialogue.absent)
    if dialogue.tools is None:
        absent.append("tool schemas")
    else:
        absent.extend(f"schema of tool {name}" for name in bare)
    return (*listed, *(ToolSpec(name=name, parameters={"type": "object"}) for name in bare)), tuple(absent)


def _run(head: RunHead, turn: Turn, transcript: RecordedTranscript, tracer: Digests, file: str) -> tuple[Run, str]:
    """Play one turn; the second value says why it was cut, where it was."""
    planned, why = _plan(head, turn)
    last = planned[-1] if planned else None
    finished = last is not None and last.decision is not None and last.decision.kind == "finish"
    end = RunEnd(ok=True, stop_reason="finish", answer="") if finished else None
    began = Mark(start_ns=_began_ns(turn))
    played = play_run(Run(head=head, steps=tuple(planned), end=end, mark=began), None, transcript, tracer)
    if played.crash:
        raise TraceError(f"{file}: the kernel failed on {turn.place}: {played.crash}", file=file)
    if played.missed is not None:
        place = turn.rounds[len(planned) - 1].place if planned else turn.place
        raise refuse(
            file, place, f"asks for a {played.missed.kind} that is not in the source", "Import up to this message"
        )
    run = played.run
    if last is not None and last.decision is None:
        opened = run.steps[len(planned) - 1]
        assert opened.chat is not None and last.chat is not None
        chat = msgspec.structs.replace(opened.chat, reply=last.chat.reply, attempts=last.chat.attempts)
        steps = (*run.steps[: len(planned) - 1], Step(index=len(planned), chat=chat, calls=last.calls))
        run = msgspec.structs.replace(run, steps=steps)
    return run, why


def _began_ns(turn: Turn) -> int:
    return next((round.mark.start_ns for round in turn.rounds if round.mark is not None), 0)


def _plan(head: RunHead, turn: Turn) -> tuple[list[Step], str]:
    """The steps as the source has them, the last without a decision where the run is cut there."""
    rules = Rules(protocol=head.protocol, tools=recorded_toolbox(head), texts=texts_for(head.language, head.texts))
    began_ns = _began_ns(turn)
    steps: list[Step] = []
    for index, round in enumerate(turn.rounds, 1):
        if round.reply is None:
            steps.append(Step(index=index, chat=Chat(kept=0, new=(), attempts=round.attempts)))
            return steps, ""
        if not round.reply.text and not round.reply.tool_calls and round.reply.reading is None:
            chat = Chat(kept=0, new=(), reply=round.reply)
            steps.append(Step(index=index, chat=chat))
            return steps, f"everything from {round.place} on: the reply is empty"
        reply = _read_by_source(round, rules)
        decision = evaluate(reply, rules)
        chat = Chat(kept=0, new=(), reply=reply, attempts=round.attempts)
        records = tuple(_record(call, result) for call, result in zip(decision.calls, round.results, strict=True))
        complete = all(result is not None for result in round.results)
        budget = BudgetReading(elapsed_ns=max(ended_ns(round) - began_ns, 0)) if round.mark is not None else None
        steps.append(
            Step(index=index, chat=chat, decision=decision if complete else None, calls=records, budget=budget)
        )
    return steps, ""


def _read_by_source(round: Round, rules: Rules) -> Reply:
    """The reply with the source's reading of it, where the kernel would not do with it what the source did."""
    reply = round.reply
    assert reply is not None
    decision = evaluate(reply, rules)
    if reply.reading is not None or _alike(decision, round):
        return reply
    if reply.tool_calls:
        return msgspec.structs.replace(reply, reading=Reading(calls=reply.tool_calls, kernel=_kernel_would(decision)))
    reading = Reading(answer=reply.text, kernel=_kernel_would(decision))
    return msgspec.structs.replace(reply, reading=reading)


def _alike(decision: Decision, round: Round) -> bool:
    """Whether the kernel ran what the source ran: the same calls, none refused, or an answer where the source had one."""
    assert round.reply is not None
    if decision.kind == "finish":
        return not round.results and not round.reply.tool_calls
    if decision.kind == "fault" or decision.ignored or any(call.fault is not None for call in decision.calls):
        return False
    return len(round.results) == len(decision.calls)


def _kernel_would(decision: Decision) -> str:
    """What the kernel would have done with a reply, in a few words."""
    if decision.fault is not None:
        return f"refuse it: {decision.fault.message}"
    refused = next((call for call in decision.calls if call.fault is not None), None)
    if refused is not None and refused.fault is not None:
        return f"not run {refused.name}: {refused.fault.message}"
    if decision.kind == "finish":
        return "end the run with it"
    return "run " + ", ".join([*(call.name for call in decision.calls), *(f"not {name}" for name in decision.ignored)])


def _record(call: Call, result: Result | None) -> CallRecord:
    if result is None:
        return CallRecord(call=call, outcome="unknown_outcome")
    if result.error:
        fault = ToolFault(type=result.error, message=str(result.value))
        return CallRecord(call=call, outcome="error", error=fault, shown=str(result.value), fixed=True)
    return CallRecord(call=call, outcome="ok", result=result.value)


def _verify(runs: list[Run], dialogue: Dialogue, file: str) -> None:
    """Every request that the loop built must be a prefix of the source's messages."""
    for chat in (step.chat for run in runs for step in run.steps if step.chat is not None):
        for index, made in enumerate(chat.new, chat.kept):
            if index >= len(dialogue.sent):
                raise TraceError(f"{file}: message {index} of the replay is not in the source.", file=file)
            place, source = dialogue.sent[index]
            if not _same(made, source):
                one, other = msgspec.to_builtins(source), msgspec.to_builtins(made)
                what = f"the source has {one!r:.200}, a replay sends {other!r:.200}"
                raise refuse(file, place, what, "It cannot be imported faithfully")


def _same(made: Message, source: Message) -> bool:
    """Equal in all that the source has. An id that is missing, or used twice in one message, is not one of them."""
    if made.role != source.role or made.content != source.content or len(made.tool_calls) != len(source.tool_calls):
        return False
    ids = [call.id for call in source.tool_calls]
    for one, other in zip(made.tool_calls, source.tool_calls, strict=True):
        if (one.name, one.arguments) != (other.name, other.arguments):
            return False
        if other.id and ids.count(other.id) == 1 and one.id != other.id:
            return False
    return source.name in (None, "", made.name)
