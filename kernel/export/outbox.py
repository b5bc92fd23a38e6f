"""The outbox of one destination: ended spans go from a queue to the spool to the server, on two threads of its own.

    put(span) → queue → [writer] → spool → [sender] → server

The run's thread pays for a queue entry. A span is safe from the end of the process when it is in the spool; it leaves
the spool when the server has given a final answer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel.export.http import Answer, Client, Destination
from kernel.export.spool import Batch, Spool, waiting_elsewhere
from kernel.export.wire import (
    encode_body,
    read_partial_success,
    record_head,
    shorten_record,
    to_record,
    withhold_content,
)
from kernel.trace import Resource, Span

_log = logging.getLogger("tracefirst.export")

_SLICE_SPANS, _SLICE_BYTES = 8, 1 << 18  # the writer lets the run's thread in between such slices
_BREATH_S = 5e-5
_PROBE_SPANS = 8
_PATIENCE = 3  # failures in a row after which a server is only probed
_LINGER_S = 0.05  # the writer wakes at most so often: waking a thread costs the run more than a span does
_RESCAN_S = 5.0  # how often to look for what ended processes left
_SMALLEST_CUT_BYTES = 4096
_LONGEST_WAIT_S = 3600.0  # a lock's wait has a bound; a server's Retry-After has none
_SPAN_BYTES = 256  # of a span without its texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes are of OTLP/JSON, before compression. A span beyond `max_span_bytes` is shortened in the OTLP copy."""

    max_queue_bytes: int = 64 << 20
    max_spool_bytes: int = 1 << 30
    max_batch_bytes: int = 4 << 20
    max_batch_spans: int = 512
    max_span_bytes: int = 16 << 20
    delay_s: float = 0.5
    retry_initial_s: float = 0.5
    retry_max_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStats:
    """Spans by what became of them: acknowledged by the server, waiting, given up for want of room, refused by it.

    Of those that wait, `in_memory` are lost when the process ends, because they are not kept on disk, or cannot be.
    `sent` and `waiting` include what earlier processes left and this one took over.
    """

    sent: int = 0
    waiting: int = 0
    in_memory: int = 0
    dropped: int = 0
    rejected: int = 0
    last_error: str | None = None


