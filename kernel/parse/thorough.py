"""The thorough reading of a reply: every family in turn. Loaded when the quick reading does not suffice for the first time,
because its patterns take longer to compile than a short replay takes to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from kernel.parse.codeblocks import read_codeblocks
from kernel.parse.embedded import read_embedded
from kernel.parse.harmony import Harmony, read_harmony
from kernel.parse.model import Found, Parsed, ParseFault, Source, Unreadable
from kernel.parse.pythonic import read_pythonic
from kernel.parse.quoting import is_enclosed
from kernel.parse.react import read_react
from kernel.parse.reading import faulty, reading
from kernel.parse.tagged import read_tagged
from kernel.parse.thinking import blank_thinking
from kernel.parse.visible import thought_of, visible_of

_FAMILIES: tuple[tuple[str, Callable[[Source], list[Found]]], ...] = (
    ("markers of a model's own format", read_tagged),
    ("Action: and Action Input: labels", read_react),
    ("a JSON action", read_embedded),
    ("calls in Python's syntax", read_pythonic),
    ("one code block", read_codeblocks),
)

_HARMONY = re.compile(r"<\|(?:start|channel|message)\|>|\bto=functions\.|(?P<other>\{|<tool_call>)")


def thorough(text: str, names: frozenset[str]) -> Parsed:
    """Read a reply by all families; total."""
    masked, thinking, open_at = text, False, None
    try:
        if _speaks_harmony(text):
            harmony: Harmony = read_harmony(Source(text, names))
            if harmony.calls:
                return reading(harmony.calls, harmony.text)
            masked, thinking = harmony.text, harmony.thinking
        blanked = blank_thinking(masked)
        masked, thinking, open_at = blanked.text, thinking or blanked.found, blanked.open_at
        calls = _calls(Source(masked, names))
        if not calls and open_at is not None:
            calls = _behind_thinking(text, open_at, names)
        if calls:
            return reading(calls, masked)
    except Unreadable as unreadable:
        return faulty(unreadable.fault(), visible_of(masked))
    visible = visible_of(masked)
    return faulty(_nothing(visible, thinking, open_at), visible)


def _speaks_harmony(text: str) -> bool:
    """Whether harmony's tokens come before anything whose text could merely hold them."""
    first = _HARMONY.search(text)
    return first is not None and first["other"] is None


def _calls(source: Source) -> list[Found]:
    order = _FAMILIES
    if source.text.lstrip()[:1] == "{":
        order = (_FAMILIES[2], *_FAMILIES)
    return next((calls for _, read in order if (calls := _made(source.text, read(source)))), [])


def _made(text: str, found: list[Found]) -> list[Found]:
    """The calls that stand in no comment, example or invented result opened before them."""
    behind, calls = 0, list[Found]()
    for call in found:
        if not is_enclosed(text, behind, call.start):
            calls.append(call)
        behind = max(behind, call.end)
    return calls


def _behind_thinking(text: str, open_at: int, names: frozenset[str]) -> list[Found]:
    """Marked calls that end a text whose thinking is never closed: the model went over to acting without the closing tag.
    A call with anything but white space behind it, or in the middle of a line, is a rehearsal."""
    start = text.index(">" if ">" in text[open_at : open_at + 40] else text[open_at], open_at) + 1
    calls = read_tagged(Source(" " * start + text[start:], names))
    if not calls or text[max(start, text.rfind("\n", 0, calls[0].start)) : calls[0].start].strip():
        return []
    gaps = [text[a.end : b.start] for a, b in pairwise(calls)]
    return [] if thought_of("".join(gaps)) or visible_of(text[calls[-1].end :]) else calls


def _nothing(visible: str, thinking: bool, open_at: int | None) -> ParseFault:
    if thinking and not visible:
        where = open_at or 0
        how = "is never closed" if open_at is not None else "is all there is"
        return ParseFault(rule="thinking-only", message=f"The thinking block at offset {where} {how}.", position=where)
    return ParseFault(
        rule="no-action", message="The reply holds no action." if visible else "The reply is empty.", position=0
    )
