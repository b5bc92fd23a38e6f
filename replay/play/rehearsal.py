"""Before a run goes live: its recorded steps, played once with doubles, must come out as they were recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.loop import Loop, Transcript
from kernel.record import Call, CallRecord, Request, Run, RunEnd, RunHead, Step, canonical_json
from kernel.seams import Invocation, Seams, Tools
from kernel.tools import Tool
from replay.play.doubles import DerivedIds, RecordedClock, recorded_finish_check
from replay.play.play import drive
from replay.play.prefix import OnLive, Place, PrefixConfirm, PrefixModel, PrefixTools, is_torn, refuse_masked


class _WouldGoLive(BaseException):
    """The recorded steps are over."""


class _NoModel:
    """Stands for the live model; is never asked."""

    protocol: Literal["text", "tools"] = "text"
    provider = name = ""

    async def complete(self, request: Request) -> Any:
        raise AssertionError("a rehearsal asks no live model")


class _NoTools:
    """Stands for the live tools."""

    concurrent = False
    late: Sequence[Any] = ()
    shown: Mapping[Place, CallRecord] = MappingProxyType({})

    async def invoke(self, tool: Tool, call: Call, **_: Any) -> Invocation:
        raise _WouldGoLive

    async def close(self) -> tuple[str, ...]:
        return ()


def rehearse(
    prefix: Run,
    head: RunHead,
    agent: Agent,
    *,
    replaced: Collection[Place],
    tools: Callable[[Tools, OnLive], PrefixTools],
    transcript: Transcript,
) -> tuple[RunEnd | None, set[str]]:
    """Play the prefix with today's head and tools: its end where it ends with its steps, None where it would go live; and
    the keys of the side effects in it.

    Args:
        transcript: what was said in earlier turns; the prefix is added.
    Raises:
        ConfigError: a step does not come out as recorded, the run ends before it would go live, or the first live request
            would hold a masked secret.
    """

    asked: list[Request] = []

    def on_live(request: Request) -> NoReturn:
        asked.append(request)
        raise _WouldGoLive

    loop = Loop(
        head,
        agent.toolbox(),
        Seams(
            model=PrefixModel(prefix, _NoModel(), on_live),
            tools=tools(_NoTools(), _go_live),
            clock=RecordedClock(prefix),
            ids=DerivedIds(prefix.head.run_id),
        ),
        transcript,
        confirm=PrefixConfirm(prefix, lambda name, args: False, (), _go_live) if head.confirm else None,
        finish_check=recorded_finish_check(prefix) if agent.finish_check is not None else None,
        count=agent.count_tokens,
    )
    end: RunEnd | None = None
    with suppress(_WouldGoLive):
        end = drive(loop.run())
    finished = [step for step in prefix.steps if not is_torn(prefix, step.index)]
    for was in finished:
        now = loop.steps[was.index - 1] if was.index <= len(loop.steps) else None
        if (found := _difference(was, now, replaced)) is not None:
            why = f": the run stops with {loop.end.stop_reason}" if now is None and loop.end is not None else ""
            raise ConfigError(
                f"step {was.index} does not come out as recorded with this agent: {found}{why}. "
                f"Fork at step {was.index} or before"
            )
    for request in asked:
        refuse_masked(request)
    return end, {record.key for step in loop.steps for record in step.calls if record.key is not None}


def _go_live() -> NoReturn:
    raise _WouldGoLive


def _difference(was: Step, now: Step | None, replaced: Collection[Place]) -> str | None:
    """How a step that was played differs from the recorded one, in what decides how the run goes on."""
    if now is None:
        return "it is not reached"
    if (was.decision is None) != (now.decision is None) or was.refusal != now.refusal:
        return "it ends in another way"
    if was.decision is None or now.decision is None:
        return None
    if was.decision.kind != now.decision.kind or len(was.calls) != len(now.calls):
        return f"the recorded reply was read as {was.decision.kind}, and is as {now.decision.kind}"
    for position, (one, other) in enumerate(zip(was.calls, now.calls, strict=True)):
        if (one.call.name, one.call.args) != (other.call.name, other.call.args):
            return f"the recording calls {_shown(one.call)}, this agent {_shown(other.call)}"
        if one.outcome != other.outcome and (was.index, position) not in replaced:
            return f"{_shown(one.call)} was {one.outcome}, and is {other.outcome}"
    return None


def _shown(call: Call) -> str:
    return f"{call.name}({canonical_json(call.args)})"
