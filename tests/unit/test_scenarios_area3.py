"""What went wrong for others when they recorded and exported agent runs; each test is named by the id of its report."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kernel import (
    Agent,
    Budget,
    ModelError,
    ModelParams,
    OpenAIModel,
    Reply,
    ScriptedModel,
    ToolRegistry,
    Tracing,
    Usage,
)
from kernel.export.http import destination
from kernel.export.sdk import SdkSink
from kernel.export.sink import Limits, OtlpSink
from kernel.export.wire import CUT
from kernel.trace import semconv as sc
from kernel.trace.otlp import encode_span
from kernel.trace.otlp_json import decode_span
from kernel.trace.span import Event, Span
from replay.cli import main
from replay.loading import load
from replay.play.play import replay
from tests.e2e.otlp_server import OtlpServer, Reply as Answer
from tests.e2e.servers import free_port
from tests.helpers import act, calls, finish, play, registry

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
Command = Callable[..., tuple[int, str, str]]
LIMITS = Limits(delay_s=0.01, retry_initial_s=0.05, retry_max_s=0.2)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command; gives status, output, diagnostics."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


class App:
    """An application's provider, and the spans it got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.provider.shutdown()


def look(at: str = "order") -> str:
    """Look."""
    return f"seen {at}"


def spans_of(path: Path | None) -> list[Span]:
    assert path is not None
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    return [decode_span(json.dumps(span)) for span in document["scopeSpans"][0]["spans"]]


def record(path: Path, script: list[Any] | None = None, **options: Any) -> Any:
    tools = options.pop("tools", None) or registry(look)
    tracing = options.pop("trace", None) or Tracing(file=path, join=False)
    return play(script or [act("look"), finish("done")], tools, trace=tracing, **options).result


def received(server: OtlpServer, folder: Path) -> Path:
    """What a server took, as a file of OTLP protobuf."""
    path = folder / "received.pb"
    path.write_bytes(b"".join(taken.request.SerializeToString() for taken in server.taken))
    return path


# ---- attributes


