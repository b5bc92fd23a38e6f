"""A hundred planted changes of an agent: what reaches the model or a gate is noticed, at its step and with its cause."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel import Agent, Tracing
from replay import load, replay
from replay.play import ReplayResult
from tests.detect.changed_agents import CHANGES, TASK, Action, Change, Options, agent, model, refactorings


def replayed(change: Change, file: Path, now: Agent) -> ReplayResult:
    was = agent(**change.was)
    asyncio.run(was.run(TASK, llm=model(change.said, change.protocol), trace=Tracing(file=file, join=False)))
    (recording,) = load(file)
    assert replay(recording).verdict == "same"
    assert replay(recording, was).verdict == "same"
    return replay(recording, now)


def test_there_are_at_least_a_hundred() -> None:
    assert len(CHANGES) >= 120 and len({change.id for change in CHANGES}) == len(CHANGES)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
def test_a_change_is_noticed_at_its_step_with_its_cause(change: Change, tmp_path: Path) -> None:
    result = replayed(change, tmp_path / "x.trace.json", agent(**change.now))
    told = [(d.step, d.kind, d.path, d.cause, d.downstream) for d in result.divergences]
    assert result.verdict == change.verdict, told
    causes = {setting.cause for setting in result.settings} or {"finish check"}
    assert change.cause in causes
    if change.verdict == "same":
        assert result.unexercised == result.settings
        return
    assert result.first is not None
    assert (result.first.step, result.first.cause) == (change.step, change.cause), told


@pytest.mark.parametrize(("id", "was", "now", "said"), [pytest.param(*row, id=row[0]) for row in refactorings()])
@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_a_harmless_refactoring_is_no_alarm(
    id: str, was: Options, now: Options, said: tuple[Action, ...], protocol: str, tmp_path: Path
) -> None:
    change = Change(id=id, was=was, now=now, said=said, protocol=protocol)
    result = replayed(change, tmp_path / "x.trace.json", agent(**now))
    assert (result.verdict, result.settings) == ("same", ()), [
        (d.path, d.recorded, d.observed) for d in result.divergences
    ]
