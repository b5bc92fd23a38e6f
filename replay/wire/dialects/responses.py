"""OpenAI Responses. The history is in the request, or the server keeps it and the request names the response before."""

from __future__ import annotations

from typing import Any

from kernel.record import Message, Reply, ToolCall, compact_json
from replay.wire.dialects.model import (
    Dialect,
    Question,
    Strange,
    call,
    items,
    joined,
    obj,
    params,
    text,
    tool,
    usage,
)

_NAMES = {"model": "model", "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_output_tokens"}
_APART = ("input", "instructions", "tools", "previous_response_id")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _read(body: dict[str, Any], path: str) -> Question:
    given = body.get("input")
    if given is not None and not isinstance(given, (str, list)):
        raise Strange("/input: neither text nor a list")
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append(Message(role="system", content=joined(body["instructions"])))
    if isinstance(given, str):
        messages.append(Message(role="user", content=given))
    else:
        messages.extend(_messages(items(given)))
    return Question(
        messages=tuple(messages),
        tools=tuple([_tool(obj(one)) for one in items(body.get("tools"))]),
        params=params(body, _NAMES, _APART),
        previous=text(body.get("previous_response_id")) or None,
    )


def _tool(one: dict[str, Any]) -> Any:
    return tool(one.get("name") or one.get("type"), one.get("description"), one.get("parameters"))


def _messages(given: list[Any]) -> list[Message]:
    """Items as messages: what the model said in one go (texts, calls) is one message."""
    out: list[Message] = []
    said: list[dict[str, Any]] = []
    for item in map(obj, given):
        kind = item.get("type", "message")
        if kind == "reasoning" or kind.endswith("_call") or (kind == "message" and item.get("role") == "assistant"):
            said.append(item)
            continue
        if said:
            out.append(_spoken(said))
            said = []
        if kind == "message":
            role = "system" if item.get("role") in ("system", "developer") else "user"
            out.append(Message(role=role, content=joined(item.get("content"))))  # type: ignore[arg-type]
        elif kind.endswith("_call_output"):
            out.append(Message(role="tool", content=joined(item.get("output")), tool_call_id=text(item.get("call_id"))))
        else:
            out.append(Message(role="user", content=compact_json(item)))
    if said:
        out.append(_spoken(said))
    return out


def _spoken(said: list[dict[str, Any]]) -> Message:
    words, calls = _words(said)
    return Message(role="assistant", content=words, tool_calls=calls)


def _words(said: list[dict[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    words = [joined(item.get("content")) for item in said if item.get("type", "message") == "message"]
    calls = [
        call(item.get("name") or item["type"], item.get("arguments", item.get("input", item.get("action"))), _id(item))
        for item in said
        if str(item.get("type", "")).endswith("_call")
    ]
    return "\n".join(words), tuple(calls)


def _id(item: dict[str, Any]) -> Any:
    return item.get("call_id") or item.get("id")


def _reply(body: dict[str, Any]) -> Reply:
    output = body.get("output")
    if not isinstance(output, list):
        raise Strange("/output: missing or not a list")
    words, calls = _words([obj(item) for item in output])
    spent = obj(body.get("usage"))
    status = text(body.get("status"))
    reason = text(obj(body.get("incomplete_details")).get("reason")) if status == "incomplete" else ""
    return Reply(
        text=words,
        tool_calls=calls,
        finish_reason=reason or ("tool_calls" if calls and status == "completed" else status) or None,
        usage=usage(
            input_tokens=spent.get("input_tokens"),
            output_tokens=spent.get("output_tokens"),
            cache_read_tokens=obj(spent.get("input_tokens_details")).get("cached_tokens"),
            reasoning_tokens=obj(spent.get("output_tokens_details")).get("reasoning_tokens"),
        ),
        model=text(body.get("model")) or None,
        response_id=text(body.get("id")) or None,
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    for event in reversed(events):
        if event.get("type") in _ENDS and isinstance(event.get("response"), dict):
            return dict(event["response"])
    raise Strange("the stream ended before response.completed")


RESPONSES = Dialect(
    name="responses",
    provider="openai",
    history="input",
    heads=("instructions", "tools", "text"),
    read=_read,
    reply=_reply,
    assembled=_assembled,
)
