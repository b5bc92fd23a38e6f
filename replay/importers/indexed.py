"""Messages whose fields are attributes with a number in their names: OpenInference and the older OpenLLMetry.

The numbers are read as numbers, and may begin at 1 or have holes: a hole is None, never closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replay.importers.shapes import Chat, decoded

_MAX_INDEX = 100_000


def listed(attributes: Mapping[str, Any], prefix: str) -> list[Any] | None:
    """What stands under `prefix.{number}`, in order, None where a number is missing; None where there is nothing."""
    tree: dict[str, Any] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        node = tree
        *path, last = key[len(start) :].split(".")
        for part in path:
            found = node.setdefault(part, {})
            if not isinstance(found, dict):
                found = node[part] = {}
            node = found
        node.setdefault(last, value)
    items = _as_list(tree)
    return items or None


def _as_list(node: Any) -> list[Any]:
    if not isinstance(node, dict):
        return []
    numbers = sorted(int(key) for key in node if key.isdecimal() and int(key) < _MAX_INDEX)
    return [node.get(str(number)) for number in range(numbers[-1] + 1)] if numbers else []


def openinference(attributes: Mapping[str, Any], which: str) -> list[Chat | None] | None:
    """`llm.input_messages` or `llm.output_messages` as chat messages."""
    items = listed(attributes, f"llm.{which}")
    if items is None:
        return None
    return [_openinference(item.get("message")) if isinstance(item, dict) else None for item in items]


def _openinference(data: Any) -> Chat | None:
    if not isinstance(data, dict):
        return None
    role = data.get("role")
    message: Chat = {"role": "assistant" if role == "model" else role, "content": data.get("content")}
    contents = [_content(part) for part in _as_list(data.get("contents")) if isinstance(part, dict)]
    if contents and message["content"] is None:
        message["content"] = contents
    for name in ("tool_call_id", "name"):
        if isinstance(data.get(name), str):
            message[name] = data[name]
    calls = [item.get("tool_call", {}) for item in _as_list(data.get("tool_calls")) if isinstance(item, dict)]
    if calls:
        message["tool_calls"] = [
            {"id": call.get("id", ""), "function": {"arguments": "{}", **_object(call.get("function"))}}
            for call in calls
            if isinstance(call, dict)
        ]
    return message


def _content(part: dict[str, Any]) -> Any:
    """A content block; the call of a `tool_use` block stands in it or beside it."""
    content = part.get("message_content", {})
    return {**content, "tool_call": part["tool_call"]} if isinstance(content, dict) and "tool_call" in part else content


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def openllmetry(attributes: Mapping[str, Any], which: str) -> list[Chat | None] | None:
    """`gen_ai.prompt` or `gen_ai.completion` as chat messages."""
    items = listed(attributes, f"gen_ai.{which}")
    if items is None:
        return None
    return [_openllmetry(item, which) if isinstance(item, dict) else None for item in items]


def _openllmetry(data: dict[str, Any], which: str) -> Chat:
    role = data.get("role", "assistant" if which == "completion" else None)
    content = data.get("content")
    if role != "tool":
        parts = decoded(content, 1)
        if isinstance(parts, list) and all(isinstance(part, dict) and "type" in part for part in parts):
            content = parts
    message: Chat = {"role": role, "content": content}
    for name in ("tool_call_id", "finish_reason"):
        if isinstance(data.get(name), str):
            message[name] = data[name]
    calls = [call for call in _as_list(data.get("tool_calls")) if isinstance(call, dict)]
    if calls:
        message["tool_calls"] = [
            {"id": c.get("id", ""), "function": {"name": c.get("name"), "arguments": c.get("arguments", "{}")}}
            for c in calls
        ]
    return message
