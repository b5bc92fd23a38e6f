"""Claims about the command: exit status, streams, determinism, what is sent to a collector, and no traceback ever."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel import Agent, Budget, ScriptedModel, ToolRegistry, Usage
from kernel.errors import TraceError
from kernel.trace import semconv as sc
from kernel.trace.otlp import encode_line
from kernel.trace.span import Resource, Span
from replay.cli import main
from replay.cli.files import recordings
from replay.cli.wiring import _tell
from replay.loading import load
from replay.play.play import replay
from replay.play.recording import Recording
from replay.readers import read_traces
from replay.report.emit import recording_spans, replay_spans, requests_of, resource_of, traces_url, ui_url, write
from replay.wire import Summary
from tests.helpers import act, counting, finish, runs

Command = Callable[..., tuple[int, str, str]]
SCRIPT = [act("look", at="order"), act("look", at="gateway"), finish("done")]
REPOSITORY = Path(__file__).parents[2]


def agent(**more: Any) -> Agent:
    tools = ToolRegistry()

    @tools.tool
    def look(at: str) -> str:
        """Look at a service."""
        return f"{at} \x1b[31mis red"

    return Agent(name="ops", tools=tools, budget=Budget(max_steps=6), **more)


def record(path: str | Path, script: list[Any] | None = None) -> None:
    model = ScriptedModel(script or SCRIPT, usage=Usage(input_tokens=10, output_tokens=2))
    asyncio.run(agent().run("find it", llm=model, trace=str(path), **counting(Path(path).name)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in a folder that holds `run.trace.json`; gives status, output, diagnostics."""
    monkeypatch.chdir(tmp_path)
    record("run.trace.json")

    def command(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--drift",), "--drift is of use only with `-- COMMAND`"),
        (("--max-age", "30d"), "--max-age is of use only with `-- COMMAND`"),
        (("--timeout=3",), "--timeout is of use only with `-- COMMAND`"),
        (("--",), "no command behind --: write `replay FILE -- COMMAND`. See `replay --help`."),
        (("b.trace.json", "--", "true"), "one FILE goes with a command, and 2 are before --"),
    ],
)
def test_a_replay_with_a_program_that_is_half_written_is_told_the_other_half(
    run: Command, words: tuple[str, ...], told: str
) -> None:
    status, _, err = run("run.trace.json", *words)
    assert status == 2 and told in err and "against" not in err


def test_a_closing_line_counts_in_plain_words(run: Command) -> None:
    _tell(Summary(exchanges=2, conversations=1, whole=True), "r.trace.json")
    status, _, err = run("run.trace.json", "--", "true")
    assert status == 3 and "recorded 2 exchanges in 1 conversation: r.trace.json" in err


# --- the document


def test_the_document_has_the_keys_of_the_contract_first_and_in_order(run: Command) -> None:
    _, out, _ = run("run.trace.json", "--format", "json")
    (trace,) = json.loads(out)["traces"]
    contract = ["trace_id", "agent", "verdict", "ran_with", "stop_reason", "steps", "served", "unused", "live"]
    contract += ["divergences", "replay_trace_id"]
    assert list(trace)[: len(contract)] == contract
    assert trace["verdict"] == "same" and trace["served"] == {"model": 3, "tools": 2}
    assert trace["unused"] == {"model": 0, "tools": 0} and trace["live"] == 0 and trace["replay_trace_id"] is None


def test_a_trace_has_the_same_document_in_any_company_and_order(run: Command) -> None:
    record("other.trace.json", [finish("at once")])
    documents = []
    for names in (["run.trace.json"], ["other.trace.json", "run.trace.json"], ["run.trace.json", "other.trace.json"]):
        _, out, _ = run(*names, "--format", "json")
        documents.append(next(t for t in json.loads(out)["traces"] if t["file"] == "run.trace.json"))
    assert documents[0] == documents[1] == documents[2]


def test_json_is_ascii_whatever_the_trace_holds(run: Command) -> None:
    _, out, _ = run("show", "run.trace.json", "--format", "json")
    assert out.isascii() and "\x1b" not in out and "\\u001b[31m" in out


