"""OpenAI Chat Completions, which most model servers speak."""

from __future__ import annotations

from typing import Any

from kernel.record import Message, Reply
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

_NAMES = {
    "model": "model",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "stop": "stop",
}
_APART = ("messages", "tools", "functions")


def _read(body: dict[str, Any], path: str) -> Question:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Strange("/messages: missing or not a list")
    tools = [obj(one).get("function", one) for one in items(body.get("tools"))] + items(body.get("functions"))
    return Question(
        messages=tuple([_message(obj(message)) for message in messages]),
        tools=tuple(tool(obj(t).get("name"), obj(t).get("description"), obj(t).get("parameters")) for t in tools),
        params=params(body, _NAMES, _APART),
    )


def _message(message: dict[str, Any]) -> Message:
    role = message.get("role")
    content = joined(message.get("content"))
    if role in ("system", "developer"):
        return Message(role="system", content=content)
    if role == "assistant":
        return Message(role="assistant", content=content, tool_calls=_calls(message))
    if role in ("tool", "function"):
        return Message(role="tool", content=content, tool_call_id=text(message.get("tool_call_id")))
    return Message(role="user", content=content)


def _calls(message: dict[str, Any]) -> Any:
    calls = [obj(one) for one in items(message.get("tool_calls"))]
    if not calls and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    return tuple(
        call(obj(c.get("function")).get("name"), obj(c.get("function")).get("arguments"), c.get("id")) for c in calls
    )


def _reply(body: dict[str, Any]) -> Reply:
    choices = items(body.get("choices"))
    choice = next((obj(c) for c in choices if obj(c).get("index", 0) == 0), obj(choices[0]) if choices else {})
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Strange("/choices/0/message: missing or not an object")
    spent, details = obj(body.get("usage")), obj(obj(body.get("usage")).get("prompt_tokens_details"))
    return Reply(
        text=joined(message.get("content")),
        tool_calls=_calls(message),
        reasoning=text(message.get("reasoning_content")) or text(message.get("reasoning")) or None,
        finish_reason=text(choice.get("finish_reason")) or None,
        refusal=text(message.get("refusal")) or None,
        usage=usage(
            input_tokens=spent.get("prompt_tokens"),
            output_tokens=spent.get("completion_tokens"),
            cache_read_tokens=details.get("cached_tokens"),
            reasoning_tokens=obj(spent.get("completion_tokens_details")).get("reasoning_tokens"),
        ),
        model=text(body.get("model")) or None,
        response_id=text(body.get("id")) or None,
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("error"):
            raise Strange("the stream holds an error")
        for name in ("id", "model", "usage"):
            if event.get(name):
                whole[name] = event[name]
        for choice in map(obj, items(event.get("choices"))):
            given = choice.get("index")
            index = given if isinstance(given, int) else 0
            _add(
                choices.setdefault(index, {"index": index, "message": {"role": "assistant"}, "finish_reason": None}),
                choice,
            )
    if not choices or any(choice["finish_reason"] is None for choice in choices.values()):
        raise Strange("the stream ended before a finish_reason")
    for choice in choices.values():
        calls = choice["message"].pop("calls", None)
        if calls:
            choice["message"]["tool_calls"] = list(calls.values())
    return {**whole, "choices": [choices[index] for index in sorted(choices)]}


def _add(choice: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta.get("finish_reason"):
        choice["finish_reason"] = delta["finish_reason"]
    message, new = choice["message"], obj(delta.get("delta"))
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        if isinstance(new.get(name), (str, list)):
            message[name] = message.get(name, "") + joined(new[name])
    for one in map(obj, items(new.get("tool_calls"))):
        calls = message.setdefault("calls", {})
        index = one.get("index") if isinstance(one.get("index"), int) else len(calls)
        if index in calls and one.get("id") and calls[index]["id"] and one["id"] != calls[index]["id"]:
            index = max(calls) + 1  # servers give two calls one index
        call = calls.setdefault(index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        part = obj(one.get("function"))
        call["id"] = call["id"] or one.get("id")
        call["function"]["name"] = call["function"]["name"] or text(part.get("name"))
        call["function"]["arguments"] += text(part.get("arguments"))


CHAT = Dialect(
    name="chat",
    provider="openai",
    history="messages",
    heads=("tools", "functions", "response_format"),
    read=_read,
    reply=_reply,
    assembled=_assembled,
)
