"""Calls behind a marker of the model's own format: `<tool_call>`, `[TOOL_CALLS]`, `<｜tool▁call▁begin｜>`, `<invoke>` …

One pass from left to right. A marker says that a call begins; what stands behind it says how it is written, since models
mix the two. A wrapper around calls is itself only a marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kernel.parse.gemma import read_braced
from kernel.parse.jsonish import MORE_PAIRS, Json, JsonReader
from kernel.parse.marks import PATTERNS
from kernel.parse.model import Found, Unreadable
from kernel.parse.pythonic import CALL_AHEAD, read_call, read_calls
from kernel.parse.quoting import is_shown
from kernel.parse.shape import arguments, calls_in, is_no_tool, tool_name, usual_call
from kernel.parse.source import Source
from kernel.parse.stops import STOP, behind_result, refuse_choice
from kernel.parse.strictjson import behind_repeats
from kernel.parse.xmlcalls import read_arg_pairs, read_named_tags, read_parameters

_MARK = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()) + rf"|(?P<json>\{{)|{STOP}",
    re.MULTILINE | re.IGNORECASE,
)
_SOFT = re.compile(r"<(?:tools?|action|tool_code|tool[_-]?use)>", re.IGNORECASE)
_FENCE = re.compile(r"\s{0,80}(?:```|~~~)(?:[ \t]{0,8}\w{0,20}\s{0,8})")
_CLOSE = (
    r"(?:</(?:\w{1,12}:)?\w{0,20}(?:calls?|tools?|use|action|code|function)>|<function>"
    r"|(?P<opening><\|?tool_calls?\|?>)|<[|｜]?/?tool[▁_]calls?(?:[▁_]section)?(?:[▁_]end)?[|｜]?>|<tool_call\|>|<\|python_end\|>|<end_function_call>|<\|(?:/tool_calls?|action_end"
    r"|END_ACTION|tools_suffix|eom_id|eot_id|im_end|call)\|>)"
)
_END_MARK = re.compile(_CLOSE, re.IGNORECASE)
_ENDING = re.compile(rf"[}}\]\s]{{0,40}}(?:(?:```|~~~)\s{{0,8}})?{_CLOSE}", re.IGNORECASE)
_SPACE = re.compile(r"\s*+")
_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,127}+")
_AFTER_NAME = re.compile(
    r"(?:\[CALL_ID\][\w-]{1,64})?(?P<args>\[ARGS\])?\s{0,8}(?:(?:```|~~~)[ \t]{0,8}\w{0,20}\s{0,8})?(?P<object>\{)"
    r"|\s{0,80}(?P<pairs><arg_key>)|\s{0,80}(?P<close></[\w:]{0,30}tool_call>)|(?P<cut>\[ARGS\])"
)
_ID = re.compile(
    r"\s{0,8}(?P<id>[^<>|｜\n]{1,160}?)\s{0,8}<[|｜](?:tool[▁_]sep|tool_call_argument_begin|tool_sep)[|｜]>"
)
_INVOKE_AHEAD = re.compile(r"\s{0,8}<(?:steptml:)?invoke\s", re.IGNORECASE)
_NAMED_AFTER_SEP = re.compile(r"\s{0,8}([A-Za-z_][\w.-]{0,127})\s{0,8}(?=```|\{)")
_REST = re.compile(r"\s*+(?:```\s*+)?(?:<\|\w{1,40}\|>|</s>|\s)*+\Z")
_TOKEN = re.compile(r"<\|\w{1,40}\|>")
_GLUED_TRIES = 32

_Reading = tuple[list[Found], int] | None


def read_tagged(source: Source) -> list[Found]:
    """Find the marked calls of a text in order, up to an invented result or a final answer.

    Raises:
        Unreadable: the first marker is not followed by a call that can be read.
    """
    text, calls, reader = source.text, list[Found](), JsonReader(source.text)
    empty: re.Match[str] | None = None
    pos, tries, spare = 0, _GLUED_TRIES, 2 * len(text) + 1000
    while mark := _MARK.search(text, pos):
        start, pos = mark.span()
        if mark["final"] or mark["turn"] or (mark["result"] and calls):
            break
        if mark["result"]:
            pos = behind_result(text, start, pos)
            continue
        if mark["json"]:
            if spare > 0:
                end, cost = _end_of_json(source, reader, start)
                if end is None:
                    break  # a JSON action outside of any marker: not ours, and whatever follows comes after it
                pos, spare = end, spare - cost
            continue
        kind = mark.lastgroup if mark.lastgroup in _READERS else next((k for k in _READERS if mark[k]), None)
        if kind in ("glued", "over"):
            tries -= 1
        if (
            kind is None
            or (kind in ("glued", "over") and tries < 0)
            or (text[start - 1 : start] == "`" and text[pos : pos + 1] == "`")
            or source.is_code(start)
        ):
            continue
        try:
            reading = _READERS[kind](source, mark)
        except Unreadable:
            if calls:
                break
            raise
        if reading is None:
            pos = max(pos, start + 1)  # a mark may have no width
            if (
                kind not in ("glued", "over")
                and not _SOFT.match(mark[0])
                and (text[start - 1 : start] in ("", "\n") or mark[0][1:2] in "|｜T")
            ):
                empty = empty or mark
            continue
        found, pos = reading
        if found and not is_shown(source, found[0]._replace(start=start), pos):
            refuse_choice(text, calls, found, start)
            calls += [call._replace(start=start) if i == 0 else call for i, call in enumerate(found)]
            calls[-1] = calls[-1]._replace(end=pos)
    if not calls and empty:
        message = f"The marker {empty[0][:40]!r} at offset {empty.start()} announces a call that does not follow."
        raise Unreadable("malformed-call", message, empty.start())
    return calls


def _end_of_json(source: Source, reader: JsonReader, start: int) -> tuple[int | None, int]:
    """The end of unmarked JSON, whose strings may hold markers, or None where it is an action; and how much was read in
    vain."""
    try:
        value, end, _ = reader.read(start)
        return (None if calls_in(value, start, source.tool_names) else end), 0
    except Unreadable as fault:
        return start + 1, max(fault.position, reader.reached) - start + 50


# -- what may stand behind a marker ------------------------------------------------------------------------------------


def _wrap(source: Source, mark: re.Match[str]) -> _Reading:
    text, family = source.text, _family(mark[0])
    pos = _skip(text, mark.end())
    if fence := _FENCE.match(text, pos):
        pos = fence.end()
    char = text[pos : pos + 1]
    if char == "{" or (char == "[" and text[_skip(text, pos + 1) : _skip(text, pos + 1) + 1] in ("{", "]")):
        return _json_calls(source, pos, family, soft=_SOFT.match(mark[0]) is not None)
    if CALL_AHEAD.match(text, _skip(text, pos + 1) if char == "[" else pos):
        calls, end = read_calls(text, pos, "pythonic", source.tool_names)
        return calls, _ending(text, end)
    if text.startswith("call:", pos):
        return read_braced(text, pos + 5, source.tool_names, _END_MARK)
    if name := _NAME.match(text, pos):
        return _after_name(source, name, family)
    return None


def _after_name(source: Source, name: re.Match[str], family: str) -> _Reading:
    text, after = source.text, _AFTER_NAME.match(source.text, name.end())
    if after is None or is_no_tool(name[0]):
        return None
    plain = tool_name(name[0], source.tool_names)
    if after["object"]:
        args, end, repaired = _object(text, after.start("object"))
        return [Found(plain, args, family, name.start(), end, repaired)], _ending(text, end)
    if after["cut"]:
        raise Unreadable("cut-off", f"The call at offset {name.start()} has no arguments behind [ARGS].", after.end())
    read = read_arg_pairs(text, name.end())
    return [Found(plain, read.args, "glm", name.start(), read.end, read.repaired)], read.end


def _function(source: Source, mark: re.Match[str]) -> _Reading:
    """`<function=f>{…}</function>`, with or without its `>`, `=` or parentheses, or with parameter tags."""
    text, name = source.text, tool_name(mark["fname"], source.tool_names)
    pos = _skip(text, mark.end())
    while text[pos : pos + 1] in (">", "=", "(", ",") and pos < mark.end() + 6:
        pos = _skip(text, pos + 1)
    if text[pos : pos + 1] == "{":
        args, end, repaired = _object(text, pos)
        end = end + 1 if text[end : end + 1] == ")" else end
        return [Found(name, args, "llama", mark.start(), end, repaired)], _ending(text, end)
    read = read_parameters(text, pos, entities=False)
    return [Found(name, read.args, "qwen-xml", mark.start(), read.end, read.repaired)], read.end


def _invoke(source: Source, mark: re.Match[str]) -> _Reading:
    text, name = source.text, tool_name(mark["iname"], source.tool_names)
    if mark["empty"]:
        return [Found(name, {}, "invoke", mark.start(), mark.end())], mark.end()
    pos = _skip(text, mark.end())
    if text[pos : pos + 1] == "{":
        args, end, repaired = _object(text, pos)
        return [Found(name, args, "invoke", mark.start(), end, repaired)], _ending(text, end)
    read = read_parameters(text, pos, entities="DSML" not in mark[0])
    return [Found(name, read.args, "invoke", mark.start(), read.end, read.repaired)], read.end


def _old(source: Source, mark: re.Match[str]) -> _Reading:
    """Claude's first format: the parameters are tags of their own names."""
    read = read_named_tags(source.text, mark.end())
    name = tool_name(mark["oname"], source.tool_names)
    return [Found(name, read.args, "invoke", mark.start(), read.end, read.repaired)], read.end


