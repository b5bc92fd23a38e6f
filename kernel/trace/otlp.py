"""Spans to OTLP/JSON and back, without the OpenTelemetry SDK: `decode_span(encode_span(span)) == span`.

Written: lowerCamelCase keys, ids as hex, 64-bit integers as decimal strings, bytes as base64, NaN and infinities as
strings, None as the empty value (the JSON mapping of opentelemetry-proto).
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from itertools import islice
from json.encoder import encode_basestring
from typing import Any

from msgspec import Struct

from kernel.record import canonical_json, to_jsonable, valid_text
from kernel.trace.otlp_json import decode_span
from kernel.trace.span import AttributeValue, Event, Link, Resource, Span

__all__ = [
    "decode_span",
    "encode_document",
    "encode_event",
    "encode_line",
    "encode_resource",
    "encode_span",
]

_MAX_DEPTH = 64
"""Deeper attribute values are written as one canonical JSON text: protobuf parsers stop at 100 nested messages."""

_MAX_HEADS = 4096
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT32_MAX = 2**32 - 1
_UINT64_MAX = 2**64 - 1

_text = encode_basestring
_heads: dict[str, str] = {}  # attribute key → its encoded beginning; keys repeat on every span


def encode_span(span: Span) -> bytes:
    """One span as a compact OTLP/JSON object; an open span has no `endTimeUnixNano`. Never raises, O(size).

    What OTLP cannot hold is written in its nearest form: lone surrogates as U+FFFD, integers beyond 64 bits as text,
    other Python objects as `kernel.record.canonical.to_jsonable` spells them.
    """
    try:
        return _span_text(span, _COMPACT).encode()
    except Exception:  # a text or type that JSON cannot hold: its nearest form is written
        return _span_text(_clean_span(span), _COMPACT).encode()


def encode_started(span: Span) -> tuple[bytes, list[str]]:
    """A span at its start as `encode_span` writes it, and the texts of its attributes for `encode_ended`."""
    try:
        texts = _attribute_texts(span.attributes)
        return _span_text(span, _COMPACT, texts).encode(), texts
    except Exception:  # as in `encode_span`
        return encode_span(span), []


def encode_ended(span: Span, started: list[str]) -> bytes:
    """A span at its end, as `encode_document` lays it out; without its line breaks it is one line of JSON. What it had at
    its start is not written again: attributes are only added to a span, never changed."""
    try:
        texts = started
        if len(texts) < len(span.attributes):
            texts = texts + _attribute_texts(dict(islice(span.attributes.items(), len(texts), None)))
        return _span_text(span, _REVIEW, texts).encode()
    except Exception:  # as in `encode_span`
        return encode_for_review(span)


def encode_for_review(span: Span) -> bytes:
    """One span as `encode_document` lays it out. Never raises."""
    try:
        return _span_text(span, _REVIEW).encode()
    except Exception:  # as in `encode_span`
        return _span_text(_clean_span(span), _REVIEW).encode()


def encode_event(event: Event) -> bytes:
    """One span event as a compact OTLP/JSON object. Never raises."""
    try:
        return _event_text(event).encode()
    except Exception:  # as in `encode_span`
        return _event_text(_clean_event(event)).encode()


def encode_resource(resource: Resource) -> tuple[bytes, bytes]:
    """The OTLP/JSON `resource` and `scope` objects. Never raises."""
    return _resource_bytes(resource, _COMPACT)


def encode_line(spans: Iterable[Span], resource: Resource) -> bytes:
    """One line of JSON: an `ExportTraceServiceRequest` as the Collector's file exporter writes it, newline included."""
    return _document(resource, [encode_span(span) for span in spans], _COMPACT)


def encode_document(spans: Iterable[Span], resource: Resource) -> bytes:
    """An `ExportTraceServiceRequest` laid out for review: one line per attribute, ids and times on lines of their own.

    Deterministic; the order of spans and attributes is kept. Ends in a newline. Never raises.
    """
    return join_document([encode_for_review(span) for span in spans], resource)


DOCUMENT_MARK = b'{"resourceSpans":['
"""How a trace file begins."""


def join_document(spans: list[bytes], resource: Resource) -> bytes:
    """A document of spans that are laid out already."""
    return _document(resource, spans, _REVIEW)


# --- writing ----------------------------------------------------------------------------------------------------------


