"""A difference between recorded and replayed, as a value: where, what, both sides, the likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

Kind = Literal[
    "request",
    "attempt",
    "reply",
    "decision",
    "call",
    "result",
    "observation",
    "guard",
    "feedback",
    "budget",
    "stop",
    "answer",
    "content",
    "missing",
    "crash",
]
Verdict = Literal["same", "drifted", "diverged", "crashed", "imported", "not_checked"]
"""`crashed`: the kernel itself failed in the replay; `imported`: a recording made from another program's trace was rebuilt
as it was read, and nothing of the agent ran."""

UNCHECKED: frozenset[str] = frozenset({"imported", "not_checked"})
"""Verdicts that say nothing of the agent."""

DRIFT: frozenset[str] = frozenset({"request", "content"})
"""Kinds that leave behaviour as it was: the recorded answers may no longer be what the model would say."""


class Divergence(Struct, frozen=True, kw_only=True):
    """One difference. `step` 0 is the run itself; `path` is a JSON Pointer within what `kind` names; `turn` counts the
    runs of a conversation from 1. `downstream` marks what follows from an earlier difference. `setting` is the place in the
    head of the changed setting that alone makes this difference, "" where none does."""

    step: int
    kind: Kind
    path: str
    recorded: Any
    observed: Any
    span_id: str
    cause: str
    downstream: bool = False
    turn: int = 1
    setting: str = ""


ABSENT = "(absent)"


def differences(recorded: Any, observed: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two JSON values differ, in order, with both values. `1`, `1.0` and `True` are three values.

    Iterative: any depth. A key or item that only one side has is `ABSENT` on the other.
    """
    stack: list[tuple[str, Any, Any]] = [(path, recorded, observed)]
    while stack:
        place, one, other = stack.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            keys = [*one, *(key for key in other if key not in one)]
            pairs = [(f"{place}/{token(key)}", one.get(key, ABSENT), other.get(key, ABSENT)) for key in keys]
            stack.extend(reversed(pairs))
        elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            longest = max(len(one), len(other))
            items = [
                (f"{place}/{i}", one[i] if i < len(one) else ABSENT, other[i] if i < len(other) else ABSENT)
                for i in range(longest)
            ]
            stack.extend(reversed(items))
        elif (type(one) is not type(other) or one != other) and not (_is_nan(one) and _is_nan(other)):
            yield place, one, other


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def token(key: Any) -> str:
    """A key as a part of a JSON Pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")
