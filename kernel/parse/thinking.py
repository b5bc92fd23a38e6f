"""Finds what the model only thought: a call rehearsed there must never run.

Thinking is blanked with spaces, so that offsets stay those of the raw text. A marker inside the arguments of a call is not
thinking: whichever opens first, call or thinking, holds the other.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel.parse.marks import NAMESPACE
from kernel.parse.model import Unreadable
from kernel.parse.strictjson import strict

_NAMES = "think|thinking|thoughts?|reasoning|reflection|scratch_?pad|analysis|inner_monologue|antThinking|seed:think|mm:think"
_OPEN = (
    rf"<(?P<tag>{_NAMES})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|?channel\|?>thought\b"
    r"|<\|thinking\|>|<unused94>"
)
_CLOSE = rf"</(?P<untag>{_NAMES})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|<channel\|>|<\|/thinking\|>|<unused95>"
_MARK = re.compile(
    rf"(?P<open>{_OPEN})|(?P<close>{_CLOSE})|(?P<call><(?P<calltag>{NAMESPACE}(?:tool_call|function|invoke))(?=[\s=>]))|(?P<json>\{{)",
    re.IGNORECASE,
)
_CLOSE_ONLY = re.compile(_CLOSE, re.IGNORECASE)
_ANY = re.compile(rf"{_OPEN}|{_CLOSE}", re.IGNORECASE)
_STRICT_TRIES = 32


class Thinking(NamedTuple):
    """The text with its thinking blanked, and the offset of a thinking block that is never closed (or None)."""

    text: str
    found: bool
    open_at: int | None


def blank_thinking(text: str) -> Thinking:
    """Replace every thinking block by as many spaces. A closing mark without an opening one ends thinking that began
    with the text, as templates that open the block themselves leave it."""
    if not _ANY.search(text):
        return Thinking(text, False, None)
    spans: list[tuple[int, int]] = []
    open_at: int | None = None
    pos, tries = 0, _STRICT_TRIES
    unclosed = set[str]()
    while mark := _MARK.search(text, pos):
        start, pos = mark.span()
        if mark["json"]:
            if tries > 0:
                tries -= 1
                pos = _end_of_object(text, start) or pos
        elif mark["call"]:
            tag = f"</{mark['calltag']}>"
            end = text.find(tag, pos) if tag not in unclosed and len(unclosed) < _STRICT_TRIES else -1
            if end < 0:
                unclosed.add(tag)
            pos = max(pos, end)
        elif text[start - 1 : start] == "`" and text[pos : pos + 1] == "`":
            continue  # the name of a tag in running text
        elif mark["close"]:
            spans = [(0, pos)]
        else:
            close = _CLOSE_ONLY.search(text, pos)
            if close is None:
                open_at = start
                spans.append((start, len(text)))
                break
            pos = close.end()
            spans.append((start, pos))
    return Thinking(blank(text, spans), bool(spans), open_at)


def blank(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with each of the ordered spans overwritten with spaces."""
    parts, pos = [], 0
    for start, end in spans:
        parts += [text[pos:start], " " * (end - start)]
        pos = end
    return "".join([*parts, text[pos:]])


def _end_of_object(text: str, start: int) -> int | None:
    try:
        found = strict(text, start)
    except Unreadable:
        return None
    return found[1] if found else None
