"""Recording in production, through the real Collector: nothing lost in size, in number, in outages, by kills; nothing leaked."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ContextLimits, OpenAIModel, Reply, RunResult, ScriptedModel, ToolRegistry, Tracing
from kernel.export.sink import Limits, OtlpSink, shutdown
from kernel.record.canonical import compact_json
from kernel.trace.journal import JOURNAL_SUFFIX, SUFFIX
from replay.cli import main
from replay.loading import load
from replay.play.play import replay
from replay.play.recording import Recording
from tests.planted_secrets import PLANTED, LeakyRun, leaks

from .model_server import running_model_server
from .otlp_server import OtlpServer, Reply as Answer
from .servers import CollectorServer, free_port, running_collector, servers_available, wait_until
from .test_export_collector import Relay

_unavailable = servers_available()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_unavailable is not None, reason=str(_unavailable))]

ROOT = Path(__file__).parents[2]
LIMITS = Limits(delay_s=0.05, retry_initial_s=0.1, retry_max_s=0.5)
KILLS = 200 if os.environ.get("TRACEFIRST_SOAK") else 15


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorServer]:
    """One a test: its file stays small."""
    upstream = f"http://127.0.0.1:{free_port()}"
    with running_collector("agent", folder=tmp_path / "agent", upstream=upstream) as server:
        yield server


def in_file(server: CollectorServer) -> dict[str, Counter[str]]:
    """How often each span stands in the Collector's files, by trace."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(server.fixtures.parent.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            for resource in json.loads(line)["resourceSpans"]:
                for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                    found.setdefault(span["traceId"], Counter())[span["spanId"]] += 1
    return found


def spans_of(path: Path) -> set[str]:
    """The spans of a trace file."""
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    return {span["spanId"] for span in document["scopeSpans"][0]["spans"]}


def assert_once(paths: dict[str, Path], server: CollectorServer) -> None:
    """Every span of these trace files stands in the Collector's files once."""
    wanted = {trace_id: spans_of(path) for trace_id, path in paths.items()}
    there = lambda: all(wanted[t] <= found.get(t, {}).keys() for found in [in_file(server)] for t in wanted)  # noqa: E731
    wait_until(there, what="all spans in the Collector's file")
    found = in_file(server)
    assert all(found[trace_id] == Counter(spans) for trace_id, spans in wanted.items())


def assert_same(recording: Recording) -> None:
    result = replay(recording)
    assert (result.verdict, result.divergences, result.why_not) == ("same", (), "")


class Steps(ScriptedModel):
    """Calls `look` so often, then finishes."""

    def __init__(self, count: int) -> None:
        look = [compact_json({"action": "look", "args": {"at": number}}) for number in range(count - 1)]
        super().__init__([*look, compact_json({"action": "finish", "args": {"answer": "done"}})])


def agent(text: str = "", **options: Any) -> Agent:
    tools = ToolRegistry()

    @tools.tool
    def look(at: int) -> str:
        """Look."""
        return f"{at} {text}"

    return Agent(name="production", tools=tools, budget=Budget(max_steps=10_000, max_prompt_tokens=None), **options)


def go(model: Any, tracing: Tracing, text: str = "") -> RunResult:
    return asyncio.run(agent(text).run("do it", llm=model, trace=tracing))


# ---- size and number


def test_a_run_with_a_tool_result_of_ten_megabytes(collector: CollectorServer, tmp_path: Path) -> None:
    text = "".join(f'line {number} of a log with "quotes" and ümläuts\n' for number in range(210_000))
    assert len(text.encode()) > 10_000_000
    sink = OtlpSink(collector.otlp_http, spool=tmp_path / "spool", limits=LIMITS)
    result = go(Steps(3), Tracing(file=tmp_path / "big.trace.json", sinks=[sink]), text)
    assert (result.ok, result.warnings) == (True, ())
    assert sink.flush(60).waiting == 0
    assert_once({result.trace_id: tmp_path / "big.trace.json"}, collector)
    (recording,) = load(collector.fixtures, trace_id=result.trace_id)
    assert recording.runs[0].run.steps[0].calls[0].result == f"0 {text}"
    assert_same(recording)


def test_a_run_of_two_thousand_steps(collector: CollectorServer, tmp_path: Path) -> None:
    sink = OtlpSink(collector.otlp_http, spool=tmp_path / "spool", limits=LIMITS)
    result = go(Steps(2000), Tracing(file=tmp_path / "long.trace.json", sinks=[sink]), "word " * 40)
    assert (result.ok, len(result.steps), result.warnings) == (True, 2000, ())
    assert sink.flush(60).waiting == 0
    assert_once({result.trace_id: tmp_path / "long.trace.json"}, collector)
    assert_same(load(collector.fixtures, trace_id=result.trace_id)[0])


