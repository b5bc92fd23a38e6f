"""From a path to plain bytes: the file's own troubles, compression, and encodings other than UTF-8."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.readers.refusal import refuse

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OTHER_COMPRESSION = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
}
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Uncompressed content; `notes` say what had to be done to get there."""

    name: str
    data: bytes
    notes: list[str] = field(default_factory=list)

    @property
    def is_binary(self) -> bool:
        """Whether the first 64 kB hold control characters, which JSON never does."""
        head = self.data[:65536]
        return len(head.translate(None, _CONTROL)) != len(head)


def load(source: Path | bytes, name: str | None = None) -> Source:
    """Read and unpack. Raises `TraceError` for what is absent, a directory, empty or packed in another way."""
    if isinstance(source, bytes):
        name = name or "<bytes>"
        data = source
    else:
        name = name or str(source)
        data = read_file(source, name)
    if not data:
        refuse(name, "the file is empty", remedy="The program that wrote it may not have flushed its spans.")
    notes: list[str] = []
    data = unpack(data, name, notes)
    if notes and not data:
        refuse(name, "the compressed data is cut off before its first byte of content", remedy="Copy the file again.")
    return Source(name=name, data=_as_utf8(data, name, notes), notes=notes)


def read_file(path: Path, name: str) -> bytes:
    """The bytes of a file. Raises `TraceError` where there are none to read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        refuse(name, "no such file", remedy="Check the path.")
    except IsADirectoryError:
        refuse(name, "this is a directory", remedy="Name the trace files in it.")
    except OSError as error:
        refuse(name, f"cannot be read: {error.strerror or error}", remedy="Check its permissions.")


def unpack(data: bytes, name: str, notes: list[str]) -> bytes:
    """Undo gzip or zstd, in several members or frames too; of a cut stream what is left is returned, with a note."""
    if data.startswith(GZIP):
        return _unpack_gzip(data, name, notes)
    if data.startswith(ZSTD):
        return unpack_zstd(data, name, notes)
    for magic, kind in _OTHER_COMPRESSION.items():
        if data.startswith(magic):
            refuse(name, f"the file is compressed as {kind}", remedy="Unpack it first.")
    return data


def _unpack_gzip(data: bytes, name: str, notes: list[str]) -> bytes:
    return _unpack(data, name, notes, "gzip", GZIP, lambda: zlib.decompressobj(wbits=31), zlib.error)


def unpack_zstd(data: bytes, name: str, notes: list[str]) -> bytes:
    """Undo zstd; see `unpack`."""
    import zstandard

    return _unpack(
        data, name, notes, "zstd", ZSTD, lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
    )


def _unpack(
    data: bytes,
    name: str,
    notes: list[str],
    packing: str,
    magic: bytes,
    unpacker: Callable[[], Any],
    damage: type[Exception],
) -> bytes:
    """Undo a packing of one or more members, one behind the other."""
    parts, rest = [], data
    while rest.startswith(magic):
        stream = unpacker()
        try:
            parts.append(stream.decompress(rest))
        except damage as error:
            refuse(name, f"the {packing} data is damaged: {error}", remedy="Copy the file again.")
        if not stream.eof:
            notes.append(f"the {packing} data is cut off; what could be unpacked was read")
        rest = stream.unused_data
    return b"".join(parts)


def _as_utf8(data: bytes, name: str, notes: list[str]) -> bytes:
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    elif data[:2] in _UTF16:
        try:
            data = data[2:].decode(_UTF16[data[:2]]).encode()
        except UnicodeDecodeError as error:
            refuse(name, f"the UTF-16 text is damaged: {error.reason}", remedy="Save it as UTF-8.")
        notes.append("the file was UTF-16 and was read as such")
    if data.endswith(b"\0") and data.lstrip()[:1] in (b"{", b"["):
        data = data.rstrip(b"\0")
        notes.append("the file ends in NUL bytes, as after a crash; they were left out")
    if not data.strip():
        refuse(name, "the file holds only blanks", remedy="The program that wrote it may not have flushed its spans.")
    return data
