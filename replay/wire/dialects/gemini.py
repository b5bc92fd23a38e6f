"""Gemini `generateContent` and `streamGenerateContent`. Calls have no ids; the model is named in the path."""

from __future__ import annotations

import re
from typing import Any

from kernel.record import Message, Reply, ToolCall, compact_json
from replay.wire.dialects.model import (
    Dialect,
    Question,
    Strange,
    call,
    items,
    obj,
    params,
    part_text,
    text,
    tool,
    usage,
)

_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "seed": "seed",
    "maxOutputTokens": "max_output_tokens",
    "stopSequences": "stop",
}
_APART = ("contents", "systemInstruction", "system_instruction", "tools", "generationConfig")
_MODEL = re.compile(r"models/([^/:]+):")


def _read(body: dict[str, Any], path: str) -> Question:
    contents = body.get("contents")
    if not isinstance(contents, list):
        raise Strange("/contents: missing or not a list")
    out: list[Message] = []
    system = obj(body.get("systemInstruction") or body.get("system_instruction"))
    if system:
        out.append(Message(role="system", content=_words(_parts(system))[0]))
    for content in map(obj, contents):
        out.extend(_messages(content))
    declared = [
        obj(function)
        for group in items(body.get("tools"))
        for name in ("functionDeclarations", "function_declarations")
        for function in items(obj(group).get(name))
    ]
    model = _MODEL.search(path)
    settings = {**obj(body.get("generationConfig")), **{k: v for k, v in body.items() if k not in _APART}}
    if model is not None:
        settings["model"] = model[1]
    return Question(
        messages=tuple(out),
        tools=tuple(tool(d.get("name"), d.get("description"), _schema(d)) for d in declared),
        params=params(settings, {**_NAMES, "model": "model"}, ()),
    )


def _schema(declared: dict[str, Any]) -> Any:
    return declared.get("parameters") or declared.get("parametersJsonSchema")


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [obj(part) for part in items(content.get("parts"))]


def _call(part: dict[str, Any]) -> dict[str, Any]:
    return obj(part.get("functionCall") or part.get("function_call"))


def _response(part: dict[str, Any]) -> dict[str, Any]:
    return obj(part.get("functionResponse") or part.get("function_response"))


def _messages(content: dict[str, Any]) -> list[Message]:
    parts = _parts(content)
    if content.get("role") == "model":
        words, calls = _words(parts)
        return [Message(role="assistant", content=words, tool_calls=calls)]
    responses = [_response(part) for part in parts if _response(part)]
    others = [part for part in parts if not _response(part)]
    out = [
        Message(
            role="tool",
            content=compact_json(answer.get("response")),
            tool_call_id=text(answer.get("id")),
            name=text(answer.get("name")) or None,
        )
        for answer in responses
    ]
    return [*out, Message(role="user", content=_words(others)[0])] if others or not out else out


def _words(parts: list[dict[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    calls = tuple(call(c.get("name"), c.get("args"), c.get("id")) for part in parts if (c := _call(part)))
    spoken = [part for part in parts if not _call(part) and not part.get("thought")]
    return "".join(part_text(part) for part in spoken if part.keys() != {"thoughtSignature"}), calls


def _reply(body: dict[str, Any]) -> Reply:
    candidates = items(body.get("candidates"))
    if not candidates:
        raise Strange("/candidates: missing or empty")
    candidate = obj(candidates[0])
    parts = _parts(obj(candidate.get("content")))
    words, calls = _words(parts)
    spent = obj(body.get("usageMetadata"))
    thinking, said = spent.get("thoughtsTokenCount"), spent.get("candidatesTokenCount")
    both = said + thinking if isinstance(said, int) and isinstance(thinking, int) else said
    return Reply(
        text=words,
        tool_calls=calls,
        reasoning="".join(text(part.get("text")) for part in parts if part.get("thought")) or None,
        finish_reason=text(candidate.get("finishReason")) or None,
        usage=usage(
            input_tokens=spent.get("promptTokenCount"),
            output_tokens=both,
            cache_read_tokens=spent.get("cachedContentTokenCount"),
            reasoning_tokens=thinking,
        ),
        model=text(body.get("modelVersion")) or None,
        response_id=text(body.get("responseId")) or None,
    )


def _assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    reason = None
    for event in events:
        if "error" in event:
            raise Strange("the stream holds an error")
        whole.update({key: value for key, value in event.items() if key != "candidates"})
        for candidate in map(obj, items(event.get("candidates"))[:1]):
            reason = candidate.get("finishReason") or reason
            for part in _parts(obj(candidate.get("content"))):
                _add(parts, part)
    if reason is None:
        raise Strange("the stream ended before a finishReason")
    content = {"role": "model", "parts": parts}
    return {**whole, "candidates": [{"content": content, "finishReason": reason}]}


def _add(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    last = parts[-1] if parts else {}
    goes_on = "text" in part and "text" in last and bool(part.get("thought")) == bool(last.get("thought"))
    if goes_on:
        last["text"] = text(last["text"]) + text(part["text"])
    else:
        parts.append(dict(part))


GEMINI = Dialect(
    name="gemini",
    provider="gcp.gemini",
    history="contents",
    heads=("systemInstruction", "system_instruction", "tools"),
    read=_read,
    reply=_reply,
    assembled=_assembled,
)
