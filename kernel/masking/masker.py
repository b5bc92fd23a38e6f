"""The one gate: `Masker` replaces secrets in plain data and in text by placeholders."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kernel.masking.context import Hit
from kernel.masking.formats import FORMATS
from kernel.masking.placeholder import MARK, PLACEHOLDER, placeholder
from kernel.masking.rules import (
    CallRule,
    NameRule,
    PathRule,
    RegexRule,
    Rule,
    States,
    advance,
    arrived,
    described,
    personal_hits,
    regex_hits,
)
from kernel.masking.text import ESCAPED, Scanner, by_form, in_literals, replace as replaced, scanner
from kernel.masking.walk import rewrite

DEFAULT_VERSION: Final = 1
"""Raised whenever the built-in rules change what they mask."""
_CONTEXT_KINDS: Final = ("password", "secret", "authorization", "cookie", "bearer-token", "basic-auth", "url-password")


class Found(Counter[str]):
    """What was masked: how many secrets of each kind, and the placeholder of each that its form alone would not give away."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, str] = {}


_PASSES: Final = 8  # a mask may free the border of a neighbour; each pass leaves less, and two have always been enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Masker:
    """Masks secrets. Immutable and thread-safe; equal maskers give equal results in every process.

    Masking is idempotent, so masked data may pass through again. It pickles as long as its rules do.

    Attributes:
        defaults: Mask known credential formats and values named like secrets.
        personal: Mask e-mail addresses and card numbers too.
        rules: From `by_path`, `by_name`, `by_regex`, `by_call`; applied after the built-in ones, in order.
        key: Makes placeholders useless for testing guesses (see `placeholder`); never recorded.
    """

    defaults: bool = True
    personal: bool = False
    rules: tuple[Rule, ...] = ()
    key: bytes = field(default=b"", repr=False)
    _scanner: Scanner = field(init=False, repr=False, compare=False)
    _paths: States = field(init=False, repr=False, compare=False)
    _text_rules: tuple[RegexRule | CallRule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.key) > 64:
            raise ValueError(f"mask key of {len(self.key)} bytes: use at most 64, for example a digest of it")
        names = frozenset(rule.name for rule in self.rules if isinstance(rule, NameRule))
        object.__setattr__(self, "_scanner", scanner(names))
        object.__setattr__(self, "_paths", tuple((rule, 0) for rule in self.rules if isinstance(rule, PathRule)))
        object.__setattr__(self, "_text_rules", tuple(r for r in self.rules if isinstance(r, RegexRule | CallRule)))
        for rule in self.rules:
            if self._scanner.find(placeholder(rule.kind, "")):
                raise ValueError(f"mask kind {rule.kind!r} looks like a credential itself: choose another word")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.defaults, self.personal, self.rules, self.key)

    @classmethod
    def default(cls, *, personal: bool = False, key: bytes = b"") -> "Masker":
        """The built-in rules, with e-mail addresses and card numbers if `personal`."""
        return cls(personal=personal, key=key)

    def with_rules(self, *rules: Rule) -> "Masker":
        """This masker with further rules."""
        return replace(self, rules=self.rules + rules)

    def mask(self, value: Any) -> Any:
        """JSON-like `value` with its secrets replaced; `value` itself when it holds none.

        String leaves, and of dict keys only what is a credential by its own form. Numbers, booleans and None are
        never touched.
        """
        return self._mask(value, None)

    def mask_text(self, text: str) -> str:
        """`text` with its secrets replaced; `text` itself when it holds none. JSON text stays valid JSON text."""
        return self._text(text, None)

    def mask_counted(self, value: Any) -> tuple[Any, Counter[str]]:
        """`mask(value)`, and how many secrets of each kind were replaced."""
        count: Counter[str] = Counter()
        return self._mask(value, count), count

    def mask_learning(self, value: Any) -> tuple[Any, dict[str, str]]:
        """`mask(value)`, and the secrets in it that were known by their name or a rule, each with its placeholder."""
        found = Found()
        return self._mask(value, found), found.secrets

    def find(self, text: str) -> list[Hit]:
        """The secrets that the built-in and name rules see in `text`, by position; for reports on files."""
        return self._scanner.find(text)

    @property
    def by_text_alone(self) -> bool:
        """Whether no rule of a user needs the place or the name of a value: text can then be judged by itself."""
        return not self._paths and not self._scanner.names

    def describe(self) -> list[dict[str, Any]]:
        """The rules as plain data for a trace header; holds neither the key nor the patterns of users."""
        told: list[dict[str, Any]] = []
        if self.defaults:
            kinds = sorted({row.kind for row in FORMATS}.union(_CONTEXT_KINDS))
            told.append({"rule": "default", "version": DEFAULT_VERSION, "kinds": kinds, "keyed": bool(self.key)})
        if self.personal:
            told.append({"rule": "personal", "kinds": ["card", "email"]})
        return told + [dict(described(rule)) for rule in self.rules]

    def _mask(self, value: Any, count: Counter[str] | None) -> Any:
        leaf = self._leaf if count is None else partial(self._leaf, count=count)
        rename = self._key if count is None else partial(self._key, count=count)
        return rewrite(value, leaf, rename, advance if self._paths else None, self._paths)

    def _stand_in(self, hit: Hit, count: Counter[str] | None) -> str:
        stand_in = placeholder(hit.kind, hit.secret, strong=hit.strong, key=self.key)
        if count is not None:
            count[hit.kind] += 1
            if isinstance(count, Found) and not hit.strong:
                count.secrets[hit.secret] = stand_in
        return stand_in

    def _leaf(self, text: str, states: States, name: str | None, count: Counter[str] | None = None) -> str:
        if states:
            rule = arrived(states)
            if rule is not None and text and not PLACEHOLDER.fullmatch(text):
                return self._stand_in(Hit(0, len(text), rule.kind, text, False), count)
        if name is not None and (self.defaults or self._scanner.names):
            hit = self._scanner.kind_of_value(name, text)
            if hit is not None:
                return text[: hit.start] + self._stand_in(hit, count)
        return self._text(text, count)

    def _key(self, key: str, count: Counter[str] | None = None) -> str:
        hits = by_form().find(key) if self.defaults else []
        return replaced(key, hits, lambda hit: self._stand_in(hit, count)) if hits else key

    def _text(self, text: str, count: Counter[str] | None) -> str:
        if self.defaults or self._scanner.names:
            if self._scanner.may_hold(text):
                text = self._built_in(text, count)
            if "\\u00" in text and ESCAPED.search(text):
                text = in_literals(text, lambda plain: self._built_in(plain, count), only=ESCAPED)
        if self.personal or self._text_rules:
            text = self._added(text, count)
        return text

    def _built_in(self, text: str, count: Counter[str] | None) -> str:
        for _ in range(_PASSES):
            hits = self._scanner.find(text)
            if not hits:
                break
            text = replaced(text, hits, lambda hit: self._stand_in(hit, count))
        return text

    def _added(self, text: str, count: Counter[str] | None) -> str:
        """Personal data and the user's text rules; applied inside the strings of JSON text that they would break."""
        trial = Found()
        masked = self._apply(text, trial)
        if masked is text or masked == text:
            return text
        if text.lstrip()[:1] in tuple('{["') and _is_json(text) and not _is_json(masked):
            trial = Found()
            masked = in_literals(text, lambda plain: self._apply(plain, trial))
        if count is not None:
            count.update(trial)
            if isinstance(count, Found):
                count.secrets.update(trial.secrets)
        return masked

    def _apply(self, text: str, count: Counter[str]) -> str:
        if self.personal:
            text = replaced(text, personal_hits(text), lambda hit: self._stand_in(hit, count))
        for rule in self._text_rules:
            if isinstance(rule, RegexRule):
                text = replaced(text, regex_hits(text, rule), lambda hit: self._stand_in(hit, count))
            elif text and not (MARK in text and PLACEHOLDER.fullmatch(text)):
                text = self._call(rule, text, count)
        return text

    def _call(self, rule: CallRule, text: str, count: Counter[str]) -> str:
        try:
            masked = rule.function(text)
        except Exception:  # the outcome is recorded: a placeholder of its own kind, and a count
            return self._stand_in(Hit(0, len(text), f"{rule.kind}-failed", text, False), count)
        if masked is None or masked == text:
            return text
        count[rule.kind] += 1
        return masked


def _restore(defaults: bool, personal: bool, rules: tuple[Rule, ...], key: bytes) -> Masker:
    return Masker(defaults=defaults, personal=personal, rules=rules, key=key)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
