"""The seal of a span: a digest of its attributes, written when it ends. By it a reader knows that something downstream
cut, masked or edited one, and which.
"""

from __future__ import annotations

import hashlib
from typing import Any
from zlib import crc32

from kernel import semconv as sc
from kernel.canonical import canonical_json

_DIGITS = 4


def seal(attributes: dict[str, Any]) -> str:
    """Digest of a span's attributes: 8 hex digits over all, a dot, then four for each in the order of their keys."""
    parts = [_bytes(key, attributes[key]) for key in sorted(attributes)]
    total = hashlib.blake2b(b"\0".join(parts), digest_size=4).hexdigest()
    places = b"".join([(crc32(part) & 0xFFFF).to_bytes(2, "big") for part in parts])
    return f"{total}.{places.hex()}"


def _bytes(key: str, value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        text = value
    elif kind is int or kind is bool or value is None:
        text = f"\1{value}"
    elif kind is float:
        text = f"\1{int(value) if value.is_integer() and abs(value) < 2**53 else value}"
    else:
        text = canonical_json(value)
    return f"{key}\0{text}".encode("utf-8", "surrogatepass")


def breaches(attributes: dict[str, Any], recorded: object) -> list[tuple[str, str]]:
    """Attributes that do not fit the seal beside them, each with what is wrong; those of others do not count."""
    own = {key: value for key, value in attributes.items() if key != sc.SEAL and key.startswith(sc.SEALED)}
    now = seal(own)
    if now == recorded:
        return []
    was, are, keys = str(recorded).partition(".")[2], now.partition(".")[2], sorted(own)
    differing = [key for i, key in enumerate(keys) if _part(was, i) != _part(are, i)] or [sc.SEAL]
    if len(was) != len(are):
        count = len(was) // _DIGITS
        message = f"{count} attributes were recorded, {len(keys)} are here: some were dropped or added"
        return [(differing[0], message)]
    return [(key, "is not as it was recorded: cut, masked or edited since") for key in differing]


def _part(digits: str, index: int) -> str:
    return digits[_DIGITS * index : _DIGITS * (index + 1)]