class _Layout(Struct, frozen=True):
    """Where lines break."""

    field: str  # between groups of fields
    item: str  # before the first entry of a list
    next_item: str  # between entries
    span: str  # before the first span


_COMPACT = _Layout(field=",", item="", next_item=",", span="")
_REVIEW = _Layout(field=",\n ", item="\n  ", next_item=",\n  ", span="\n")


def _document(resource: Resource, spans: list[bytes], layout: _Layout) -> bytes:
    resource_json, scope_json = _resource_bytes(resource, layout)
    line = layout.span.encode()
    head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % (resource_json, scope_json)
    return b"".join((head, line, (b"," + line).join(spans), line, b"]}]}]}\n"))


def _resource_bytes(resource: Resource, layout: _Layout) -> tuple[bytes, bytes]:
    try:
        return _resource_text(resource, layout).encode(), _scope_text(resource).encode()
    except Exception:  # as in `encode_span`
        resource = _clean_resource(resource)
        return _resource_text(resource, layout).encode(), _scope_text(resource).encode()


def _resource_text(resource: Resource, layout: _Layout) -> str:
    if not resource.attributes:
        return "{}"
    return f'{{"attributes":[{layout.item}{layout.next_item.join(_attribute_texts(resource.attributes))}]}}'


def _scope_text(resource: Resource) -> str:
    fields = [f'"name":{_text(resource.scope_name)}'] if resource.scope_name else []
    if resource.scope_version:
        fields.append(f'"version":{_text(resource.scope_version)}')
    return f"{{{','.join(fields)}}}"


def _span_text(span: Span, layout: _Layout, texts: list[str] | None = None) -> str:
    field, item, next_item = layout.field, layout.item, layout.next_item
    parent = "" if span.parent_id is None else f',"parentSpanId":{_text(span.parent_id)}'
    end = "" if span.end_ns is None else f',"endTimeUnixNano":"{span.end_ns:d}"'
    text = (
        f'{{"name":{_text(span.name)},"kind":{span.kind:d}{field}'
        f'"traceId":{_text(span.trace_id)},"spanId":{_text(span.span_id)}{parent}{field}'
        f'"startTimeUnixNano":"{span.start_ns:d}"{end}'
    )
    if span.attributes:
        if texts is None:
            texts = _attribute_texts(span.attributes)
        text += f'{field}"attributes":[{item}{next_item.join(texts)}]'
    if span.events:
        text += f'{field}"events":[{item}{next_item.join([_event_text(event) for event in span.events])}]'
    if span.links:
        text += f'{field}"links":[{item}{next_item.join([_link_text(link) for link in span.links])}]'
    if span.dropped:
        text += f'{field}"droppedAttributesCount":{span.dropped:d}'
    if span.status_message:
        text += f'{field}"status":{{"code":{span.status:d},"message":{_text(span.status_message)}}}'
    elif span.status:
        text += f'{field}"status":{{"code":{span.status:d}}}'
    return text + "}"


def _event_text(event: Event) -> str:
    attributes = f',"attributes":[{",".join(_attribute_texts(event.attributes))}]' if event.attributes else ""
    return f'{{"timeUnixNano":"{event.time_ns:d}","name":{_text(event.name)}{attributes}}}'


def _link_text(link: Link) -> str:
    attributes = f',"attributes":[{",".join(_attribute_texts(link.attributes))}]' if link.attributes else ""
    return f'{{"traceId":{_text(link.trace_id)},"spanId":{_text(link.span_id)}{attributes}}}'


def _attribute_texts(attributes: dict[str, AttributeValue], depth: int = 0) -> list[str]:
    out = []
    for key, value in attributes.items():
        head = _heads.get(key) or _head(key)
        kind = type(value)
        if kind is str:
            out.append(f'{head}{{"stringValue":{_text(value)}}}}}')
        elif kind is int and _INT64_MIN <= value <= _INT64_MAX:
            out.append(f'{head}{{"intValue":"{value}"}}}}')
        elif kind is bool:
            out.append(head + ('{"boolValue":true}}' if value else '{"boolValue":false}}'))
        else:
            out.append(f"{head}{_value_text(value, depth + 1)}}}")
    return out


def _head(key: str) -> str:
    if type(key) is not str:
        raise TypeError("an attribute's key is text")
    head = f'{{"key":{_text(key)},"value":'
    if len(key) <= 64:
        if len(_heads) >= _MAX_HEADS:
            _heads.clear()
        _heads[key] = head
    return head