def _token(source: Source, mark: re.Match[str]) -> _Reading:
    """DeepSeek's and Kimi's call: an id or name, a separator, the arguments, perhaps fenced."""
    text, head = source.text, _ID.match(source.text, mark.end())
    if head is None:
        return None
    pos, name, family = head.end(), head["id"], "kimi" if "argument" in head[0] else "deepseek"
    if name == "function" and (after := _NAMED_AFTER_SEP.match(text, pos)):
        pos, name = after.end(), after[1]
    if _INVOKE_AHEAD.match(text, pos):
        return None  # Step's calls are tags within tokens
    if fence := _FENCE.match(text, pos):
        pos = fence.end()
    args, end, repaired = _object(text, _skip(text, pos))
    name = tool_name(name, source.tool_names, indexed=family == "kimi")
    name, args = _unpacked(source, name, args, mark.start())
    return [Found(name, args, family, mark.start(), end, repaired)], _ending(text, end)


def _unpacked(source: Source, name: str, args: dict[str, Any], at: int) -> tuple[str, dict[str, Any]]:
    """The call that stands whole within the arguments of one whose own name is a mere id, or the same.

    Raises:
        Unreadable: `ambiguous`; both names are tools'.
    """
    inner = usual_call(args) if len(args) == 2 else None
    if inner is None or (name in source.tool_names and inner.name not in source.tool_names):
        return name, args
    if inner.name == name or name not in source.tool_names:
        return (inner.name, inner.args) if inner.name in source.tool_names else (name, args)
    raise Unreadable("ambiguous", f"The call at offset {at} names {name[:60]!r} and {inner.name[:60]!r}.", at)


