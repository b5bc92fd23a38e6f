"""Undo gzip and zstd: piece by piece, over all members, with a bound on what comes out. Linear in the data."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

_FIRST_BYTES = 256
"""A member is begun with so little, as whatever follows it is read again for the next: there may be very many."""


class Damaged(ValueError):
    """The packed data is broken."""


class Cut(ValueError):
    """The packed data ends too early; all of it that could be unpacked has been handed out."""


class TooMuch(ValueError):
    """More comes out than was allowed."""


class Trailing(ValueError):
    """Behind the packed data stands something else, which was not read."""


class _Packing(NamedTuple):
    name: str
    magic: bytes
    most_bytes: int
    unpacker: Callable[[], Any]
    damage: type[Exception]


def kind_of(head: bytes) -> str | None:
    """`gzip`, `zstd` or None, by how data begins."""
    return "gzip" if head.startswith(GZIP) else "zstd" if head.startswith(ZSTD) else None


def unpacked(stream: BinaryIO, *, limit: int) -> Iterator[bytes]:
    """The content of a seekable stream that begins with a packed member, in pieces of at most some 70 MB.

    Raises:
        Damaged, Cut, TooMuch, Trailing: see there.
    """
    head = stream.read(4)
    stream.seek(-len(head), 1)
    packing = _packing(head)
    total = 0
    while head.startswith(packing.magic):
        for piece in _member(stream, packing):
            total += len(piece)
            if total > limit:
                raise TooMuch(f"the {packing.name} data holds more than {limit >> 20} MiB")
            yield piece
        head = stream.read(len(packing.magic))
        stream.seek(-len(head), 1)
    while block := stream.read(1 << 16):
        if block.strip(b"\0"):
            raise Trailing(f"something else stands behind the {packing.name} data")


def _member(stream: BinaryIO, packing: _Packing) -> Iterator[bytes]:
    """The pieces of one member; the stream is left at its end."""
    unpacker, size = packing.unpacker(), _FIRST_BYTES
    while block := stream.read(size):
        try:
            piece = unpacker.decompress(block)
        except packing.damage as error:
            raise Damaged(f"the {packing.name} data is damaged: {error}") from None
        if piece:
            yield piece
        if unpacker.eof:
            stream.seek(-len(unpacker.unused_data), 1)
            return
        size = min(4 * size, packing.most_bytes)
    raise Cut(f"the {packing.name} data is cut off")


def _packing(head: bytes) -> _Packing:
    if head.startswith(GZIP):
        return _Packing("gzip", GZIP, 1 << 16, lambda: zlib.decompressobj(wbits=31), zlib.error)
    import zstandard

    # A zstd block of four bytes can hold 128 kB, so that less is unpacked at once.
    return _Packing("zstd", ZSTD, 1 << 11, lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
