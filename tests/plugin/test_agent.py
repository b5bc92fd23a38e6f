"""`--replay-agent`, `replay_agents` and `[tool.tracefirst.agents]`: which agent of today replays a recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import SETTINGS, Project

pytest_plugins = ["pytester"]

TABLE = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\n'
SHORTER = ("budget=Budget(max_steps=8)", "budget=Budget(max_steps=2)")


def test_an_agent_named_in_the_table_replays_the_recordings_of_its_name(project: Project) -> None:
    project.settings(TABLE)
    project.agents("shop")
    for name in ("order-5xx", "denied"):
        project.record(name)
    project.run("--replay-update").assert_outcomes(passed=2)
    assert "agent incident, ran with the agent" in project.snapshot("order-5xx").read_text()
    assert "agent operator, ran with the recording" in project.snapshot("denied").read_text()


def test_a_changed_agent_turns_the_suite_red_and_is_told_from_a_changed_framework(project: Project) -> None:
    project.settings(TABLE)
    project.agents("shop", SHORTER)
    project.record("order-5xx")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "DIVERGED *fixtures/order-5xx.trace.json, step 3, *",
            "the recording alone replays the same: the difference comes from the agent",
            "replay: 0 same, 0 drifted, 1 diverged, 0 not checked; *",
        ]
    )


def test_a_path_in_the_table_goes_before_a_name_and_nothing_means_the_recording_alone(project: Project) -> None:
    project.settings(TABLE + '"fixtures/max-*.trace.json" = ""\n')
    project.agents("shop")
    project.record("max-steps")
    project.run("--replay-update").assert_outcomes(passed=1)
    assert "ran with the recording" in project.snapshot("max-steps").read_text()


def test_the_ini_line_works_without_a_pyproject(project: Project) -> None:
    (project.path / "pyproject.toml").unlink()
    project.write("pytest.ini", "[pytest]\nreplay_fixtures = fixtures\nreplay_agents = incident=shop:agent\n")
    project.agents("shop")
    project.record("order-5xx")
    project.run("--replay-update").assert_outcomes(passed=1)
    assert "ran with the agent" in project.snapshot("order-5xx").read_text()


def test_the_option_beats_the_table(project: Project) -> None:
    project.settings(TABLE)
    project.agents("shop")
    project.agents("other", SHORTER)
    project.record("order-5xx")
    project.run("--replay-update").assert_outcomes(passed=1)
    project.run("--replay-agent", "incident=other:agent").assert_outcomes(failed=1)


@pytest.mark.parametrize("spec", ["shop:make", "shop:by_name", "shop:Holder.agent"])
def test_an_agent_may_come_from_a_function_a_dict_or_an_attribute(project: Project, spec: str) -> None:
    project.agents(
        "shop",
        more="\n\ndef make() -> Agent:\n    return agent\n\n\nby_name = {'incident': agent, 'operator': operator}\n"
        "\n\nclass Holder:\n    agent = agent\n",
    )
    project.record("order-5xx")
    project.run("--replay-update", "--replay-agent", f"incident={spec}").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere:agent", "there is no module nowhere in the working directory or installed*"),
        ("shop:agnet", "*shop has no agnet*"),
        ("shop:TASK", "it is str; it must be a kernel.Agent*"),
        ("shop:broken", "*calling it failed: ZeroDivisionError*"),
        ("shop:nobody", "it is an empty dict; it must be a kernel.Agent*"),
        ("shop:leaving", "calling it ended the program (sys.exit(0))*"),
    ],
)
def test_an_agent_that_cannot_be_loaded_fails_the_case_and_says_why(project: Project, spec: str, said: str) -> None:
    project.agents(
        "shop",
        more="\n\ndef broken() -> Agent:\n    return 1 / 0\n\n\nnobody: dict[str, Agent] = {}\n"
        "\n\ndef leaving() -> Agent:\n    raise SystemExit(0)\n",
    )
    project.record("order-5xx")
    result = project.run("--replay-agent", f"incident={spec}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f'not checked: agent "incident" = "{spec}": {said}'])
    result.stdout.no_fnmatch_line("Traceback*")


def test_a_module_that_leaves_the_program_fails_the_case_and_not_the_session(project: Project) -> None:
    project.write("leaves.py", "import sys\nsys.exit(0)\n")
    project.record("order-5xx")
    result = project.run("--replay-agent", "incident=leaves:agent")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*importing leaves ended the program (sys.exit(0))*"])


@pytest.mark.parametrize("entry", ["incident", "incident=shop", "=shop:agent", "incident="])
def test_an_entry_that_says_nothing_is_wrong_usage(project: Project, entry: str) -> None:
    result = project.run("--replay-agent", entry)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f'*--replay-agent: "{entry}" is not NAME=module:object*'])


def test_a_name_that_no_recording_has_is_not_green(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.agents("shop")
    result = project.run("--replay-agent", "incidnet=shop:agent")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(['replay: --replay-agent incidnet=*: no recording is of agent "incidnet"; *: incident'])


def test_a_setting_that_nothing_exercises_passes_unless_the_suite_is_strict(project: Project) -> None:
    project.settings(TABLE)
    project.record("order-5xx")
    project.agents("shop")
    project.run("--replay-update").assert_outcomes(passed=1)
    project.agents("shop", ("budget=Budget(max_steps=8)", "budget=Budget(max_steps=80)"))
    project.run().assert_outcomes(passed=1)
    project.settings(TABLE, base=SETTINGS + "replay_strict_settings = true\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED *order-5xx*changed, not exercised here: budget.max_steps"])
