"""How an exception is put into words, whatever it is. Total: a hostile `__str__` is an answer too."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from kernel.record.canonical import valid_text

MAX_CHARS = 4000
MAX_ATTEMPT_CHARS = 500
MAX_REASON_CHARS = 2000
_GROUP_SHOWN = 8
_LAST_WORD = re.compile(r"\S*\Z")


class Words(NamedTuple):
    """The name of an exception's type, and its text: never empty, at most `MAX_CHARS` characters and a mark."""

    type: str
    message: str


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, and no parted word at their end: half a key is none that a mask would know."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    whole = head if text[limit].isspace() else head[: len(head) - len(_LAST_WORD.findall(head)[0])]
    return (whole if len(whole) > limit // 2 else head).rstrip()


def describe(error: BaseException) -> Words:
    """Name an exception's type and give its text; of a group, also the exceptions in it. Never raises."""
    text = _text(error)
    if isinstance(error, BaseExceptionGroup):
        inner = [f"{type(e).__name__}: {_text(e)}" for e in error.exceptions[:_GROUP_SHOWN]]
        text = "; ".join([text, *inner])
    if len(text) > MAX_CHARS:
        text = f"{clipped(text, MAX_CHARS)} … ({len(text)} characters)"
    return Words(valid_text(type(error).__name__), valid_text(text))


def is_cancelled() -> bool:
    """Whether the task at work is being cancelled. A `CancelledError` in any other was raised by what it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _text(error: BaseException) -> str:
    for form in (str, repr):
        try:
            text = form(error)
        except Exception:
            continue
        if text.strip():
            return text
    return f"{type(error).__name__}, which cannot be shown as text"
