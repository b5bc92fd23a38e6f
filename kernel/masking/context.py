"""Secrets known by what stands before them: `NAME=value`, `"name": "value"`, `--name value`, `Bearer x`,
`user:x@host`.

Each function gets a text and the place of its trigger, and returns the hit there or None. Quotes may be escaped any
number of times, so JSON text inside JSON text inside prose is read without parsing, and a value is decoded before
it is hashed: the escaped and the parsed form of one secret get one placeholder. Work per trigger is bounded, or is
consumed by the hit.
"""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from kernel.masking.names import MAX_NAME, looks_random, secret_in
from kernel.masking.placeholder import MARK

NameKind = Callable[[str], str | None]


class Hit(NamedTuple):
    """A secret at `text[start:end]`. `secret` is its decoded form; `strong` says that it is random and long."""

    start: int
    end: int
    kind: str
    secret: str
    strong: bool


_NAME_CHARS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_OPENING: Final = re.compile(r"[=>]?\s{0,8}+[brfu]?(\\*+)([\"'])")
_BARE: Final = re.compile(
    r"[=>]?([ \t]{0,8}+)((?:(?i:bearer|basic|token|digest|apikey)[ \t]++)?[^\s\"'\\,;&<>(){}\[\]`|=]{2,}+=*+)"
)
_COOKIES: Final = re.compile(r"[ \t]{0,8}+([^\s=;\"'\\]{1,100}+=[^\r\n\"'\\]++)")
# A double quote always ends a value, for it may be the end of JSON text around it.
_QUOTE: Final = {'"': re.compile(r'(\\*+)(")|\n'), "'": re.compile(r"(\\*+)([\"'])|\n")}
_CLOSED: Final = re.compile(r"(?:\s|\\+[nrt])*+(?:[,\]}:]|\\*+[\"']|$)")
# The name in `{"name": N, "value": V}`: headers in many tools, and attributes in OTLP/JSON.
_PAIR: Final = re.compile(
    r"""(?:name|key)\\*"\s{0,8}:\s{0,8}\\*"([\w.-]{1,80})\\*"\s{0,8},\s{0,8}\\*"value"""
    r"""(?:\\*"\s{0,8}:\s{0,8}\{\s{0,8}\\*"stringValue)?\\*"\s{0,8}$"""
)
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_WORDS: Final = re.compile(r"[A-Za-z_.:-]+")
_FLAG: Final = re.compile(r"--([A-Za-z][A-Za-z-]{2,40}+)[ \t]+([^\s\"'\\,;&<>(){}\[\]`|-][^\s\"'\\,;&<>(){}\[\]`|]++)")
_BEARER: Final = re.compile(r"(?<![A-Za-z0-9_-])(?i:bearer)(?:[ \t]++|%20)([A-Za-z0-9._~+/-]{8,}+=*+)")
_BASIC: Final = re.compile(r"(?<![A-Za-z0-9_-])(?i:basic)(?:[ \t]++|%20)([A-Za-z0-9+/_-]{6,}+=*+)")
_URL: Final = re.compile(r":(?:\\*/){2}[^\s/?#@:\"'\\<>]{0,128}:([^\s/?#\"'\\<>]{1,256})@")


def assignment(text: str, at: int, kind_of: NameKind) -> Hit | None:
    """The value after the `:` or `=` at `at`, when the name before it announces a secret."""
    before = text[max(0, at - MAX_NAME) : at].rstrip(" \t\"'\\")
    name = before[len(before.rstrip(_NAME_CHARS)) :]
    if before[: -len(name) or None].endswith("\\") and name[:1] in "nrt":
        name = name[1:]  # the end of an escaped line break, not of the name
    if name in ("value", "stringValue"):
        pair = _PAIR.search(text, max(0, at - 2 * MAX_NAME), at)
        name = pair[1] if pair else ""
    kind = kind_of(name) if name else None
    if kind is None:
        return None
    name = name.rpartition(".")[2]
    opening = _OPENING.match(text, at + 1)
    quoted = text[max(0, at - 8) : at].rstrip(" \t")[-1:] in ('"', "'")
    if opening:
        return _quoted(text, opening, name, kind, quoted)
    if quoted:  # a quoted name with a bare value: a number or a word of JSON
        return None
    if kind == "cookie":
        line = _COOKIES.match(text, at + 1)
        if line and MARK not in line[1]:
            return Hit(line.start(1), line.end(1), kind, line[1], False)
        return None
    bare = _BARE.match(text, at + 1)
    return _bare(text, bare, name, kind) if bare else None


