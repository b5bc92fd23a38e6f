"""Rules for text that may vary: they hold on both sides, hide nothing else, and are told of."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, ModelParams, SqliteArchive, ToolRegistry, Tracing
from kernel.errors import ConfigError
from kernel.testing import ScriptedModel
from replay import load, replay
from replay.cli.app import main
from replay.play import Recording, Rule, Rules, rules_for

DATE = Rule(name="date", path="/request/messages/*/content", pattern=r"\d{4}-\d{2}-\d{2}")
FOLDER = Rule(name="folder", path="/request/messages/**", pattern=r"/tmp/\w+")
TRACE = Rule(name="trace", path="/request/params/extra/trace_id")
REASON = Rule(name="reason", path="/feedback/refusal", pattern=r"ticket \d+")
RULES = Rules((DATE, FOLDER, TRACE, REASON))
DONE = '{"action": "finish", "args": {"answer": "done"}}'


def tools(day: str) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(
        name="look", description=f"Data of {day}.", params={"type": "object", "properties": {"day": {"const": day}}}
    )(print)
    return registry


def notes(day: str) -> SqliteArchive:
    archive = SqliteArchive(":memory:")
    archive.add(f"The deploy of {day} was slow.", title="deploy")
    return archive


def agent(day: str = "2026-01-01", folder: str = "/tmp/a1", ticket: int = 1, **options: Any) -> Agent:
    def check(answer: str, context: Any) -> str | None:
        return f"open ticket {ticket} first" if context.attempt == 1 else None

    usual: dict[str, Any] = {
        "system": f"Today is {day}. Work in {folder}.",
        "tools": tools(day),
        "archive": notes(day),
        "params": ModelParams(extra={"trace_id": f"{day}-1", "effort": "high"}),
        "finish_check": check,
    }
    return Agent(**{"name": "ops", **usual, **options})


@pytest.fixture(params=["text", "tools"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    target = tmp_path / "x.trace.json"
    replies = [DONE, DONE] if request.param == "text" else ["done", "done"]
    model = ScriptedModel(replies, protocol=request.param)
    asyncio.run(agent().run("How was the deploy?", llm=model, trace=Tracing(file=target, join=False)))
    return target


@pytest.fixture
def recording(file: Path) -> Recording:
    return load(file)[0]


TODAY = agent("2026-12-24", "/tmp/b2", 77)


def test_what_no_rule_names_is_drift(recording: Recording) -> None:
    assert replay(recording, agent()).verdict == "same"
    assert replay(recording, TODAY).verdict == "diverged"  # the refusal is another one, too


def test_what_the_rules_name_may_vary_in_prompt_notes_tools_parameters_and_refusals(recording: Recording) -> None:
    described = Rule(name="told", path="/request/tools/look/**", pattern=DATE.pattern)
    result = replay(recording, TODAY, rules=RULES | Rules((described,)))
    assert (result.verdict, result.settings) == ("same", ()), result.divergences
    used = {use.rule.name: (use.matched > 0, use.settled > 0) for use in result.rules}
    assert used == dict.fromkeys(("date", "folder", "trace", "reason", "told"), (True, True))
    assert result.observed[0].steps == recording.runs[0].run.steps  # so that a snapshot is the same every day


@pytest.mark.parametrize("left_out", ["date", "folder", "trace", "reason"])
def test_each_rule_hides_what_it_names_and_nothing_else(recording: Recording, left_out: str) -> None:
    rules = Rules(rule for rule in RULES.rules if rule.name != left_out)
    assert replay(recording, TODAY, rules=rules).verdict in ("drifted", "diverged")


@pytest.mark.parametrize(
    "changed",
    [
        {"system": "Today is 2026-12-24. Work in /tmp/b2 quickly."},
        {"system": "Today is Friday. Work in /tmp/b2."},
        {"params": ModelParams(extra={"trace_id": 7, "effort": "high"})},
        {"params": ModelParams(extra={"trace_id": "2026-12-24-9", "effort": "low"})},
        {"params": ModelParams(extra={"effort": "high"})},
        {"archive": notes("2026-12-24 or so")},
        {"finish_check": lambda answer, context: "open ticket 1 last" if context.attempt == 1 else None},
    ],
    ids=["a word beside it", "another form", "another type", "another value", "it is gone", "a note", "a refusal"],
)
def test_a_change_beside_what_may_vary_is_noticed(recording: Recording, changed: dict[str, Any]) -> None:
    rules = RULES | Rules((Rule(name="told", path="/request/tools/**", pattern=DATE.pattern),))
    now = agent("2026-12-24", "/tmp/b2", 77, **changed)
    assert replay(recording, now, rules=rules).verdict in ("drifted", "diverged")


def test_both_sides_are_put_in_one_form() -> None:
    """What a gateway needs, which has no other side when it looks an answer up."""
    body = {"messages": [{"content": "On 2026-01-01 in /tmp/q"}, {"content": [{"text": "/tmp/q"}]}], "n": 1}
    assert RULES.normal(("request",), body) == {
        "messages": [{"content": "On <date> in <folder>"}, {"content": [{"text": "<folder>"}]}],
        "n": 1,
    }


def write(file: Path, pyproject: str = "", beside: str = "") -> None:
    for name, text in (("pyproject.toml", pyproject), ("replay-rules.toml", beside)):
        if text:
            file.with_name(name).write_text(text)


IN_PROJECT = """[tool.tracefirst.rules]
date = { path = "/request/messages/*/content", pattern = '\\d{4}-\\d{2}-\\d{2}' }
"""
BESIDE = """[rules]
folder = { path = "/request/messages/**", pattern = '/tmp/\\w+' }
"""


def test_rules_are_found_in_the_project_and_beside_the_recording(file: Path) -> None:
    write(file, IN_PROJECT, BESIDE)
    assert [str(rule) for rule in rules_for(file).rules] == [str(DATE), str(FOLDER)]
    assert rules_for(file.parent / "deep" / "er" / "y.trace.json").rules == rules_for(file).rules[:1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[rules]\ndate = 3", "rule date must be a table"),
        ("[rules]\ndate = { pattern = 'x' }", "rule date must be a table"),
        ("[rules]\ndate = { path = '/request/x', patern = 'x' }", "rule date must be a table"),
        ("[rules]\ndate = { path = 'messages' }", "begins with one of /request, /feedback"),
        ("[rules]\ndate = { path = '/answer' }", "begins with one of /request, /feedback"),
        ("[rules]\ndate = { path = '/request/x', pattern = '(' }", "its pattern '\\(' cannot be used"),
        ("[rules]\ndate = { path = '/request/x', pattern = 'x*' }", "matches the empty text"),
        ("[rules]\ndate = {", "cannot be read"),
        ("rules = 3", "holds lines such as"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_named_with_its_file(file: Path, text: str, said: str) -> None:
    write(file, beside=text)
    with pytest.raises(ConfigError, match=said) as error:
        rules_for(file)
    assert "replay-rules.toml" in str(error.value)


def test_a_name_that_is_there_twice_is_refused(file: Path) -> None:
    write(file, IN_PROJECT, IN_PROJECT.replace("tool.tracefirst.", ""))
    with pytest.raises(ConfigError, match="the rule date is there twice"):
        rules_for(file)


def test_the_command_finds_the_rules_and_its_report_tells_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.trace.json"
    was = Agent(name="ops", system="Today is 2026-01-01.")
    asyncio.run(was.run("t", llm=ScriptedModel([DONE]), trace=Tracing(file=file, join=False)))
    (tmp_path / "days_agents.py").write_text(
        "from kernel import Agent\nops = Agent(name='ops', system='Today is 2026-12-24.')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [str(file), "--agent", "days_agents:ops"]
    assert _status(command) == 1
    write(file, IN_PROJECT)
    capsys.readouterr()
    assert _status(command) == 0
    assert (
        "date: /request/messages/*/content" in (told := capsys.readouterr().out)
        and "equal by this rule alone: 1 text" in told
    )
    assert _status([*command, "--format", "json"]) == 0
    (trace,) = json.loads(capsys.readouterr().out)["traces"]
    assert [(rule["name"], rule["settled"]) for rule in trace["rules"]] == [("date", 1)]


def _status(command: list[str]) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(command)
    return ended.value.code
