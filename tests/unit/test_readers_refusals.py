"""Every refusal is one line: the file, the place, what was found, what helps and what is accepted."""

from __future__ import annotations

import bz2
import json
import pickle
from pathlib import Path

import pytest

from kernel.errors import TraceError
from kernel.trace.otlp import encode_line
from kernel.trace.span import Resource, Span
from replay.readers import find_trace, iter_traces, read_traces

ACCEPTED = (
    " Accepted: OTLP JSON (lines too), OTLP protobuf, Jaeger JSON, tracefirst journals, Langfuse exports; "
    "plain, gz or zstd."
)
SPAN = Span(trace_id="5b8efff798038103d269b633813fc60c", span_id="eee19b7ec3c1b173", name="run", start_ns=1)
LINE = encode_line([SPAN], Resource())

REFUSALS = {
    "empty": (b"", "f: the file is empty. The program that wrote it may not have flushed its spans."),
    "blank": (b" \n\n", "f: the file holds only blanks. The program that wrote it may not have flushed its spans."),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
        "f: this is a Git LFS pointer, not the file itself. Run `git lfs pull`.",
    ),
    "html": (
        b"<!DOCTYPE html>\n<html><body>Sign in</body></html>",
        "f: this is an HTML page, often a login or error page that was saved instead of the trace. "
        "Fetch the trace again and look at the answer.",
    ),
    "xml": (b"<?xml version='1.0'?><a/>", "f: this is XML."),
    "text": (b"hello\nworld", "f, line 1: this is text, but not JSON: it starts with 'hello'."),
    "png": (
        b"\x89PNG\r\n\x1a\n\0\0\0",
        "f, byte 0: binary data of an unknown kind (it starts with 89 50 4e 47).",
    ),
    "binary like protobuf": (
        b"\x0a\x03\xff\xff\xff\0",
        "f, byte 0: binary data that is neither OTLP protobuf nor a known compression.",
    ),
    "bzip2": (bz2.compress(LINE), "f: the file is compressed as bzip2. Unpack it first."),
    "zip": (b"PK\x03\x04rest", "f: the file is compressed as a zip archive. Unpack it first."),
    "metrics": (b'{"resourceMetrics":[]}', "f: OTLP metrics, not traces. Export the traces signal."),
    "logs": (
        b'{"resourceLogs":[]}\n{"resourceLogs":[]}\n',
        "f: OTLP logs, not traces (line 1). Export the traces signal.",
    ),
    "no span": (
        b'{"resourceSpans":[]}',
        "f: it is a trace file without a single span. Check what was sampled or filtered.",
    ),
    "cut": (
        json.dumps(json.loads(LINE), indent=1).encode()[:100],
        "f, line 8, byte 100: the JSON document is cut off at its end. "
        "Copy the file again, or wait until it is written.",
    ),
    "malformed": (
        b'[{"traceID":"2be3",\n"spanID":"7606"},\n]',
        "f, line 3, byte 38: not JSON: trailing comma in array. Repair it or export it again.",
    ),
    "torn in the middle": (
        LINE + LINE[:40] + b"\n" + LINE,
        "f, line 2: not JSON: it ends too early. Remove or repair that line.",
    ),
    "wrong type": (
        LINE.replace(b'"name":"run"', b'"name":5'),
        "f: OTLP JSON with a wrong field: Expected `str | null`, got `int` - at "
        "`$.resourceSpans[0].scopeSpans[0].spans[0].name`. Export the trace again.",
    ),
    "wrong number on a later line": (
        LINE + LINE.replace(b'"1"', b'"soon"'),
        "f, line 2: OTLP JSON with a wrong field: a number is not one: 'soon'. Export the trace again.",
    ),
    "Jaeger with a wrong type": (
        b'[{"traceID":"2be38093ead7a083","spanID":"7bd66f09ba90ea3d","duration": "invalid"}]',
        "f: Jaeger JSON with a wrong field: span '7bd66f09ba90ea3d' has the duration 'invalid', which is no duration. "
        "Export the trace again.",
    ),
    "Jaeger with a wrong tag": (
        b'[{"traceID":"1","spanID":"2","tags":[{"key":"n","type":"int64","value":"x"}]}]',
        "f: Jaeger JSON with a wrong field: tag 'n' has type int64 and the value \"x\". Export the trace again.",
    ),
    "Jaeger says no": (
        b'{"data":null,"errors":[{"code":404,"msg":"trace not found"}]}',
        'f: JSON, but not a trace: an answer that says errors: [{"code": 404, "msg": "trace not found"}]. '
        "Export the trace as OTLP JSON.",
    ),
    "other JSON": (
        b'{"task_id":1,"reward":0}',
        'f: JSON, but not a trace: an object with the keys "task_id", "reward". Export the trace as OTLP JSON.',
    ),
    "empty array": (b"[]", "f: JSON, but not a trace: an array of 0 items. Export the trace as OTLP JSON."),
    "numbers": (
        b"[1, 2]",
        "f: JSON, but not a trace: an array of 2 items, the first is a lone int. Export the trace as OTLP JSON.",
    ),
    "zipkin": (
        b'[{"traceId":"1","id":"2","name":"x","timestamp":1,"kind":"CLIENT"}]',
        'f: JSON, but not a trace: an array of 1 items, the first is an object with the keys "traceId", "id", "name", '
        '"timestamp", "kind". This looks like Zipkin JSON: send it through a Collector with an OTLP exporter.',
    ),
    "console exporter": (
        b'{"name":"x","context":{"trace_id":"0x1","span_id":"0x2"},"kind":"SpanKind.INTERNAL"}',
        'f: JSON, but not a trace: an object with the keys "name", "context", "kind". '
        "This looks like the SDK's console output: use an OTLP file exporter instead.",
    ),
    "newer journal": (
        b'{"tracefirst":"journal","version":2}\n',
        "f, line 1: a journal of version 2; this program reads up to version 1. Update tracefirst.",
    ),
    "journal without spans": (
        b'{"tracefirst":"journal","version":1}\n',
        "f: it is a trace file without a single span. Check what was sampled or filtered.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_the_text_of_each_refusal(case: str) -> None:
    content, text = REFUSALS[case]
    with pytest.raises(TraceError) as caught:
        read_traces(content, name="f")
    assert caught.value.message == text + ACCEPTED
    assert "\n" not in caught.value.message
    assert caught.value.file == "f"
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message


def test_metrics_in_protobuf_are_refused() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

    metrics = [Metric(name="my.counter", description="counts")]
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=metrics)])])
    with pytest.raises(TraceError, match="f, byte 0: OTLP protobuf of another signal than traces"):
        read_traces(data.SerializeToString(), name="f")