def _quoted(text: str, opening: re.Match[str], name: str, kind: str, quoted: bool) -> Hit | None:
    backslashes = len(opening[1])
    level = backslashes.bit_length()
    if backslashes != 2**level - 1:  # 0, 1, 3, 7: JSON text 0, 1, 2, 3 deep; others end a string around this one
        return None
    if not quoted and _CLOSED.match(text, opening.end()):  # not an opening: it closes a string that ends in `name: `
        return None
    begin = end = opening.end()
    for quote in _QUOTE[opening[2]].finditer(text, begin):
        inside = 0 if quote[1] is None or quote[2] != opening[2] else _backslashes_inside(len(quote[1]), level)
        if inside is not None:
            end = quote.start() + inside
            break
    value = _decoded(text[begin:end], level)
    skip = secret_in(name, kind, value)
    return None if skip is None else Hit(begin + skip, end, kind, value[skip:], False)


def _backslashes_inside(backslashes: int, level: int) -> int | None:
    """How many of the backslashes before a quote that ends the string belong to its value; None if the quote does too.

    The quote ends the string `level` deep, or one around it, whose escapes must then stay as they are.
    """
    rest = backslashes
    for _ in range(level):
        if rest % 2 == 0:
            return 0
        rest //= 2
    return backslashes - (2**level - 1) if rest % 2 == 0 else None


def _decoded(raw: str, level: int) -> str:
    for _ in range(level + 1):
        if "\\" not in raw:
            break
        try:
            raw = str(json.loads(f'"{raw}"', strict=False))
        except ValueError:  # not JSON: a string of another language, taken as it stands
            break
    return raw


def _bare(text: str, match: re.Match[str], name: str, kind: str) -> Hit | None:
    """An unquoted value. Code (`token=get()`, `password: str`) and prose (`password: wrong`) must pass unmasked."""
    value = match[2]
    if len(value) < 64:
        value = value.rstrip(".:!?*")
    after = text[match.end() : match.end() + 1]
    skip = secret_in(name, kind, value)
    if skip is None or MARK in value or not value[skip:]:
        return None
    secret = value[skip:]
    hit = Hit(match.start(2) + skip, match.start(2) + len(value), kind, secret, False)
    if len(secret) >= 64:
        return hit
    if (after and after in "([") or _DOTTED.fullmatch(secret) or secret.lower() == name.lower():
        return None
    tight = not match[1] and text[match.start() - 1] == "="
    if tight and name.isupper():  # a line of an environment file
        return hit
    if len(secret) < 4:
        return None
    if _WORDS.fullmatch(secret):
        if kind == "password":
            alone = secret.islower() and _alone(text, match.end(), name)
            return hit if alone or (tight and after not in tuple("),")) else None
        return hit if kind == "authorization" and len(secret) >= 20 else None
    if kind == "password":
        return hit
    return hit if looks_random(secret) else None


def _alone(text: str, end: int, name: str) -> bool:
    """Whether nothing follows on the line, as in YAML; a name with a capital is a label in prose."""
    return name.islower() and (end == len(text) or text[end] in "\r\n" or text.startswith("\\n", end))


def flag(text: str, at: int, kind_of: NameKind) -> Hit | None:
    """The value of a command-line flag such as `--api-key x`; `at` is its first hyphen."""
    match = _FLAG.match(text, at)
    kind = kind_of(match[1]) if match else None
    if match is None or kind is None or MARK in match[2] or secret_in(match[1], kind, match[2]) is None:
        return None
    if kind != "password" and not looks_random(match[2]):
        return None
    return Hit(match.start(2), match.end(2), kind, match[2], False)


def scheme(text: str, at: int, kind_of: NameKind) -> Hit | None:
    """The credential after `Bearer` (RFC 6750) or `Basic` (RFC 7617) at `at`."""
    match = _BEARER.match(text, at)
    if match:
        ok = MARK not in match[1] and (looks_random(match[1]) or len(match[1]) >= 24)
        return Hit(match.start(1), match.end(1), "bearer-token", match[1], False) if ok else None
    match = _BASIC.match(text, at)
    if match and _is_basic(match[1]):
        return Hit(match.start(1), match.end(1), "basic-auth", match[1], False)
    return None


def _is_basic(text: str) -> bool:
    try:
        pair = b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in pair and pair.isprintable()


def url_password(text: str, at: int, kind_of: NameKind) -> Hit | None:
    """The password in `scheme://user:password@host` (RFC 3986, section 3.2.1); `at` is the colon after the scheme."""
    match = _URL.match(text, at)
    if not match or MARK in match[1] or secret_in("password", "password", match[1]) is None:
        return None
    return Hit(match.start(1), match.end(1), "url-password", match[1], False)
