"""Two values side by side: equal parts elided, differences that cannot be seen made visible."""

from __future__ import annotations

import unicodedata
from typing import Any

from kernel.record import compact_json
from replay.play import ABSENT
from replay.report.literals import cut, escape, literal

_CONTEXT = 24
_ASCII_BLANK = " "


def contrast(recorded: Any, observed: Any, columns: int) -> tuple[str, str, str]:
    """Both values, harmless, each in at most three times `columns`, and a remark on where or how they differ, or ""."""
    if ABSENT in (recorded, observed) or not _alike(recorded, observed):
        return _whole(recorded, 3 * columns), _whole(observed, 3 * columns), ""
    is_text = isinstance(recorded, str)
    one, other = (recorded, observed) if is_text else (compact_json(recorded), compact_json(observed))
    start, end = _common(one, other)
    core, replaced = one[start : len(one) - end], other[start : len(other) - end]
    show_blanks = not (core + replaced).strip(_ASCII_BLANK)
    remark = _remark(core, replaced)
    if start > 2 * _CONTEXT:
        place = f"they differ from character {start + 1:,}"
        if "\n" in one[:start]:
            place += f", line {one.count(chr(10), 0, start) + 1:,}"
        remark = f"{place}; {remark}" if remark else place
    sides = [
        _window(text, part, start, end, columns, quote=is_text, blanks=show_blanks)
        for text, part in ((one, core), (other, replaced))
    ]
    return sides[0], sides[1], remark


def _alike(recorded: Any, observed: Any) -> bool:
    """Whether a common beginning and end can be left out."""
    if isinstance(recorded, str) and isinstance(observed, str):
        return True
    return isinstance(recorded, (dict, list, tuple)) and isinstance(observed, (dict, list, tuple))


def _whole(value: Any, columns: int) -> str:
    if value is ABSENT or value == ABSENT:
        return ABSENT
    text = _quoted(value[: 4 * columns], True) if isinstance(value, str) else literal(compact_json(value))
    return cut(text, columns)


def _window(text: str, core: str, start: int, end: int, columns: int, *, quote: bool, blanks: bool) -> str:
    """What surrounds a difference, and as much of it as there is room for."""
    before = text[:start] if start <= 2 * _CONTEXT else text[start - _CONTEXT : start]
    after = text[len(text) - end :] if end <= 2 * _CONTEXT else text[len(text) - end :][:_CONTEXT]
    room = max(20, columns - len(before) - len(after) - 4)
    left_out = ""
    if len(core) > room:
        left_out = f"… ({len(core) - room:,} more)"
        core = core[:room]
        after = ""
    shown = _escape_blanks(_inner(core, quote)) if blanks else _inner(core, quote)
    mark = '"' if quote else ""
    head = "…" if start > 2 * _CONTEXT else mark
    tail = left_out or ("…" if end > 2 * _CONTEXT else mark)
    return f"{head}{_inner(before, quote)}{shown}{_inner(after, quote)}{tail}"


def _quoted(text: str, quote: bool) -> str:
    return f'"{_inner(text, quote)}"'


def _inner(text: str, quote: bool) -> str:
    return literal(text.replace("\\", "\\\\").replace('"', '\\"')) if quote else literal(text)


def _escape_blanks(text: str) -> str:
    return text.replace(_ASCII_BLANK, "\\x20")


def _common(one: str, other: str) -> tuple[int, int]:
    """Lengths of the common beginning and of the common end, which do not overlap. O(n log n) of memory comparison."""
    limit = min(len(one), len(other))
    start = _longest(limit, lambda n: one[:n] == other[:n])
    rest = limit - start
    end = _longest(rest, lambda n: n == 0 or one[-n:] == other[-n:])
    return start, end


def _longest(limit: int, holds: Any) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _remark(core: str, replaced: str) -> str:
    """Words for a difference that the eye may miss."""
    both = core + replaced
    if both and not both.strip():
        return "they differ in white space only"
    if core.split() == replaced.split():
        return "they differ in white space only"
    visible = [_visible(text) for text in (core, replaced)]
    if visible[0] == visible[1]:
        return "they differ in invisible characters only"
    if max(len(core), len(replaced)) <= 4 and not both.isascii() and _letters(core) and _letters(replaced):
        return f"{_named(core)} became {_named(replaced)}"
    if unicodedata.normalize("NFKC", core) == unicodedata.normalize("NFKC", replaced):
        return "they are two encodings of the same text (Unicode normalisation)"
    return ""


def _visible(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


def _letters(text: str) -> bool:
    """Letters of alphabets, which may look alike across scripts; ideographs do not."""
    return bool(text) and all(unicodedata.category(char) in ("Ll", "Lu", "Mn") for char in text)


def _named(text: str) -> str:
    return " ".join(f"U+{ord(char):04X} {unicodedata.name(char, escape(char))}" for char in text)