def test_logs_in_protobuf_are_refused() -> None:
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs

    logs = [LogRecord(time_unix_nano=5, severity_text="INFO")]
    data = LogsData(resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=logs)])])
    with pytest.raises(TraceError, match=r"f, byte 0: (OTLP protobuf of another signal|binary data)"):
        read_traces(data.SerializeToString(), name="f")


def test_damaged_compression_is_refused() -> None:
    with pytest.raises(TraceError, match=r"f: the gzip data is damaged: .*\. Copy the file again\."):
        read_traces(b"\x1f\x8b\x08\0rubbish that is no deflate stream", name="f")
    with pytest.raises(TraceError, match=r"f: the zstd data is damaged: .*\. Copy the file again\."):
        read_traces(b"\x28\xb5\x2f\xfdrubbish that is no zstd stream", name="f")


@pytest.mark.parametrize(
    "read", [read_traces, lambda path: find_trace(path, "ab"), lambda path: list(iter_traces(path))]
)
def test_what_is_no_readable_file_is_refused_by_each_way_of_reading(read: object, tmp_path: Path) -> None:
    assert callable(read)
    with pytest.raises(TraceError, match=r"absent\.json: no such file\. Check the path\."):
        read(tmp_path / "absent.json")
    with pytest.raises(TraceError, match=r": this is a directory\. Name the trace files in it\."):
        read(tmp_path)
    (tmp_path / "empty.json").touch()
    with pytest.raises(TraceError, match=r"empty\.json: the file is empty"):
        read(tmp_path / "empty.json")
