"""Fork and resume: play a recording up to a step, then go on live, into a new trace that is linked to the old one.

A fork is a new run: it has its own identity, and tools with side effects are denied unless they are allowed by name. A
resume continues a run that was cut short under its old identity: what it finished is served from the trace, a side effect
that the trace shows begun and not ended is not run again unless its tool is allowed by name.

Before anything is live, all that was asked for is checked, and the recorded steps are played once with doubles: what
could not go on is refused while it costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.loop import Confirm, Loop, Transcript
from kernel.model import PromptFunction, as_model, described
from kernel.record import Policy, Request, Run, RunHead
from kernel.result import RunResult, result_of
from kernel.seams import Clock, Ids, Model, RandomIds, Seams, SystemClock, Tools
from kernel.stores import Ledger, MemoryLedger
from kernel.tools import LiveTools
from kernel.trace import Link, Recorder, claimed, semconv as sc
from kernel.tracing import Session, tracing_from
from replay.play.doubles import ran
from replay.play.prefix import (
    OnLive,
    PrefixClock,
    PrefixConfirm,
    PrefixModel,
    PrefixTools,
    prefix_finish_check,
    refuse_masked,
)
from replay.play.recording import Recording
from replay.play.rehearsal import rehearse
from replay.play.withholding import withheld
from replay.play.witness import WitnessLedger

_STRICTNESS = ("read_only", "dry_run", "allowlist", "full")


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
    turn: int | None = None,
    trace: Any = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> RunResult:
    """Play steps before `at_step` from the recording, then go on live with `agent` and `llm`.

    Of a conversation `turn` says which of its runs goes on; the turns before it are played from the recording.
    Side effects are denied unless named in `change.allow`. `confirm`, else the agent's own, is asked before each; where
    there is neither and the recording had one, what is not named is denied.

    Raises:
        ConfigError: the recording has no such step, or holds several runs and no `turn` is given; a result or tool that is named is not there;
            its steps do not play as recorded with this agent; a masked secret would be sent; the trace cannot be kept.
            Nothing was live.
    """
    run, earlier = _chosen(recording, turn)
    if not 1 <= at_step <= len(run.steps) + 1:
        raise ConfigError(f"step {at_step} is not in the recording: it has steps 1 to {len(run.steps)}")
    _check_results(change.results, run, at_step)
    ids = ids or RandomIds()
    going = _Going(
        recording=recording,
        earlier=earlier,
        prefix=Run(head=run.head, steps=run.steps[: at_step - 1], mark=run.mark),
        agent=agent,
        change=change,
        confirm=confirm or agent.confirm,
        allow=frozenset(change.allow),
        is_fork=True,
        run_id=ids.span_id() + ids.span_id(),
    )
    return await _go_on(going, as_model(llm), trace, clock or SystemClock(), ids)


async def resume(
    recording: Recording,
    agent: Agent,
    *,
    llm: Model | PromptFunction | None = None,
    allow: Collection[str] = (),
    confirm: Confirm | None = None,
    turn: int | None = None,
    trace: Any = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> RunResult:
    """Go on with a run that was cut short, from where its trace ends; of a conversation, with its last turn unless
    `turn` says another.

    What the trace shows done is not done again, and a side effect that it shows begun and not ended is `unknown_outcome`,
    whatever the agent's ledger says, unless its tool is in `allow`. `confirm`, else the agent's own, is asked before each
    further side effect; where there is neither and the recording had one, only tools in `allow` are run.

    Raises:
        ConfigError: the run has ended already, or for a reason that `fork` has too. Nothing was live.
    """
    last = len(recording.runs) if recording.conversation is not None else None
    run, earlier = _chosen(recording, turn or last)
    if run.end is not None and run.end.stop_reason != "cancelled":
        raise ConfigError(f"the run has ended ({run.end.stop_reason}); fork it instead, for example at step 1")
    _check_witnessed(run)
    going = _Going(
        recording=recording,
        earlier=earlier,
        prefix=Run(head=run.head, steps=run.steps, mark=run.mark),
        agent=agent,
        change=Change(),
        confirm=confirm or agent.confirm,
        allow=frozenset(allow),
        is_fork=False,
        run_id=run.head.run_id,
    )
    try:
        with claimed(Path(recording.file)):
            return await _go_on(going, as_model(llm), trace, clock or SystemClock(), ids or RandomIds())
    except BlockingIOError:
        raise ConfigError(
            f"{recording.file}: its run goes on, or is being resumed, in another process: wait for that, or end it"
        ) from None


class _Going(Struct, frozen=True, kw_only=True):
    """What goes on: a prefix, and what holds from there. `prefix` has no end; `earlier` are whole turns before it."""

    recording: Recording
    earlier: tuple[Run, ...]
    prefix: Run
    agent: Agent
    change: Change
    confirm: Confirm | None
    allow: frozenset[str]
    is_fork: bool
    run_id: str

    @property
    def effects(self) -> frozenset[str] | None:
        """The only tools whose side effects may be run, None for all: a fork stays one when it is resumed."""
        recorded = self.prefix.head.effects
        if self.is_fork:
            return self.allow
        return None if recorded is None else frozenset(recorded) | self.allow

    def tools(self, live: Tools, on_live: OnLive) -> PrefixTools:
        return PrefixTools(
            self.prefix,
            live,
            replaced=self.change.results,
            allow=self.allow,
            effects=self.effects,
            on_live=on_live,
        )

    def asks(self, on_live: OnLive) -> PrefixConfirm | None:
        if self.confirm is None and not self.prefix.head.confirm:
            return None
        return PrefixConfirm(self.prefix, self.confirm, self.allow, on_live)

    def ledger(self) -> Ledger:
        own = self.agent.ledger or MemoryLedger()
        return own if self.is_fork else WitnessLedger(own, self.prefix, self.allow)


async def _go_on(going: _Going, live: Model, trace: Any, clock: Clock, ids: Ids) -> RunResult:
    _check_allow(going)
    turns = [*(_before(going, run, ids) for run in going.earlier), going]
    heads = _rehearsed(turns, live)
    tracing = tracing_from(trace)
    session = None
    trace_id = ids.trace_id()
    if tracing is not None:
        first, single = PrefixClock(turns[0].prefix, clock), len(turns) == 1
        session = tracing.open(
            heads[0], trace_id=trace_id, parent=None, clock=first, ids=ids, single=single, hidden=True
        )
        if session.unkept is not None:
            session.close()
            raise ConfigError(
                f"nothing was run, because its trace could not be kept: {session.unkept}; give another file"
            )
    transcript = Transcript(going.agent.count_tokens)
    try:
        for turn, head in zip(turns, heads, strict=True):
            loop = _loop(turn, head, live, session, transcript, clock, ids)
            end = await loop.run()
    finally:
        if session is not None:
            session.close()
    return result_of(heads[-1], loop.steps, end, trace_id, session, [*loop.warnings, *withheld(loop.steps)])


def _before(going: _Going, run: Run, ids: Ids) -> _Going:
    """A turn before the one that goes on: all of it is recorded."""
    return msgspec.structs.replace(
        going,
        prefix=Run(head=run.head, steps=run.steps, mark=run.mark),
        change=Change(system=going.change.system),
        run_id=ids.span_id() + ids.span_id() if going.is_fork else run.head.run_id,
    )


def _rehearsed(turns: Sequence[_Going], live: Model) -> list[RunHead]:
    """The heads of all turns, each of which plays as recorded, and the last of which goes live. Raises `ConfigError`."""
    transcript, heads = Transcript(turns[-1].agent.count_tokens), []
    for going in turns:
        head, prefix, step = _head(going, live), going.prefix, len(going.prefix.steps) + 1
        ended, keys = rehearse(
            prefix, head, going.agent, replaced=going.change.results, tools=going.tools, transcript=transcript
        )
        if going is not turns[-1] and ended is None:
            raise ConfigError(
                f"turn {prefix.head.turn} of the conversation did not end by itself, so it cannot be repeated"
            )
        if going is turns[-1] and ended is not None and going.is_fork:
            raise ConfigError(f"nothing would be live: the run ends with {ended.stop_reason} before step {step}")
        keys |= set() if going.is_fork else _keys(prefix)
        heads.append(msgspec.structs.replace(head, witnessed=tuple(sorted(keys))))
    return heads


def _loop(
    going: _Going,
    head: RunHead,
    live: Model,
    session: Session | None,
    transcript: Transcript,
    clock: Clock,
    ids: Ids,
) -> Loop:
    """The run of one turn: recorded as far as its prefix goes, then live."""
    prefix, agent = going.prefix, going.agent
    switching = PrefixClock(prefix, clock)
    recorder = None if session is None else _recorder(session, going.recording, prefix, switching, ids)

    def on_live() -> None:
        if session is not None:
            session.reveal()

    asks = going.asks(on_live)

    def on_model(request: Request) -> None:
        refuse_masked(request)  # again: a step that was torn may have run live tools since
        on_live()
        switching.go_live()
        if asks is not None:
            asks.go_live()

    tools = LiveTools(
        going.ledger(),
        run_id=going.run_id,
        clock=switching,
        on_effect=recorder.effect_begun if recorder is not None else None,
    )
    return Loop(
        head,
        agent.toolbox(),
        Seams(model=PrefixModel(prefix, live, on_model), tools=going.tools(tools, on_live), clock=switching, ids=ids),
        transcript,
        confirm=asks,
        finish_check=prefix_finish_check(prefix, agent.finish_check),
        tracer=recorder,
        count=agent.count_tokens,
    )


def _recorder(session: Session, recording: Recording, prefix: Run, clock: Clock, ids: Ids) -> Recorder:
    """The recorder of a run that is linked to the one it goes on from."""
    attributes = {sc.ORIGINAL_TRACE_ID: recording.trace_id}
    link = Link(trace_id=recording.trace_id, span_id=prefix.mark.span_id, attributes=attributes)
    links = (link,) if recording.trace_id and prefix.mark.span_id else ()
    return session.recorder(clock, ids, links=links, attributes=attributes)


def _chosen(recording: Recording, turn: int | None) -> tuple[Run, tuple[Run, ...]]:
    """The run that goes on, and those before it in its conversation. Raises `ConfigError`."""
    runs = tuple(recorded.run for recorded in recording.runs)
    if turn is None and len(runs) != 1:
        raise ConfigError(f"the recording holds {len(runs)} runs: say which goes on, with turn 1 to {len(runs)}")
    turn = turn or 1
    if not 1 <= turn <= len(runs):
        raise ConfigError(f"turn {turn} is not in the recording: it has {len(runs)} runs")
    return runs[turn - 1], runs[: turn - 1] if recording.conversation is not None else ()


def _keys(run: Run) -> set[str]:
    """The keys of the side effects that a run shows begun."""
    return {record.key for step in run.steps for record in step.calls if record.key is not None}


def _check_witnessed(run: Run) -> None:
    """A fork or resume first repeats what it goes on from. Where it was cut short in that, it knows too little."""
    missing = set(run.head.witnessed) - _keys(run)
    if missing:
        raise ConfigError(
            f"this run was cut short while it repeated the recording that it goes on from: {len(missing)} side effects of "
            "that are not in it. Nothing was live, so fork or resume that recording again"
        )


def _check_results(results: Mapping[tuple[int, int], Any], run: Run, at_step: int) -> None:
    """Each replacement belongs to a call of the steps before the fork that had a result."""
    for step, position in results:
        where = f"result {step}.{position}"
        if not 1 <= step < at_step:
            last = "there is no step before it" if at_step == 1 else f"it has steps 1 to {at_step - 1} before it"
            raise ConfigError(
                f"{where}: only a result before the fork can be replaced; that is at step {at_step}, {last}"
            )
        calls = run.steps[step - 1].calls
        if not 0 <= position < len(calls):
            there = ", ".join(f"{step}.{i} {record.call.name}" for i, record in enumerate(calls)) or "no call"
            raise ConfigError(f"{where}: the recording has no such call; step {step} has {there}")
        if not ran(calls[position]):
            record = calls[position]
            raise ConfigError(f"{where}: {record.call.name} was not run there ({record.outcome}), so it has no result")


def _check_allow(going: _Going) -> None:
    """Each tool that is allowed is one of the agent's that has side effects, today or as recorded."""
    recorded = {tool.name for tool in going.prefix.head.tools if tool.side_effect}
    effects = [tool.name for tool in going.agent.tools if tool.spec.side_effect or tool.name in recorded]
    for name in going.allow:
        if name not in effects:
            known = ", ".join(effects) or "none"
            raise ConfigError(f'allow "{name}": the agent has no such tool with side effects; it has {known}')