class Outbox:
    """Queue, spool and threads of one destination."""

    def __init__(self, target: Destination, folder: Path | None, limits: Limits) -> None:
        self.target = target
        self.spool = Spool(folder, max_bytes=limits.max_spool_bytes, max_memory_bytes=limits.max_queue_bytes)
        self._limits = limits
        self._client = Client(target)
        self._reset()
        self._note(folder)

    def _reset(self) -> None:
        self._queue: deque[tuple[Span, Resource, int]] = deque()
        self._queued_bytes = 0
        self._lock = threading.Lock()  # the queue
        self._order = threading.Lock()  # from queue to spool, one at a time
        self._head: tuple[Resource | None, bytes] = (None, b"")
        self._arrived = threading.Event()
        self._turn = threading.Condition()  # what follows, down to the counts
        self._asked = self._answered = 0  # rounds of sending that a flush asked for, and got
        self._next_at = self._retry_at = self._not_before = 0.0
        self._failures = 0  # in a row
        self._batch_spans = self._limits.max_batch_spans
        self._away = 0  # attempts whose failure will not pass by itself
        self._backoff_s = self._limits.retry_initial_s
        self._max_batch_bytes = self._limits.max_batch_bytes
        self._sent = self._rejected = 0
        self._last_error: str | None = None
        self._refusal_told = False
        self._told = (0, 0)
        self._unreadable_told = 0
        self._threads: tuple[threading.Thread, ...] = ()

    def after_fork(self) -> None:
        """In the child: what waits is sent by the parent, and locks that were held there are held by nobody here."""
        self._reset()
        self.spool.forget_parent()

    # ---- the run's path

    def put(self, span: Span, resource: Resource) -> None:
        size = _SPAN_BYTES
        for value in span.attributes.values():
            if type(value) is str:
                size += len(value)
        with self._lock:
            self._queue.append((span, resource, size))
            self._queued_bytes += size
        if not self._threads:
            self._start()
        if not self._arrived.is_set():
            self._arrived.set()
        if self._queued_bytes > self._limits.max_queue_bytes:  # the writer cannot keep up
            self._drain(self._limits.max_queue_bytes)

    def write(self) -> None:
        """Bring the queue to the spool."""
        self._drain(0)
        with self._order:  # what another thread took from the queue has arrived there as well
            self.spool.settle()
        self._notice()

    def _drain(self, down_to_bytes: int, pause: bool = False) -> None:
        while self._queued_bytes > down_to_bytes:
            with self._order:
                taken = self._slice()
                try:
                    self.spool.append([self._record(span, resource) for span, resource in taken])
                except BaseException:
                    self.spool.dropped += len(taken)
                    raise
            if pause:
                time.sleep(_BREATH_S)

    def _slice(self) -> list[tuple[Span, Resource]]:
        out: list[tuple[Span, Resource]] = []
        with self._lock:
            total = 0
            while self._queue and len(out) < _SLICE_SPANS and total < _SLICE_BYTES:
                span, resource, size = self._queue.popleft()
                out.append((span, resource))
                total += size
            self._queued_bytes -= total
        return out

    def _record(self, span: Span, resource: Resource) -> bytes:
        if self._head[0] is not resource:
            self._head = resource, record_head(resource)
        if not self.target.content:
            span = withhold_content(span)
        record = to_record(self._head[1], span)
        limit = self._limits.max_span_bytes
        return record if len(record) <= limit else shorten_record(record, limit)

    # ---- threads

    def _start(self) -> None:
        with self._lock:
            if self._threads:
                return
            loops = (("writer", self._write_loop), ("sender", self._send_loop))
            threads = tuple(
                threading.Thread(target=loop, name=f"tracefirst-otlp-{name}", daemon=True) for name, loop in loops
            )
            try:
                for thread in threads:
                    thread.start()
            except RuntimeError as error:  # the interpreter is ending: `shutdown` still brings all to the spool
                self._last_error = str(error)
                return
            self._threads = threads

    def _write_loop(self) -> None:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            try:
                self._drain(0, pause=True)
                self._notice()
            except Exception as error:  # the thread may not end; what it met is told
                self._last_error = f"{type(error).__name__}: {error}"
            time.sleep(_LINGER_S)

    def _notice(self) -> None:
        """Tell the sender that there is something to send."""
        with self._turn:
            if not self._failures:
                self._next_at = min(self._next_at, time.monotonic() + self._limits.delay_s)
                self._turn.notify_all()

    def _send_loop(self) -> None:
        while True:
            with self._turn:
                while (left := self._due() - time.monotonic()) > 0:
                    self._turn.wait(min(left, _LONGEST_WAIT_S))
                asked = self._asked
                self._next_at = time.monotonic() + _RESCAN_S
            try:
                sent = self._send_all()
            except Exception as error:  # as in `_write_loop`
                sent = self._failed(Answer(status=None, message=f"{type(error).__name__}: {error}"))
            with self._turn:
                self._answered = asked
                if not sent:
                    self._next_at = self._retry_at
                self._turn.notify_all()

    def _due(self) -> float:
        return self._not_before if self._asked > self._answered else self._next_at

    # ---- sending

    def _send_all(self) -> bool:
        """Send until nothing waits; False where the server has to be asked again later."""
        self.spool.adopt()
        if self.spool.unreadable > self._unreadable_told:
            self._unreadable_told = self.spool.unreadable
            _log.warning("spans of ended processes cannot be sent: %s", self.spool.error)
        while batch := self.spool.take(self._max_batch_bytes, self._most_spans()):
            answer, faults = self._post(batch.records)
            if answer.status == 413 and len(batch.records) == 1:
                answer, faults = self._post_shorter(batch.records[0], answer)
            if answer.status == 413 and len(batch.records) > 1:
                self._max_batch_bytes = sum(map(len, batch.records)) // 2
                self.spool.undo(batch)  # the same records are taken again, fewer at a time
            elif _is_temporary(answer.status):
                self.spool.undo(batch)
                return self._failed(answer)
            else:
                self._settle(batch, answer, faults)
        return True

    def _most_spans(self) -> int:
        """A server that is away is asked with a small batch, which costs this process little. From there the size grows
        back step by step, so that a server that now and then refuses gets about as much as it can take."""
        return max(1, min(self._batch_spans, self._limits.max_batch_spans))

    def _post(self, records: Sequence[bytes]) -> tuple[Answer, list[str]]:
        body, faults = encode_body(records, self.target.protocol)
        return self._client.post(body), faults

    def _post_shorter(self, record: bytes, answer: Answer) -> tuple[Answer, list[str]]:
        """Halve a span that is too large for the server until it takes it, or nothing is left to cut."""
        faults: list[str] = []
        while answer.status == 413 and len(record) > _SMALLEST_CUT_BYTES:
            shorter = shorten_record(record, len(record) // 2)
            if len(shorter) >= len(record):
                break
            record = shorter
            answer, faults = self._post((record,))
        return answer, faults

    def _settle(self, batch: Batch, answer: Answer, faults: list[str]) -> None:
        """Count what a final answer means, and let the records go."""
        count = len(batch.records)
        if answer.status is not None and answer.status < 300:
            refused, message = read_partial_success(answer.body, answer.content_type)
            refused = min(count, refused + len(faults))
            message = message or "; ".join(faults[:1])
        else:
            refused, message = count, answer.message
        self.spool.done(batch)
        self._sent += count - refused
        self._rejected += refused
        self._failures, self._backoff_s, self._not_before = 0, self._limits.retry_initial_s, 0.0
        self._batch_spans = min(self._limits.max_batch_spans, 2 * self._batch_spans)
        # After a 413, slowly back: one that came from a proxy's bad hour should not make small requests for ever.
        self._max_batch_bytes = min(self._limits.max_batch_bytes, self._max_batch_bytes * 33 // 32 + 1)
        if message:
            self._last_error = self.target.hide(message)
        if refused and not self._refusal_told:
            self._refusal_told = True
            _log.warning("%s refused %d spans: %s", self.target.shown, refused, self._last_error)

    def _failed(self, answer: Answer) -> bool:
        self._last_error = self.target.hide(answer.message)
        now = time.monotonic()
        if answer.retry_after_s is not None:
            self._not_before = self._retry_at = now + answer.retry_after_s
        else:
            spread = 0.8 + 0.4 * (os.getpid() * 0.618 % 1)  # processes that lost a collector do not return in step
            self._retry_at = now + self._backoff_s * spread
            self._backoff_s = min(self._limits.retry_max_s, 2 * self._backoff_s)
        self._away += answer.status not in _BUSY and (answer.status or 0) < 500
        if not self._failures:
            place, why = self.spool.place, self._last_error
            _log.warning("%s does not take spans (%s); they wait in %s", self.target.shown, why, place)
        self._failures += 1
        if self._failures >= _PATIENCE:
            self._batch_spans = _PROBE_SPANS
        return False

    # ---- the end

    def flush(self, timeout_s: float, *, give_up: bool = False) -> ExportStats:
        """Wait until nothing waits, at most `timeout_s`; with `give_up`, not for a server that is away or not ready."""
        deadline = time.monotonic() + timeout_s
        self.write()
        if not self._threads and (self.spool.waiting or not give_up):
            self._start()
        if not self._threads:
            return self.stats()
        with self._turn:
            self._asked = asked = self._asked + 1
            away = self._away
            self._turn.notify_all()
            # A round of its own, as what processes left that ended meanwhile is found at the start of one.
            while (self._answered < asked or self.spool.waiting) and (left := deadline - time.monotonic()) > 0:
                hopeless = self._away > away or self._not_before > deadline
                if give_up and hopeless and not self.spool.in_memory:
                    break
                self._turn.wait(left)
        return self.stats()

    def tell(self) -> None:
        """Log how many spans wait where, and how many are lost, once for each number."""
        stats = self.stats()
        if (stats.waiting, stats.dropped) == self._told:
            return
        self._told = stats.waiting, stats.dropped
        if stats.waiting:
            _log.warning("%d spans for %s wait in %s", stats.waiting, self.target.shown, self.spool.place)
        if stats.dropped:
            _log.warning(
                "%d spans for %s are lost: no room to wait, or killed while they were written",
                stats.dropped,
                self.target.shown,
            )

    @property
    def failing(self) -> bool:
        """Whether the server did not take what was last offered."""
        return self._failures > 0

    def stats(self) -> ExportStats:
        return ExportStats(
            sent=self._sent,
            waiting=len(self._queue) + self.spool.waiting,
            in_memory=len(self._queue) + self.spool.in_memory,
            dropped=self.spool.dropped,
            rejected=self._rejected,
            last_error=self._last_error or self.spool.error,
        )

    def _note(self, folder: Path | None) -> None:
        if self.target.note:
            _log.warning("%s", self.target.note)
        if not self.target.content:
            _log.warning("%s gets spans without prompts, replies, arguments and results", self.target.shown)
        for other in waiting_elsewhere(folder) if folder is not None else ():
            _log.warning("spans for %s that were recorded with other headers wait in %s", self.target.shown, other)


_BUSY = frozenset((408, 425, 429))
_TEMPORARY = _BUSY | {401, 403, 404, 405, 407}


def _is_temporary(status: int | None) -> bool:
    """Whether the same span may be taken later. Beside overload: what a setting of ours or of the server mends, such as
    a wrong key or path, which says nothing about the span."""
    return status is None or status in _TEMPORARY or status >= 500 or 300 <= status < 400
