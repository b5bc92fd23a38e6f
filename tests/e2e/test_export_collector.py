"""Spans reach the real Collector exactly once: large ones, many, from many runs, and over its restart."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kernel import Agent, Budget, ToolRegistry
from kernel.export.sink import Limits, OtlpSink
from kernel.trace.otlp_json import decode_span
from kernel.trace.span import Resource, Span
from kernel.tracing import Tracing

from .servers import CollectorServer, free_port, running_collector, running_jaeger, servers_available, wait_until

_unavailable = servers_available()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_unavailable is not None, reason=str(_unavailable))]

RESOURCE = Resource(attributes={"service.name": "tracefirst-e2e"}, scope_name="tracefirst", scope_version="0")
LIMITS = Limits(delay_s=0.05, retry_initial_s=0.1, retry_max_s=0.5)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorServer]:
    """Nobody listens where it sends to: what arrives is read from its file."""
    upstream = f"http://127.0.0.1:{free_port()}"
    with running_collector("agent", folder=tmp_path_factory.mktemp("agent"), upstream=upstream) as server:
        yield server


def span(trace_id: str, parent: Span | None = None, **attributes: Any) -> Span:
    number = next(_numbers)
    return Span(
        trace_id=trace_id,
        span_id=f"{number:016x}",
        parent_id=None if parent is None else parent.span_id,
        name="step",
        start_ns=1_700_000_000_000_000_000 + number,
        end_ns=1_700_000_000_000_000_500 + number,
        attributes={"tracefirst.step.index": number, **attributes},
    )


def run(sink: OtlpSink, steps: int, text: str) -> list[Span]:
    """End the spans of one run as the recorder does: children before parents, the root last."""
    trace_id = os.urandom(16).hex()
    root = span(trace_id, task=text)
    spans = []
    for _ in range(steps):
        step = span(trace_id, root)
        spans += [span(trace_id, step, messages=text), span(trace_id, step, result=text), step]
    spans.append(root)
    for one in spans:
        sink.ended(one)
    sink.close()
    return spans


def on_disk(*folders: CollectorServer) -> Counter[str]:
    """How often each span stands in the Collector's files."""
    return Counter(s["spanId"] for s in spans_on_disk(*folders))