def start(*args: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from replay.cli import main; main()", *args]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def test_two_processes_write_the_same_bytes(run: Command) -> None:
    first, second = (start("run.trace.json", "--format", "json", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    outputs = [process.communicate() for process in (first, second)]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0][0])["traces"][0]["verdict"] == "same"


# --- streams


def test_a_narrow_encoding_gets_all_text_spelled_out(run: Command) -> None:
    record("zh.trace.json", [act("look", at="订单"), finish("完成")])
    process = start("zh.trace.json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    out, err = process.communicate()
    assert process.returncode == 0 and err == b""
    assert b"\\u8ba2\\u5355" in out and b"-> " in out


def test_a_closed_pipe_is_quiet_and_no_verdict(run: Command) -> None:
    process = start("run.trace.json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), err) == (141, b"")


def test_help_imports_nothing_heavy() -> None:
    heavy = (
        "msgspec",
        "asyncio",
        "kernel.agent",
        "kernel.trace.codec",
        "opentelemetry",
        "aiohttp",
        "urllib.request",
        "ssl",
    )
    code = f"import sys, replay.cli; print([name for name in {heavy} if name in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    assert subprocess.check_output([sys.executable, "-c", code], env=env).strip() == b"[]"


def test_no_terminal_no_colours(run: Command) -> None:
    for args in (["run.trace.json"], ["show", "run.trace.json"], ["check", "run.trace.json"], ["stats", "."]):
        _, out, _ = run(*args)
        assert "\x1b" not in out


# --- exit status


def test_the_worst_of_several_files_wins_and_an_unusable_one_is_never_hidden(run: Command) -> None:
    Path("bad.json").write_text("nonsense")
    assert run("run.trace.json")[0] == 0
    status, out, err = run("run.trace.json", "bad.json")
    assert status == 3 and "1 unusable" in out and "bad.json" in err


def test_an_option_may_come_before_the_file(run: Command) -> None:
    assert run("--format", "json", "run.trace.json")[0] == 0


def test_a_folder_stands_for_its_traces_and_an_empty_one_is_unusable(run: Command) -> None:
    Path("deep/er").mkdir(parents=True)
    record("deep/er/one.trace.json")
    status, out, _ = run(".")
    assert status == 0 and "2 same" in out
    Path("empty").mkdir()
    assert run("empty")[0] == 3


def test_scan_finds_a_secret_without_showing_it(run: Command) -> None:
    key = "gh" + "p_" + "a1B2" * 9
    Path("notes.txt").write_text(f"token {key}\n")
    status, out, _ = run("scan", "notes.txt", "run.trace.json")
    assert status == 1 and "github-token" in out and key not in out
    assert run("scan", "run.trace.json")[0] == 0
    assert run("scan", "gone.txt")[0] == 3


def test_diff_ignores_ids_and_times_of_two_runs_alike(run: Command) -> None:
    record("again.trace.json")
    assert run("diff", "run.trace.json", "again.trace.json")[0] == 0
    record("other.trace.json", [*SCRIPT[:1], finish("done")])
    assert run("diff", "run.trace.json", "other.trace.json")[0] == 1


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_bytes_end_in_a_message_and_not_in_a_traceback(run: Command, content: bytes) -> None:
    Path("any.json").write_bytes(content)
    for verb in ([], ["check"], ["show"], ["stats"]):
        status, _, err = run(*verb, "any.json")
        assert status == 3 and err.startswith("replay: any.json")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_a_damaged_recording_ends_in_a_report_or_a_message(run: Command, data: st.DataObject) -> None:
    """Bytes of a good file are cut out, doubled or replaced at any place."""
    good = Path("run.trace.json").read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 400)))
    middle = data.draw(st.sampled_from([b"", b'"', b"0", b"null", b"\xff", good[start:end] * 2]))
    Path("hurt.trace.json").write_bytes(good[:start] + middle + good[end:])
    for verb in ([], ["check"], ["show"]):
        status, _, err = run(*verb, "hurt.trace.json")
        assert status in (0, 1, 2, 3)  # 2: a damaged trace id makes two traces of one, and none was chosen
        assert "unexpected" not in err


# --- traces of replays


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A loopback server that takes OTLP requests; gives its address and what it got."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, gzip.decompress(body)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}" if status == 200 else b"no \x1b[31mroom")

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_original_and_replay_are_sent_and_the_page_that_compares_them_is_named(run: Command) -> None:
    with collector() as (url, got):
        status, out, _ = run("run.trace.json", "--otlp", url)
    assert status == 0 and [path for path, _ in got] == ["/v1/traces", "/v1/traces"]
    (original,), (copy,) = (read_traces(body).traces for _, body in got)
    (stored,) = read_traces(Path("run.trace.json")).traces
    assert original.spans == stored.spans
    assert f"http://127.0.0.1:16686/trace/{original.trace_id}...{copy.trace_id}" in out
    assert [span.name for span in copy.spans] == [span.name for span in original.spans]
    services = {
        resource.attributes["service.name"] for trace in (original, copy) for resource in trace.resources.values()
    }
    assert len(services) == 1
    root = copy.spans[0]
    assert root.attributes[sc.ORIGINAL_TRACE_ID] == original.trace_id != copy.trace_id
    assert root.attributes[sc.REPLAY_VERDICT] == "same" and sc.REPLAY_DIVERGENCE not in root.attributes
    assert [(link.trace_id, link.span_id) for link in root.links] == [(original.trace_id, original.spans[0].span_id)]


