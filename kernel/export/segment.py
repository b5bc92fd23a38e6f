"""One file of a spool: lines of records, held by the lock of the process that writes it, and a cursor beside it."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # no such locks on Windows: spans wait in memory
    flock = None  # type: ignore[assignment]

CAN_LOCK = flock is not None
SUFFIX = ".otlp.jsonl"
CURSOR_DIGITS = 20
_CURSOR_SUFFIX = ".sent"
_READ_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True, eq=False)
class Segment:
    """One file we hold the lock of. `size` counts whole lines only; `waiting` those after `sent`."""

    path: Path
    file: int
    cursor: int
    size: int = 0
    sent: int = 0
    waiting: int = 0
    torn: bool = False
    half_lines: int = 0
    closed: bool = False


def create(folder: Path, name: str) -> Segment:
    """A new file, locked before it is visible under a name that others look for. Raises `OSError`."""
    hidden = folder / f".{name}"
    file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        flock(file, LOCK_EX | LOCK_NB)
        path = folder / name
        cursor = os.open(cursor_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    except BaseException:
        os.close(file)
        hidden.unlink(missing_ok=True)
        raise
    os.rename(hidden, path)
    return Segment(path=path, file=file, cursor=cursor)


def segment_paths(folder: Path) -> list[Path]:
    """All segments, oldest first. Raises `OSError` where there is a folder that cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []


def adopt(path: Path) -> Segment | int:
    """The segment, locked; or the size of one that lives, or is gone (0). Raises `OSError` for one we may not read."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError:  # its owner lives
        size = os.fstat(file).st_size
        os.close(file)
        return size
    try:
        if os.fstat(file).st_nlink == 0:  # sent and removed between our open and our lock
            os.close(file)
            return 0
        cursor = os.open(cursor_path(path), os.O_RDWR | os.O_CREAT, 0o600)
        text = os.pread(cursor, CURSOR_DIGITS, 0)
        sent = int(text) if text.isdigit() else 0
        size, lines = _count(file, sent)
        half = int(os.fstat(file).st_size > size)
    except OSError:
        os.close(file)
        raise
    return Segment(path=path, file=file, cursor=cursor, size=size, sent=sent, waiting=lines, torn=True, half_lines=half)


def _count(file: int, start: int) -> tuple[int, int]:
    """Where the last whole line ends, and how many lines there are from `start` on."""
    end, lines, at = start, 0, start
    while chunk := os.pread(file, 1 << 20, at):
        lines += chunk.count(b"\n")
        if (last := chunk.rfind(b"\n")) >= 0:
            end = at + last + 1
        at += len(chunk)
    return end, lines


def read(segment: Segment, max_bytes: int, max_records: int) -> tuple[tuple[bytes, ...], int]:
    """Whole lines from `sent` on."""
    left = segment.size - segment.sent
    if left <= 0:
        return (), segment.sent
    want = min(left, max(max_bytes, _READ_BYTES))
    data = os.pread(segment.file, want, segment.sent)
    while b"\n" not in data and want < left:
        want = min(left, 2 * want)
        data = os.pread(segment.file, want, segment.sent)
    records: list[bytes] = []
    size = 0
    while len(records) < max_records and (newline := data.find(b"\n", size)) >= 0:
        if records and newline + 1 > max_bytes:
            break
        records.append(data[size : newline + 1])
        size = newline + 1
    if not records:  # the file is shorter than what was written to it
        raise OSError(errno.EIO, f"{segment.path.name} was changed by another program")
    return tuple(records), segment.sent + size


def cursor_path(path: Path) -> Path:
    return path.with_name(path.name + _CURSOR_SUFFIX)


def close(segment: Segment) -> None:
    segment.closed = True
    for file in (segment.file, segment.cursor):
        with contextlib.suppress(OSError):
            os.close(file)
