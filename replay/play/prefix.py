"""A recording's first steps served at the seams of a run, and what is live behind them.

Going live, the gates of the recording hold: an approval that was given is good for the call it was given for, what the
trace shows begun and not ended is unknown, a masked value reaches no tool, a fork runs no side effect it was not allowed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

from kernel.errors import ConfigError, ModelError
from kernel.loop import FORK, MASKED, Confirm, ConfirmFailed, FinishCheck, FinishContext
from kernel.masking import contains_placeholder
from kernel.record import (
    Attempt,
    Call,
    CallRecord,
    ModelParams,
    Reply,
    Request,
    Run,
    ToolFault,
    canonical_json,
    to_jsonable,
)
from kernel.seams import Clock, Invocation, Model, Point, Tools
from kernel.tools import Tool
from replay.play.doubles import RecordedClock, fixed_calls, ran

T = TypeVar("T")
Place = tuple[int, int]
OnLive = Callable[[], None]
NOBODY_TO_ASK = "this needs an approval, and nobody can be asked for it here"


def is_torn(run: Run, step: int) -> bool:
    """Whether a step of a run was cut short or cancelled in its middle."""
    return run.steps[step - 1].decision is None


def has_begun(record: CallRecord) -> bool:
    """Whether a call of a torn step began and came to no end."""
    return record.outcome == "unknown_outcome" or (record.outcome == "cancelled" and record.key is not None)


class PrefixModel:
    """Recorded replies while there are any, then the live model; `on_live` is told of the first live request."""

    def __init__(self, prefix: Run, live: Model, on_live: Callable[[Request], None]) -> None:
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
        self._live = live
        self._on_live = on_live
        self._is_live = False

    async def __aenter__(self) -> None:
        if hasattr(self._live, "__aenter__"):
            await self._live.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        if hasattr(self._live, "__aexit__"):
            await self._live.__aexit__(*error)

    async def complete(self, request: Request) -> Reply:
        if not self._script:
            if not self._is_live:
                self._is_live = True
                self._on_live(request)
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


def refuse_masked(request: Request) -> None:
    """Raise `ConfigError` where a request holds a masked secret, which no live model may be asked with."""
    for index, message in enumerate(request.messages):
        parts = [message.content, *(text for call in message.tool_calls for text in (call.name, call.arguments))]
        if contains_placeholder(parts):
            raise ConfigError(
                f"not sent: /messages/{index} ({message.role}) holds the placeholder of a masked secret, and the real value "
                "is not in the recording: fork at a step before it, or replace it by another task, system or result"
            )


class PrefixTools:
    """Recorded results of the prefix, by (step, position), then the live tools behind the gates.

    Args:
        replaced: other results for recorded calls.
        allow: tools that may run although the trace shows their call begun and not ended.
        effects: the only tools whose side effects may run, None for all.
        on_live: told before each live call.
    """

    def __init__(
        self,
        prefix: Run,
        live: Tools,
        *,
        replaced: Mapping[Place, Any],
        allow: Collection[str],
        effects: Collection[str] | None,
        on_live: OnLive,
    ) -> None:
        self._live = live
        self._replaced = replaced
        self._allow = frozenset(allow)
        self._effects = effects
        self._on_live = on_live
        self._served: dict[Place, CallRecord] = {}
        self._begun: set[Place] = set()
        effects_then = {tool.name for tool in prefix.head.tools if tool.side_effect}
        for step in prefix.steps:
            for position, record in enumerate(step.calls):
                if is_torn(prefix, step.index) and has_begun(record):
                    if record.key is not None or record.call.name in effects_then:
                        self._begun.add((step.index, position))
                elif ran(record) and not (is_torn(prefix, step.index) and record.outcome == "cancelled"):
                    self._served[step.index, position] = record
        self.shown = fixed_calls(prefix)

    @property
    def concurrent(self) -> bool:
        return self._live.concurrent

    @property
    def late(self) -> Sequence[Any]:
        return self._live.late

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        record = self._served.get((step, position))
        if record is None:
            refused = self._gate(tool, call, (step, position))
            if refused is not None:
                return refused
            self._on_live()
            return await self._live.invoke(tool, call, step=step, position=position, key=key, left_s=left_s)
        if (record.call.name, canonical_json(record.call.args)) != (call.name, canonical_json(call.args)):
            raise ConfigError(
                f"step {step} now calls {call.name}({canonical_json(call.args)}), the recording has "
                f"{record.call.name}({canonical_json(record.call.args)}): fork at step {step} or before"
            )
        if (step, position) in self._replaced:
            return Invocation(outcome="ok", result=to_jsonable(self._replaced[step, position]))
        return Invocation(outcome=record.outcome, result=record.result, error=record.error, served_by=record.served_by)

    def _gate(self, tool: Tool, call: Call, place: Place) -> Invocation | None:
        """Why a live call is not run, if it is not."""
        if contains_placeholder(call.args):
            return _refusal("denied", MASKED, "the arguments hold the placeholder of a masked secret")
        if place in self._begun and call.name not in self._allow:
            return _refusal("unknown_outcome", "unknown_outcome", "the trace shows this call begun and not ended")
        if tool.spec.side_effect and self._effects is not None and call.name not in self._effects:
            return _refusal("denied", FORK, "side effect in a fork")
        return None

    async def close(self) -> tuple[str, ...]:
        return await self._live.close()


def _refusal(outcome: Any, kind: str, message: str) -> Invocation:
    return Invocation(outcome=outcome, error=ToolFault(type=kind, message=message))


class PrefixClock:
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


class PrefixConfirm:
    """`confirm` of a run that goes live: recorded answers for the calls of the prefix, then the live one.

    A call of the prefix that ran or began had passed this gate, whether somebody was asked or not. Where approvals were
    asked in the recording and nobody can be asked now, a call is denied, unless its tool is allowed by name.
    """

    def __init__(self, prefix: Run, live: Confirm | None, allow: Collection[str], on_live: OnLive) -> None:
        self._live = live
        self._on_live = on_live
        self._allow = frozenset(allow)
        self._answers: dict[tuple[str, str], deque[CallRecord]] = {}
        for step in prefix.steps:
            for record in step.calls:
                if record.approval is not None or record.key is not None:
                    place = record.call.name, canonical_json(record.call.args)
                    self._answers.setdefault(place, deque()).append(record)

    def __call__(self, name: str, args: dict[str, Any]) -> Any:
        waiting = self._answers.get((name, canonical_json(args)))
        if waiting:
            approval = waiting.popleft().approval
            if approval is not None and approval.failure is not None:
                raise ConfirmFailed(approval.failure)
            return approval is None or approval.approved
        if self._live is not None:
            self._on_live()
            return self._live(name, args)
        if name in self._allow:
            return True
        raise ConfirmFailed(NOBODY_TO_ASK)

    def go_live(self) -> None:
        """No recorded answer is good for a call that the live model makes."""
        self._answers.clear()


def prefix_finish_check(prefix: Run, live: FinishCheck | None) -> FinishCheck | None:
    """Refuses what was refused in the prefix, step by step; then the live check."""
    if live is None:
        return None
    last = len(prefix.steps)

    def check(answer: str, context: FinishContext) -> Any:
        if context.step <= last and not is_torn(prefix, context.step):
            return prefix.steps[context.step - 1].refusal
        return live(answer, context)

    return check
