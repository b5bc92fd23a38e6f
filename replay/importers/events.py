"""Messages as events, the form of the GenAI conventions up to 1.36: on the span, or as a list in an attribute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernel.trace import Span
from replay.importers.shapes import Chat, decoded, messages_of, reply_of, system_messages, to_chat

_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE = "gen_ai.choice"
_DETAILS = "gen_ai.client.inference.operation.details"


def from_events(span: Span) -> tuple[list[Chat] | None, Chat | None]:
    """The request's messages and the reply, each None where no event has it."""
    bodies = [(event.name, event.attributes) for event in span.events]
    named = decoded(span.attributes.get("events"))
    if isinstance(named, list):
        bodies += [(str(body.get("event.name", "")), body) for body in named if isinstance(body, dict)]
    return _read(bodies)


def _read(bodies: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[list[Chat] | None, Chat | None]:
    messages: list[Chat] = []
    reply: Chat | None = None
    for name, attributes in bodies:
        content = decoded(attributes.get("gen_ai.event.content"))
        body = {**attributes, **content} if isinstance(content, dict) else dict(attributes)
        if name in _ROLES:
            messages.extend(to_chat({**body, "role": body.get("role") or _ROLES[name]}))
        elif name == _CHOICE:
            inner = decoded(body.get("message"))
            if not isinstance(inner, dict):
                inner = {"content": body.get("content") if inner is None else body["message"]}
                inner |= {"tool_calls": body["tool_calls"]} if "tool_calls" in body else {}
            reply = to_chat({**inner, "role": "assistant"})[-1]
            if isinstance(body.get("finish_reason"), str):
                reply["finish_reason"] = body["finish_reason"]
        elif name == _DETAILS:
            system = system_messages(body.get("gen_ai.system_instructions"))
            messages.extend([*system, *(messages_of(body.get("gen_ai.input.messages")) or ())])
            reply = reply_of(body.get("gen_ai.output.messages")) or reply
        elif name == "gen_ai.content.prompt":
            messages.extend(messages_of(body.get("gen_ai.prompt")) or ())
        elif name == "gen_ai.content.completion":
            reply = reply_of(body.get("gen_ai.completion")) or reply
    return messages or None, reply
