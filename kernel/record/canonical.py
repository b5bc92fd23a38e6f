"""Canonical JSON, digests, and the one encoder from Python values to JSON values.

Everything that is compared, hashed or written passes through here, so that equal content has one spelling.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_DEPTH = 200
_WIDE = 2**2048  # Python turns an integer of more digits than its limit (at least 640) into no decimal text

_encode = msgspec.json.Encoder(order="deterministic").encode
_encode_plain = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys. `value` must be a JSON value (see `to_jsonable`)."""
    try:
        return _encode(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError):
        return json.dumps(to_jsonable(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def compact_json(value: Any) -> str:
    """Compact JSON that keeps the order of keys. `value` must be a JSON value (see `to_jsonable`)."""
    try:
        return _encode_plain(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError):
        return json.dumps(to_jsonable(value), ensure_ascii=False, separators=(",", ":"))


def parse_json(text: str | bytes) -> Any:
    """Strict JSON of any size of integer. Raises `ValueError` that says where."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def digest(text: str | bytes) -> str:
    """16 hex digits of BLAKE2b: names content, is no protection against an adversary."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def valid_text(text: str) -> str:
    """Valid Unicode: a surrogate pair becomes its character, a lone surrogate becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def to_jsonable(value: Any) -> Any:
    """Turn any Python object into a JSON value; total, deterministic, never raises.

    Already JSON: `None`, bool, int, finite float, valid str, and lists and string-keyed dicts of these, unchanged.
    The rest has one documented form each:

    - tuple, list → list; set, frozenset → list sorted by canonical JSON; other mappings → dict with text keys
    - dataclass, namedtuple, msgspec struct → dict of its fields; `Enum` → its value; path, UUID → text
    - date, time, datetime → ISO 8601 text; timedelta → seconds; `Decimal` → `{"$decimal": "1.50"}`
    - an integer of more than 2048 bits → `{"$int": "0x…"}`
    - bytes → `{"$bytes": base64}`; NaN and infinities → `{"$float": "nan"}`
    - exception → `{"$error": type, "message": text}`; a value inside itself → `{"$cycle": true}`
    - nesting beyond 200 → `{"$deep": true}`; anything else → `{"$repr": text}` without memory addresses
    """
    return _jsonable(value, (), 0)


def _jsonable(value: Any, above: tuple[int, ...], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return valid_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_WIDE < value < _WIDE else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth > _MAX_DEPTH:
        return {"$deep": True}
    if id(value) in above:
        return {"$cycle": True}
    try:
        return _container(value, (*above, id(value)), depth + 1)
    except Exception as error:  # a hostile __iter__, __repr__ or __str__: its failure is the recorded value
        return {"$unreadable": type(value).__name__, "error": type(error).__name__}


def _container(value: Any, above: tuple[int, ...], depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return _jsonable(value.value, above, depth)
    if isinstance(value, Mapping):
        return {_key(k): _jsonable(v, above, depth) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {k: _jsonable(v, above, depth) for k, v in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item, above, depth) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_jsonable(item, above, depth) for item in value), key=canonical_json)
    if isinstance(value, msgspec.Struct):
        return {name: _jsonable(getattr(value, name), above, depth) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _jsonable(getattr(value, f.name), above, depth) for f in dataclasses.fields(value)}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, (PurePath, UUID)):
        return valid_text(str(value))
    if isinstance(value, BaseException):
        return {"$error": type(value).__name__, "message": valid_text(str(value))}
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, str):
        return valid_text(str.__str__(value))
    if isinstance(value, int):
        return _jsonable(int(value), (), 0)
    if isinstance(value, float):
        return _jsonable(float(value), (), 0)
    return {"$repr": valid_text(_ADDRESS.sub("", repr(value)))}


def _key(key: Any) -> str:
    if isinstance(key, str):
        return valid_text(str.__str__(key))
    plain = _jsonable(key, (), 0)
    return plain if isinstance(plain, str) else canonical_json(plain)
