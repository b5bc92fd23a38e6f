"""Which JSON values are calls: the key names in use, the wrappers around them, and the forms arguments take."""

from __future__ import annotations

import re
from collections.abc import Collection
from math import isfinite
from typing import Any, NamedTuple

from kernel.parse.jsonish import JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.strictjson import behind_repeats, strict

NAME_KEYS = (
    "action",
    "tool",
    "name",
    "function",
    "tool_name",
    "function_name",
    "recipient_name",
    "toolname",
    "动作",
    "行动",
    "操作",
    "工具",
)
INPUT_KEYS = (
    "action_input",
    "input",
    "tool_input",
    "actioninput",
    "toolinput",
    "动作输入",
    "行动输入",
    "操作输入",
    "输入",
)
ARG_KEYS = ("args", "arguments", "parameters", *INPUT_KEYS, "tool_args", "params", "参数")
_LIST_KEYS = ("tool_calls", "tool_uses", "function_calls", "calls", "actions")
_NESTED_KEYS = ("action", "function", "function_call", "tool_call", "tool", "command")
_THOUGHT_KEYS = ("thought", "thoughts", "reasoning")
_NO_TOOL = re.compile(
    r"(?:none|n/?a|null|nil|nothing|no[ _](?:tool|action|function)\b.*|无|无需.*|不需要.*)\Z", re.IGNORECASE
)
_NOT_USUAL = frozenset({"none", "null", "nil", "nothing", "na", "no_tool", "no_action", "no_function"})
_PREFIX = re.compile(r"(?:functions?|default_api)[.:]", re.IGNORECASE)
_KIMI = re.compile(r"functions?[._:]?(?P<name>.+?)[:_]?[0-9]{1,4}\Z")
_INDEX = re.compile(r"(?P<name>.+):[0-9]{1,4}\Z")


class Shape(NamedTuple):
    """A JSON value read as a call."""

    name: str
    args: dict[str, Any]
    repaired: bool
    thought: str
    intent: str | None
    estimated_cost: float | None

    def found(self, family: str, start: int, end: int, *, repaired: bool = False) -> Found:
        thought, intent, cost = self.thought, self.intent, self.estimated_cost
        return Found(self.name, self.args, family, start, end, self.repaired or repaired, thought, intent, cost)


_PLAIN_KEYS = frozenset({"thought", "intent", "estimated_cost", "id", "type"})
_NAME_SET, _ARG_SET = frozenset(NAME_KEYS), frozenset(ARG_KEYS)


def usual_call(value: Any) -> Shape | None:
    """The plainest action read quickly: one name, one object of arguments, and known siblings. None says nothing."""
    if not isinstance(value, dict):
        return None
    name = args = None
    for key, inner in value.items():
        if key in _NAME_SET:
            if name is not None or not isinstance(inner, str):
                return None
            name = inner
        elif key in _ARG_SET:
            if args is not None or not isinstance(inner, dict):
                return None
            args = inner
        elif key not in _PLAIN_KEYS:
            return None
    if name is None or args is None or "type" in args or not name.isidentifier() or name.lower() in _NOT_USUAL:
        return None
    if len(value) == 2:
        return Shape(name, args, False, "", None, None)
    thought, intent = value.get("thought", ""), value.get("intent")
    return Shape(
        name,
        args,
        False,
        thought if isinstance(thought, str) else "",
        intent if isinstance(intent, str) else None,
        _cost(value),
    )


def usual_keys(value: Any) -> tuple[str, str] | None:
    """The keys of name and arguments where an action has these two keys only, in this order."""
    if type(value) is not dict or len(value) != 2:
        return None
    first, second = value
    return (first, second) if first in _NAME_SET and second in _ARG_SET else None


def is_usual_name(name: Any, args: Any) -> bool:
    """Whether name and arguments of an action need no second look."""
    if type(name) is not str or type(args) is not dict or "type" in args:
        return False
    return name.isidentifier() and name.lower() not in _NOT_USUAL


def is_no_tool(name: str) -> bool:
    """Whether a name says that no tool is wanted (`None`, `N/A`, `no action needed`)."""
    return _NO_TOOL.match(name.strip()) is not None


def tool_name(name: str, tool_names: Collection[str] = (), *, indexed: bool = False) -> str:
    """The tool's own name: without a `functions.` prefix, escaped underscores and, where `indexed`, Kimi's call index."""
    name = name.strip().replace("\\_", "_")
    if name in tool_names:
        return name
    if name.lower() == "final answer":
        return "final_answer"  # LangChain's spelling
    if indexed:
        glued = [n for n in tool_names if re.fullmatch(rf"functions?[._:]?{re.escape(n)}[:_]?[0-9]{{1,4}}", name)]
        if len(glued) == 1:
            return glued[0]
        match = (_KIMI if name.startswith("function") and not name.startswith("functions.") else _INDEX).match(name)
        name = match["name"] if match else name
    return _PREFIX.sub("", name, count=1) if _PREFIX.match(name) else name


