"""The JSON body of a chat completion as a `Reply`. Pure, no I/O.

Compatible servers differ in small ways; what they differ in is read here, each rule beside its reason. What cannot be
read raises `Malformed`, whose text is a JSON path and what stands there.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import structs

from kernel.record import Reply, ToolCall, Usage, compact_json, valid_text

_decode = msgspec.json.Decoder().decode


class Malformed(ValueError):
    """A body that is not a chat completion."""


def parse_body(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body. Servers do send lone surrogate escapes and NaN; both are let through to the reader."""
    try:
        body = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            body = json.loads(raw.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the body is not JSON ({error})") from None
    if not isinstance(body, dict):
        raise Malformed(f"the body is a JSON {_kind(body)}, not an object")
    return body


def provider_error(body: dict[str, Any]) -> dict[str, Any] | None:
    """The error object in a body or in one of its choices: gateways send errors with status 200, and inside streams."""
    error = body.get("error")
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        error = error or (choice.get("error") if isinstance(choice, dict) else None)
    if not error:
        return None
    return error if isinstance(error, dict) else {"message": error}


def failed_generation(error: dict[str, Any], partial: Reply) -> Reply | None:
    """The reply inside an error that refuses the model's words, such as Groq's `tool_use_failed`; else `None`.

    What the model said must reach the one who evaluates it and tells the model what was wrong. The error's code is the
    finish reason: such a text is never a finished answer.
    """
    words = error.get("failed_generation")
    if isinstance(words, dict | list):
        words = compact_json(words)
    if not isinstance(words, str) or not words.strip():
        return None
    reason = _text(error.get("code")) or "failed_generation"
    return structs.replace(partial, text=valid_text(words), tool_calls=(), finish_reason=reason)


def decode_reply(body: dict[str, Any]) -> Reply:
    """Read a chat completion. Raises `Malformed`."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise Malformed("/choices: missing or empty" if not choices else f"/choices: {_kind(choices)}, not a list")
    choice = next((one for one in choices if isinstance(one, dict) and one.get("index", 0) == 0), choices[0])
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise Malformed("/choices/0/message: missing or not an object")
    text, thinking, refused = split_content(message.get("content"))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or _text(thinking)
    return Reply(
        text=valid_text(text),
        tool_calls=_tool_calls(message.get("tool_calls")),
        reasoning=reasoning or None,
        finish_reason=_text(choice.get("finish_reason")) or None,
        refusal=_text(message.get("refusal")) or _text(refused) or None,
        usage=decode_usage(body.get("usage")),
        model=_text(body.get("model")) or None,
        response_id=_text(body.get("id")) or None,
    )


def split_content(content: Any) -> tuple[str, str, str]:
    """The visible text, the thinking and the refusal in a `content`, which is text, null or a list of typed parts."""
    if content is None or isinstance(content, str):
        return content or "", "", ""
    if not isinstance(content, list):
        raise Malformed(f"/choices/0/message/content: {_kind(content)}, not text or a list of parts")
    found: dict[str, str] = {"text": "", "thinking": "", "refusal": ""}
    for place, part in enumerate(content):
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        kind = "text" if kind == "output_text" else kind
        if not isinstance(kind, str) or kind not in found:
            continue  # an image or a citation: not words of the model
        words = part.get(kind) if isinstance(part, dict) else part
        if isinstance(words, list):  # thinking is itself a list of text parts
            words = split_content(words)[0]
        if not isinstance(words, str):
            raise Malformed(f"/choices/0/message/content/{place}: a part of type {kind!r} without its text")
        found[kind] += words
    return found["text"], found["thinking"], found["refusal"]


def _tool_calls(calls: Any) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise Malformed(f"/choices/0/message/tool_calls: {_kind(calls)}, not a list")
    return tuple(_tool_call(call, f"/choices/0/message/tool_calls/{place}") for place, call in enumerate(calls))


def _tool_call(call: Any, path: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Malformed(f"{path}/function: missing or not an object")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise Malformed(f"{path}/function/name: missing")
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = compact_json(arguments)
    given = call.get("id")
    return ToolCall(
        name=valid_text(name),
        arguments=valid_text(arguments),
        id=valid_text(given) if isinstance(given, str) else "" if given is None else str(given),
    )


def decode_usage(usage: Any) -> Usage:
    """Tokens in four classes, whatever the provider calls them; what it does not say is `None`.

    Two things are put right, because `Usage` counts cached tokens as input and reasoning tokens as output. Anthropic's
    own names leave cached tokens out of the input, so they are added. Where `total_tokens` is more than input and
    output together (the thinking of Gemini and xAI), the difference is output.
    """
    if not isinstance(usage, dict):
        return Usage()
    details_in, details_out = _part(usage, "prompt_tokens_details"), _part(usage, "completion_tokens_details")
    details_in = details_in or _part(usage, "input_tokens_details")
    details_out = details_out or _part(usage, "output_tokens_details")
    given_in = _count(usage.get("prompt_tokens"))
    native = given_in is None
    given_in = _count(usage.get("input_tokens")) if native else given_in
    output = _first(usage.get("completion_tokens"), usage.get("output_tokens"))
    read = _first(
        details_in.get("cached_tokens"),
        usage.get("cache_read_input_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
    )
    write = _first(usage.get("cache_creation_input_tokens"), details_in.get("cache_write_tokens"))
    reasoning = _first(details_out.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    cached = (read or 0) + (write or 0)
    apart = native and ("cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage)
    if given_in is not None and (apart or cached > given_in):
        given_in += cached
    total = _count(usage.get("total_tokens"))
    if total is not None and given_in is not None and output is not None and total > given_in + output:
        reasoning = total - given_in - output if reasoning is None else reasoning
        output = total - given_in
    return Usage(
        input_tokens=given_in,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
    )


def _first(*values: Any) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _part(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return valid_text(value) if isinstance(value, str) else ""


def _kind(value: Any) -> str:
    names = {str: "text", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
