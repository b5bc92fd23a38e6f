"""Where traces go: files that are never written over, disks that fail, many writers at once, and the caller's own trace."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context as otel_context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from kernel import Agent, ConfigError, Reply, ScriptedModel, ToolRegistry, Tracing, Usage
from kernel.ambient import outgoing_headers
from kernel.export.sink import Limits, OtlpSink
from kernel.trace import semconv as sc
from kernel.trace.journal import SUFFIX, journal_of
from kernel.trace.span import Event, Span
from kernel.tracing import tracing_from
from replay.loading import load
from replay.play.play import replay
from tests.e2e.otlp_server import OtlpServer
from tests.helpers import act, calls, counting, finish, play, registry

ROOT = Path(__file__).parents[2]
DAY_NS = 86_400 * 10**9


def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


SCRIPT = [act("look", at="order"), finish("done")]


def run(target: Any, **options: Any) -> Any:
    return play(SCRIPT, registry(look), trace=target, **options).result


def assert_same(path: Path) -> None:
    (recording,) = load(path)
    assert replay(recording).verdict == "same"


# ---- forms of `trace`


def test_a_folder_gets_a_file_a_run_in_a_folder_a_day(tmp_path: Path) -> None:
    result = run(tmp_path, **counting())
    assert result.trace_path == tmp_path / "2026-01-01" / f"agent-{result.trace_id}{SUFFIX}"
    assert_same(result.trace_path)
    assert [path.name for path in result.trace_path.parent.iterdir()] == [result.trace_path.name]


@pytest.mark.parametrize("name", ["run.trace.json", "run.json"])
@pytest.mark.parametrize("form", [str, Path])
def test_a_name_that_ends_in_json_is_a_file(form: Any, name: str, tmp_path: Path) -> None:
    result = run(form(tmp_path / name))
    assert result.trace_path == tmp_path / "run.trace.json"
    assert_same(result.trace_path)


def test_false_and_an_empty_environment_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for target in (False, None):
        assert run(target).trace_path is None
    assert list(tmp_path.iterdir()) == []
    assert run(True).trace_path.parts[0] == "traces"


def test_the_environment_names_a_folder_and_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEFIRST_TRACES", str(tmp_path))
    assert run(None).trace_path.is_relative_to(tmp_path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    tracing = tracing_from(None)
    assert tracing is not None
    assert (tracing.directory, tracing.otlp) == (tmp_path, "http://localhost:4318")
    for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            tracing = tracing_from(None)
            assert tracing is not None
            assert tracing.otlp is None


def test_what_is_no_target_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"trace is int: give a folder, a file \*\.trace\.json, a Tracing or False"):
        run(7)
    with pytest.raises(ConfigError, match="a directory or a file, not both"):
        Tracing(directory="a", file="b.trace.json")


def test_an_endpoint_that_cannot_work_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an http or https URL"):
        run(Tracing(file=tmp_path / "run.trace.json", otlp="nonsense"))
    assert list(tmp_path.iterdir()) == []


# ---- files that are there already


def refused(tracing: Any) -> str:
    """The refusal; the model must not have been asked."""
    model = ScriptedModel(SCRIPT)
    with pytest.raises(ConfigError) as refusal:
        asyncio.run(Agent(tools=registry(look)).run("do it", llm=model, trace=tracing))
    assert model.requests == []
    return str(refusal.value)


def test_a_trace_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    tracing = Tracing(file=path)
    run(tracing)
    held = path.read_bytes()
    message = refused(tracing)
    assert (
        message == f"the trace file {path} is there already and is not written over: move it away, or give another file"
    )
    assert path.read_bytes() == held
    assert [one.name for one in tmp_path.iterdir()] == ["run.trace.json"]


def test_the_journal_of_a_killed_run_is_kept_and_named(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    journal = journal_of(path)
    journal.write_bytes(b"what a killed run left")
    message = refused(path)
    assert message == (
        f"{journal} is the journal of a run that goes on or was killed (`replay {journal}` reads it): move it away, or "
        "give another file"
    )
    assert journal.read_bytes() == b"what a killed run left"


def test_in_a_folder_a_name_that_is_taken_gets_digits(tmp_path: Path) -> None:
    paths = [run(tmp_path, **counting("equal")).trace_path for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths:
        assert_same(path)
    assert paths[1].name.startswith(paths[0].name.removesuffix(SUFFIX))


def test_what_no_other_disk_would_mend_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "cannot be created" in refused(tmp_path / "file" / "run.trace.json")
    assert "cannot be created" in refused(tmp_path / "file")
    assert "File name too long" in refused(tmp_path / f"{'x' * 300}.json")


# ---- disks that fail


def child(code: str, *args: str | Path) -> dict[str, Any]:
    """What Python code prints as JSON, in a process of its own."""
    head = f"import sys, os; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.unit.test_tracing import *\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code, *map(str, args)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


FULL = """
import resource
path, lifted = Path(sys.argv[1]), sys.argv[2] == "lifted"
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
def look(at):
    "Fills the disk."
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.parent.joinpath("run.trace.journal").stat().st_size + 100, hard))
    return at
def check(answer, context):
    if lifted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
script = [act("look", at="x" * 3000), act("look", at="y"), finish("done")]
result = play(script, registry(look), trace=path, finish_check=check).result
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(json.dumps({"stop": result.stop_reason, "steps": len(result.steps), "warnings": result.warnings,
                  "path": str(result.trace_path)}))
"""


def test_a_disk_that_is_full_changes_no_run_and_the_result_says_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    told = child(FULL, path, "full")
    assert (told["stop"], told["steps"]) == ("finish", 3)
    (warning,) = told["warnings"]
    assert warning.startswith("Journal: OSError: ")
    assert f"what is there: {journal_of(path)}" in warning
    assert told["path"] == str(journal_of(path))
    (recording,) = load(journal_of(path))
    assert recording.runs[0].run.end is None
    assert not list(tmp_path.glob(".*"))


def test_a_disk_that_has_room_again_at_the_end_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    told = child(FULL, path, "lifted")
    assert (told["stop"], told["warnings"], told["path"]) == ("finish", [], str(path))
    assert_same(path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


READ_ONLY = """
folder = Path(sys.argv[1])
run(False)
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
result = run(folder / "traces")
print(json.dumps({"ok": result.ok, "warnings": result.warnings, "path": result.trace_path}))
"""


def test_a_folder_that_cannot_be_written_changes_no_run(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    closed = tmp_path / "closed"
    closed.mkdir()
    told = child(READ_ONLY, closed)
    assert (told["ok"], told["path"]) == (True, None)
    (warning,) = told["warnings"]
    assert warning.startswith(f"no trace file: {closed / 'traces'}")
    assert warning.endswith("Permission denied")


class Failing:
    """A sink that fails at one of its methods."""

    def __init__(self, method: str) -> None:
        self._method = method

    def _called(self, method: str) -> None:
        if method == self._method:
            raise OSError("the sink is broken")

    def started(self, span: Span) -> None:
        self._called("started")

    def event(self, span: Span, event: Event) -> None:
        self._called("event")

    def ended(self, span: Span) -> None:
        self._called("ended")

    def close(self) -> None:
        self._called("close")


@pytest.mark.parametrize("method", ["started", "ended", "close"])
def test_a_sink_that_fails_is_named_and_the_others_go_on(method: str, tmp_path: Path) -> None:
    result = run(Tracing(file=tmp_path / "run.trace.json", sinks=[Failing(method)]))
    assert result.ok
    assert result.warnings == ("Failing: OSError: the sink is broken",)
    assert_same(result.trace_path)


def test_each_line_made_durable_gives_the_same_file(tmp_path: Path) -> None:
    files = [
        run(Tracing(file=tmp_path / f"{fsync}.trace.json", fsync=fsync), **counting()).trace_path.read_bytes()
        for fsync in (False, True)
    ]
    assert files[0] == files[1]


# ---- many writers, and what is kept


def write_runs(folder: Path, count: int) -> None:
    for _ in range(count):
        assert run(folder).warnings == ()


def test_threads_and_processes_write_to_one_folder_at_once(tmp_path: Path) -> None:
    """Every run has its own whole file, and nothing else is left."""
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=write_runs, args=(tmp_path, 8)) for _ in range(3)]
    threads = [threading.Thread(target=write_runs, args=(tmp_path, 5)) for _ in range(12)]
    for worker in (*processes, *threads):
        worker.start()
    for worker in (*processes, *threads):
        worker.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 * 8 + 12 * 5
    for path in files:
        assert_same(path)


# ---- copies


def test_the_result_says_what_a_collector_refused(tmp_path: Path) -> None:
    with OtlpServer() as server:
        server.script(400)
        sink = OtlpSink(server.url, spool=tmp_path / "spool", limits=Limits(delay_s=0.01))
        tracing = Tracing(directory=tmp_path / "traces", sinks=[sink])
        told = list(run(tracing).warnings)
        sink.flush(10)
        told += run(tracing).warnings
        (warning,) = told
        assert re.match(rf"{re.escape(server.url)}/v1/traces refused \d+ spans: HTTP 400", warning)
        sink.flush(10)
        assert run(tracing).warnings == ()
        assert sink.flush(10).waiting == 0


def test_the_result_says_what_waits_for_a_collector_that_is_away(tmp_path: Path) -> None:
    with OtlpServer() as server:
        server.script(*[503] * 50)
        sink = OtlpSink(server.url, spool=tmp_path / "spool", limits=Limits(delay_s=0.01, retry_initial_s=30))
        tracing = Tracing(directory=tmp_path / "traces", sinks=[sink])
        run(tracing)
        server.wait_for(lambda: server.requests > 0)
        sink.flush(0.1)
        (warning,) = run(tracing).warnings
        assert re.match(r"\d+ spans wait for .*, which does not take them: HTTP 503", warning)
        assert (sink.stats.waiting, sink.stats.dropped) == (12, 0)


def test_metrics_of_runs_go_to_the_meter_provider(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    run(Tracing(metrics=provider), usage=Usage(input_tokens=7, output_tokens=3))
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.inference_calls",
        "gen_ai.invoke_agent.tool_calls",
    } <= metrics.keys()
    tokens: Any = metrics["gen_ai.client.token.usage"].data
    assert sorted(point.sum for point in tokens.data_points) == [6, 14]
    provider.shutdown()


# ---- joining a larger system


class App:
    """An application with a provider of its own."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("app")

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.provider.shutdown()


def hex_id(span: Any) -> str:
    return f"{span.get_span_context().span_id:016x}"


def test_a_run_joins_the_callers_trace_and_leaves_everything_else_alone(app: App, tmp_path: Path) -> None:
    before = trace.get_tracer_provider()
    seen: list[Any] = []

    def tool() -> str:
        """Look at what is ambient."""
        seen.append(baggage.get_all())
        return "ok"

    token = otel_context.attach(baggage.set_baggage("tenant", "7"))
    try:
        with app.tracer.start_as_current_span("request") as request:
            result = play([act("tool"), finish("done")], registry(tool), trace=Tracing(directory=tmp_path)).result
            assert trace.get_current_span() is request
            assert baggage.get_all() == {"tenant": "7"}
    finally:
        otel_context.detach(token)
    assert trace.get_tracer_provider() is before
    assert seen == [{"tenant": "7"}]
    assert result.trace_id == f"{request.get_span_context().trace_id:032x}"
    (recording,) = load(result.trace_path)
    root = next(span for span in spans_of(result.trace_path) if span["name"].startswith("invoke_agent"))
    assert root["parentSpanId"] == hex_id(request)
    assert replay(recording).verdict == "same"
    assert [span.name for span in app.exporter.get_finished_spans()] == ["request"]


def spans_of(path: Path) -> list[dict[str, Any]]:
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    return list(document["scopeSpans"][0]["spans"])


def test_runs_in_one_span_of_the_caller_have_a_file_each(app: App, tmp_path: Path) -> None:
    with app.tracer.start_as_current_span("request"):
        paths = {run(tmp_path).trace_path for _ in range(3)}
    assert len(paths) == 3
    for path in paths:
        assert_same(path)


