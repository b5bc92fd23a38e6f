"""What went through the real Collector or the real Jaeger comes back and replays as `same`."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings

from fixtures.record import CountingClock, CountingIds, Scenario, scenarios
from kernel import Tracing
from kernel.export.sink import Limits, OtlpSink
from kernel.record.run import Run
from kernel.trace.codec import Problem, decode_run, encode_run
from kernel.trace.span import Resource, Span
from replay.loading import load
from replay.play.divergence import differences
from replay.play.play import replay
from replay.play.recording import Recording
from tests.helpers import runs

from .servers import (
    CollectorServer,
    JaegerServer,
    free_port,
    post_json,
    running_collector,
    running_jaeger,
    servers_available,
    wait_until as wait_for,
)

_unavailable = servers_available()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_unavailable is not None, reason=str(_unavailable))]

NAMES = sorted(scenarios())
LIMITS = Limits(delay_s=0.05)
RESOURCE = Resource(attributes={"service.name": "round-trip"}, scope_name="tracefirst", scope_version="1")
JAEGER_FORMS = {
    "api/v3 raw": "/api/v3/traces/{}?rawTraces=true",
    "api/v3": "/api/v3/traces/{}",
    "api": "/api/traces/{}",
    "api raw, pretty": "/api/traces/{}?raw=true&prettyPrint=true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Both servers, and what was sent to them: spans a trace."""

    collector: CollectorServer
    jaeger: JaegerServer
    sinks: tuple[OtlpSink, ...]
    folder: Path
    sent: dict[str, int]

    def settle(self) -> None:
        """Return when every span sent stands in the Collector's file and in Jaeger, once."""
        for sink in self.sinks:
            stats = sink.flush(30)
            assert (stats.waiting, stats.dropped, stats.rejected) == (0, 0, 0)
        wait_for(lambda: self.on_disk() == self.sent, what="all spans in the Collector's file, once")
        for trace_id, count in self.sent.items():
            wait_for(partial(self._in_jaeger, trace_id, count), what="all spans in Jaeger")

    def _in_jaeger(self, trace_id: str, count: int) -> bool:
        return len(self.jaeger.spans(trace_id)) == count

    def on_disk(self) -> Counter[str]:
        files = [path.read_bytes() for path in self.collector.fixtures.parent.glob("*.jsonl")]
        whole = [json.loads(line) for data in files for line in data.split(b"\n")[:-1]]
        return Counter(
            span["traceId"]
            for document in whole
            for resource in document["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        )

    def from_collector(self, trace_id: str) -> Recording:
        (recording,) = load(self.collector.fixtures, trace_id=trace_id)
        return recording

    def from_jaeger(self, trace_id: str, form: str) -> Recording:
        path = self.folder / "jaeger.json"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.jaeger.ui + JAEGER_FORMS[form].format(trace_id), timeout=30) as reply:
            path.write_bytes(reply.read())
        (recording,) = load(path, trace_id=trace_id)
        return recording


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("round-trip")
    nowhere = f"http://127.0.0.1:{free_port()}"
    with (
        running_jaeger(folder=folder / "jaeger") as jaeger,
        running_collector("agent", folder=folder / "agent", upstream=nowhere) as collector,
    ):
        urls = (collector.otlp_http, jaeger.otlp_http)
        sinks = tuple(OtlpSink(url, RESOURCE, spool=folder / "spool", limits=LIMITS) for url in urls)
        yield Stores(collector=collector, jaeger=jaeger, sinks=sinks, folder=folder, sent=Counter())


@pytest.fixture(scope="module")
def recorded(stores: Stores) -> dict[str, Recording]:
    """Every scenario of the fixtures, run once: its trace file, with copies in both servers."""
    found = {}
    for name in NAMES:
        path = stores.folder / f"{name}.trace.json"
        asyncio.run(run(scenarios()[name](), name, Tracing(file=path, sinks=stores.sinks, join=False)))
        (found[name],) = load(path)
        (document,) = json.loads(path.read_bytes())["resourceSpans"]
        stores.sent[found[name].trace_id] = len(document["scopeSpans"][0]["spans"])
    stores.settle()
    return found


async def run(scenario: Scenario, name: str, tracing: Tracing) -> None:
    """A scenario as `fixtures.record` runs it, with another tracing."""
    clock, ids, model = scenario.clock or CountingClock(), CountingIds(name), scenario.model
    if len(scenario.tasks) > 1:
        async with scenario.agent.conversation(llm=model, trace=tracing, clock=clock, ids=ids) as chat:
            for task in scenario.tasks:
                await chat.send(task)
        return
    work = asyncio.ensure_future(
        scenario.agent.run(scenario.tasks[0], llm=model, confirm=scenario.confirm, trace=tracing, clock=clock, ids=ids)
    )
    if scenario.cancel:
        await model.hanging.wait()
        work.cancel()
    await asyncio.gather(work, return_exceptions=scenario.cancel)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_the_collectors_file_replays_as_same(
    name: str, stores: Stores, recorded: dict[str, Recording]
) -> None:
    """The file holds all the traces of this module, interleaved; the runs in it are those of the trace file."""
    back = stores.from_collector(recorded[name].trace_id)
    assert back.runs == recorded[name].runs
    assert_same(back)


@pytest.mark.parametrize("form", JAEGER_FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_jaeger_replays_as_same(
    name: str, form: str, stores: Stores, recorded: dict[str, Recording]
) -> None:
    back = stores.from_jaeger(recorded[name].trace_id, form)
    assert [content(r.run) for r in back.runs] == [content(r.run) for r in recorded[name].runs]
    assert [r.problems for r in back.runs] == [r.problems for r in recorded[name].runs]
    assert_same(back)


def test_b121_trace_files_are_taken_by_jaegers_upload(stores: Stores, recorded: dict[str, Recording]) -> None:
    """Jaeger's page posts a file that it is given to this address; it answers with its own form of the trace."""
    for name in NAMES:
        path = stores.folder / f"{name}.trace.json"
        taken = post_json(stores.jaeger.ui + "/api/transform", json.loads(path.read_bytes()))
        assert [len(trace["spans"]) for trace in taken["data"]] == [stores.sent[recorded[name].trace_id]]


def test_jaegers_own_json_says_what_it_keeps_no_more(stores: Stores, recorded: dict[str, Recording]) -> None:
    trace_id = recorded["order-5xx"].trace_id
    (note,) = [n for n in stores.from_jaeger(trace_id, "api").notes if "keeps no more" in n]
    assert "times to the microsecond" in note
    assert stores.from_jaeger(trace_id, "api/v3 raw").notes == ()


def assert_same(recording: Recording) -> None:
    result = replay(recording)
    assert (result.verdict, result.divergences, result.why_not) == ("same", (), "")
    assert result.served.model > 0
    assert (result.unused.model, result.unused.tools) == (0, 0)


def content(run: Run) -> Run:
    """A run without the times of its spans, which Jaeger JSON cuts to microseconds."""
    return msgspec.structs.replace(run, mark=type(run.mark)(), marks=())


# ---- runs that no scenario thinks of


def wild_runs(count: int) -> list[Run]:
    """Runs of every shape, the same ones each time."""
    found: list[Run] = []

    @seed(20260101)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(runs())
    def collect(run: Run) -> None:
        found.append(run)

    collect()
    return found


def test_runs_of_every_shape_come_back_as_they_were_sent(stores: Stores) -> None:
    """Odd texts, wide integers, empty lists, runs cut short: decoded from each store as from the spans that were sent."""
    sent: dict[str, tuple[Run, tuple[Problem, ...]]] = {}
    for number, run in enumerate(wild_runs(120), 1):
        trace_id = f"{number:032x}"
        spans = [span for span in encode_run(run, trace_id=trace_id) if span.end_ns is not None]
        roots = [span for span in spans if span.parent_id is None]
        if not roots:
            continue  # OTLP knows only ended spans
        sent[trace_id] = decode_run(roots[0], [span for span in spans if span.parent_id is not None])
        stores.sent[trace_id] = len(spans)
        put(stores.sinks, spans)
    assert len(sent) > 40
    stores.settle()
    for trace_id, wanted in sent.items():
        assert_equal(stores.from_collector(trace_id), wanted, times=True)
        for form in JAEGER_FORMS:
            assert_equal(stores.from_jaeger(trace_id, form), wanted, times="v3" in form)


def put(sinks: Sequence[OtlpSink], spans: Sequence[Span]) -> None:
    for sink in sinks:
        for span in spans:
            sink.ended(span)


def assert_equal(found: Recording, wanted: tuple[Run, tuple[Problem, ...]], *, times: bool) -> None:
    """With a message of a line: pytest's own difference of two runs takes minutes."""
    (one,) = found.runs
    runs_: list[Any] = [run if times else content(run) for run in (wanted[0], one.run)]
    left, right = (msgspec.to_builtins(run) for run in runs_)
    assert list(differences(left, right, ""))[:3] == []
    assert one.problems == wanted[1]
