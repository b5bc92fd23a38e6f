"""Calls whose arguments are tags: `<function=f><parameter=k>v`, `<invoke name="f"><parameter name="k">v`, GLM's `<arg_key>`.

A value is text: only a schema could make a number of it. A closing tag inside a value is told from the value's end by what
follows it. The call must be closed by its own tag, for without it more arguments may have been to come.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kernel.parse.marks import NAMESPACE
from kernel.parse.model import Unreadable
from kernel.parse.strictjson import strict

_EQUALS = r"=[ \t]{0,4}[\"']?([^\s\"'<>=]{1,128})[\"']?[ \t]{0,8}(?:>|\r?\n)"
_NAMED = r"\s{1,8}name\s{0,4}=\s{0,4}[\"']?([^\s\"'<>]{1,128})[\"']?([^<>\n]{0,80})>"
_OPEN = rf"<{NAMESPACE}param(?:eter)?(?:{_EQUALS}|{_NAMED})"
_CLOSE = rf"</{NAMESPACE}param(?:eter)?(?:=[^<>\n]{{0,128}})?\s{{0,8}}/?>"
_END = (
    rf"</{NAMESPACE}(?:function|invoke|tool|tool_calls|function_calls|calls)\s{{0,8}}>"
    r"|</[\w:]{0,30}(?:tool_calls?|function_calls?)>"
)
_OPEN_PARAM = re.compile(_OPEN)
_CLOSE_PARAM = re.compile(_CLOSE)
_END_OF_CALL = re.compile(_END)
_AFTER_VALUE = re.compile(rf"\s*+(?:{_OPEN}|{_END}|\Z)")
_NEXT_LINE_PARAM = re.compile(rf"\n[ \t]{{0,8}}(?={_OPEN})")
_OPEN_NAMED = re.compile(r"<([A-Za-z_][\w.-]{0,127})>")
_OPEN_ALL = re.compile(r"\s*+<parameters>")
_CLOSE_ALL = re.compile(r"\s*+(?:</parameters>\s*+)?</invoke>")
_MAX_DAMAGED = 16
_SPACE = re.compile(r"\s*+")
_ENTITY = re.compile(r"&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ARG_KEY = re.compile(r"\s*+<arg_key>([^<>]{1,200})</arg_key>\s*+<arg_value>")
_ARG_END = re.compile(r"</arg_value>(?=\s*+(?:<arg_key>|</tool_call>|</[\w:]{0,30}tool_call>|<tool_call>|\Z))")
_GLM_CLOSE = re.compile(r"\s*+</[\w:]{0,30}tool_call>")


class Arguments(NamedTuple):
    """The arguments, the offset behind the call's closing tag, and whether a damaged tag had to be read."""

    args: dict[str, Any]
    end: int
    repaired: bool


def read_parameters(text: str, pos: int, *, entities: bool) -> Arguments:
    """Read the parameter tags of a call from `pos` on. `entities`: the format escapes its values as XML.

    Raises:
        Unreadable: the call is not closed (`cut-off`), or something else stands between its parameters.
    """
    args: dict[str, Any] = {}
    damages = 0
    while True:
        pos = _skip(text, pos)
        if closing := _END_OF_CALL.match(text, pos):
            return Arguments(args, closing.end(), damages > 0)
        opening = _OPEN_PARAM.match(text, pos)
        if opening is None:
            if pos >= len(text) or _END_OF_CALL.search(text, pos) is None:
                raise Unreadable("cut-off", f"The call that goes on at offset {pos} is never closed.", len(text))
            raise Unreadable("malformed-call", f"Expected a parameter tag at offset {pos}.", pos)
        raw, pos, damaged = _parameter(text, opening)
        damages += damaged or not opening[0].endswith(">")
        if damages > _MAX_DAMAGED:
            raise Unreadable("malformed-call", f"Too many damaged parameter tags before offset {pos}.", pos)
        key = opening[1] or opening[2]
        value = _typed(raw, opening[3] or "", pos, entities=entities)
        if key in args and args[key] != value:
            message = f"The parameter {key!r} is given twice with different values."
            raise Unreadable("ambiguous", message, opening.start())
        args[key] = value


