"""ReAct text: `Action:` and `Action Input:` lines, `Action: search[x]`, `Action: f({...})`, in English and Chinese labels."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kernel.parse.jsonish import JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.pythonic import CALL_AHEAD, read_call
from kernel.parse.quoting import is_shown
from kernel.parse.shape import arguments, calls_in, is_no_tool, tool_name
from kernel.parse.source import Source
from kernel.parse.stops import TURN, TURN_AT_END
from kernel.parse.strictjson import behind_repeats

_LABELS = {
    "input": r"action[ _]inputs?|action[ _](?:args|arguments|parameters)|动作输入|行动输入|操作输入|动作参数|行动参数|操作参数|工具输入|工具参数",
    "action": r"action|act|动作|行动|操作",
    "thought": r"thoughts?|reasoning|思考|思路|想法",
    "result": r"observations?|观察|观察结果",
    "final": r"final[ _]answer|最终答案|最终回答|最终结果",
    "weak_action": r"tool(?:[ _]name)?|function(?:[ _]name)?|工具(?:名称?)?|调用工具",
    "weak_input": r"(?:tool[ _])?inputs?|(?:tool[ _])?(?:args|arguments|parameters|params)|输入|参数",
    "answer": r"answer|答案|回答",
}
_LABEL = re.compile(
    r"^[ \t>*_#\-]{0,12}(?:\d{1,3}[.)][ \t]{1,4})?[*_]{0,3}(?:"
    + "|".join(f"(?P<{kind}>{words})" for kind, words in _LABELS.items())
    + r")[ \t]{0,8}#?\d{0,4}[ \t]{0,8}[*_]{0,3}[ \t]{0,8}[:：](?:\*{1,3}|__)?[ \t]*+",
    re.MULTILINE | re.IGNORECASE,
)
_STRONG = ("input", "action", "thought", "result", "final", "answer")
_INLINE = re.compile(
    r"\bAction[ \t]{0,4}[:：][ \t]{0,8}(?P<name>[^\s:：]{1,100})[ ,\t]{1,8}Action[ _]Input[ \t]{0,4}[:：][ \t]*+",
    re.IGNORECASE,
)
_INLINE_RESULT = re.compile(r"[ \t]Observation[ \t]{0,4}[:：]", re.IGNORECASE)
_SAME_LINE_INPUT = re.compile(
    r"[,;，]?[ \t]{1,8}(?:Action[ _]Input|动作输入|行动输入)[ \t]{0,4}[:：][ \t]*+", re.IGNORECASE
)
_BRACKET = re.compile(r"(?P<name>[^\W\d][\w.\-]{0,127})[ \t]{0,2}\[")
_PAREN = re.compile(r"(?P<name>[^\W\d][\w.\-]{0,127})[ \t]{0,2}\(")
_COLON = re.compile(r"(?P<name>[A-Za-z_][\w.\-]{0,127}):[ \t]{1,8}(?P<text>\S[^\n]*)")
_NAME = re.compile(r"[^\W\d][\w.\-/:]*(?: [\w.\-/:]+){0,5}")
_SPEECH = re.compile(r"(?:i|i'll|we|let|let's|please|no|use the|call the)\b", re.IGNORECASE)
_CHOICE = re.compile(r"\S\s+(?:or|and|then)\s+\S|\S\s+[/|]\s+\S|\S\s*(?:或者?|,|，|、)\s*\S", re.IGNORECASE)
_FENCE = re.compile(r"(?P<ticks>```|~~~)(?:[ \t]{0,8}[\w+.-]{0,30}[ \t]*+\r?\n|[\w+.-]{0,30}[ \t]*+)")
_STOP_WORD = re.compile(
    r"\n[ \t]*Obs(?:e(?:r(?:v(?:a(?:t(?:i(?:o(?:n)?)?)?)?)?)?)?)?\s*\Z|\n[ \t]*PAUSE\s*\Z", re.IGNORECASE
)
_SPACE = re.compile(r"\s*+")
_NOTHING = re.compile(r"(?:none|n/?a|null|nil|\{\s*\}|无)\Z", re.IGNORECASE)


class _Label(NamedTuple):
    """A label and where what it says must end: at the next label that a bare input cannot hold itself."""

    kind: str
    start: int
    end: int
    limit: int


def read_react(source: Source) -> list[Found]:
    """Find the labelled actions of a text in order, up to an invented observation or a final answer.

    Raises:
        Unreadable: the first action has no input, or one that cannot be read.
    """
    text = source.text
    labels = _labels(text)
    calls: list[Found] = []
    if not any(label.kind in ("action", "weak_action") for label in labels):
        return _inline(source)
    behind = 0
    for i, label in enumerate(labels):
        if label.start < behind or source.is_code(label.start):
            continue
        if label.kind in ("final", "answer") or (label.kind == "result" and calls):
            break
        weak = label.kind == "weak_action"
        if label.kind != "action" and not (weak and i + 1 < len(labels) and "input" in labels[i + 1].kind):
            continue
        try:
            found = _action(source, labels, i)
        except Unreadable:
            if calls:
                break
            raise
        if found and not is_shown(source, found[0], found[-1].end):
            calls += found
        behind = found[-1].end if found else behind
    return calls


def _labels(text: str) -> list[_Label]:
    labels: list[_Label] = []
    limit = len(text)
    turn = TURN.search(text)
    for match in reversed(list(_LABEL.finditer(text, 0, turn.start() if turn else len(text)))):
        kind = match.lastgroup or ""
        labels.append(_Label(kind, match.start(), match.end(), limit))
        limit = match.start() if kind in _STRONG else limit
    return labels[::-1]


def _action(source: Source, labels: list[_Label], i: int) -> list[Found]:
    """The action behind label `i`; empty where it is left to another family (JSON or a code block under the label)."""
    text, label = source.text, labels[i]
    pos = _skip(text, label.end)
    following = labels[i + 1] if i + 1 < len(labels) else None
    if following and pos >= following.start:
        return []
    if fence := _FENCE.match(text, pos):
        pos = _skip(text, fence.end())
    if text[pos : pos + 1] in ("{", "["):
        read = _json_action(source, pos, label.start)
        if read is not None or text[pos] == "{":
            return read or []
    if fence:
        return []
    line_end = text.find("\n", pos)
    line_end = len(text) if line_end < 0 else line_end
    has_input = following is not None and "input" in following.kind
    if same := _SAME_LINE_INPUT.search(text, pos, line_end):
        return [_with_input(source, text[pos : same.start()], label.start, same.end(), label.limit)]
    if bracket := _BRACKET.match(text, pos, line_end):
        return [_bracketed(source, bracket, label.start, label.limit)]
    if (paren := _PAREN.match(text, pos, line_end)) and not is_no_tool(paren["name"]):
        call = _parenthesised(source, paren, label.start, optional=has_input)
        if call:
            return [call]
        line_end = paren.end("name")
    if has_input and following:
        return [_with_input(source, text[pos:line_end], label.start, following.end, following.limit)]
    name = _clean(text[pos:line_end])
    if is_no_tool(name) or is_no_tool(name.partition(" ")[0]):
        raise Unreadable("no-action", f"The action at offset {pos} names no tool.", pos)
    if colon := _COLON.match(text, pos, line_end):
        args = {"input": colon["text"].strip()}
        return [Found(tool_name(colon["name"], source.tool_names), args, "react", label.start, line_end)]
    if text[_skip(text, line_end) : _skip(text, line_end) + 1] == "{" and _NAME.fullmatch(name):
        return [_with_input(source, name, label.start, line_end, label.limit)]
    if source.tool_names and name not in source.tool_names:
        return []  # a line of text that is called Action
    raise Unreadable("missing-arguments", f"The action {name[:60]!r} at offset {pos} has no input.", pos)


def _json_action(source: Source, pos: int, start: int) -> list[Found] | None:
    try:
        value, end, repaired = JsonReader(source.text).read(pos)
    except Unreadable:
        if source.text[pos] == "{" or source.text[_skip(source.text, pos + 1) : _skip(source.text, pos + 1) + 1] == "{":
            raise
        return None
    shapes = calls_in(value, pos, source.tool_names)
    return [shape.found("react", start, end, repaired=repaired) for shape in shapes] or None


def _bracketed(source: Source, bracket: re.Match[str], start: int, limit: int) -> Found:
    """`name[text]`: everything up to the bracket that closes the first one is the input, quotes too."""
    text = source.text
    depth = 1
    for char in re.finditer(r"[\[\]]", text[bracket.end() : limit]):
        depth += 1 if char[0] == "[" else -1
        if depth == 0:
            end = bracket.end() + char.end()
            value = text[bracket.end() : end - 1].strip()
            name = tool_name(bracket["name"], source.tool_names)
            return Found(name, {"input": value} if value else {}, "react", start, end)
    message = f"The bracket of {bracket['name'][:60]} at offset {bracket.end() - 1} is never closed."
    raise Unreadable("cut-off", message, limit)


def _parenthesised(source: Source, paren: re.Match[str], start: int, *, optional: bool) -> Found | None:
    text, name = source.text, paren["name"]
    at = _skip(text, paren.end())
    try:
        if text[at : at + 1] in ("{", "["):
            value, end, repaired = JsonReader(text).read(at)
            end = _skip(text, end)
            if text[end : end + 1] == ")":
                args, unwrapped = arguments(value, at, text_allowed=False)
                return Found(tool_name(name, source.tool_names), args, "react", start, end + 1, repaired or unwrapped)
        elif CALL_AHEAD.match(text, paren.start()):
            call = read_call(text, paren.start())
            return Found(tool_name(call.name, source.tool_names), call.args, "react", start, call.end)
    except Unreadable:
        if not optional:
            raise
    if optional:
        return None  # a remark behind the tool's name; the input follows under its own label
    raise Unreadable("malformed-call", f"The arguments of {name[:60]} at offset {at} cannot be read.", at)


def _with_input(source: Source, raw_name: str, start: int, pos: int, limit: int) -> Found:
    name = _clean(raw_name)
    if is_no_tool(name):
        raise Unreadable("no-action", f"The action at offset {start} names no tool.", start)
    if _CHOICE.search(name) and name not in source.tool_names:
        raise Unreadable("ambiguous", f"The action at offset {start} names more than one tool: {name[:60]!r}.", start)
    if not _NAME.fullmatch(name) or (_SPEECH.match(name) and name not in source.tool_names):
        raise Unreadable("malformed-call", f"The action at offset {start} is no tool's name: {name[:60]!r}.", start)
    args, end, repaired = _input(source, pos, limit)
    return Found(tool_name(name, source.tool_names), args, "react", start, end, repaired)


def _input(source: Source, pos: int, limit: int) -> tuple[dict[str, Any], int, bool]:
    """The input at `pos`: an object, or the bare text up to the next label. Returns arguments, end, repaired."""
    text = source.text
    at = _skip(text, pos)
    if at >= limit:
        return {}, min(pos, limit), at >= len(text)  # a text that ends here may have been cut
    fence = _FENCE.match(text, at)
    inside = _skip(text, fence.end()) if fence else at
    if (
        text[inside : inside + 1] == "{"
        or text.startswith('"{"', inside)
        or text.startswith("'{\"", inside)
        or text.startswith("\\{", inside)
    ):
        value, end, repaired = JsonReader(text).read(inside)
        args, unwrapped = arguments(value, inside)
        behind = behind_repeats(text, end, value)
        if text[_skip(text, behind) : _skip(text, behind) + 1] == "{":
            raise Unreadable("ambiguous", f"A second object follows the input at offset {behind}.", behind)
        return args, behind, repaired or unwrapped or behind > end
    if text[inside : inside + 1] == "[" and text[_skip(text, inside + 1) : _skip(text, inside + 1) + 1] == "{":
        value, end, repaired = JsonReader(text).read(inside)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            return value[0], end, True
    if fence:
        close = text.find(fence["ticks"], fence.end())
        if close < 0:
            raise Unreadable("cut-off", f"The block at offset {at} is never closed.", len(text))
        return {"input": text[fence.end() : close].rstrip()}, close + 3, False
    if source.fence_open_at(pos) and (shut := source.next_fence(at)):
        limit = min(limit, shut.start())
    turn = TURN_AT_END.search(text, at, limit)
    bare = _STOP_WORD.sub("", text[at : turn.start() if turn else limit]).rstrip().removesuffix("</s>").rstrip()
    if bare.endswith("\n```"):
        bare = bare[:-4].rstrip()
    end = at + len(bare)
    if _NOTHING.match(bare):
        return {}, end, False
    if len(bare) >= 2 and bare[0] in "\"'`" and bare[-1] == bare[0]:
        inner = bare[1:-1].replace("\\" + bare[0], bare[0])
        if bare[0] not in bare[1:-1].replace("\\" + bare[0], ""):
            return arguments(inner, at)[0], end, False
    return {"input": bare}, end, False


def _inline(source: Source) -> list[Found]:
    """`… Action: f Action Input: {…}` within one line."""
    text = source.text
    inline = _INLINE.search(text)
    if inline is None:
        return []
    labels = _labels(text)
    if any(x.kind in ("final", "answer") and x.start < inline.start() for x in labels):
        return []
    ends = [x.start for x in labels if x.kind in _STRONG and x.start > inline.end()]
    if result := _INLINE_RESULT.search(text, inline.end()):
        ends.append(result.start())
    return [_with_input(source, inline["name"], inline.start(), inline.end(), min(ends, default=len(text)))]


def _clean(name: str) -> str:
    name = name.strip().strip("*").strip().replace("\\_", "_")
    for left, right in ("[]", "<>", '""', "''", "``", "“”"):
        if len(name) > 2 and name[0] == left and name[-1] == right:
            name = name[1:-1].strip()
    return name.rstrip(".,;:。，").strip("`\"'")


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos
