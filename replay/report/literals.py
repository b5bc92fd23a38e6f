"""Foreign text made harmless: what a trace holds is shown, never obeyed by a terminal.

All text that comes from a recording passes through here before it is printed. Control characters (ANSI, OSC, C1), bidi
controls, zero-width characters, unusual blanks and lone surrogates become visible escapes; the rest stays as it is.
"""

from __future__ import annotations

import unicodedata

_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_CUT = "…"
_HEAD_CHARS = 20_000
"""Beyond this no text is looked at where one line of it is wanted: a result may be 10 MB."""


def literal(text: str) -> str:
    """`text` on one line and without effect on a terminal; printable text comes back as it is. O(n)."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else escape(char) for char in text])


def escape(char: str) -> str:
    """One character as a visible escape: `\\n`, `\\x1b`, `\\u202e`, `\\U000e0041`."""
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted(text: str) -> str:
    """`text` in double quotes, with backslashes and quotes escaped, so that no two texts look the same but for
    characters that look alike."""
    return '"' + literal(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def width_of(text: str) -> int:
    """Columns that printable `text` takes on a terminal: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Printable `text` in at most `columns` columns; a cut is marked with `…` in the last one."""
    if len(text) <= columns and text.isascii():
        return text
    if columns <= 0:
        return ""
    used = 0
    for at, char in enumerate(text):
        wide = _columns(char)
        if used + wide > columns or (used + wide == columns and at + 1 < len(text) and width_of(text[at + 1 :]) > 0):
            return text[:at] + _CUT
        used += wide
    return text


def wrap(text: str, columns: int, most: int) -> list[str]:
    """Printable `text` in at most `most` lines of `columns`, broken anywhere; the last one is cut."""
    out: list[str] = []
    while len(out) + 1 < most and width_of(text) > columns:
        end = min(columns, len(text))
        while width_of(text[:end]) > columns:
            end -= 1
        out.append(text[:end])
        text = text[end:]
    return [*out, cut(text, columns)]


def line(text: str, columns: int) -> str:
    """The first line's worth of foreign text: blank lines at the ends dropped, harmless, cut to `columns`."""
    head = text[:_HEAD_CHARS].strip()
    return cut(literal(head), columns) if len(text) <= _HEAD_CHARS else cut(literal(head) + _CUT, columns)
