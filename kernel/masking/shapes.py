"""Secrets in surroundings that are more than a name and a sign: elements, blocks of YAML, command lines, SQL, Chinese labels.

Each shape is tried only where one of its `hints` is in the text, a search that costs next to nothing. Each pattern is
linear: what repeats has a bound, or nothing behind it that could make it give back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kernel.masking.context import Hit, NameKind
from kernel.masking.known import is_distinct
from kernel.masking.names import secret_in
from kernel.masking.placeholder import MARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One surrounding. Group `value` of `pattern` is the secret, group `name` (where there is one) its name, which decides.

    `kind` is for shapes without a name; `strong` that the value is known by its form; `random` that it must not be a word.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    kind: str = ""
    strong: bool = False
    random: bool = False
    many: bool = False
    """The value holds several, a line or a quoted text each."""


_ITEM: Final = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.){1,400})"|^[ \t]*-?[ \t]*(?P<line>[^\s"\'-][^\n]{0,400})', re.M)

SHAPES: Final = (
    Shape(
        hints=("密", "口令", "令牌", "凭证"),
        pattern=re.compile(
            r"(?:密码|口令|密钥|秘钥|令牌|凭证)[ \t]{0,4}(?:[是为]|[:：=＝])[ \t]{0,4}[「『“\"']?(?P<value>[!-~]{4,200}+)"
        ),
        kind="password",
    ),
    Shape(
        hints=("</",),
        pattern=re.compile(
            r"<(?:[\w.-]{1,40}:)?(?P<name>[A-Za-z][\w.-]{1,60}+)(?: [^<>]{0,200})?>\s{0,8}(?P<value>[^<>\s][^<>]{1,400}?)\s{0,8}</"
        ),
    ),
    Shape(
        hints=(": |", ": >"),
        pattern=re.compile(
            r"^(?P<indent>[ \t-]{0,40})(?P<name>[\w.-]{2,60}):[ \t]{1,4}[|>][+-]?\d?[ \t]{0,8}\n(?P<value>(?:(?P=indent)[ \t]{1,40}[^\n]{0,400}\n?){1,40})",
            re.M,
        ),
        many=True,
    ),
    Shape(
        hints=(":\n",),
        pattern=re.compile(
            r"^[ \t]{0,40}(?P<name>[\w.-]{2,60}):[ \t]{0,8}\n(?P<value>(?:[ \t]{0,40}-[ \t]{1,4}[^\s:][^\n:]{0,400}(?:\n|$)){1,40})",
            re.M,
        ),
        many=True,
    ),
    Shape(
        hints=('": [', '":[', '" :'),
        pattern=re.compile(
            r'"(?P<name>[\w.-]{2,60})"\s{0,8}:\s{0,8}\[(?P<value>(?:\s{0,8}"(?:[^"\\]|\\.){1,400}"\s{0,8},?){1,40})\s{0,8}\]'
        ),
        many=True,
    ),
    Shape(
        hints=("curl",),
        pattern=re.compile(
            r"\bcurl\b[^\n]{0,200}?\s(?:-u|-U|--user|--proxy-user)[ =]{0,4}[\"']?[^\s:\"'\\]{1,100}:(?!//)(?P<value>[^\s\"'\\]{2,200})"
        ),
        kind="basic-auth",
    ),
    Shape(
        hints=("machine ", "login "),
        pattern=re.compile(
            r"(?:\bmachine\s{1,8}\S{1,100}\s{1,8}|^[ \t]{0,8})login\s{1,8}\S{1,100}\s{1,8}password\s{1,8}(?P<value>[^\s\"'\\]{2,200})",
            re.M,
        ),
        kind="password",
    ),
    Shape(
        hints=("://",),
        pattern=re.compile(
            r"://[^\s/?#:@\"'\\<>]{1,128}:(?!\d{1,5}(?:[/?#]|$))(?P<value>[^\s\"'\\<>]{1,256})@(?=[\w.-]{1,253}(?::\d{1,5})?(?:[/?#\s\"'\\<>,;)]|$))"
        ),
        kind="url-password",
    ),
    Shape(
        hints=("mysql",),
        pattern=re.compile(r"\bmysql(?:dump|admin)?\b[^\n]{0,200}?\s-p(?P<value>[^\s\"'\\-][^\s\"'\\]{3,200})"),
        kind="password",
    ),
    Shape(
        hints=("sshpass",),
        pattern=re.compile(r"\bsshpass\s{1,4}-p\s{0,4}[\"']?(?P<value>[^\s\"'\\]{2,200})"),
        kind="password",
    ),
    Shape(
        hints=("IDENTIFIED", "dentified", "assword '", "ASSWORD '"),
        pattern=re.compile(
            r"\b(?:identified\s{1,4}by|(?:user|role)\s{1,4}\S{1,80}\s{1,4}(?:with\s{1,4}(?:encrypted\s{1,4})?)?password)\s{1,4}'(?P<value>[^'\n\\]{2,200})'",
            re.IGNORECASE,
        ),
        kind="password",
    ),
    Shape(
        hints=("assword is", "assword was", "assword =", "assphrase is", "asscode is"),
        pattern=re.compile(
            r"\b[Pp]ass(?:word|phrase|code) (?:is|was|=) ?:?[ \t]{0,4}[\"'“]?(?P<value>[^\s\"'”\\,;]{6,200})"
        ),
        kind="password",
        random=True,
    ),
    Shape(
        hints=("-us",),
        pattern=re.compile(r"(?<![A-Za-z0-9])(?P<value>[0-9a-f]{32}-us\d{1,2})(?![A-Za-z0-9-])"),
        kind="mailchimp-key",
        strong=True,
    ),
    Shape(
        hints=("dapi",),
        pattern=re.compile(r"(?<![A-Za-z0-9])(?P<value>dapi[0-9a-f]{32}(?:-\d)?)(?![A-Za-z0-9])"),
        kind="databricks-token",
        strong=True,
    ),
)


_HINTS: Final = tuple(dict.fromkeys(hint for shape in SHAPES for hint in shape.hints if hint.isascii()))
_LABELS: Final = tuple(hint for shape in SHAPES for hint in shape.hints if not hint.isascii())


def may_hold(text: str) -> bool:
    """Whether any hint is in `text`."""
    for hint in _HINTS:
        if hint in text:
            return True
    return not text.isascii() and any(label in text for label in _LABELS)


def shape_hits(text: str, kind_of: NameKind) -> list[Hit]:
    """The secrets of `text` by their surroundings, by position; two may overlap."""
    found = [
        hit
        for shape in SHAPES
        if any(hint in text for hint in shape.hints)
        for match in shape.pattern.finditer(text)
        for hit in _hits(shape, match, kind_of)
    ]
    return sorted(found)


def _hits(shape: Shape, match: re.Match[str], kind_of: NameKind) -> Iterator[Hit]:
    names = match.re.groupindex
    kind: str | None = shape.kind
    name = "password"
    if "name" in names:
        name = match["name"]
        kind = kind_of(name) or (kind_of(name.removesuffix("s")) if shape.many else None)
    if not kind or (shape.many and kind == "cookie"):  # which name a cookie has says more than that it is one
        return
    start = match.start("value")
    spans = [(start, match["value"])]
    if shape.many:
        spans = []
        for item in _ITEM.finditer(match["value"]):
            group = "quoted" if item["quoted"] is not None else "line"
            spans.append((start + item.start(group), item[group]))
    for at, value in spans:
        value = value.rstrip()
        unsure = shape.random or (shape.many and kind != "password")
        if MARK in value or secret_in(name, kind, value) is None or (unsure and not is_distinct(value)):
            continue
        yield Hit(at, at + len(value), kind, value, shape.strong)