def record_many(folder: Path, url: str, count: int) -> None:
    """So many runs at once in threads of this process; returns when all has arrived."""
    sink = OtlpSink(url, spool=folder / "spool", limits=LIMITS)
    tracing = Tracing(directory=folder / "traces", sinks=[sink])
    threads = [threading.Thread(target=go, args=(Steps(12), tracing, f"{n} " * 50)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.flush(60).waiting == 0


def test_fifty_runs_at_once_in_threads_and_processes(collector: CollectorServer, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=record_many, args=(tmp_path, collector.otlp_http, 15)) for _ in range(2)]
    for process in processes:
        process.start()
    record_many(tmp_path, collector.otlp_http, 20)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    paths = {path.name.removesuffix(SUFFIX)[-32:]: path for path in (tmp_path / "traces").rglob(f"*{SUFFIX}")}
    assert len(paths) == 50
    assert_once(paths, collector)
    for trace_id in paths:
        assert_same(load(collector.fixtures, trace_id=trace_id)[0])


# ---- outages


_connecting: list[str] = []
"""The threads that opened a connection, by name."""


def _note_connection(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        _connecting.append(threading.current_thread().name)


sys.addaudithook(_note_connection)  # stays for the process, and costs a comparison


@pytest.mark.parametrize("outage", ["down", "hanging", "503"])
def test_an_outage_delays_no_step_and_loses_no_span(outage: str, tmp_path: Path) -> None:
    """The receiver is scripted, as a real Collector does not hang on demand; afterwards it takes everything, once."""
    answers = {"hanging": Answer(hang=True), "503": Answer(status=503)}
    port = free_port()
    sink = OtlpSink(f"http://127.0.0.1:{port}", timeout_s=0.5, spool=tmp_path / "spool", limits=LIMITS)
    _connecting.clear()
    with nullcontext() if outage == "down" else OtlpServer(port=port, default=answers[outage]):
        for number in range(3):
            trace = Tracing(file=tmp_path / f"{outage}-{number}.trace.json", sinks=[sink])
            result = go(Steps(200), trace, "word " * 100)
        sink.flush(0.1)
    assert set(_connecting) == {"tracefirst-otlp-sender"}, "no step has to do with the network"
    assert (result.ok, len(result.steps)) == (True, 200)
    assert [warning for warning in result.warnings if "wait for" not in warning] == []
    assert shutdown(1.0).waiting > 0
    with OtlpServer(port=port) as server:
        assert sink.flush(30).waiting == 0
        sent = [span for n in range(3) for span in spans_of(tmp_path / f"{outage}-{n}.trace.json")]
        assert server.span_ids == Counter(sent)


def test_a_collector_that_restarts_during_a_run_has_every_span_once(tmp_path: Path) -> None:
    upstream = f"http://127.0.0.1:{free_port()}"
    with Relay() as relay:
        sink = OtlpSink(relay.url, timeout_s=2, spool=tmp_path / "spool", limits=LIMITS)
        away, back = threading.Event(), threading.Event()

        class Interrupted(Steps):
            async def complete(self, request: Any) -> Reply:
                if len(self.requests) == 200:
                    away.set()
                    await asyncio.to_thread(back.wait, 30)
                return await super().complete(request)

        results: list[RunResult] = []
        tracing = Tracing(file=tmp_path / "run.trace.json", sinks=[sink])
        model = Interrupted(500)
        thread = threading.Thread(target=lambda: results.append(go(model, tracing, "word " * 50)))
        with running_collector("agent", folder=tmp_path / "agent", upstream=upstream) as first:
            relay.target = first.otlp_http
            thread.start()
            assert away.wait(30)
            wait_until(lambda: sink.stats.sent > 0, what="spans before the restart")
        back.set()
        wait_until(lambda: len(model.requests) > 300, what="steps while the Collector is away")
        with running_collector("agent", folder=tmp_path / "agent", upstream=upstream) as second:
            relay.target = second.otlp_http
            thread.join(60)
            assert sink.flush(30).waiting == 0
            (result,) = results
            assert (result.ok, len(result.steps)) == (True, 500)
            assert_once({result.trace_id: tmp_path / "run.trace.json"}, second)
            assert_same(load(second.fixtures, trace_id=result.trace_id)[0])


# ---- kills


def endless(folder: Path, url: str) -> None:
    """Runs until it is killed."""
    sink = OtlpSink(url, spool=folder / "spool", limits=Limits(delay_s=0.01))
    model = Steps(5000)
    (folder / "ready").touch()
    go(model, Tracing(directory=folder / "traces", sinks=[sink]), "word " * 20)


def test_what_a_killed_process_had_sent_is_a_partial_run_without_its_root(
    collector: CollectorServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(7)
    partial = repeated = 0
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.e2e.test_production import *\n"
    for trial in range(KILLS):
        folder = tmp_path / f"{trial}"
        folder.mkdir()
        command = [sys.executable, "-c", f"{code}endless(Path(sys.argv[1]), sys.argv[2])", folder, collector.otlp_http]
        process = subprocess.Popen(command)
        wait_until((folder / "ready").exists, what="the process")
        time.sleep(dice.uniform(0.0, 0.25))  # the point of the kill, not a wait
        process.send_signal(signal.SIGKILL)
        process.wait()
        journals = list((folder / "traces").rglob(f"*{JOURNAL_SUFFIX}"))
        if not journals:
            continue  # killed before the run began
        (journal,) = journals
        lines = [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]]
        ended = {line["e"]["spanId"] for line in lines if "e" in line}
        started = next((line["s"]["traceId"] for line in lines if "s" in line), None)
        if started is None:
            continue
        (recording,) = load(journal)
        assert recording.runs[0].run.end is None
        assert replay(recording).verdict in ("same", "not_checked")  # not checked: no step came so far

        sink = OtlpSink(collector.otlp_http, spool=folder / "spool", limits=LIMITS)  # the next process
        assert sink.flush(20).waiting == 0
        sent = in_file(collector).get(started, Counter())
        assert sent.keys() <= ended
        assert set(sent.values()) <= {
            1,
            2,
        }  # killed between the server's answer and the note of it, they are sent again
        repeated += 2 in sent.values()
        if not sent:
            continue
        (copy,) = load(collector.fixtures, trace_id=started)
        assert not [note for note in copy.notes if "different content" in note]
        if not copy.runs:
            continue
        partial += 1
        result = replay(copy)
        assert result.verdict == "not_checked"
        assert "has lost its root span" in result.why_not
        with pytest.raises(SystemExit):
            main(["show", str(collector.fixtures), "--trace", started])
        shown = capsys.readouterr().out
        assert "cut short" in shown
        assert ("look" in shown) is any(step.decision is not None for step in copy.runs[0].run.steps)
    print(f"{KILLS} kills: {partial} partial runs in the Collector's file, {repeated} of them with spans sent again")
    assert partial > KILLS // 3
    assert repeated <= KILLS // 3 + 1


# ---- secrets, and the trace of a larger system


def test_forty_secrets_are_not_in_the_collectors_file(collector: CollectorServer, tmp_path: Path) -> None:
    sink = OtlpSink(collector.otlp_http, spool=tmp_path / "spool", limits=LIMITS)
    runs = {}
    for name, (template, secret) in PLANTED.items():
        path = tmp_path / f"{len(runs)}.trace.json"
        leaky = LeakyRun(template.format(secret), limit=700, usage=False)
        runs[name] = leaky.run(Tracing(file=path, sinks=[sink], join=False), ids_of=name), path
    assert sink.flush(30).waiting == 0
    assert_once({result.trace_id: path for result, path in runs.values()}, collector)
    held = collector.fixtures.read_bytes()
    log = collector.log.read_bytes()
    for name, (_, secret) in PLANTED.items():
        assert leaks(secret, {"the Collector's file": held, "its log": log}) == []
        (recording,) = load(collector.fixtures, trace_id=runs[name][0].trace_id)
        assert_same(recording)


def test_the_model_server_gets_the_traceparent_of_the_chat_span(tmp_path: Path) -> None:
    script = [
        {"tool_calls": [{"name": "look", "arguments": '{"at": 1}', "id": "c1"}]},
        {"text": "done"},
    ]
    path = tmp_path / "run.trace.json"
    with running_model_server(script) as server:
        model = OpenAIModel(base_url=server.base_url, api_key="none", model="scripted-1")
        result = asyncio.run(agent(context=ContextLimits()).run("do it", llm=model, trace=path))
        assert result.ok
        sent = [{k.lower(): v for k, v in entry["headers"].items()}["traceparent"] for entry in server.requests()]
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    chats = [span for span in document["scopeSpans"][0]["spans"] if span["name"].startswith("chat")]
    assert sent == [f"00-{span['traceId']}-{span['spanId']}-01" for span in chats]
