"""Every shape in which OTLP traces are kept reads as the same spans."""

from __future__ import annotations

import base64
import gc
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kernel.trace.otlp import encode_document, encode_line
from kernel.trace.span import CLIENT, ERROR, Event, Link, Resource, Span
from replay.readers import RawTrace, TraceFile, read_traces

TRACE, OTHER = "5b8efff798038103d269b633813fc60c", "c620759e5d60fafb8ee0922b30e06bc6"
RESOURCE = Resource(attributes={"service.name": "ops"}, scope_name="lib", scope_version="1")
ROOT = Span(trace_id=TRACE, span_id="eee19b7ec3c1b173", name="run", start_ns=10, end_ns=90, attributes={"n": 1})
CHILD = Span(
    trace_id=TRACE,
    span_id="eee19b7ec3c1b174",
    parent_id="eee19b7ec3c1b173",
    name="chat",
    kind=CLIENT,
    start_ns=1_544_712_660_000_000_001,
    end_ns=1_544_712_661_000_000_002,
    attributes={"s": "é", "i": 2**62, "f": 1.0, "b": True, "y": b"\0\xff", "none": None, "l": [1, {"k": "v"}]},
    events=(Event(name="retry", time_ns=5, attributes={"status": 429}),),
    links=(Link(trace_id=OTHER, span_id="00000000000000ff", attributes={"a": "b"}),),
    status=ERROR,
    status_message="late",
)
LINE = encode_line([ROOT, CHILD], RESOURCE)
DOCUMENT: dict[str, Any] = json.loads(LINE)
GROUP: dict[str, Any] = DOCUMENT["resourceSpans"][0]
SPANS: list[dict[str, Any]] = GROUP["scopeSpans"][0]["spans"]


def _snake(value: Any) -> Any:
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): _snake(v) for k, v in value.items()}
    return [_snake(item) for item in value] if isinstance(value, list) else value


def _base64_ids(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {inner: _base64_ids(item, inner) for inner, item in value.items()}
    if isinstance(value, list):
        return [_base64_ids(item) for item in value]
    if key in ("traceId", "spanId", "parentSpanId"):
        return base64.b64encode(bytes.fromhex(value)).decode()
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: int(item) if key == "intValue" or key.endswith("UnixNano") else _numbers(item)
            for key, item in value.items()
        }
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def _upper_ids(text: str) -> str:
    return text.replace(TRACE, TRACE.upper()).replace("eee19b7ec3c1b17", "EEE19B7EC3C1B17")


def _old_names() -> Any:
    scoped = GROUP["scopeSpans"][0]
    old = {"instrumentationLibrary": scoped["scope"], "spans": scoped["spans"]}
    return {"resourceSpans": [{"resource": GROUP["resource"], "instrumentationLibrarySpans": [old]}]}


def _enum_names() -> Any:
    text = json.dumps(DOCUMENT)
    for number, name in (('"kind": 1', "SPAN_KIND_INTERNAL"), ('"kind": 3', "SPAN_KIND_CLIENT")):
        text = text.replace(number, f'"kind": "{name}"')
    return json.loads(text.replace('"code": 2', '"code": "STATUS_CODE_ERROR"'))


def _split() -> list[Any]:
    return [
        {
            "resourceSpans": [
                {"resource": GROUP["resource"], "scopeSpans": [{**GROUP["scopeSpans"][0], "spans": [span]}]}
            ]
        }
        for span in SPANS
    ]


def _dumps(value: Any, **options: Any) -> bytes:
    return json.dumps(value, **options).encode()


def _framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def _protobuf() -> bytes:
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    data: bytes = json_format.Parse(_dumps(_base64_ids(DOCUMENT)), TracesData()).SerializeToString()
    return data


