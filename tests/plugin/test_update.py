"""`--replay-update` and `--snapshot-update`: only what ran and was as recorded may change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("option", ["--replay-update", "--snapshot-update"])
def test_an_update_writes_what_is_missing_and_says_so(project: Project, option: str) -> None:
    project.record("order-5xx")
    result = project.run(option)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["written fixtures/order-5xx.trace.json::replay: * lines; ended with finish"])
    assert project.snapshot("order-5xx").read_text().startswith("replay snapshot 1\n")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["--replay-update", "--snapshot-update"])
def test_a_second_update_writes_and_deletes_nothing(suite: Callable[..., Project], option: str) -> None:
    project = suite("order-5xx", "max-steps", "conversation")
    before = project.files()
    times = {path: path.stat().st_mtime_ns for path in project.fixtures.rglob("*.txt")}
    result = project.run(option)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["no snapshot needed an update"])
    assert project.files() == before
    assert {path: path.stat().st_mtime_ns for path in project.fixtures.rglob("*.txt")} == times


def test_an_update_prints_what_changed_in_each_test(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    path = project.snapshot("order-5xx")
    path.write_text(path.read_text().replace("stop finish", "stop max_steps"), encoding="utf-8")
    result = project.run("--replay-update")
    result.stdout.fnmatch_lines(
        [
            "updated fixtures/order-5xx.trace.json::replay: +1 -1; ended with finish",
            "  -stop max_steps",
            "  +stop finish",
        ]
    )
    result.stdout.no_fnmatch_line("*max-steps.trace.json::replay*")


@pytest.mark.parametrize("option", ["--replay-update", "--snapshot-update"])
@pytest.mark.parametrize(
    "chosen",
    [["-k", "order"], ["fixtures/order-5xx.trace.json"], ["--deselect", "fixtures/max-steps.trace.json::replay"]],
)
def test_an_update_of_a_part_leaves_the_rest_alone(
    suite: Callable[..., Project], chosen: list[str], option: str
) -> None:
    project = suite("order-5xx", "max-steps")
    stale = project.snapshot("max-steps")
    stale.write_text("replay snapshot 1\n", encoding="utf-8")
    project.write("fixtures/__replays__/gone.replay.txt", "replay snapshot 1\n")
    before = project.files()
    project.run(option, *chosen).assert_outcomes(passed=1, deselected=0 if len(chosen) == 1 else 1)
    assert project.files() == before


def test_a_whole_green_update_deletes_unused_snapshots_and_names_them(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    (project.fixtures / "max-steps.trace.json").unlink()
    result = project.run("--replay-update")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["deleted fixtures/__replays__/max-steps.replay.txt: no recording belonged to it"])
    assert not project.snapshot("max-steps").exists()


def test_nothing_is_deleted_while_anything_fails(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    (project.fixtures / "max-steps.trace.json").unlink()
    project.write("test_unit.py", "def test_unit(): assert False\n")
    result = project.run("--replay-update")
    result.stdout.fnmatch_lines(
        ["unused *max-steps.replay.txt: *", "unused snapshots were not deleted because tests failed"]
    )
    assert project.snapshot("max-steps").exists()


def test_a_replay_that_diverges_is_not_written(project: Project) -> None:
    project.record("max-steps")
    project.agents("shop")
    result = project.run("--replay-update", "--replay-agent", "incident=shop:agent")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its snapshot was not written*"])
    assert not project.snapshot("max-steps").exists()


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_an_update_is_refused_in_ci(project: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    project.record("order-5xx")
    result = project.run("--replay-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--replay-update is refused in CI*"])
    assert not project.snapshot("order-5xx").exists()


def test_ci_set_to_false_is_no_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    project.record("order-5xx")
    project.run("--replay-update").assert_outcomes(passed=1)


def test_an_update_is_refused_under_xdist(project: Project) -> None:
    pytest.importorskip("xdist")
    project.record("order-5xx")
    result = project.run_apart("--replay-update", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--replay-update is refused under pytest-xdist: run it with -n 0*"])
    assert not project.snapshot("order-5xx").exists()
    project.run_apart("--replay-update", "-n", "0").assert_outcomes(passed=1)


def test_snapshot_update_in_ci_writes_no_replay_and_says_why(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project.record("order-5xx")
    result = project.run("--snapshot-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["--snapshot-update does not write it in CI*", "next: pytest *--replay-update"])
    assert not project.snapshot("order-5xx").exists()


def test_snapshots_of_syrupy_beside_the_fixtures_are_left_alone(suite: Callable[..., Project]) -> None:
    """Both ways: syrupy keeps ours, we keep syrupy's, also where both lie in one folder."""
    project = suite("order-5xx")
    project.write("fixtures/test_plain.py", "def test_plain(snapshot): assert snapshot == 1\n")
    project.run("--snapshot-update").assert_outcomes(passed=2)
    before = project.files()
    assert "fixtures/__snapshots__/test_plain.ambr" in before
    for option in ("--snapshot-update", "--replay-update"):
        assert project.run(option).ret == pytest.ExitCode.OK
        assert project.run(option, "-k", "plain").ret == pytest.ExitCode.OK
        assert project.run(option, "fixtures/order-5xx.trace.json").ret == pytest.ExitCode.OK
        assert {name: data for name, data in project.files().items() if "__pycache__" not in name} == {
            name: data for name, data in before.items() if "__pycache__" not in name
        }


@pytest.mark.parametrize(
    "variable",
    ["BUILD_NUMBER", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI", "BUILDKITE", "GITHUB_ACTIONS"],
)
def test_an_update_is_refused_on_every_builder(
    project: Project, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "7")
    project.record("order-5xx")
    result = project.run("--replay-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--replay-update is refused in CI (the variable {variable} is set)*"])


def test_whatever_pytest_takes_for_ci_is_ci() -> None:
    import inspect
    import re

    from _pytest.compat import running_on_ci

    from replay.suite.ci import VARIABLES

    theirs = re.findall(r'"([A-Z_]+)"', inspect.getsource(running_on_ci))
    assert theirs and set(theirs) <= set(VARIABLES)


def test_a_bulk_update_says_how_each_run_ended(project: Project) -> None:
    for name in ("order-5xx", "denied", "max-steps"):
        project.record(name)
    result = project.run("--replay-update")
    result.stdout.fnmatch_lines(
        [
            "written fixtures/max-steps.trace.json::replay: * lines; ended with max_steps",
            "written fixtures/order-5xx.trace.json::replay: * lines; ended with finish",
            "3 snapshots: 2 ended with finish, 1 ended with max_steps",
        ]
    )
