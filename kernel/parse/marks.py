"""The marks of all families in one table: what opens a call, as a pattern, and as it is written whole.

The readers search with the patterns. Half of an opener at the end of a reply is recognised by the whole ones, so a family
that is added here is never taken for a finished answer where it breaks off.
"""

from __future__ import annotations

import re

NAMESPACE = r"(?:[A-Za-z][\w-]{0,20}:|[|｜]{1,2}[A-Za-z]{1,12}[|｜]{1,2}\s?)?"
"""What may stand before the name of any tag of a call: `antml:`, `minimax:`, `｜DSML｜`."""
_TAG_NAME = r"[\w.:-]{1,128}"

PATTERNS = {
    "wrap": (
        rf"<{NAMESPACE}(?:(?:longcat_)?tool[_-]?(?:calls?|use)|function_?calls?)>|<start_function_call>|<\|tool_calls?\|?>"
        r"|<\|(?:tool_call|python)_start\|>|<\|action_start\|>(?:\s{0,4}<\|plugin\|>)?|<\|START_ACTION\|>"
        r"|<\|tools_prefix\|>|<[|｜]tool[▁_]calls(?:[▁_]section)?[▁_]begin[|｜]>|\[TOOL_CALLS?\]"
        r"|<(?:tools?|action|tool_code)>|\bfunctools(?=\[)"
    ),
    "function": rf"<{NAMESPACE}function\s?[=(/]\s?[\"']?(?P<fname>{_TAG_NAME})[\"']?\)?",
    "invoke": (
        rf"<{NAMESPACE}(?:invoke|function|tool|tool_call)\s{{1,4}}name\s?=\s?[\"']?(?P<iname>{_TAG_NAME})[\"']?"
        r"\s{0,4}(?P<empty>/)?>"
    ),
    "token": r"<[|｜]tool[▁_]call[▁_]begin[|｜]>|\b(?=function<[|｜]tool[▁_]sep[|｜]>)",
    "old": rf"<invoke>\s{{0,8}}<tool_name>\s{{0,8}}(?P<oname>{_TAG_NAME})\s{{0,8}}</tool_name>",
    "args": r"\[ARGS\]",
    "python": r"<\|python_tag\|>",
    "named": (
        r"^>>>(?P<nname>[A-Za-z_][\w.-]{0,127})\n(?=\{)"
        r"|<\|recipient\|>\s?(?P<rname>[A-Za-z_][\w.-]{0,127})\s{0,4}<\|content\|>\s{0,4}(?=\{)"
        r"|✿FUNCTION✿:\s?(?P<qname>[A-Za-z_][\w.-]{0,127})\s{0,4}✿ARGS✿:\s?"
    ),
    "over": r"^(?P<vname>[A-Za-z_][\w.-]{0,127})[ \t]{0,8}\n(?=\s{0,8}(?:```[ \t]{0,8}(?:json)?[ \t]{0,8}\n\s{0,8})?\{)",
    "glued": r"^[A-Za-z_][\w.-]{0,127}(?=\{\s?\")",
}
"""One pattern for each way to open a call with a mark; the groups in it hold the tool's name."""

_WHOLE = (
    "<tool_call>", "<tool_calls>", "<tool_use>", "<tool-call>", "<toolcall>", "<function_call>", "<function_calls>",
    "<functioncall>", "<longcat_tool_call>", "<start_function_call>", "<|tool_call|>", "<|tool_calls|>",
    "<|tool_call_start|>", "<|python_start|>", "<|python_tag|>", "<|action_start|>", "<|plugin|>", "<|start_action|>",
    "<|tools_prefix|>", "<|tool_calls_begin|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_sep|>", "<|recipient|>", "<|content|>", "<|channel|>commentary to=", "<|channel|>analysis to=", "<|constrain|>json",
    "<|dsml|function_calls>", "<|dsml|tool_calls>", "<|dsml|invoke name=", "<|dsml|parameter name=",
    "<function=", "<function name=", "<invoke name=", "<invoke>", "<tool name=", "<tool_name>", "<parameter=", "<parameter name=",
    "<parameters>", "<arg_key>", "<arg_value>", "<execute_bash>", "<execute_ipython>", "<execute_python>", "<tool_code>",
    "[tool_calls]", "[args]", "[call_id]", "✿function✿:", "✿args✿:",
)  # fmt: skip
"""The openers as they are written whole, in lower case with plain bars and underscores; namespaces are left out."""
_PLAIN = str.maketrans({"｜": "|", "▁": "_"})
_NAMESPACE = re.compile(r"\A<[a-z][\w-]{0,20}:")
_HALF_NAMESPACE = re.compile(r"<[a-z][\w-]{0,20}:?\Z")
_TAIL = 200

