"""Messages in the shape of the GenAI conventions: `{"role", "parts": [...]}`, and back without loss.

Source: the JSON schemas `gen-ai-input-messages` and `gen-ai-output-messages` of semantic-conventions v1.41.
"""

from __future__ import annotations

from typing import Any

from kernel.record import Message, Reply, ToolCall, ToolSpec, compact_json, parse_json

DISPATCH_FIELDS = (
    "returns",
    "timeout_s",
    "side_effect",
    "volatile",
    "repeats",
    "isolate",
    "idempotency",
    "max_calls",
    "calls_per_second",
)
_DEFAULTS = ToolSpec(name="")


def message_to_json(message: Message) -> dict[str, Any]:
    """One message as `{"role", "parts", "name"?}`."""
    parts = _parts(message.content, message.tool_calls, message.reasoning, message)
    out: dict[str, Any] = {"role": message.role, "parts": parts}
    if message.name is not None:
        out["name"] = message.name
    return out


def message_from_json(data: Any) -> Message:
    """The inverse of `message_to_json`. Raises `ValueError` on another shape."""
    if not isinstance(data, dict) or not isinstance(data.get("parts"), list):
        raise ValueError("a message must be an object with a list of parts")
    content, calls, reasoning = "", [], None
    call_id: str | None = None
    for part in data["parts"]:
        kind = part.get("type")
        if kind == "text":
            content += str(part.get("content", ""))
        elif kind == "reasoning":
            reasoning = str(part.get("content", ""))
        elif kind == "tool_call":
            calls.append(_call_from_json(part))
        elif kind == "tool_call_response":
            call_id = part.get("id")
            value = part.get("response", part.get("result", ""))
            content += value if isinstance(value, str) else compact_json(value)
        else:
            raise ValueError(f"unknown message part {kind!r}")
    return Message(
        role=data.get("role", "user"),
        content=content,
        tool_calls=tuple(calls),
        tool_call_id=call_id,
        name=data.get("name"),
        reasoning=reasoning,
    )


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """The output message of a reply, with its finish reason in the conventions' place."""
    out: dict[str, Any] = {"role": "assistant", "parts": _parts(reply.text, reply.tool_calls, reply.reasoning, None)}
    if reply.finish_reason is not None:
        out["finish_reason"] = reply.finish_reason
    return out


def tool_to_json(tool: ToolSpec) -> dict[str, Any]:
    """A tool definition; what dispatch needs besides the conventions' fields is under `tracefirst`."""
    out: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        out["description"] = tool.description
    out["parameters"] = tool.parameters
    ours = {f: v for f in DISPATCH_FIELDS if (v := getattr(tool, f)) != getattr(_DEFAULTS, f)}
    if ours:
        out["tracefirst"] = ours
    return out


def tool_from_json(data: dict[str, Any]) -> ToolSpec:
    """The inverse of `tool_to_json`; also reads OpenAI's `{"type": "function", "function": {...}}`."""
    inner = data["function"] if isinstance(data.get("function"), dict) else data
    ours = {k: v for k, v in data.get("tracefirst", {}).items() if k in DISPATCH_FIELDS}
    return ToolSpec(
        name=str(inner.get("name", "")),
        description=str(inner.get("description") or ""),
        parameters=inner.get("parameters") or {},
        **ours,
    )


def _parts(
    content: str, calls: tuple[ToolCall, ...], reasoning: str | None, tool: Message | None
) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if reasoning is not None:
        parts.append({"type": "reasoning", "content": reasoning})
    if tool is not None and tool.tool_call_id is not None:
        parts.append({"type": "tool_call_response", "id": tool.tool_call_id, "response": content})
    elif content:
        parts.append({"type": "text", "content": content})
    for call in calls:
        part: dict[str, Any] = {"type": "tool_call", "name": call.name, "arguments": _object_if_compact(call.arguments)}
        if call.id:
            part["id"] = call.id
        parts.append(part)
    return parts


def _object_if_compact(text: str) -> Any:
    """Arguments as the conventions prefer them, an object, wherever the raw text can be had back from it."""
    if text[:1] == "{":
        try:
            value = parse_json(text)
        except ValueError:
            return text
        if compact_json(value) == text:
            return value
    return text


def _call_from_json(part: dict[str, Any]) -> ToolCall:
    arguments = part.get("arguments", "")
    text = arguments if isinstance(arguments, str) else compact_json(arguments)
    return ToolCall(name=str(part.get("name", "")), arguments=text, id=str(part.get("id") or ""))
