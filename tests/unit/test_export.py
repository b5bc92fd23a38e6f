"""Every span reaches the server exactly once, whatever the server does, and the run never waits for it."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.errors import ConfigError
from kernel.export.http import Client, Destination, destination
from kernel.export.outbox import Outbox
from kernel.export.sink import ExportStats, Limits, OtlpSink
from kernel.export.spool import SUFFIX
from kernel.export.wire import CUT, encode_body, record_head, shorten, to_record, withhold_content
from kernel.trace import semconv as sc
from kernel.trace.otlp import encode_span
from kernel.trace.resource import environment_resource
from kernel.trace.span import CLIENT, ERROR, Event, Link, Resource, Span

from ..e2e.otlp_server import OtlpServer, Reply, partial_success

RESOURCE = Resource(attributes={"service.name": "test"}, scope_name="tracefirst", scope_version="0")
FAST = Limits(delay_s=0.0, retry_initial_s=0.01, retry_max_s=0.05)
TRACE = "0af7651916cd43dd8448eb211c80319c"

Sinks = Callable[..., OtlpSink]


def span(number: int, **attributes: Any) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=f"{number:016x}",
        name="step",
        start_ns=1_700_000_000_000_000_123,
        end_ns=1_700_000_000_000_000_456,
        attributes={"n": number, **attributes},
    )


def ids(first: int, last: int) -> dict[str, int]:
    return {f"{n:016x}": 1 for n in range(first, last + 1)}


def order(server: OtlpServer) -> list[int]:
    return [int(message.span_id.hex(), 16) for message in server.spans]


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer() as one:
        yield one
        assert one.faults == []


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[Sinks]:
    made: list[OtlpSink] = []

    def make(endpoint: str, *, limits: Limits = FAST, **options: Any) -> OtlpSink:
        made.append(OtlpSink(endpoint, RESOURCE, **{"spool": tmp_path, "limits": limits, **options}))
        return made[-1]

    yield make


def send(sink: OtlpSink, *numbers: int, **attributes: Any) -> None:
    for number in numbers:
        sink.ended(span(number, **attributes))


# --- the wire --------------------------------------------------------------------------------------------------------


VALUES: dict[str, Any] = {
    "text": "ä€𝄞\n",
    "surrogate": "a\ud83d",
    "yes": True,
    "int": -(2**63),
    "wide": 2**70,
    "float": 1.0,
    "nan": float("nan"),
    "none": None,
    "bytes": b"\x00\xff",
    "list": ["a", 1, None, ["b"]],
    "map": {"k": {"deep": 1}, "empty": {}},
    "no items": [],
}


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("compression", ["gzip", "deflate", "none"])
def test_spans_parse_with_opentelemetry_proto_and_say_what_we_said(
    server: OtlpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, compression: Any
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    sink = OtlpSink(server.url, RESOURCE, spool=tmp_path, limits=FAST, compression=compression)
    sent = span(1, **VALUES)
    sent.parent_id, sent.kind, sent.status, sent.status_message = "00000000000000ff", CLIENT, ERROR, "no"
    sent.events = (Event(name="e", time_ns=5, attributes={"a": 1}),)
    sent.links = (Link(trace_id="1" * 32, span_id="2" * 16, attributes={"b": "c"}),)
    sent.name = "lone \udc00"
    sink.ended(sent)
    assert sink.flush() == ExportStats(sent=1)

    (taken,) = server.taken
    assert taken.headers.get("content-encoding", "none") == compression
    (group,) = taken.request.resource_spans
    assert {pair.key: pair.value.string_value for pair in group.resource.attributes} == {"service.name": "test"}
    assert group.scope_spans[0].scope.name == "tracefirst"
    (got,) = server.spans
    assert (got.trace_id.hex(), got.span_id.hex(), got.parent_span_id.hex()) == (TRACE, f"{1:016x}", f"{255:016x}")
    assert (got.start_time_unix_nano, got.end_time_unix_nano) == (sent.start_ns, sent.end_ns)
    assert (got.name, got.kind, got.status.code, got.status.message) == ("lone \ufffd", 3, 2, "no")
    assert (got.events[0].name, got.events[0].time_unix_nano, got.events[0].attributes[0].value.int_value) == (
        "e",
        5,
        1,
    )
    assert (got.links[0].trace_id.hex(), got.links[0].attributes[0].value.string_value) == ("1" * 32, "c")
    values = {pair.key: pair.value for pair in got.attributes}
    assert set(values) == {"n", *VALUES}
    assert values["text"].string_value == VALUES["text"]
    assert values["surrogate"].string_value == "a\ufffd"
    assert values["yes"].bool_value is True
    assert values["int"].int_value == -(2**63)
    assert values["wide"].string_value == str(2**70)
    assert values["float"].WhichOneof("value") == "double_value"
    assert values["nan"].double_value != values["nan"].double_value
    assert values["none"].WhichOneof("value") is None
    assert values["bytes"].bytes_value == b"\x00\xff"
    assert values["list"].array_value.values[3].array_value.values[0].string_value == "b"
    assert values["map"].kvlist_value.values[1].value.WhichOneof("value") == "kvlist_value"
    assert values["no items"].WhichOneof("value") == "array_value"


def test_spans_of_several_resources_share_a_request_and_keep_their_own(server: OtlpServer, tmp_path: Path) -> None:
    """Two runs of one process may differ in their resource; one may even hold what looks like the end of a record."""
    odd = Resource(attributes={"service.name": '"spans":[', "k": {"spans": ["]}]}]}\n"]}})
    limits = Limits(delay_s=0.2)
    first = OtlpSink(server.url, RESOURCE, spool=tmp_path, limits=limits)
    second = OtlpSink(server.url, odd, spool=tmp_path, limits=limits)
    for number in range(1, 5):
        (first if number % 2 else second).ended(span(number))
    assert first.flush().sent == 4
    names = [
        (group.resource.attributes[0].value.string_value, len(group.scope_spans[0].spans))
        for taken in server.taken
        for group in taken.request.resource_spans
    ]
    assert sum(count for name, count in names if name == "test") == 2
    assert sum(count for name, count in names if name == '"spans":[') == 2


def test_a_span_that_otlp_cannot_hold_is_counted_and_takes_no_other_along(server: OtlpServer, sinks: Sinks) -> None:
    sink = sinks(server.url)
    bad, early = span(2), span(4)
    bad.trace_id = "not hex"
    early.start_ns = -1
    for one in (span(1), bad, early, span(3)):
        sink.ended(one)
    stats = sink.flush()
    assert (stats.sent, stats.rejected, stats.waiting) == (2, 2, 0)
    assert stats.last_error is not None
    assert server.span_ids == ids(1, 1) | ids(3, 3)


def test_a_damaged_record_is_named_and_left_out() -> None:
    body, faults = encode_body([b'{"resourceSpans":[{}]}\n', to_record(record_head(RESOURCE), span(1))], "http/json")
    assert faults == ["not a line of OTLP/JSON with one span"]
    assert encode_span(span(1)) in body


@pytest.mark.parametrize("pattern", [(503, 200), (503, 503, 200), (200, 503)])
def test_a_server_that_keeps_refusing_now_and_then_is_not_starved(
    server: OtlpServer, sinks: Sinks, pattern: tuple[int, ...]
) -> None:
    """Counted in requests: what one batch could carry does not take hundreds."""
    server.script(*pattern * 200)
    sink = sinks(server.url, limits=Limits(delay_s=3600.0, retry_initial_s=0.001, retry_max_s=0.002))
    send(sink, *range(1, 4097))
    assert sink.flush(30).waiting == 0
    assert order(server) == list(range(1, 4097))
    assert server.requests <= 8 * 3 + 6


def test_a_server_that_was_away_gets_batches_that_grow_back_step_by_step(server: OtlpServer, sinks: Sinks) -> None:
    server.script(*[503] * 4)
    sink = sinks(server.url, limits=Limits(delay_s=3600.0, retry_initial_s=0.001, retry_max_s=0.002))
    send(sink, *range(1, 2001))
    assert sink.flush(30).waiting == 0
    sizes = [len(taken.request.resource_spans[0].scope_spans[0].spans) for taken in server.taken]
    assert sizes == [8, 16, 32, 64, 128, 256, 512, 512, 472]


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_requests_are_split_by_bytes_and_by_count(server: OtlpServer, sinks: Sinks) -> None:
    sink = sinks(server.url, limits=Limits(delay_s=0.0, max_batch_bytes=20_000, max_batch_spans=7))
    send(sink, *range(1, 51), text="x" * 3000)
    send(sink, *range(51, 101))
    assert sink.flush() == ExportStats(sent=100)
    assert order(server) == list(range(1, 101))
    counts = [sum(len(g.scope_spans[0].spans) for g in t.request.resource_spans) for t in server.taken]
    assert max(counts) == 7
    assert max(taken.size_bytes for taken in server.taken) <= 20_000


def test_a_text_of_ten_megabytes_arrives_whole(server: OtlpServer, sinks: Sinks) -> None:
    text = "prompt € " * (10_000_000 // 11)
    sink = sinks(server.url)
    send(sink, 1)
    send(sink, 2, text=text)
    send(sink, 3)
    assert sink.flush(20) == ExportStats(sent=3)
    assert order(server) == [1, 2, 3]
    assert {pair.key: pair.value.string_value for pair in server.spans[1].attributes}["text"] == text


def test_a_span_over_the_bound_is_shortened_and_says_which_keys(server: OtlpServer, sinks: Sinks) -> None:
    sink = sinks(server.url, limits=Limits(delay_s=0.0, max_span_bytes=100_000))
    send(sink, 1, **{"small": "s", "big": "b" * 500_000, "list": ["€" * 200] * 1000, sc.SEAL: "0011"})
    assert sink.flush() == ExportStats(sent=1)
    values = {pair.key: pair.value for pair in server.spans[0].attributes}
    assert server.taken[0].size_bytes <= 100_000
    assert [item.string_value for item in values[CUT].array_value.values] == ["list", "big"]
    assert values["big"].string_value.endswith("of 500000 characters; the trace file has all]")
    assert (values["small"].string_value, values[sc.SEAL].string_value) == ("s", "0011")


@pytest.mark.parametrize("limit", [3000, 20_000, 100_000])
def test_shortening_reaches_its_limit_whatever_is_large(limit: int) -> None:
    big = span(1, quotes='"\n\\' * 50_000, wide="字" * 90_000, data=b"\x00" * 90_000, nested={"a": ["x" * 90_000]})
    big.name = "n" * 50_000
    big.events = (Event(name="try", time_ns=1, attributes={"why": "w" * 80_000, "number": 1}),)
    short = shorten(big, limit)
    assert len(encode_span(short)) <= limit
    assert set(short.attributes) == {*big.attributes, CUT}
    assert limit > 50_000 or short.attributes[CUT] == ["quotes", "wide", "data", "nested", "try/why"]
    assert big.attributes["quotes"] == '"\n\\' * 50_000, "the span itself is not changed"


def test_too_large_for_the_server_is_split_and_then_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    with OtlpServer(body_limit=50_000) as server:
        sink = OtlpSink(server.url, RESOURCE, spool=tmp_path, limits=FAST)
        send(sink, *range(1, 41), text="x" * 9000)
        send(sink, 41, text="y" * 400_000)
        send(sink, *range(42, 61))
        assert sink.flush() == ExportStats(sent=60)
        assert order(server) == list(range(1, 61))
        marked = {n for n, m in zip(order(server), server.spans, strict=True) if CUT in {a.key for a in m.attributes}}
        assert marked == {41}
        assert server.faults == []


def test_a_server_that_takes_no_size_at_all_refuses_in_the_end(sinks: Sinks) -> None:
    with OtlpServer(body_limit=10) as server:
        sink = sinks(server.url)
        send(sink, 1, 2, text="x" * 100_000)
        stats = sink.flush()
        assert (stats.sent, stats.rejected, stats.waiting) == (0, 2, 0)
        assert stats.last_error == "HTTP 413 http: request body too large"


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statuses", [[503], [500, 502, 504], [429], [408], [401], [404], [302]])
def test_an_answer_that_may_change_is_asked_again(server: OtlpServer, sinks: Sinks, statuses: list[int]) -> None:
    server.script(*statuses)
    sink = sinks(server.url)
    send(sink, 1, 2)
    stats = sink.flush()
    assert (stats.sent, stats.waiting, stats.rejected) == (2, 0, 0)
    assert server.span_ids == ids(1, 2)
    assert stats.last_error == f"HTTP {statuses[-1]}"


def test_retry_after_is_honoured(server: OtlpServer, sinks: Sinks) -> None:
    """The server is not asked earlier."""
    server.script(Reply(status=429, headers=(("Retry-After", "0.4"),)))
    sink = sinks(server.url)
    send(sink, 1)
    assert sink.flush(60).sent == 1
    first, second = server.arrived_ns
    assert second - first >= 400_000_000


def test_retry_after_is_honoured_by_a_flush_as_well(server: OtlpServer, sinks: Sinks) -> None:
    server.script(Reply(status=429, headers=(("Retry-After", "3600"),)))
    sink = sinks(server.url)
    send(sink, 1)
    server.wait_for(lambda: server.requests == 1)
    assert sink.flush(0.1).waiting == 1
    assert server.requests == 1


def test_a_refusal_is_counted_with_the_servers_words_and_without_our_secrets(
    server: OtlpServer, sinks: Sinks, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(Reply(status=400, body=b"bad key \x1b[31m tenant-key-123456 in\nrequest " + b"x" * 999))
    headers = {"authorization": "Bearer tenant-key-123456"}
    sink = sinks(server.url.replace("//", "//user:pass-word-1@"), headers=headers)
    send(sink, 1, 2)
    server.wait_for(lambda: server.requests == 1)
    stats = sink.flush()
    assert (stats.sent, stats.rejected, stats.waiting) == (0, 2, 0)
    assert stats.last_error is not None
    assert stats.last_error.startswith("HTTP 400 bad key [31m [secret] in request xxx")
    assert len(stats.last_error) == 300
    send(sink, 3)
    assert sink.flush().sent == 1
    assert server.taken[0].headers["authorization"] == "Bearer tenant-key-123456"
    shown = caplog.text + repr(destination(server.url, headers=headers, environ={})) + stats.last_error
    assert "tenant-key" not in shown
    assert "pass-word" not in shown


def test_the_words_of_a_collectors_error_are_read(server: OtlpServer, sinks: Sinks) -> None:
    """OTLP answers errors with a `google.rpc.Status`; what is none is shown as it is."""
    protobuf = (("Content-Type", "application/x-protobuf"),)
    said = b"\x08\x03\x12\x0dno such field"
    server.script(
        Reply(status=400, headers=protobuf, body=said), Reply(status=400, headers=protobuf, body=b"\xff plain")
    )
    sink = sinks(server.url)
    for words in ("HTTP 400 no such field", "HTTP 400 \ufffd plain"):
        send(sink, 1)
        assert sink.flush().last_error == words


def test_partial_success_is_counted(server: OtlpServer, sinks: Sinks) -> None:
    server.script(partial_success(2, "two were too old"))
    sink = sinks(server.url, limits=Limits(delay_s=0.1))
    send(sink, 1, 2, 3)
    assert sink.flush() == ExportStats(sent=1, rejected=2, last_error="two were too old")


def test_a_redirect_is_not_followed(server: OtlpServer, sinks: Sinks) -> None:
    """It would carry our headers to a place nobody chose."""
    with OtlpServer() as other:
        server.script(Reply(status=307, headers=(("Location", other.url),)))
        sink = sinks(server.url, headers={"x-key": "k"})
        send(sink, 1)
        assert sink.flush().sent == 1
        assert (server.requests, other.requests) == (2, 0)


# --- the server is away ----------------------------------------------------------------------------------------------


def test_a_server_that_comes_back_in_mid_way_gets_each_span_once_in_order(
    sinks: Sinks, caplog: pytest.LogCaptureFixture
) -> None:
    with OtlpServer() as before:
        sink = sinks(before.url)
        send(sink, *range(1, 11))
        assert sink.flush().sent == 10
    send(sink, *range(11, 21))
    stats = sink.flush(0.05)
    assert stats.waiting == 10
    assert "refused" in (stats.last_error or "")
    with OtlpServer(port=before.port) as after:
        send(sink, *range(21, 31))
        assert sink.flush().sent == 30
    assert order(before) + order(after) == list(range(1, 31))
    away = [r for r in caplog.records if r.name == "tracefirst.export"]
    assert len(away) == 1, "one warning an outage"
    assert away[0].levelno == logging.WARNING


def test_a_hanging_server_holds_up_neither_the_run_nor_the_end(sinks: Sinks) -> None:
    with OtlpServer(default=Reply(hang=True)) as hanging:
        sink = sinks(hanging.url, timeout_s=3600.0)
        send(sink, 1)
        hanging.wait_for(lambda: hanging.requests == 1)
        send(sink, *range(2, 1001))
        sink.close()
        stats = sink.flush(0.1)
        assert (stats.waiting, hanging.requests) == (1000, 1), "the first request was still waiting for its answer"
    with OtlpServer(port=hanging.port) as server:
        assert sink.flush().sent == 1000
        assert server.span_ids == ids(1, 1000)


@pytest.mark.parametrize(
    "reply", [Reply(status=401), Reply(status=302), Reply(status=429, headers=(("Retry-After", "86400"),))]
)
def test_the_end_of_a_process_does_not_wait_for_what_will_not_mend_in_time(tmp_path: Path, reply: Reply) -> None:
    with OtlpServer(default=reply) as server:
        target = destination(server.url, environ={})
        assert target is not None
        outbox = Outbox(target, tmp_path, FAST)
        outbox.put(span(1), RESOURCE)
        assert outbox.flush(3600, give_up=True).waiting == 1  # else it would take an hour


def test_a_server_that_never_answers_is_given_up_after_the_timeout(sinks: Sinks) -> None:
    with OtlpServer() as server:
        server.script(Reply(hang=True))
        sink = sinks(server.url, timeout_s=0.1)
        send(sink, 1)
        assert sink.flush().sent == 1
        assert server.span_ids == ids(1, 1)


def test_without_a_spool_folder_spans_wait_in_memory(sinks: Sinks, tmp_path: Path) -> None:
    with OtlpServer() as server:
        server.script(503)
        sink = sinks(server.url, spool="off")
        send(sink, *range(1, 6))
        assert sink.flush().sent == 5
        assert order(server) == [1, 2, 3, 4, 5]
    assert list(tmp_path.iterdir()) == []


def test_twenty_thousand_spans_from_four_threads_arrive_once(server: OtlpServer, sinks: Sinks) -> None:
    """The queue is far too small for them: what does not fit goes to the spool, by the run's own hand."""
    sink = sinks(server.url, limits=Limits(delay_s=0.0, max_queue_bytes=100_000))
    sinks_of_threads = [sinks(server.url, limits=Limits(delay_s=0.0, max_queue_bytes=100_000)) for _ in range(4)]
    threads = [
        threading.Thread(target=send, args=(one, *range(1 + 5000 * i, 5001 + 5000 * i)))
        for i, one in enumerate(sinks_of_threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.flush(30) == ExportStats(sent=20_000)
    assert server.span_ids == ids(1, 20_000)


def test_what_waits_is_otlp_json_one_span_a_line(sinks: Sinks, tmp_path: Path) -> None:
    """So a waiting span can be looked at, and read by whatever reads the files of a Collector."""
    with OtlpServer(default=Reply(status=503)) as server:
        sink = sinks(server.url)
        send(sink, 1, 2)
        sink.close()
        (path,) = tmp_path.rglob(f"*{SUFFIX}")
        documents = [json.loads(line)["resourceSpans"][0] for line in path.read_text().splitlines()]
        assert [d["scopeSpans"][0]["spans"][0]["spanId"] for d in documents] == list(ids(1, 2))
        assert documents[0]["resource"]["attributes"][0]["value"] == {"stringValue": "test"}
        server.default = Reply()
        assert sink.flush().sent == 2


def test_nothing_stays_on_the_disk_once_it_is_sent(server: OtlpServer, sinks: Sinks, tmp_path: Path) -> None:
    sink = sinks(server.url)
    send(sink, *range(1, 100), secret="prompt")
    sink.flush()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- processes -------------------------------------------------------------------------------------------------------

CHILD = """
import os, sys
from kernel.export.sink import Limits, OtlpSink, shutdown
from kernel.trace.span import Resource, Span
url, spool = sys.argv[1:3]
sink = OtlpSink(url, Resource(), spool=spool, limits=Limits(delay_s=0.0, retry_initial_s=0.01, retry_max_s=0.05))
def send(first, last):
    for n in range(first, last + 1):
        sink.ended(Span(trace_id="1" * 32, span_id=f"{n:016x}", name="step", start_ns=1, end_ns=2, attributes={"n": n}))
"""


def child(code: str, server: str, spool: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + code, server, str(spool)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out + err


def test_what_a_process_could_not_send_is_sent_by_the_next_one(tmp_path: Path) -> None:
    """The end of the process says how many spans wait and where; the next process has only to start."""
    with OtlpServer() as gone:
        pass
    said = finished(child("send(1, 100)", gone.url, tmp_path))
    assert f"100 spans for {gone.url}/v1/traces wait in {tmp_path}" in said
    with OtlpServer(port=gone.port) as server:
        assert finished(child("send(101, 110)", server.url, tmp_path)) == ""
        assert order(server) == list(range(1, 111))


def test_a_killed_process_loses_no_span_of_a_closed_run(tmp_path: Path) -> None:
    with OtlpServer(default=Reply(hang=True)) as hanging:
        process = child(
            "send(1, 500); sink.close(); print('closed', flush=True); sys.stdin.read()", hanging.url, tmp_path
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        hanging.wait_for(lambda: hanging.requests == 1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with OtlpServer(port=hanging.port) as server:
        finished(child("send(501, 501)", server.url, tmp_path))
        assert order(server) == list(range(1, 502))


def test_a_forked_child_sends_its_own_spans_and_not_the_parents(server: OtlpServer, tmp_path: Path) -> None:
    """Also when it ends by `os._exit`, as workers of multiprocessing do: its run is closed, so the parent sends it."""
    code = """
send(1, 50)
children = []
for first in (100, 200, 300):
    pid = os.fork()
    if pid == 0:
        send(first, first + 9)
        if first == 100:
            sys.exit(0)
        if first == 200:
            shutdown()
        sink.close()
        os._exit(0)
    children.append(pid)
send(51, 60)
for pid in children:
    os.waitpid(pid, 0)
"""
    finished(child(code, server.url, tmp_path))
    assert server.span_ids == ids(1, 60) | ids(100, 109) | ids(200, 209) | ids(300, 309)


def test_processes_that_share_a_spool_send_each_span_once(server: OtlpServer, tmp_path: Path) -> None:
    server.default = Reply(status=503)
    code = "send(BASE, BASE + 299); shutdown(0.1)\nsys.stdin.readline(); print(shutdown(20).waiting)"
    processes = [child(code.replace("BASE", str(1 + 300 * i)), server.url, tmp_path) for i in range(3)]
    server.wait_for(lambda: server.requests > 6)
    server.default = Reply()
    for process in processes:
        out, err = process.communicate("go\n", timeout=30)
        assert (process.returncode, out) == (0, "0\n"), err
    assert server.span_ids == ids(1, 900)


# --- settings --------------------------------------------------------------------------------------------------------

LOCAL = "http://localhost:4318/v1/traces"


@pytest.mark.parametrize(
    ("endpoint", "environ", "url"),
    [
        (None, {}, LOCAL),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/"}, "http://c:1/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp"}, "https://c/otlp/v1/traces"),
        (
            None,
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "y"},
            "http://c:1/x",
        ),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1"}, "http://c:1/"),
        ("http://c:1/x", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1/x"}, "http://c:1/x"),
        ("http://a:1", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1"}, "http://a:1/v1/traces"),
        ("http://a:1/v1/traces", {}, "http://a:1/v1/traces"),
        ("http://a:1/?k=v", {}, "http://a:1/v1/traces?k=v"),
    ],
)
def test_the_endpoint_follows_the_specification(endpoint: str | None, environ: dict[str, str], url: str) -> None:
    target = destination(endpoint, environ=environ)
    assert target is not None
    assert target.url == url


@pytest.mark.parametrize(
    "environ",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console,zipkin"}],
)
def test_variables_switch_it_off(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, server: OtlpServer) -> None:
    assert destination(environ=environ) is None
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    sink = OtlpSink(server.url, RESOURCE)
    send(sink, 1)
    sink.close()
    assert sink.flush() == sink.stats == ExportStats()
    assert server.requests == 0


def test_variables_for_traces_go_before_those_for_all_signals() -> None:
    def variables(prefix: str, mark: str) -> dict[str, str]:
        names = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
        return {f"OTEL_EXPORTER_OTLP_{prefix}{name}": f"{mark}.pem" for name in names}

    general = {
        **variables("", "general"),
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20abc%3D,x-tenant = 7 ,broken",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "10000",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_SDK_DISABLED": "false",
    }
    target = destination(environ=general)
    assert target is not None
    assert target.headers == (("authorization", "Basic abc="), ("x-tenant", "7"))
    assert (target.timeout_s, target.compression, target.protocol) == (10.0, "none", "http/json")
    assert target.certificate == target.client_certificate == target.client_key == "general.pem"
    special = {
        **variables("TRACES_", "special"),
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=b",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "deflate",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    }
    target = destination(environ=general | special)
    assert target is not None
    assert (target.headers, target.timeout_s, target.compression) == ((("a", "b"),), 2.5, "deflate")
    assert target.protocol == "http/protobuf"
    assert target.certificate == target.client_certificate == target.client_key == "special.pem"


def test_grpc_is_not_spoken_and_says_what_to_do() -> None:
    target = destination(environ={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert target is not None
    assert target.protocol == "http/protobuf"
    assert target.note == (
        "OTEL_EXPORTER_OTLP_PROTOCOL='grpc' is not supported, http/protobuf is sent; use port 4318, not 4317"
    )


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: 'localhost:4318' is not an http or https URL; "
            "give one such as http://localhost:4318",
        ),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "key=a%0Asecret"},
            "header 'key' holds a line break or a character outside ASCII; no header can",
        ),
        (
            {"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"},
            "OTEL_EXPORTER_OTLP_COMPRESSION: 'zstd' is not gzip, deflate or none",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        destination(environ=environ)
    assert str(caught.value) == message


def test_the_resource_follows_the_specification() -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=x%20y,"}
    assert environment_resource(environ).attributes == {"service.name": "a", "team": "x y"}
    assert environment_resource(environ | {"OTEL_SERVICE_NAME": "b"}).attributes["service.name"] == "b"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "state"}, "state/tracefirst/spool"),
        ({"HOME": "home"}, "home/.local/state/tracefirst/spool"),
        ({"TRACEFIRST_SPOOL": "chosen", "XDG_STATE_HOME": "state"}, "chosen"),
        ({"TRACEFIRST_SPOOL": "off", "XDG_STATE_HOME": "state"}, None),
    ],
)
def test_the_spool_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], folder: str | None
) -> None:
    for name in ("XDG_STATE_HOME", "TRACEFIRST_SPOOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value if value == "off" else str(tmp_path / value))
    with OtlpServer(default=Reply(status=503)) as server:
        sink = OtlpSink(server.url, RESOURCE, limits=FAST)
        send(sink, 1)
        sink.close()
        files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob(f"*{SUFFIX}")]
        assert [file.rsplit("/", 2)[0] for file in files] == ([] if folder is None else [folder])
        server.default = Reply()
        assert sink.flush().sent == 1


def test_spools_are_apart_for_each_endpoint_and_tenant() -> None:
    digests = {
        Destination(url=url, headers=headers).digest
        for url in ("http://a/v1/traces", "http://b/v1/traces")
        for headers in ((), (("authorization", "one"),), (("authorization", "two"),))
    }
    assert len(digests) == 6
    assert not any("one" in digest for digest in digests)


# --- content ---------------------------------------------------------------------------------------------------------

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.mark.parametrize(
    ("host", "argument", "capture", "content"),
    [
        ("localhost", None, "", True),
        ("127.0.0.1", None, "", True),
        ("[::1]", None, "", True),
        ("collector.example.org", None, "", False),
        ("10.0.0.1", None, "", False),
        ("collector.example.org", True, "", True),
        ("collector.example.org", None, "SPAN_ONLY", True),
        ("collector.example.org", None, "span_and_event", True),
        ("collector.example.org", None, "EVENT_ONLY", False),
        ("localhost", None, "NO_CONTENT", False),
        ("localhost", False, "SPAN_ONLY", False),
    ],
)
def test_content_leaves_the_machine_only_when_asked_for(
    host: str, argument: bool | None, capture: str, content: bool
) -> None:
    target = destination(f"http://{host}:4318", content=argument, environ={CAPTURE: capture})
    assert target is not None
    assert target.content is content


def test_withheld_content_is_named_and_numbers_stay(server: OtlpServer, sinks: Sinks) -> None:
    content = (sc.SYSTEM_INSTRUCTIONS, sc.INPUT_MESSAGES, sc.OUTPUT_MESSAGES, sc.TOOL_ARGUMENTS, sc.TOOL_RESULT)
    said = dict.fromkeys(content, "PLANTED secret")
    one = span(1, **{sc.TOOL_NAME: "search", sc.INPUT_TOKENS: 7, sc.OK: True, **said, "own": ["PLANTED"]})
    one.events = (Event(name=sc.ATTEMPT_EVENT, time_ns=1, attributes={sc.ATTEMPT_NUMBER: 1, sc.ATTEMPT: "PLANTED"}),)
    one.status_message = "PLANTED"
    sink = sinks(server.url, content=False)
    sink.ended(one)
    assert sink.flush().sent == 1
    (got,) = server.spans
    assert b"PLANTED" not in server.taken[0].request.SerializeToString()
    values = {pair.key: pair.value for pair in got.attributes}
    assert (values[sc.TOOL_NAME].string_value, values[sc.INPUT_TOKENS].int_value) == ("search", 7)
    cut = [item.string_value for item in values[CUT].array_value.values]
    assert cut == [*said, "own", f"{sc.ATTEMPT_EVENT}/{sc.ATTEMPT}", "status.message"]
    assert withhold_content(span(2)).attributes == {"n": 2}


# --- OpenTelemetry around us -----------------------------------------------------------------------------------------


def test_our_requests_are_not_traced_by_instrumented_clients() -> None:
    """A proxy handler runs inside the request and sees the suppression that instrumentations look for."""
    import urllib.request

    from opentelemetry import context

    seen: list[object] = []

    class Spy(urllib.request.BaseHandler):
        def http_open(self, request: urllib.request.Request) -> Any:
            seen.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))
            raise OSError("spied")

    client = Client(Destination(url="http://127.0.0.1:9/v1/traces"))
    client._opener = urllib.request.OpenerDirector()
    client._opener.add_handler(Spy())
    assert client.post(b"").message == "OSError: spied"
    assert seen == [True]
    assert context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY) is None


def test_counts_are_metrics_where_the_process_uses_metrics(server: OtlpServer, tmp_path: Path) -> None:
    code = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
sink = OtlpSink(url, Resource(), spool=spool)
send(1, 3)
sink.flush()
for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
    for point in metric.data.data_points:
        print(metric.name, dict(point.attributes), point.value)
"""
    assert finished(child(code, server.url, tmp_path)).splitlines() == [
        "tracefirst.export.spans {'tracefirst.export.outcome': 'sent'} 3",
        "tracefirst.export.spans {'tracefirst.export.outcome': 'dropped'} 0",
        "tracefirst.export.spans {'tracefirst.export.outcome': 'rejected'} 0",
        "tracefirst.export.waiting {} 0",
    ]


def test_importing_the_sink_loads_neither_the_sdk_nor_protobuf() -> None:
    code = "import sys, kernel.export.sink; print(*(m for m in sys.modules if m in ('opentelemetry', 'google', 'requests')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
