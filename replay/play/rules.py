"""Rules for text that may vary from run to run: dates, ids, temporary paths. Stored with the suite, applied to both sides.

    [tool.tracefirst.rules]                                   in pyproject.toml, or [rules] in replay-rules.toml beside a recording
    date = { path = "/request/messages/*/content", pattern = '\\d{4}-\\d{2}-\\d{2}' }
    trace = { path = "/request/params/extra/trace_id" }       without a pattern: the whole value, whose type must stay

`path` is a JSON Pointer that begins with the seam, `request` or `feedback`; `*` is one name or index in it, `**` any number of
them. What a rule matches is put in one form, `<date>`, on both sides; what no rule names is compared as it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernel.errors import ConfigError

FILE = "replay-rules.toml"
SEAMS = ("request", "feedback")
_TABLE = "[tool.tracefirst.rules]"


class Rule(Struct, frozen=True, kw_only=True):
    """One rule: where it holds, and what of the text there may vary. `source` is the file that it stands in."""

    name: str
    path: str
    pattern: str | None = None
    source: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.path}" + (f" ~ {self.pattern}" if self.pattern is not None else "")


class Rules:
    """The rules of a suite. `matched` counts, by name, the places where a rule found something to put in one form, and
    `settled` those in which both sides are equal only by it."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._compiled = [
            (rule, _path(rule.path), None if rule.pattern is None else re.compile(rule.pattern)) for rule in self.rules
        ]
        self.matched: dict[str, int] = {}
        self.settled: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __or__(self, other: Rules) -> Rules:
        return Rules((*self.rules, *other.rules))

    def normal(self, at: Sequence[str], value: Any) -> Any:
        """A JSON value with what may vary in one form. `at` are the names on the way to it, the seam first."""
        return self._normal(tuple(at), value, set())

    def settle(self, at: Sequence[str], recorded: Any, observed: Any) -> Any:
        """`recorded` where the two differ in nothing but what may vary, else `observed`."""
        if not self.rules:
            return observed
        used: set[str] = set()
        one = self._normal(tuple(at), recorded, used)
        if recorded == observed or one != self._normal(tuple(at), observed, used):
            return observed
        for name in used:
            self.settled[name] = self.settled.get(name, 0) + 1
        return recorded

    def _normal(self, at: tuple[str, ...], value: Any, used: set[str]) -> Any:
        whole = next(
            (rule for rule, path, pattern in self._compiled if pattern is None and path.match(_text(at))), None
        )
        if whole is not None:
            self._note(whole, used)
            return f"<{whole.name}: {type(value).__name__}>"
        if isinstance(value, Mapping):
            return {key: self._normal((*at, str(key)), inner, used) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._normal((*at, str(index)), inner, used) for index, inner in enumerate(value)]
        if isinstance(value, str):
            for rule, path, pattern in self._compiled:
                if pattern is not None and path.match(_text(at)):
                    new = pattern.sub(f"<{rule.name}>", value)
                    if new != value:
                        self._note(rule, used)
                    value = new
        return value

    def _note(self, rule: Rule, used: set[str]) -> None:
        used.add(rule.name)
        self.matched[rule.name] = self.matched.get(rule.name, 0) + 1


def _text(at: Sequence[str]) -> str:
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in at)


def _path(path: str) -> re.Pattern[str]:
    """A path as an expression over JSON Pointers."""
    parts = [
        "(?:/[^/]*)*" if name == "**" else "/" + "[^/]*".join(map(re.escape, name.split("*")))
        for name in path.split("/")[1:]
    ]
    return re.compile("".join(parts) + r"\Z")


def project_file(folder: Path) -> Path | None:
    """The nearest pyproject.toml, in a folder or above it."""
    return next((p for one in (folder, *folder.parents) if (p := one / "pyproject.toml").is_file()), None)


def rules_for(recording: Path | str) -> Rules:
    """The rules for a recording: of the nearest pyproject.toml above it, and of `replay-rules.toml` beside it.

    Raises:
        ConfigError: a file cannot be read, or a rule cannot be understood; the message names file and rule.
    """
    folder = Path(recording).absolute().parent
    found: list[Rule] = []
    project = project_file(folder)
    for path, keys, table in (
        (project, ("tool", "tracefirst", "rules"), _TABLE),
        (folder / FILE, ("rules",), "[rules]"),
    ):
        if path is not None and path.is_file():
            stat = path.stat()
            found.extend(_read(str(path), keys, table, stat.st_mtime_ns, stat.st_size))
    names = [rule.name for rule in found]
    if twice := next((rule for at, rule in enumerate(found) if rule.name in names[:at]), None):
        raise ConfigError(f"{twice.source}: the rule {twice.name} is there twice; give each a name of its own")
    return Rules(found)


@lru_cache(maxsize=64)
def _read(name: str, keys: tuple[str, ...], table: str, changed_ns: int, size: int) -> tuple[Rule, ...]:
    try:
        text = Path(name).read_text("utf-8")
        if "rules" not in text:
            return ()
        found: Any = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{name}: its rules cannot be read: {error}") from None
    for key in keys:
        found = found.get(key, {}) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: {table} holds lines such as date = {{ path = ..., pattern = ... }}")
    return tuple(_rule(rule, told, name) for rule, told in found.items())


def _rule(name: str, told: Any, source: str) -> Rule:
    where = f"{source}: rule {name}"
    if not isinstance(told, dict) or not isinstance(told.get("path"), str) or set(told) - {"path", "pattern"}:
        raise ConfigError(f'{where} must be a table with "path" and at most "pattern", it is {told!r:.80}')
    path, pattern = told["path"], told.get("pattern")
    if path.split("/")[0] or path.split("/")[1:2] not in [[seam] for seam in SEAMS]:
        raise ConfigError(f"{where}: its path is {path!r}; it begins with one of {', '.join('/' + s for s in SEAMS)}")
    if pattern is not None:
        try:
            if not isinstance(pattern, str):
                raise re.error("it must be text")
            if re.compile(pattern).match(""):
                raise re.error("it matches the empty text, so that it says nothing")
        except re.error as error:
            raise ConfigError(f"{where}: its pattern {pattern!r:.80} cannot be used: {error}") from None
    return Rule(name=name, path=path, pattern=pattern, source=source)
