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
from kernel.parse.model import Found, Parsed, ParseFault, Unreadable
from kernel.parse.pythonic import read_pythonic
from kernel.parse.quoting import is_enclosed, is_shown
from kernel.parse.react import read_react
from kernel.parse.reading import faulty, reading
from kernel.parse.source import Source
from kernel.parse.stops import STOP, behind_result
from kernel.parse.tagged import read_tagged
from kernel.parse.thinking import blank_thinking
from kernel.parse.usual import no_action
from kernel.parse.visible import thought_of, visible_of

_FAMILIES: tuple[tuple[str, Callable[[Source], list[Found]]], ...] = (
    ("markers of a model's own format", read_tagged),
    ("Action: and Action Input: labels", read_react),
    ("a JSON action", read_embedded),
    ("calls in Python's syntax", read_pythonic),
    ("one code block", read_codeblocks),
)

_STOP = re.compile(STOP, re.MULTILINE | re.IGNORECASE)
_HARMONY = re.compile(r"<\|(?:start|channel|message)\|>|\bto=functions\.|(?P<other>\{|<tool_call>)")


def thorough(text: str, names: frozenset[str]) -> Parsed:
    """Read a reply by all families; total."""
    masked, thinking, open_at = text, False, None
    try:
        if _speaks_harmony(text):
            source = Source(blank_thinking(text).text, names)
            harmony: Harmony = read_harmony(source)
            if harmony.calls and (calls := _own(source, harmony.calls)):
                return reading(calls, harmony.text)
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
    return faulty(_nothing(masked, visible, names, thinking, open_at), visible)


def _speaks_harmony(text: str) -> bool:
    """Whether harmony's tokens come before anything whose text could merely hold them."""
    first = _HARMONY.search(text)
    return first is not None and first["other"] is None


def _own(source: Source, calls: list[Found]) -> list[Found]:
    """Harmony's calls, where the first of them is made, and not in a result, an answer or a turn that the text plays."""
    start = calls[0].start
    stop = _STOP.search(source.text, 0, start)
    if is_shown(source, calls[0]) or (
        stop and (not stop["result"] or behind_result(source.text, *stop.span()) > start)
    ):
        return []
    return _made(source, calls)


def _calls(source: Source) -> list[Found]:
    order = _FAMILIES
    if source.text.lstrip()[:1] == "{":
        order = (_FAMILIES[2], *_FAMILIES)
    return next((calls for _, read in order if (calls := _made(source, read(source)))), [])


def _made(source: Source, found: list[Found]) -> list[Found]:
    """The calls that stand in no comment, example or invented result opened before them, nor in what is only shown."""
    behind, calls = 0, list[Found]()
    for call in found:
        shown = source.is_in_shown(call.start)
        if not shown and not is_enclosed(source.text, behind, call.start):
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


def _nothing(text: str, visible: str, names: frozenset[str], thinking: bool, open_at: int | None) -> ParseFault:
    if thinking and not visible:
        where = open_at or 0
        how = "is never closed" if open_at is not None else "is all there is"
        return ParseFault(rule="thinking-only", message=f"The thinking block at offset {where} {how}.", position=where)
    return no_action(text, visible, names)
