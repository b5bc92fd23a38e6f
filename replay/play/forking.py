"""Fork and resume: play a recording up to a step, then go on live, into a new trace that is linked to the old one.

A fork is a new run: it has its own identity, and tools with side effects are denied unless they are allowed by name. A
resume continues a run that was cut short under its old identity: what it finished is served from the trace, a side effect
that was begun and not finished is found in the ledger and is not run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from kernel.agent import Agent
from kernel.errors import ConfigError, ModelError
from kernel.loop import FORK, Confirm, Loop, Transcript
from kernel.model import PromptFunction, as_model, described
from kernel.record import (
    Attempt,
    Call,
    CallRecord,
    ModelParams,
    Reply,
    Request,
    Run,
    RunHead,
    ToolFault,
    canonical_json,
    to_jsonable,
)
from kernel.result import RunResult, result_of
from kernel.seams import Clock, Ids, Invocation, Model, Point, RandomIds, Seams, SystemClock
from kernel.stores import MemoryLedger
from kernel.tools import LiveTools, Tool
from kernel.trace import Link, semconv as sc
from kernel.tracing import tracing_from
from replay.play.doubles import Answers, RecordedClock, fixed_calls, ran
from replay.play.recording import Recording

T = TypeVar("T")


class Change(Struct, frozen=True, kw_only=True):
    """What a fork changes. `results` replaces recorded results by (step, position in the step)."""

    system: str | None = None
    task: str | None = None
    results: Mapping[tuple[int, int], Any] = {}
    allow: Collection[str] = ()


async def fork(
    recording: Recording,
    agent: Agent,
    *,
    at_step: int,
    llm: Model | PromptFunction | None = None,
    change: Change = Change(),
    confirm: Confirm | None = None,
    trace: Any = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> RunResult:
    """Play steps before `at_step` from the recording, then go on live with `agent` and `llm`.

    Side effects are denied unless named in `change.allow`.

    Raises:
        ConfigError: the recording has no such step, holds several runs, or its prefix does not play as recorded.
    """
    run = _single(recording)
    if not 1 <= at_step <= len(run.steps) + 1:
        raise ConfigError(f"step {at_step} is not in the recording: it has steps 1 to {len(run.steps)}")
    ids = ids or RandomIds()
    return await _go_on(
        recording,
        run,
        agent,
        steps=at_step - 1,
        llm=llm,
        change=change,
        confirm=confirm,
        trace=trace,
        clock=clock or SystemClock(),
        ids=ids,
        run_id=ids.span_id() + ids.span_id(),
        allow=frozenset(change.allow),
        resumes=None,
    )


async def resume(
    recording: Recording,
    agent: Agent,
    *,
    llm: Model | PromptFunction | None = None,
    confirm: Confirm | None = None,
    trace: Any = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> RunResult:
    """Go on with a run that was cut short, from where its trace ends. Give the agent the ledger of the first attempt.

    Raises:
        ConfigError: the run has ended already, or the recording holds several runs.
    """
    run = _single(recording)
    if run.end is not None and run.end.stop_reason != "cancelled":
        raise ConfigError(f"the run has ended ({run.end.stop_reason}); fork it instead, for example at step 1")
    ended = all(step.decision is not None for step in run.steps)
    if ended and agent.ledger is None and any(record.key for step in run.steps for record in step.calls):
        raise ConfigError("the run had side effects: give the agent the ledger it ran with, Agent(ledger=...)")
    return await _go_on(
        recording,
        run,
        agent,
        steps=len(run.steps),
        llm=llm,
        change=Change(),
        confirm=confirm,
        trace=trace,
        clock=clock or SystemClock(),
        ids=ids or RandomIds(),
        run_id=run.head.run_id,
        allow=None,
        resumes=recording.trace_id,
    )


def _single(recording: Recording) -> Run:
    if len(recording.runs) != 1:
        raise ConfigError(f"the recording holds {len(recording.runs)} runs; only a single run can be forked or resumed")
    return recording.runs[0].run


async def _go_on(
    recording: Recording,
    run: Run,
    agent: Agent,
    *,
    steps: int,
    llm: Model | PromptFunction | None,
    change: Change,
    confirm: Confirm | None,
    trace: Any,
    clock: Clock,
    ids: Ids,
    run_id: str,
    allow: frozenset[str] | None,
    resumes: str | None,
) -> RunResult:
    live = as_model(llm)
    prefix = Run(head=run.head, steps=run.steps[:steps], mark=run.mark)
    asked = _confirm(prefix, confirm)
    head = _head(run, agent, live, change, run_id, asked is not None, resumes)
    switching = _Clock(prefix, clock)
    port = _Tools(
        prefix, LiveTools(agent.ledger or MemoryLedger(), run_id=run_id, clock=switching), change.results, allow
    )
    tracing = tracing_from(trace)
    session = recorder = None
    trace_id = ids.trace_id()
    if tracing is not None:
        session = tracing.open(head, trace_id=trace_id, parent=None, clock=clock, ids=ids, single=True)
        attributes = {sc.ORIGINAL_TRACE_ID: recording.trace_id}
        link = Link(trace_id=recording.trace_id, span_id=run.mark.span_id, attributes=attributes)
        links = (link,) if recording.trace_id and run.mark.span_id else ()
        recorder = session.recorder(switching, ids, links=links, attributes=attributes)
    loop = Loop(
        head,
        agent.toolbox(),
        Seams(model=_Model(prefix, live, switching), tools=port, clock=switching, ids=ids),
        Transcript(agent.count_tokens),
        confirm=asked,
        finish_check=agent.finish_check,
        tracer=recorder,
        count=agent.count_tokens,
    )
    try:
        end = await loop.run()
    finally:
        if session is not None:
            session.close()
    return result_of(head, loop.steps, end, trace_id, session)


def _head(
    run: Run,
    agent: Agent,
    live: Model,
    change: Change,
    run_id: str,
    confirm: bool,
    resumes: str | None,
) -> RunHead:
    protocol, _, _ = described(live)
    if protocol != run.head.protocol:
        raise ConfigError(
            f'the recording speaks the protocol "{run.head.protocol}" and the live model "{protocol}": '
            "give a model of the same protocol"
        )
    head = agent.head(
        change.task if change.task is not None else run.head.task,
        live,
        run_id=run_id,
        turn=run.head.turn,
        conversation_id=run.head.conversation_id,
        confirm=confirm,
    )
    if change.system is not None:
        head = msgspec.structs.replace(head, system=change.system)
    return msgspec.structs.replace(head, notes=run.head.notes, resumes=resumes)


class _Model:
    """Recorded replies while there are any, then the live model."""

    def __init__(self, prefix: Run, live: Model, clock: _Clock) -> None:
        self.protocol: Literal["text", "tools"] = prefix.head.protocol
        self.provider, self.name = live.provider, live.name
        self.params: ModelParams | None = getattr(live, "params", None)
        self._script: list[Attempt | Reply] = []
        for step in prefix.steps:
            if step.chat is not None:
                self._script.extend(step.chat.attempts)
                if step.chat.reply is not None:
                    self._script.append(step.chat.reply)
        self._script.reverse()
        self._live, self._clock = live, clock

    async def complete(self, request: Request) -> Reply:
        if not self._script:
            self._clock.go_live()
            return await self._live.complete(request)
        item = self._script.pop()
        if isinstance(item, Reply):
            return item
        raise ModelError(
            item.message,
            kind=item.kind,
            status=item.status,
            retry_after_s=item.retry_after_s,
            retryable=item.retryable,
        )


class _Tools:
    """Recorded results of the prefix, by (step, position); everything else is run."""

    def __init__(
        self, prefix: Run, live: LiveTools, replaced: Mapping[tuple[int, int], Any], allow: frozenset[str] | None
    ) -> None:
        self._live = live
        self._allow = allow
        self._replaced = replaced
        self._records: dict[tuple[int, int], CallRecord] = {}
        for step in prefix.steps:
            for position, record in enumerate(step.calls):
                if ran(record) and record.outcome not in ("unknown_outcome", "cancelled"):
                    self._records[step.index, position] = record
        self._last = len(prefix.steps)
        self.shown = fixed_calls(prefix)

    @property
    def concurrent(self) -> bool:
        return True

    @property
    def late(self) -> Sequence[Any]:
        return self._live.late

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        place = step, position
        if place in self._replaced:
            return Invocation(outcome="ok", result=to_jsonable(self._replaced[place]))
        record = self._records.get(place)
        if record is None:
            if tool.spec.side_effect and self._allow is not None and call.name not in self._allow:
                return Invocation(outcome="denied", error=ToolFault(type=FORK, message="side effect in a fork"))
            return await self._live.invoke(tool, call, step=step, position=position, key=key, left_s=left_s)
        if (record.call.name, canonical_json(record.call.args)) != (call.name, canonical_json(call.args)):
            raise ConfigError(
                f"step {step} now calls {call.name}({canonical_json(call.args)}), the recording has "
                f"{record.call.name}({canonical_json(record.call.args)}): fork at step {step} or before"
            )
        return Invocation(outcome=record.outcome, result=record.result, error=record.error, served_by=record.served_by)

    async def close(self) -> tuple[str, ...]:
        return await self._live.close()


class _Clock:
    """The recorded readings of the prefix, then the live clock, set back so that the run's time is continuous."""

    def __init__(self, prefix: Run, live: Clock) -> None:
        self._recorded = RecordedClock(prefix)
        self._live = live
        self._offset: int | None = None
        self._last = 0

    def go_live(self) -> None:
        if self._offset is None:
            self._offset = self._last - self._live.now("step")

    def now(self, point: Point, step: int = 0, position: int = 0) -> int:
        if self._offset is not None:
            self._last = self._live.now(point, step, position) + self._offset
        else:
            self._last = max(self._last, self._recorded.now(point, step, position))
        return self._last

    async def sleep(self, seconds: float) -> None:
        if self._offset is not None:
            await self._live.sleep(seconds)

    async def within(self, seconds: float | None, awaitable: Awaitable[T]) -> T:
        return await self._live.within(seconds, awaitable)


def _confirm(prefix: Run, live: Confirm | None) -> Confirm | None:
    """Recorded answers for the calls of the prefix, each once; then the live `confirm`. An unanswered call is denied."""
    answers = Answers(prefix)
    if live is None and not answers:
        return None

    def confirm(name: str, args: dict[str, Any]) -> Any:
        answer = answers.take(name, args)
        if answer is not None:
            return answer
        return live(name, args) if live is not None else False

    return confirm