def _args(source: Source, mark: re.Match[str]) -> _Reading:
    """Mistral's `name[ARGS]{…}` without its own marker in front."""
    start, end_of_name = _name_before(source.text, mark.start())
    if source.text.endswith("[CALL_ID]", 0, start):
        start, end_of_name = _name_before(source.text, start - 9)
    name = _NAME.fullmatch(source.text, start, end_of_name)
    if name is None:
        return None
    args, end, repaired = _object(source.text, _skip(source.text, mark.end()))
    return [Found(tool_name(name[0], source.tool_names), args, "mistral", start, end, repaired)], end


def _python(source: Source, mark: re.Match[str]) -> _Reading:
    """Behind `<|python_tag|>`: JSON calls, one built-in call, or code that an end-of-message token closes."""
    text, pos = source.text, _skip(source.text, mark.end())
    if text[pos : pos + 1] == "{":
        return _json_calls(source, pos, "llama", soft=False)
    token = _TOKEN.search(text, pos)
    code_end = token.start() if token and token[0] == "<|eom_id|>" else -1
    if CALL_AHEAD.match(text, pos):
        try:
            call = read_call(text, pos)
            name = tool_name(call.name.removesuffix(".call"), source.tool_names)
            if call.keyworded and text[call.end :].lstrip()[:2] in ("", "<|", ";"):
                return [Found(name, call.args, "llama", pos, call.end)], _ending(text, call.end)
        except Unreadable as fault:
            if code_end < 0 or fault.rule == "cut-off":
                raise
    if code_end <= pos:
        return None
    return [Found("python", {"code": text[pos:code_end].strip()}, "llama", pos, code_end)], code_end + 10