def _head(going: _Going, live: Model) -> RunHead:
    recorded, agent, change = going.prefix.head, going.agent, going.change
    protocol, _, _ = described(live)
    if protocol != recorded.protocol:
        raise ConfigError(
            f'the recording speaks the protocol "{recorded.protocol}" and the live model "{protocol}": '
            "give a model of the same protocol"
        )
    head = agent.head(
        change.task if change.task is not None else recorded.task,
        live,
        run_id=going.run_id,
        turn=recorded.turn,
        conversation_id=recorded.conversation_id,
        confirm=going.confirm is not None or recorded.confirm,
        confirm_by_run=going.confirm is None or going.confirm is not agent.confirm,
    )
    if change.system is not None:
        head = msgspec.structs.replace(head, system=change.system)
    effects = going.effects
    return msgspec.structs.replace(
        head,
        notes=recorded.notes,
        policy=stricter(recorded.policy, head.policy, going.allow),
        effects=None if effects is None else tuple(sorted(effects)),
        resumes=None if going.is_fork else going.recording.trace_id,
    )


def stricter(recorded: Policy, today: Policy, allow: Collection[str]) -> Policy:
    """The policy that allows what both allow; of the recorded one, `allow` lifts what it names."""
    then, now = _STRICTNESS.index(recorded.mode), _STRICTNESS.index(today.mode)
    if now < _STRICTNESS.index("allowlist"):  # today nothing with an effect runs at all
        return today if now <= then else recorded
    if recorded.mode == "full":
        return today
    names = {*allow, *(recorded.allow if recorded.mode == "allowlist" else ())}
    if today.mode == "allowlist":
        names &= set(today.allow)
    if recorded.mode != "allowlist" and not names:
        return recorded
    return Policy(mode="allowlist", allow=tuple(sorted(names)), source="recording")