def test_b097_none_is_left_out_without_a_warning_and_comes_back_as_none(
    app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def silent() -> None:
        """Return nothing."""

    path = tmp_path / "run.trace.json"
    with caplog.at_level(logging.WARNING):
        record(
            path,
            [act("silent"), act("missing"), finish("done")],
            tools=registry(silent),
            params=ModelParams(model="m", temperature=None),
            trace=Tracing(file=path, provider=app.provider, attributes={"tag": None}, join=False),
        )
    assert [one for one in caplog.records if one.name.startswith("opentelemetry")] == []
    assert all(value is not None for span in app.spans for value in span.attributes.values())
    (recording,) = load(path)
    ran, absent = (step.calls[0] for step in recording.runs[0].run.steps[:2])
    assert (ran.outcome, ran.result) == ("ok", None)
    assert (absent.outcome, absent.result) == ("unknown_tool", None)
    assert recording.runs[0].run.head.params.temperature is None


def test_b098_nested_arguments_are_in_the_exported_span_as_they_are_in_the_file(app: App, tmp_path: Path) -> None:
    def nested(query: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
        """Take nested arguments."""
        return [query, *rows]

    path = tmp_path / "run.trace.json"
    args = {"query": {"a": {"b": [1, None]}}, "rows": [{"c": 1.5}, {"d": [True]}]}
    record(
        path,
        [act("nested", **args), finish("done")],
        tools=registry(nested),
        trace=Tracing(file=path, provider=app.provider, join=False),
    )
    exported = {f"{span.get_span_context().span_id:016x}": span for span in app.spans}
    spans = spans_of(path)
    assert exported.keys() == {span.span_id for span in spans}
    for span in spans:
        copy = exported[span.span_id].attributes
        assert {k: list(v) if isinstance(v, tuple) else v for k, v in copy.items()} == span.attributes
    (call,) = [span for span in spans if span.attributes.get(sc.OPERATION) == sc.EXECUTE_TOOL]
    assert json.loads(call.attributes[sc.TOOL_ARGUMENTS]) == args


def test_b100_odd_results_leave_the_run_unaffected_and_are_recorded_by_type(tmp_path: Path) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

        def __iter__(self) -> Iterator[Any]:
            raise RuntimeError("no iteration")

    def when() -> Any:
        """Return a datetime."""
        return dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)

    def hostile() -> Any:
        """Return an object without a text."""
        return Hostile()

    path = tmp_path / "run.trace.json"
    result = record(path, [act("when"), act("hostile"), finish("done")], tools=registry(when, hostile))
    assert (result.ok, result.warnings) == (True, ())
    (recording,) = load(path)
    results = [step.calls[0].result for step in recording.runs[0].run.steps[:2]]
    assert results == ["2026-01-02T03:04:05+00:00", {"$unreadable": "Hostile", "error": "RuntimeError"}]
    assert replay(recording).verdict == "same"


# ---- export


def test_b102_a_result_beyond_the_receivers_limit_arrives_shortened_and_says_so(tmp_path: Path) -> None:
    def big() -> str:
        """Return 11 MB."""
        return "0123456789 " * 1_000_000

    path = tmp_path / "run.trace.json"
    with OtlpServer(body_limit=4 << 20) as server:
        sink = OtlpSink(server.url, spool=tmp_path / "spool", limits=LIMITS)
        record(
            path,
            [act("big"), finish("done")],
            tools=registry(big),
            trace=Tracing(file=path, sinks=[sink], join=False),
        )
        stats = sink.flush(30)
        assert (stats.waiting, stats.dropped, stats.rejected) == (0, 0, 0)
        (tool,) = [span for span in server.spans if span.name == "execute_tool big"]
        attributes = {pair.key: pair.value for pair in tool.attributes}
        assert 1 << 20 < len(attributes[sc.TOOL_RESULT].string_value) < 4 << 20
        assert sc.TOOL_RESULT in str(attributes[CUT])
        (copy,) = load(received(server, tmp_path))
    told = {(problem.attribute, problem.message) for run in copy.runs for problem in run.problems}
    assert told == {(sc.TOOL_RESULT, "was shortened or withheld when the span was sent")}
    whole = next(span for span in spans_of(path) if span.span_id == tool.span_id.hex())
    assert len(whole.attributes[sc.TOOL_RESULT]) == 11_000_000


@pytest.mark.parametrize("away", ["closed port", "never answers"])
def test_b104_a_run_takes_no_longer_for_a_collector_that_is_away(
    away: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with OtlpServer(default=Answer(hang=True)) as server:
        url = server.url if away == "never answers" else f"http://127.0.0.1:{free_port()}"
        sink = OtlpSink(url, timeout_s=3600.0, spool=tmp_path / "spool", limits=LIMITS)
        result = record(
            tmp_path / "run.trace.json",
            [*[act("look", at=str(n)) for n in range(4)], finish("done")],
            trace=Tracing(file=tmp_path / "run.trace.json", sinks=[sink], join=False),
        )
        assert result.ok  # a run that waited for an answer would take an hour
    if sink._outbox is not None:
        sink._outbox.flush(60, give_up=True)
        told = [one for one in caplog.records if "does not take spans" in one.getMessage()]
        assert len(told) == 1
    (recording,) = load(tmp_path / "run.trace.json")
    assert replay(recording).verdict == "same"


CHILD = f"""
import sys, os, time, signal; sys.path.insert(0, {str(ROOT)!r})
from tests.unit.test_scenarios_area3 import *
"""


def child(code: str, *args: str | Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "TRACEFIRST_SPOOL": str(args[0])}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_b105_the_process_ends_in_bounded_time_and_says_how_many_spans_wait(tmp_path: Path) -> None:
    with OtlpServer(default=Answer(hang=True)) as server:
        code = """
os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "3600000"
record(Path(sys.argv[1]) / "a.trace.json", trace=Tracing(otlp=sys.argv[2], join=False))
"""
        process = child(code, tmp_path, server.url)
        _, err = process.communicate(timeout=300)  # one that waited for the answer would take an hour
        assert process.returncode == 0
        assert "6 spans for" in err
        assert "wait in" in err


def test_b105_an_interrupted_process_ends_as_well(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
def slow() -> str:
    "Wait."
    print("in the tool", flush=True)
    time.sleep(3600)
    return ""
record(Path(sys.argv[1]) / "a.trace.json", [act("slow")], tools=registry(slow),
       trace=Tracing(file=Path(sys.argv[1]) / "a.trace.json", otlp=sys.argv[2], join=False))
"""
    process = child(code, tmp_path, f"http://127.0.0.1:{free_port()}")
    assert process.stdout is not None
    assert process.stdout.readline() == "in the tool\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)  # one that waited for the tool would take an hour
    assert "KeyboardInterrupt" in err
    assert "wait in" in err
    (recording,) = load(tmp_path / "a.trace.json")
    assert recording.runs[0].run.end is not None
    assert recording.runs[0].run.end.stop_reason == "cancelled"


def run_in_child(folder: Path, sink: OtlpSink) -> None:
    record(folder / "child.trace.json", trace=Tracing(directory=folder / "traces", sinks=[sink], join=False))
    sink.flush(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_b107_a_forked_child_sends_and_writes_its_own(tmp_path: Path) -> None:
    with OtlpServer() as server:
        sink = OtlpSink(server.url, spool=tmp_path / "spool", limits=LIMITS)
        tracing = Tracing(directory=tmp_path / "traces", sinks=[sink], join=False)
        record(tmp_path / "parent", trace=tracing)
        fork = multiprocessing.get_context("fork")
        children = [fork.Process(target=run_in_child, args=(tmp_path, sink)) for _ in range(3)]
        for process in children:
            process.start()
        record(tmp_path / "parent", trace=tracing)
        for process in children:
            process.join(30)
        assert [process.exitcode for process in children] == [0, 0, 0]
        assert sink.flush(10).waiting == 0
        files = list((tmp_path / "traces").rglob("*.trace.json"))
        assert len(files) == 5
        assert server.span_ids == Counter(span.span_id for path in files for span in spans_of(path))
        for path in files:
            assert replay(load(path)[0]).verdict == "same"


def test_b109_a_stop_signal_leaves_a_readable_trace_with_open_steps(tmp_path: Path, command: Command) -> None:
    code = """
count = []
def slow() -> str:
    "Wait in the third step."
    count.append(1)
    if len(count) == 3:
        print("third", flush=True)
        time.sleep(3600)
    return f"{len(count)}"
record(Path(sys.argv[1]) / "a.trace.json", [act("slow")] * 5, tools=registry(slow, volatile=True))
"""
    process = child(code, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "third\n"
    process.terminate()
    process.communicate(timeout=30)
    (recording,) = load(tmp_path / "a.trace.journal")
    steps = recording.runs[0].run.steps
    assert [step.decision is not None for step in steps] == [True, True, False]
    assert steps[2].calls[0].outcome == "unknown_outcome"
    status, out, _ = command("show", tmp_path / "a.trace.journal")
    assert status == 0
    assert "cut short" in out


# ---- the tree of spans


class Order:
    """A sink that checks that each span is started and ended once, children no later than parents."""

    def __init__(self) -> None:
        self.open: dict[str, Span] = {}
        self.ended_spans: list[Span] = []

    def started(self, span: Span) -> None:
        assert span.span_id not in self.open
        self.open[span.span_id] = span

    def event(self, span: Span, event: Event) -> None:
        assert span.span_id in self.open

    def ended(self, span: Span) -> None:
        del self.open[span.span_id]
        children = [one for one in self.open.values() if one.parent_id == span.span_id]
        assert children == []
        assert span.end_ns is not None
        self.ended_spans.append(span)

    def close(self) -> None:
        assert self.open == {}


class Stop(BaseException):
    """Neither an Exception nor a cancellation."""


@pytest.mark.parametrize("where", ["model", "model, fatal", "tool", "tool, fatal", "check", "cancel", "budget"])
def test_b111_every_span_is_ended_once_however_a_run_stops(where: str) -> None:
    order = Order()

    def tool() -> str:
        """Fail in some way."""
        if where == "tool":
            raise RuntimeError("broken")
        if where == "tool, fatal":
            raise SystemExit(3)
        return "ok"

    def check(answer: str, context: Any) -> None:
        if where == "check":
            raise RuntimeError("broken")

    class Model(ScriptedModel):
        async def complete(self, request: Any) -> Reply:
            if len(self.requests) == 1 and where.startswith("model"):
                raise Stop if "fatal" in where else ModelError("broken", retryable=False)
            if len(self.requests) == 1 and where == "cancel":
                raise asyncio.CancelledError
            return await super().complete(request)

    async def go() -> None:
        agent = Agent(tools=registry(tool), budget=Budget(max_steps=2 if where == "budget" else 9), finish_check=check)
        model = Model([act("tool"), finish("a"), finish("b"), finish("c")] if where != "budget" else [act("tool")] * 3)
        task = asyncio.ensure_future(agent.run("do it", llm=model, trace=Tracing(sinks=[order], join=False)))
        if where == "cancel":
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    try:
        asyncio.run(go())
    except (Stop, SystemExit):
        assert "fatal" in where
    assert order.open == {}
    assert order.ended_spans[-1].name == "invoke_agent agent"
    assert order.ended_spans[-1].attributes[sc.STOP_REASON]


def test_b113_a_run_with_gathered_tools_threads_and_a_nested_agent_is_one_trace(tmp_path: Path) -> None:
    """Also in a process that does not use OpenTelemetry: the nested run joins the tool call that it is made in."""
    tracing = Tracing(directory=tmp_path)
    tools = ToolRegistry()

    @tools.tool
    async def ask(what: str) -> str:
        """Ask another agent."""
        inner = Agent(name="inner", tools=registry(look))
        result = await inner.run(what, llm=ScriptedModel([act("look", at=what), finish(what)]), trace=tracing)
        return result.answer or ""

    tools.register()(look)
    script = [calls(("ask", {"what": "a"}), ("look", {"at": "b"}), ("ask", {"what": "c"})), "done"]
    result = asyncio.run(
        Agent(name="outer", tools=tools).run("do it", llm=ScriptedModel(script, protocol="tools"), trace=tracing)
    )
    paths = sorted(tmp_path.rglob("*.trace.json"))
    assert len(paths) == 3
    spans = {span.span_id: span for path in paths for span in spans_of(path)}
    assert {span.trace_id for span in spans.values()} == {result.trace_id}
    roots = [span for span in spans.values() if span.name == "invoke_agent inner"]
    assert sorted(json.loads(spans[root.parent_id or ""].attributes[sc.TOOL_ARGUMENTS])["what"] for root in roots) == [
        "a",
        "c",
    ]
    for path in paths:
        assert replay(load(path)[0]).verdict == "same"


def test_b114_users_spans_in_sync_and_async_tools_are_children_and_see_the_callers_context(app: App) -> None:
    from contextvars import ContextVar

    tenant: ContextVar[str] = ContextVar("tenant")
    tracer = app.provider.get_tracer("user")

    def in_thread() -> str:
        """Block."""
        with tracer.start_as_current_span("in thread"):
            return tenant.get()

    async def in_task() -> str:
        """Await."""
        await asyncio.sleep(0)
        with tracer.start_as_current_span("in task"):
            return tenant.get()

    tenant.set("seven")
    result = play(
        [act("in_thread"), act("in_task"), finish("done")],
        registry(in_thread, in_task),
        trace=Tracing(provider=app.provider, join=False),
    ).result
    assert [step.calls[0].result for step in result.steps[:2]] == ["seven", "seven"]
    names = {span.get_span_context().span_id: span.name for span in app.spans}
    parents = {span.name: names[span.parent.span_id] for span in app.spans if span.name.startswith("in ")}
    assert parents == {"in thread": "execute_tool in_thread", "in task": "execute_tool in_task"}


def test_b116_a_destination_that_is_named_twice_gets_each_span_once(app: App, tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    with OtlpServer() as server:
        first, second = (OtlpSink(server.url, spool=tmp_path / "spool", limits=LIMITS) for _ in range(2))
        sinks = [first, second, first, SdkSink(app.provider)]
        record(path, trace=Tracing(file=path, provider=app.provider, sinks=sinks, join=False))
        assert first.flush(10).waiting == 0
        ids = Counter(span.span_id for span in spans_of(path))
        assert server.span_ids == ids
        assert Counter(f"{span.get_span_context().span_id:016x}" for span in app.spans) == ids


def test_b118_a_trace_that_was_exported_twice_counts_once(tmp_path: Path, command: Command) -> None:
    """A file with every span twice: totals are of unique spans, and the repetition is pointed out."""
    once, twice = tmp_path / "run.trace.json", tmp_path / "twice.jsonl"
    record(once, usage=Usage(input_tokens=100, output_tokens=10))
    line = json.dumps(json.loads(once.read_bytes()))
    twice.write_text(f"{line}\n{line}\n")
    first, second = load(once)[0], load(twice)[0]
    assert second.runs == first.runs
    assert replay(second).verdict == "same"
    stats = [json.loads(command("stats", path, "--format", "json")[1]) for path in (once, twice)]
    assert stats[0] == stats[1]
    assert "200" in json.dumps(stats[0])
    assert second.notes == ("6 spans are in the file more than once, each time the same: counted once",)


def test_b118_the_same_file_is_sent_with_the_same_ids_each_time(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "run.trace.json"
    record(path)
    with OtlpServer() as server:
        sent = []
        for _ in range(2):
            before = len(server.spans)
            assert command(path, "--otlp", server.url)[0] == 0
            sent.append({span.span_id for span in server.spans[before:]})
        assert sent[0] == sent[1]
        assert {bytes.fromhex(span.span_id) for span in spans_of(path)} <= sent[0]


def test_b119_a_root_has_no_parent_or_the_callers_and_ids_are_whole(tmp_path: Path) -> None:
    def root(tracing: Tracing) -> Span:
        result = play([finish("done")], trace=tracing).result
        (found,) = [span for span in spans_of(result.trace_path) if span.name.startswith("invoke_agent")]
        assert (len(found.trace_id), len(found.span_id)) == (32, 16)
        return found

    alone = root(Tracing(directory=tmp_path))
    assert (alone.parent_id, alone.links) == (None, ())
    outside = trace.SpanContext(0x00F067AA0BA902B7, 0x00F067AA0BA902B8, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(outside)):
        joined, apart = root(Tracing(directory=tmp_path)), root(Tracing(directory=tmp_path, join=False))
    assert (joined.trace_id, joined.parent_id) == ("0" * 16 + "00f067aa0ba902b7", "00f067aa0ba902b8")
    assert apart.parent_id is None
    assert [(link.trace_id, link.span_id) for link in apart.links] == [
        ("0" * 16 + "00f067aa0ba902b7", "00f067aa0ba902b8")
    ]


# ---- files


def test_b122_the_sdks_console_form_is_loaded_or_refused_in_a_line(app: App, tmp_path: Path, command: Command) -> None:
    record(tmp_path / "run.trace.json", trace=Tracing(provider=app.provider, join=False))
    path = tmp_path / "console.json"
    path.write_text("\n".join(span.to_json() for span in app.spans))
    status, out, err = command(path)
    assert status in (0, 3)
    assert "Traceback" not in out + err
    if status == 3:
        assert "OTLP" in err
        assert len(err.splitlines()) <= 3


def test_b123_good_lines_are_loaded_and_the_bad_one_is_named(tmp_path: Path, command: Command) -> None:
    record(tmp_path / "run.trace.json")
    whole = json.dumps(json.loads((tmp_path / "run.trace.json").read_bytes()))
    path = tmp_path / "lines.jsonl"
    path.write_text(f"{whole}\n" + '{"resourceSpans": [{"scope' + f"\n{whole.replace('execute_tool', 'other')}\n\n")
    status, out, err = command(path)
    assert "2" in out + err
    assert "Traceback" not in err
    assert "line 2" in out + err
    assert status in (0, 1, 3)


@pytest.mark.parametrize(
    "held",
    [b"", b"null", b"123", b"[]", b"folder", gzip.compress(b"not a trace"), b"\x89PNG\r\n\x1a\n\x00\x00"],
    ids=["empty", "null", "123", "[]", "folder", "gzip", "PNG"],
)
def test_b124_what_is_no_trace_is_refused_in_a_line(held: bytes, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "file.json"
    if held == b"folder":
        path.mkdir()
    else:
        path.write_bytes(held)
    status, out, err = command(path)
    assert status in (2, 3)
    assert out == ""
    assert 0 < len(err.strip().splitlines()) <= 3
    assert "Traceback" not in err


def test_b127_nanoseconds_are_exact_at_every_stage(tmp_path: Path) -> None:
    exact = 1_700_000_000_000_000_123
    span = Span(trace_id="1" * 32, span_id="2" * 16, name="step", start_ns=exact, end_ns=exact + 1)
    written = encode_span(span)
    assert json.loads(written)["startTimeUnixNano"] == str(exact)  # text, which no JavaScript parser rounds
    assert decode_span(written) == span
    with OtlpServer() as server:
        sink = OtlpSink(server.url, spool=tmp_path, limits=LIMITS)
        sink.ended(span)
        assert sink.flush(10).waiting == 0
        assert [(one.start_time_unix_nano, one.end_time_unix_nano) for one in server.spans] == [(exact, exact + 1)]


def test_b129_several_traces_are_listed_and_none_is_chosen_or_merged(tmp_path: Path, command: Command) -> None:
    lines, ids = [], []
    for number in range(3):
        path = tmp_path / f"{number}.trace.json"
        ids.append(record(path, [act("look", at=str(number)), finish(f"answer {number}")]).trace_id)
        lines.append(json.loads(path.read_bytes()))
    mixed = []
    for position in range(6):
        for document in lines:
            (resource,) = document["resourceSpans"]
            (scope,) = resource["scopeSpans"]
            if position < len(scope["spans"]):
                one = {**resource, "scopeSpans": [{**scope, "spans": [scope["spans"][position]]}]}
                mixed.append(json.dumps({"resourceSpans": [one]}))
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(mixed))
    status, _, err = command(path)
    assert status == 2
    assert all(trace_id[:8] in err for trace_id in ids)
    assert "--trace" in err
    for number, trace_id in enumerate(ids):
        (recording,) = load(path, trace_id=trace_id)
        run = recording.runs[0].run
        assert run.end is not None
        assert run.end.answer == f"answer {number}"
        assert command(path, "--trace", trace_id)[0] == 0
    assert command(path, "--all")[0] == 0


def test_b130_a_trace_of_five_thousand_spans_is_shown_folded(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "long.trace.json"
    script = [act("look", at=str(number)) for number in range(1250)] + [finish("done")]
    record(path, script, budget=Budget(max_steps=2000))
    assert len(spans_of(path)) > 3700
    status, out, _ = command(path)
    assert status == 0
    assert len(out.splitlines()) < 60
    status, out, _ = command("show", path, "--steps", "3-5")
    assert status == 0
    assert len(out.splitlines()) < 60


# ---- what leaves the machine


def test_b132_no_content_leaves_the_machine_without_being_asked_for(tmp_path: Path) -> None:
    assert destination("http://127.0.0.1:4318", environ={}) is not None
    away = destination("https://collector.example.com:4318", environ={})
    assert away is not None
    assert not away.content
    path = tmp_path / "run.trace.json"
    with OtlpServer() as server:
        sink = OtlpSink(server.url, content=False, spool=tmp_path / "spool", limits=LIMITS)
        record(
            path,
            [act("look", thought="the private thought", at="private argument"), finish("private answer")],
            task="a private task",
            system="a private prompt",
            trace=Tracing(file=path, sinks=[sink], join=False),
        )
        assert sink.flush(10).waiting == 0
        assert len(server.spans) == len(spans_of(path))
        assert "private" not in str(server.spans)
        (copy,) = load(received(server, tmp_path))
    result = replay(copy)
    assert result.verdict == "not_checked"  # and never `same`: every lost text is named, nothing is guessed
    messages = {problem.message for run in copy.runs for problem in run.problems}
    assert messages == {"was shortened or withheld when the span was sent"}
    assert {sc.INPUT_MESSAGES, sc.OUTPUT_MESSAGES} <= {p.attribute for run in copy.runs for p in run.problems}
    assert path.read_text().count("private") > 5  # the file is this machine's own, and whole


def test_b134_a_failed_attempt_records_no_client_option(tmp_path: Path) -> None:
    """The key has no form that a mask would know: it is nowhere because no client option is recorded at all."""
    key = "plain-words-that-are-a-key"
    model = OpenAIModel(f"http://127.0.0.1:{free_port()}/v1", model="m", api_key=key)
    path = tmp_path / "run.trace.json"
    agent = Agent(budget=Budget(model_retries=0))
    result = asyncio.run(agent.run("do it", llm=model, trace=Tracing(file=path, mask=False, join=False)))
    assert result.stop_reason == "model_error"
    (recording,) = load(path)
    assert recording.runs[0].run.steps[0].chat is not None
    assert len(recording.runs[0].run.steps[0].chat.attempts) == 1
    assert key not in path.read_text() + repr(result) + repr(model) + result.detail


ODD = ["[/bold]", "[=1,state=x]", "[red]", '[{"a": [1]}]', "[link=x]y[/link]"]


@pytest.mark.parametrize("text", ODD)
def test_b135_markup_in_outputs_is_shown_as_it_is(text: str, tmp_path: Path, command: Command) -> None:
    def odd() -> str:
        """Return markup."""
        return text

    path, other = tmp_path / "run.trace.json", tmp_path / "other.trace.json"
    record(path, [act("odd"), finish(text)], tools=registry(odd))
    record(other, [act("odd"), finish("plain")], tools=registry(odd))
    status, out, _ = command("show", path, "--steps", "1", "-v")
    assert status == 0
    assert text in out.replace('\\"', '"')
    status, out, _ = command("diff", path, other)
    assert status == 1
    assert text.replace('"', "") in out.replace('\\"', "").replace('"', "")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_b137_a_narrow_console_gets_a_plain_report_and_a_closed_pipe_ends_quietly(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.trace.json"
    record(path, [act("look", at="注文 😀"), finish("é 完了 ✓")], task="调查 😀")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-c", "from replay.cli import main; main()", "show", str(path)]
    done = subprocess.run(run, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(encoding)
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
