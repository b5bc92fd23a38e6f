"""OTLP request bodies from waiting records, and what has to be left out of the OTLP copy of a span.

A record is one line of OTLP/JSON: an `ExportTraceServiceRequest` with one span, as the Collector's file exporter writes
it. `http/json` bodies are the records of a batch put together; `http/protobuf` bodies are the messages of
opentelemetry-proto, filled from our spans and not through the SDK's encoder, which leaves out an attribute with a lone
surrogate or a wide integer, and loses the whole batch over a lone surrogate in a name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from kernel.errors import TraceError
from kernel.record import canonical_json, to_jsonable
from kernel.trace import (
    AttributeValue,
    DocumentJson,
    Event,
    Resource,
    Span,
    decode_span,
    encode_line,
    encode_resource,
    encode_span,
    semconv as sc,
    to_resource,
)

Protocol = Literal["http/protobuf", "http/json"]
CONTENT_TYPES: dict[Protocol, str] = {"http/protobuf": "application/x-protobuf", "http/json": "application/json"}

CUT = sc.CUT
"""Attribute of a span whose OTLP copy is not whole: the keys that were shortened or withheld."""

_SPANS = b'"spans":['
_END = b"]}]}]}\n"
_SHORTEST_BYTES = 256
_SPANS_A_BREATH, _BREATH_S = 8, 5e-5
_LONGEST_NAME = 1024

METADATA = frozenset(
    (
        *(sc.OPERATION, sc.AGENT_NAME, sc.PROVIDER, sc.CONVERSATION_ID, sc.REQUEST_MODEL, sc.RESPONSE_MODEL),
        *(sc.RESPONSE_ID, sc.FINISH_REASONS, sc.TOOL_NAME, sc.TOOL_TYPE, sc.TOOL_CALL_ID, sc.ERROR_TYPE),
        *(sc.FORMAT, sc.SEAL, sc.RUN_ID, sc.BUDGET, sc.GUARD, sc.POLICY, sc.CONTEXT, sc.STOP_REASON, sc.ALIVE),
        *(sc.GUARD_VERDICT, sc.BUDGET_AFTER, sc.DIGEST, sc.RESULT_TYPE, sc.OUTCOME, sc.IDEMPOTENCY_KEY, sc.SERVED_BY),
        *(sc.ORIGINAL_TRACE_ID, sc.REPLAY_VERDICT, sc.BOUNDED_BY, CUT),
    )
)
"""Attributes whose text is about a run and never out of it. Numbers and booleans are never content."""


def record_head(resource: Resource) -> bytes:
    """The start of every record of a resource. Never raises."""
    return encode_line((), resource)[: -len(_END)]


def to_record(head: bytes, span: Span) -> bytes:
    """One span as a record. Never raises."""
    return head + encode_span(span) + _END


def record_span(record: bytes) -> tuple[bytes, Span]:
    """The start of a record, equal for spans of one resource, and its span.

    Raises `TraceError` where the line is not a record.
    """
    # Inside a JSON string a quote is escaped, and no attribute is an object with a member "spans".
    start = record.find(_SPANS) + len(_SPANS)
    if start < len(_SPANS) or not record.endswith(_END):
        raise TraceError("not a line of OTLP/JSON with one span")
    return record[:start], decode_span(record[start : -len(_END)])


def encode_body(records: Iterable[bytes], protocol: Protocol) -> tuple[bytes, list[str]]:
    """The request body for a batch, grouped by resource, and what was wrong with the records left out of it."""
    groups: dict[bytes, list[Span]] = {}
    faults = []
    for number, record in enumerate(records):
        _breathe(number)
        try:
            head, span = record_span(record)
            _check_ids(span)
            groups.setdefault(head, []).append(span)
        except (TraceError, ValueError) as error:
            faults.append(str(error))
    encode = _protobuf if protocol == "http/protobuf" else _json
    return encode([(_resource(head), spans) for head, spans in groups.items()], faults), faults


def _breathe(number: int) -> None:
    """Let the run's thread in. While it waits for the interpreter's lock, it gets it after 5 ms only, unless the holder
    goes to sleep before."""
    if number % _SPANS_A_BREATH == _SPANS_A_BREATH - 1:
        time.sleep(_BREATH_S)


def _check_ids(span: Span) -> None:
    for field, text, size in (("traceId", span.trace_id, 16), ("spanId", span.span_id, 8)):
        if len(bytes.fromhex(text)) != size:
            raise ValueError(f"{field} {text!r:.40} is not {2 * size} hex digits")
    for link in span.links:
        bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
    bytes.fromhex(span.parent_id or "")


def _resource(head: bytes) -> Resource:
    raw = msgspec.json.decode(head + _END, type=DocumentJson).resource_spans[0]
    return to_resource(raw.resource, raw.scope_spans[0].scope if raw.scope_spans else None)


def _json(parts: Sequence[tuple[Resource, list[Span]]], faults: list[str]) -> bytes:
    groups = []
    for resource, spans in parts:
        attributes, scope = encode_resource(resource)
        texts = b",".join([encode_span(span) for span in spans])
        groups.append(b'{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[%b]}]}' % (attributes, scope, texts))
    return b'{"resourceSpans":[%b]}' % b",".join(groups)


# --- protobuf ---------------------------------------------------------------------------------------------------------


def _protobuf(parts: Sequence[tuple[Resource, list[Span]]], faults: list[str]) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    for resource, spans in parts:
        group = request.resource_spans.add()
        _fill_attributes(group.resource.attributes, resource.attributes)
        scope = group.scope_spans.add()
        scope.scope.name, scope.scope.version = resource.scope_name, resource.scope_version
        for number, span in enumerate(spans):
            _breathe(number)
            try:
                _fill_span(scope.spans.add(), span)
            except (ValueError, TypeError) as error:  # such as a time before 1970: no field can hold it
                del scope.spans[-1]
                faults.append(f"span {span.span_id}: {error}")
    return bytes(request.SerializeToString())


def _fill_span(message: Any, span: Span) -> None:
    message.trace_id, message.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    message.parent_span_id = bytes.fromhex(span.parent_id or "")
    message.name, message.kind = span.name, span.kind
    message.start_time_unix_nano, message.end_time_unix_nano = span.start_ns, span.end_ns or 0
    message.dropped_attributes_count = span.dropped
    message.status.code, message.status.message = span.status, span.status_message
    _fill_attributes(message.attributes, span.attributes)
    for event in span.events:
        _fill_attributes(message.events.add(name=event.name, time_unix_nano=event.time_ns).attributes, event.attributes)
    for link in span.links:
        ids = {"trace_id": bytes.fromhex(link.trace_id), "span_id": bytes.fromhex(link.span_id)}
        _fill_attributes(message.links.add(**ids).attributes, link.attributes)


def _fill_attributes(message: Any, attributes: dict[str, AttributeValue]) -> None:
    for key, value in attributes.items():
        pair = message.add()
        pair.key = key
        _fill_value(pair.value, value)


def _fill_value(message: Any, value: AttributeValue) -> None:
    """`value` comes out of OTLP/JSON, so it is one of the seven kinds or None."""
    kind = type(value)
    if kind is str:
        message.string_value = value
    elif kind is bool:
        message.bool_value = value
    elif kind is int:
        message.int_value = value
    elif kind is float:
        message.double_value = value
    elif kind is bytes:
        message.bytes_value = value
    elif kind is dict:
        message.kvlist_value.SetInParent()
        _fill_attributes(message.kvlist_value.values, value)
    elif kind is list:
        message.array_value.SetInParent()
        for item in value:
            _fill_value(message.array_value.values.add(), item)


def read_partial_success(body: bytes, content_type: str) -> tuple[int, str]:
    """Spans the server says it rejected in a 2xx answer, and why. Never raises: an unreadable answer rejects none."""
    try:
        if "json" in content_type:
            partial = msgspec.json.decode(body).get("partialSuccess") or {}
            return int(partial.get("rejectedSpans") or 0), str(partial.get("errorMessage") or "")
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        answer = ExportTraceServiceResponse.FromString(body).partial_success
        return int(answer.rejected_spans), str(answer.error_message)
    except Exception:  # a foreign body of any form; the status said that the spans were taken
        return 0, ""


# --- the OTLP copy is not whole ---------------------------------------------------------------------------------------


def withhold_content(span: Span) -> Span:
    """A copy without prompts, replies, arguments and results; `tracefirst.otlp.cut` names what is not there."""
    attributes, gone = _metadata(span.attributes)
    events = []
    for event in span.events:
        kept, missing = _metadata(event.attributes)
        gone += [f"{event.name}/{key}" for key in missing]
        events.append(Event(name=event.name, time_ns=event.time_ns, attributes=kept))
    if span.status_message:
        gone.append("status.message")
    if gone:
        attributes[CUT] = gone
    return msgspec.structs.replace(span, attributes=attributes, events=tuple(events), status_message="")


def _metadata(attributes: dict[str, AttributeValue]) -> tuple[dict[str, AttributeValue], list[str]]:
    kept = {k: v for k, v in attributes.items() if k in METADATA or type(v) in (int, float, bool) or v is None}
    return kept, [str(key) for key in attributes if key not in kept]


def shorten(span: Span, limit_bytes: int) -> Span:
    """A copy of about `limit_bytes` as OTLP/JSON: the largest texts keep their head and say how much was cut.

    `tracefirst.otlp.cut` names the keys; event attributes count as `event name/key`. Numbers, ids, times and texts
    under 256 bytes stay, so a span of thousands of attributes can remain larger.
    """
    out = msgspec.structs.replace(
        span,
        name=_head(span.name, _LONGEST_NAME),
        status_message=_head(span.status_message, _LONGEST_NAME),
        attributes=dict(span.attributes),
        events=tuple(msgspec.structs.replace(e, attributes=dict(e.attributes)) for e in span.events),
    )
    places: list[tuple[str, dict[str, AttributeValue], str]] = [("", out.attributes, key) for key in out.attributes]
    places += [(f"{event.name}/", event.attributes, key) for event in out.events for key in event.attributes]
    sizes = {i: len(_json_text(values[key])) for i, (_, values, key) in enumerate(places) if key != sc.SEAL}
    names = []
    for i in sorted(sizes, key=lambda i: -sizes[i]):
        excess = len(encode_span(out)) - limit_bytes
        if excess <= 0 or sizes[i] <= _SHORTEST_BYTES:
            break
        prefix, values, key = places[i]
        values[key] = _cut(values[key], max(sizes[i] - excess - 2 * _SHORTEST_BYTES, _SHORTEST_BYTES // 2), sizes[i])
        names.append(f"{prefix}{key}")
        out.attributes[CUT] = [*_cut_before(span), *names]
    return out


def shorten_record(record: bytes, limit_bytes: int) -> bytes:
    """`shorten` for a record. Raises `TraceError` where the line is not one."""
    head, span = record_span(record)
    return to_record(head, shorten(span, limit_bytes - len(head) - len(_END)))


def _cut_before(span: Span) -> list[str]:
    before = span.attributes.get(CUT)
    return [str(key) for key in before] if isinstance(before, list | tuple) else []


def _cut(value: AttributeValue, keep_bytes: int, size_bytes: int) -> str:
    text = value if isinstance(value, str) else canonical_json(to_jsonable(value))
    kept = _head(text, max(1, len(text) * keep_bytes // size_bytes))
    while len(kept) > 1 and len(_json_text(kept)) > keep_bytes:
        kept = kept[: len(kept) // 2]
    return f"{kept}… [cut in the OTLP copy: {len(kept)} of {len(text)} characters; the trace file has all]"


def _head(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters]


def _json_text(value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return msgspec.json.encode(value) if value.isascii() else canonical_json(value).encode("utf-8", "replace")
    return canonical_json(to_jsonable(value)).encode("utf-8", "replace")
