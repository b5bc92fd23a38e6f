"""The syrupy extension that stores one replay as one text file, written whole or not at all."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.data import SnapshotCollection
from syrupy.extensions.base import AbstractSyrupyExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from kernel.record import digest
from replay.play import ReplayResult
from replay.report import literal
from replay.suite.snapshot import snapshot_text

ACCEPTED: pytest.StashKey[ReplayResult] = pytest.StashKey()
"""Where a test keeps the replay whose drift is accepted."""

_NAME_BYTES = 200
_NOT_IN_NAMES = re.compile(r'[\\/?*:|"<>\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]')


@dataclass(frozen=True, slots=True)
class AcceptedResult:
    """A replay whose drift is accepted: its snapshot is that of the recording."""

    result: ReplayResult


class ReplayAssertion(SnapshotAssertion):
    """A snapshot of a replay that goes by what drift is accepted for the test; see `ACCEPTED`."""

    def __eq__(self, other: object) -> bool:
        accepted = self.test_location.item.stash.get(ACCEPTED, None)
        return super().__eq__(AcceptedResult(accepted) if accepted is not None and accepted is other else other)

    __hash__ = None  # type: ignore[assignment]


class ReplaySnapshotExtension(SingleFileSnapshotExtension):
    """Snapshots of `ReplayResult`s, each a file of its own.

    The extension has no dot inside: syrupy takes what stands before the last dot for the name of the test, and deletes the
    snapshots of skipped tests that it does not find by it.
    """

    _write_mode = WriteMode.TEXT
    file_extension = "replay"
    _file_extension = file_extension  # its name in syrupy 4

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        """The name of a test as a file name; what does not fit into one is told apart by a digest of the whole name."""
        return file_name(AbstractSyrupyExtension.get_snapshot_name(test_location=test_location, index=index))

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str, **_more: Any) -> bool:
        """Whether a file is of a test, also where its name is cut."""
        name, _, _ = Path(snapshot_location).name.removesuffix(f".{cls.file_extension}").rpartition("-")
        plain: bool = super().matches_test_location(test_location=test_location, snapshot_location=snapshot_location)
        return plain or (bool(name) and _plain(test_location.snapshot_name).startswith(name))

    def serialize(self, data: Any, **_: Any) -> str:
        """The text of a replay. Raises `TypeError` for anything else."""
        if isinstance(data, AcceptedResult):
            return snapshot_text(data.result, accepted=True)
        if not isinstance(data, ReplayResult):
            raise TypeError(f"a replay snapshot holds a ReplayResult, not a {type(data).__name__}: compare `replayed`")
        return snapshot_text(data)

    def read_snapshot_data_from_location(self, *, snapshot_location: str, **_: Any) -> str | None:
        """The stored text, or None where there is none."""
        try:
            with open(snapshot_location, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    @classmethod
    def write_snapshot_collection(cls, *, snapshot_collection: SnapshotCollection, **_: Any) -> None:
        """As `write_snapshot`. syrupy writes at the end of the session, where an error would end in a traceback."""
        path = Path(snapshot_collection.location)
        try:
            write_snapshot(path, str(next(iter(snapshot_collection)).data))
        except OSError as error:
            pytest.exit(f"replay: {cannot('written', path, error)}", returncode=pytest.ExitCode.USAGE_ERROR)

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        """The lines that differ; where both would look alike, with what is not ASCII escaped."""
        yield from diff(str(snapshot_data), str(serialized_data))


def file_name(name: str) -> str:
    """A name for a file, one for each name of a test, also where case is ignored; at most 200 bytes."""
    kept = _plain(name)
    parameters = name.partition("[")[2]
    if kept == name and parameters == parameters.lower():
        return name
    return f"{kept}-{digest(name)[:12]}"


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("", name).encode(errors="replace")[:_NAME_BYTES].decode(errors="ignore")


def write_snapshot(path: Path, text: str) -> None:
    """Replace the file by a rename, so that a reader meets the old text or the new one. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def cannot(be: str, path: Path, error: OSError | UnicodeDecodeError) -> str:
    """What to tell of a snapshot that cannot be read or written."""
    reason = f"it is no UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else error.strerror or error
    return f"the snapshot {path} cannot be {be}: {reason}; check the path and its permissions"


def diff(old: str, new: str) -> list[str]:
    """A unified diff with one line of context and without file names, in which every difference can be seen."""
    if unicodedata.normalize("NFKC", old) == unicodedata.normalize("NFKC", new):
        old, new = (text.encode("ascii", "backslashreplace").decode() for text in (old, new))
    one, other = ([_visible(line) for line in text.split("\n")] for text in (old, new))
    return list(unified_diff(one, other, lineterm="", n=1))[2:]


def _visible(line: str) -> str:
    """A line without effect on a terminal, blanks at its end escaped: a stored file may hold anything."""
    text = literal(line)
    bare = text.rstrip(" ")
    return bare + "\\x20" * (len(text) - len(bare))
