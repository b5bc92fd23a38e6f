"""Standard JSON at a position of a text, with the few checks that the standard library leaves out."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NoReturn

from kernel.parse.model import Unreadable

MAX_DEPTH = 100
_SPACE = re.compile(r"[ \t\r\n]*+")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and seen[key] != value:
                raise Unreadable("ambiguous", f"The key {key!r} is given twice with different values.", -1)
            seen[key] = value
    return out


def finite(text: str) -> float:
    """The number, if a float can hold it; else `ValueError`."""
    number = float(text)
    if not isfinite(number):
        raise ValueError("number out of range")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_raw_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=finite, parse_constant=_constant).raw_decode


def strict(text: str, pos: int = 0) -> tuple[Any, int] | None:
    """Read standard JSON at `pos`; None where it is not. A key given twice with different values is `Unreadable`."""
    try:
        value, end = _raw_decode(text, pos)
    except Unreadable as twice:
        raise Unreadable(twice.rule, twice.message, pos) from None
    except (ValueError, RecursionError):
        return None
    if end - pos > MAX_DEPTH and text.count("[", pos, end) + text.count("{", pos, end) > MAX_DEPTH and _too_deep(value):
        return None
    return value, end


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def behind_repeats(text: str, end: int, value: Any) -> int:
    """Where the repetitions of a value that ends at `end` are over: the very same value twice says no more than once."""
    same = ""
    while text[(start := _skip(text, end)) : start + 1] in ("{", "["):  # a failed reading costs the text before it
        again, same = strict(text, start), same or repr(value)
        if again is None or repr(again[0]) != same:
            break
        end = again[1]
    return end


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos
