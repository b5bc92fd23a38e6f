"""What a reply was read as: calls to run, or one fault that says why there are none."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct

Rule = Literal[
    "no-action",
    "thinking-only",
    "cut-off",
    "ambiguous",
    "several-blocks",
    "missing-arguments",
    "not-an-object",
    "malformed-json",
    "malformed-call",
    "too-deep",
]
"""Closed list of reasons a text gives no call. Only `no-action` also fits a complete plain answer."""


class ParsedCall(Struct, frozen=True, kw_only=True):
    """One tool call read from a text.

    `start` and `end` are the span in the raw text. `repaired` says that noise had to be removed from the call to read it;
    such arguments must not reach a tool with side effects. `thought` is the visible text before the call. `intent` and
    `estimated_cost` are sibling keys of a JSON action.
    """

    name: str
    args: dict[str, Any]
    repaired: bool
    family: str
    start: int
    end: int
    thought: str
    intent: str | None
    estimated_cost: float | None


class ParseFault(Struct, frozen=True, kw_only=True):
    """Why no call may run: a rule of the closed list, a sentence, and the offset in the raw text it is about."""

    rule: Rule
    message: str
    position: int


class Parsed(Struct, frozen=True, kw_only=True):
    """The reading of one reply: either `calls` (the first is to run, the rest are to be named as ignored) or a `fault`.

    `thought` is the visible text before the first call, or all of it on a fault. `visible` is what a person would see of
    the reply: the text without thinking blocks and control tokens.
    """

    calls: tuple[ParsedCall, ...]
    fault: ParseFault | None
    thought: str
    visible: str

    def __post_init__(self) -> None:
        if bool(self.calls) == (self.fault is not None):
            raise ValueError("a reading has calls or a fault, exactly one of the two")


class Found(NamedTuple):
    """A call as a family reader found it, before the text around it is attached."""

    name: str
    args: dict[str, Any]
    family: str
    start: int
    end: int
    repaired: bool = False
    thought: str = ""
    intent: str | None = None
    estimated_cost: float | None = None


class Unreadable(Exception):
    """Raised by a reader inside this package when the text is surely an attempt at a call and must not run."""

    def __init__(self, rule: Rule, message: str, position: int) -> None:
        super().__init__(rule, message, position)
        self.rule: Rule = rule
        self.message = message
        self.position = position

    def fault(self) -> ParseFault:
        return ParseFault(rule=self.rule, message=self.message, position=self.position)