def test_users_own_spans_nest_under_the_tool_call_they_were_made_in(app: App, tmp_path: Path) -> None:
    """In a task, in a thread, in tools that run together, and in the model; all of one trace, by the app's provider."""
    tools = ToolRegistry()

    @tools.tool
    async def in_task(name: str) -> str:
        """Await."""
        await asyncio.sleep(0)
        with app.tracer.start_as_current_span(f"user {name}"):
            await asyncio.sleep(0.001)
        return name

    @tools.tool
    def in_thread(name: str) -> str:
        """Block."""
        with app.tracer.start_as_current_span(f"user {name}"):
            return name

    class Asked(ScriptedModel):
        async def complete(self, request: Any) -> Reply:
            with app.tracer.start_as_current_span(f"http {len(self.requests)}"):
                return await super().complete(request)

    script = [
        calls(("in_task", {"name": "a"}), ("in_thread", {"name": "b"}), ("in_task", {"name": "c"})),
        calls(("in_thread", {"name": "d"})),
        "done",
    ]

    async def check(answer: str, context: Any) -> bool:
        with app.tracer.start_as_current_span("user check"):
            await asyncio.sleep(0)
        return True

    model = Asked(script, protocol="tools")
    tracing = Tracing(provider=app.provider, directory=tmp_path)
    result = asyncio.run(Agent(tools=tools, finish_check=check).run("do it", llm=model, trace=tracing))
    assert result.ok
    spans = {hex_id(span): span for span in app.exporter.get_finished_spans()}
    assert len({span.get_span_context().trace_id for span in spans.values()}) == 1  # type: ignore[union-attr]
    for name in "abcd":
        above = app.span(f"user {name}").parent
        assert above is not None
        parent = spans[f"{above.span_id:016x}"]
        assert parent.name == ("execute_tool in_thread" if name in "bd" else "execute_tool in_task")
        assert json.loads(str((parent.attributes or {})[sc.TOOL_ARGUMENTS])) == {"name": name}
    above = app.span("user check").parent
    assert above is not None
    assert spans[f"{above.span_id:016x}"].name == "step"
    for number in range(3):
        above = app.span(f"http {number}").parent
        assert above is not None
        assert spans[f"{above.span_id:016x}"].name == "chat scripted-model"
    assert not trace.get_current_span().get_span_context().is_valid
    assert dict(outgoing_headers.get()) == {}


def test_model_calls_carry_the_traceparent_of_their_chat_span(tmp_path: Path) -> None:
    sent: list[str] = []

    class Asked(ScriptedModel):
        async def complete(self, request: Any) -> Reply:
            sent.append(outgoing_headers.get()["traceparent"])
            return await super().complete(request)

    work = Agent(tools=registry(look)).run("do it", llm=Asked(SCRIPT), trace=tmp_path)
    path = asyncio.run(work).trace_path
    assert path is not None
    chats = [span for span in spans_of(path) if span["name"].startswith("chat")]
    assert sent == [f"00-{span['traceId']}-{span['spanId']}-01" for span in chats]


def test_a_caller_that_is_not_sampled_stays_so_below_the_run(tmp_path: Path) -> None:
    app, sent = App(sampler=ParentBased(ALWAYS_OFF)), []

    def tool() -> str:
        """Look at the headers."""
        sent.append(outgoing_headers.get()["traceparent"])
        with app.tracer.start_as_current_span("user"):
            return "ok"

    with app.tracer.start_as_current_span("request"):
        result = play([act("tool"), finish("done")], registry(tool), trace=Tracing(directory=tmp_path)).result
    assert sent[0].endswith("-00")
    assert app.exporter.get_finished_spans() == ()
    assert_same(result.trace_path)  # the trace file is whole all the same
    app.provider.shutdown()


def test_a_run_that_does_not_join_links_to_the_caller(app: App, tmp_path: Path) -> None:
    """For a parent that the backend does not know: a clean root, and the outside parent kept as a link."""
    with app.tracer.start_as_current_span("request") as request:
        result = run(Tracing(directory=tmp_path, join=False))
    (root,) = [span for span in spans_of(result.trace_path) if "parentSpanId" not in span]
    assert result.trace_id != f"{request.get_span_context().trace_id:032x}"
    assert [link["spanId"] for link in root["links"]] == [hex_id(request)]
    assert_same(result.trace_path)


def test_a_conversation_id_is_recorded_on_every_run(tmp_path: Path) -> None:
    result = asyncio.run(
        Agent(tools=registry(look)).run("do it", llm=ScriptedModel(SCRIPT), trace=tmp_path, conversation_id="chat-7")
    )
    assert result.trace_path is not None
    (recording,) = load(result.trace_path)
    assert recording.runs[0].run.head.conversation_id == "chat-7"
