"""The seal of a span: a digest of its attributes, written when it ends. By it a reader knows that something downstream
cut, masked or edited one, and which.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

from kernel import semconv as sc
from kernel.canonical import canonical_json

_DIGITS = 3


def seal(attributes: dict[str, Any]) -> str:
    """Digest of a span's attributes: 16 hex digits over all, a dot, then three for each in the order of their keys."""
    total = hashlib.blake2b(digest_size=8)
    each = []
    for key in sorted(attributes):
        value = attributes[key]
        kind = type(value)
        if kind is str:
            text = value
        elif kind is bool or value is None:
            text = f"\x00{value}"
        elif kind is int or kind is float:
            text = f"\x01{float(value)!r}" if abs(value) < 2**53 else f"\x01{value}"
        else:
            text = canonical_json(value)
        data = f"{key}\x00{text}\x00".encode("utf-8", "surrogatepass")
        total.update(data)
        each.append(f"{zlib.crc32(data) & 0xFFF:03x}")
    return f"{total.hexdigest()}.{''.join(each)}"


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
