"""Rules that a user adds to the built-in ones, and the opt-in set for personal data."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, Literal, assert_never

from kernel.masking.context import Hit
from kernel.masking.placeholder import MARK, PLACEHOLDER, check_kind
from kernel.masking.text import plain_name

States = tuple[tuple["PathRule", int], ...]
"""How far each path rule has matched on the way to a node; a rule matched whole stays so for everything below."""

_ANY_DEPTH: Final = "**"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """Masks every string at or below the places that `segments` match."""

    segments: tuple[str, ...]
    kind: str
    how: Literal["path"] = "path"

    def advance(self, at: int, key: str) -> Iterator[int]:
        """The positions reached from position `at` by going down to `key`."""
        if at == len(self.segments):
            yield at
        elif self.segments[at] == _ANY_DEPTH:
            yield at
            yield from self.advance(at + 1, key)
        elif fnmatchcase(key, self.segments[at]):
            yield at + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """Masks values under a key, header or variable of this name, in data and in text (JSON text too)."""

    name: str
    kind: Literal["named-secret"] = "named-secret"
    how: Literal["name"] = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRule:
    """Masks what `pattern`, or one group of it, matches in a string."""

    pattern: re.Pattern[str]
    group: int
    kind: str
    how: Literal["regex"] = "regex"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule:
    """Lets `function` say what a string looks like masked; None: leave it as it is."""

    function: Callable[[str], str | None]
    kind: str
    how: Literal["call"] = "call"


Rule = PathRule | NameRule | RegexRule | CallRule


def by_path(path: str, *, kind: str = "path-secret") -> PathRule:
    """A rule for places: a JSON pointer with globs, such as `/args/*/pin`; `**` is any number of segments.

    It sees parsed data only. The same secret in JSON text or prose has no path: use `by_name` or `by_regex` for those.
    Numbers stay numbers. Raises ValueError if `path` does not begin with `/` or `kind` is no mask kind.
    """
    if not path.startswith("/"):
        raise ValueError(f"mask path {path!r}: begin with '/', as in '/args/*/pin', or '/**/pin' for any depth")
    segments = tuple(part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
    return PathRule(segments=segments, kind=check_kind(kind))


def by_name(name: str) -> NameRule:
    """A rule for a name such as `pin`: compared whole, without case and punctuation.

    Raises ValueError if nothing is left of it.
    """
    if not plain_name(name):
        raise ValueError(f"mask name {name!r}: give at least one letter or digit")
    return NameRule(name=plain_name(name))


def by_regex(pattern: str | re.Pattern[str], *, kind: str, group: int = 0) -> RegexRule:
    """A rule for text. What overlaps a placeholder is left alone.

    Raises ValueError for a bad kind or group, re.error for a bad pattern.
    """
    compiled = re.compile(pattern)
    if not 0 <= group <= compiled.groups:
        raise ValueError(f"mask pattern {compiled.pattern!r} has {compiled.groups} groups: there is no group {group}")
    return RegexRule(pattern=compiled, group=group, kind=check_kind(kind))


def by_call(function: Callable[[str], str | None], *, kind: str) -> CallRule:
    """A rule in code. If it raises, the whole string is masked as `KIND-failed`: a broken rule must not leak."""
    return CallRule(function=function, kind=check_kind(kind))


def described(rule: Rule) -> dict[str, str | int]:
    """`rule` as plain data for a trace header; of a pattern, which may spell out a secret, only a fingerprint."""
    match rule:
        case PathRule():
            return {"rule": rule.how, "kind": rule.kind, "path": "/" + "/".join(rule.segments)}
        case NameRule():
            return {"rule": rule.how, "kind": rule.kind, "name": rule.name}
        case RegexRule():
            print_ = blake2b(rule.pattern.pattern.encode("utf-8", "surrogatepass"), digest_size=2).hexdigest()
            return {"rule": rule.how, "kind": rule.kind, "group": rule.group, "fingerprint": print_}
        case CallRule():
            return {"rule": rule.how, "kind": rule.kind, "function": getattr(rule.function, "__qualname__", "?")}
        case _:
            assert_never(rule)


def advance(states: States, key: str | int) -> States:
    """The states of the child `key` of a node with `states`."""
    return tuple((rule, new) for rule, at in states for new in rule.advance(at, str(key))) if states else ()


def arrived(states: States) -> PathRule | None:
    """The first path rule that has matched whole."""
    return next((rule for rule, at in states if at == len(rule.segments)), None)


def regex_hits(text: str, rule: RegexRule) -> list[Hit]:
    """Where `rule` matches, apart from empty matches and what overlaps a placeholder."""
    taken = [match.span() for match in PLACEHOLDER.finditer(text)] if MARK in text else []
    hits: list[Hit] = []
    next_taken = 0
    for match in rule.pattern.finditer(text):
        start, end = match.span(rule.group)
        while next_taken < len(taken) and taken[next_taken][1] <= start:
            next_taken += 1
        free = next_taken == len(taken) or taken[next_taken][0] >= end
        if 0 <= start < end and free and (not hits or hits[-1].end <= start):
            hits.append(Hit(start, end, rule.kind, text[start:end], False))
    return hits


_DOMAIN: Final = re.compile(r"@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![A-Za-z0-9-])")
_LOCAL: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_CARD: Final = re.compile(r"(?<![\w.+-])[3-6]\d{3}(?:[ -]?\d){9,15}(?![\w-])")


def personal_hits(text: str) -> list[Hit]:
    """E-mail addresses, and payment card numbers (13 to 19 digits, the first 3 to 6, Luhn: ISO/IEC 7812-1)."""
    hits: list[Hit] = []
    for match in _DOMAIN.finditer(text) if "@" in text else ():
        before = text[max(0, match.start() - 64) : match.start()]
        start = match.start() - len(before) + len(before.rstrip(_LOCAL))
        if start < match.start() and (not hits or hits[-1].end <= start):
            hits.append(Hit(start, match.end(), "email", text[start : match.end()], False))
    for match in _CARD.finditer(text):
        digits = [int(char) for char in match[0] if char.isdecimal()]
        if _luhn(digits):
            hits.append(Hit(match.start(), match.end(), "card", "".join(map(str, digits)), False))
    hits.sort()
    return [hit for at, hit in enumerate(hits) if at == 0 or hits[at - 1].end <= hit.start]


def _luhn(digits: list[int]) -> bool:
    doubled = [digit if at % 2 == 0 else digit * 2 - 9 * (digit > 4) for at, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0
