"""Gemma's call syntax: `call:name{key:<escape>text<escape>,n:3}`, text between escape tokens instead of quotes."""

from __future__ import annotations

import json
import re

from kernel.parse.jsonish import JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.shape import tool_name

_HEAD = re.compile(r"\s{0,8}([A-Za-z_][\w.-]{0,127})\s{0,8}(?=\{)")
_ESCAPE = re.compile(r'<escape>|<\|"\|>|"(?:[^"\\]|\\.){0,4000}"', re.DOTALL)


def read_braced(text: str, pos: int, tool_names: frozenset[str], end_mark: re.Pattern[str]) -> tuple[list[Found], int]:
    """Read the call whose name stands at `pos`.

    Raises:
        Unreadable: the braces or an escape are not closed before the end mark or the text's end.
    """
    head = _HEAD.match(text, pos)
    if head is None:
        raise Unreadable("malformed-call", f"Expected a name and '{{' at offset {pos}.", pos)
    parts, at = [], head.end()
    while True:
        escape = _ESCAPE.search(text, at)
        closing = end_mark.search(text, at, escape.start() if escape else len(text))
        if closing or not escape:
            stop = closing.start() if closing else len(text)
            parts.append(text[at:stop])
            break
        if escape[0][0] == '"':  # a text between quotes may hold the end mark
            parts.append(text[at : escape.end()])
            at = escape.end()
            continue
        parts.append(text[at : escape.start()])
        shut = text.find(escape[0], escape.end())
        if shut < 0:
            raise Unreadable("cut-off", f"The text argument at offset {escape.start()} is never closed.", len(text))
        parts.append(json.dumps(text[escape.end() : shut]))
        at = shut + len(escape[0])
    body = "".join(parts)
    try:
        args, end, _ = JsonReader(body).read(0)
    except Unreadable as fault:
        where = len(text) if fault.rule == "cut-off" and not closing else head.end()
        rule = "malformed-call" if closing else fault.rule
        message = f"The arguments of the call at offset {pos} cannot be read: {fault.message}"
        raise Unreadable(rule, message, where) from None
    if closing and body[end:].strip("} \t\r\n"):
        raise Unreadable("malformed-call", f"The call at offset {pos} goes on after its arguments.", pos)
    stop = closing.end() if closing else min(len(text), stop)
    return [Found(tool_name(head[1], tool_names), args, "gemma", pos, stop)], stop