def spans_on_disk(*folders: CollectorServer) -> list[dict[str, Any]]:
    out = []
    for server in folders:
        for path in sorted(server.fixtures.parent.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                out += [s for r in json.loads(line)["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]]
    return out


def check(sent: list[Span], *servers: CollectorServer) -> None:
    expected = {one.span_id for one in sent}
    wait_until(lambda: expected <= set(on_disk(*servers)), what="all spans in the Collector's file")
    counts = on_disk(*servers)
    assert {span_id: counts[span_id] for span_id in expected if counts[span_id] != 1} == {}


def test_a_tool_result_of_ten_megabytes_takes_nothing_along(agent: CollectorServer, tmp_path: Path) -> None:
    sink = OtlpSink(agent.otlp_http, RESOURCE, spool=tmp_path, limits=LIMITS)
    trace_id = os.urandom(16).hex()
    text = "".join(f'line {n} of a log with "quotes" and ümläuts\n' for n in range(210_000))
    assert len(text.encode()) > 10_000_000
    sent = [span(trace_id), span(trace_id, result=text), span(trace_id)]
    for one in sent:
        sink.ended(one)
    assert sink.flush(30).waiting == 0
    check(sent, agent)
    (big,) = [s for s in spans_on_disk(agent) if s["spanId"] == sent[1].span_id]
    big["attributes"] = [pair for pair in big["attributes"] if not pair["key"].startswith("redaction.")]
    assert decode_span(json.dumps(big)) == sent[1]


def test_a_trace_of_two_thousand_steps_arrives_whole(agent: CollectorServer, tmp_path: Path) -> None:
    sink = OtlpSink(agent.otlp_http, RESOURCE, spool=tmp_path, limits=LIMITS)
    sent = run(sink, 2000, "word " * 100)
    assert len(sent) == 6001
    assert sink.flush(60).sent == 6001
    check(sent, agent)


def test_fifty_runs_at_once_share_the_way_and_lose_nothing(agent: CollectorServer, tmp_path: Path) -> None:
    sent: list[list[Span]] = [[] for _ in range(50)]

    def one(number: int) -> None:
        sink = OtlpSink(agent.otlp_http, RESOURCE, spool=tmp_path, limits=LIMITS)
        sent[number] = run(sink, 20, f"run {number} " * 50)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = OtlpSink(agent.otlp_http, RESOURCE, spool=tmp_path, limits=LIMITS).flush(60)
    assert (stats.sent, stats.waiting, stats.dropped, stats.rejected) == (50 * 61, 0, 0, 0)
    check([span for spans in sent for span in spans], agent)


def test_a_collector_that_restarts_in_mid_way_gets_each_span_once(tmp_path: Path) -> None:
    """It comes back on another port, as the servers here do; what the sink talks to is a port that stays."""
    upstream = f"http://127.0.0.1:{free_port()}"
    with Relay() as relay:
        sink = OtlpSink(relay.url, RESOURCE, spool=tmp_path / "spool", limits=LIMITS)
        with running_collector("agent", folder=tmp_path / "agent", upstream=upstream) as first:
            relay.target = first.otlp_http
            sent = run(sink, 100, "before")
            wait_until(lambda: sink.stats.sent > 0, what="the first spans to be acknowledged")
        sent += run(sink, 100, "while it is away")
        assert sink.flush(0.3).waiting > 0
        with running_collector("agent", folder=tmp_path / "agent", upstream=upstream) as second:
            relay.target = second.otlp_http
            sent += run(sink, 100, "after")
            assert sink.flush(30).waiting == 0
            check(sent, second)


def test_the_copy_in_the_collector_equals_the_trace_file(agent: CollectorServer, tmp_path: Path) -> None:
    """A real run of the kernel, with its real attributes: every span of the file, attribute for attribute."""
    tools = ToolRegistry()

    @tools.tool
    def look(number: int) -> dict[str, Any]:
        """Look something up."""
        return {"number": number, "ratio": 0.5, "text": "ümläut " * 20, "none": None}

    calls = itertools.count(1)

    def model(prompt: str) -> str:
        number = next(calls)
        call = {"action": "look", "args": {"number": number}}
        return json.dumps(call if number < 20 else {"action": "finish", "args": {"answer": "done"}})

    sink = OtlpSink(agent.otlp_http, RESOURCE, spool=tmp_path / "spool", limits=LIMITS)
    tracing = Tracing(file=tmp_path / "run.trace.json", sinks=[sink])
    result = Agent(name="e2e", tools=tools, budget=Budget(max_steps=30)).run_sync("task", llm=model, trace=tracing)
    assert (result.stop_reason, result.warnings) == ("finish", ())
    assert sink.flush(30).waiting == 0

    (document,) = json.loads((tmp_path / "run.trace.json").read_text())["resourceSpans"]
    recorded = {s["spanId"]: decode_span(json.dumps(s)) for s in document["scopeSpans"][0]["spans"]}
    assert len(recorded) == 60
    wait_until(lambda: recorded.keys() <= on_disk(agent).keys(), what="the run in the Collector's file")
    copies = {s["spanId"]: decode_span(json.dumps(s)) for s in spans_on_disk(agent) if s["spanId"] in recorded}
    assert copies == recorded


def test_a_run_sent_straight_to_jaeger_is_there_to_be_seen(tmp_path: Path) -> None:
    with running_jaeger(folder=tmp_path / "jaeger") as jaeger:
        sink = OtlpSink(jaeger.otlp_http, RESOURCE, spool=tmp_path / "spool", limits=LIMITS)
        sent = run(sink, 10, "text")
        assert sink.flush(30).sent == 31
        trace_id = sent[0].trace_id
        seen = wait_until(lambda: (s := jaeger.spans(trace_id)) and len(s) == 31 and s, what="the trace in Jaeger")
        parents = {s["spanId"]: s.get("parentSpanId") for s in seen}
        assert parents == {s.span_id: s.parent_id for s in sent}


class Relay:
    """Passes TCP connections on to `target`; refuses nothing, but drops the connection where nobody answers."""

    def __init__(self) -> None:
        relay = self
        self.target = ""

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay._pass(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, client: Any) -> None:
        target = urlsplit(self.target)
        with contextlib.suppress(OSError), socket.create_connection((target.hostname, target.port), 5) as server:

            def back() -> None:
                with contextlib.suppress(OSError):
                    while data := server.recv(65536):
                        client.sendall(data)
                    client.shutdown(socket.SHUT_WR)

            answers = threading.Thread(target=back, daemon=True)
            answers.start()
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            answers.join(5)
