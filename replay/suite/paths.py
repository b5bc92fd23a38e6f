"""Where the snapshot of a recording lies, and which recordings a file holds. One snapshot file for each recording.

    fixtures/order.trace.json              fixtures/__replays__/order.replay.txt
    fixtures/many.trace.json, two traces   fixtures/__replays__/many.trace/{trace id}.replay.txt

Names are as distinct as those of the fixtures, also where a file system ignores case, no longer than them, and always
below the fixture's own folder. The folder is not `__snapshots__`, whose unknown files syrupy removes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = "__replays__"
SUFFIX = ".trace.json"
"""As `kernel.trace` has it; it stands here too, so that loading the plugin loads no kernel."""
EXTENSION = "replay.txt"
ACCEPTED = "accepted.json"
"""The file in `FOLDER` that holds what drift is accepted; see `replay.suite.accepting`."""

_TRACE_ID = re.compile(rb'"traceId":\s*"([0-9a-fA-F]{32})"')
_SAFE = re.compile(r"[0-9a-f-]{1,64}")


def is_fixture(path: Path) -> bool:
    """Whether a file is a recording by its name."""
    return path.name.endswith(SUFFIX) and path.name != SUFFIX


def traces_in(path: Path) -> list[str]:
    """The ids of the traces in a file; one trace as our recorder writes it is found without reading the file as JSON.

    Raises:
        TraceError: the file cannot be read as traces.
    """
    from replay.readers import read_plain

    data = read_plain(path)
    first = _TRACE_ID.search(data)
    if first is not None and data.count(first[0]) == data.count(b'"traceId"'):
        return [first[1].decode().lower()]
    from replay.loading import load

    return [recording.trace_id for recording in load(path)]


def snapshot_path(fixture: Path, trace_id: str | None) -> Path:
    """The snapshot of a fixture, or of one trace of a fixture that holds several."""
    stem = fixture.name[: -len(SUFFIX)]
    folder = fixture.parent / FOLDER
    if trace_id is None:
        return folder / f"{stem}.{EXTENSION}"
    return folder / f"{stem}.trace" / f"{_safe(trace_id)}.{EXTENSION}"


def _safe(trace_id: str) -> str:
    if _SAFE.fullmatch(trace_id):
        return trace_id
    from kernel.record import digest

    return f"_{digest(trace_id)}"


def fixtures_below(folders: Iterable[Path]) -> Iterator[Path]:
    """All that is named as a recording below some folders, also where it cannot be collected, in order of folders.

    Links to folders are followed, as pytest does, each folder once.
    Raises:
        OSError: a folder cannot be listed, so that it is not known what lies in it.
    """
    for folder in folders:
        seen: set[str] = set()
        for place, below, names in os.walk(folder, onerror=_unlisted, followlinks=True):
            real = os.path.realpath(place)
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            below.sort()
            yield from (Path(place, name) for name in sorted(names) if name.endswith(SUFFIX))


def _unlisted(error: OSError) -> None:
    raise error


def unused_below(folders: Iterable[Path]) -> list[Path]:
    """Snapshots below some folders that belong to no recording there is, in order."""
    found: dict[Path, None] = {}
    for folder in folders:
        for snapshots in sorted(folder.rglob(FOLDER)):
            if snapshots.is_dir():
                found.update(dict.fromkeys(_unused_in(snapshots)))
    return list(found)


def _unused_in(snapshots: Path) -> Iterator[Path]:
    for path in sorted(snapshots.rglob(f"*.{EXTENSION}")):
        single = path.parent == snapshots
        stem = path.name[: -len(EXTENSION) - 1] if single else path.parent.name[: -len(".trace")]
        fixture = snapshots.parent / f"{stem}{SUFFIX}"
        if not fixture.is_file() or (
            (not single or (snapshots / f"{stem}.trace").is_dir()) and path not in _expected(fixture)
        ):
            yield path


def _expected(fixture: Path) -> set[Path]:
    from kernel.errors import TraceError

    try:
        ids = traces_in(fixture)
    except TraceError:
        return set()
    return {snapshot_path(fixture, None)} if len(ids) < 2 else {snapshot_path(fixture, one) for one in ids}
