"""The recorder's journal: a header, then one line at the start and one at the end of every span.

Whatever byte the writer was killed at, what stands before it is read; a span without an end stays open.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kernel.trace import (
    Event,
    EventJson,
    Resource,
    ResourceJson,
    ScopeJson,
    Span,
    SpanJson,
    read_id,
    to_event,
    to_resource,
    to_span,
)
from replay.readers.gather import Gather
from replay.readers.refusal import refuse
from replay.readers.source import Source

VERSION = 1


class _PointEvent(Struct, rename="camel"):
    """An event on a span that is still open."""

    trace_id: str
    span_id: str
    event: EventJson


class _Line(Struct):
    """One line: a header, the start `s` or the end `e` of a span, or an event `v`."""

    tracefirst: str | None = None
    version: int | None = None
    resource: ResourceJson | None = None
    scope: ScopeJson | None = None
    s: SpanJson | None = None
    e: SpanJson | None = None
    v: _PointEvent | None = None


_decode = msgspec.json.Decoder(_Line).decode


def is_header(line: bytes) -> bool:
    """Whether a line is a journal's first."""
    if b'"tracefirst"' not in line:
        return False
    try:
        return _decode(line).tracefirst == "journal"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def read(source: Source, gather: Gather) -> str:
    """Read a journal. Raises `TraceError` for a newer version, or a damaged line before the last one."""
    reading = _Reading(gather)
    data, at, number = source.data, 0, 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        text, number = data[at:end], number + 1
        at = end + 1
        if not text.strip():
            continue
        try:
            line = _decode(text)
            if line.tracefirst is not None and (line.version or 0) > VERSION:
                found = f"a journal of version {line.version}; this program reads up to version {VERSION}"
                refuse(source.name, found, line=number, remedy="Update tracefirst.")
            reading.take(line, number)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            if data[end:].strip():
                refuse(source.name, f"a damaged journal line: {error}", line=number, remedy="Remove that line.")
            gather.note(f"the last line, {number}, is cut off and was left out")
    reading.hand_over()
    return "journal"


class _Reading:
    def __init__(self, gather: Gather) -> None:
        self.gather = gather
        self.resource = Resource()
        self.spans: dict[tuple[str, str], tuple[Span, Resource]] = {}
        self.events: dict[tuple[str, str], list[Event]] = {}  # of spans that are open

    def take(self, line: _Line, number: int) -> None:
        """Apply one line."""
        if line.tracefirst is not None:
            self.resource = to_resource(line.resource, line.scope)
        elif line.e is not None:
            span = to_span(line.e)
            self.spans[span.trace_id, span.span_id] = (span, self.resource)
            self.events.pop((span.trace_id, span.span_id), None)  # its end has them all
        elif line.s is not None:
            span = to_span(line.s)
            self.spans.setdefault((span.trace_id, span.span_id), (span, self.resource))
        elif line.v is not None:
            self._add_event(line.v, number)
        else:
            self.gather.note(f"line {number} of the journal is of an unknown kind and was left out")

    def _add_event(self, point: _PointEvent, number: int) -> None:
        event = to_event(point.event)
        key = read_id(point.trace_id, 16), read_id(point.span_id, 8)
        if key not in self.spans:
            text = f"line {number} of the journal has event {event.name!r} of span {point.span_id}, which never started"
            self.gather.note(f"{text}; it was left out")
        else:
            self.events.setdefault(key, []).append(event)

    def hand_over(self) -> None:
        """Give all spans to the gatherer, in order of their start."""
        for key, (span, resource) in self.spans.items():
            span.events += tuple(self.events.get(key, ()))
            self.gather.add(span, resource)
            if span.end_ns is None:
                self.gather.note(
                    f"span {span.name!r} ({span.span_id}) was still open when the journal ends", span.trace_id
                )
