"""A `Request` as the JSON body of a chat completions call. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel.record import Message, ModelParams, Request, ToolCall, ToolSpec, compact_json, identified, parse_json


def encode_request(request: Request, params: ModelParams, *, stream: bool, max_tokens_field: str) -> dict[str, Any]:
    """The body of one call. `params` are the merged ones; their `extra` goes in last and wins."""
    body: dict[str, Any] = {"model": params.model, "messages": encode_messages(request.messages)}
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    optional = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": params.seed,
        max_tokens_field: params.max_output_tokens,
        "stop": list(params.stop) or None,
    }
    body.update((name, value) for name, value in optional.items() if value is not None)
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    body.update(params.extra)
    return body


def encode_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as the provider takes them: every call of a turn has its own id, and each result names one of them.

    Models leave ids out or use one twice; servers then refuse the history. Such ids are replaced, by place, in the call
    and in its result alike, by one that no other call of the conversation has.
    """
    messages = list(messages)
    taken = {call.id for message in messages for call in message.tool_calls}
    encoded: list[dict[str, Any]] = []
    waiting: list[
        tuple[str, str]
    ] = []  # (id the model gave, id sent), the calls of the last turn still without a result
    for index, message in enumerate(messages):
        if message.role == "tool":
            encoded.append(
                {"role": "tool", "tool_call_id": _answered(waiting, message.tool_call_id), "content": message.content}
            )
        elif message.role == "assistant" and message.tool_calls:
            unique = identified(message.tool_calls, index, taken)
            taken.update(call.id for call in unique)
            waiting = [(call.id, sent.id) for call, sent in zip(message.tool_calls, unique, strict=True)]
            calls = [_sent_call(call) for call in unique]
            encoded.append({"role": "assistant", "content": message.content or None, "tool_calls": calls})
        else:
            encoded.append({"role": message.role, "content": message.content})
    return encoded


def _answered(waiting: list[tuple[str, str]], given: str | None) -> str:
    for place, (from_model, sent) in enumerate(waiting):
        if given in (from_model, sent) or (not given and not from_model):
            return waiting.pop(place)[1]
    return given or ""


def _sent_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": _valid_arguments(call.arguments)},
    }


def _valid_arguments(text: str) -> str:
    """The arguments as the model wrote them, if they are a JSON object; else an object that holds the text.

    Servers that render the history through a chat template parse this field, and refuse a request where it is broken.
    """
    try:
        if isinstance(parse_json(text), dict):
            return text
    except ValueError:
        pass
    return compact_json({"malformed_arguments": text}) if text.strip() else "{}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    description = f"{spec.description}\nReturns: {spec.returns}" if spec.returns else spec.description
    parameters = spec.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": spec.name, "description": description, "parameters": parameters},
    }
