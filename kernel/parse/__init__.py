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

from kernel.parse.jsonish import JsonReader, strict
from kernel.parse.model import Parsed, ParsedCall, ParseFault, Rule, Unreadable
from kernel.parse.quoting import is_shown
from kernel.parse.reading import faulty, reading
from kernel.parse.shape import arguments, calls_in, usual_call
from kernel.parse.thinking import blank_thinking
from kernel.parse.usual import read_usual
from kernel.parse.visible import visible_of

__all__ = ["ParseFault", "Parsed", "ParsedCall", "Rule", "loads_lenient", "parse", "parse_arguments"]

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_MARKED = re.compile("[<`\\[◁✿]")
_FENCE = re.compile(r"(?:\A|\n)```(?:json)?[ \t]*\n\s*\Z")
_LABELLED = re.compile(
    r"(?:final[ _]answer|action|observation|answer|tool|function|human|user|最终|动作|行动|操作|观察|工具|用户)[ \w]{0,16}[*_]{0,2}[:：]",
    re.IGNORECASE,
)


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
        quick = _quick(text, names)
        if quick is not None:
            return quick
    except Unreadable as unreadable:
        return faulty(unreadable.fault(), text.strip())
    from kernel.parse.thorough import thorough

    return thorough(text, names)


def _quick(text: str, names: frozenset[str]) -> Parsed | None:
    """The usual reply: a strict JSON action, fenced or not, as the whole text or behind plain prose. None for any other."""
    start = text.find("{")
    if start < 0:
        return None
    before = text[:start]
    suspect = _is_suspect(before)
    if (usual := read_usual(text, suspect)) is not None:
        return usual
    prose = before != "" and not before.isspace()
    fence = _FENCE.search(before, max(0, start - 40)) if prose else None
    if prose and (_is_suspect(before[: fence.start()]) if fence else suspect):
        return None
    found = strict(text, start)
    if found is None or (found[1] != len(text) and text[found[1] :].strip() != ("```" if fence else "")):
        return None
    shape = usual_call(found[0])
    shapes = [shape] if shape else calls_in(found[0], start, names)
    if not shapes or (prose and is_shown(text, start, found[1])):
        return None
    if prose or len(shapes) > 1:
        return reading([shape.found("json", start, found[1]) for shape in shapes], text)
    name, args, repaired, thought, intent, cost = shapes[0]
    call = ParsedCall(
        name=name,
        args=args,
        repaired=repaired,
        family="json",
        start=start,
        end=found[1],
        thought=thought,
        intent=intent,
        estimated_cost=cost,
    )
    return Parsed(calls=(call,), fault=None, thought=thought, visible=text.strip())


def _is_suspect(before: str) -> bool:
    """Whether prose may hold a mark that some family or the thinking must be asked about."""
    return _MARKED.search(before) is not None or (
        (":" in before or "：" in before) and _LABELLED.search(before) is not None
    )


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


_FENCED = re.compile(r"\s*+(?:```|~~~)\w{0,20}\s*+")
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
        if not _TAIL.match(text, end):
            raise Unreadable("ambiguous", f"Something follows the arguments object at offset {end}.", end)
        return _object_of(value, repaired=True)
    except Unreadable as unreadable:
        return None, False, unreadable.fault()


def _object_of(value: Any, *, repaired: bool) -> tuple[dict[str, Any] | None, bool, ParseFault | None]:
    if not isinstance(value, (dict, str, list)):
        raise Unreadable("not-an-object", f"The arguments are a {type(value).__name__}, not an object.", 0)
    args, unwrapped = arguments(value, 0, text_allowed=False)
    if isinstance(value, str) and args == {"input": value}:
        raise Unreadable("not-an-object", "The arguments are a text, not an object.", 0)
    return args, repaired or unwrapped, None
