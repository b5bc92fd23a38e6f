"""The replies that models give nearly always, read in a few microseconds: a plain answer, or prose and one action at the end
in one of the plain forms: strict JSON, alone or in a fence, `<tool_call>` tags, `Action:` and `Action Input:` lines.

One pattern finds the first mark of any family; whatever is not surely one of these forms is left to the thorough reading,
which gives the same for what is (a property test compares).
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from kernel.parse.marks import half_opener
from kernel.parse.model import Found, Parsed, ParsedCall, ParseFault
from kernel.parse.quoting import announces, is_thought, is_withdrawn
from kernel.parse.reading import faulty, reading
from kernel.parse.shape import calls_in, is_usual_name, usual_call, usual_keys
from kernel.parse.source import NAMES_OF_ENDING
from kernel.parse.strictjson import strict
from kernel.parse.visible import thought_of, visible_of

_decode = msgspec.json.Decoder().decode
_ODD_STARTS = frozenset(" \t\r\n\f\v<[aA")

_ANY = re.compile(r"[{:：<`\[◁✿~]|to=functions")
_AHEAD = {
    "<": re.compile(r"<[A-Za-z/|｜!]"),
    "`": re.compile(r"```"),
    "~": re.compile(r"~~"),
    "[": re.compile(r"\[(?:/?(?:TOOL|ARGS|THINK|CALL)|\s{0,80}(?:\{|[A-Za-z_][\w.-]{0,127}\())", re.IGNORECASE),
}
"""What makes a mark of a character that prose has too."""
_LABEL_BEFORE = re.compile(
    r"(?:\b(?:act(?:ion)?|observations?|answer|inputs?|args|arguments|param(?:eter)?s|tool|function|tool[ _]name|human|user"
    r"|function[ _]name|outputs?|results?|responses?|functions|call)|答案|回答|最终结果|动作|行动|操作|观察(?:结果)?|用户"
    r"|工具|名称?|输入|参数|输出|结果|返回)[\s\d*_#]*\Z",
    re.IGNORECASE,
)
"""What stands before a colon that is part of a label some family knows."""
_WHOLE_CALL = re.compile(r"\s*+(?:print\(\s*+)?[A-Za-z_][\w.-]{0,127}\(")
_FENCED = re.compile(r"```[ \t]{0,8}(?:json)?[ \t]*\n\s{0,80}(?=\{)")
_TAG = re.compile(r"<tool_call>\s{0,80}(?=\{)")
_LABELS = re.compile(r"Action:[ \t]{0,8}(?P<name>[A-Za-z_]\w{0,127})[ \t]{0,8}\nAction Input:\s{0,80}(?=\{)")


class _Form(NamedTuple):
    """A plain form found in a text: its family, where it starts, where its JSON starts, and what must end the text."""

    family: str
    start: int
    body: int
    closing: str
    name: str = ""


def read_usual(text: str, names: frozenset[str]) -> Parsed | None:
    """Read a text that is a plain answer or has one of the plain forms; None for any other."""
    form = _first_form(text)
    if form is None:
        return None
    if form.family == "plain":
        return _plain(text, names)
    if form.family == "json" and form.body == form.start and (flat := _flat(text, form.start, names)) is not None:
        return flat
    found = strict(text, form.body)
    if found is None or text[found[1] :].strip() != form.closing:
        return None
    value, end = found
    if form.family == "react":
        if form.name not in names or not isinstance(value, dict):
            return None
        calls = [Found(form.name, value, "react", form.start, end)]
    else:
        shape = usual_call(value)
        shapes = [shape] if shape else calls_in(value, form.body, names) if form.family == "json" else []
        end = len(text.rstrip()) if form.family == "hermes" else end
        start = form.start if form.family == "hermes" else form.body
        calls = [one.found(form.family, start, end) for one in shapes]
    if not calls or not _is_made(text[: form.start], calls[0].name, names, labelled=form.family == "react"):
        return None
    return reading(calls, text)


def _first_form(text: str) -> _Form | None:
    """The form that the first mark of the text opens; `plain` where there is no mark, None where it opens another one."""
    for mark in _ANY.finditer(text):
        start, char = mark.start(), mark[0]
        if char == "{":
            return _Form("json", start, start, "")
        if char in ":：":
            if _LABEL_BEFORE.search(text, max(0, start - 24), start):
                at = text.rfind("\n", 0, start) + 1
                labels = _LABELS.match(text, at)
                return _Form("react", at, labels.end(), "", labels["name"]) if labels else None
            continue
        if (ahead := _AHEAD.get(char)) is not None and not ahead.match(text, start):
            continue
        if char == "`" and (fenced := _FENCED.match(text, start)) and text[start - 1 : start] in ("", "\n"):
            return _Form("json", start, fenced.end(), "```")
        if char == "<" and (tag := _TAG.match(text, start)) and text[start - 1 : start] in ("", "\n"):
            return _Form("hermes", start, tag.end(), "</tool_call>")
        return None
    return None if _WHOLE_CALL.match(text) else _Form("plain", 0, 0, "")


def _plain(text: str, names: frozenset[str]) -> Parsed:
    visible = visible_of(text)
    return faulty(no_action(text, visible, names), visible)


def no_action(text: str, visible: str, names: frozenset[str]) -> ParseFault:
    """Why a text without calls holds none: it breaks off in the opening of one, or has none."""
    if visible and (at := half_opener(text, names)) is not None:
        message = f"The reply ends in the opening of a call at offset {at}."
        return ParseFault(rule="cut-off", message=message, position=at)
    return ParseFault(
        rule="no-action", message="The reply holds no action." if visible else "The reply is empty.", position=0
    )


def _is_made(before: str, name: str, names: frozenset[str], *, labelled: bool = False) -> bool:
    """Whether an action at the end of a text is surely meant, as far as the prose before it says."""
    if not before or before.isspace():
        return True
    if before[-1] != "\n" or before.rpartition("\n")[2]:
        return False
    if labelled and is_thought(before):
        return True
    known = name in names or (bool(names) and name.lower() in NAMES_OF_ENDING)
    return not is_withdrawn(before, known) and (known or labelled or not announces(before))


def _flat(text: str, start: int, names: frozenset[str]) -> Parsed | None:
    """The plainest of all: a flat action without escapes that ends the text. None says nothing."""
    body = text[start:]
    if body[-1] != "}" or "\\" in body:
        return None
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    keys = usual_keys(value)
    if keys is None:
        return None
    name, args = value[keys[0]], value[keys[1]]
    before = text[:start]
    if not is_usual_name(name, args) or not _is_flat(body, name, args) or not _is_made(before, name, names):
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


def _is_flat(body: str, name: str, args: dict[str, Any]) -> bool:
    """Whether the arguments hold no further objects and no key was given twice: each key then has its colon, and no
    other colon stands outside the strings."""
    colons = 2 + len(args) + name.count(":")
    for key, value in args.items():
        kind = type(value)
        if kind is str:
            colons += value.count(":") + key.count(":")
        elif kind is dict or kind is list or (kind is float and not isfinite(value)):
            return False
        else:
            colons += key.count(":")
    return body.count(":") == colons
