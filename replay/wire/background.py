"""Work that must not delay a call: done in order by one thread, dropped and counted where too much waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

MOST_WAITING_BYTES = 256 * 2**20

Job = Callable[[], None]


class Background:
    """One thread that does jobs in the order in which they were given. `dropped` counts those that were not done,
    `failures` says what went wrong in those that were."""

    def __init__(self, most_bytes: int = MOST_WAITING_BYTES) -> None:
        self._most = most_bytes
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        self.dropped = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._work, name="tracefirst-wire", daemon=True)
        self._thread.start()

    def put(self, job: Job, size: int = 0) -> bool:
        """Give a job that holds `size` bytes. Never waits; False: too much waits, and it is dropped."""
        with self._lock:
            if size and self._waiting_bytes + size > self._most:
                self.dropped += 1
                return False
            self._waiting_bytes += size
        self._jobs.put((job, size))
        return True

    def close(self, timeout_s: float | None = None) -> bool:
        """Do what waits, then end; False: it was not done in time."""
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, size = taken
            try:
                job()
            except Exception as error:  # told at the end: what is recorded never reaches the call
                self.failures.append(f"{type(error).__name__}: {error}"[:500])
            with self._lock:
                self._waiting_bytes -= size
