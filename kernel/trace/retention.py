"""Traces in a folder: where each is written, and how old ones are removed.

A trace carries its own mark: its name and its day are those of what it holds. Only a file that is where its own
content says it was written is ever removed; recordings that somebody put beside, or into a day, stay.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from kernel.files import name_part
from kernel.trace.journal import JOURNAL_SUFFIX, SUFFIX

_DAY_NS = 86_400 * 10**9
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME = re.compile(
    rf".+-(?P<trace>[0-9a-f]{{32}})(-[0-9a-f]{{8}})?(\.killed-[0-9a-f]+)?({re.escape(SUFFIX)}|{re.escape(JOURNAL_SUFFIX)})",
    re.DOTALL,
)
_TRACE_ID = re.compile(rb'"traceId":\s*"([0-9a-f]{32})"')
_START = re.compile(rb'"startTimeUnixNano":\s*"(\d{1,20})"')
_HEAD_BYTES = 1 << 16
_LATE_NS = 60 * 10**9
"""The first span of a trace starts at most so long after its file was named."""


def trace_path(directory: Path, agent: str, trace_id: str, now_ns: int) -> Path:
    """Where a trace is written: `directory/YYYY-MM-DD/AGENT-TRACEID.trace.json`, the day in UTC."""
    return directory / _day(now_ns) / f"{name_part(agent, 'agent', distinct=False)}-{trace_id}{SUFFIX}"


def prune(directory: Path, now_ns: int, *, keep_days: float | None, keep_bytes: int | None) -> None:
    """Remove what `trace_path` named, oldest first, beyond `keep_days` and `keep_bytes`, and days that are empty then.

    The newest trace stays, and so does a journal that was written to within the last day. Raises `OSError`.
    """
    files = sorted(_traces(directory))
    total = sum(size for _, size, _ in files)
    days = set()
    for time_ns, size, path in files[:-1]:
        old = keep_days is not None and now_ns - time_ns > keep_days * _DAY_NS
        live = path.name.endswith(JOURNAL_SUFFIX) and now_ns - time_ns < _DAY_NS
        if not live and (old or (keep_bytes is not None and total > keep_bytes)) and _is_at_home(path):
            path.unlink(missing_ok=True)
            total -= size
            days.add(path.parent)
    for day in days:
        with suppress(OSError):  # it holds others still
            day.rmdir()


def _traces(directory: Path) -> list[tuple[int, int, Path]]:
    """(time, size, path) of the plain files that are named as traces, in folders that are named as days."""
    found = []
    for day in os.scandir(directory):
        if not _DAY.fullmatch(day.name) or not day.is_dir(follow_symlinks=False):
            continue
        for file in os.scandir(day.path):
            if not _NAME.fullmatch(file.name):
                continue
            with suppress(FileNotFoundError):  # another process removed it
                status = file.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, status.st_size, Path(file.path)))
    return found


def _is_at_home(path: Path) -> bool:
    """Whether what a file holds is what its name and its day say."""
    named = _NAME.fullmatch(path.name)
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return False
    trace, start = _TRACE_ID.search(head), _START.search(head)
    if named is None or trace is None or start is None:
        return False
    start_ns = int(start[1])
    return trace[1].decode() == named["trace"] and path.parent.name in (_day(start_ns), _day(start_ns - _LATE_NS))


def _day(time_ns: int) -> str:
    return dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC).strftime("%Y-%m-%d")
