"""Whatever the bytes, reading gives traces or one `TraceError` of one line, and nothing else."""

from __future__ import annotations

import gzip
import json
from typing import Any

import zstandard
from hypothesis import given, settings, strategies as st

from kernel.errors import TraceError
from kernel.trace.otlp import encode_document
from kernel.trace.span import Event, Resource, Span
from replay.readers import TraceFile, read_traces

_MAGIC = (
    b"",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"\0\0\0\x09\x0a",
    b"\x0a\x07",
    b"\xef\xbb\xbf{",
    b"\xff\xfe{\0",
    b"[",
    b"{",
)
_WORDS = [
    "resourceSpans", "resource_spans", "batches", "result", "trace", "data", "spans", "scopeSpans", "scope_spans",
    "scope", "resource", "attributes", "key", "value", "name", "kind", "traceId", "trace_id", "spanId", "traceID",
    "spanID", "operationName", "references", "refType", "startTime", "duration", "tags", "type", "logs",
    "timestamp", "fields", "process", "processes", "processID", "startTimeUnixNano", "endTimeUnixNano", "events",
    "links", "status", "code", "message", "stringValue", "intValue", "doubleValue", "arrayValue", "values",
    "kvlistValue", "bytesValue", "boolValue", "observations", "id", "metadata", "tracefirst", "version", "s", "e",
    "v", "event", "vType", "vStr", "instrumentationLibrarySpans", "errors",
]  # fmt: skip
_TEXTS = st.sampled_from(
    ["", "journal", "int64", "bool", "binary", "CHILD_OF", "ab", "00ff", "1", "2025-01-01T00:00:00Z", "\ud800"]
)
_leaf = st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS | st.text(max_size=5)
_json = st.recursive(
    _leaf,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=25,
)
VALID = encode_document(
    [
        Span(
            trace_id="ab" * 16,
            span_id="cd" * 8,
            name="x",
            attributes={"a": [1, {"b": b"\0"}], "f": 1.5},
            events=(Event(name="e"),),
        )
    ],
    Resource(attributes={"service.name": "s"}, scope_name="lib"),
)


def _try(data: bytes) -> TraceFile | None:
    try:
        return read_traces(data, name="f")
    except TraceError as error:
        assert error.message.startswith("f")
        assert "\n" not in error.message
        return None


@settings(deadline=None)
@given(st.sampled_from(_MAGIC), st.binary(max_size=60))
def test_any_bytes(magic: bytes, rest: bytes) -> None:
    _try(magic + rest)


@settings(deadline=None)
@given(st.lists(_json, min_size=1, max_size=3))
def test_any_json_of_our_words(documents: list[Any]) -> None:
    _try("\n".join(json.dumps(document) for document in documents).encode())


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(_WORDS), _json, max_size=6), min_size=1, max_size=2), st.booleans())
def test_spans_of_any_content(spans: list[dict[str, Any]], jaeger: bool) -> None:
    if jaeger:
        _try(json.dumps({"data": [{"traceID": "ab", "spans": [{"spanID": "1", **span} for span in spans]}]}).encode())
    else:
        _try(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())


@settings(deadline=None)
@given(st.data(), st.sampled_from([lambda data: data, gzip.compress, zstandard.compress]))
def test_one_byte_changed_or_the_end_cut(data: st.DataObject, pack: Any) -> None:
    content = bytearray(pack(VALID))
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] = data.draw(st.integers(0, 255))
    _try(bytes(content))


def test_deep_nesting_is_refused_or_read_but_never_crashes() -> None:
    for text in (
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 5000 + "]" * 5000,
        '{"resourceSpans":' * 3000 + "1" + "}" * 3000,
    ):
        assert _try(text.encode()) is None
