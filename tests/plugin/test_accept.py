"""Drift that is accepted on purpose: one review that shows the change once, and just that drift passes from then on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import incident
from kernel import Agent
from replay.cli import main
from replay.loading import load
from replay.play import replay
from replay.suite.accepting import accept, acceptance, accepted_in, changes_of, withdraw
from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

TABLE = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\n'
EDIT = ("Read only; never change anything.", "Look, do not touch.")


def edited(system: str = incident.SYSTEM.replace(*EDIT)) -> Agent:
    return Agent(name="incident", system=system, tools=incident.tools, budget=incident.agent.budget)


@pytest.fixture
def drifted(suite: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """Ten fixtures that drift by one edit of the prompt."""
    project = suite("order-5xx")
    for n in range(5):
        project.record("order-5xx", to=f"order-{n}")
        project.record("conversation", to=f"talk-{n}")
    (project.fixtures / "order-5xx.trace.json").unlink()
    project.agents("shop")
    project.settings(TABLE)
    project.run("--replay-update").assert_outcomes(passed=10)
    project.agents("shop", EDIT)
    monkeypatch.chdir(project.path)
    monkeypatch.syspath_prepend(str(project.path))
    project.run().assert_outcomes(failed=10)
    return project


def command(*args: str, status: int) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == status


def test_ten_fixtures_that_drift_are_green_after_a_review_and_a_yes(
    drifted: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    before = drifted.files()
    command("accept", "fixtures", "--agent", "shop:agent", status=1)
    review = capsys.readouterr().out
    assert review.count("Look, do not touch.") == 1 and "10 fixtures: " in review
    assert drifted.files() == before
    command("accept", "fixtures", "--agent", "shop:agent", "--yes", "--reason", "shorter", status=0)
    result = drifted.run()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["passed, accepted since 20*-*-*, drifted at step 1: *", "*10 drifted*"])
    changed = {name for name, data in drifted.files().items() if before.get(name) != data}
    assert changed == {"fixtures/__replays__/accepted.json"}
    capsys.readouterr()
    command("accepted", "fixtures", status=0)
    assert ": shorter" in (listed := capsys.readouterr().out) and "1 change accepted" in listed


def test_the_next_edit_is_drift_again(drifted: Project) -> None:
    command("accept", "fixtures", "--agent", "shop:agent", "--yes", status=0)
    drifted.agents("shop", (EDIT[0], "Look and touch."))
    result = drifted.run_apart()
    result.assert_outcomes(failed=10)


def test_what_is_accepted_and_not_there_any_more_fails_until_it_is_taken_back(drifted: Project) -> None:
    command("accept", "fixtures", "--agent", "shop:agent", "--yes", status=0)
    drifted.agents("shop")
    result = drifted.run_apart("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["replay: accepted drift is not there any more: fixtures/*::replay (prompt /system); *"]
    )
    command("accept", "fixtures", "--undo", status=0)
    assert drifted.run_apart().ret == pytest.ExitCode.OK
    assert "fixtures/__replays__/accepted.json" not in drifted.files()


def test_what_is_accepted_for_a_fixture_that_is_gone_fails_the_session(drifted: Project) -> None:
    command("accept", "fixtures", "--agent", "shop:agent", "--yes", status=0)
    (drifted.fixtures / "order-1.trace.json").unlink()
    (drifted.fixtures / "__replays__" / "order-1.replay.txt").unlink()
    result = drifted.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["replay: accepted drift of fixtures/order-1.trace.json, which is not there; *--undo*"])
    command("accept", "fixtures/order-1.trace.json", "--undo", status=0)
    assert drifted.run().ret == pytest.ExitCode.OK


def test_only_the_fixtures_that_were_accepted_may_drift(drifted: Project) -> None:
    command("accept", "fixtures/order-1.trace.json", "--agent", "shop:agent", "--yes", status=0)
    drifted.run().assert_outcomes(failed=9)


def test_behaviour_is_never_accepted(drifted: Project, capsys: pytest.CaptureFixture[str]) -> None:
    drifted.agents("shorter", EDIT, ("max_steps=8", "max_steps=2"))
    capsys.readouterr()
    command("accept", "fixtures/order-1.trace.json", "--agent", "shorter:agent", "--yes", status=1)
    assert "only drift can be accepted" in capsys.readouterr().out
    assert "fixtures/__replays__/accepted.json" not in drifted.files()


@pytest.mark.parametrize("option", ["--yes", "--undo"])
def test_nothing_is_accepted_in_ci(drifted: Project, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("TF_BUILD", "True")
    command("accept", "fixtures", "--agent", "shop:agent", option, status=2)
    command("accept", "fixtures", "--agent", "shop:agent", status=1)


def test_a_file_of_accepted_drift_that_cannot_be_read_is_not_read_as_empty(drifted: Project) -> None:
    command("accept", "fixtures", "--agent", "shop:agent", "--yes", status=0)
    path = drifted.fixtures / "__replays__" / "accepted.json"
    path.write_text(path.read_text().replace("accepted drift 1", "accepted drift 9"))
    result = drifted.run_apart("fixtures/order-1.trace.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*accepted.json: cannot be read as accepted drift 1: *accepted drift 9*"])


def test_a_marked_test_goes_by_what_is_accepted_too(drifted: Project) -> None:
    drifted.write(
        "test_own.py", 'import pytest\n@pytest.mark.replay("fixtures/order-1.trace.json")\ndef test_own(): pass\n'
    )
    drifted.run("test_own.py").assert_outcomes(failed=1)
    command("accept", "fixtures/order-1.trace.json", "--agent", "shop:agent", "--yes", status=0)
    assert drifted.run("test_own.py").ret == pytest.ExitCode.OK


def test_the_snapshot_of_a_marked_test_stays_as_it_is(drifted: Project) -> None:
    drifted.write(
        "test_own.py",
        'import pytest\n@pytest.mark.replay("fixtures/order-1.trace.json")\n'
        "def test_own(replayed, replay_snapshot): assert replayed == replay_snapshot\n",
    )
    drifted.agents("shop")
    drifted.run_apart("test_own.py", "--replay-update").assert_outcomes(passed=1)
    drifted.agents("shop", EDIT)
    command("accept", "fixtures/order-1.trace.json", "--agent", "shop:agent", "--yes", status=0)
    assert drifted.run_apart("test_own.py").ret == pytest.ExitCode.OK
    drifted.run_apart("test_own.py", "-o", "replay_allow_drift=true").stdout.fnmatch_lines(["*1 snapshot passed*"])


def fixture(tmp_path: Path, name: str = "order-5xx") -> Path:
    path = tmp_path / f"{name}.trace.json"
    path.write_bytes((Path(incident.__file__).parent / f"{name}.trace.json").read_bytes())
    return path


def test_one_cause_can_be_accepted_and_another_not(tmp_path: Path) -> None:
    path = fixture(tmp_path)
    (recording,) = load(path)
    tools = incident.Agent(name="x", tools=incident.tools).tools
    more = type(tools)()
    for tool in tools:
        more.add(tool)
    more.tool(_extra)
    agent = Agent(name="incident", system="Another.", tools=more, budget=incident.agent.budget)
    result = replay(recording, agent)
    changes = changes_of(result)
    assert {change.cause for change in changes} == {"prompt", "tool schema"}
    accept(path, changes, today="2026-01-02", causes=["prompt"])
    assert acceptance(path, result).since == ""
    accept(path, changes, today="2026-01-03")
    assert acceptance(path, result).since == "2026-01-03"
    assert [one.since for one in accepted_in(tmp_path)] == ["2026-01-02", "2026-01-03"]


def _extra(of: str) -> str:
    """One more tool."""
    return of


def test_accepting_twice_keeps_the_first_date_and_a_new_change_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = fixture(tmp_path)
    (recording,) = load(path)
    one, other = (changes_of(replay(recording, edited(system))) for system in ("One.", "Other."))
    assert accept(path, one, today="2026-01-01") == one
    before = (tmp_path / "__replays__" / "accepted.json").read_bytes()
    assert accept(path, one, today="2026-02-02") == ()
    assert (tmp_path / "__replays__" / "accepted.json").read_bytes() == before
    accept(path, other, today="2026-03-03")
    assert [(entry.since, entry.change.now) for entry in accepted_in(tmp_path)] == [("2026-03-03", other[0].now)]


def test_a_change_that_two_fixtures_share_is_kept_once(tmp_path: Path) -> None:
    paths = [fixture(tmp_path), fixture(tmp_path, "conversation")]
    for path in paths:
        accept(path, changes_of(replay(load(path)[0], edited())), today="2026-01-01")
    document = json.loads((tmp_path / "__replays__" / "accepted.json").read_text())
    (entry,) = document["accepted"]
    assert entry["fixtures"] == ["conversation.trace.json", "order-5xx.trace.json"]
    assert withdraw(paths[0]) == 1 and withdraw(paths[0]) == 0
    assert [one.fixtures for one in accepted_in(tmp_path)] == [("conversation.trace.json",)]


def test_a_secret_in_the_prompt_does_not_reach_the_file(tmp_path: Path) -> None:
    path = fixture(tmp_path)
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2
    accept(path, changes_of(replay(load(path)[0], edited(f"Use {secret}."))), today="2026-01-01")
    assert secret not in (tmp_path / "__replays__" / "accepted.json").read_text()


def test_a_file_that_was_edited_is_not_drift_to_accept(tmp_path: Path) -> None:
    path = fixture(tmp_path)
    path.write_text(path.read_text().replace("10:00 11/50", "10:00 12/50"))
    assert changes_of(replay(load(path)[0], incident.agent)) == ()
