"""Jaeger JSON into spans: undoes what Jaeger's model does to OTLP, and notes what cannot be undone.

Read are the answers of `/api/traces`, a bare trace, a bare array of spans with their process inline (Jaeger's
`internal/uimodel`), and the JSON form of Jaeger's protobuf model (base64 ids, `vType`, RFC 3339 times).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from kernel.trace import Event, Link, Resource, Span, read_id
from replay.readers.gather import Gather, label
from replay.readers.jaeger_tags import Tag, TagReader, take_kind, take_scope, take_status
from replay.readers.times import duration_ns, rfc3339_ns

_LOSSES = (
    "Jaeger JSON keeps no more than this: times to the microsecond (nanoseconds were cut), no attributes of links and "
    "scopes, no dropped counts, no difference between an empty value and an empty text; attributes and events may have "
    "been sorted by name"
)
_NO_SERVICE = "OTLPResourceNoServiceName"


class _Reference(Struct):
    ref_type: str | int = msgspec.field(name="refType", default="CHILD_OF")
    trace_id: str = msgspec.field(name="traceID", default="")
    span_id: str = msgspec.field(name="spanID", default="")


class _Log(Struct):
    timestamp: int | float | str = 0
    fields: list[Tag] | None = None


class _Process(Struct, rename="camel"):
    service_name: str = ""
    tags: list[Tag] | None = None


class _Span(Struct, kw_only=True):
    trace_id: str = msgspec.field(name="traceID", default="")
    span_id: str = msgspec.field(name="spanID")
    parent_id: str | None = msgspec.field(name="parentSpanID", default=None)
    name: str = msgspec.field(name="operationName", default="")
    references: list[_Reference] | None = None
    start: int | float | str = msgspec.field(name="startTime", default=0)
    duration: int | float | str = 0
    tags: list[Tag] | None = None
    logs: list[_Log] | None = None
    process_id: str | None = msgspec.field(name="processID", default=None)
    process: _Process | None = None
    warnings: list[str] | None = None


class _Trace(Struct):
    trace_id: str = msgspec.field(name="traceID", default="")
    spans: list[_Span] | None = None
    processes: dict[str, _Process] | None = None
    warnings: list[str] | None = None


def is_jaeger(raw: Any) -> bool:
    """Whether a JSON value is Jaeger's: decided by keys that no other format has."""
    if isinstance(raw, dict) and isinstance(raw.get("data"), list):
        raw = raw["data"]
    if isinstance(raw, list):
        raw = raw[0] if raw else None
    if not isinstance(raw, dict):
        return False
    spans = raw.get("spans")
    if isinstance(spans, list):
        return "processes" in raw or "traceID" in raw or (bool(spans) and _is_span(spans[0]))
    return _is_span(raw)


def _is_span(raw: Any) -> bool:
    return isinstance(raw, dict) and ({"traceID", "spanID"} <= raw.keys() or "operationName" in raw)


def add(raw: Any, gather: Gather) -> None:
    """Add the spans of a document for which `is_jaeger` holds. Raises `ValueError`; the message ends in the path."""
    if isinstance(raw, dict) and isinstance(raw.get("data"), list):
        raw = raw["data"]
    items = raw if isinstance(raw, list) else [raw]
    traces = items if isinstance(items[0].get("spans"), list) else [{"spans": items}]
    for trace in msgspec.convert(_respelled(traces), list[_Trace]):
        for span in trace.spans or ():
            _add_span(span, trace, gather)
        for warning in trace.warnings or ():
            gather.note(f"Jaeger warns: {warning}", _id(trace.trace_id, 16))


def _respelled(value: Any) -> Any:
    """The keys of the protobuf model's JSON in the spelling of the query API."""
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, dict):
        renamed = {"traceId": "traceID", "spanId": "spanID", "processId": "processID", "parentSpanId": "parentSpanID"}
        return {renamed.get(key, key): item if key == "value" else _respelled(item) for key, item in value.items()}
    return value


