"""Run a coroutine as a task of its own whose first step is taken at once.

Many async tools never wait: they answer from memory. Such a call should not cost a turn of the event loop. So the first
step is taken in place, but *as* another task (`asyncio.current_task()` is that task already, which is what timeouts and
task groups remember); only a coroutine that waits is carried on by that task on the loop. Python 3.12 has this as
`eager_start`; here it works from 3.11 on, by the documented means of extending asyncio, and a task that was not needed
serves the next call.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

_NOTHING: Any = object()


class _Carrier(Coroutine[Any, Any, Any]):
    """What a task runs: nothing, until a coroutine that has taken its first step is handed over; then the rest of it.

    It is a coroutine object of its own, and not an `async def`, because a task that is cancelled before its first turn
    throws into a coroutine that has not begun, which would end without a word to the one it carries.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gate = loop.create_future()
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._context: contextvars.Context | None = None
        self.is_abandoned = False
        self._awaited: Any = _NOTHING  # what the coroutine waits for, as long as the task does not

    def hand_over(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context, awaited: Any) -> None:
        self._coroutine, self._context, self._awaited = coroutine, context, awaited
        if not self._gate.done():
            self._gate.set_result(None)

    def send(self, value: Any) -> Any:
        if self._coroutine is None:
            return next(self._gate.__await__())
        if self._awaited is not _NOTHING:
            awaited, self._awaited = self._awaited, _NOTHING
            return awaited
        return self._step(self._coroutine.send, value)

    def throw(self, error: Any, *_: Any) -> Any:
        if self._coroutine is None:
            raise error
        if self.is_abandoned and isinstance(error, asyncio.CancelledError):
            self._drop(self._coroutine)
            raise error
        awaited, self._awaited = self._awaited, _NOTHING
        if isinstance(error, asyncio.CancelledError) and asyncio.isfuture(awaited) and awaited.cancel():
            return awaited  # as a task does it: what is waited for is cancelled, and tells the one who waits
        return self._step(self._coroutine.throw, error)

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    def _drop(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Close a coroutine that does not heed a cancellation, so that its task can end."""
        with suppress(BaseException):
            coroutine.close()

    def _step(self, method: Callable[[Any], Any], value: Any) -> Any:
        assert self._context is not None
        return self._context.run(method, value)

    def __await__(self) -> NoReturn:
        raise TypeError("this coroutine belongs to its task")


class Tasks:
    """The tasks of one run, with at most one kept for the next call."""

    def __init__(self) -> None:
        self._spare: tuple[asyncio.Task[Any], _Carrier] | None = None
        self._carriers: dict[asyncio.Future[Any], _Carrier] = {}

    def start(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> tuple[asyncio.Task[Any] | None, Any]:
        """Start a coroutine that raises nothing: (None, result) where it never waited, else its task."""
        loop, current = asyncio.get_running_loop(), asyncio.current_task()
        task, carrier = self._take(loop)
        context = contextvars.copy_context()
        if current is not None:
            _leave_task(loop, current)
        _enter_task(loop, task)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as stop:
            self._spare = task, carrier
            return None, stop.value
        finally:
            _leave_task(loop, task)
            if current is not None:
                _enter_task(loop, current)
        carrier.hand_over(coroutine, context, awaited)
        task.set_name(f"tool {name}")
        self._carriers[task] = carrier
        task.add_done_callback(self._carriers.pop)
        return task, None

    def _take(self, loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Task[Any], _Carrier]:
        """The task that was kept, unless a coroutine that took its first step as it left something on it."""
        spare, self._spare = self._spare, None
        if spare is not None:
            task = spare[0]
            if not task.done() and not task.cancelling() and task.get_loop() is loop:
                return spare
            task.cancel()
        carrier = _Carrier(loop)
        return loop.create_task(carrier), carrier

    def abandon(self) -> None:
        """Let the next cancellation end each task that still runs, whatever its coroutine does about it: `asyncio.run`
        cancels what is left and then waits for it, and a coroutine that swallows that would keep it waiting for ever."""
        for carrier in self._carriers.values():
            carrier.is_abandoned = True

    def close(self) -> set[asyncio.Task[Any]]:
        """Tell the task that is kept to end; what there is to wait for."""
        if self._spare is None or self._spare[0].done():
            return set()
        self._spare[0].cancel()
        return {self._spare[0]}
