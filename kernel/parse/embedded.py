"""JSON actions anywhere in a text: alone, between prose, in fences."""

from __future__ import annotations

import re

from kernel.parse.jsonish import MORE_PAIRS, OBJECT_AHEAD, JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.quoting import is_inline_code, is_shown
from kernel.parse.shape import calls_in
from kernel.parse.source import Source
from kernel.parse.stops import STOP, behind_result, refuse_choice

_JSON_LANGUAGES = frozenset(
    {"", "json", "json5", "jsonc", "jsonl", "tool_call", "tool", "tool_use", "function_call", "action", "xml"}
)
_MARK = re.compile(
    rf"```[ \t]{{0,8}}(?P<lang>[\w+.-]{{0,30}})|(?P<array>\[)(?=\s*\{{)|(?P<object>\{{)|{STOP}",
    re.MULTILINE | re.IGNORECASE,
)
_NAME_KEY = re.compile(
    r"""["'“”\\{\s,](?:action|tool|name|function|tool_name|function_name|tool_calls|recipient_name|动作|行动|操作|工具)\\?["'”“]?\s{0,8}[:：]"""
)


def read_embedded(source: Source) -> list[Found]:
    """Find the JSON actions of a text in order, up to an invented result or a final answer.

    Raises:
        Unreadable: the first thing that looks like an action cannot be read.
    """
    text = source.text
    reader = JsonReader(text)
    calls: list[Found] = []
    first = len(text) - len(text.lstrip())
    pos = 0
    while mark := _MARK.search(text, pos):
        start, pos = mark.span()
        if mark["final"] or mark["turn"] or (mark["result"] and calls):
            break
        if mark["result"]:
            pos = behind_result(text, start, pos)
            continue
        if mark["lang"] is not None:
            if mark["lang"].lower() not in _JSON_LANGUAGES:  # another language's block is not searched for JSON
                close = text.find("```", pos)
                if close < 0:
                    break
                pos = close + 3
            continue
        if mark["object"] and not OBJECT_AHEAD.match(text, start) and start > first:
            continue
        try:
            value, pos, repaired = reader.read(start)
            shapes = calls_in(value, start, source.tool_names)
            if shapes and MORE_PAIRS.match(text, pos):
                raise Unreadable("malformed-json", f"The JSON goes on after it was closed at offset {pos}.", pos)
        except Unreadable as fault:
            if calls:
                break
            if start != first and is_inline_code(text, start):
                pos = start + 1
                continue
            if start == first or _NAME_KEY.search(text, start, fault.position + 1):
                raise
            if fault.rule == "cut-off":
                break
            pos = max(fault.position, reader.reached, start + 1)
            continue
        found = [shape.found("json", start, pos, repaired=repaired) for shape in shapes]
        if found and not is_shown(source, found[0]):
            refuse_choice(text, calls, found, start)
            calls += found
    return calls
