"""What a run says at its end, how failures travel, and that workers change nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from replay.suite.failure import ReplayFailed
from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_summary_counts_verdicts_and_what_was_served(suite: Callable[..., Project], workers: str) -> None:
    pytest.importorskip("xdist")
    project = suite("order-5xx", "max-steps", "conversation")
    result = project.run_apart("-n", workers)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["replay: 3 same, 0 drifted, 0 diverged, 0 not checked; model replies served 11, live 0"]
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_story_and_its_headline_come_through_from_a_worker(project: Project, workers: str) -> None:
    project.agents("shop", ("max_steps=8", "max_steps=2"))
    project.record("order-5xx")
    result = project.run_apart("-n", workers, "--replay-agent", "incident=shop:agent")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*replay of fixtures/order-5xx.trace.json*",
            "DIVERGED *fixtures/order-5xx.trace.json, step 3, *",
            "  cause *budget: *",
            "next *replay *fixtures/order-5xx.trace.json*",
            "FAILED fixtures/order-5xx.trace.json::replay - diverged at step 3: * (budget)*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*AssertionError*")


def test_workers_find_unused_snapshots_too_and_delete_none(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    (project.fixtures / "max-steps.trace.json").unlink()
    result = project.run_apart("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["unused fixtures/__replays__/max-steps.replay.txt: *"])
    assert project.snapshot("max-steps").exists()


def test_a_failure_pickles_with_all_it_says() -> None:
    failure = ReplayFailed("diverged", "fixtures/x.trace.json", "diverged at step 4", "the story", 4)
    again = pickle.loads(pickle.dumps(failure))
    assert vars(again) == vars(failure) and str(again) == "the story"


def test_verdicts_stand_in_the_junit_file(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.run("--junitxml=out.xml")
    found = ElementTree.parse(project.path / "out.xml").iter("property")
    assert {"replay_verdict": "same", "replay_snapshot": "equal"}.items() <= {
        one.get("name"): one.get("value") for one in found
    }.items()


def test_a_run_without_replays_says_nothing(project: Project) -> None:
    project.settings(base="[tool.pytest.ini_options]\n")
    project.write("test_unit.py", "def test_unit(): pass\n")
    project.run().stdout.no_fnmatch_line("*replay:*")


def test_a_case_can_be_expected_to_fail_or_skipped_by_a_hook(project: Project) -> None:
    project.record("order-5xx")
    project.record("max-steps")
    project.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        '        item.add_marker(pytest.mark.skip if "max" in item.nodeid else pytest.mark.xfail)\n',
    )
    project.run().assert_outcomes(xfailed=1, skipped=1)
