"""Programs written on nothing of ours, recorded through the gateway and run again on the recorded answers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from replay.cli import main
from replay.wire.stored import load_book
from tests.e2e.wire_provider import Provider, running_provider
from tests.wireworld import DIALECTS

CLIENT = str(Path(__file__).with_name("wire_client.py"))
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
KEYS = {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET, "GEMINI_API_KEY": SECRET}


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.out)["traces"][0])


@pytest.fixture(scope="module")
def upstream() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(upstream: Provider) -> Provider:
    upstream.requests.clear()
    upstream.plan.clear()
    upstream.rounds = 2
    return upstream


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command `replay` in a folder of its own; the program that it starts is a process of its own."""
    monkeypatch.chdir(tmp_path)

    def command(*args: str, env: dict[str, str] | None = None, keys: bool = True) -> Done:
        with monkeypatch.context() as patch:
            for name, value in KEYS.items():
                patch.setenv(name, value) if keys else patch.delenv(name, raising=False)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main(args)
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return command


def record(run: Run, provider: Provider, *program: str, env: dict[str, str] | None = None) -> Done:
    done = run(
        "record", "-o", "r.trace.json", "--upstream", provider.url, "--", sys.executable, CLIENT, *program, env=env
    )
    assert done.status == 0, done.err
    return done


