"""`[tool.tracefirst.agents] NAME = {command = […]}`: the fixtures of an agent run the real program; and `replay_serving`."""

from __future__ import annotations

import sys
from pathlib import Path

import aiohttp.web  # noqa: F401 - these three once, so that the runs within this process do not load them each time

import replay.suite.program
import replay.suite.served  # noqa: F401
from tests.plugin.conftest import ROOT, Project
from tests.wirelab import recorded
from tests.wireworld import agent

pytest_plugins = ["pytester"]

CLIENT = (ROOT / "tests" / "e2e" / "wire_client.py").as_posix()


def table(*words: str, more: str = "") -> str:
    command = ", ".join(f'"{word}"' for word in (Path(sys.executable).as_posix(), CLIENT, *words))
    return f"\n[tool.tracefirst.agents]\nlab = {{command = [{command}]{more}}}\n"


def record(project: Project, name: str = "lab", **change: str) -> Path:
    path = project.fixtures / f"{name}.trace.json"
    recorded(path, [("chat", agent("chat", "why?", **change))])
    return path


def test_a_recording_of_a_program_runs_the_program(project: Project) -> None:
    project.settings(table("chat"))
    record(project)
    project.run("--replay-update").assert_outcomes(passed=1)
    text = project.snapshot("lab").read_text()
    assert "agent lab, ran as a program" in text
    assert 'call look {"q": "why?", "round": 1}' in text
    assert "verdict same: served 3, unused 0, refused 0; live 0" in text
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["replay: 1 same, *; model replies served 3, live 0"])


def test_a_changed_program_turns_the_suite_red_at_its_first_request(project: Project) -> None:
    project.settings(table("chat", "--change", "system=Be long."))
    record(project)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DIVERGED *lab.trace.json, exchange 1, step 1, request /messages/0/content*"])


def rule(pattern: str) -> str:
    return f"[rules]\ndate = {{ path = '/request/messages/*/content', pattern = '{pattern}' }}\n"


def test_a_rule_of_the_suite_holds_for_a_program_and_its_snapshot(project: Project) -> None:
    record(project, system="Today is 2026-01-01.")
    project.settings(table("chat", "--change", "system=Today is 2026-12-24."))
    project.run().assert_outcomes(failed=1)
    (project.fixtures / "replay-rules.toml").write_text(rule(r"\d{4}-\d\d-\d\d"))
    project.run("--replay-update").assert_outcomes(passed=1)
    project.settings(table("chat", "--change", "system=Today is 2027-02-03."))
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == 0, "the snapshot is the same every day"


def test_a_rule_that_matches_nothing_a_program_asked_fails_the_session(project: Project) -> None:
    record(project)
    project.settings(table("chat"))
    (project.fixtures / "replay-rules.toml").write_text(rule("never said"))
    project.run("--replay-update")
    result = project.run()
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*the rule date matches nothing in any recording*"])


def test_drift_passes_where_it_is_allowed_and_is_counted_apart(project: Project) -> None:
    project.settings("replay_allow_drift = true\n" + table("chat", "--change", "system=Be long."))
    record(project)
    project.run("--replay-update")
    result = project.run()
    result.stdout.fnmatch_lines(["replay: 0 same, 1 drifted, *"])
    assert result.ret == 0


def test_a_program_that_hangs_is_stopped(project: Project) -> None:
    words = f'"{Path(sys.executable).as_posix()}", "-c", "import time; time.sleep(600)"'
    project.settings(f"\n[tool.tracefirst.agents]\nlab = {{command = [{words}], timeout_s = 0.5}}\n")
    record(project)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*was stopped after 0.5 s*"])


def test_a_program_that_is_not_there_is_said_to_be(project: Project) -> None:
    project.settings('\n[tool.tracefirst.agents]\nlab = {command = ["no-such-program-here"]}\n')
    record(project)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no-such-program-here: no such program*"])


def test_an_entry_that_cannot_be_understood_is_refused(project: Project) -> None:
    for wrong in ('{command = "node agent.js"}', "{command = []}", '{command = ["x"], tmeout_s = 3}', "{}"):
        project.settings(f"\n[tool.tracefirst.agents]\nlab = {wrong}\n")
        result = project.run()
        assert result.ret == 4, wrong
        result.stderr.fnmatch_lines(["*lab: *"])


def test_a_test_serves_a_recording_to_its_own_agent(project: Project) -> None:
    record(project, "own")
    project.settings('\n[tool.tracefirst.agents]\n"fixtures/*" = ""\n')
    project.write(
        "test_own.py",
        """
import json, urllib.request
from tests.wireworld import agent, drive

def ask(url):
    def exchange(body):
        request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        return json.loads(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read())
    return exchange

def test_same(replay_serving):
    server = replay_serving("fixtures/own.trace.json")
    assert drive(agent("chat", "why?"), ask(server.url)) == "why?: seen why? 2"

def test_swallows_the_refusal(replay_serving):
    server = replay_serving("fixtures/own.trace.json")
    try:
        drive(agent("chat", "why?", system="Be long."), ask(server.url))
    except OSError:
        pass

def test_asks_nothing(replay_serving):
    replay_serving("fixtures/own.trace.json")
""",
    )
    result = project.run("test_own.py")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*DIVERGED *own.trace.json, exchange 1*", "*NOT_CHECKED*"])
