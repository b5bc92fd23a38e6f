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
import functools
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Carrier:
    """A task that waits to carry one coroutine on."""

    __slots__ = ("_cancelled", "_context", "_coroutine", "_entered", "_first", "_gate", "_handed_over", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._gate = loop.create_future()
        self._handed_over = self._entered = self._cancelled = False
        self.task = loop.create_task(self._carry())

    def fresh(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether nothing is left on the task from a coroutine that took its first step as it."""
        return self.loop is loop and not self.task.done() and not self.task.cancelling()

    def step(self, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
        """Take the first step: (True, result) where it was the only one, else the task now carries the rest.

        The coroutine must not raise anything.
        """
        loop, current = self.loop, asyncio.current_task()
        context = contextvars.copy_context()
        if current is not None:
            _leave_task(loop, current)
        _enter_task(loop, self.task)
        try:
            self._first = context.run(coroutine.send, None)
        except StopIteration as stop:
            return True, stop.value
        finally:
            _leave_task(loop, self.task)
            if current is not None:
                _enter_task(loop, current)
        self._coroutine, self._context, self._handed_over = coroutine, context, True
        if not self._gate.done():
            self._gate.set_result(None)
        return False, None

    def cancel(self) -> bool:
        """Cancel the coroutine where it waits. A task that is cancelled before its first turn would never tell it."""
        if self._entered:
            return self.task.cancel()
        self._cancelled = True
        return True

    async def _carry(self) -> Any:
        self._entered = True
        step: Callable[[], Any] | None = None
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            await self._gate
        except asyncio.CancelledError as error:
            if not self._handed_over:
                raise
            step = functools.partial(self._coroutine.throw, error)
        return await _Rest(self._coroutine, self._context, self._first, step)


class _Rest:
    """The rest of a coroutine that waits for `first`; `step` is what to do with it instead, if anything."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: contextvars.Context,
        first: Any,
        step: Callable[[], Any] | None,
    ) -> None:
        self._coroutine, self._context, self._first, self._step = coroutine, context, first, step

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited, step = self._first, self._step
        while True:
            if step is None:
                try:
                    sent = yield awaited
                except BaseException as error:
                    step = functools.partial(self._coroutine.throw, error)
                else:
                    step = functools.partial(self._coroutine.send, sent)
            try:
                awaited = self._context.run(step)
            except StopIteration as stop:
                return stop.value
            step = None


class Tasks:
    """The tasks of one run, with at most one kept for the next call."""

    def __init__(self) -> None:
        self._spare: Carrier | None = None

    def start(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> tuple[Carrier | None, Any]:
        """Start a coroutine that raises nothing: (None, result) where it never waited, else what carries it on."""
        loop = asyncio.get_running_loop()
        carrier, self._spare = self._spare, None
        if carrier is None or not carrier.fresh(loop):
            if carrier is not None:
                carrier.cancel()
            carrier = Carrier(loop)
        done, result = carrier.step(coroutine)
        if done:
            self._spare = carrier
            return None, result
        carrier.task.set_name(f"tool {name}")
        return carrier, None

    async def close(self) -> None:
        """End the task that is kept."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()
            await asyncio.wait([spare.task])