def calls_in(
    value: Any, pos: int, tool_names: Collection[str] = (), *, wrapped: bool = False, depth: int = 0
) -> list[Shape]:
    """Read a JSON value as calls; empty where it is plain data.

    `wrapped` says that a tag marks the value as a call, so that a name alone is a call without arguments.

    Raises:
        Unreadable: it is a call, with two names or two sets of arguments, or with arguments that are no object.
    """
    if isinstance(value, list):
        shapes = [calls_in(item, pos, tool_names, wrapped=wrapped, depth=depth + 1) for item in value if depth < 4]
        return [shape for group in shapes for shape in group] if all(shapes) else []
    if not isinstance(value, dict) or depth > 4:
        return []
    keys = {_key(key): inner for key, inner in value.items()}
    for key in _LIST_KEYS:
        if isinstance(keys.get(key), list):
            return calls_in(keys[key], pos, tool_names, wrapped=True, depth=depth + 1)
    for key in _NESTED_KEYS:
        if isinstance(nested := keys.get(key), dict):
            merged = {**{k: v for k, v in keys.items() if k not in NAME_KEYS and k not in _NESTED_KEYS}, **nested}
            return calls_in(merged, pos, tool_names, wrapped=wrapped, depth=depth + 1)
    return _one_call(keys, pos, tool_names, wrapped=wrapped, depth=depth)


def _key(key: str) -> str:
    return (
        key
        if key.islower() and " " not in key and "\\" not in key
        else key.lower().replace(" ", "_").replace("\\_", "_")
    )


def _one_call(keys: dict[str, Any], pos: int, tool_names: Collection[str], *, wrapped: bool, depth: int) -> list[Shape]:
    names = [keys[key] for key in NAME_KEYS if isinstance(keys.get(key), str) and keys[key].strip()]
    if not names:
        return []
    given = [key for key in ARG_KEYS if key in keys]
    no_arguments = (wrapped and len(keys) == 1) or ("name" not in keys and names[0] in tool_names and len(keys) <= 2)
    if not given and not no_arguments:
        return []
    if len(set(names)) > 1:
        message = f"The action at offset {pos} has two names: {names[0][:60]!r} and {names[1][:60]!r}."
        raise Unreadable("ambiguous", message, pos)
    if any(keys[key] != keys[given[0]] for key in given[1:]):
        message = f"The action at offset {pos} has two sets of arguments: {given[0]!r} and {given[1]!r}."
        raise Unreadable("ambiguous", message, pos)
    args = keys[given[0]] if given else None
    if is_no_tool(names[0]) or (isinstance(args, dict) and args.get("type") == "object" and "properties" in args):
        return []  # nothing wanted, or a tool's definition repeated
    if names[0].startswith("multi_tool_use"):
        return calls_in(args, pos, tool_names, depth=depth + 1)
    read, repaired = arguments(args, pos, text_allowed=given != [] and given[0] in INPUT_KEYS)
    thought = next((keys[k] for k in _THOUGHT_KEYS if isinstance(keys.get(k), str)), "")
    intent = keys.get("intent")
    name = tool_name(names[0], tool_names)
    return [Shape(name, read, repaired, thought, intent if isinstance(intent, str) else None, _cost(keys))]


def _cost(keys: dict[str, Any]) -> float | None:
    cost = keys.get("estimated_cost")
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        return None
    try:
        return float(cost) if isfinite(cost) and cost >= 0 else None
    except OverflowError:
        return None


def arguments(value: Any, pos: int, *, text_allowed: bool = True) -> tuple[dict[str, Any], bool]:
    """Read an arguments value as an object, and say whether it was repaired.

    Nothing at all is no arguments; a string may hold the object as JSON; another string is the one argument `input`.
    """
    if isinstance(value, dict):
        return value, False
    if value is None:
        return {}, False
    if isinstance(value, str):
        return _from_string(value, pos, text_allowed=text_allowed)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0], True
    if text_allowed:
        return {"input": value}, False
    message = f"The arguments of the action at offset {pos} are a {type(value).__name__}, not an object."
    raise Unreadable("not-an-object", message, pos)


def _from_string(text: str, pos: int, *, text_allowed: bool) -> tuple[dict[str, Any], bool]:
    """A string that looks like JSON is JSON: only an object can then be the arguments, and null and nothing are none."""
    inner = text.strip()
    if not inner or inner == "null":
        return {}, False
    if inner[0] != "{" or inner[1:].lstrip()[:1] not in ('"', "}", "'", "\\"):
        if not text_allowed and (data := strict(inner)) and data[1] == len(inner):
            if not isinstance(data[0], str):
                return arguments(data[0], pos, text_allowed=False)
            text = data[0]
        return {"input": text}, False
    if (found := strict(inner)) and found[1] == len(inner) and isinstance(found[0], dict):
        return found[0], False
    try:
        value, end, _ = JsonReader(inner).read(0)
    except Unreadable as inside:
        message = f"The arguments of the action at offset {pos} are a string with broken JSON. {inside.message}"
        raise Unreadable(inside.rule, message, pos) from None
    if inner[behind_repeats(inner, end, value) :].strip("} \t\r\n"):
        message = f"The arguments of the action at offset {pos} are a string with more than one JSON object."
        raise Unreadable("ambiguous", message, pos)
    return value, True
