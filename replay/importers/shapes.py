"""Messages in the spellings of other frameworks, as chat-format messages `{"role", "content", "tool_calls", …}`.

Read: OpenAI chat and Responses, the parts of the OpenTelemetry GenAI conventions, Google, Anthropic, Bedrock, LangChain (typed
and serialised), smolagents and the Vercel AI SDK. What is no text, call or result is passed on as it is, for `read_message` to
keep or to refuse; a part whose content was not captured is passed on as `NOT_CAPTURED`, never as empty text.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from kernel.record import compact_json, parse_json, to_jsonable

Chat = dict[str, Any]

_ROLES = {"model": "assistant", "ai": "assistant", "bot": "assistant", "human": "user", "tool-response": "tool"}
_CALLING = "Calling tools:\n"
"""How smolagents shows a model its own calls, in a message of role `tool-call`."""
_LANGCHAIN = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
NOT_CAPTURED = {"type": "tracefirst.not_captured"}
"""A part that says that there was content, and has none."""
_BEDROCK = ("toolUse", "toolResult", "reasoningContent")
_TEXT = ("text", "input_text", "output_text")
ARGUMENTS = ("arguments", "args", "input", "parameters")
"""Where a call has its arguments."""
_CALL = ("tool_call", "tool-call", "tool_use", "function_call")
_RESULT = ("tool_call_response", "tool-result", "tool_result", "function_response")
_REASONING = ("reasoning", "thinking")


def decoded(value: Any, levels: int = 2) -> Any:
    """A value that may be JSON text, or JSON text of JSON text; what is no JSON container stays as it is."""
    for _ in range(levels):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{", '"'):
            return value
        try:
            value = _loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _loads(text: str) -> Any:
    """Strict JSON, else as Python reads it: NaN and lone surrogates too."""
    try:
        return parse_json(text)
    except ValueError:
        return json.loads(text)


def messages_of(blob: Any) -> list[Chat] | None:
    """The messages of a request, however it is wrapped; None where it holds none."""
    value = decoded(blob)
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            value = value[0]
        if not value or not all(isinstance(item, dict) for item in value):
            return None
        return [chat for item in value if not _is_definition(item) for chat in to_chat(item)]
    if not isinstance(value, dict):
        return None
    if "contents" in value:
        config: Any = value.get("config")
        config = config if isinstance(config, dict) else value
        return _with_system(config.get("system_instruction"), messages_of(value["contents"]))
    if "messages" in value:
        return _with_system(value.get("system"), messages_of(value["messages"]))
    if "input" in value:
        given = value["input"]
        inner = [{"role": "user", "content": given}] if isinstance(given, str) else messages_of(given)
        return _with_system(value.get("instructions"), inner)
    return to_chat(value) if "role" in value else None


def reply_of(blob: Any) -> Chat | None:
    """The assistant message of a response, however it is wrapped, with its `finish_reason`; None if there is none."""
    value = decoded(blob)
    if isinstance(value, list):
        return _merged([chat for item in value if isinstance(item, dict) for chat in to_chat(item)])
    if not isinstance(value, dict):
        return None
    if (choice := _first(value.get("choices"))) is not None:
        return _finished(_message_in(choice), choice)
    if isinstance(value.get("generations"), list):
        found = value["generations"][0] if value["generations"] else None
        return _message_in((_first(found) if isinstance(found, list) else found) or {})
    if isinstance(value.get("content"), dict):
        return _finished(_merged(to_chat(value["content"])), value)
    if isinstance(value.get("output"), list):
        return reply_of(value["output"])
    if isinstance(value.get("messages"), list):
        return reply_of(value["messages"])
    return _finished(_merged(to_chat(value)), value) if {"role", "parts", "kwargs", "type"} & set(value) else None


def _first(value: Any) -> Chat | None:
    """The first of a list of objects."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def _message_in(value: Any) -> Chat | None:
    message = value.get("message") if isinstance(value, dict) else None
    return _merged(to_chat(message)) if isinstance(message, dict) else None