def again(run: Run, *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Done:
    words = ("r.trace.json", "--format", "json", *options, "--", sys.executable, CLIENT, *program)
    return run(*words, env=env, keys=False)


@pytest.mark.parametrize(("dialect", "stream"), [("chat", ()), *[(dialect, ("--stream",)) for dialect in DIALECTS]])
def test_a_program_replays_the_same_and_reaches_no_upstream(
    dialect: str, stream: tuple[str, ...], run: Run, provider: Provider, tmp_path: Path
) -> None:
    recorded = record(run, provider, dialect, *stream)
    assert json.loads(recorded.out) == {"why?": "why?: seen why? 2"}
    assert provider.count == 3
    replayed = again(run, dialect, *stream)
    assert replayed.status == 0, replayed.err
    document = replayed.document
    assert (document["verdict"], document["served"]["model"], document["unused"]["model"]) == ("same", 3, 0)
    assert (document["live"], document["refused"], document["program_exit"]) == (0, 0, 0)
    assert json.loads(replayed.err.splitlines()[-1]) == {"why?": "why?: seen why? 2"}
    assert provider.count == 3, "a replay reaches no upstream"
    assert SECRET not in (tmp_path / "r.trace.json").read_text()


def test_eight_programs_threads_at_once_replay_the_same(run: Run, provider: Provider) -> None:
    tasks = ",".join(f"task {number}" for number in range(8))
    record(run, provider, "chat", "--parallel", "--tasks", tasks)
    replayed = again(run, "chat", "--parallel", "--tasks", tasks)
    assert replayed.status == 0, replayed.out
    assert replayed.document["turns"] == 8
    assert provider.count == 24


def test_a_changed_program_is_named_and_stopped(run: Run, provider: Provider) -> None:
    record(run, provider, "chat")
    replayed = again(run, "chat", "--change", "system=Be long.")
    assert replayed.status == 1
    first = replayed.document["divergences"][0]
    assert (first["exchange"], first["path"], first["cause"]) == (1, "/messages/0/content", "prompt")
    assert (first["recorded"], first["observed"]) == ("Be brief.", "Be long.")
    assert replayed.document["refused"] == 1, "the client did not try a refusal again"
    assert provider.count == 3


DATE_RULE = """[rules]
date = { path = "/request/messages/*/content", pattern = '\\d{4}-\\d{2}-\\d{2}' }
"""


def day(told: str) -> tuple[str, str]:
    return "--change", f"system=Today is {told}. Be brief."


def test_a_date_in_the_prompt_is_a_difference_unless_a_rule_names_it(
    run: Run, provider: Provider, tmp_path: Path
) -> None:
    record(run, provider, "chat", *day("2026-01-01"))
    today = ("chat", *day("2026-12-24"))
    without = again(run, *today)
    assert (without.status, without.document["verdict"], without.document["rules"]) == (1, "diverged", [])
    assert without.document["divergences"][0]["path"] == "/messages/0/content"
    (tmp_path / "replay-rules.toml").write_text(DATE_RULE)
    within = again(run, *today)
    assert (within.status, within.document["verdict"]) == (0, "same"), within.out
    assert [(rule["name"], rule["matched"]) for rule in within.document["rules"]] == [("date", 3)]
    told = run("r.trace.json", "--", sys.executable, CLIENT, *today, keys=False).out
    assert "date: /request/messages/*/content ~ " in told
    assert "matches in the recording: 3" in told


@pytest.mark.parametrize("told", ["2026-12-24, a holiday", "Friday"])
def test_a_rule_hides_no_other_change_of_the_same_text(told: str, run: Run, provider: Provider, tmp_path: Path) -> None:
    record(run, provider, "chat", *day("2026-01-01"))
    (tmp_path / "replay-rules.toml").write_text(DATE_RULE)
    changed = again(run, "chat", *day(told))
    first = changed.document["divergences"][0]
    assert (changed.status, first["path"], first["cause"]) == (1, "/messages/0/content", "prompt")
    assert first["recorded"] == "Today is <date>. Be brief."


def test_a_rule_that_cannot_be_understood_stops_the_replay_of_a_program(
    run: Run, provider: Provider, tmp_path: Path
) -> None:
    record(run, provider, "chat")
    (tmp_path / "replay-rules.toml").write_text("[rules]\ndate = 3\n")
    for done in (again(run, "chat"), run("serve", "r.trace.json")):
        assert (done.status, done.out) == (2, "")
        assert "rule date must be a table" in done.err


def test_the_exit_status_of_a_recording_is_the_programs(run: Run, provider: Provider) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit(7)"]
    done = run("record", "-o", "r.trace.json", "--upstream", provider.url, "--", *words)
    assert done.status == 7
    assert "no model request passed" in done.err


def test_bytes_and_headers_reach_the_upstream_unchanged(run: Run, provider: Provider) -> None:
    record(run, provider, "chat", "--gzip")
    seen = provider.requests[0]
    assert seen["headers"]["Content-Encoding"] == "gzip"
    assert seen["headers"]["Authorization"] == f"Bearer {SECRET}"
    assert seen["raw"][:2] == b"\x1f\x8b"
    assert again(run, "chat", "--gzip").status == 0
    assert again(run, "chat").status == 0, "the encoding of a request is no part of what it asks"


def test_errors_and_cut_streams_come_again(run: Run, provider: Provider, tmp_path: Path) -> None:
    provider.plan.update({1: "429", 3: "cut", 5: "500"})
    record(run, provider, "chat", "--stream")
    assert provider.count == 6
    replayed = again(run, "chat", "--stream")
    assert replayed.status == 0, replayed.out
    assert replayed.document["served"]["model"] == 6
    book = load_book(tmp_path / "r.trace.json")
    assert [e.answer.end for e in book.exchanges] == ["complete", "complete", "cut", "complete", "complete", "complete"]
    assert book.recording is not None
    [run_of_it] = [r.run for r in book.recording.runs]
    assert [len(step.chat.attempts) for step in run_of_it.steps if step.chat] == [1, 1, 1]


def test_plain_exchanges_are_served_in_their_order(run: Run, provider: Provider) -> None:
    also = "GET /models,GET /models,POST /embeddings"
    recorded = record(run, provider, "chat", env={"ALSO": also})
    replayed = again(run, "chat", env={"ALSO": also})
    assert replayed.status == 0, replayed.out
    assert [line for line in replayed.err.splitlines() if "data" in line] == recorded.out.splitlines()[:3]
    assert provider.count == 6


NODE = """
const messages = [{role: "system", content: process.env.PROMPT ?? "Be brief."}, {role: "user", content: "why?"}];
const tools = [{type: "function", function: {name: "look", description: "Look.", parameters: {type: "object"}}}];
for (;;) {
  const answer = await fetch(process.env.OPENAI_BASE_URL + "/chat/completions", {
    method: "POST",
    headers: {"content-type": "application/json", authorization: "Bearer " + process.env.OPENAI_API_KEY},
    body: JSON.stringify({model: "m-1", messages, tools}),
  });
  if (!answer.ok) { console.error(answer.status); process.exit(0); }
  const message = (await answer.json()).choices[0].message;
  messages.push(message);
  if (!message.tool_calls) { console.log(message.content); break; }
  for (const call of message.tool_calls) messages.push({role: "tool", tool_call_id: call.id, content: "seen"});
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_program_of_another_language_replays_and_its_swallowed_error_is_no_green(
    run: Run, provider: Provider, tmp_path: Path
) -> None:
    (tmp_path / "agent.mjs").write_text(NODE)
    done = run("record", "-o", "r.trace.json", "--upstream", provider.url, "--", "node", "agent.mjs")
    assert (done.status, done.out) == (0, "why?: seen\n")
    replayed = run("r.trace.json", "--format", "json", "--", "node", "agent.mjs", keys=False)
    assert (replayed.status, replayed.document["agent"]) == (0, "agent")
    changed = run("r.trace.json", "--format", "json", "--", "node", "agent.mjs", keys=False, env={"PROMPT": "Be long."})
    assert (changed.status, changed.document["program_exit"], changed.document["verdict"]) == (1, 0, "diverged")
    assert provider.count == 3


def test_eight_threads_that_ask_for_more_reach_no_upstream(run: Run, provider: Provider) -> None:
    """Not after the last recorded answer, not from any thread."""
    tasks = ",".join(f"task {number}" for number in range(8))
    record(run, provider, "chat", "--parallel", "--tasks", tasks)
    before = provider.count
    replayed = again(run, "chat", "--parallel", "--tasks", tasks + ",more,and more")
    assert (replayed.status, replayed.document["verdict"]) == (1, "diverged")
    assert replayed.document["refused"] >= 1
    assert provider.count == before


def test_the_gateway_is_reached_past_a_proxy_of_the_environment(run: Run, provider: Provider) -> None:
    record(run, provider, "chat", env={"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"})
    assert provider.count == 3


def test_options_of_a_replay(run: Run, provider: Provider) -> None:
    record(run, provider, "chat")
    drifted = again(run, "chat", "--change", "system=Be long.", options=("--drift",))
    assert (drifted.status, drifted.document["verdict"]) == (1, "drifted")
    old = again(run, "chat", options=("--max-age", "0s"))
    assert (old.status, old.out) == (3, "")
    assert "record it anew" in old.err
    assert again(run, "chat", options=("--max-age", "1d")).status == 0
    asleep = run("r.trace.json", "--timeout", "0.2", "--", sys.executable, "-c", "import time; time.sleep(600)")
    assert asleep.status == 3
    assert "was stopped after 0.2 s" in asleep.err


def test_a_recording_is_never_written_over(run: Run, provider: Provider, tmp_path: Path) -> None:
    record(run, provider, "chat")
    before = (tmp_path / "r.trace.json").read_bytes()
    done = run("record", "-o", "r.trace.json", "--upstream", provider.url, "--", sys.executable, CLIENT, "chat")
    assert done.status == 2
    assert "is there already and is not written over" in done.err
    assert (tmp_path / "r.trace.json").read_bytes() == before
    assert provider.count == 3


def test_bad_use_is_said_in_a_line(run: Run, provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for words, status, told in (
        (("record", "-o", "r.trace.json", "--upstream", "nonsense", "--", "true"), 2, "is no http(s) address"),
        (
            (
                "record",
                "-o",
                "r.trace.json",
                "--upstream",
                "openai=http://x",
                "--upstream",
                "openai=http://y",
                "--",
                "true",
            ),
            2,
            "twice",
        ),
        (("record", "-o", "q.trace.json", "--", "no-such-program"), 2, "no such program"),
        (("missing.json", "--", "true"), 3, "no such file"),
        (("x.json", "--", "true"), 3, "x.json"),
        (("serve", "x.json"), 3, "x.json"),
        (("serve", "x.json", "--listen", "nowhere"), 2, "HOST:PORT"),
    ):
        done = run(*words)
        assert done.status == status, (words, done)
        assert told in done.err, (words, done)
        assert "Traceback" not in done.err
    assert not (tmp_path / "q.trace.json").exists(), "a program that was not started leaves no trace"


def test_the_usual_verbs_read_a_recording_of_the_wire(run: Run, provider: Provider) -> None:
    record(run, provider, "chat")
    shown = run("show", "r.trace.json")
    assert (shown.status, 'look(q="why?", round=1)' in shown.out) == (0, True)
    step = run("show", "r.trace.json", "--step", "2", "--format", "json")
    assert step.status == 0
    checked = run("check", "r.trace.json")
    assert "problem" not in checked.out
    assert run("diff", "r.trace.json", "r.trace.json").status == 0
    assert run("scan", "r.trace.json").status == 0
    alone = run("r.trace.json")
    assert (alone.status, "IMPORTED" in alone.out) == (3, True), "without the program nothing of it ran"
    assert "replay r.trace.json -- COMMAND" in alone.out
