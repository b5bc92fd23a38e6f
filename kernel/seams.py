"""The four seams at which a run meets the world: model, tools, clock, ids. Doubles slide in here and nowhere else.

The loop gets them as one `Seams` value. `replay` passes doubles that serve a recording; the kernel cannot tell.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from kernel.record import Call, CallRecord, Outcome, Reply, Request, ToolFault

if TYPE_CHECKING:
    from kernel.tools import Tool

T = TypeVar("T")
Point = Literal["run", "run_end", "step", "step_end", "chat", "chat_end", "attempt", "call", "call_end"]


class DeadlineExceeded(Exception):
    """The run's wall clock ran out while something was awaited."""


class Model(Protocol):
    """A language model. `protocol` says how it takes tools; the loop reads `provider` and `name` for the trace.

    `complete` may raise `kernel.errors.ModelError`; any other exception is read as a failure that is not retried.
    """

    @property
    def protocol(self) -> Literal["text", "tools"]: ...
    @property
    def provider(self) -> str: ...
    @property
    def name(self) -> str: ...

    async def complete(self, request: Request) -> Reply: ...


class Invocation(Struct, frozen=True, kw_only=True, gc=False):
    """What came of handing a call to its tool: `result` is a JSON value, `served_by` names who answered instead."""

    outcome: Outcome
    result: Any = None
    error: ToolFault | None = None
    served_by: str | None = None


class Tools(Protocol):
    """Runs a call that dispatch has let through. Never raises on what a tool does, only on cancellation."""

    @property
    def concurrent(self) -> bool:
        """Whether calls of one step may be awaited together; needs a running event loop."""

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        """Run one call; `left_s` is what is left of the run's wall clock, a second deadline beside the tool's own."""

    @property
    def shown(self) -> Mapping[tuple[int, int], CallRecord]:
        """Calls, by step and position, whose shown text is given instead of being made from their result."""

    @property
    def late(self) -> Sequence[Any]:
        """Results that came after their deadline: objects with `tool`, `step`, `position` and `outcome`."""

    async def close(self) -> tuple[str, ...]:
        """End everything that still runs; names the tools that could not be ended.

        A cancellation is raised when all is ended, not before; to close once more only names what is alive.
        """


class Clock(Protocol):
    """Time, read only at named points of a run, so that a recording can answer for the same points.

    What a run does depends on `run`, `step_end` and `attempt` alone; the other points only date spans.
    """

    def now(self, point: Point, step: int = 0, position: int = 0) -> int:
        """Nanoseconds since 1970."""

    async def sleep(self, seconds: float) -> None: ...

    async def within(self, seconds: float | None, awaitable: Awaitable[T]) -> T:
        """Await; raises `DeadlineExceeded` after `seconds`, and `CancelledError` also where the awaited swallowed one."""


class Ids(Protocol):
    """Names for traces and spans: 32 and 16 lower-case hex digits."""

    def trace_id(self) -> str: ...
    def span_id(self) -> str: ...


_DECIDING = ("run", "step_end", "attempt")


class _Begun:
    """A coroutine that has taken its first step and goes on when it is awaited."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: CoroutineType[Any, Any, Any], awaited: Any) -> None:
        self._coroutine, self._awaited = coroutine, awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, awaited = self._coroutine, self._awaited
        try:
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    raise
                except BaseException as error:
                    awaited = coroutine.throw(error)
                else:
                    awaited = coroutine.send(value)
        except StopIteration as done:
            return done.value
        finally:
            coroutine.close()


class SystemClock:
    """The machine's clock: started at wall time, advanced by the monotonic clock, so that durations are never negative."""

    __slots__ = ("_offset", "_since_ns")

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()
        self._since_ns = time.monotonic_ns()

    def now(self, point: Point, step: int = 0, position: int = 0) -> int:
        at = time.monotonic_ns()
        if point in _DECIDING:
            self._since_ns = at
        return self._offset + at

    async def sleep(self, seconds: float) -> None:
        self._since_ns += int(max(seconds, 0.0) * 1e9)  # who sleeps takes it off what is left
        await asyncio.sleep(seconds)

    def rest(self, seconds: float) -> float:
        """What is left now of the seconds that were left at the last deciding point: a step's model call, `confirm`, tools
        and `finish_check` share them."""
        return max(seconds - max(time.monotonic_ns() - self._since_ns, 0) / 1e9, 0.0)

    async def within(self, seconds: float | None, awaitable: Awaitable[T]) -> T:
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            result = await (awaitable if seconds is None else self._timed(seconds, awaitable))
        except Exception:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from None
            raise
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return result

    async def _timed(self, seconds: float, awaitable: Awaitable[T]) -> T:
        if type(awaitable) is CoroutineType:  # what never waits needs no timer
            try:
                awaitable = _Begun(awaitable, awaitable.send(None))
            except StopIteration as done:
                result: T = done.value
                return result
        try:
            async with asyncio.timeout(self.rest(seconds)) as scope:
                return await awaitable
        except TimeoutError:
            if scope.expired():
                raise DeadlineExceeded from None
            raise


class RandomIds:
    """Ids from the operating system's randomness."""

    __slots__ = ()

    def trace_id(self) -> str:
        return os.urandom(16).hex()

    def span_id(self) -> str:
        return os.urandom(8).hex()


class Seams(Struct, kw_only=True):
    """What a run is given from outside."""

    model: Model
    tools: Tools
    clock: Clock
    ids: Ids
