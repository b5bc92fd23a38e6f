"""One trace out of many, and all of them in turn, without reading a large file into memory."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard

from kernel.errors import TraceError
from kernel.trace.otlp import encode_line
from kernel.trace.span import Link, Resource, Span
from replay.readers import RawTrace, find_trace, index, iter_traces, lines, read_traces

IDS = [f"{number:032x}" for number in (0xA1, 0xB2, 0xC3)]
RESOURCE = Resource(attributes={"service.name": "ops"}, scope_name="lib")


def _mixed(count: int = 60) -> bytes:
    """Lines of three spans of mixed traces, each with a link to another trace."""
    chance = random.Random(7)
    spans = [
        Span(
            trace_id=chance.choice(IDS),
            span_id=f"{number:016x}",
            name=f"s{number}",
            start_ns=number,
            end_ns=number + 1,
            links=(Link(trace_id=chance.choice([*IDS, "d4" * 16]), span_id="00000000000000ff"),),
        )
        for number in range(1, count + 1)
    ]
    return b"".join(encode_line(spans[at : at + 3], RESOURCE) for at in range(0, count, 3))


def _spans(trace: RawTrace) -> dict[str, Span]:
    return {span.span_id: span for span in trace.spans}


@pytest.fixture(params=["plain", "gzip", "zstd", "byte order mark", "snake case", "upper case", "no last newline"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    data = _mixed()
    match request.param:
        case "gzip":
            data = gzip.compress(data[:500]) + gzip.compress(data[500:])
        case "zstd":
            data = zstandard.compress(data[:500]) + zstandard.compress(data[500:])
        case "byte order mark":
            data = b"\xef\xbb\xbf" + data
        case "snake case":
            data = data.replace(b"traceId", b"trace_id").replace(b"spanId", b"span_id")
        case "upper case":
            data = b"".join(data.replace(text.encode(), text.upper().encode()) for text in IDS[:1])
        case "no last newline":
            data = data.rstrip()
    target = tmp_path / "traces.jsonl"
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("chunk", [64, 2**20])
def test_both_ways_give_what_reading_whole_gives(path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    whole = read_traces(path).traces
    for trace in whole:
        assert find_trace(path, trace.trace_id) == trace
        assert find_trace(path, trace.trace_id.upper()) == trace
    for group_bytes in (1, 10**6):
        monkeypatch.setattr(index, "_GROUP_BYTES", group_bytes)
        assert {trace.trace_id: trace for trace in iter_traces(path)} == {trace.trace_id: trace for trace in whole}


def test_an_unknown_trace_is_refused_with_those_that_are_there(path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        find_trace(path, "ee" * 16)
    assert caught.value.message.startswith(f"{path}: no trace {'ee' * 16} in this file. It holds ")
    assert all(text in caught.value.message for text in IDS)


def test_other_formats_are_searched_too(tmp_path: Path) -> None:
    target = tmp_path / "one.json"
    target.write_bytes(_mixed(3).rstrip())
    (first, *_) = read_traces(target).traces
    assert find_trace(target, first.trace_id) == first
    with pytest.raises(TraceError, match="no trace ab in this file"):
        find_trace(target, "ab")


def test_a_torn_last_line_is_told_by_both(tmp_path: Path) -> None:
    target = tmp_path / "torn.jsonl"
    target.write_bytes(_mixed(6) + _mixed(3)[:-30])
    for trace in (*iter_traces(target), find_trace(target, read_traces(target).traces[0].trace_id)):
        assert "the last line, 3, is cut off or damaged and was left out" in trace.notes


def test_a_damaged_line_elsewhere_is_refused_with_its_number(tmp_path: Path) -> None:
    target = tmp_path / "damaged.jsonl"
    data = _mixed(9).splitlines(keepends=True)
    target.write_bytes(data[0] + data[1][:-40] + b"\n" + data[2])
    with pytest.raises(TraceError, match=r"damaged\.jsonl, line 2: not JSON: .* Remove or repair that line"):
        list(iter_traces(target))
