"""Reading a span's attributes: each by its type, and what is not as it was recorded as a `Problem` that names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from kernel.record import parse_json
from kernel.trace import semconv as sc
from kernel.trace.sealing import breaches
from kernel.trace.span import ERROR, UNSPECIFIED, Span

T = TypeVar("T")


@lru_cache(maxsize=16)
def _optional(kind: Any) -> tuple[str, ...]:
    """The fields of a record that may be None."""
    return tuple(name for name, hint in get_type_hints(kind).items() if type(None) in get_args(hint))


class Problem(Struct, frozen=True, kw_only=True):
    """Something in a trace that is not as it was recorded. `step` 0 is the run itself."""

    kind: str
    step: int
    span_id: str
    attribute: str
    message: str


class Reader:
    """Reads attributes of known type; what cannot be read becomes a problem and the fallback is used."""

    def __init__(self, problems: list[Problem], span: Span, step: int) -> None:
        self._problems, self._span, self._step = problems, span, step
        self._attributes = span.attributes

    def problem(self, kind: str, attribute: str, message: str) -> None:
        self._problems.append(
            Problem(kind=kind, step=self._step, span_id=self._span.span_id, attribute=attribute, message=message)
        )

    def json(self, name: str, kind: Any, fallback: T, convert: Callable[[Any], Any] | None = None) -> Any | T:
        value = self._attributes.get(name)
        if value is None:
            return fallback
        try:
            if convert is None:
                if isinstance(value, str):
                    return msgspec.json.decode(value, type=kind)
                return msgspec.convert(value, kind)
            return convert(parse_json(value) if isinstance(value, str) else value)
        except (ValueError, TypeError, LookupError, AttributeError, msgspec.MsgspecError, RecursionError) as error:
            self.problem("unreadable", name, f"cannot be read: {error}")
            return fallback

    def setting(self, name: str, kind: type[T]) -> T:
        """A setting that is written whole: a limit that is not there did not exist when the run was recorded."""
        record: Any = kind
        absent = dict.fromkeys(_optional(record))
        found: T = self.json(name, None, kind(), lambda data: msgspec.convert({**absent, **data}, kind))
        return found

    def same(self, name: str, expected: Any, what: str) -> None:
        """An attribute that repeats what another place says; one that says something else is a problem."""
        if sc.CUT in self._attributes:  # the sender says what it withheld
            return
        value = self._attributes.get(name)
        if (list(value) if isinstance(value, tuple) else value) != expected:
            self.problem("changed", name, f"is {value!r:.60}, and {what} is {expected!r:.60}")

    def shaped(self, name: str, kind: int, *, failed: bool) -> None:
        """Name, kind and status of the span itself, which follow from what it holds."""
        span = self._span
        if span.name != name:
            self.problem("changed", "name", f"is {span.name!r:.80}; what the span holds is named {name!r:.80}")
        if span.kind not in (kind, UNSPECIFIED):
            self.problem("changed", "kind", f"is {span.kind}; a span of this name is of kind {kind}")
        marked = sc.CUT in self._attributes or sc.REPLAY_KIND in self._attributes  # a replay marks where it differs
        if span.end_ns is not None and not marked and (span.status == ERROR) != failed:
            told, right = ("an error" if error else "no error" for error in (span.status == ERROR, failed))
            self.problem("changed", "status", f"is {told}; what the span holds is {right}")

    def value(self, name: str, kind: type[T]) -> T | None:
        value = self._attributes.get(name)
        if value is None or isinstance(value, kind):
            return value
        if kind is float and isinstance(value, int):
            return float(value)  # type: ignore[return-value]
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)  # type: ignore[return-value]
        if kind is int and isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 4000:
            return int(value)  # type: ignore[return-value]
        self.problem("unreadable", name, f"is not {kind.__name__}: {value!r:.60}")
        return None

    def text(self, name: str) -> str:
        return self.value(name, str) or ""

    def closed(self, name: str, value: str, known: tuple[str, ...]) -> None:
        """A word from a closed list; another one is a problem."""
        if value not in known:
            self.problem("unreadable", name, f"is {value!r}; known are {', '.join(known)}")

    def sealed(self) -> None:
        """Compare the seal with the attributes: each that is not as it was recorded is a problem."""
        recorded = self._attributes.get(sc.SEAL)
        if recorded is None:
            if self._span.end_ns is not None:
                self.problem("unsealed", sc.SEAL, "the seal is missing: the span was changed after it was recorded")
            return
        for attribute, message in breaches(self._attributes, recorded):
            self.problem("changed", attribute, message)