SHAPES: dict[str, bytes] = {
    "one line": LINE,
    "review layout": encode_document([ROOT, CHILD], RESOURCE),
    "pretty": _dumps(DOCUMENT, indent=2),
    "json lines": b"\n".join(_dumps(item) for item in _split()) + b"\n",
    "json lines, CRLF and blank lines": b"\r\n\r\n".join(_dumps(item) for item in _split()) + b"\r\n\r\n",
    "array of requests": _dumps(_split()),
    "concatenated": b"".join(_dumps(item) for item in _split()),
    "concatenated pretty": b"\n".join(_dumps(item, indent=1) for item in _split()),
    "tempo batches": _dumps({"batches": DOCUMENT["resourceSpans"]}),
    "jaeger v3 result": _dumps({"result": DOCUMENT}),
    "jaeger v3 result, streamed": b"\n".join(_dumps({"result": item}) for item in _split()),
    "tempo v2 trace": _dumps({"trace": DOCUMENT}),
    "lone resource spans": _dumps(GROUP),
    "snake case": _dumps(_snake(DOCUMENT)),
    "snake case inside camel case": _dumps({"resourceSpans": _snake(DOCUMENT)["resource_spans"]}),
    "snake case spans inside camel case": _dumps(
        {
            "resourceSpans": [
                {**GROUP, "scopeSpans": [{"scope": {"name": "lib", "version": "1"}, "spans": _snake(SPANS)}]}
            ]
        }
    ),
    "enum names": _dumps(_enum_names()),
    "base64 ids": _dumps(_base64_ids(DOCUMENT)),
    "upper-case ids": _upper_ids(LINE.decode()).encode(),
    "numbers as numbers": _dumps(_numbers(DOCUMENT)),
    "pre-1.0 names": _dumps(_old_names()),
    "byte order mark": b"\xef\xbb\xbf" + LINE,
    "UTF-16": LINE.decode().encode("utf-16"),
    "gzip": gzip.compress(LINE),
    "gzip, two members": b"".join(gzip.compress(_dumps(item) + b"\n") for item in _split()),
    "zstd stream": zstandard.compress(LINE),
    "zstd, two frames": b"".join(zstandard.compress(_dumps(item) + b"\n") for item in _split()),
    "zstd frames of json, each with its length": _framed(*(zstandard.compress(_dumps(item)) for item in _split())),
    "protobuf": _protobuf(),
    "protobuf with length": _framed(_protobuf()),
    "protobuf, zstd frame with length": _framed(zstandard.compress(_protobuf())),
    "unknown fields": _dumps({**DOCUMENT, "new": {"x": 1}, "resourceSpans": [{**GROUP, "schemaUrl": "https://x"}]}),
}


def only(file: TraceFile) -> RawTrace:
    (trace,) = file.traces
    return trace


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_spans(shape: str) -> None:
    file = read_traces(SHAPES[shape])
    trace = only(file)
    assert trace.trace_id == TRACE
    assert trace.spans == (ROOT, CHILD)
    assert type(trace.spans[1].attributes["f"]) is float
    assert trace.resources == {ROOT.span_id: RESOURCE, CHILD.span_id: RESOURCE}
    assert file.format == ("otlp-protobuf" if "protobuf" in shape else "otlp-json")


def test_the_name_of_the_file_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(SHAPES["protobuf"])
    file = read_traces(path)
    assert (file.name, file.format) == (str(path), "otlp-protobuf")
    assert read_traces(path, name="shown").name == "shown"


def test_traces_that_share_lines_are_told_apart_in_order_of_appearance() -> None:
    other = Span(trace_id=OTHER, span_id=ROOT.span_id, name="other")
    lines = encode_line([other, ROOT], RESOURCE) + encode_line([CHILD], Resource(scope_name="second"))
    file = read_traces(lines)
    assert [(trace.trace_id, trace.spans) for trace in file.traces] == [(OTHER, (other,)), (TRACE, (ROOT, CHILD))]
    assert file.traces[1].resources[CHILD.span_id].scope_name == "second"


