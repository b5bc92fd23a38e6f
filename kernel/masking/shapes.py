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
    mark: str = ""
    """A cheap sign that must be in the text too: without it the hints are not looked for."""
    pattern: re.Pattern[str]
    kind: str = ""
    strong: bool = False
    random: bool = False
    many: bool = False
    """The value holds several, a line or a quoted text each."""


_ITEM: Final = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.){1,400})"|^[ \t]*-?[ \t]*(?P<line>[^\s"\'-][^\n]{0,400})', re.M)
_LABEL: Final = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z][\w.-]{1,60}+)(?::\*\*|\*\*:|:)[ \t]{1,4}`?(?P<value>[^\s`*|\\\"']{6,200})"
)

SHAPES: Final = (
    Shape(
        hints=("密", "口令", "令牌", "凭证", "授权码", "私钥"),
        pattern=re.compile(
            r"(?:密码|口令|密钥|秘钥|私钥|令牌|凭证|授权码)[ \t]{0,4}(?:[是为]|[:：=＝])[ \t]{0,4}[「『“\"']?(?P<value>[!-~]{4,200}+)"
        ),
        kind="password",
    ),
    Shape(
        hints=("</",),
        pattern=re.compile(
            r"<(?:[\w.-]{1,40}:)?(?P<name>[A-Za-z][\w.-]{1,60}+)(?: [^<>]{0,200})?>\s{0,8}(?:<!\[CDATA\[)?(?P<value>[^<>\s][^<>]{1,400}?)(?:\]\]>)?\s{0,8}</"
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
            r"\bcurl\b(?:[^\n\\]|\\[^\n]|\\\n){0,200}?\s(?:-u|-U|--user|--proxy-user)[ =]{0,4}[\"']?[^\s:\"'\\]{1,100}:(?!//)(?P<value>[^\s\"'\\]{2,200})"
        ),
        kind="basic-auth",
    ),
    Shape(
        hints=("machine ", "login "),
        pattern=re.compile(
            r"(?:\bmachine\s{1,8}\S{1,100}\s{1,8}|\bdefault\s{1,8}|^[ \t]{0,8})login\s{1,8}\S{1,100}\s{1,8}password\s{1,8}(?P<value>[^\s\"'\\]{2,200})",
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
        hints=("IDENTIFIED", "dentified", "assword '", "ASSWORD '", "assword for", "ASSWORD FOR"),
        pattern=re.compile(
            r"\b(?:identified\s{1,4}by|(?:user|role)\s{1,4}\S{1,80}\s{1,4}(?:with\s{1,4}(?:encrypted\s{1,4})?)?password|set\s{1,4}password\s{1,4}for\s{1,4}\S{1,80}\s{0,4}=)\s{1,4}'(?P<value>[^'\n\\]{2,200})'",
            re.IGNORECASE,
        ),
        kind="password",
    ),
    Shape(
        hints=(
            "assword is",
            "assword was",
            "assword =",
            "assphrase is",
            "asscode is",
            "pwd is",
            "PI key is",
            "pi key is",
        ),
        pattern=re.compile(
            r"\b(?:[Pp]ass(?:word|phrase|code)|pwd|API key) (?:is|was|=) ?:?[ \t]{0,4}[\"'“]?(?P<value>[^\s\"'”\\,;]{6,200})"
        ),
        kind="password",
        random=True,
    ),
    Shape(
        hints=("：",),
        pattern=re.compile(
            r"(?<![\w.-])(?P<name>[A-Za-z][\w.-]{1,60}+)[ \t]{0,4}：[ \t]{0,4}[「『“\"'`]?(?P<value>[!-~]{4,200}+)",
            re.ASCII,
        ),
    ),
    Shape(
        hints=("是", "为"),
        pattern=re.compile(
            r"(?<![A-Za-z0-9_])(?i:password|passwd|pwd|token|api[ _-]?key)[ \t]{0,4}[是为][ \t]{0,4}[「『“\"'`]?(?P<value>[!-~]{6,200}+)"
        ),
        kind="password",
        random=True,
    ),
    Shape(
        hints=("パスワード", "비밀번호", "contraseña", "Contraseña", "пароль", "Пароль"),
        pattern=re.compile(
            r"(?:パスワード|비밀번호|[Cc]ontraseña|[Пп]ароль)[ \t]{0,4}[:：=][ \t]{0,4}[\"'`“]?(?P<value>[!-~]{6,200}+)"
        ),
        kind="password",
        random=True,
    ),
    Shape(
        hints=("asswort:", "asswort =", "ot de passe"),
        pattern=re.compile(r"(?:[Pp]asswort|[Mm]ot de passe) ?[:=][ \t]{0,4}[\"'`“]?(?P<value>[!-~]{6,200}+)"),
        kind="password",
        random=True,
    ),
    Shape(
        mark="**",
        hints=("ord:**", "ord**:", "oken:**", "oken**:", "ey:**", "ey**:", "ecret:**", "ecret**:"),
        pattern=_LABEL,
        random=True,
    ),
    Shape(mark=": `", hints=("ord: `", "oken: `", "ey: `", "ecret: `"), pattern=_LABEL, random=True),
    Shape(
        mark=" |",
        hints=("word |", "word` |", "word** |", "oken |", "_key |", "ecret |"),
        pattern=re.compile(
            r"\|[ \t]{0,8}[`*]{0,2}(?P<name>[A-Za-z][\w.-]{1,60}+)[`*]{0,2}[ \t]{0,40}\|[ \t]{0,40}`?(?P<value>[^\s`*|\\\"']{6,200})`?[ \t]{0,40}\|"
        ),
        random=True,
    ),
    Shape(
        mark="value",
        hints=("value:",),
        pattern=re.compile(
            r"\bname:[ \t]{1,4}[\"']?(?P<name>[\w.-]{2,60})[\"']?[ \t]{0,8}\n[ \t]{0,40}value:[ \t]{1,4}[\"']?(?P<value>[^\s\"'\\][^\n\"'\\]{1,400})"
        ),
    ),
    Shape(
        mark="value",
        hints=("value=",),
        pattern=re.compile(
            r"\b(?:key|name|id)=\\{0,3}[\"'](?P<name>[\w.-]{2,60})\\{0,3}[\"']\s{1,8}value=\\{0,3}[\"'](?P<value>[^\"'\\<>\n]{2,400})"
        ),
    ),
    Shape(
        hints=("&lt;/",),
        pattern=re.compile(
            r"&lt;(?P<name>[A-Za-z][\w.-]{1,60}+)&gt;\s{0,8}(?P<value>[^<>&\s][^<>&]{1,400}?)\s{0,8}&lt;/"
        ),
    ),
    Shape(
        mark=" -",
        hints=("docker login", "redis-cli", "mongosh", "mongodump", "ldapsearch"),
        pattern=re.compile(
            r"\b(?:docker login\b[^\n]{0,120}?\s-p|redis-cli\b[^\n]{0,120}?\s-a|mongo(?:sh|dump)\b[^\n]{0,120}?\s-p|ldapsearch\b[^\n]{0,120}?\s-w)[ \t]{1,4}[\"']?(?P<value>[^\s\"'\\-][^\s\"'\\]{1,200})"
        ),
        kind="password",
    ),
    Shape(
        mark=" -",
        hints=("lftp", "smbclient"),
        pattern=re.compile(
            r"\b(?:lftp\b[^\n]{0,120}?\s-u[ \t]{1,4}[^\s,]{1,80},|smbclient\b[^\n]{0,120}?\s-U[ \t]{1,4}[^\s%]{1,80}%)(?P<value>[^\s\"'\\]{2,200})"
        ),
        kind="password",
    ),
    Shape(
        hints=(" pass:",),
        pattern=re.compile(r"\s-pass(?:in|out)?[ \t]{1,4}pass:(?P<value>[^\s\"'\\]{2,200})"),
        kind="password",
    ),
    Shape(
        hints=("machine ",),
        pattern=re.compile(
            r"\bmachine\s{1,8}\S{1,100}\s{1,8}password\s{1,8}(?P<value>[^\s\"'\\]{2,200})\s{1,8}login\s"
        ),
        kind="password",
    ),
    Shape(
        hints=("AZDO",),
        pattern=re.compile(r"(?<![A-Za-z0-9])(?P<value>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})(?![A-Za-z0-9])"),
        kind="azure-devops-token",
        strong=True,
    ),
    Shape(
        hints=("NRAL",),
        pattern=re.compile(r"(?<![A-Za-z0-9])(?P<value>[0-9a-f]{36}NRAL)(?![A-Za-z0-9])"),
        kind="newrelic-key",
        strong=True,
    ),
    Shape(
        hints=(".webhook.office.com/",),
        pattern=re.compile(r"\.webhook\.office\.com/webhookb2/(?P<value>[A-Za-z0-9@/_-]{60,300})"),
        kind="teams-webhook",
        strong=True,
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


_HINTS: Final = {
    mark: tuple(dict.fromkeys(hint for shape in SHAPES if shape.mark == mark for hint in shape.hints if hint.isascii()))
    for mark in dict.fromkeys(shape.mark for shape in SHAPES)
}
_LABELS: Final = tuple(hint for shape in SHAPES for hint in shape.hints if not hint.isascii())


def may_hold(text: str) -> bool:
    """Whether any hint is in `text`."""
    for mark, hints in _HINTS.items():
        if mark in text:
            for hint in hints:
                if hint in text:
                    return True
    return not text.isascii() and any(label in text for label in _LABELS)


def shape_hits(text: str, kind_of: NameKind) -> list[Hit]:
    """The secrets of `text` by their surroundings, by position; two may overlap."""
    found = [
        hit
        for shape in SHAPES
        if shape.mark in text and any(hint in text for hint in shape.hints)
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
