"""A span as the trace file holds it: ids as lower-case hex text, times as integer nanoseconds since 1970."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

UNSPECIFIED, INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(6)
UNSET, OK, ERROR = range(3)

AttributeValue = Any
"""str, bool, int, float, bytes, None, and lists and string-keyed dicts of these (OTLP's AnyValue)."""


class Event(Struct, frozen=True, kw_only=True):
    """A named moment on a span."""

    name: str
    time_ns: int = 0
    attributes: dict[str, AttributeValue] = {}


class Link(Struct, frozen=True, kw_only=True):
    """A reference to a span of this or another trace."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = {}


class Span(Struct, kw_only=True):
    """One span. `end_ns` is None while it is open, also for ever when the process died; `dropped` counts lost attributes,
    events and links."""

    trace_id: str
    span_id: str
    name: str
    parent_id: str | None = None
    kind: int = INTERNAL
    start_ns: int = 0
    end_ns: int | None = None
    attributes: dict[str, AttributeValue] = {}
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    status: int = UNSET
    status_message: str = ""
    dropped: int = 0


class Resource(Struct, frozen=True, kw_only=True):
    """Who emitted a group of spans: resource attributes (`service.name` …) and the instrumentation scope."""

    attributes: dict[str, AttributeValue] = {}
    scope_name: str = ""
    scope_version: str = ""
