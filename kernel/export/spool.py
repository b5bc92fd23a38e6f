"""Spans that wait to be sent, on disk: in order, bounded, and safe from the end of the process.

A spool folder holds *segments*: files of OTLP/JSON lines, one span a line, as the Collector's file exporter writes.
Each segment is written by one process, which holds a lock (`flock`) on it; what a dead process left has no lock, and
whoever gets it sends the rest. `SEGMENT.sent` holds the number of bytes that a server has acknowledged; it is written
before anything else is sent, so only a crash between the answer and that write can send a span twice. A line cut short
at the end of a dead process's segment is no span. Where nothing can be written, spans wait in memory.

Killing the process loses nothing that was appended; there is no fsync, so a power cut may lose the last seconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel.export.segment import (
    CAN_LOCK,
    CURSOR_DIGITS,
    SUFFIX,
    Segment,
    adopt,
    close,
    create,
    cursor_path,
    read,
    segment_paths,
)

_SEGMENTS = 16  # a spool's bound is spread over so many: what is dropped, or freed, is one of them
_LARGEST_SEGMENT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records to send next, oldest first, as lines with their newline. `end` belongs to the spool."""

    records: tuple[bytes, ...]
    segment: Segment | None
    end: int


@dataclass(slots=True)
class _Memory:
    records: deque[bytes] = field(default_factory=deque)
    size: int = 0


