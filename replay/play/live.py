"""Run a recording's tasks again with one side live: the model on recorded tools, the tools on recorded replies, or both.

    live model, recorded tools   would today's prompt or model still do the job? Nothing outside is touched.
    recorded model, live tools   do the tools still answer as they did? Tools with side effects are denied unless allowed.
    both live                    the same tasks recorded anew, into a trace of their own

What was not recorded is not made up: a call without a recorded result stops the run, by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.loop import FORK, Confirm, Loop, Transcript
from kernel.model import PromptFunction, as_model
from kernel.record import Call, CallRecord, Run, RunHead, ToolFault, canonical_json
from kernel.result import RunResult, result_of
from kernel.seams import Clock, Ids, Invocation, Model, RandomIds, Seams, SystemClock, Tools
from kernel.stores import MemoryLedger
from kernel.tools import LiveTools, Tool
from kernel.tracing import tracing_from
from replay.play.doubles import Answers, RecordedModel, RecordingEnded, ReplayMiss, ran
from replay.play.recording import Recording

UNRECORDED = "unrecorded call"
"""The outcome of a run that was stopped at a call for which nothing is recorded."""


class Attempt(Struct, frozen=True, kw_only=True):
    """What came of running a recording's tasks once: the runs that were made, and how the last of them ended.

    `outcome` is a stop reason, or `unrecorded call`, or `longer` where the recorded replies ran out; `detail` says more.
    """

    runs: tuple[Run, ...]
    outcome: str
    detail: str = ""

    @property
    def infrastructure(self) -> bool:
        """Whether the model could not be reached, which says nothing about the agent."""
        return self.outcome == "model_error"


def recorded_outcome(recording: Recording) -> str:
    """How the last run of a recording ended."""
    end = recording.runs[-1].run.end if recording.runs else None
    return "cut short" if end is None else end.stop_reason


async def try_model(
    recording: Recording,
    agent: Agent,
    *,
    llm: Model | PromptFunction | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Attempt:
    """Ask a live model anew; tools and approvals answer from the recording, each once, by tool and arguments.

    Raises:
        ConfigError: the recording cannot be run so, or the agent's settings cannot work.
    """
    model = as_model(llm)

    def side(run: Run) -> _Side:
        return _Side(model=model, tools=_Recorded(run), confirm=_recorded_confirm(run, agent))

    return await _attempt(recording, agent, side, clock, ids)


async def try_tools(
    recording: Recording,
    agent: Agent,
    *,
    allow: Collection[str] = (),
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Attempt:
    """Run the recorded decisions on live tools. Tools with side effects are denied unless named in `allow`.

    Raises:
        ConfigError: as `try_model`, or `allow` names no tool of the agent.
    """
    check_allowed(agent, allow)
    live = clock or SystemClock()

    def side(run: Run) -> _Side:
        return _Side(
            model=RecordedModel(run),
            tools=Gated(agent, run_id=run.head.run_id, clock=live, allow=allow),
            confirm=agent.confirm,
            waits_not=True,
        )

    return await _attempt(recording, agent, side, live, ids)


class _Side(Struct, kw_only=True):
    """What serves one run: the model, the tools and the approvals."""

    model: Any
    tools: Any
    confirm: Confirm | None
    waits_not: bool = False


class NoWaiting(SystemClock):
    """The system's clock, but recorded failures of the model are not waited for."""

    async def sleep(self, seconds: float) -> None:
        return None


async def _attempt(
    recording: Recording, agent: Agent, side: Callable[[Run], _Side], clock: Clock | None, ids: Ids | None
) -> Attempt:
    """The turns of a recording in order, until one ends in a way that allows no next turn."""
    check_rerun(recording)
    live, ids = clock or SystemClock(), ids or RandomIds()
    runs: list[Run] = []
    outcome = detail = ""
    transcript = Transcript(agent.count_tokens)
    for recorded in (one.run for one in recording.runs):
        if recorded.head.turn <= 1:
            transcript = Transcript(agent.count_tokens)
        served = side(recorded)
        head = _head(recorded, agent, served, ids)
        loop = _loop(head, agent, served, transcript, NoWaiting() if served.waits_not else live, ids)
        try:
            end = await loop.run()
        except ReplayMiss as miss:
            outcome, detail = _stopped(miss, len(loop.steps) + 1)
        except RecordingEnded:
            outcome, detail = "cut short", "here the recording was cut short"
        else:
            outcome, detail = end.stop_reason, end.detail
        runs.append(Run(head=loop.head, steps=tuple(loop.steps), end=loop.end, mark=recorded.mark))
        if outcome in (UNRECORDED, "longer", "cut short", "model_error", "cancelled"):
            break
    return Attempt(runs=tuple(runs), outcome=outcome, detail=detail)


def _stopped(miss: ReplayMiss, step: int) -> tuple[str, str]:
    if miss.kind == "model":
        return "longer", f"step {step}: the recorded replies are used up"
    return UNRECORDED, f"step {step}: {miss.wanted.name} {canonical_json(miss.wanted.args)}"


def _head(recorded: Run, agent: Agent, served: _Side, ids: Ids) -> RunHead:
    return agent.head(
        recorded.head.task,
        served.model,
        run_id=ids.span_id() + ids.span_id(),
        turn=recorded.head.turn,
        conversation_id=recorded.head.conversation_id,
        confirm=served.confirm is not None,
    )


