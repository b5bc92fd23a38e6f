"""One side live: a live model on recorded tools, live tools on the recorded model, and both for a new recording."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.incident import agent as incident, operator
from fixtures.record import CAUSE, CODE, LOGS, METRICS, POOL, CountingClock, CountingIds, act, finish
from kernel import Agent, Budget, ConfigError, ModelError, ScriptedModel, ToolRegistry
from replay.cli import main
from replay.loading import load
from replay.play import Attempt, Recording, record_anew, replay, try_model, try_tools
from replay.report import Tried, parting, tried_document
from replay.suite.ci import VARIABLES
from replay.suite.rerecording import record_new, rerecord
from tests.wirelab import recorded as record_program
from tests.wireworld import agent as program

ROOT = Path(__file__).parents[2]
SCRIPT = [METRICS, POOL, LOGS, CODE, finish(CAUSE)]


def recorded(name: str) -> Recording:
    return load(ROOT / "fixtures" / f"{name}.trace.json")[0]


def tried(name: str, who: Agent, *scripts: list[Any]) -> Tried:
    attempts = [
        asyncio.run(
            try_model(recorded(name), who, llm=ScriptedModel(script), clock=CountingClock(), ids=CountingIds("x"))
        )
        for script in scripts
    ]
    return Tried(recording=recorded(name), live="model", attempts=tuple(attempts))


def test_a_live_model_gets_recorded_results_and_no_tool_runs(effects: list[str]) -> None:
    found = tried("order-5xx", incident, SCRIPT)
    assert found.same and found.attempts[0].outcome == "finish"
    was = [call.result for step in recorded("order-5xx").runs[0].run.steps for call in step.calls]
    assert [call.result for step in found.attempts[0].runs[0].steps for call in step.calls] == was


def test_a_call_that_was_not_recorded_stops_the_run_by_name() -> None:
    other = act("query_metrics", service="payment", metric="http_5xx_rate")
    attempt = tried("order-5xx", incident, [METRICS, other, finish("never")]).attempts[0]
    assert attempt.outcome == "unrecorded call"
    assert attempt.detail == 'step 2: query_metrics {"metric":"http_5xx_rate","service":"payment"}'
    assert attempt.runs[0].end is None or attempt.runs[0].end.answer is None


def test_a_recorded_result_is_served_once() -> None:
    attempt = tried("order-5xx", incident, [METRICS, POOL, METRICS, finish("x")]).attempts[0]
    assert (attempt.outcome, attempt.detail[:6]) == ("unrecorded call", "step 3")


def test_an_effect_is_served_only_where_it_was_approved_then() -> None:
    attempt = tried("denied", operator, [act("restart_service", service="payment"), finish("x")]).attempts[0]
    assert attempt.outcome == "unrecorded call"
    attempt = tried("denied", operator, [act("restart_service", service="order"), finish("x")]).attempts[0]
    assert attempt.runs[0].steps[0].calls[0].outcome == "denied"


def test_some_runs_are_counted_by_outcome_with_the_step_where_they_part() -> None:
    unknown = act("query_metrics", service="gateway", metric="x")
    found = tried("order-5xx", incident, SCRIPT, [METRICS, POOL, finish("soon")], [METRICS, unknown, finish("x")])
    document = tried_document(found)
    assert document["outcomes"] == {"finish": 2, "unrecorded call": 1}
    assert (document["part_at"]["step"], document["as_recorded"], found.same) == (2, 2, False)
    assert [way["runs"] for way in document["part_at"]["ways"]] == [2, 1]


def test_runs_that_do_the_same_do_not_part_whatever_the_answer_says() -> None:
    found = tried("order-5xx", incident, SCRIPT, [*SCRIPT[:-1], finish("in other words")])
    assert parting([one.runs for one in found.attempts]) is None
    assert found.same


def test_a_model_that_cannot_be_reached_counts_for_nothing() -> None:
    class Away:
        protocol, provider, name = "text", "x", "x"

        async def complete(self, request: Any) -> Any:
            raise ModelError("no route", kind="http", status=503, retryable=False)

    attempt = asyncio.run(try_model(recorded("order-5xx"), incident, llm=Away(), clock=CountingClock()))
    found = Tried(recording=recorded("order-5xx"), live="model", attempts=(attempt,))
    assert attempt.outcome == "model_error" and not found.counted and not found.same


def test_a_conversation_is_tried_turn_by_turn() -> None:
    replies = [*(step.chat.reply for one in recorded("conversation").runs for step in one.run.steps if step.chat)]
    attempt = asyncio.run(
        try_model(
            recorded("conversation"), incident, llm=ScriptedModel(replies, protocol="tools"), clock=CountingClock()
        )
    )
    assert [run.end.answer for run in attempt.runs if run.end] == ["12 % of requests fail.", "Since 10:01."]


@pytest.fixture
def effects() -> list[str]:
    return []


@pytest.fixture
def shop(effects: list[str]) -> Agent:
    """An agent whose tools write down that they ran."""
    tools = ToolRegistry()

    @tools.tool
    def look(at: str) -> str:
        effects.append(f"look {at}")
        return f"{at} is red"

    @tools.register(side_effect=True)
    def restart(service: str) -> str:
        effects.append(f"restart {service}")
        return "done"

    return Agent(name="shop", tools=tools, budget=Budget(max_steps=5))


@pytest.fixture
def work(shop: Agent, effects: list[str], tmp_path: Path) -> Path:
    """A recording in which both tools ran."""
    path = tmp_path / "work.trace.json"
    script = [act("look", at="a"), act("restart", service="b"), finish("done")]
    asyncio.run(shop.run("mend it", llm=ScriptedModel(script), trace=str(path)))
    effects.clear()
    return path


def test_live_tools_run_what_reads_and_deny_what_changes(shop: Agent, work: Path, effects: list[str]) -> None:
    attempt = asyncio.run(try_tools(load(work)[0], shop))
    found = Tried(recording=load(work)[0], live="tools", attempts=(attempt,))
    assert effects == ["look a"] and found.same
    assert found.denied(attempt) == ('step 2: restart {"service":"b"}',)


def test_an_effect_runs_live_only_when_it_is_named(shop: Agent, work: Path, effects: list[str]) -> None:
    attempt = asyncio.run(try_tools(load(work)[0], shop, allow=["restart"]))
    assert effects == ["look a", "restart b"]
    assert Tried(recording=load(work)[0], live="tools", attempts=(attempt,)).denied(attempt) == ()
    effects.clear()
    with pytest.raises(ConfigError, match="--allow reboot: the agent has no such tool; it has look, restart"):
        asyncio.run(try_tools(load(work)[0], shop, allow=["reboot"]))
    assert effects == []


def test_a_tool_that_answers_otherwise_today_is_named(work: Path, tmp_path: Path) -> None:
    tools = ToolRegistry()

    @tools.tool
    def look(at: str) -> str:
        return f"{at} is green"

    attempt = asyncio.run(try_tools(load(work)[0], Agent(name="shop", tools=tools)))
    found = Tried(recording=load(work)[0], live="tools", attempts=(attempt,))
    assert not found.same
    assert found.changes(attempt)[0] == 'step 1: look {"at":"a"} gave ok "a is red", now ok "a is green"'


def test_a_recorded_failure_of_the_model_is_not_waited_for() -> None:
    attempt = asyncio.run(try_tools(recorded("model-retried"), incident))
    assert isinstance(attempt, Attempt) and attempt.outcome == "finish"


def test_what_is_recorded_anew_is_denied_effects_unless_named(
    shop: Agent, work: Path, effects: list[str], tmp_path: Path
) -> None:
    script = [act("restart", service="b"), finish("done")]
    for allow, ran in (([], []), (["restart"], ["restart b"])):
        new = tmp_path / f"{len(allow)}.trace.json"
        asyncio.run(record_anew(load(work)[0], shop, llm=ScriptedModel(script), allow=allow, trace=str(new)))
        assert effects == ran
        assert replay(load(new)[0], shop).verdict == "same"


def test_a_recorded_approval_is_not_taken_for_one_of_today(tmp_path: Path) -> None:
    """The agent of today asks nobody: an effect runs only because it is named, and the new recording replays as itself."""
    script = [act("restart_service", service="order"), finish("x")]
    for allow in ([], ["restart_service"]):
        path = tmp_path / f"{len(allow)}.trace.json"
        model = ScriptedModel(script)
        (result,) = asyncio.run(record_anew(recorded("denied"), operator, llm=model, allow=allow, trace=str(path)))
        assert result.steps[0].calls[0].outcome == ("ok" if allow else "denied")
        assert replay(load(path)[0], operator).verdict == "same"


def test_a_fixture_is_replaced_by_its_new_recording(tmp_path: Path) -> None:
    path = tmp_path / "order.trace.json"
    shutil.copy(ROOT / "fixtures" / "order-5xx.trace.json", path)
    done = rerecord(path, load(path)[0], incident, llm=ScriptedModel([METRICS, finish("other")]))
    assert not done.kept and done.new is not None
    assert load(path)[0].trace_id == done.new.trace_id != done.old.trace_id if done.old else False
    assert [entry.name for entry in tmp_path.iterdir()] == ["order.trace.json"]


def test_a_conversation_is_recorded_anew_in_one_trace(tmp_path: Path) -> None:
    path = tmp_path / "talk.trace.json"
    shutil.copy(ROOT / "fixtures" / "conversation.trace.json", path)
    model = ScriptedModel(["Badly.", "Since noon."], protocol="tools")
    assert not rerecord(path, load(path)[0], incident, llm=model).kept
    (new,) = load(path)
    assert [one.run.head.task for one in new.runs] == ["How bad is it?", "Since when?"]
    assert [one.run.end.answer for one in new.runs if one.run.end] == ["Badly.", "Since noon."]
    assert replay(new, incident).verdict == "same"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([METRICS], "the new run ended with model_error"),
        (["no"] * 8, "the new run ended with unparsable_exhausted"),
    ],
)
def test_a_run_that_did_not_finish_replaces_nothing(tmp_path: Path, script: list[Any], why: str) -> None:
    path = tmp_path / "order.trace.json"
    shutil.copy(ROOT / "fixtures" / "order-5xx.trace.json", path)
    before = path.read_bytes()
    done = rerecord(path, load(path)[0], incident, llm=ScriptedModel(script))
    assert done.kept.startswith(why)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["order.trace.json"]


def test_a_recording_of_a_limit_may_meet_that_limit_again(tmp_path: Path) -> None:
    path = tmp_path / "short.trace.json"
    shutil.copy(ROOT / "fixtures" / "max-steps.trace.json", path)
    short = Agent(name="incident", tools=incident.tools, budget=Budget(max_steps=2))
    assert not rerecord(path, load(path)[0], short, llm=ScriptedModel([METRICS, POOL, LOGS])).kept


def test_a_fixture_that_is_there_is_not_recorded_as_new(tmp_path: Path) -> None:
    path = tmp_path / "new" / "order.trace.json"
    assert not record_new(path, ["why?"], incident, llm=ScriptedModel([finish("so")])).kept
    assert load(path)[0].runs[0].run.head.task == "why?"
    with pytest.raises(ConfigError, match="is there already"):
        record_new(path, ["why?"], incident, llm=ScriptedModel([finish("so")]))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "fixtures").mkdir()
    for name in ("order-5xx", "conversation"):
        shutil.copy(ROOT / "fixtures" / f"{name}.trace.json", tmp_path / "fixtures")
    return lambda *args: _run(args, capsys)


def _run(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(args)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_nothing_is_sent_anywhere_that_no_word_asked_for(
    command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither a collector nor a model of the environment is called."""

    of_other_tests = {*threading.enumerate()} - {threading.current_thread()}
    connect = socket.socket.connect

    def refuse(opened: socket.socket, address: Any) -> None:
        if threading.current_thread() not in of_other_tests:
            raise AssertionError("a socket was opened")
        connect(opened, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    file = "fixtures/order-5xx.trace.json"
    for args in (
        [file],
        [file, *AGENT],
        [file, *AGENT, "--live-tools"],
        [file, *AGENT, *MODEL, "--live-model"],
        ["accept", file, *AGENT],
        ["accepted", file],
        ["rerecord", file, *AGENT, *MODEL],
    ):
        assert command(*args)[0] == 0, args


def live_text(prompt: str) -> str:
    """A live model: every run of it finishes at once."""
    return finish("it is the pool")


AGENT = ("--agent", "fixtures.incident:agent")
MODEL = ("--llm", f"{__name__}:live_text")


def test_the_command_tries_a_live_model_some_times(command: Run) -> None:
    status, out, _ = command("fixtures/order-5xx.trace.json", *AGENT, *MODEL, "--live-model", "--times", "3")
    assert status == 0
    assert "live model, recorded tools, 3 runs; recorded: finish" in out
    assert "3 × finish" in out and "3 of 3 as recorded" in out
    assert "from the recording 3 of 3 runs part, first at step 1:" in out


def test_the_command_gives_json_too(command: Run) -> None:
    status, out, _ = command("fixtures/order-5xx.trace.json", *AGENT, "--live-tools", "--format", "json")
    (found,) = json.loads(out)["traces"]
    assert (status, found["live"], found["as_recorded"], found["runs"][0]["changes"]) == (0, "tools", 1, [])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--live-model", "--live-tools"], "--live-model with --live-tools is a new run"),
        (["--times", "3"], "--times is of use only with --live-model or --live-tools"),
        (["--llm", "a:b"], "--llm is of use only with"),
        (["--live-tools", "--llm", "a:b"], "answers from the recorded model"),
        (["--live-model", "--allow", "x"], "no tool runs"),
        (["--live-model", "--output", "x.trace.json"], "--output is of a replay"),
        (["--live-tools", "--allow", "nosuch"], "the agent has no such tool"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(command: Run, args: list[str], said: str) -> None:
    status, out, err = command("fixtures/order-5xx.trace.json", *AGENT, *args)
    assert (status, out) == (2, "") and said in err


def test_a_live_side_needs_an_agent(command: Run) -> None:
    status, _, err = command("fixtures/order-5xx.trace.json", "--live-tools")
    assert status == 2 and "--live-tools needs --agent" in err


def test_the_command_records_a_folder_anew_and_prints_what_differs(command: Run, tmp_path: Path) -> None:
    status, out, err = command("rerecord", "fixtures", *AGENT, *MODEL)
    assert (status, err) == (0, "")
    assert "recorded anew fixtures/order-5xx.trace.json" in out and "B  incident" in out
    assert "2 recorded anew, 0 kept, 0 unusable" in out
    for path in (tmp_path / "fixtures").iterdir():
        assert {one.run.end.answer for one in load(path)[0].runs if one.run.end} == {"it is the pool"}


@pytest.mark.parametrize("variable", ["CI", "BUILD_NUMBER", "TF_BUILD", "GITLAB_CI"])
def test_nothing_is_recorded_anew_in_ci(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    before = (tmp_path / "fixtures" / "order-5xx.trace.json").read_bytes()
    status, _, err = command("rerecord", "fixtures", *AGENT, *MODEL)
    assert status == 2 and f"rerecord is refused in CI (the variable {variable} is set)" in err
    assert (tmp_path / "fixtures" / "order-5xx.trace.json").read_bytes() == before


def test_a_file_that_cannot_be_recorded_anew_does_not_end_the_others(command: Run, tmp_path: Path) -> None:
    (tmp_path / "fixtures" / "a.trace.json").write_text("{}")
    status, out, err = command("rerecord", "fixtures", *AGENT, *MODEL)
    assert status == 3 and "a.trace.json" in err
    assert "2 recorded anew, 0 kept, 1 unusable" in out


def test_the_verbs_for_a_folder_of_fixtures_need_no_pytest(command: Run, tmp_path: Path) -> None:
    file = "fixtures/order-5xx.trace.json"
    (tmp_path / "live.py").write_text(f"def text(prompt):\n    return {finish('it is the pool')!r}\n")
    start = "import sys; sys.modules['pytest'] = None; from replay.cli import main; main(sys.argv[1:])"
    for args in (["accepted", file], ["accept", file, *AGENT], ["rerecord", file, *AGENT, "--llm", "live:text"]):
        words = [sys.executable, "-c", start, *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), args


def test_the_recording_of_a_program_is_kept_and_its_own_verb_named(command: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.trace.json"
    record_program(path, [("chat", program("chat", "why?"))])
    before = path.read_bytes()
    status, out, _ = command("rerecord", "lab.trace.json", *AGENT, *MODEL)
    assert status == 1 and "replay record -o FILE -- COMMAND" in out and "0 recorded anew, 1 kept" in out
    assert path.read_bytes() == before


def test_the_recording_of_another_agent_is_kept_unless_it_is_named(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fixtures" / "order-5xx.trace.json"
    before = path.read_bytes()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "renamed.py").write_text(
        "from kernel import Agent\n"
        "from fixtures import incident\n"
        "agent = Agent(name='other', system=incident.SYSTEM, tools=incident.tools)\n"
        "by_name = {'incident': agent}\n"
    )
    status, out, _ = command("rerecord", str(path), "--agent", "renamed:agent", *MODEL)
    assert status == 1 and "it is of the agent incident, and today's is other" in out
    assert path.read_bytes() == before
    status, out, _ = command("rerecord", str(path), "--agent", "renamed:by_name", *MODEL)
    assert status == 0 and "1 recorded anew, 0 kept" in out
