"""The exact OTLP/JSON that is written, and what is read beyond it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernel.errors import TraceError
from kernel.trace.otlp import decode_span, encode_document, encode_event, encode_line, encode_resource, encode_span
from kernel.trace.span import CLIENT, ERROR, Event, Link, Resource, Span

TRACE, SPAN, PARENT = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174", "eee19b7ec3c1b173"


def _attribute(value: Any) -> Any:
    span = json.loads(encode_span(Span(trace_id=TRACE, span_id=SPAN, name="x", attributes={"k": value})))
    return span["attributes"][0]["value"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("é", {"stringValue": "é"}),
        (True, {"boolValue": True}),
        (1, {"intValue": "1"}),
        (-(2**63), {"intValue": "-9223372036854775808"}),
        (2**63, {"stringValue": "9223372036854775808"}),
        (1.0, {"doubleValue": 1.0}),
        (float("nan"), {"doubleValue": "NaN"}),
        (float("inf"), {"doubleValue": "Infinity"}),
        (float("-inf"), {"doubleValue": "-Infinity"}),
        (b"\x00\x00\x30\x39", {"bytesValue": "AAAwOQ=="}),
        (None, {}),
        ([], {"arrayValue": {"values": []}}),
        ((1, None), {"arrayValue": {"values": [{"intValue": "1"}, {}]}}),
        ({"a": "b"}, {"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "b"}}]}}),
        ("a\ud800b", {"stringValue": "a\ufffdb"}),
        ("\ud83d\ude00", {"stringValue": "😀"}),
    ],
)
def test_each_kind_of_value_has_its_otlp_form(value: Any, written: Any) -> None:
    assert _attribute(value) == written


def test_a_whole_number_as_float_stays_a_float_in_the_text() -> None:
    assert b'"doubleValue":1.0}' in encode_span(Span(trace_id=TRACE, span_id=SPAN, name="x", attributes={"k": 1.0}))


def test_an_open_span_has_no_end() -> None:
    assert encode_span(Span(trace_id=TRACE, span_id=SPAN, name="step", start_ns=7)) == (
        b'{"name":"step","kind":1,"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174",'
        b'"startTimeUnixNano":"7"}'
    )


def test_values_nested_too_deeply_for_protobuf_are_kept_as_json_text() -> None:
    value: Any = "core"
    for _ in range(150):
        value = [value]
    assert "core" in json.dumps(_attribute(value))


def test_a_value_inside_itself_ends() -> None:
    value: list[Any] = []
    value += [value, value]
    assert "$cycle" in json.dumps(_attribute(value))


def test_lone_surrogates_anywhere_cost_no_span() -> None:
    bad = "\ud800"
    span = Span(
        trace_id=TRACE,
        span_id=SPAN,
        name=bad,
        attributes={bad: bad},
        events=(Event(name=bad, attributes={bad: bad}),),
        links=(Link(trace_id=TRACE, span_id=SPAN, attributes={bad: bad}),),
        status=ERROR,
        status_message=bad,
    )
    back = decode_span(encode_span(span))
    assert (back.name, back.attributes, back.status_message) == ("\ufffd", {"\ufffd": "\ufffd"}, "\ufffd")
    resource = Resource(attributes={bad: bad}, scope_name=bad)
    assert encode_resource(resource)[1] == '{"name":"\ufffd"}'.encode()
    assert encode_line([span], resource) == encode_line([back], resource)
    assert encode_document([span], resource) == encode_document([back], resource)
    assert "\ufffd" in encode_event(span.events[0]).decode()


def test_a_document_is_laid_out_for_review() -> None:
    span = Span(
        trace_id=TRACE,
        span_id=SPAN,
        parent_id=PARENT,
        name="chat m",
        kind=CLIENT,
        start_ns=10,
        end_ns=20,
        attributes={"a": "b", "n": 1},
        events=(Event(name="retry", time_ns=11, attributes={"s": 429, "t": "x"}),),
        links=(Link(trace_id=TRACE, span_id=PARENT),),
        status=ERROR,
        status_message="late",
        dropped=2,
    )
    resource = Resource(attributes={"service.name": "ops"}, scope_name="tracefirst", scope_version="1")
    assert encode_document([span, Span(trace_id=TRACE, span_id=PARENT, name="step")], resource).decode() == (
        '{"resourceSpans":[{"resource":{"attributes":[\n'
        '  {"key":"service.name","value":{"stringValue":"ops"}}]},'
        '"scopeSpans":[{"scope":{"name":"tracefirst","version":"1"},"spans":[\n'
        '{"name":"chat m","kind":3,\n'
        ' "traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","parentSpanId":"eee19b7ec3c1b173",\n'
        ' "startTimeUnixNano":"10","endTimeUnixNano":"20",\n'
        ' "attributes":[\n'
        '  {"key":"a","value":{"stringValue":"b"}},\n'
        '  {"key":"n","value":{"intValue":"1"}}],\n'
        ' "events":[\n'
        '  {"timeUnixNano":"11","name":"retry","attributes":[{"key":"s","value":{"intValue":"429"}},'
        '{"key":"t","value":{"stringValue":"x"}}]}],\n'
        ' "links":[\n'
        '  {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b173"}],\n'
        ' "droppedAttributesCount":2,\n'
        ' "status":{"code":2,"message":"late"}},\n'
        '{"name":"step","kind":1,\n'
        ' "traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b173",\n'
        ' "startTimeUnixNano":"0"}\n'
        "]}]}]}\n"
    )


def test_empty_documents_are_valid() -> None:
    assert json.loads(encode_document([], Resource())) == json.loads(encode_line([], Resource()))
    assert encode_line([], Resource()) == (
        b'{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[]}]}]}\n'
    )


def test_other_spellings_of_a_span_are_read_alike() -> None:
    plain = Span(
        trace_id=TRACE, span_id=SPAN, parent_id=PARENT, name="x", kind=CLIENT, start_ns=5, end_ns=6, status=ERROR,
        attributes={"i": 10, "d": 1.0, "n": None},
    )  # fmt: skip
    spelled = {
        "traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "7uGbfsPBsXQ=", "parentSpanId": PARENT.upper(), "name": "x",
        "kind": "SPAN_KIND_CLIENT", "startTimeUnixNano": 5, "endTimeUnixNano": "6", "flags": 257, "events": None,
        "status": {"code": "STATUS_CODE_ERROR"},
        "attributes": [
            {"key": "i", "value": {"intValue": 10}},
            {"key": "d", "value": {"doubleValue": 1}},
            {"key": "n"},
        ],
    }  # fmt: skip
    assert decode_span(json.dumps(spelled)) == plain


def test_a_missing_kind_end_and_zero_parent_mean_unspecified_open_and_root() -> None:
    span = decode_span(json.dumps({"traceId": TRACE, "spanId": SPAN, "parentSpanId": "0" * 16, "endTimeUnixNano": "0"}))
    assert (span.kind, span.end_ns, span.parent_id) == (0, None, None)


def test_dropped_counts_are_added_up() -> None:
    raw = {
        "droppedAttributesCount": 1,
        "droppedEventsCount": 2,
        "droppedLinksCount": 4,
        "events": [{"droppedAttributesCount": 8}],
        "links": [{"droppedAttributesCount": 16}],
    }
    assert decode_span(json.dumps(raw)).dropped == 31


@pytest.mark.parametrize("text", ["", "[]", '{"name": 1}', '{"startTimeUnixNano":"soon"}', '{"name":'])
def test_what_is_no_span_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(TraceError, match=r"not an OTLP/JSON span: ."):
        decode_span(text)


def test_protobufs_own_json_parser_reads_what_is_written_without_an_unknown_field() -> None:
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    values: dict[str, Any] = {"s": 'é\n"', "i": -(2**63), "d": 0.1, "inf": float("-inf"), "b": True, "y": b"\0"}
    values |= {"n": None, "l": [1, {"k": []}]}
    event = Event(name="e", time_ns=1, attributes=values)
    link = Link(trace_id=TRACE, span_id=PARENT, attributes=values)
    span = Span(
        trace_id=TRACE, span_id=SPAN, parent_id=PARENT, name="x", start_ns=2**63, end_ns=2**64 - 1, attributes=values,
        events=(event,), links=(link,), status=ERROR, status_message="m", dropped=2**32 - 1,
    )  # fmt: skip
    resource = Resource(attributes=values, scope_name="lib", scope_version="1")
    parsed = json_format.Parse(encode_document([span], resource), ExportTraceServiceRequest())
    read = parsed.resource_spans[0].scope_spans[0].spans[0]
    assert (read.start_time_unix_nano, read.end_time_unix_nano, read.status.code) == (2**63, 2**64 - 1, ERROR)
    got = {pair.key: pair.value for pair in read.attributes}
    assert (got["s"].string_value, got["i"].int_value, got["d"].double_value) == (values["s"], -(2**63), 0.1)
    assert (got["inf"].double_value, got["b"].bool_value, got["y"].bytes_value) == (float("-inf"), True, b"\0")
    assert got["n"].WhichOneof("value") is None
    assert got["l"].array_value.values[1].kvlist_value.values[0].value.WhichOneof("value") == "array_value"
    assert parsed == json_format.Parse(encode_line([span], resource), ExportTraceServiceRequest())
