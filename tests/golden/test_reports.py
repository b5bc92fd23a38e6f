"""Every report, message and help text of the command, as people see it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from kernel import Agent, Reply, Request, ScriptedModel, Usage
from replay.cli import main
from tests.golden import todays_agents
from tests.helpers import act, counting, finish

Run = Callable[..., str]
SCRIPT = [
    act("query_metrics", service="order"),
    act("query_metrics", service="gateway"),
    act("search_logs", service="order", limit=500),
    "I should look at the logs.",
    act("search_logs", service="order", limit="2"),
    finish("OOM after the deploy"),
]
AGENTS = "tests.golden.todays_agents"


def record(path: str, script: list[Any], agent: Agent = todays_agents.recorded, task: str = "find the cause") -> None:
    model = ScriptedModel(script, usage=Usage(input_tokens=900, output_tokens=60))
    asyncio.run(agent.run(task, llm=model, trace=path, **counting(path)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in a folder of its own, 80 columns wide; gives status, output and diagnostics as one text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_ENDPOINT", "TRACEFIRST_POLICY"):
        monkeypatch.delenv(name, raising=False)
    record("run.trace.json", SCRIPT)
    capsys.readouterr()

    def command(*args: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = capsys.readouterr()
        parts = [f"exit {ended.value.code}", *(["--- stderr", err.rstrip("\n")] if err else [])]
        return "\n".join([*parts, *(["--- stdout", out.rstrip("\n")] if out else [])])

    return command


@pytest.mark.parametrize(
    "verb", ["", "show", "check", "diff", "stats", "scan", "import", "fork", "resume", "record", "serve", "gateway"]
)
def test_help(verb: str, run: Run, snapshot: SnapshotAssertion) -> None:
    assert run(*filter(None, (verb, "--help"))) == snapshot


def test_same(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json") == snapshot


def test_drifted_by_a_blank_in_the_prompt(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", f"{AGENTS}:prompt") == snapshot


def test_drifted_by_a_description(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", f"{AGENTS}:described") == snapshot


def test_diverged_by_a_narrower_schema(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", f"{AGENTS}:narrowed") == snapshot


def test_diverged_by_a_smaller_budget(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", f"{AGENTS}:hurried") == snapshot


def test_diverged_verbose_lists_what_follows(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", f"{AGENTS}:hurried", "--verbose") == snapshot


def test_json_of_same_and_diverged(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--format", "json") == snapshot(name="same")
    assert run("run.trace.json", "--agent", f"{AGENTS}:hurried", "--format", "json") == snapshot(name="diverged")


def test_not_checked(run: Run, snapshot: SnapshotAssertion) -> None:
    """A trace whose root span is gone cannot be replayed: nothing is known, and that is an error."""
    lines = Path("run.trace.json").read_text().split("\n")
    root = next(at for at, line in enumerate(lines) if line.startswith('{"name":"invoke_agent'))
    rest = next(at for at in range(root + 1, len(lines)) if lines[at].startswith('{"name":"'))
    Path("rootless.trace.json").write_text("\n".join(lines[:root] + lines[rest:]))
    assert run("rootless.trace.json") == snapshot


def test_several_files(run: Run, snapshot: SnapshotAssertion) -> None:
    record("other.trace.json", [act("query_metrics", service="gateway"), finish("nothing")])
    Path("broken.trace.json").write_text("{}")
    names = ("broken.trace.json", "other.trace.json", "run.trace.json", "gone.json")
    assert run(*names, "--agent", f"{AGENTS}:hurried") == snapshot(name="text")
    assert run(".") == snapshot(name="folder")


def test_several_traces_in_one_file_need_a_choice(run: Run, snapshot: SnapshotAssertion) -> None:
    record("other.trace.json", [act("query_metrics", service="gateway"), finish("nothing")])
    both = Path("other.trace.json").read_text() + Path("run.trace.json").read_text()
    Path("both.json").write_text(both)
    assert run("both.json") == snapshot(name="none chosen")
    assert run("both.json", "--all") == snapshot(name="all")
    assert run("both.json", "--trace", "ffff") == snapshot(name="no such")


def test_conversation(run: Run, snapshot: SnapshotAssertion) -> None:
    async def talk() -> None:
        script = [act("query_metrics", service="order"), finish("5xx"), finish("not the gateway")]
        chat = todays_agents.recorded.conversation(llm=ScriptedModel(script), trace="chat.trace.json", **counting())
        async with chat:
            await chat.send("what is wrong?")
            await chat.send("is it the gateway?")

    asyncio.run(talk())
    assert run("chat.trace.json") == snapshot


def test_a_long_run_is_folded(run: Run, snapshot: SnapshotAssertion) -> None:
    from kernel import Budget

    agent = Agent(name="ops", tools=todays_agents.recorded.tools, budget=Budget(max_steps=60))
    steps = [act("search_logs", service=f"s{i}", limit=1) for i in range(50)]
    record("long.trace.json", [*steps, finish("done")], agent)
    assert run("long.trace.json") == snapshot


@pytest.mark.parametrize(
    "reference", ["nowhere", "no_such_module:agent", f"{AGENTS}:nobody", f"{AGENTS}:number", f"{AGENTS}:broken"]
)
def test_wrong_agents(reference: str, run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("run.trace.json", "--agent", reference) == snapshot


@pytest.mark.parametrize(
    "args",
    [
        ("shwo", "run.trace.json"),
        ("run.trace.json", "--steps", "9-3"),
        ("run.trace.json", "--otlp", "ftp://x"),
        ("run.trace.json", "--ui", "http://x"),
        ("run.trace.json", "--nonsense"),
        ("show", "run.trace.json", "--step", "99"),
        ("show", "run.trace.json", "--turn", "2"),
        ("--format", "xml", "run.trace.json"),
    ],
    ids=" ".join,
)
def test_wrong_usage(args: tuple[str, ...], run: Run, snapshot: SnapshotAssertion) -> None:
    assert run(*args) == snapshot


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x93NUMPY\x00", b'{"a": 1}', b"[[[", b'{"resourceSpans": []}'], ids=repr
)
def test_unusable_files(content: bytes, run: Run, snapshot: SnapshotAssertion) -> None:
    Path("bad.json").write_bytes(content)
    assert run("bad.json") == snapshot(name="text")
    assert run("bad.json", "--format", "json") == snapshot(name="json")


def test_show(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("show", "run.trace.json") == snapshot(name="tree")
    assert run("show", "run.trace.json", "--step", "5") == snapshot(name="one step")


def test_check(run: Run, snapshot: SnapshotAssertion) -> None:
    assert run("check", "run.trace.json") == snapshot(name="whole")
    text = Path("run.trace.json").read_text()
    Path("edited.trace.json").write_text(text.replace("OOM after the deploy", "OOM before the deploy"))
    assert run("check", "edited.trace.json") == snapshot(name="edited")


def test_diff(run: Run, snapshot: SnapshotAssertion) -> None:
    changed = [*SCRIPT[:1], act("query_metrics", service="order"), *SCRIPT[1:-1], finish("OOM since the deploy")]
    record("other.trace.json", changed, todays_agents.described)
    assert run("diff", "run.trace.json", "other.trace.json") == snapshot(name="different")
    assert run("diff", "run.trace.json", "run.trace.json") == snapshot(name="same")


def test_stats(run: Run, snapshot: SnapshotAssertion) -> None:
    record("other.trace.json", SCRIPT, todays_agents.hurried)
    assert run("stats", ".") == snapshot(name="text")
    assert run("stats", ".", "--format", "json") == snapshot(name="json")


GO_ON = ("--agent", f"{AGENTS}:recorded", "--llm", f"{AGENTS}:finishing")


def untimed(text: str) -> str:
    """A report on a live run without what was used, for that has a real clock in it."""
    return re.sub(r" +[\d,]+ in [\d,]+ out · .*", "", text)


def test_fork(run: Run, snapshot: SnapshotAssertion) -> None:
    """What is played, what is changed, and how it ends live; the new trace is a recording of its own."""
    args = ("fork", "run.trace.json", "--step", "3", *GO_ON, "--result", '2="the gateway is down"')
    assert untimed(run(*args)) == snapshot(name="forked")
    assert run(*args) == snapshot(name="never overwrites")
    assert run("run.fork3.trace.json").startswith("exit 0")
    assert run("fork", "run.trace.json", "--step", "99", *GO_ON, "-o", "x.trace.json") == snapshot(name="no such step")


class Cancelled(ScriptedModel):
    """A scripted model whose run is cancelled by its caller after the script."""

    async def complete(self, request: Request) -> Reply:
        if len(self.requests) == len(self.replies):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return await super().complete(request)


def test_resume(run: Run, snapshot: SnapshotAssertion) -> None:
    model = Cancelled(SCRIPT[:2])
    work = todays_agents.recorded.run("find it", llm=model, trace="cut.trace.json", **counting("cut"))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work)
    assert untimed(run("resume", "cut.trace.json", *GO_ON)) == snapshot(name="resumed")
    assert run("resume", "run.trace.json", *GO_ON) == snapshot(name="has ended")
    assert run("resume", "gone.trace.journal", *GO_ON) == snapshot(name="no file")


def test_import(run: Run, snapshot: SnapshotAssertion) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    Path("chat.json").write_text(json.dumps({"messages": chat}))
    Path("chats.jsonl").write_text("\n".join(json.dumps({"messages": chat, "id": i}) for i in range(2)))
    assert run("import", "chat.json", "-o", "new/chat.trace.json") == snapshot(name="one")
    assert run("check", "new/chat.trace.json") == snapshot(name="checked")
    assert run("import", "chats.jsonl", "-o", "new") == snapshot(name="several need a choice")
    assert run("import", "chats.jsonl", "-o", "new", "--all") == snapshot(name="several")
    Path("bad.json").write_text("{}")
    assert run("import", "bad.json", "-o", "new") == snapshot(name="unusable")
