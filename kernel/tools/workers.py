"""Threads that run blocking calls for one run, and that nobody has to wait for.

They are daemons and belong to the run, not to asyncio's default executor: a call that hangs for ever holds up neither
`asyncio.run` nor the end of the process. An idle thread takes the next call; a thread whose call was given up is never
used again.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_JOIN_S = 0.25


class _Worker:
    __slots__ = ("jobs", "retired", "thread")

    def __init__(self, post: Callable[[_Worker, asyncio.Future[Any], Any], None]) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self.retired = False
        self.thread = threading.Thread(target=_work, args=(self, post), daemon=True)
        self.thread.start()

    def retire(self) -> None:
        """End the thread as soon as its job ends."""
        if not self.retired:
            self.retired = True
            self.jobs.put(None)


def _work(worker: _Worker, post: Callable[[_Worker, asyncio.Future[Any], Any], None]) -> None:
    while (job := worker.jobs.get()) is not None:
        function, future = job
        result = function()
        post(worker, future, result)
        del job, function, future, result  # an idle worker keeps nothing of its last call alive


class Workers:
    """The worker threads of one run. All methods belong to the thread of its event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._all: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._busy: dict[asyncio.Future[Any], tuple[_Worker, str]] = {}

    def submit(self, label: str, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` in a thread, in a copy of the current context; the future gets its result when it ends.

        `function` must not raise. Giving up on a call is `abandon`; cancelling the future ends nothing.

        Raises:
            RuntimeError: the system has no more threads to give.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker(self._post)
            self._all.add(worker)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._busy[future] = (worker, label)
        worker.thread.name = f"tool {label}"
        context = contextvars.copy_context()
        worker.jobs.put((lambda: context.run(function), future))
        return future

    def abandon(self, future: asyncio.Future[Any]) -> None:
        """Never use this call's thread again. The future still tells when the call has ended."""
        if future in self._busy:
            self._busy[future][0].retire()

    def busy(self) -> dict[asyncio.Future[Any], str]:
        """The calls that have not ended, with their labels."""
        return {future: label for future, (_, label) in self._busy.items()}

    def close(self) -> tuple[str, ...]:
        """End all threads and name the calls that have not ended. Waits a moment for threads that have nothing left to do, and
        for no call; a thread that takes longer on a busy machine ends by itself, and runs no call."""
        stuck = dict(self._busy.values())
        for worker in self._all:
            worker.retire()
        for worker in self._all - stuck.keys():
            worker.thread.join(_JOIN_S)
        self._idle.clear()
        self._all = {worker for worker in self._all if worker.thread.is_alive()}
        return tuple(label for worker, label in stuck.items() if worker in self._all)

    def _post(self, worker: _Worker, future: asyncio.Future[Any], result: Any) -> None:
        """In the worker's thread: carry a result over to the loop, unless that is gone."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle, worker, future, result)
        except RuntimeError:  # the loop is closed, so nobody waits for this result any more
            worker.retire()

    def _settle(self, worker: _Worker, future: asyncio.Future[Any], result: Any) -> None:
        del self._busy[future]
        if not worker.retired:
            self._idle.append(worker)
        if not future.done():
            future.set_result(result)
