"""What tests of agents need: scripted models, and a clock and ids that only count, so that a trace is the same each time.

model = ScriptedModel(["Thought: done\\n{\"action\": \"finish\", \"args\": {\"answer\": \"42\"}}"])
await agent.run(task, llm=model, trace="run.trace.json", clock=CountingClock(), ids=CountingIds("run"))
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from typing import TypeVar

from kernel.model import FunctionModel, ScriptedModel
from kernel.seams import DeadlineExceeded, Point

__all__ = ["CountingClock", "CountingIds", "FunctionModel", "ScriptedModel"]

T = TypeVar("T")
_HANGS_S = 1.0
"""What takes longer in real time hangs: much more than anything that ends takes on a busy machine."""


class CountingClock:
    """Each reading is a millisecond after the last; sleeping moves it on; only what hangs takes real time, a second."""

    def __init__(self, start_ns: int = 1_767_225_600_000_000_000, step_ns: int = 1_000_000) -> None:
        self._now = start_ns
        self._step = step_ns

    def now(self, point: Point, step: int = 0, position: int = 0) -> int:
        self._now += self._step
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1e9)

    async def within(self, seconds: float | None, awaitable: Awaitable[T]) -> T:
        if seconds is None:
            return await awaitable
        try:
            async with asyncio.timeout(min(seconds, _HANGS_S)):
                return await awaitable
        except TimeoutError:
            self._now += int(seconds * 1e9)
            raise DeadlineExceeded from None


class CountingIds:
    """Ids that follow from a name: the same name, the same ids."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0

    def _next(self, size: int) -> str:
        self._count += 1
        return hashlib.blake2b(f"{self._name}/{self._count}".encode(), digest_size=size).hexdigest()

    def trace_id(self) -> str:
        return self._next(16)

    def span_id(self) -> str:
        return self._next(8)