def _named(source: Source, mark: re.Match[str]) -> _Reading:
    name = mark["nname"] or mark["rname"] or mark["qname"]
    if name == "all" or source.text[mark.end() : mark.end() + 1] != "{":
        return None
    args, end, repaired = _object(source.text, mark.end())
    family = "qwen-agent" if mark["qname"] else "functionary"
    return [Found(tool_name(name, source.tool_names), args, family, mark.start(), end, repaired)], end


def _glued(source: Source, mark: re.Match[str]) -> _Reading:
    """`f{…}</function>`: the opening tag is lost, the closing one marks the call."""
    try:
        args, end, repaired = _object(source.text, mark.end())
    except Unreadable:
        return None
    if not source.text.startswith("</function>", _skip(source.text, end)):
        return None
    return [Found(tool_name(mark[0], source.tool_names), args, "llama", mark.start(), end, repaired)], _ending(
        source.text, end
    )


def _over(source: Source, mark: re.Match[str]) -> _Reading:
    """A known tool's name on a line of its own, over the arguments that end the text."""
    text, name = source.text, mark["vname"]
    if name not in source.tool_names:
        return None
    fence = _FENCE.match(text, mark.end())
    pos = fence.end() if fence else _skip(text, mark.end())
    args, end, repaired = _object(text, pos)
    if calls_in(args, pos, source.tool_names) or not _REST.match(text, end):
        return None
    return [Found(name, args, "glm", mark.start(), end, repaired)], end


_READERS: dict[str, Callable[[Source, re.Match[str]], _Reading]] = {
    "wrap": _wrap,
    "function": _function,
    "invoke": _invoke,
    "token": _token,
    "old": _old,
    "args": _args,
    "python": _python,
    "named": _named,
    "glued": _glued,
    "over": _over,
}


# -- helpers -----------------------------------------------------------------------------------------------------------


def _json_calls(source: Source, pos: int, family: str, *, soft: bool) -> _Reading:
    """JSON actions one behind the other, up to the closing tag."""
    text, reader, calls = source.text, JsonReader(source.text, _END_MARK), list[Found]()
    while True:
        start = pos
        try:
            value, pos, repaired = reader.read(start)
            closed = _ENDING.match(text, pos)
            shapes = calls_in(value, start, source.tool_names, wrapped=closed is not None)
            if MORE_PAIRS.match(text, pos):
                raise Unreadable("malformed-json", f"The JSON goes on after it was closed at offset {pos}.", pos)
        except Unreadable:
            if calls:
                return calls, pos
            raise
        if not shapes:
            if calls or soft or value == []:
                return calls or None, pos  # type: ignore[return-value]
            raise Unreadable("malformed-call", f"The JSON at offset {start} names no tool with arguments.", start)
        calls += [shape.found(family, start, pos, repaired=repaired) for shape in shapes]
        if closed:
            return calls, _behind(closed)
        at = _skip(text, pos)
        at = _skip(text, at + 1) if text[at : at + 1] in (",", ";") else at
        if text[at : at + 1] != "{":
            return calls, pos
        pos = at


def _object(text: str, pos: int) -> Json:
    """The arguments object at `pos`."""
    if text[pos : pos + 1] not in ("{", "[", '"'):
        if pos >= len(text):
            raise Unreadable("cut-off", "The text ends where the arguments of a call are missing.", len(text))
        raise Unreadable("malformed-call", f"Expected the arguments of a call at offset {pos}.", pos)
    value, end, repaired = JsonReader(text, _END_MARK).read(pos)
    args, unwrapped = arguments(value, pos, text_allowed=False)
    behind = behind_repeats(text, end, value)
    end, repaired = behind, repaired or behind > end
    if MORE_PAIRS.match(text, end):
        raise Unreadable("malformed-json", f"The JSON goes on after it was closed at offset {end}.", end)
    return Json(args, end, repaired or unwrapped)


def _name_before(text: str, end: int) -> tuple[int, int]:
    start = end
    while start > max(0, end - 128) and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        start -= 1
    return start, end


def _ending(text: str, pos: int) -> int:
    closing = _ENDING.match(text, pos)
    return _behind(closing) if closing else pos


def _behind(closing: re.Match[str]) -> int:
    """The end of a closing tag; the start of one that only stands where a closing tag belongs, for it may open a call."""
    return closing.start("opening") if closing["opening"] else closing.end()


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _family(marker: str) -> str:
    lowered = marker.lower()
    if "[tool_call" in lowered:
        return "mistral"
    return "hermes" if lowered in ("<tool_call>", "<tool_calls>") else "marked"
