"""`replay_fixtures`: which files become tests, and under which names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import SETTINGS, Project

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def test_each_file_below_the_folder_is_a_test_without_any_code(project: Project) -> None:
    project.record("order-5xx")
    project.record("max-steps", to="limits/deep/max-steps")
    assert collected(project.run("--collect-only", "-q")) == [
        "fixtures/limits/deep/max-steps.trace.json::replay",
        "fixtures/order-5xx.trace.json::replay",
    ]


def test_fixtures_come_on_top_of_testpaths(project: Project) -> None:
    project.settings('testpaths = ["tests"]\n')
    project.write("tests/test_unit.py", "def test_unit(): pass\n")
    project.record("order-5xx")
    assert collected(project.run("--collect-only", "-q")) == [
        "tests/test_unit.py::test_unit",
        "fixtures/order-5xx.trace.json::replay",
    ]


def test_paths_on_the_command_line_are_taken_as_they_are(project: Project) -> None:
    project.write("tests/test_unit.py", "def test_unit(): pass\n")
    project.record("order-5xx")
    assert collected(project.run("--collect-only", "-q", "tests")) == ["tests/test_unit.py::test_unit"]


@pytest.mark.parametrize(
    "chosen", ["fixtures", "fixtures/order-5xx.trace.json", "fixtures/order-5xx.trace.json::replay"]
)
def test_a_folder_a_file_or_a_node_can_be_chosen(suite: Callable[..., Project], chosen: str) -> None:
    suite("order-5xx").run(chosen).assert_outcomes(passed=1)


def test_a_recording_outside_the_folders_runs_when_it_is_named(project: Project) -> None:
    project.record("order-5xx")
    project.settings(base="[tool.pytest.ini_options]\n")
    assert collected(project.run("--collect-only", "-q")) == []
    assert collected(project.run("--collect-only", "-q", "fixtures/order-5xx.trace.json")) == [
        "fixtures/order-5xx.trace.json::replay"
    ]


def test_several_traces_in_a_file_are_several_tests(project: Project) -> None:
    one, other = (json.loads(project.record(name).read_text()) for name in ("order-5xx", "max-steps"))
    for path in project.fixtures.iterdir():
        path.unlink()
    both = {"resourceSpans": one["resourceSpans"] + other["resourceSpans"]}
    (project.fixtures / "both.trace.json").write_text(json.dumps(both), encoding="utf-8")
    names = collected(project.run("--collect-only", "-q"))
    assert len(names) == 2 and all(name.startswith("fixtures/both.trace.json::replay[") for name in names)
    project.run("--replay-update").assert_outcomes(passed=2)
    snapshots = [name for name in project.files() if "__replays__" in name]
    assert len(snapshots) == 2 and all(name.startswith("fixtures/__replays__/both.trace/") for name in snapshots)
    project.run().assert_outcomes(passed=2)


def test_a_conversation_is_one_test(project: Project) -> None:
    project.record("conversation")
    assert collected(project.run("--collect-only", "-q")) == ["fixtures/conversation.trace.json::replay"]


def test_a_file_that_is_no_trace_fails_alone(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    (project.fixtures / "broken.trace.json").write_text('{"hello": 1}', encoding="utf-8")
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*not checked: *fixtures/broken.trace.json*", "replay: 1 same, *, 1 not checked; *"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_below_the_root_only_what_lies_there_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `testpaths`, which count at the root alone."""
    project.record("order-5xx")
    project.write("tests/test_unit.py", "def test_unit(): pass\n")
    monkeypatch.chdir(project.path / "tests")
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK


def test_a_folder_that_is_not_there_is_a_wrong_setting(project: Project) -> None:
    project.settings(base='[tool.pytest.ini_options]\nreplay_fixtures = ["fixturs"]\n')
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*replay_fixtures names *fixturs, which is no folder*"])


def test_an_empty_folder_is_not_green(project: Project) -> None:
    project.write("test_unit.py", "def test_unit(): pass\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["replay: nothing was checked: fixtures: it holds no *.trace.json"])


def test_a_run_in_which_nothing_was_checked_is_not_green(project: Project) -> None:
    """Also where the test itself would pass."""
    project.settings(base="[tool.pytest.ini_options]\n")
    path = project.record("order-5xx")
    document = json.loads(path.read_text())
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        scope["spans"] = [span for span in scope["spans"] if not span["name"].startswith(("step", "chat", "execute"))]
    path.write_text(json.dumps(document), encoding="utf-8")
    project.write(
        "test_one.py",
        "import pytest\n"
        '@pytest.mark.replay("fixtures/order-5xx.trace.json", check=False)\n'
        'def test_one(replayed): assert replayed.verdict == "not_checked"\n',
    )
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["replay: nothing was checked: no recording could be replayed"])


def test_other_files_and_snapshots_are_left_alone(project: Project) -> None:
    project.settings(base=SETTINGS)
    project.write("fixtures/notes.json", "{}")
    project.write("fixtures/.trace.json", "{}")
    project.write("fixtures/__replays__/old.trace.json", "{}")
    assert collected(project.run("--collect-only", "-q")) == []
