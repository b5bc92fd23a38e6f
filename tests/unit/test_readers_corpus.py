"""Traces that other programs wrote: each loads as its description says, or is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel.errors import TraceError
from replay.readers import TraceFile, find_trace, iter_traces, read_traces

CORPUS = Path(os.environ.get("TRACEFIRST_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus at {CORPUS}; TRACEFIRST_CORPUS names its folder"),
]

REFUSED = {
    "otlp/opentelemetry-proto_logs.json": "OTLP logs, not traces",
    "otlp/opentelemetry-proto_metrics.json": "OTLP metrics, not traces",
    "otlp/opentelemetry-proto_events.json": "OTLP logs, not traces",
    "jaeger/jaeger_trace_invalid_json.json": "has the duration 'invalid', which is no duration",
    "jaeger/jaeger_trace_scan_error.json": "line 2, byte .*: not JSON",
    "jaeger/jaeger_trace_empty.json": "the file is empty",
}
SPANS = {
    "jaeger/agentevals_helm_2.json": 72,
    "jaeger/agentevals_k8s.json": 73,
    "jaeger/jaeger-ui_genaiTestTrace.json": 57,
    "jaeger/jaeger-ui_oltp2jaeger-multi-out.json": 4,
    "jaeger/jaeger-ui_otlp2jaeger-out.json": 1,
    "jaeger/jaeger-ui_testTrace.json": 11,
    "jaeger/jaeger-ui_traceWithOverlappingChildrenLongerThanParent.json": 4,
    "jaeger/jaeger-ui_traceWithSingleChildLongerThanParentAndStartsAfterParent.json": 2,
    "jaeger/jaeger_domain_01.json": 1,
    "jaeger/jaeger_trace_success.json": 2,
    "otlp/agentevals_tempo_export_with_batches.json": 86,
    "otlp/jaeger-ui_otlp2jaeger-multi-in-combined.json": 4,
    "otlp/jaeger-ui_otlp2jaeger-multi-in.json.txt": 4,
    "otlp/jaeger_example_trace.json": 5,
    "otlp/jaeger_multi_index_trace.json": 2,
}


def _files() -> list[str]:
    folders = ("otlp", "jaeger", "langfuse")
    return [f"{folder}/{path.name}" for folder in folders for path in sorted((CORPUS / folder).glob("*"))]


def _read(name: str) -> TraceFile:
    return read_traces(CORPUS / name)


@pytest.mark.parametrize("name", _files())
def test_each_file_is_read_whole_or_refused(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(TraceError, match=REFUSED[name]):
            _read(name)
        return
    file = _read(name)
    (trace,) = file.traces
    assert file.format == {"otlp": "otlp-json", "jaeger": "jaeger-json", "langfuse": "langfuse"}[name.split("/")[0]]
    assert trace.resources.keys() == {span.span_id for span in trace.spans}
    if not name.startswith("langfuse/"):
        assert len(trace.spans) == SPANS.get(name, 1)
    assert list(iter_traces(CORPUS / name)) == [trace]
    assert find_trace(CORPUS / name, trace.trace_id) == trace


def test_the_lines_and_the_combined_document_hold_the_same_trace() -> None:
    lines = _read("otlp/jaeger-ui_otlp2jaeger-multi-in.json.txt")
    combined = _read("otlp/jaeger-ui_otlp2jaeger-multi-in-combined.json")
    by_id = {span.span_id: span for span in combined.traces[0].spans}
    assert {span.span_id: span for span in lines.traces[0].spans} == by_id
    assert lines.traces[0].resources == combined.traces[0].resources


@pytest.mark.parametrize(
    ("otlp", "jaeger"),
    [
        ("otlp/jaeger-ui_otlp2jaeger-in.json", "jaeger/jaeger-ui_otlp2jaeger-out.json"),
        ("otlp/jaeger-ui_otlp2jaeger-multi-in.json.txt", "jaeger/jaeger-ui_oltp2jaeger-multi-out.json"),
    ],
)
def test_what_jaeger_made_of_a_trace_reads_as_that_trace_to_the_microsecond(otlp: str, jaeger: str) -> None:
    (before,), (after,) = _read(otlp).traces, _read(jaeger).traces
    restored = {span.span_id: span for span in after.spans}
    for span in before.spans:
        span.start_ns, span.end_ns = span.start_ns // 1000 * 1000, (span.end_ns or 0) // 1000 * 1000
        assert restored[span.span_id] == span
        assert after.resources[span.span_id].scope_name == before.resources[span.span_id].scope_name


def test_jaegers_protobuf_json_is_read_exactly() -> None:
    (trace,) = _read("jaeger/jaeger_domain_01.json").traces
    (span,) = trace.spans
    assert (trace.trace_id, span.span_id, span.parent_id) == (
        "000000000000000052969a8955571a3f",
        "0000000000647d98",
        "000000000068c4e3",
    )
    assert (span.start_ns, span.end_ns) == (1_485_467_191_639_875_000, 1_485_467_191_662_813_000)
    assert span.attributes == {
        "http.url": "http://127.0.0.1:15598/client_transactions",
        "peer.port": 53931,
        "someBool": True,
        "someDouble": 129.8,
        "peer.service": "rtapi",
        "peer.ipv4": 3224716605,
    }
    assert [event.name for event in span.events] == ["", "nothing"]
    assert trace.resources[span.span_id].attributes["service.name"] == "api"


def test_tempos_base64_ids_become_hex() -> None:
    (trace,) = _read("otlp/agentevals_tempo_export_with_batches.json").traces
    assert all(len(span.span_id) == 16 and int(span.span_id, 16) for span in trace.spans)
