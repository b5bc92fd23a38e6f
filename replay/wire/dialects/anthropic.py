"""Anthropic Messages."""

from __future__ import annotations

from typing import Any

from kernel.record import Message, Reply, ToolCall, parse_json
from replay.wire.dialects.model import (
    Dialect,
    Question,
    Strange,
    call,
    items,
    joined,
    obj,
    params,
    part_text,
    text,
    tool,
    usage,
)

_NAMES = {
    "model": "model",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "stop_sequences": "stop",
}
_APART = ("messages", "system", "tools")
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _read(body: dict[str, Any], path: str) -> Question:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Strange("/messages: missing or not a list")
    out: list[Message] = []
    if body.get("system"):
        out.append(Message(role="system", content=joined(body["system"])))
    for message in map(obj, messages):
        out.extend(_messages(message))
    tools = [obj(one) for one in items(body.get("tools"))]
    return Question(
        messages=tuple(out),
        tools=tuple(tool(t.get("name"), t.get("description"), t.get("input_schema")) for t in tools),
        params=params(body, _NAMES, _APART),
    )


def _messages(message: dict[str, Any]) -> list[Message]:
    """One message of the dialect; results of tools, which stand in a user's message, are messages of their own."""
    content = message.get("content")
    if message.get("role") == "assistant":
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [obj(b) for b in items(content)]
        words, calls = _words(blocks)
        return [Message(role="assistant", content=words, tool_calls=calls)]
    if not isinstance(content, list):
        return [Message(role="user", content=joined(content))]
    results = [obj(block) for block in content if obj(block).get("type") == "tool_result"]
    others = [block for block in content if obj(block).get("type") != "tool_result"]
    out = [
        Message(role="tool", content=joined(block.get("content")), tool_call_id=text(block.get("tool_use_id")))
        for block in results
    ]
    return [*out, Message(role="user", content=joined(others))] if others or not out else out


def _words(blocks: list[dict[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    calls = [
        call(b.get("name"), b.get("input"), b.get("id")) for b in blocks if str(b.get("type")).endswith("tool_use")
    ]
    spoken = [b for b in blocks if b.get("type") not in ("thinking", "redacted_thinking")]
    words = [part_text(b) for b in spoken if not str(b.get("type")).endswith("tool_use")]
    return "\n".join(words), tuple(calls)


def _reply(body: dict[str, Any]) -> Reply:
    content = body.get("content")
    if not isinstance(content, list):
        raise Strange("/content: missing or not a list")
    blocks = [obj(block) for block in content]
    words, calls = _words(blocks)
    thought = "".join(text(b.get("thinking")) for b in blocks if b.get("type") == "thinking")
    spent = obj(body.get("usage"))
    found = usage(
        input_tokens=spent.get("input_tokens"),
        output_tokens=spent.get("output_tokens"),
        cache_read_tokens=spent.get("cache_read_input_tokens"),
        cache_write_tokens=spent.get("cache_creation_input_tokens"),
    )
    read, written = found.cache_read_tokens or 0, found.cache_write_tokens or 0
    whole = None if found.input_tokens is None else found.input_tokens + read + written  # cached ones are counted apart
    return Reply(
        text=words,
        tool_calls=calls,
        reasoning=thought or None,
        finish_reason=text(body.get("stop_reason")) or None,
        usage=usage(
            input_tokens=whole,
            output_tokens=found.output_tokens,
            cache_read_tokens=found.cache_read_tokens,
            cache_write_tokens=found.cache_write_tokens,
        ),
        model=text(body.get("model")) or None,
        response_id=text(body.get("id")) or None,
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    ended = False
    for event in events:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            message = dict(obj(event.get("message")))
        elif kind == "content_block_start" and isinstance(index, int):
            blocks[index] = dict(obj(event.get("content_block")))
        elif kind == "content_block_delta" and isinstance(index, int):
            _add(blocks.setdefault(index, {}), inputs, index, obj(event.get("delta")))
        elif kind == "message_delta":
            message.update(obj(event.get("delta")))
            message["usage"] = {**obj(message.get("usage")), **obj(event.get("usage"))}
        elif kind == "message_stop":
            ended = True
        elif kind == "error":
            raise Strange("the stream holds an error")
    if not ended:
        raise Strange("the stream ended before message_stop")
    for index, json_text in inputs.items():
        try:
            blocks[index]["input"] = parse_json(json_text or "{}")
        except ValueError:
            blocks[index]["input"] = json_text
    return {**message, "content": [blocks[index] for index in sorted(blocks)]}


def _add(block: dict[str, Any], inputs: dict[int, str], index: int, delta: dict[str, Any]) -> None:
    if delta.get("type") == "input_json_delta":
        inputs[index] = inputs.get(index, "") + text(delta.get("partial_json"))
        return
    field = _DELTAS.get(str(delta.get("type")))
    if field is not None:
        block[field] = text(block.get(field)) + text(delta.get(field))


ANTHROPIC = Dialect(
    name="anthropic",
    provider="anthropic",
    history="messages",
    heads=("system", "tools"),
    read=_read,
    reply=_reply,
    assembled=_assembled,
)