class Spool:
    """The waiting records of one destination. Safe to use from several threads; methods do not raise `OSError`.

    Args:
        folder: made if it is not there, readable by its owner alone; None keeps all in memory.
        max_bytes: bound of the folder, other processes' files included. Beyond it the oldest records are dropped and
            counted.
        max_memory_bytes: bound of what waits in memory.
    """

    def __init__(self, folder: Path | None, *, max_bytes: int = 1 << 30, max_memory_bytes: int = 64 << 20) -> None:
        self.folder = folder if CAN_LOCK else None
        self.dropped = 0
        self.unreadable = 0  # files that an ended process left, and we may not read
        self.error: str | None = None
        self._refused = ""  # why the disk did not take the last record that it did not take
        self._max_bytes = max_bytes
        self._max_memory_bytes = max_memory_bytes
        self._segment_bytes = max(4096, min(_LARGEST_SEGMENT_BYTES, max_bytes // _SEGMENTS))
        self._lock = threading.Lock()
        self._segments: deque[Segment] = deque()  # oldest first
        self._writing: Segment | None = None
        self._memory = _Memory()
        self._serving: Segment | None = None
        self._serving_memory = False
        self._foreign_bytes = 0  # what other live processes hold, as of the last look
        self._numbers = 0

    # ---- in

    def append(self, records: Sequence[bytes]) -> None:
        """Add records at the end, each one a line. They survive the process when this returns, unless `in_memory`."""
        with self._lock:
            self._rescue()
            if not self._memory.records and sum(map(len, records)) <= self._segment_bytes and self._write(records):
                return
            for record in records:
                if self._memory.records or not self._write((record,)):
                    self._remember(record)

    def settle(self) -> None:
        """Bring to disk what had to wait in memory, if the disk takes it now."""
        with self._lock:
            self._rescue()

    def _rescue(self) -> None:
        """Oldest first, and not while records of it are being sent: the order stays, and none is sent twice."""
        memory = self._memory
        while memory.records and not self._serving_memory and self._write((memory.records[0],)):
            memory.size -= len(memory.records.popleft())

    def _write(self, records: Sequence[bytes]) -> bool:
        """All of them, in one write, or none."""
        if self.folder is None:
            return False
        data = b"".join(records)
        try:
            self._make_room(len(data))
            segment = self._writable(len(data))
            written = os.pwrite(segment.file, data, segment.size)
            while written < len(data):
                written += os.pwrite(segment.file, data[written:], segment.size + written)
        except OSError as error:  # full, read-only, forbidden: memory takes over
            self._refused = error.strerror or str(error)
            self.error = f"spool: {self._refused}"
            self._mend()
            return False
        segment.size += len(data)
        segment.waiting += len(records)
        return True

    def _mend(self) -> None:
        """Take away what a write that failed has left; who inherits the segment would send it, and we shall as well."""
        if self._writing is not None:
            try:
                os.ftruncate(self._writing.file, self._writing.size)
            except OSError:
                self._writing.torn = True  # nothing more is written to it

    def _writable(self, size: int) -> Segment:
        segment = self._writing
        if segment is not None and not segment.torn and (segment.size + size <= self._segment_bytes):
            return segment
        self._writing = None
        self._writing = self._create()
        self._segments.append(self._writing)
        return self._writing

    def _create(self) -> Segment:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._numbers += 1
        return create(self.folder, f"{time.time_ns():020d}-{os.getpid()}-{self._numbers}{SUFFIX}")

    def _make_room(self, size: int) -> None:
        """Drop the oldest segments we may drop until `size` more bytes fit."""
        while self._foreign_bytes + sum(s.size for s in self._segments) + size > self._max_bytes:
            oldest = next((s for s in self._segments if s is not self._serving), None)
            if oldest is None:
                raise OSError(errno.ENOSPC, "full")
            self._drop(oldest)

    def _drop(self, segment: Segment) -> None:
        self.dropped += segment.waiting
        segment.waiting = 0
        self._remove(segment)

    def _remember(self, record: bytes) -> None:
        memory = self._memory
        memory.records.append(record)
        memory.size += len(record)
        while memory.size > self._max_memory_bytes and len(memory.records) > 1:
            memory.size -= len(memory.records.popleft())
            self.dropped += 1

    # ---- out

    def take(self, max_bytes: int, max_records: int) -> Batch | None:
        """The next records: at most so many, but always one; None where none waits. The same again until `done`."""
        with self._lock:
            while self._segments:
                segment = self._segments[0]
                try:
                    records, end = read(segment, max_bytes, max_records)
                except OSError as error:
                    self.error = f"spool: {error.strerror}"
                    self._drop(segment)
                    continue
                if records:
                    self._serving = segment
                    return Batch(records=records, segment=segment, end=end)
                self._remove(segment)  # all of it is sent: nothing that a span said stays on the disk
            return self._take_memory(max_bytes, max_records)

    def _take_memory(self, max_bytes: int, max_records: int) -> Batch | None:
        self._serving = None
        self._serving_memory = bool(self._memory.records)
        records: list[bytes] = []
        size = 0
        for record in self._memory.records:
            size += len(record)
            if records and (size > max_bytes or len(records) == max_records):
                break
            records.append(record)
        return Batch(records=tuple(records), segment=None, end=0) if records else None

    def done(self, batch: Batch) -> None:
        """A server has answered for these records: they are not sent again."""
        with self._lock:
            self._serving = None
            segment = batch.segment
            if segment is None:
                self._serving_memory = False
                self._forget(batch)
                return
            if segment.closed:  # the process was forked meanwhile, and this is the child
                return
            segment.sent = batch.end
            segment.waiting -= len(batch.records)
            if segment.sent >= segment.size:
                self._remove(segment)
                return
            try:
                os.pwrite(segment.cursor, b"%0*d" % (CURSOR_DIGITS, segment.sent), 0)
            except OSError as error:
                self.error = f"spool: {error.strerror}"

    def undo(self, batch: Batch) -> None:
        """The records could not be sent: they stay where they are."""
        with self._lock:
            if batch.segment is None:
                self._serving_memory = False
            elif self._serving is batch.segment:
                self._serving = None

    def _forget(self, batch: Batch) -> None:
        waiting = self._memory.records
        for record in batch.records:
            if waiting and waiting[0] is record:  # else it was dropped meanwhile
                self._memory.size -= len(waiting.popleft())
            else:
                self.dropped -= 1

    def _remove(self, segment: Segment) -> None:
        with contextlib.suppress(ValueError):
            self._segments.remove(segment)
        if segment is self._writing:
            self._writing = None
        # The segment goes before its cursor: a cursor without a segment is harmless, the reverse would send twice.
        for path in (segment.path, cursor_path(segment.path)):
            with contextlib.suppress(OSError):
                path.unlink()
        close(segment)

    # ---- what other processes left

    def adopt(self) -> int:
        """Take over the segments of processes that ended, in order of age with ours; the number of records in them."""
        if self.folder is None:
            return 0
        with self._lock:
            ours = {segment.path for segment in self._segments}
            foreign, adopted, unreadable = 0, [], 0
            try:
                paths = segment_paths(self.folder)
            except OSError as error:
                paths, unreadable = [], 1
                self.error = f"spool {self.folder}: {error.strerror}"
            for path in paths:
                if path in ours:
                    continue
                try:
                    segment = adopt(path)
                except OSError as error:
                    unreadable += 1
                    self.error = f"spool {path}: {error.strerror}"
                    continue
                if isinstance(segment, Segment):
                    adopted.append(segment)
                    self.dropped += segment.half_lines
                else:
                    foreign += segment
            self._foreign_bytes = foreign
            self.unreadable = unreadable
            if adopted:
                self._segments = deque(sorted((*adopted, *self._segments), key=lambda s: s.path.name))
            return sum(segment.waiting for segment in adopted)

    # ---- state

    @property
    def waiting(self) -> int:
        """Records not yet acknowledged that this process holds."""
        with self._lock:
            return sum(s.waiting for s in self._segments) + len(self._memory.records)

    @property
    def place(self) -> str:
        """Where records wait, in words."""
        if self.folder is None:
            return "memory, and are lost when the process ends"
        if self.in_memory:
            return f"memory, and are lost when the process ends, as {self.folder} takes none: {self._refused}"
        return str(self.folder)

    @property
    def in_memory(self) -> int:
        """Those of them that end with the process."""
        with self._lock:
            return len(self._memory.records)

    def forget_parent(self) -> None:
        """After a fork, in the child: the parent's segments are the parent's, and so are its locks on them."""
        self._lock = threading.Lock()
        for segment in self._segments:
            close(segment)
        self._segments.clear()
        self._writing = self._serving = None
        self._memory, self._serving_memory = _Memory(), False
        self.dropped = 0


def waiting_elsewhere(folder: Path) -> list[Path]:
    """Folders of the same endpoint, but other headers, in which records wait. Those we may not read are left out."""
    start = folder.name.split("-")[0] + "-"
    try:
        others = [p for p in folder.parent.iterdir() if p.name.startswith(start) and p.name != folder.name]
        return [other for other in others if segment_paths(other)]
    except OSError:
        return []
