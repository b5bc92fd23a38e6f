"""One message of a chat-format list, in the spellings that are in use, as a `Message`.

Read alike, because the chat format does not tell them apart: `content` null, "" and absent; text parts and their
concatenation; `function_call` and one call in `tool_calls`; role `function` and `tool`; role `developer` and `system`;
`tool_call_id` and a `tool_call_ids` of one.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import Message, Role, ToolCall, compact_json, to_jsonable, valid_text

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class SourceMessage(Struct, frozen=True, kw_only=True):
    """A message with its place in the source; `refusal` is the provider's refusal field."""

    message: Message
    place: str
    refusal: str | None = None


def refuse(file: str, place: str, what: str, remedy: str) -> TraceError:
    """The error for a place in a source: what is wrong there, and what helps."""
    return TraceError(f"{file}: {place}: {what}. {remedy}.", file=file)


def read_message(data: Any, file: str, place: str) -> SourceMessage:
    """Read one message.

    Raises:
        TraceError: it is no message, or holds what a recording cannot keep; the message names file, place and remedy.
    """
    if not isinstance(data, dict):
        raise refuse(file, place, f"is {_kind(data)}, not a message", 'Give each message as {"role": …, "content": …}')
    role = ROLES.get(data.get("role", "")) if isinstance(data.get("role"), str) else None
    if role is None:
        known = ", ".join(ROLES)
        raise refuse(file, place, f"the role {data.get('role')!r:.60} is unknown", f"Known roles are {known}")
    content = _content(data.get("content"), role, file, place)
    refusal = data.get("refusal")
    message = Message(
        role=role,
        content=content,
        tool_calls=_calls(data, file, place) if role == "assistant" else (),
        tool_call_id=_call_id(data) if role == "tool" else None,
        name=valid_text(data["name"]) if role == "tool" and isinstance(data.get("name"), str) else None,
        reasoning=_reasoning(data) if role == "assistant" else None,
    )
    return SourceMessage(message=message, place=place, refusal=refusal if isinstance(refusal, str) else None)


def _content(content: Any, role: Role, file: str, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return valid_text(content)
    if isinstance(content, list):
        return "".join(_part(part, file, f"{place}/content/{i}") for i, part in enumerate(content))
    if role == "tool":
        return compact_json(to_jsonable(content))
    raise refuse(file, place, f"content is {_kind(content)}", "Give it as text, or as a list of text parts")


def _part(part: Any, file: str, place: str) -> str:
    if isinstance(part, str):
        return valid_text(part)
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    if kind in (None, "text", "input_text", "output_text") and isinstance(text, str):
        return valid_text(text)
    found = f"a part of type {kind!r:.40}" if kind is not None else _kind(part)
    raise refuse(
        file, place, f"is {found}, which a recording cannot keep", "Leave it out, or put its text in its place"
    )


def _calls(data: dict[str, Any], file: str, place: str) -> tuple[ToolCall, ...]:
    listed = data.get("tool_calls")
    if listed is None and isinstance(data.get("function_call"), dict):
        return (_call({"function": data["function_call"]}, file, f"{place}/function_call"),)
    if not listed:
        return ()
    if not isinstance(listed, list):
        raise refuse(file, f"{place}/tool_calls", f"is {_kind(listed)}", "Give a list of calls")
    return tuple(_call(call, file, f"{place}/tool_calls/{i}") for i, call in enumerate(listed))


def _call(data: Any, file: str, place: str) -> ToolCall:
    inner = data.get("function", data) if isinstance(data, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or not name:
        raise refuse(file, place, "names no function", 'Give {"id": …, "function": {"name": …, "arguments": …}}')
    arguments = inner.get("arguments", "")
    text = valid_text(arguments) if isinstance(arguments, str) else compact_json(to_jsonable(arguments))
    return ToolCall(name=valid_text(name), arguments=text, id=valid_text(str(data.get("id") or "")))


def _call_id(data: dict[str, Any]) -> str | None:
    ids = data.get("tool_call_ids")
    found = data.get("tool_call_id") or (ids[0] if isinstance(ids, list) and len(ids) == 1 else None)
    return None if found is None else valid_text(str(found))


def _reasoning(data: dict[str, Any]) -> str | None:
    found = data.get("reasoning_content", data.get("reasoning"))
    return valid_text(found) if isinstance(found, str) and found else None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