OPENER = re.compile(
    rf"</?\|?{NAMESPACE}(?:tool_?calls?|function_?calls?)\b|\[TOOL_CALLS?\]|\[ARGS\]|<{NAMESPACE}function[=_ (]|<{NAMESPACE}invoke\b"
    r"|<[|｜]tool|DSML|\bto=functions\.|<\|python_(?:tag|start)|<start_function_call>|<\|action_start|<\|START_ACTION|<arg_key>"
    r"|<\|tools_prefix|<\|recipient\|>|✿FUNCTION✿|\bfunctools\[",
    re.IGNORECASE,
)
"""What nobody writes into an answer who does not mean to call, or to speak of calls."""

_LABEL_OPEN = re.compile(
    r"[ \t>*_#\-]{0,12}(?:action(?:[ _]inputs?)?|动作(?:输入)?|行动(?:输入)?|操作(?:输入)?)[ \t]{0,4}\d{0,4}[*_]{0,3}[:：][*_ \t]*"
    r"(?P<name>[^\W\d][\w.-]{0,127})?\Z",
    re.IGNORECASE,
)
_HALF_LABEL = re.compile(
    r"[ \t>*_#]{0,8}Act(?:i|io|ion|ion I|ion In|ion Inp|ion Inpu|ion Input)?\Z|(?:动作|行动|操作)(?:输|输入)?\Z"
)
_JSON_OPEN = re.compile(
    r"(?:\A|\n)[ \t]{0,8}\[?\s{0,8}\{\s{0,80}(?:[\"'“][\w ]{0,30}\Z|\Z|[\"'“](?:type|id|action|tool|name|function|tool_name"
    r"|function_name|tool_calls?|thought|arguments|parameters|args)[\"'”]\s{0,8}(?::[^{}]*)?\Z)"
)
_CALL_OPEN = re.compile(r"[ \t]{0,8}\[?\s{0,4}(?:print\()?(?P<name>[A-Za-z_][\w.-]{0,127})\((?:[^()\n]{0,200})\Z")
_NAME_OPEN = re.compile(
    r"(?:>>>|call:|to=functions\.|\[|✿FUNCTION✿:\s?)(?P<name>[A-Za-z_][\w.-]{0,127})?(?:\{[^{}]{0,200})?\Z",
    re.IGNORECASE,
)
_FENCE_LINE = re.compile(r"^[ \t]{0,8}(?:```|~~~)", re.MULTILINE)
_FENCE_AT_END = re.compile(r"[ \t]{0,8}(?:```|~~~)[ \t]*(?:[\w+.-]{1,30})?\s*\Z")


def half_opener(text: str, tool_names: frozenset[str]) -> int | None:
    """Where the opener begins that a text ends in, whole or broken off, with nothing of a call behind it; else None."""
    end = len(text.rstrip())
    start = max(0, end - _TAIL)
    tail = text[start:end]
    line = tail.rfind("\n") + 1
    if (at := _half_tag(tail)) is not None:
        return start + at
    if line and _HALF_LABEL.match(tail, line):
        return start + line
    for pattern in (_LABEL_OPEN, _NAME_OPEN):
        match = pattern.match(tail, line)
        if match and (match["name"] is None or any(name.startswith(match["name"]) for name in tool_names)):
            return start + line
    if "{" in tail and (match := _JSON_OPEN.search(tail)):
        return start + match.start()
    if (match := _CALL_OPEN.match(tail, line)) and match["name"] in tool_names:
        return start + line
    if _FENCE_AT_END.match(tail, line) and len(_FENCE_LINE.findall(text)) % 2:
        return start + line
    return None


def _half_tag(tail: str) -> int | None:
    at = max(tail.rfind("<"), tail.rfind("["), tail.find("✿", tail.rfind("\n") + 1))
    if at < 0:
        return None
    part = tail[at:].lower().translate(_PLAIN)
    at_line_start = not tail[:at].rpartition("\n")[2].strip()
    if at_line_start and _HALF_NAMESPACE.match(part):
        return at
    if len(part) < 3 and not at_line_start:
        return None
    bare = _NAMESPACE.sub("<", part)
    for opener in _WHOLE:
        goes_on = opener[-1] == "=" and bare.startswith(opener) and not {">", "\n"} & set(bare[len(opener) :])
        if goes_on or opener.startswith((part, bare)):
            return at
    return None