def test_spans_without_an_envelope_or_ids_are_read_and_numbered() -> None:
    trace = only(read_traces(_dumps({"name": "ChatCompletion", "kind": "SPAN_KIND_INTERNAL", "attributes": []})))
    assert (trace.trace_id, trace.spans[0].span_id, trace.spans[0].end_ns) == ("", "0000000000000001", None)
    assert trace.notes == (
        "span 'ChatCompletion' (0000000000000001) had no span id in the file and was given that one",
        "span 'ChatCompletion' (0000000000000001) has no trace id",
    )
    assert only(read_traces(_dumps(SPANS))).spans == (ROOT, CHILD)
    assert only(read_traces(b"\n".join(_dumps(span) for span in SPANS))).spans == (ROOT, CHILD)
    assert only(read_traces(_dumps({"spans": SPANS, "scope": {}}))).spans == (ROOT, CHILD)


def test_identical_spans_are_one_and_of_different_ones_the_more_complete_is_kept() -> None:
    started = Span(trace_id=TRACE, span_id=ROOT.span_id, name="run", start_ns=10, attributes={"n": 1, "m": 2})
    trace = only(read_traces(encode_line([started, ROOT, ROOT, started], RESOURCE)))
    assert trace.spans == (ROOT,)
    assert trace.notes == (
        "span 'run' (eee19b7ec3c1b173) is in the file twice with different content; the more complete one is kept",
        "a span is in the file more than once, each time the same: counted once",
    )


def test_orphans_and_cycles_are_kept_with_a_note() -> None:
    a, b, c, d = (f"{n:016x}" for n in (1, 2, 3, 4))
    spans = [
        Span(trace_id=TRACE, span_id=a, parent_id=b, name="a"),
        Span(trace_id=TRACE, span_id=b, parent_id=a, name="b"),
        Span(trace_id=TRACE, span_id=c, parent_id=c, name="c"),
        Span(trace_id=TRACE, span_id=d, parent_id="beef", name="d"),
        Span(trace_id=TRACE, span_id="0000000000000005", parent_id=a, name="under the cycle"),
    ]
    trace = only(read_traces(encode_line(spans, RESOURCE)))
    assert trace.spans == tuple(spans)
    assert trace.notes == (
        "span 'd' (0000000000000004) names a parent that is not in the file; the first one's parent is beef",
        "3 spans are their own ancestors, the first is span 'a' (0000000000000001)",
    )


def test_what_a_span_lost_before_is_told() -> None:
    trace = only(read_traces(encode_line([Span(trace_id=TRACE, span_id=ROOT.span_id, name="x", dropped=3)], RESOURCE)))
    assert trace.notes == (
        "span 'x' (eee19b7ec3c1b173) lost: 3 attributes, events or links were dropped before it was written",
    )


def test_what_has_no_place_in_a_span_is_told() -> None:
    pair = {"key": "a", "value": {"stringValue": "1"}}
    span = {**SPANS[0], "traceState": "k=v", "attributes": [pair, {"key": "a", "value": {"stringValue": "2"}}]}
    scoped = {"scope": {"name": "lib", "attributes": [pair]}, "spans": [span]}
    trace = only(read_traces(_dumps({"resourceSpans": [{"scopeSpans": [scoped]}]})))
    assert trace.spans[0].attributes == {"a": "2"}
    assert trace.notes == (
        "span 'run' (eee19b7ec3c1b173) has an attribute key twice; the last value was kept",
        "trace state (W3C tracestate) was left out",
        "attributes of the instrumentation scope were left out",
    )


def test_floating_point_times_are_read_and_their_loss_is_told() -> None:
    span = {**SPANS[0], "startTimeUnixNano": 1.5447126600000005e18, "endTimeUnixNano": "1.5447126610e18"}
    trace = only(read_traces(_dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})))
    assert (trace.spans[0].start_ns, trace.spans[0].end_ns) == (1_544_712_660_000_000_512, 1_544_712_661_000_000_000)
    assert trace.notes == (
        "times or integers were written as floating point numbers beyond 2^53: their last digits are lost",
    )


