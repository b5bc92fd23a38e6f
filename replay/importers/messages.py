"""One message of a chat-format list, in the spellings that are in use, as a `Message`.

Read alike, because the chat format does not tell them apart: `content` null, "" and absent (where no other field could hold
it); text parts and their concatenation; `function_call` and one call in `tool_calls`; role `function` and `tool`; role `developer` and `system`;
`tool_call_id` and a `tool_call_ids` of one.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import Message, Role, ToolCall, compact_json, to_jsonable, valid_text
from replay.importers.shapes import ARGUMENTS, NOT_CAPTURED

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


_KNOWN = {
    *(
        "role",
        "content",
        "name",
        "id",
        "tool_call_id",
        "tool_call_ids",
        "reasoning",
        "reasoning_content",
        "refusal",
        "finish_reason",
    ),
    *(
        "tool_calls",
        "function_call",
        "agent",
        "message_type",
        "thought",
        "action",
        "is_demo",
        "timestamp",
        "extra",
        "metadata",
    ),
    *("choices", "type", "status", "annotations", "audio", "cache_control", "tags", "usage", "model"),
}
"""Fields that say nothing of their own where a message has no content."""


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
    if "content" not in data and not (data.get("tool_calls") or data.get("function_call") or data.get("refusal")):
        unread = sorted(set(data) - _KNOWN)
        if unread:
            what = f"has no content, but {', '.join(map(str, unread))}, which cannot be read"
            raise refuse(file, place, what, "Put its text under content")
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
    if part == NOT_CAPTURED:
        raise refuse(file, place, "its content was not captured", "Record it again with its content")
    if not isinstance(part, dict):
        raise refuse(file, place, f"is {_kind(part)}, not a part", 'Give each part as {"type": …}')
    text = part.get("text")
    if part.get("type") in (None, "text", "input_text", "output_text") and isinstance(text, str):
        return valid_text(text)
    return compact_json(to_jsonable(part))  # an image, a file, a server's tool: kept as it is, unread


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
    given = next((key for key in ARGUMENTS if key in inner), None)
    if given is None and (unread := set(inner) - {"name", "id", "type", "index", "call_id"}):
        what = f"the call of {name!r:.60} has no arguments in a place that is known, but {', '.join(sorted(unread))}"
        raise refuse(file, place, what, f"Known places are {', '.join(ARGUMENTS)}")
    arguments = inner[given] if given is not None and inner[given] is not None else ""
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
