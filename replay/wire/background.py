"""Work that must not delay a call: done in order by one thread, dropped and counted where too much waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

MOST_WAITING_BYTES = 256 * 2**20

Job = Callable[[], None]


class Background:
    """One thread that does jobs in the order in which they were given. `dropped` counts those that were not done,
    `failures` those that went wrong."""

    def __init__(self, most_bytes: int = MOST_WAITING_BYTES) -> None:
        self._most = most_bytes
        self._waiting_bytes = self._waiting = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        self.dropped = self.failures = 0
        self._last_failure = ""
        self._told = (0, 0)
        self._thread = threading.Thread(target=self._work, name="tracefirst-wire", daemon=True)
        self._thread.start()

    def put(self, job: Job, size: int = 0) -> bool:
        """Give a job that holds `size` bytes. Never waits; False: too much waits, and it is dropped."""
        with self._lock:
            if size and self._waiting_bytes + size > self._most:
                self.dropped += 1
                return False
            self._waiting_bytes += size
            self._waiting += 1
        self._jobs.put((job, size))
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being done."""
        return not self._waiting

    def close(self, timeout_s: float | None = None) -> bool:
        """Do what waits, then end; False: it was not done in time."""
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def told(self) -> list[str]:
        """What was lost since this was last asked."""
        (dropped, failures), self._told = self._told, (self.dropped, self.failures)
        out = []
        if more := self.dropped - dropped:
            out.append(f"{more} requests or answers were handed through and not recorded: too much waited")
        if more := self.failures - failures:
            out.append(f"{more} requests or answers were not recorded, the last for {self._last_failure}")
        return out

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, size = taken
            try:
                job()
            except Exception as error:  # told at the end: what is recorded never reaches the call
                self._last_failure = f"{type(error).__name__}: {error}"[:500]
                self.failures += 1
            with self._lock:
                self._waiting_bytes -= size
                self._waiting -= 1
