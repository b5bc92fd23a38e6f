"""Reads a model's text as tool calls: a total function that removes noise, never completes, and never guesses.

A text holds calls or it is a fault. The families are tried in the order of `kernel.parse.thorough`, from the surest marks to the
weakest; the first that finds a call, or surely an attempt at one, decides. The first call of a text is the one to run.

- Repair drops what cannot carry meaning. Text that is cut off is never closed, with one exception: a wrapper's own closing
  tag proves that the call inside it ended, so the outermost brace right before it may be missing.
- Two readings that would run different actions are a fault.
- Nothing inside thinking, behind an invented result or a final answer, or shown as an example is a call.

Linear in the text and bounded in depth, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from kernel.parse.jsonish import JsonReader
from kernel.parse.marks import OPENER
from kernel.parse.model import Parsed, ParsedCall, ParseFault, Rule, Unreadable
from kernel.parse.quoting import is_shown
from kernel.parse.reading import faulty, reading
from kernel.parse.shape import arguments, calls_in, usual_call
from kernel.parse.source import Source
from kernel.parse.strictjson import behind_repeats, strict
from kernel.parse.thinking import blank_thinking
from kernel.parse.usual import read_usual
from kernel.parse.visible import visible_of

__all__ = ["ParseFault", "Parsed", "ParsedCall", "Rule", "is_marked", "loads_lenient", "parse", "parse_arguments"]

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})


def parse(text: str, *, finish_reason: str | None = None, tool_names: Collection[str] = ()) -> Parsed:
    """Read one reply. Total: any string gives a `Parsed`, none raises.

    Args:
        finish_reason: the provider's; one that says the output was cut is always a fault.
        tool_names: the known tools. They only decide between spellings of a name, and whether a code block can be a call.
    """
    if finish_reason is not None and finish_reason.lower() in _CUT:
        shown = visible_of(blank_thinking(text).text)
        return faulty(
            ParseFault(rule="cut-off", message="The reply was cut off by the output limit.", position=len(text)), shown
        )
    names = tool_names if isinstance(tool_names, frozenset) else frozenset(tool_names)
    try:
        if (usual := read_usual(text, names)) is not None:
            return usual
    except Unreadable as unreadable:
        return faulty(unreadable.fault(), text.strip())
    from kernel.parse.thorough import thorough

    return thorough(text, names)


def is_marked(text: str) -> bool:
    """Whether a text holds the mark of a model's own call format, which no answer holds that does not speak of calls."""
    return OPENER.search(text) is not None


def loads_lenient(text: str) -> tuple[Any, bool]:
    """Read one JSON value with noise removed; return it and whether there was noise.

    Raises:
        ValueError: the text is no JSON value, is cut off, or can be read in two ways. Its argument is a `ParseFault`.
    """
    try:
        stripped = text.strip()
        found = strict(stripped)
        if found is not None and found[1] == len(stripped):
            return found[0], False
        start = len(text) - len(text.lstrip())
        value, end, _ = JsonReader(text).read(start)
        if text[end:].strip():
            raise Unreadable("ambiguous", f"Something follows the JSON at offset {end}.", end)
        return value, True
    except Unreadable as unreadable:
        raise ValueError(unreadable.fault()) from None


_FENCED = re.compile(r"\s*+(?:```|~~~)[ \t]{0,8}\w{0,20}\s*+")
_TAIL = re.compile(r"[}\]\s]*+(?:(?:```|~~~)\s*+)?(?:</[\w:]{1,40}>|<\|[\w]{1,40}\|>|\s)*+\Z")


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, bool, ParseFault | None]:
    """Read the arguments string of a structured tool call: `(arguments, repaired, fault)`.

    An empty string and `null` are no arguments. Arguments and fault are never both there, nor both absent.
    """
    try:
        stripped = text.strip()
        if not stripped or stripped == "null":
            return {}, False, None
        found = strict(stripped)
        if found is not None and found[1] == len(stripped):
            return _object_of(found[0], repaired=False)
        fence = _FENCED.match(text)
        start = fence.end() if fence else len(text) - len(text.lstrip())
        value, end, _ = JsonReader(text).read(start)
        end = behind_repeats(text, end, value)
        if not _TAIL.match(text, end):
            raise Unreadable("ambiguous", f"Something follows the arguments object at offset {end}.", end)
        return _object_of(value, repaired=True)
    except Unreadable as unreadable:
        return None, False, unreadable.fault()


def _object_of(value: Any, *, repaired: bool) -> tuple[dict[str, Any] | None, bool, ParseFault | None]:
    args, unwrapped = arguments(value, 0, text_allowed=False)
    if isinstance(value, str) and args and value.lstrip()[:1] != "{":
        raise Unreadable("not-an-object", "The arguments are a text, not an object.", 0)
    return args, repaired or unwrapped, None
