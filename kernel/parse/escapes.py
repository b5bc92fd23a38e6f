"""Backslashes in strings: JSON's escapes, and what is meant where a string holds backslashes that JSON does not know."""

from __future__ import annotations

import re

from kernel.parse.model import Unreadable

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_LEGAL = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_QUOTES = "'‘’“”„`"
_DRIVE = re.compile(r"[A-Za-z]:\\")
_SURROGATE = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def unescape(raw: str, at: int) -> tuple[str, bool]:
    r"""Decode the inside of a string that starts at offset `at`; also say whether it held what JSON does not allow.

    A string with an unknown escape (`C:\bin\app`, `\d+`) was written without escaping, so its `\b` and `\f` are no control
    characters either. Whether its `\n` before a letter is a line break cannot be told, unless it is a Windows path.

    Raises:
        Unreadable: `ambiguous`, for such an `\n`, `\r` or `\t`.
    """
    escapes = _ESCAPE.findall(raw)
    unknown = any(e[:1] not in _LEGAL and e[:1] not in _QUOTES and len(e) != 5 for e in escapes)
    literal = unknown and _DRIVE.match(raw) is not None

    def one(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape in _QUOTES and escape:
            # 'it'\''s' is how a shell writes an apostrophe: there the backslash is meant
            shell = raw[match.start() - 1 : match.start()] == "'" and raw[match.end() : match.end() + 1] == "'"
            return match[0] if shell and escape == "'" else escape
        if escape not in _LEGAL or (unknown and escape in "bf") or (literal and escape in "nrt"):
            return match[0]
        if unknown and escape in "nrt" and raw[match.end() : match.end() + 1].isalpha():
            message = f"In the string at offset {at} it cannot be told whether {match[0]!r} is an escape."
            raise Unreadable("ambiguous", message, at + match.start())
        return _LEGAL[escape]

    value = _ESCAPE.sub(one, raw)
    noisy = unknown or any(e[:1] in _QUOTES for e in escapes) or any(c < " " for c in raw)
    return _SURROGATE.sub(_pair, value), noisy


def _pair(match: re.Match[str]) -> str:
    high, low = match[0][0], match[0][1]
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))