def _loop(
    head: RunHead,
    agent: Agent,
    served: _Side,
    transcript: Transcript,
    clock: Clock,
    ids: Ids,
    tracer: Any = None,
) -> Loop:
    return Loop(
        head,
        agent.toolbox(),
        Seams(model=served.model, tools=served.tools, clock=clock, ids=ids),
        transcript,
        confirm=served.confirm,
        finish_check=agent.finish_check,
        tracer=tracer,
        count=agent.count_tokens,
    )


async def record_anew(
    recording: Recording,
    agent: Agent,
    *,
    llm: Model | PromptFunction | None = None,
    allow: Collection[str] = (),
    trace: Any,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> tuple[RunResult, ...]:
    """Run the tasks of a recording again, live, into a trace of their own; the turns of a conversation share it.

    Tools with side effects are denied unless named in `allow`. Ends early after a turn that has no next one.
    Raises:
        ConfigError: the recording cannot be run so, or a setting cannot work; nothing was run.
    """
    check_rerun(recording)
    check_allowed(agent, allow)
    model, live, ids = as_model(llm), clock or SystemClock(), ids or RandomIds()
    transcript = Transcript(agent.count_tokens)
    tracing, trace_id, session = tracing_from(trace), ids.trace_id(), None
    results: list[RunResult] = []
    try:
        for recorded in (one.run for one in recording.runs):
            tools = Gated(agent, run_id=recorded.head.run_id, clock=live, allow=allow)
            served = _Side(model=model, tools=tools, confirm=agent.confirm)
            head = _head(recorded, agent, served, ids)
            if session is None and tracing is not None:
                session = tracing.open(
                    head,
                    trace_id=trace_id,
                    parent=None,
                    clock=live,
                    ids=ids,
                    single=len(recording.runs) == 1 and recording.conversation is None,
                )
            recorder = session.recorder(live, ids) if session is not None else None
            loop = _loop(head, agent, served, transcript, live, ids, recorder)
            end = await loop.run()
            results.append(result_of(head, loop.steps, end, trace_id, session))
            if end.stop_reason in ("model_error", "cancelled"):
                break
    finally:
        if session is not None:
            session.close()
    return tuple(results)


def check_rerun(recording: Recording) -> None:
    """Raises `ConfigError` where the tasks of a recording cannot be run again."""
    if not recording.runs:
        raise ConfigError("the trace holds no run of an agent")
    heads = [one.run.head for one in recording.runs]
    if "root" in heads[0].absent:
        raise ConfigError("the recording has lost its root span, so its task is not known")
    if len({head.agent for head in heads}) > 1 or [head.turn for head in heads] != list(range(1, len(heads) + 1)):
        raise ConfigError(f"the recording holds {len(heads)} runs that are not the turns of one conversation")


def check_allowed(agent: Agent, allow: Collection[str]) -> None:
    """Raises `ConfigError` where `allow` names what is no tool of the agent."""
    known = agent.toolbox()
    if unknown := [name for name in allow if name not in known]:
        raise ConfigError(f"--allow {unknown[0]}: the agent has no such tool; it has {', '.join(known) or 'none'}")


class Gated:
    """Live tools; those with side effects run only if they are allowed by name."""

    concurrent = True
    shown: Mapping[tuple[int, int], CallRecord] = {}

    def __init__(self, agent: Agent, *, run_id: str, clock: Clock, allow: Collection[str]) -> None:
        self._live: Tools = LiveTools(agent.ledger or MemoryLedger(), run_id=run_id, clock=clock)
        self._allow = frozenset(allow)

    @property
    def late(self) -> Sequence[Any]:
        return self._live.late

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        """Run a call, or deny it."""
        if tool.spec.side_effect and call.name not in self._allow:
            return Invocation(outcome="denied", error=ToolFault(type=FORK, message="side effect, not allowed by name"))
        return await self._live.invoke(tool, call, step=step, position=position, key=key, left_s=left_s)

    async def close(self) -> tuple[str, ...]:
        return await self._live.close()


class _Recorded:
    """Recorded results by (tool, canonical arguments), each once and in order. Raises `ReplayMiss` for all else."""

    concurrent = False
    late: Sequence[Any] = ()
    shown: Mapping[tuple[int, int], CallRecord] = {}

    def __init__(self, run: Run) -> None:
        self._results: dict[tuple[str, str], deque[CallRecord]] = {}
        for step in run.steps:
            for record in step.calls:
                if ran(record) and record.outcome not in ("unknown_outcome", "cancelled"):
                    self._results.setdefault(_key(record.call), deque()).append(record)

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        """The recorded result of a call."""
        waiting = self._results.get(_key(call))
        if not waiting:
            raise ReplayMiss("call", step, position, call)
        record = waiting.popleft()
        return Invocation(outcome=record.outcome, result=record.result, error=record.error, served_by=record.served_by)

    async def close(self) -> tuple[str, ...]:
        return ()


def _key(call: Call) -> tuple[str, str]:
    return call.name, canonical_json(call.args)


def _recorded_confirm(run: Run, agent: Agent) -> Confirm | None:
    """Recorded approvals, each once; a call nobody was asked about is not recorded. None where no run ever asks."""
    if agent.confirm is None and not run.head.confirm:
        return None
    answers = Answers(run)

    def confirm(name: str, args: dict[str, Any]) -> bool:
        answer = answers.take(name, args)
        if answer is None:
            raise ReplayMiss("call", 0, 0, Call(name=name, args=args))
        return answer

    return confirm