def _value_text(value: AttributeValue, depth: int) -> str:
    """One AnyValue object. Raises on what is not exactly one; the caller then cleans the span and tries again."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    kind = type(value)
    if kind is str:
        return f'{{"stringValue":{_text(value)}}}'
    if value is None:
        return "{}"
    if kind is bool:
        return '{"boolValue":true}' if value else '{"boolValue":false}'
    if kind is int and _INT64_MIN <= value <= _INT64_MAX:
        return f'{{"intValue":"{value}"}}'
    if kind is float:
        return f'{{"doubleValue":{_float_text(value)}}}'
    if kind is list or kind is tuple:
        items = ",".join([_value_text(item, depth + 1) for item in value])
        return f'{{"arrayValue":{{"values":[{items}]}}}}'
    if kind is dict:
        return f'{{"kvlistValue":{{"values":[{",".join(_attribute_texts(value, depth))}]}}}}'
    if kind is bytes:
        return f'{{"bytesValue":"{binascii.b2a_base64(value, newline=False).decode()}"}}'
    raise TypeError(f"{kind.__name__} is not an attribute value")


def _float_text(value: float) -> str:
    if value - value == 0.0:
        return repr(value)
    return '"NaN"' if value != value else ('"Infinity"' if value > 0 else '"-Infinity"')


# --- what OTLP cannot hold, in its nearest form -----------------------------------------------------------------------


def _clean_span(span: Span) -> Span:
    return Span(
        trace_id=_clean_text(span.trace_id),
        span_id=_clean_text(span.span_id),
        parent_id=None if span.parent_id is None else _clean_text(span.parent_id),
        name=_clean_text(span.name),
        kind=_clean_int(span.kind, _UINT32_MAX),
        start_ns=_clean_int(span.start_ns, _UINT64_MAX),
        end_ns=None if span.end_ns is None else _clean_int(span.end_ns, _UINT64_MAX),
        attributes=_clean_attributes(span.attributes),
        events=tuple(_clean_event(event) for event in span.events),
        links=tuple(
            Link(
                trace_id=_clean_text(link.trace_id),
                span_id=_clean_text(link.span_id),
                attributes=_clean_attributes(link.attributes),
            )
            for link in span.links
        ),
        status=_clean_int(span.status, _UINT32_MAX),
        status_message=_clean_text(span.status_message),
        dropped=_clean_int(span.dropped, _UINT32_MAX),
    )


def _clean_event(event: Event) -> Event:
    time_ns = _clean_int(event.time_ns, _UINT64_MAX)
    return Event(name=_clean_text(event.name), time_ns=time_ns, attributes=_clean_attributes(event.attributes))


def _clean_resource(resource: Resource) -> Resource:
    return Resource(
        attributes=_clean_attributes(resource.attributes),
        scope_name=_clean_text(resource.scope_name),
        scope_version=_clean_text(resource.scope_version),
    )


def _clean_text(text: Any) -> str:
    plain = to_jsonable(text)
    return plain if isinstance(plain, str) else _json_text(plain)


def _clean_int(number: Any, maximum: int) -> int:
    return max(0, min(int(number), maximum)) if isinstance(number, (int, float)) and number == number else 0


def _clean_attributes(attributes: Any) -> dict[str, AttributeValue]:
    cleaned = _clean_value(attributes, ())
    return cleaned if isinstance(cleaned, dict) else {"value": cleaned}


def _clean_value(value: Any, above: tuple[int, ...]) -> AttributeValue:
    kind = type(value)
    if kind is str:
        return valid_text(value)
    if value is None or kind is bool or kind is float or kind is bytes:
        return value
    if kind is int:
        return value if _INT64_MIN <= value <= _INT64_MAX else _wide_int(value)
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    if kind is not list and kind is not tuple and kind is not dict:
        return _clean_value(to_jsonable(value), above)
    if len(above) >= _MAX_DEPTH - 1 or id(value) in above:
        return _json_text(to_jsonable(value))
    above = (*above, id(value))
    if kind is dict:
        return {_clean_text(key): _clean_value(item, above) for key, item in value.items()}
    return [_clean_value(item, above) for item in value]


def _json_text(value: Any) -> str:
    try:
        return canonical_json(value)
    except ValueError:  # it holds an integer of more than 4300 digits
        return f"<{type(value).__name__} without a JSON text>"


def _wide_int(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses decimal text of more than 4300 digits
        return hex(value)