def test_the_trace_of_a_replay_is_itself_a_recording_and_always_the_same(run: Command) -> None:
    assert run("run.trace.json", "--output", "copy.trace.json")[0] == 0
    first = Path("copy.trace.json").read_bytes()
    assert run("run.trace.json", "--output", "copy.trace.json", "--force")[0] == 0
    assert Path("copy.trace.json").read_bytes() == first
    assert run("copy.trace.json")[0] == 0
    assert run("check", "copy.trace.json")[0] == 0


def test_a_divergence_is_a_short_attribute_of_the_replays_root(run: Command) -> None:
    (recording,) = load("run.trace.json")
    spans = replay_spans(replay(recording, Agent(name="ops", budget=Budget(max_steps=1))))
    assert spans[0].attributes[sc.REPLAY_VERDICT] == "diverged"
    assert spans[0].attributes[sc.REPLAY_DIVERGENCE].startswith("step 1 ")


@pytest.mark.parametrize("status", [400, 503])
def test_a_refused_trace_does_not_swallow_the_report(run: Command, status: int) -> None:
    with collector(status) as (url, _):
        ended, out, err = run("run.trace.json", "--otlp", url)
    assert ended == 2 and "SAME" in out and str(status) in err
    assert "room" in err and "\x1b" not in err


def test_an_endpoint_where_nobody_listens_is_named(run: Command) -> None:
    with collector() as (url, _):
        pass
    status, out, err = run("run.trace.json", "--otlp", url)
    assert status == 2 and "SAME" in out and f"{url}/v1/traces cannot be reached" in err


def test_requests_are_split_by_bytes_and_open_spans_get_an_end() -> None:
    big = [Span(trace_id="0" * 31 + "1", span_id=f"{i:016x}", name="x", start_ns=i, attributes={"a": "y" * 2**20})
           for i in range(1, 10)]  # fmt: skip
    bodies = list(requests_of(big, lambda _: Resource()))
    assert len(bodies) == 3 and all(len(body) < 4.3 * 2**20 for body in bodies)
    spans = [span for body in bodies for span in read_traces(body).traces[0].spans]
    assert [span.span_id for span in spans] == [span.span_id for span in big]
    assert all(span.end_ns is not None for span in spans)


@pytest.mark.parametrize(
    ("endpoint", "url", "ui"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces", "http://localhost:16686"),
        ("jaeger:4318/", "http://jaeger:4318/v1/traces", "http://jaeger:16686"),
        ("https://h/otlp/v1/traces", "https://h/otlp/v1/traces", "http://h:16686"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces", "http://[::1]:16686"),
    ],
)
def test_addresses_follow_from_the_endpoint(endpoint: str, url: str, ui: str) -> None:
    assert (traces_url(endpoint), ui_url(endpoint)) == (url, ui)


@given(runs())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_can_be_written_as_a_recording_with_the_ids_it_lacks(run: Any) -> None:
    from replay.play.recording import RecordedRun

    recording = Recording(trace_id="", runs=(RecordedRun(run=run),))
    spans = recording_spans(recording)
    assert len({span.span_id for span in spans}) == len(spans)
    assert all(len(span.trace_id) == 32 and len(span.span_id) == 16 for span in spans[1:])


def test_a_written_recording_is_read_back_whole(tmp_path: Path) -> None:
    record(tmp_path / "run.trace.json")
    (recording,) = load(tmp_path / "run.trace.json")
    write(tmp_path / "new" / "copy.trace.json", recording_spans(recording), resource_of(recording))
    (copy,) = load(tmp_path / "new" / "copy.trace.json")
    assert copy.runs == recording.runs


def test_a_large_file_is_read_trace_by_trace_with_the_same_outcome(tmp_path: Path) -> None:
    names = [tmp_path / f"{i}.trace.json" for i in range(3)]
    for name in names:
        record(name)
    lines = [encode_line(recording_spans(r), resource_of(r)) for name in names for r in load(name)]
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(lines))
    whole = list(recordings(str(path), every=True))
    assert len(whole) == 3
    assert list(recordings(str(path), every=True, whole_bytes=0)) == whole
    wanted = whole[1].trace_id
    for trace_id in (wanted, wanted[:12], wanted.upper()):
        assert list(recordings(str(path), trace_id=trace_id, whole_bytes=0)) == [whole[1]]
    with pytest.raises(UsageError, match="holds 3 traces"):
        list(recordings(str(path), whole_bytes=0))
    with pytest.raises(TraceError, match="no trace ffff"):
        list(recordings(str(path), trace_id="ffff", whole_bytes=0))
