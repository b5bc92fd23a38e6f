"""The recorder's journal, whole and killed at any byte."""

from __future__ import annotations

import json

import pytest

from kernel.errors import TraceError
from kernel.trace.otlp import encode_event, encode_resource, encode_span
from kernel.trace.span import Event, Resource, Span
from replay.readers import read_traces

TRACE = "5b8efff798038103d269b633813fc60c"
RESOURCE = Resource(attributes={"service.name": "ops"}, scope_name="tracefirst", scope_version="1")


def _span(number: int, *, parent: int | None = None, end: int | None = None) -> Span:
    parent_id = None if parent is None else f"{parent:016x}"
    return Span(
        trace_id=TRACE, span_id=f"{number:016x}", parent_id=parent_id, name=f"s{number}", start_ns=number, end_ns=end
    )


def _header() -> bytes:
    resource, scope = encode_resource(RESOURCE)
    return b'{"tracefirst":"journal","version":1,"resource":%b,"scope":%b}\n' % (resource, scope)


def _start(span: Span) -> bytes:
    return b'{"s":%b}\n' % encode_span(span)


def _end(span: Span) -> bytes:
    return b'{"e":%b}\n' % encode_span(span)


def _event(span: Span, event: Event) -> bytes:
    return b'{"v":{"traceId":"%b","spanId":"%b","event":%b}}\n' % (
        TRACE.encode(),
        span.span_id.encode(),
        encode_event(event),
    )


ROOT, STEP, TOOL = _span(1), _span(2, parent=1), _span(3, parent=2)
STEP_DONE = _span(2, parent=1, end=20)
RETRY = Event(name="retry", time_ns=5, attributes={"n": 1})
JOURNAL = _header() + _start(ROOT) + _start(STEP) + _start(TOOL) + _event(TOOL, RETRY) + _end(STEP_DONE)


def test_ended_spans_replace_started_ones_and_open_ones_stay_open() -> None:
    file = read_traces(JOURNAL)
    (trace,) = file.traces
    assert file.format == "journal"
    assert [(span.name, span.end_ns) for span in trace.spans] == [("s1", None), ("s2", 20), ("s3", None)]
    assert trace.spans[2].events == (RETRY,)
    assert trace.resources["0000000000000003"] == RESOURCE
    assert trace.notes == (
        "span 's1' (0000000000000001) was still open when the journal ends",
        "span 's3' (0000000000000003) was still open when the journal ends",
    )


def test_an_ended_span_brings_its_own_events() -> None:
    done = _span(3, parent=2, end=9)
    (trace,) = read_traces(JOURNAL + _end(done)).traces
    assert trace.spans[2] == done


def test_cut_at_any_byte_it_gives_what_stands_before() -> None:
    whole = read_traces(JOURNAL).traces[0]
    first_span = len(_header()) + len(_start(ROOT))
    for size in range(1, len(JOURNAL)):
        cut = JOURNAL[:size]
        if size < first_span - 1:
            with pytest.raises(TraceError):
                read_traces(cut)
            continue
        (trace,) = read_traces(cut).traces
        assert [span.name for span in trace.spans] == [span.name for span in whole.spans][: len(trace.spans)]
        complete_lines = cut.count(b"\n") + (JOURNAL[size : size + 1] == b"\n")
        torn = not cut.endswith(b"\n") and JOURNAL[size : size + 1] != b"\n"
        assert len(trace.spans) == min(complete_lines - 1, 3)
        assert any("is cut off and was left out" in note for note in trace.notes) == torn


def test_a_damaged_line_before_the_last_is_refused_with_its_number() -> None:
    with pytest.raises(TraceError, match=r"f, line 3: a damaged journal line: .* Remove that line"):
        read_traces(_header() + _start(ROOT) + b'{"s":{"traceId\n' + _start(STEP), name="f")


def test_what_is_unknown_is_left_out_and_told() -> None:
    lost = _event(_span(9), RETRY)
    (trace,) = read_traces(_header() + _start(ROOT) + b'{"x":1}\n' + lost + b'{"v":null}\n').traces
    assert trace.notes[:3] == (
        "line 3 of the journal is of an unknown kind and was left out",
        "line 4 of the journal has event 'retry' of span 0000000000000009, which never started; it was left out",
        "line 5 of the journal is of an unknown kind and was left out",
    )


def test_two_journals_in_a_row_are_read_each_with_its_resource() -> None:
    other = json.dumps({"tracefirst": "journal", "version": 1, "scope": {"name": "second"}}).encode() + b"\n"
    (trace,) = read_traces(_header() + _end(_span(1, end=2)) + other + _end(_span(2, end=3))).traces
    assert [trace.resources[span.span_id].scope_name for span in trace.spans] == ["tracefirst", "second"]