def _parameter(text: str, opening: re.Match[str]) -> tuple[str, int, bool]:
    """The raw value behind an opening tag, the offset behind it, and whether its tags are damaged.

    A pair of parameter tags inside the value belongs to it. Where the tags do not pair up, the value ends at the first
    closing tag that something of the call follows, or at the next line that opens a parameter.
    """
    start = pos = opening.end()
    depth = 1
    first: re.Match[str] | None = None
    for close in _CLOSE_PARAM.finditer(text, start):
        opened = sum(1 for _ in _OPEN_PARAM.finditer(text, pos, close.start()))
        if opened and depth <= 0:
            break  # the value was closed before: what opens now is another parameter, with text in between
        depth += opened - 1
        pos = close.end()
        if _AFTER_VALUE.match(text, pos):
            if depth <= 0:
                return _unwrapped(text[start : close.start()]), pos, "/>" in close[0]
            first = first or close
            if _END_OF_CALL.match(text, _skip(text, pos)):
                break
    line = _NEXT_LINE_PARAM.search(text, start, first.start() if first else len(text))
    end = line or first or _END_OF_CALL.search(text, start)
    if end is not None and end is not first and _CLOSE_PARAM.search(text, start, end.start()):
        message = f"Something follows the value of the parameter at offset {opening.start()}."
        raise Unreadable("malformed-call", message, opening.start())
    if end is None:
        raise Unreadable("cut-off", f"The parameter at offset {opening.start()} is never closed.", len(text))
    return _unwrapped(text[start : end.start()]), end.end() if end is first else end.start(), True


def _unwrapped(value: str) -> str:
    """Without the one line break on each side that sets a value apart from its tags."""
    value = value.removeprefix("\r").removeprefix("\n")
    return value.removesuffix("\n").removesuffix("\r")


def _typed(raw: str, attrs: str, at: int, *, entities: bool) -> Any:
    if 'string="false"' in attrs or "string='false'" in attrs:
        found = strict(raw.strip())
        if found is None or found[1] != len(raw.strip()):
            raise Unreadable(
                "malformed-json", f"The parameter that ends at offset {at} is marked as JSON and is not.", at
            )
        return found[0]
    if raw.startswith("<![CDATA[") and raw.endswith("]]>"):
        return raw[9:-3]
    if entities and "&" in raw and "<" not in raw and len(_ENTITY.findall(raw)) == raw.count("&"):
        return _ENTITY.sub(_entity, raw)
    return raw


def _entity(match: re.Match[str]) -> str:
    entity = match[1]
    if entity[0] != "#":
        return _ENTITIES[entity]
    code = int(entity[2:], 16) if entity[1] == "x" else int(entity[1:])
    return chr(code) if code <= 0x10FFFF else match[0]


def read_arg_pairs(text: str, pos: int) -> Arguments:
    """Read GLM's `<arg_key>`/`<arg_value>` pairs from `pos` on; values keep their white space.

    Raises:
        Unreadable: the call is not closed (`cut-off`) or something else stands between its pairs.
    """
    args: dict[str, Any] = {}
    while pair := _ARG_KEY.match(text, pos):
        close = _ARG_END.search(text, pair.end())
        if close is None:
            raise Unreadable("cut-off", f"The argument at offset {pair.start()} is never closed.", len(text))
        key, value = pair[1].strip(), text[pair.end() : close.start()]
        if key in args and args[key] != value:
            message = f"The argument {key!r} is given twice with different values."
            raise Unreadable("ambiguous", message, pair.start())
        args[key] = value
        pos = close.end()
    if closing := _GLM_CLOSE.match(text, pos):
        return Arguments(args, closing.end(), False)
    pos = _skip(text, pos)
    if pos >= len(text):
        raise Unreadable("cut-off", "The text ends before the call is closed.", len(text))
    raise Unreadable("malformed-call", f"Expected an argument or the end of the call at offset {pos}.", pos)


def read_named_tags(text: str, pos: int) -> Arguments:
    """Read `<parameters><key>value</key></parameters></invoke>` from `pos` on; values are escaped as XML.

    Raises:
        Unreadable: a tag is not closed (`cut-off`) or something else stands between the parameters.
    """
    args: dict[str, Any] = {}
    opening = _OPEN_ALL.match(text, pos)
    pos = opening.end() if opening else pos
    while not (closing := _CLOSE_ALL.match(text, pos)):
        pos = _skip(text, pos)
        tag = _OPEN_NAMED.match(text, pos)
        close = text.find(f"</{tag[1]}>", tag.end()) if tag else -1
        if pos >= len(text) or (tag and close < 0):
            raise Unreadable("cut-off", f"The call that goes on at offset {pos} is never closed.", len(text))
        if tag is None or tag[1] in args:
            raise Unreadable(
                "malformed-call", f"Expected another parameter or the end of the call at offset {pos}.", pos
            )
        args[tag[1]] = _typed(_unwrapped(text[tag.end() : close]), "", pos, entities=True)
        pos = close + len(tag[1]) + 3
    return Arguments(args, closing.end(), False)


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos
