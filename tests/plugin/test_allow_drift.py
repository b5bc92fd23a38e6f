"""`replay_allow_drift`: a prompt edit fails by default; where it may pass, it is counted apart."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

EDIT = ("Read only; never change anything.", "Look, do not touch.")


@pytest.fixture
def edited(project: Project) -> Project:
    project.settings('\n[tool.tracefirst.agents]\nincident = "shop:agent"\n')
    project.agents("shop", EDIT)
    project.record("order-5xx")
    return project


def test_drift_fails_and_names_the_setting(edited: Project) -> None:
    result = edited.run("--replay-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["DRIFTED *fixtures/order-5xx.trace.json, step 1, request /messages/0/content*", "*replay_allow_drift = true*"]
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_allowed_drift_passes_and_is_shown_apart(edited: Project, workers: str) -> None:
    edited.run("-o", "replay_allow_drift=true", "--replay-update")
    result = edited.run_apart("-o", "replay_allow_drift=true", "-n", workers)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "passed, drifted at step 1: request /messages/0/content (prompt): fixtures/order-5xx.trace.json::replay",
            "replay: 0 same, 1 drifted, 0 diverged, 0 not checked; *",
            "*1 drifted*",
        ]
    )


def test_the_next_edit_changes_the_snapshot_of_a_drifted_replay(edited: Project) -> None:
    edited.run("-o", "replay_allow_drift=true", "--replay-update")
    edited.agents("shop", (EDIT[0], "Look and touch."))
    result = edited.run("-o", "replay_allow_drift=true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its snapshot changed: *"])


def test_behaviour_that_differs_never_passes(edited: Project) -> None:
    edited.agents("shop", EDIT, ("max_steps=8", "max_steps=2"))
    result = edited.run("-o", "replay_allow_drift=true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["replay: 0 same, 0 drifted, 1 diverged, 0 not checked; *"])