def to_chat(data: Chat) -> list[Chat]:
    """One message as chat messages; more than one where it holds several tool results."""
    if isinstance(data.get("kwargs"), dict) and isinstance(data.get("id"), list) and data["id"]:
        spoken_by = str(data["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return to_chat({**data["kwargs"], "type": spoken_by})
    kind = data.get("type")
    if "role" not in data:
        if kind == "function_call":
            return [{"role": "assistant", "content": None, "tool_calls": [_call({**data, "id": data.get("call_id")})]}]
        if kind == "function_call_output":
            return [{"role": "tool", "tool_call_id": data.get("call_id"), "content": result_text(data.get("output"))}]
        if kind == "reasoning":
            return []
        if "toolName" in data and "toolCallId" in data and kind not in _RESULT:
            return [{"role": "assistant", "content": None, "tool_calls": [_call(data)]}]
        if isinstance(kind, str) and kind in _LANGCHAIN:
            data = {**data, "role": _LANGCHAIN[kind]}
    role: Any = data.get("role", "assistant" if "parts" in data else None)
    role = _ROLES.get(role, role) if isinstance(role, str) else role
    parts = data.get("parts", data.get("content"))
    if role == "tool-call":
        role, parts, data = "assistant", *_shown_calls(data, parts)
    if isinstance(parts, str) and any(f'"{key}"' in parts for key in (*_BEDROCK, "text")):
        parts = _blocks(parts)
    base: Chat = {"role": role}
    calls = [_call(call) for call in _listed_calls(data)]
    if not isinstance(parts, list):
        content = result_text(parts) if role == "tool" else parts
        base |= {"content": content, **_kept(data)}
        return [{**base, "tool_calls": calls}] if calls else [base]
    if role == "tool" and not any(isinstance(part, dict) and _part_kind(part) in _RESULT for part in parts):
        return [{**base, "content": result_text(parts), **_kept(data)}]
    return _from_parts(base | _kept(data), parts, calls)


def _blocks(text: str) -> Any:
    """The content blocks of Bedrock that a tracer wrote as JSON text, or the text itself."""
    found = decoded(text, 1)
    known = {*_BEDROCK, "text", "image", "document"}
    if (
        isinstance(found, list)
        and found
        and all(isinstance(p, dict) and len(p) == 1 and set(p) <= known for p in found)
    ):
        return found
    return text


def _shown_calls(data: Chat, content: Any) -> tuple[Any, Chat]:
    """Content and fields of a message of role `tool-call`: its calls, where they can be read, else its text."""
    text = content if isinstance(content, str) else result_text(content)
    try:
        calls = ast.literal_eval(text.removeprefix(_CALLING)) if text.startswith(_CALLING) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        calls = None
    if isinstance(calls, list) and calls and all(isinstance(call, dict) for call in calls):
        return None, {**data, "tool_calls": calls}
    return text, data


def _from_parts(base: Chat, parts: list[Any], calls: list[Chat]) -> list[Chat]:
    text: list[Any] = []
    reasoning: list[str] = []
    results: list[Chat] = []
    for part in parts:
        kind = _part_kind(part) if isinstance(part, dict) else None
        if kind in _TEXT:
            said = part.get("text", part.get("content"))
            text.append(NOT_CAPTURED if said is None else {"type": "text", "text": said})
        elif kind in _REASONING:
            reasoning.append(_thought(part))
        elif kind in _CALL:
            called = _call(part)
            if not called["id"] or all(called["id"] != known["id"] for known in calls):
                calls.append(called)
        elif kind in _RESULT:
            results.append(_result(part))
        else:
            text.append(part)
    if results and not text and not calls:
        return results
    content: Any = text
    if all(isinstance(part, dict) and part.get("type") == "text" for part in text):
        content = "".join(str(part["text"]) for part in text) if text else None
    message = {**base, "content": content}
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return [*results, message]


def _thought(part: Chat) -> str:
    inner = part.get("reasoningContent")
    if isinstance(inner, dict):
        part = _inner(inner, "reasoningText")
    return str(part.get("content") or part.get("text") or part.get("thinking") or "")


def _part_kind(part: Chat) -> str | None:
    kind = part.get("type")
    if kind == "function" and isinstance(part.get("function"), dict):
        return "function_call"
    if isinstance(kind, str):
        return kind
    named = {"toolUse": "tool_use", "toolResult": "tool_result", "reasoningContent": "reasoning"}
    found = next((k for k in ("function_call", "function_response", "text", *named) if part.get(k) is not None), None)
    return named.get(found, found) if found is not None else None


def _call(data: Chat) -> Chat:
    """A call as `{"id", "function": {"name", "arguments"}}` with the arguments as text."""
    wrapped = _inner(_inner(data, "tool_call"), "toolUse")
    inner = _inner(_inner(wrapped, "function"), "function_call")
    found = next((inner[k] for k in ARGUMENTS if k in inner), None)
    arguments = found if isinstance(found, str) else compact_json(to_jsonable(found)) if found is not None else "{}"
    call_id = wrapped.get("id") or wrapped.get("toolCallId") or wrapped.get("toolUseId") or inner.get("id")
    return {"id": call_id or "", "function": {"name": inner.get("name", inner.get("toolName")), "arguments": arguments}}


def _inner(data: Chat, key: str) -> Chat:
    """What is wrapped under a key, or the data itself."""
    found = data.get(key)
    return found if isinstance(found, dict) else data


def _result(part: Chat) -> Chat:
    inner = _inner(_inner(part, "function_response"), "toolResult")
    keys = ("response", "result", "output", "content")
    value = next((inner[key] for key in keys if inner.get(key) is not None), None)
    call_id = (
        inner.get("id")
        or inner.get("toolCallId")
        or inner.get("toolUseId")
        or inner.get("tool_use_id")
        or inner.get("tool_call_id")
    )
    name = inner.get("name") or inner.get("toolName")
    missing = value is None and not any(key in inner for key in keys)
    message: Chat = {"role": "tool", "content": [NOT_CAPTURED] if missing else result_text(value)}
    return {**message, **({"tool_call_id": call_id} if call_id else {}), **({"name": name} if name else {})}


def result_text(value: Any) -> str:
    """A tool's result as the text that a model is shown: text as it is, text parts joined, else compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict) and value.get("type") in ("text", "json", "error-text") and "value" in value:
        return result_text(value["value"])
    if isinstance(value, list) and value and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return "".join(part["text"] for part in value)
    return compact_json(to_jsonable(value))


def _listed_calls(data: Chat) -> list[Chat]:
    more = data.get("additional_kwargs")
    for found in (data.get("tool_calls"), more.get("tool_calls") if isinstance(more, dict) else None):
        found = decoded(found)
        if isinstance(found, list) and found:
            return [call for call in found if isinstance(call, dict)]
    return [{"function": data["function_call"]}] if isinstance(data.get("function_call"), dict) else []


def _kept(data: Chat) -> Chat:
    """What belongs to a message besides its content."""
    names = ("tool_call_id", "name", "refusal", "reasoning_content", "finish_reason")
    out = {name: data[name] for name in names if isinstance(data.get(name), str)}
    if "tool_call_id" not in out and isinstance(data.get("id"), str) and data.get("role") == "tool":
        out["tool_call_id"] = data["id"]
    return out


def _is_definition(item: Chat) -> bool:
    """A tool definition that a tracer put among the messages."""
    content = item.get("content")
    return item.get("role") == "tool" and isinstance(content, dict) and content.get("type") == "function"


def _with_system(system: Any, messages: list[Chat] | None) -> list[Chat] | None:
    if messages is None or not system:
        return messages
    text = system if isinstance(system, str) else None
    if isinstance(system, dict):
        system = system.get("parts", [system])
    if isinstance(system, list):
        made = _from_parts({"role": "system"}, system, [])
        return [*made, *messages]
    return [{"role": "system", "content": text}, *messages]


def system_messages(value: Any) -> list[Chat]:
    """System instructions that stand apart from the messages."""
    return _with_system(decoded(value), []) or []


def _merged(chats: list[Chat]) -> Chat | None:
    """The reply among several output messages: each is a choice of its own, and the first is the one that counts. Only calls
    that stand in messages of their own are the parallel calls of one reply, as are a text and the calls behind it."""
    own = [chat for chat in chats if chat.get("role") in ("assistant", None)]
    if not own:
        return None
    reply = {**own[0], "role": "assistant"}
    if len(own) == 1:
        return reply
    if not all(chat.get("tool_calls") and not chat.get("content") for chat in own[1:]):
        return {**reply, "choices": len(own)}
    reply["tool_calls"] = [call for chat in own for call in chat.get("tool_calls", ())]
    for name in ("finish_reason", "reasoning_content", "refusal"):
        found = [chat[name] for chat in own if chat.get(name)]
        if found:
            reply[name] = found[-1]
    return reply


def joined(chats: list[Chat | None]) -> list[Chat | None]:
    """A request whose assistant's turns are one message each: some clients send a text and each call of one reply as items of
    their own."""
    out: list[Chat | None] = []
    for chat in chats:
        before = out[-1] if out else None
        if (
            chat is not None
            and before is not None
            and chat.get("role") == before.get("role") == "assistant"
            and chat.get("tool_calls")
            and not chat.get("content")
        ):
            calls = [*(before.get("tool_calls") or ()), *chat["tool_calls"]]
            out[-1] = {**chat, **before, "tool_calls": calls}
            continue
        out.append(chat)
    return out


def _finished(chat: Chat | None, around: Chat) -> Chat | None:
    reason = around.get("finish_reason")
    return {**chat, "finish_reason": reason} if chat is not None and isinstance(reason, str) else chat
