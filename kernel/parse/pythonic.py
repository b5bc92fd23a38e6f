"""Calls in Python's syntax with literal arguments: `[f(a=1), g(b='x')]`, `print(default_api.f(a=1))`, `f({...})`.

A reader of its own instead of `ast`: it says where a call ends, takes `true` and `null`, and is bounded in depth.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kernel.parse.jsonish import JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.quoting import is_shown
from kernel.parse.shape import tool_name
from kernel.parse.source import Source
from kernel.parse.stops import TURN
from kernel.parse.strictjson import MAX_DEPTH, finite

CALL_AHEAD = re.compile(r"[A-Za-z_][\w.-]{0,127}\s{0,8}\(")
_SPACE = re.compile(r"(?:\s|#[^\n]*+)*+")
_NAME = re.compile(r"[A-Za-z_][\w-]*+(?:\.[A-Za-z_][\w-]*+)*+")
_KEYWORD = re.compile(r"([A-Za-z_]\w{0,127})\s{0,8}=(?!=)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9_]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.])")
_STRING = re.compile(
    r"(?P<prefix>[rRuU]?)(?:\"\"\"(?P<t2>[^\\\"]*+(?:(?:\\.|\"(?!\"\"))[^\\\"]*+)*+)\"\"\""
    r"|\'\'\'(?P<t1>[^\\\']*+(?:(?:\\.|\'(?!\'\'))[^\\\']*+)*+)\'\'\'"
    r"|\"(?P<s2>[^\\\"]*+(?:\\.[^\\\"]*+)*+)\"|\'(?P<s1>[^\\\']*+(?:\\.[^\\\']*+)*+)\')",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(\n|[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00[01][0-9a-fA-F]{5}|[0-7]{1,3})")
_ESCAPED = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_WORDS: dict[str, bool | None] = {
    "True": True, "False": False, "None": None, "true": True, "false": False, "null": None,
}  # fmt: skip
_OPEN_LIST = re.compile(r"^[ \t]{0,8}\[\s{0,80}(?=[A-Za-z_][\w.-]{0,127}\()", re.MULTILINE)
_WHOLE = re.compile(r"\s*+(?:print\(\s*+)?[A-Za-z_][\w.-]{0,127}\(")
_FENCE = re.compile(
    r"^[ \t]{0,8}```[ \t]{0,8}(?:tool_(?:code|call)s?[ \t]*\n|(?:python|py)[ \t]*\n(?=(?:print\(\s{0,8})?default_api\.))",
    re.MULTILINE,
)
_ASSIGN = re.compile(r"(?P<name>[A-Za-z_]\w{0,63})\s{0,8}=\s{0,8}(?=[A-Za-z_][\w.-]{0,127}\()")
_SHOW = re.compile(r"\s*+print\((?P<name>[A-Za-z_]\w{0,63})\)")


class Call(NamedTuple):
    """A call, and the offset just behind its closing parenthesis. `keyworded`: its arguments have names of their own."""

    name: str
    args: dict[str, Any]
    end: int
    keyworded: bool


def read_call(text: str, pos: int) -> Call:
    """Read the call at `pos`. `print(call)` is the call inside; `f({...})` has the object's arguments, `f("x")` has `input`.

    Raises:
        Unreadable: what stands there is no single call with literal arguments; `cut-off` where the text ends first.
    """
    name = _NAME.match(text, pos)
    if name is None:
        raise _malformed(text, pos, "a function name")
    pos = _expect(text, name.end(), "(")
    if name[0] == "print" and CALL_AHEAD.match(text, pos) and not text.startswith("print", pos):
        inner = read_call(text, pos)
        return inner._replace(end=_expect(text, inner.end, ")"))
    args: dict[str, Any] = {}
    bare: list[Any] = []
    while text[pos : pos + 1] != ")":
        keyword = _KEYWORD.match(text, pos)
        at = _skip(text, keyword.end()) if keyword else pos
        if keyword is None and text[pos : pos + 1] == "{":
            value, at, _ = JsonReader(text).read(pos)
        else:
            value, at = _value(text, at, 0)
        if keyword is None:
            bare.append(value)
        elif args.setdefault(keyword[1], value) is not value:
            raise Unreadable("ambiguous", f"The argument {keyword[1]!r} is given twice at offset {pos}.", pos)
        pos = _skip(text, at)
        if text[pos : pos + 1] == ",":
            pos = _skip(text, pos + 1)
        elif text[pos : pos + 1] != ")":
            raise _malformed(text, pos, "',' or ')'")
    if not bare:
        return Call(name[0], args, pos + 1, bool(args))
    if len(bare) == 1 and not args and isinstance(bare[0], dict):
        return Call(name[0], bare[0], pos + 1, True)
    if len(bare) == 1 and not args and isinstance(bare[0], str):
        return Call(name[0], {"input": bare[0]}, pos + 1, False)
    message = f"The call of {name[0][:60]} at offset {name.start()} has arguments without names."
    raise Unreadable("malformed-call", message, name.start())


def read_calls(
    text: str, pos: int, family: str, tool_names: frozenset[str], *, stop: str = ""
) -> tuple[list[Found], int]:
    """Read `[call, call]`, or calls one below the other up to one named `stop`, at `pos`; also return the offset behind."""
    calls: list[Found] = []
    bracket = text[pos : pos + 1] == "["
    at = _skip(text, pos + bracket)
    while True:
        start = at
        call = read_call(text, at)
        calls.append(Found(_plain(call.name, tool_names), call.args, family, start, call.end))
        at = _skip(text, call.end)
        if bracket:
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
            elif text[at : at + 1] != "]":
                raise _malformed(text, at, "',' or ']'")
            if text[at : at + 1] == "]":
                return calls, at + 1
        else:
            if text[at : at + 1] in (";", ","):
                at = _skip(text, at + 1)
            if not CALL_AHEAD.match(text, at) or (stop and text.startswith(stop, at)):
                return calls, call.end


def read_pythonic(source: Source) -> list[Found]:
    """Find a bracketed list of calls on a line of its own, a `tool_code` block, or a text that is one call as a whole."""
    text = source.text
    turn = TURN.search(text)
    limit = turn.start() if turn else len(text)
    if (fence := _FENCE.search(text)) and fence.start() < limit:
        return _block(text, _skip(text, fence.end()), source.tool_names)
    opening = next((m for m in _OPEN_LIST.finditer(text, 0, limit) if not source.is_code(m.start())), None)
    if opening is not None:
        start = text.index("[", opening.start())
        calls, end = read_calls(text, start, "pythonic", source.tool_names)
        return [] if is_shown(source, calls[0]._replace(start=start), end) else calls
    if opening := _WHOLE.match(text):
        return _whole_calls(text, _skip(text, 0), source.tool_names)
    return []


def _block(text: str, start: int, tool_names: frozenset[str]) -> list[Found]:
    """The calls of a fenced block; `x = call` and a `print(x)` behind it add nothing to the call."""
    assigned = _ASSIGN.match(text, start)
    start = assigned.end() if assigned else start
    if not CALL_AHEAD.match(text, start):
        return []
    calls, end = read_calls(text, start, "pythonic", tool_names, stop="print" if assigned else "")
    if assigned and (show := _SHOW.match(text, end)) and show["name"] == assigned["name"]:
        end = show.end()
    close = _skip(text, end)
    if not text.startswith("```", close):
        raise _malformed(text, close, "the end of the block")
    return calls


def _whole_calls(text: str, start: int, tool_names: frozenset[str]) -> list[Found]:
    """The calls that are the whole text; empty where it is code, or a call whose arguments only a signature could name."""
    calls: list[Found] = []
    at = start
    while True:
        try:
            call = read_call(text, at)
        except Unreadable as fault:
            if fault.rule == "cut-off" and _KEYWORD.match(text, _skip(text, text.index("(", at) + 1)):
                raise
            return []
        name = _plain(call.name, tool_names)
        if not (call.keyworded or name in tool_names):
            return []
        calls.append(Found(name, call.args, "pythonic", at, call.end))
        at = _skip(text, call.end)
        if not CALL_AHEAD.match(text, at):
            return [] if text[call.end :].strip("; \t\r\n`") else calls


def _plain(name: str, tool_names: frozenset[str]) -> str:
    return tool_name(name, tool_names)


def _value(text: str, pos: int, depth: int) -> tuple[Any, int]:
    char = text[pos : pos + 1]
    if depth > MAX_DEPTH:
        raise Unreadable("too-deep", f"The arguments are nested more than {MAX_DEPTH} levels deep.", pos)
    if char in ("[", "("):
        return _sequence(text, pos, "]" if char == "[" else ")", depth)
    if char == "{":
        return _mapping(text, pos, depth)
    if string := _STRING.match(text, pos):
        value = ""
        while string:
            value += _text_of(string)
            pos = string.end()
            string = _STRING.match(text, _skip(text, pos))
        return value, pos
    if number := _NUMBER.match(text, pos):
        digits = number[0].replace("_", "")
        try:
            return (finite(digits) if any(c in digits for c in ".eE") else int(digits)), number.end()
        except ValueError:
            raise Unreadable("malformed-call", f"The number at offset {pos} is too large.", pos) from None
    word = _NAME.match(text, pos)
    if word and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    if char in ('"', "'"):
        raise _cut(text, pos)
    raise _malformed(text, pos, "a literal value")


def _sequence(text: str, pos: int, closer: str, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    start, pos = pos, _skip(text, pos + 1)
    while text[pos : pos + 1] != closer:
        value, pos = _value(text, pos, depth + 1)
        items.append(value)
        pos = _comma(text, pos, closer)
    if closer == ")" and len(items) == 1 and "," not in text[start:pos]:
        return items[0], pos + 1
    return items, pos + 1


def _mapping(text: str, pos: int, depth: int) -> tuple[dict[str, Any], int]:
    out: dict[str, Any] = {}
    pos = _skip(text, pos + 1)
    while text[pos : pos + 1] != "}":
        at, (key, pos) = pos, _value(text, pos, depth + 1)
        value, pos = _value(text, _expect(text, pos, ":"), depth + 1)
        if not isinstance(key, str) or (key in out and out[key] != value):
            raise Unreadable("malformed-call", f"The key at offset {at} is no text, or is given twice.", at)
        out[key] = value
        pos = _comma(text, pos, "}")
    return out, pos + 1


def _comma(text: str, pos: int, closer: str) -> int:
    pos = _skip(text, pos)
    if text[pos : pos + 1] == ",":
        return _skip(text, pos + 1)
    if text[pos : pos + 1] != closer:
        raise _malformed(text, pos, f"',' or {closer!r}")
    return pos


def _text_of(string: re.Match[str]) -> str:
    body = next(string[group] for group in ("t2", "t1", "s2", "s1") if string[group] is not None)
    return body if "\\" not in body or string["prefix"] in ("r", "R") else _ESCAPE.sub(_escape, body)


def _escape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _ESCAPED:
        return _ESCAPED[escape]
    code = int(escape[1:], 16) if escape[0] in "xuU" else int(escape, 8)
    return chr(code) if code <= 0x10FFFF else match[0]


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _expect(text: str, pos: int, char: str) -> int:
    pos = _skip(text, pos)
    if text[pos : pos + 1] != char:
        raise _malformed(text, pos, repr(char))
    return _skip(text, pos + 1)


def _cut(text: str, start: int) -> Unreadable:
    return Unreadable("cut-off", f"The text ends before what starts at offset {start} is closed.", len(text))


def _malformed(text: str, pos: int, wanted: str) -> Unreadable:
    if pos >= len(text):
        return Unreadable("cut-off", f"The text ends where {wanted} is missing.", len(text))
    return Unreadable("malformed-call", f"Expected {wanted} at offset {pos}, found {text[pos]!r}.", pos)
