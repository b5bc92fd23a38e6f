"""OTLP/JSON as typed structs, and from them to spans.

Beyond what the specification allows, read are: integers as numbers, enums as names, ids as base64, null for absent.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from sys import intern

import msgspec
from msgspec import Struct

from kernel.errors import TraceError
from kernel.trace.span import AttributeValue, Event, Link, Resource, Span


class _Json(Struct, rename="camel", gc=False):
    """Fields as they stand in the file; null reads as absent and unknown fields are ignored."""


class AnyValueJson(_Json):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: ArrayJson | None = None
    kvlist_value: KeyValuesJson | None = None
    bytes_value: str | None = None


class KeyValueJson(_Json):
    key: str = ""
    value: AnyValueJson | None = None


class ArrayJson(_Json):
    values: list[AnyValueJson] | None = None


class KeyValuesJson(_Json):
    values: list[KeyValueJson] | None = None


class EventJson(_Json):
    name: str | None = None
    time_unix_nano: int | str | None = None
    attributes: list[KeyValueJson] | None = None
    dropped_attributes_count: int | None = None


class LinkJson(_Json):
    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    attributes: list[KeyValueJson] | None = None
    dropped_attributes_count: int | None = None


class StatusJson(_Json):
    code: int | str | None = None
    message: str | None = None


class SpanJson(_Json):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    trace_state: str | None = None
    name: str | None = None
    kind: int | str | None = None
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[KeyValueJson] | None = None
    events: list[EventJson] | None = None
    links: list[LinkJson] | None = None
    status: StatusJson | None = None
    dropped_attributes_count: int | None = None
    dropped_events_count: int | None = None
    dropped_links_count: int | None = None


class ScopeJson(_Json):
    name: str | None = None
    version: str | None = None
    attributes: list[KeyValueJson] | None = None


class ScopeSpansJson(_Json):
    scope: ScopeJson | None = None
    spans: list[SpanJson] | None = None


class ResourceJson(_Json):
    attributes: list[KeyValueJson] | None = None


class ResourceSpansJson(_Json):
    resource: ResourceJson | None = None
    scope_spans: list[ScopeSpansJson] | None = None


class DocumentJson(_Json):
    """`ExportTraceServiceRequest`, which `TracesData` equals."""

    resource_spans: list[ResourceSpansJson]


_KIND_NAMES = (
    "SPAN_KIND_UNSPECIFIED",
    *(f"SPAN_KIND_{k}" for k in ("INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")),
)
_KINDS = {name: number for number, name in enumerate(_KIND_NAMES)}
_STATUSES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_HEX = re.compile(r"[0-9a-fA-F]+")
_ZEROS = frozenset({"0" * 16, "0" * 32})

_decode_span = msgspec.json.Decoder(SpanJson).decode


def decode_span(data: bytes | str) -> Span:
    """Read one OTLP/JSON span. Raises `TraceError` where it is not one; the message says which field."""
    try:
        return to_span(_decode_span(data))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise TraceError(f"not an OTLP/JSON span: {error}") from None


def to_span(raw: SpanJson) -> Span:
    """A parsed span as a `Span`. Raises `ValueError` for an integer that is none."""
    end, kind, parent, status = raw.end_time_unix_nano, raw.kind, raw.parent_span_id, raw.status
    span = Span(
        trace_id=read_id(raw.trace_id, 16),
        span_id=read_id(raw.span_id, 8),
        parent_id=read_id(parent, 8) or None if parent else None,
        name=raw.name or "",
        kind=kind if type(kind) is int else _enum(kind, _KINDS),
        start_ns=int(raw.start_time_unix_nano or 0),
        end_ns=int(end) or None if end is not None else None,
        attributes=to_attributes(raw.attributes) if raw.attributes else {},
    )
    if status is not None:
        span.status = _enum(status.code, _STATUSES)
        span.status_message = status.message or ""
    if raw.events:
        span.events = tuple([to_event(event) for event in raw.events])
    if raw.links:
        span.links = tuple([_to_link(link) for link in raw.links])
    if raw.dropped_attributes_count or raw.dropped_events_count or raw.dropped_links_count or span.events or span.links:
        span.dropped = _dropped(raw)
    return span


def _dropped(raw: SpanJson) -> int:
    counts = [raw.dropped_attributes_count, raw.dropped_events_count, raw.dropped_links_count]
    counts += [event.dropped_attributes_count for event in raw.events or ()]
    counts += [link.dropped_attributes_count for link in raw.links or ()]
    return sum(count or 0 for count in counts)


def to_event(raw: EventJson) -> Event:
    """A parsed event as an `Event`."""
    attributes = to_attributes(raw.attributes) if raw.attributes else {}
    return Event(name=raw.name or "", time_ns=int(raw.time_unix_nano or 0), attributes=attributes)


def _to_link(raw: LinkJson) -> Link:
    attributes = to_attributes(raw.attributes) if raw.attributes else {}
    return Link(trace_id=read_id(raw.trace_id, 16), span_id=read_id(raw.span_id, 8), attributes=attributes)


def to_resource(resource: ResourceJson | None, scope: ScopeJson | None) -> Resource:
    """A parsed resource and its scope as a `Resource`; attributes of the scope are not kept."""
    attributes = to_attributes(resource.attributes) if resource and resource.attributes else {}
    if scope is None:
        return Resource(attributes=attributes)
    return Resource(attributes=attributes, scope_name=scope.name or "", scope_version=scope.version or "")


def to_attributes(raw: Sequence[KeyValueJson]) -> dict[str, AttributeValue]:
    """Parsed attributes as a dict; of equal keys the last one counts."""
    attributes: dict[str, AttributeValue] = {}
    for pair in raw:
        value = pair.value
        key = intern(pair.key)  # keys repeat on every span: one object for all of them
        if value is None:
            attributes[key] = None
        elif (text := value.string_value) is not None:
            attributes[key] = text
        elif (number := value.int_value) is not None:
            attributes[key] = int(number)
        else:
            attributes[key] = _to_value(value)
    return attributes


def _to_value(value: AnyValueJson) -> AttributeValue:
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return int(value.int_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_to_value(item) for item in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return to_attributes(value.kvlist_value.values or ())
    if value.bytes_value is not None:
        return read_base64(value.bytes_value)
    return None


def read_base64(text: str) -> bytes:
    """Base64, also URL-safe and unpadded. Raises `ValueError`."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)


def read_id(text: str | None, size: int) -> str:
    """An id of `size` bytes as lower-case hex, "" for none or all zeros; base64 is read, other text is kept."""
    if not text:
        return ""
    if len(text) != 2 * size:
        if len(text.rstrip("=")) != (size * 4 + 2) // 3:
            return text.lower() if _HEX.fullmatch(text) else text
        try:
            text = read_base64(text).hex()
        except ValueError:
            return text
    text = text.lower()
    return "" if text in _ZEROS else text


def _enum(value: int | str | None, names: dict[str, int]) -> int:
    if type(value) is int:
        return value
    if not value:
        return 0
    return names[value] if value in names else int(value) if str(value).isdecimal() else 0
