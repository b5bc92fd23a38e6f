"""Jaeger JSON is read back to what OTLP said, and what is lost for good is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernel.trace.span import CLIENT, ERROR, OK, UNSET, Event, Link, Resource
from replay.readers import RawTrace, read_traces
from replay.readers.times import duration_ns, rfc3339_ns

TRACE = "5b8efff798038103d269b633813fc60c"


def _tag(key: str, type_: str, value: Any) -> dict[str, Any]:
    return {"key": key, "type": type_, "value": value}


def _read(**fields: Any) -> RawTrace:
    span = {"traceID": TRACE, "spanID": "eee19b7ec3c1b174", "operationName": "chat", "processID": "p1", **fields}
    process = {"serviceName": "ops", "tags": [_tag("host", "string", "h")]}
    answer = {"data": [{"traceID": TRACE, "spans": [span], "processes": {"p1": process}}], "total": 0}
    (trace,) = read_traces(json.dumps(answer).encode()).traces
    return trace


def test_kind_status_scope_and_process_go_back_to_their_places() -> None:
    tags = [
        _tag("span.kind", "string", "client"),
        _tag("otel.status_code", "string", "ERROR"),
        _tag("error", "bool", True),
        _tag("otel.status_description", "string", "late"),
        _tag("otel.scope.name", "string", "lib"),
        _tag("otel.scope.version", "string", "1"),
        _tag("internal.span.format", "string", "otlp"),
        _tag("kept", "string", "x"),
    ]
    trace = _read(tags=tags, startTime=1_544_712_660_000_001, duration=5)
    (span,) = trace.spans
    assert (span.kind, span.status, span.status_message, span.attributes) == (CLIENT, ERROR, "late", {"kept": "x"})
    assert (span.start_ns, span.end_ns) == (1_544_712_660_000_001_000, 1_544_712_660_000_006_000)
    assert trace.resources[span.span_id] == Resource(
        attributes={"service.name": "ops", "host": "h"}, scope_name="lib", scope_version="1"
    )
    assert trace.notes[0].startswith("Jaeger JSON keeps no more than this: times to the microsecond")


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ([], UNSET),
        ([_tag("otel.status_code", "string", "OK")], OK),
        ([_tag("error", "bool", True)], ERROR),
        ([_tag("error", "bool", "true")], ERROR),
        ([_tag("error", "string", "boom")], UNSET),
    ],
)
def test_status_from_tags(tags: list[Any], status: int) -> None:
    assert _read(tags=tags).spans[0].status == status


def test_typed_values_are_restored() -> None:
    tags = [
        _tag("big", "int64", "9007199254740993"),
        _tag("float", "float64", 1),
        _tag("bytes", "binary", "AAAwOQ=="),
        _tag("hex bytes", "binary", "00003039ff"[:10]),
        _tag("gen_ai.response.finish_reasons", "string", '["stop"]'),
        _tag("other", "string", '["stop"]'),
        _tag("empty", "string", ""),
    ]
    trace = _read(tags=tags)
    attributes = trace.spans[0].attributes
    assert attributes == {
        "big": 9007199254740993,
        "float": 1.0,
        "bytes": b"\x00\x00\x30\x39",
        "hex bytes": b"\x00\x00\x30\x39\xff",
        "gen_ai.response.finish_reasons": ["stop"],
        "other": '["stop"]',
        "empty": "",
    }
    assert type(attributes["float"]) is float
    assert "gen_ai.response.finish_reasons was a JSON text and is a list again" in trace.notes


def test_binary_that_may_be_hex_or_base64_is_told() -> None:
    trace = _read(tags=[_tag("b", "binary", "00003039")])
    assert "the binary tag 'b' may be base64 or, from Elasticsearch, hex; it was read as base64" in trace.notes


def test_references_become_parent_and_links() -> None:
    def ref(kind: str, trace: str, span: str) -> dict[str, str]:
        return {"refType": kind, "traceID": trace, "spanID": span}

    references = [ref("FOLLOWS_FROM", "ff", "1"), ref("CHILD_OF", TRACE, "2"), ref("CHILD_OF", TRACE, "3")]
    (span,) = _read(references=references).spans
    assert span.parent_id == "0000000000000002"
    assert span.links == (
        Link(trace_id="ff".rjust(32, "0"), span_id="0000000000000001"),
        Link(trace_id=TRACE, span_id="0000000000000003", attributes={"opentracing.ref_type": "child_of"}),
    )
    assert _read(references=[ref("FOLLOWS_FROM", TRACE, "4")]).spans[0].parent_id == "0000000000000004"
    assert _read(parentSpanID="5").spans[0].parent_id == "0000000000000005"


def test_logs_become_events_named_by_their_event_field() -> None:
    logs = [
        {"timestamp": 5, "fields": [_tag("event", "string", "retry"), _tag("n", "int64", 1)]},
        {"timestamp": 6, "fields": [_tag("message", "string", "m")]},
    ]
    assert _read(logs=logs).spans[0].events == (
        Event(name="retry", time_ns=5000, attributes={"n": 1}),
        Event(name="", time_ns=6000, attributes={"message": "m"}),
    )


def test_a_made_up_service_name_is_dropped_and_warnings_and_missing_processes_are_told() -> None:
    trace = _read(process={"serviceName": "OTLPResourceNoServiceName"}, warnings=["clock skew"])
    assert trace.resources["eee19b7ec3c1b174"].attributes == {}
    assert "span 'chat' (eee19b7ec3c1b174): Jaeger warns: clock skew" in trace.notes
    assert "span 'chat' (eee19b7ec3c1b174): its process 'p9' is not in the file" in _read(processID="p9").notes


def test_short_ids_get_their_zeros_back() -> None:
    span = {"traceID": "2be38093ead7a083", "spanID": "7606DD", "operationName": "x"}
    (trace,) = read_traces(json.dumps([span]).encode()).traces
    assert (trace.trace_id, trace.spans[0].span_id) == ("00000000000000002be38093ead7a083", "00000000007606dd")


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2017-01-26T16:46:31.639875-05:00", 1_485_467_191_639_875_000),
        ("2017-01-26T21:46:31.639875001Z", 1_485_467_191_639_875_001),
        ("2017-01-26T21:46:31Z", 1_485_467_191_000_000_000),
        ("2017-01-26T21:46:31", 1_485_467_191_000_000_000),
        ("1969-12-31T23:59:59.9Z", -100_000_000),
    ],
)
def test_rfc3339_to_the_nanosecond(text: str, ns: int) -> None:
    assert rfc3339_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "ns"), [("22938000ns", 22_938_000), ("0.5s", 500_000_000), ("1m30s", 90 * 10**9), ("-2ms", -2_000_000)]
)
def test_durations(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "invalid", "5", "5 s", "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration_ns(text)
