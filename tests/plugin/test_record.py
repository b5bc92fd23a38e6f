"""`--replay-record`: recordings that drifted, or are not there, are made live by today's agents, with their snapshots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replay.loading import load
from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

TABLE = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\n'
EDIT = ("Read only; never change anything.", "Look, do not touch.")
MODEL = """
import json
asked = []
def live(prompt):
    asked.append(prompt)
    return json.dumps({"action": "finish", "args": {"answer": "it is the pool"}})
def effect(prompt):
    if asked:
        return live(prompt)
    asked.append(prompt)
    return json.dumps({"action": "restart_service", "args": {"service": "order"}})
"""
RECORD = ["--replay-llm", "models:live"]


@pytest.fixture
def drifted(suite: Callable[..., Project]) -> Project:
    """A suite whose prompt was edited after it was recorded; one recording is of another agent and did not drift."""
    project = suite("order-5xx", "conversation", "denied")
    project.write("models.py", MODEL)
    project.agents("shop", EDIT)
    project.settings(TABLE)
    project.run().assert_outcomes(passed=1, failed=2)
    return project


def test_what_drifted_is_green_again_after_one_command_that_shows_the_difference(drifted: Project) -> None:
    before = drifted.files()
    result = drifted.run("--replay-record=drifted", *RECORD)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "recorded fixtures/order-5xx.trace.json::replay:",
            "*settings /system*",
            "updated fixtures/order-5xx.trace.json::replay: *; ended with finish",
        ]
    )
    drifted.run().assert_outcomes(passed=3)
    changed = {name for name, data in drifted.files().items() if before.get(name) != data}
    assert changed == {
        f"fixtures/{name}"
        for stem in ("order-5xx", "conversation")
        for name in (f"{stem}.trace.json", f"__replays__/{stem}.replay.txt")
    }
    (new,) = load(drifted.fixtures / "order-5xx.trace.json")
    assert new.runs[0].run.end is not None and new.runs[0].run.end.answer == "it is the pool"


def test_nothing_is_recorded_without_the_option(drifted: Project) -> None:
    before = drifted.files()
    drifted.run()
    drifted.run("--replay-update")
    assert drifted.files() == before


def test_all_records_what_runs_and_nothing_else(drifted: Project) -> None:
    before = drifted.files()
    drifted.run("--replay-record=all", *RECORD, "fixtures/order-5xx.trace.json").assert_outcomes(passed=1)
    changed = {name for name, data in drifted.files().items() if before.get(name) != data}
    assert changed == {"fixtures/order-5xx.trace.json", "fixtures/__replays__/order-5xx.replay.txt"}


def test_behaviour_that_differs_is_not_recorded_over_as_drift(drifted: Project) -> None:
    drifted.agents("shop", ("max_steps=8", "max_steps=2"))
    before = drifted.files()
    drifted.run("--replay-record=drifted", *RECORD, "fixtures/order-5xx.trace.json").assert_outcomes(failed=1)
    assert drifted.files() == before


def test_a_recording_without_an_agent_of_today_cannot_be_recorded(drifted: Project) -> None:
    result = drifted.run("--replay-record=all", *RECORD, "fixtures/denied.trace.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["not recorded: fixtures/denied.trace.json: no agent is configured for it *"])


def test_a_live_run_that_does_not_finish_leaves_the_old_recording(drifted: Project) -> None:
    drifted.write("models.py", "def live(prompt): raise RuntimeError('no route')\n")
    before = drifted.files()
    result = drifted.run("--replay-record=drifted", *RECORD, "-k", "order")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(["not recorded: *: the new run ended with model_error *"])
    assert drifted.files() == before


@pytest.mark.parametrize("allow", [[], ["--replay-allow", "restart_service"]])
def test_an_effect_runs_only_where_it_is_allowed_by_name(drifted: Project, allow: list[str]) -> None:
    drifted.agents("shop", more="\n\n@_more.register(side_effect=True)\ndef note(text: str) -> str:\n    return text\n")
    drifted.settings('\n[tool.tracefirst.agents]\noperator = "shop:operator"\n')
    drifted.write("models.py", MODEL)
    args = ["--replay-record=all", "--replay-llm", "models:effect", "fixtures/denied.trace.json"]
    drifted.run_apart(*args, *allow)
    (new,) = load(drifted.fixtures / "denied.trace.json")
    assert new.runs[0].run.steps[0].calls[0].outcome == ("ok" if allow else "denied")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--replay-llm", "models:live"], "of use only with --replay-record"),
        (["--replay-allow", "x"], "of use only with --replay-record"),
        (["--replay-record=some"], "invalid choice"),
        (["--replay-record=all", "--replay-llm", "models"], "is not module:object"),
        (["--replay-record=all", "-n", "2"], "--replay-record is refused under pytest-xdist"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(drifted: Project, args: list[str], said: str) -> None:
    result = drifted.run_apart(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_recording_is_refused_in_ci(drifted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    before = drifted.files()
    result = drifted.run("--replay-record=drifted", *RECORD)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--replay-record is refused in CI (the variable GITLAB_CI is set)*"])
    assert drifted.files() == before


@pytest.mark.parametrize("task", ['"How bad is it?"', '["How bad is it?", "Since when?"]'])
def test_a_marker_with_a_task_records_what_is_missing(drifted: Project, task: str) -> None:
    drifted.write(
        "test_own.py",
        "import pytest\n"
        f'@pytest.mark.replay("fixtures/new/bad.trace.json", agent="incident", task={task})\n'
        'def test_own(replayed): assert replayed.observed[0].end.answer == "it is the pool"\n',
    )
    result = drifted.run("test_own.py")
    result.stdout.fnmatch_lines(
        ["*there is no *bad.trace.json*to record it live: pytest test_own.py::test_own --replay-*"]
    )
    drifted.run("test_own.py", "--replay-record", *RECORD).assert_outcomes(passed=1)
    drifted.run("test_own.py").assert_outcomes(passed=1)
    (new,) = load(drifted.fixtures / "new" / "bad.trace.json")
    assert len(new.runs) == task.count("?")
