"""The reply that models give nearly always, read in a few microseconds: prose, then one flat strict-JSON action at the end.

Whatever is not surely that is left to the thorough reading, which gives the same for what is (a property test compares).
"""

from __future__ import annotations

from math import isfinite

import msgspec

from kernel.parse.model import Parsed, ParsedCall
from kernel.parse.quoting import announces
from kernel.parse.shape import is_usual_name, usual_keys
from kernel.parse.visible import thought_of, visible_of

_decode = msgspec.json.Decoder().decode
_ODD_STARTS = frozenset(" \t\r\n\f\v<[aA")


def read_usual(text: str, is_suspect: bool) -> Parsed | None:
    """Read `text`, of which `is_suspect` says whether the prose before its first brace may hold other marks."""
    start = text.find("{")
    body = text[start:]
    if start < 0 or is_suspect or body[-1] != "}" or "\\" in body:
        return None
    before = text[:start]
    if before and (before[-1] != "\n" or announces(before)):
        return None
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    keys = usual_keys(value)
    if keys is None:
        return None
    name, args = value[keys[0]], value[keys[1]]
    if not is_usual_name(name, args) or not _is_flat(body, name, args):
        return None
    if text[0] in _ODD_STARTS:
        thought, visible = thought_of(before), visible_of(text)
    else:
        thought = before.rstrip() if ":" not in before[:40] and "：" not in before[:40] else thought_of(before)
        visible = text
    call = ParsedCall(
        name=name,
        args=args,
        repaired=False,
        family="json",
        start=start,
        end=len(text),
        thought=thought,
        intent=None,
        estimated_cost=None,
    )
    return Parsed(calls=(call,), fault=None, thought=thought, visible=visible)


def _is_flat(body: str, name: str, args: dict[str, object]) -> bool:
    """Whether the arguments hold no further objects and no key was given twice: each key then has its colon, and no
    other colon stands outside the strings."""
    colons = 2 + len(args) + name.count(":")
    for key, value in args.items():
        kind = type(value)
        if kind is str:
            colons += value.count(":") + key.count(":")  # type: ignore[attr-defined]
        elif kind is dict or kind is list or (kind is float and not isfinite(value)):  # type: ignore[arg-type]
            return False
        else:
            colons += key.count(":")
    return body.count(":") == colons