def _add_span(raw: _Span, trace: _Trace, gather: Gather) -> None:
    trace_id = _id(raw.trace_id or trace.trace_id, 16)
    reader = TagReader()
    attributes = reader.read(raw.tags)
    kind = take_kind(attributes)
    status, message = take_status(attributes)
    scope_name, scope_version = take_scope(attributes)
    start, length = _times(raw)
    parent, links = _parent_and_links(raw, trace_id)
    span = Span(
        trace_id=trace_id,
        span_id=_id(raw.span_id, 8),
        parent_id=parent,
        name=raw.name,
        kind=kind,
        start_ns=start,
        end_ns=start + length,
        attributes=attributes,
        events=tuple(_event(log, reader) for log in raw.logs or ()),
        links=links,
        status=status,
        status_message=message,
    )
    process = raw.process or (trace.processes or {}).get(raw.process_id or "") or _Process()
    gather.add(span, _resource(process, reader, scope_name, scope_version))
    gather.note(_LOSSES, trace_id)
    for text in reader.notes:
        gather.note(text, trace_id)
    for warning in raw.warnings or ():
        gather.note(f"{label(span)}: Jaeger warns: {warning}", trace_id)
    if raw.process is None and raw.process_id and raw.process_id not in (trace.processes or {}):
        gather.note(f"{label(span)}: its process {raw.process_id!r} is not in the file", trace_id)


def _resource(process: _Process, reader: TagReader, scope_name: str, scope_version: str) -> Resource:
    attributes: dict[str, Any] = {}
    if process.service_name and process.service_name != _NO_SERVICE:
        attributes["service.name"] = process.service_name
    attributes.update(reader.read(process.tags))
    return Resource(attributes=attributes, scope_name=scope_name, scope_version=scope_version)


def _parent_and_links(raw: _Span, trace_id: str) -> tuple[str | None, tuple[Link, ...]]:
    """The parent as Jaeger itself finds it: the first CHILD_OF in the same trace, else the first FOLLOWS_FROM there."""
    references = [
        (str(ref.ref_type) in ("CHILD_OF", "0"), _id(ref.trace_id, 16) or trace_id, _id(ref.span_id, 8))
        for ref in raw.references or ()
    ]
    here = [index for index, ref in enumerate(references) if ref[1] == trace_id and ref[2]]
    chosen = next((index for index in here if references[index][0]), here[0] if here else None)
    links = tuple(
        Link(trace_id=trace, span_id=span, attributes={"opentracing.ref_type": "child_of"} if child_of else {})
        for index, (child_of, trace, span) in enumerate(references)
        if index != chosen
    )
    if chosen is not None:
        return references[chosen][2], links
    return (_id(raw.parent_id, 8) or None) if raw.parent_id else None, links


def _event(log: _Log, reader: TagReader) -> Event:
    attributes = reader.read(log.fields)
    name = attributes.pop("event", "")
    if not isinstance(name, str):
        attributes["event"], name = name, ""
    return Event(name=name, time_ns=_ns(log.timestamp), attributes=attributes)


def _id(text: str | None, size: int) -> str:
    """Jaeger drops leading zeros of ids; base64 stands in the protobuf model's JSON."""
    spelled = read_id(text, size)
    if spelled and len(spelled) < 2 * size and all(digit in "0123456789abcdef" for digit in spelled):
        return spelled.rjust(2 * size, "0")
    return spelled


def _ns(value: int | float | str) -> int:
    if isinstance(value, str):
        return int(value) * 1000 if value.isdecimal() else rfc3339_ns(value)
    return round(value * 1000)


def _times(raw: _Span) -> tuple[int, int]:
    """Start and duration in ns. Raises `ValueError` that names the span and the field."""
    try:
        start = _ns(raw.start)
    except ValueError:
        raise ValueError(f"span {raw.span_id!r} has the startTime {raw.start!r}, which is no time") from None
    try:
        return start, _length_ns(raw.duration)
    except ValueError:
        raise ValueError(f"span {raw.span_id!r} has the duration {raw.duration!r}, which is no duration") from None


def _length_ns(value: int | float | str) -> int:
    if isinstance(value, str):
        return int(value) * 1000 if value.isdecimal() else duration_ns(value)
    return round(value * 1000)
