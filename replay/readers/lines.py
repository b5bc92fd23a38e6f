"""A file of OTLP JSON lines as something to seek in: opened, unpacked where need be, and walked in blocks of lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from kernel.trace import ResourceJson, ScopeJson
from replay.readers.packed import Cut, Damaged, TooMuch, Trailing, kind_of, unpacked
from replay.readers.plain import MAX_BYTES, must_begin, open_plain
from replay.readers.refusal import refuse

UNPACKED_BYTES = 512 * 2**20
UNPACKED_RATIO = 200
_CHUNK = 8 * 2**20


class RawScopeSpans(Struct, rename="camel"):
    """Spans of one scope, not parsed yet."""

    scope: ScopeJson | None = None
    spans: list[Raw] | None = None


class RawGroup(Struct, rename="camel"):
    """Spans of one resource, not parsed yet."""

    resource: ResourceJson | None = None
    scope_spans: list[RawScopeSpans] | None = None


class RawDocument(Struct, rename="camel"):
    """An `ExportTraceServiceRequest` whose spans are not parsed yet."""

    resource_spans: list[RawGroup]


decode_outer = msgspec.json.Decoder(RawDocument).decode


class Lines(Struct):
    """A file of OTLP JSON lines, seekable and uncompressed; its first line begins at `start`."""

    stream: Any
    name: str
    start: int = 0
    notes: list[str] = []

    def line_at(self, offset: int) -> bytes:
        """The line that begins at `offset`."""
        self.stream.seek(offset)
        line: bytes = self.stream.readline()
        return line

    def is_last(self, offset: int, line: bytes) -> bool:
        """Whether nothing but blanks follows `line`."""
        self.stream.seek(offset + len(line))
        while block := self.stream.read(_CHUNK):
            if not block.isspace():
                return False
        return True

    def number_of(self, offset: int) -> int:
        """The number of the line that begins at `offset`, from 1."""
        self.stream.seek(0)
        count, left = 1, offset
        while left > 0 and (block := self.stream.read(min(left, _CHUNK))):
            count += block.count(b"\n")
            left -= len(block)
        return count


@contextmanager
def open_lines(path: Path) -> Iterator[Lines | None]:
    """The file where it is one of OTLP JSON lines; None where `read_traces` must read or refuse it.

    Raises `TraceError` for what is no plain file, and for packed data that holds more than `UNPACKED_BYTES` or, if that
    is more, `UNPACKED_RATIO` times what it takes itself.
    """
    with open_plain(path) as source:
        head = source.read(4096)
        source.seek(0)
        must_begin(head, str(path))
        if kind_of(head) is None:
            yield _as_lines(source, path)
            return
        import tempfile

        with tempfile.TemporaryFile() as plain:
            whole = _unpack_to(plain, source, str(path))
            plain.seek(0)
            yield _as_lines(plain, path) if whole else None


def _as_lines(stream: BinaryIO, path: Path) -> Lines | None:
    start = 3 if stream.read(3) == b"\xef\xbb\xbf" else 0
    stream.seek(start)
    first = stream.readline(MAX_BYTES)
    try:
        decode_outer(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not stream.read(1):
        return None
    return Lines(stream=stream, name=str(path), start=start)


def _unpack_to(plain: IO[bytes], source: BinaryIO, name: str) -> bool:
    """Unpack in pieces; False where the data is damaged or cut, so that the one who can say so reads it."""
    limit = max(UNPACKED_BYTES, UNPACKED_RATIO * os.fstat(source.fileno()).st_size)
    try:
        for piece in unpacked(source, limit=limit):
            plain.write(piece)
    except TooMuch as error:
        refuse(name, str(error), remedy="That is no trace; look at what it is before unpacking it.")
    except (Cut, Damaged, Trailing):
        return False
    return True


def blocks(stream: IO[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of blocks that end where a line ends."""
    stream.seek(start)
    at = start
    while block := stream.read(_CHUNK):
        if block[-1:] != b"\n":
            block += stream.readline()
        yield at, block
        at += len(block)
        stream.seek(at)


def lines_with(stream: IO[bytes], needles: Iterable[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of the lines that hold a needle, in file order."""
    for at, block in blocks(stream, start):
        found: dict[int, int] = {}
        for needle in needles:
            hit = block.find(needle)
            while hit >= 0:
                begin, end = block.rfind(b"\n", 0, hit) + 1, block.find(b"\n", hit)
                found[begin] = end = len(block) if end < 0 else end
                hit = block.find(needle, end)
        for begin in sorted(found):
            yield at + begin, block[begin : found[begin]]