def test_lone_surrogates_and_nan_literals_of_other_writers_are_read() -> None:
    text = LINE.decode().replace('"stringValue":"é"', r'"stringValue":"\ud83d"').replace("1.0", "NaN")
    trace = only(read_traces(text.encode()))
    assert trace.spans[1].attributes["s"] == "\ufffd"
    assert trace.spans[1].attributes["f"] != trace.spans[1].attributes["f"]
    assert "lone surrogates in texts were replaced by U+FFFD" in trace.notes


def test_a_torn_last_line_is_left_out_and_told() -> None:
    trace = only(read_traces(LINE + LINE[:100]))
    assert trace.spans == (ROOT, CHILD)
    assert trace.notes == ("the last line, 2, is cut off or damaged and was left out",)


@pytest.mark.parametrize("tail", [b"Killed", b'{"resourceSpans":[{"res', b"\0\0\0\0"])
def test_what_trails_the_last_document_is_left_out_and_told(tail: bytes) -> None:
    trace = only(read_traces(_dumps(DOCUMENT, indent=1) + b"\n" + tail))
    assert trace.spans == (ROOT, CHILD)
    assert len(trace.notes) == 1 and "left out" in trace.notes[0]


def test_a_cut_packed_stream_gives_what_can_be_unpacked() -> None:
    lines = b"".join(
        encode_line([Span(trace_id=TRACE, span_id=f"{n:016x}", name=str(n * n))], RESOURCE) for n in range(1, 900)
    )
    for packed, kind in ((gzip.compress(lines), "gzip"), (zstandard.compress(lines), "zstd")):
        cut = packed[: len(packed) - 5]
        trace = only(read_traces(cut))
        assert trace.spans
        assert trace.notes[0] == f"the {kind} data is cut off; what could be unpacked was read"


def test_a_cut_last_message_is_left_out_and_told() -> None:
    message = _protobuf()
    trace = only(read_traces(_framed(message) + _framed(message)[:50]))
    assert trace.spans == (ROOT, CHILD)
    assert trace.notes == (f"the last message, at byte {len(message) + 4}, is cut off and was left out",)


def test_other_signals_beside_traces_are_left_out_and_told() -> None:
    trace = only(read_traces(b'{"resourceLogs":[]}\n' + LINE))
    assert trace.notes == ("left out: OTLP logs, not traces (line 1)",)


def test_reading_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    read_traces(LINE)
    assert gc.isenabled()


def test_langfuse_exports_are_read() -> None:
    export = {
        "trace": {"id": TRACE, "name": "run"},
        "observations": [
            {
                "id": ROOT.span_id,
                "traceId": TRACE,
                "parentObservationId": None,
                "name": "chat",
                "type": "GENERATION",
                "startTime": "2025-12-04T14:51:22.049Z",
                "endTime": "2025-12-04T14:51:29.473Z",
                "level": "ERROR",
                "statusMessage": "late",
                "input": {"args": [1]},
                "output": "text",
                "model": "m",
                "usageDetails": {},
                "metadata": json.dumps(
                    {
                        "attributes": {"gen_ai.request.model": "m"},
                        "resourceAttributes": {"service.name": "ops"},
                        "scope": {"name": "lib", "version": "1"},
                        "own": "x",
                    }
                ),
            }
        ],
    }
    file = read_traces(_dumps(export))
    trace = only(file)
    assert file.format == "langfuse"
    assert trace.resources[ROOT.span_id] == RESOURCE
    (span,) = trace.spans
    assert (span.start_ns, span.end_ns) == (1_764_859_882_049_000_000, 1_764_859_889_473_000_000)
    assert (span.status, span.status_message) == (ERROR, "late")
    assert span.attributes == {
        "gen_ai.request.model": "m",
        "langfuse.observation.type": "GENERATION",
        "langfuse.observation.level": "ERROR",
        "langfuse.observation.input": '{"args": [1]}',
        "langfuse.observation.output": "text",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.metadata.own": "x",
    }
