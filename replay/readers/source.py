"""From a path to plain bytes: the file's own troubles, compression, and encodings other than UTF-8."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

from replay.readers.packed import Cut, Damaged, TooMuch, Trailing, kind_of, unpacked
from replay.readers.plain import MAX_BYTES, read_plain, too_large
from replay.readers.refusal import refuse

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
        data = read_plain(source, name)
    if not data:
        refuse(name, "the file is empty", remedy="The program that wrote it may not have flushed its spans.")
    notes: list[str] = []
    data = unpack(data, name, notes)
    if notes and not data:
        refuse(name, "the compressed data is cut off before its first byte of content", remedy="Copy the file again.")
    return Source(name=name, data=_as_utf8(data, name, notes), notes=notes)


def unpack(data: bytes, name: str, notes: list[str]) -> bytes:
    """Undo gzip or zstd, in several members or frames too; of a cut stream what is left is returned, with a note.

    Raises `TraceError` for damage, for other packings, and for more than `MAX_BYTES` of content.
    """
    for magic, kind in _OTHER_COMPRESSION.items():
        if data.startswith(magic):
            refuse(name, f"the file is compressed as {kind}", remedy="Unpack it first.")
    if kind_of(data) is None:
        return data
    parts: list[bytes] = []
    try:
        parts.extend(unpacked(io.BytesIO(data), limit=MAX_BYTES))  # what came before an error stays in the list
    except Damaged as error:
        refuse(name, str(error), remedy="Copy the file again.")
    except TooMuch as error:
        too_large(name, str(error))
    except Cut as error:
        notes.append(f"{error}; what could be unpacked was read")
    except Trailing as error:
        notes.append(f"{error} and was left out")
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
