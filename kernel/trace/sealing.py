"""The seal of a span: a digest of its attributes, written when it ends. By it a reader knows that something downstream
cut, masked or edited one, and which.
"""

from __future__ import annotations

import hashlib
import json
import struct
from functools import lru_cache
from typing import Any
from zlib import crc32

from kernel.record import canonical_json
from kernel.trace import semconv as sc

_DIGITS = 4
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def seal(attributes: dict[str, Any]) -> str:
    """Digest of a span's attributes: 8 hex digits over all, a dot, then four for each in the order of their keys."""
    texts = _texts(attributes, _order(tuple(attributes)))
    places = struct.pack(f">{len(texts)}H", *[crc32(_bytes(text)) & 0xFFFF for text in texts])
    return f"{_total(texts)}.{places.hex()}"


@lru_cache(maxsize=1024)
def _order(keys: tuple[str, ...]) -> list[str]:
    """Sorted keys; spans of one kind have the same ones."""
    return sorted(keys)


def _texts(attributes: dict[str, Any], keys: list[str]) -> list[str]:
    """Each attribute as one text: what OTLP writes in two ways, such as 1.0 and 1, has one."""
    texts = []
    for key in keys:
        value = attributes[key]
        kind = type(value)
        if kind is str:
            texts.append(f"{key}\0{value}")
        elif kind is int or kind is bool or value is None:
            mark = "\1" if value is None or _INT64_MIN <= value <= _INT64_MAX else ""  # beyond, OTLP writes text
            texts.append(f"{key}\0{mark}{value}")
        elif kind is float:
            number = int(value) if value.is_integer() and abs(value) < 2**53 else value
            texts.append(f"{key}\0\1{number}")
        else:
            texts.append(f"{key}\0{canonical_json(value)}")
    return texts


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _total(texts: list[str]) -> str:
    return hashlib.blake2b(_bytes("\0".join(texts)), digest_size=4).hexdigest()


def breaches(attributes: dict[str, Any], recorded: object) -> list[tuple[str, str]]:
    """Attributes that do not fit the seal beside them, each with what is wrong; those of others do not count."""
    keys = [key for key in sorted(attributes) if key.startswith(sc.SEALED) and key not in (sc.SEAL, sc.CUT)]
    total, _, was = str(recorded).partition(".")
    if _total(_texts(attributes, keys)) == total:
        return []
    if not was:
        return [(sc.SEAL, "the seal itself was cut or edited since it was recorded")]
    if cut := _named_cut(attributes.get(sc.CUT)):
        return _breaches_of_a_copy(attributes, keys, was, cut)
    are = seal({key: attributes[key] for key in keys}).partition(".")[2]
    differing = [key for i, key in enumerate(keys) if _part(was, i) != _part(are, i)] or [sc.SEAL]
    if len(was) != len(are):
        count = len(was) // _DIGITS
        message = f"{count} attributes were recorded, {len(keys)} are here: some were dropped or added"
        return [(differing[0], message)]
    return [(key, "is not as it was recorded: cut, masked or edited since") for key in differing]


def _named_cut(value: object) -> list[str]:
    """The attributes that a sender shortened or withheld, by its own account; Jaeger JSON has the list as a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _breaches_of_a_copy(attributes: dict[str, Any], keys: list[str], was: str, cut: list[str]) -> list[tuple[str, str]]:
    """As `breaches`, where the sender said what it cut: whatever else differs was changed by others."""
    found = [(name, "was shortened or withheld when the span was sent") for name in cut]
    every = sorted({*keys, *(name for name in cut if name.startswith(sc.SEALED) and "/" not in name)})
    if len(every) * _DIGITS != len(was):
        count = len(was) // _DIGITS
        return [
            *found,
            (sc.SEAL, f"{count} attributes were recorded, {len(every)} are known of: more were dropped or added"),
        ]
    for index, key in enumerate(every):
        if key not in cut and _part(was, index) != seal({key: attributes[key]}).partition(".")[2]:
            found.append((key, "is not as it was recorded: cut, masked or edited since"))
    return found


def _part(digits: str, index: int) -> str:
    return digits[_DIGITS * index : _DIGITS * (index + 1)]
