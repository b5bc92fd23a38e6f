"""Reads one JSON value at a position: strictly where the text is JSON, else with noise removed.

Noise is what can be dropped without choosing between two meanings: comments, trailing or missing commas between pairs,
other quotation marks, quotes and line breaks that were not escaped, Python's literals. A missing value, word or closing
bracket is not noise; it is an `Unreadable`. Both ways are linear in the text and bounded in depth.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kernel.parse.escapes import unescape
from kernel.parse.model import Unreadable
from kernel.parse.strictjson import MAX_DEPTH, finite, strict

_STRICT_TRIES = 64

_BLANK = " \t\r\n\ufeff\xa0\u200b\u3000"
_SPACE = re.compile(r"[ \t\r\n\ufeff\xa0\u200b\u3000]*+")
_WRITTEN_BREAK = re.compile(r"(?:\\[nrt][ \t\r\n]*+)++(?=[\"'{}\[\],:]|-?[0-9]|(?:true|false|null)\b)")
"""Line breaks between tokens that were written as an escape, as JSON within a string has them."""
_COMMENT = re.compile(r"//[^\n]{0,400}(?=\n|\Z)|/\*.{0,400}?\*/|#[^\n]{0,400}(?=\n|\Z)", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$]*+")
_BARE_KEY = re.compile(r"[A-Za-z_$][\w$-]{0,127}+")
_LITERALS: dict[str, bool | None] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip

_DOUBLE, _SINGLE = '"“”„‟＂', "'‘’‚"
_CLOSERS = {
    **{q: re.compile('["“”„‟＂\\\\]') for q in _DOUBLE},
    **{q: re.compile("['‘’‚\\\\]") for q in _SINGLE},
    '"': re.compile(r'["”\\]'),
    "'": re.compile(r"['\\]"),
    "`": re.compile(r"[`\\]"),
}
_QUOTES = frozenset(_CLOSERS)
_KEY = (
    r"(?:\"(?:[^\"\\\n]|\\[^\n]){0,2000}\"|\\?[\"“”„‟＂][^\"“”„‟＂\n]{1,200}?[\"“”„‟＂]|\\?['‘’‚][^'‘’‚\n]{1,200}?['‘’‚]"
    r"|[A-Za-z_$][\w$-]{0,127})\s{0,32}[:：]"
)
_KEY_AHEAD = re.compile(_KEY)
_STRAY = r"[A-Za-z_]\w{0,63}\s{1,32}"
_STRAY_WORD = re.compile(_STRAY + r"""(?=["'“‘])""")
_AFTER_PAIR = re.compile(
    rf"[,，](?:\s|\\[nrt]){{0,200}}(?:\Z|[}},，]|//|/\*|\#|{_KEY}|{_STRAY}[\"'“‘][^\"\n]{{1,200}}[\"'”’]\s{{0,32}}:"
    rf"|[\"“'‘]?[^\"”'’\n{{}}\[\]:]{{0,200}}[\"”'’]?\s{{0,32}}\Z)"
)
OBJECT_AHEAD = re.compile(
    rf"\{{(?:\s|\\[nrt]){{0,200}}(?:\Z|\}}|//|/\*|\#|{_KEY}|{_STRAY}[\"'“‘]"
    rf"|\\?[\"“'‘]?[^\"”'’\n{{}}\[\]:]{{0,200}}(?:\\?[\"”'’])?\s{{0,32}}\Z)"
)
"""What an object can begin with, whole or cut off; prose in braces cannot."""
MORE_PAIRS = re.compile(r"""[}\s]{0,40},\s{0,40}"[^"\\\n]{1,80}"\s{0,8}:""")
"""What shows, behind an object, that it was closed too early."""
_AFTER_ITEM = re.compile(
    r"""[,，]\s{0,200}(?:\Z|[\],，"'“‘{\[]|-?[0-9]|(?:true|false|null|True|False|None)\b|//|/\*|#)"""
)
_LEVEL = re.compile(r"""\\([\\"'])""")
_DOUBLED = re.compile(rf"\{{\{{\s{{0,200}}{_KEY}")
_STRAY_QUOTED_OBJECT = re.compile(r"""["'“]\s{0,32}\{\s{0,200}["'][^"'\n\\]{1,200}["']\s{0,32}:""")


class Json(NamedTuple):
    """A value, the offset just behind it, and whether noise was removed to read it."""

    value: Any
    end: int
    repaired: bool


class JsonReader:
    """Reads JSON-like values of one text. `end_mark` matches a wrapper's closing tag, which proves that the call ended:
    right before it the outermost closing brace may be missing, because nothing else can follow there."""

    __slots__ = ("_end_mark", "_repaired", "_text", "_tries", "reached")

    def __init__(self, text: str, end_mark: re.Pattern[str] | None = None) -> None:
        self._text = text
        self._end_mark = end_mark
        self._repaired = False
        self._tries = _STRICT_TRIES
        self.reached = 0
        """The furthest offset looked at: who tries again further on and starts here reads nothing twice."""

    def read(self, pos: int) -> Json:
        """Read the object or array at `pos`.

        Raises:
            Unreadable: with the offset at which reading failed; `cut-off` where the text ends first.
        """
        if self._tries > 0 and not _STRAY_QUOTED_OBJECT.match(self._text, pos):
            found = strict(self._text, pos)
            if found is not None:
                return Json(found[0], found[1], False)
            self._tries -= 1  # a failed strict read costs its length, so their number is bounded
        self._repaired = False
        self.reached = pos
        value, end = self._value(pos, 0, "object")
        return Json(value, end, self._repaired)

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, pos: int, depth: int, inside: str) -> tuple[Any, int]:
        text = self._text
        if pos >= len(text):
            raise self._cut(pos)
        char = text[pos]
        if depth > MAX_DEPTH:
            raise Unreadable("too-deep", f"The JSON is nested more than {MAX_DEPTH} levels deep.", pos)
        if char == "{":
            return self._doubled(pos, depth + 1) if _DOUBLED.match(text, pos) else self._object(pos, depth + 1)
        if char == "[":
            return self._array(pos, depth + 1)
        if char in _QUOTES or (char == "\\" and text[pos + 1 : pos + 2] in ('"', "'")):
            if _STRAY_QUOTED_OBJECT.match(text, pos):
                return self._quoted_object(pos, depth)
            return self._string(pos, inside)
        if number := _NUMBER.match(text, pos):
            return self._number(number)
        word = _WORD.match(text, pos)
        if word and word[0] in _LITERALS and text[word.end() : word.end() + 1] not in _QUOTES:
            self._repaired |= word[0][0].isupper()
            return _LITERALS[word[0]], word.end()
        shown = word[0][:40] if word else char
        raise Unreadable("malformed-json", f"Expected a JSON value at offset {pos}, found {shown!r}.", pos)

    def _number(self, match: re.Match[str]) -> tuple[int | float, int]:
        digits = match[0]
        try:
            return (finite(digits) if any(c in digits for c in ".eE") else int(digits)), match.end()
        except ValueError:
            message = f"The number at offset {match.start()} is too large."
            raise Unreadable("malformed-json", message, match.start()) from None

    def _quoted_object(self, pos: int, depth: int) -> tuple[Any, int]:
        """An object between quotes that were meant to make it a string, its own quotes not escaped."""
        value, end = self._value(self._skip(pos + 1), depth, "object")
        end = self._skip(end)
        if self._text[end : end + 1] not in _QUOTES:
            raise Unreadable("malformed-json", f"The quote at offset {pos} around an object is never closed.", end)
        self._repaired = True
        return value, end + 1

    def _doubled(self, start: int, depth: int) -> tuple[dict[str, Any], int]:
        """An object in two pairs of braces, as templates escape them."""
        if depth > MAX_DEPTH:
            raise Unreadable("too-deep", f"The JSON is nested more than {MAX_DEPTH} levels deep.", start)
        value, end = self._object(start + 1, depth + 1)
        if self._text[end : end + 1] != "}":
            raise self._unexpected(end, "a second '}'")
        self._repaired = True
        return value, end + 1

    def _object(self, start: int, depth: int) -> tuple[dict[str, Any], int]:
        text, out = self._text, dict[str, Any]()
        pos = self._skip(start + 1)
        while True:
            char = text[pos : pos + 1]
            if char == "}":
                return out, pos + 1
            if char in (",", "，") and char:
                self._repaired = True
                pos = self._skip(pos + 1)
                continue
            if stray := _STRAY_WORD.match(text, pos):
                self._repaired = True
                pos = stray.end()
            at, (key, pos) = pos, self._key(pos)
            value, pos = self._value(self._skip(pos), depth, "object")
            if key in out and out[key] != value:
                raise Unreadable("ambiguous", f"The key {key!r} is given twice with different values.", at)
            out[key] = value
            pos = self._skip(pos)
            char = text[pos : pos + 1]
            if char == ",":
                pos = self._skip(pos + 1)
                self._repaired |= text[pos : pos + 1] == "}"
            elif char == "}":
                return out, pos + 1
            elif self._at_end_mark(pos):
                if depth == 1:
                    self._repaired = True
                    return out, pos
                raise Unreadable("malformed-json", f"{depth} closing brackets are missing at offset {pos}.", pos)
            elif _KEY_AHEAD.match(text, pos):
                self._repaired = True
            elif not char:
                raise self._cut(start)
            elif char != "，":
                raise self._unexpected(pos, "',' or '}'")

    def _array(self, start: int, depth: int) -> tuple[list[Any], int]:
        text, out = self._text, list[Any]()
        pos = self._skip(start + 1)
        while True:
            char = text[pos : pos + 1]
            if char == "]":
                return out, pos + 1
            value, pos = self._value(pos, depth, "array")
            out.append(value)
            pos = self._skip(pos)
            char = text[pos : pos + 1]
            if char in (",", "，") and char:
                pos = self._skip(pos + 1)
                self._repaired |= char == "，" or text[pos : pos + 1] == "]"
            elif char == "]":
                return out, pos + 1
            elif char in ("{", "[") and char and isinstance(value, (dict, list)):
                self._repaired = True
            elif not char:
                raise self._cut(start)
            else:
                raise self._unexpected(pos, "',' or ']'")

    def _key(self, pos: int) -> tuple[str, int]:
        text = self._text
        char = text[pos : pos + 1]
        if not char:
            raise self._cut(pos)
        if char in _QUOTES or (char == "\\" and text[pos + 1 : pos + 2] in ('"', "'")):
            key, end = self._string(pos, "key")
        elif bare := _BARE_KEY.match(text, pos):
            self._repaired = True
            key, end = bare[0], bare.end()
        else:
            raise self._unexpected(pos, "a key or '}'")
        colon = self._skip(end)
        if text[colon : colon + 1] not in (":", "："):
            raise self._unexpected(colon, "':'")
        if not text[colon : colon + 1]:
            raise self._cut(colon)
        self._repaired |= text[colon] == "："
        return key, colon + 1

    # -- strings -----------------------------------------------------------------------------------------------------

    def _string(self, start: int, inside: str) -> tuple[str, int]:
        text = self._text
        escaped = text[start] == "\\"
        quote = text[start + escaped]
        body = start + 1 + escaped
        if text.startswith(quote * 3, start) and quote in "\"'":
            return self._triple(start, quote * 3, inside)
        self._repaired |= quote != '"' or escaped
        inner, opened = 0, False
        pos = scanned = body
        while found := _CLOSERS[quote].search(text, pos):
            at = found.start()
            pos = at + 1
            if text[at] == "\\":
                if not escaped or text[pos : pos + 1] != quote:
                    pos += 3 if escaped and text.startswith("\\\\" + quote, pos) else 1
                    continue
                pos += 1
            elif escaped:
                continue
            elif text[at] == "”" and quote == '"':
                opened, scanned = opened or text.find("“", scanned, at) >= 0, at
                if opened or not self._may_close(pos, inside):
                    continue  # a character of the string
                self._repaired = True
            if self._closes(pos, inside):
                if inner >= 2 and text.startswith(quote, body) and text[at - 1] == quote:
                    raise Unreadable("ambiguous", f"The quotes of the string at offset {start} are doubled.", start)
                return self._text_of(body, at, escaped), pos
            if inside == "key":
                break
            inner += 1
            self._repaired = True
        if inner or (inside == "key" and found):
            self.reached = self.reached if found else len(text)
            raise Unreadable("malformed-json", f"The string that starts at offset {start} has no clear end.", start)
        raise self._cut(start)

    def _triple(self, start: int, quotes: str, inside: str) -> tuple[str, int]:
        text, pos = self._text, start + 3
        while (at := text.find(quotes, pos)) >= 0:
            pos = at + 3
            if self._closes(pos, inside):
                self._repaired = True
                return text[start + 3 : at], pos
        raise self._cut(start)

    def _text_of(self, start: int, end: int, escaped: bool) -> str:
        raw = self._text[start:end]
        if escaped:
            raw = _LEVEL.sub(r"\1", raw)
        if "\\" not in raw:
            self._repaired |= not raw.isprintable() and any(c < " " for c in raw)
            return raw
        value, noisy = unescape(raw, start)
        self._repaired |= noisy
        return value

    def _may_close(self, pos: int, inside: str) -> bool:
        """Whether a curly quote just before `pos` can be the end of a string that a straight one opened."""
        behind = self._text[(pos := _space(self._text, pos)) : pos + 1]
        if behind == "," and inside != "key":
            return (_AFTER_ITEM if inside == "array" else _AFTER_PAIR).match(self._text, pos) is not None
        return behind == {"key": ":", "array": "]"}.get(inside, "}")

    def _closes(self, pos: int, inside: str) -> bool:
        """Whether the quote just before `pos` ends its string: what follows must be able to follow a string."""
        text = self._text
        pos = self.reached = self._skip(pos)
        char = text[pos : pos + 1]
        if not char:
            return True
        if inside == "key":
            return char in ":："
        if char in ":：":
            message = f"Before offset {pos} a value is missing or a quote is not escaped."
            raise Unreadable("ambiguous", message, pos)
        if char in "}]":
            return char == ("]" if inside == "array" else "}")
        if char in ",，":
            return (_AFTER_ITEM if inside == "array" else _AFTER_PAIR).match(text, pos) is not None
        if char == "+" and text[self._skip(pos + 1) : self._skip(pos + 1) + 1] in _QUOTES:
            raise Unreadable("ambiguous", f"Strings are put together with a plus at offset {pos}.", pos)
        if char in _QUOTES or char == "\\":
            if inside == "object" and _KEY_AHEAD.match(text, pos):
                return True
            if text[pos - 1] in _BLANK and char != "\\":
                raise Unreadable("ambiguous", f"A comma is missing or a quote is not escaped at offset {pos}.", pos)
            return False
        return self._at_end_mark(pos)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _skip(self, pos: int) -> int:
        """Skip white space and comments."""
        text = self._text
        pos = _space(text, pos)
        while text[pos : pos + 1] in ("/", "#", "\\") and (
            noise := _COMMENT.match(text, pos) or _WRITTEN_BREAK.match(text, pos)
        ):
            self._repaired = True
            pos = _space(text, noise.end())
        return pos

    def _at_end_mark(self, pos: int) -> bool:
        return self._end_mark is not None and self._end_mark.match(self._text, pos) is not None

    def _cut(self, start: int) -> Unreadable:
        message = f"The text ends before what starts at offset {min(start, len(self._text))} is closed."
        return Unreadable("cut-off", message, len(self._text))

    def _unexpected(self, pos: int, wanted: str) -> Unreadable:
        found = self._text[pos : pos + 1]
        if not found:
            return self._cut(pos)
        return Unreadable("malformed-json", f"Expected {wanted} at offset {pos}, found {found!r}.", pos)


def _space(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos
