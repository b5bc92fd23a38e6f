"""The dialects of model servers: how a request and an answer are read, whatever way the answer was sent.

Reading is for people and for lineage. What is compared and served are the bodies themselves.
"""

from __future__ import annotations

from typing import Any

from kernel.record import Reply, parse_json
from replay.wire.dialects.anthropic import ANTHROPIC
from replay.wire.dialects.chat import CHAT
from replay.wire.dialects.gemini import GEMINI
from replay.wire.dialects.model import Dialect, Question, Strange, fields_of
from replay.wire.dialects.responses import RESPONSES
from replay.wire.exchange import Answer, Asked

__all__ = ["ANTHROPIC", "CHAT", "GEMINI", "RESPONSES", "Dialect", "Question", "Strange", "dialect_of", "fields_of"]
__all__ += ["events_of", "provider_of", "question_of", "reply_of"]

_ENDINGS = {
    "chat/completions": CHAT,
    "responses": RESPONSES,
    "messages": ANTHROPIC,
    ":generateContent": GEMINI,
    ":streamGenerateContent": GEMINI,
}


def dialect_of(method: str, path: str) -> Dialect | None:
    """The dialect of a model call; None for any other exchange (embeddings, reranking, model lists, files …)."""
    if method != "POST":
        return None
    ended = path.rstrip("/")
    return next((found for end, found in _ENDINGS.items() if ended.endswith(end)), None)


def provider_of(asked: Asked) -> str:
    """The provider whose dialect a request speaks, as the conventions spell it."""
    dialect = dialect_of(asked.method, asked.path)
    return dialect.provider if dialect is not None else "custom"


def question_of(asked: Asked) -> Question | None:
    """A model request, read; None for any other exchange and for a body of another shape."""
    dialect = dialect_of(asked.method, asked.path)
    if dialect is None or not isinstance(asked.body, dict):
        return None
    try:
        return dialect.read(asked.body, asked.path)
    except (Strange, AttributeError, TypeError, ValueError, RecursionError):
        return None


def reply_of(asked: Asked, answer: Answer) -> tuple[Reply | None, str]:
    """The reply in an answer, or None and why there is none."""
    dialect = dialect_of(asked.method, asked.path)
    if dialect is None:
        return None, "no model call"
    if answer.end in ("unreachable", "open"):
        return None, answer.detail or answer.end
    if not 200 <= answer.status < 300:
        return None, f"HTTP {answer.status}"
    if answer.end != "complete":
        return None, f"the answer was {answer.end}"
    try:
        if answer.streamed:
            body = dialect.assembled(events_of(answer.body))
        else:
            parsed = parse_json(answer.body)
            body = dialect.assembled(parsed) if isinstance(parsed, list) else parsed
        if not isinstance(body, dict):
            return None, "the answer is no object"
        return dialect.reply(body), ""
    except (Strange, AttributeError, TypeError, ValueError, KeyError, RecursionError) as error:
        return None, str(error)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of an event stream. Raises `ValueError` for an event that is none."""
    from kernel.model import EventParser

    parser = EventParser()
    found = []
    for event in [*parser.feed(data), *parser.close()]:
        if event.data.strip() == "[DONE]":
            break
        value = parse_json(event.data)
        if not isinstance(value, dict):
            raise Strange("an event is no object")
        found.append(value)
    return found
