"""`@pytest.mark.replay` and the fixtures that go with it: a replay for one's own assertions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel.agent import Agent
from replay.play import ReplayResult
from replay.suite.case import (
    accepted_drift,
    agent_today,
    load_named,
    only_recording,
    outcome_of,
    replay_or_record,
    replay_with,
    verdict_failure,
)
from replay.suite.extension import ACCEPTED, ReplayAssertion, ReplaySnapshotExtension
from replay.suite.failure import ReplayFailed
from replay.suite.session import Suite
from replay.suite.settings import Settings

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

_KNOWN = {"agent", "trace_id", "allow_drift", "check", "task"}
_ABSENT: Any = object()


def replay_marked(item: pytest.Item) -> ReplayResult:
    """The replay that a test's marker asks for.

    Raises:
        ReplayFailed: the verdict is not `same`, unless the marker says `check=False`; or the marker is missing or cannot be
            followed.
    """
    marker = _marker(item)
    suite = _suite(item.config)
    settings, asked = suite.settings, marker.kwargs
    fixture = settings.root / Path(marker.args[0])
    named = asked.get("agent", _ABSENT)
    recorded = None if fixture.is_file() else _record_missing(item, settings, fixture, named, asked.get("task"))
    shown = settings.shown(fixture)
    recording = only_recording(settings, fixture, asked.get("trace_id"))
    key: str | None = named if isinstance(named, str) else None
    if named is _ABSENT:
        key = settings.key_for(recording.agent, shown)
        agent = agent_today(settings, recording, shown)
    else:
        agent = None if named is None else _agent(item, settings, named, recording.agent, shown)
    if recorded is None:
        result, recorded = replay_or_record(settings, fixture, recording, agent, shown)
    else:
        result = replay_with(settings, agent, recording, shown)
    said = accepted_drift(fixture, result, shown)
    allow_drift = bool(asked.get("allow_drift", settings.allow_drift) or said.since)
    failure = verdict_failure(settings, result, shown, allow_drift=allow_drift) if asked.get("check", True) else None
    suite.note(item, replace(outcome_of(result, key, failure, said), recorded=recorded))
    if said.since:
        item.stash[ACCEPTED] = result
    if failure is not None:
        raise failure
    return result


def _marker(item: pytest.Item) -> pytest.Mark:
    """The one marker of a test, or of the class or module around it."""
    marker = item.get_closest_marker("replay")
    if marker is None or len(marker.args) != 1 or not set(marker.kwargs) <= _KNOWN:
        raise _wrong(
            item,
            '`replayed` needs @pytest.mark.replay("fixtures/x.trace.json"), '
            f"with {', '.join(sorted(_KNOWN))} as further arguments",
        )
    if sum(one.name == "replay" for one in item.own_markers) > 1:
        raise _wrong(
            item, "it has several replay markers, and a test replays one: write a test for each, or parametrize"
        )
    return marker


def _record_missing(
    item: pytest.Item, settings: Settings, fixture: Path, named: Any, task: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Record what a marker asks for, where the run records. Raises `ReplayFailed`."""
    absent = f"there is no {fixture}; paths count from {settings.root}"
    if task is None:
        raise _wrong(item, absent)
    if settings.record not in ("missing", "all"):
        raise _wrong(item, f"{absent}; to record it live: pytest {shlex.quote(item.nodeid)} --replay-record=missing")
    shown = settings.shown(fixture)
    key = settings.key_for("", shown) if named is _ABSENT else named
    if not key:
        raise _wrong(item, f"{absent}; to record it, the marker must name an agent: agent=...")
    from replay.suite.recording import Recorder

    tasks = [task] if isinstance(task, str) else list(task)
    return Recorder(settings=settings).new(fixture, tasks, _agent(item, settings, key, "", shown), shown)


def _wrong(item: pytest.Item, what: str) -> ReplayFailed:
    return ReplayFailed("marker", item.nodeid, f"marker: {what}", f"not checked: {item.nodeid}: {what}")


def snapshot_assertion(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """syrupy's own assertion with the format of replays. It is written under `--replay-update` too, where that may."""
    from syrupy.location import PyTestLocation

    return ReplayAssertion(
        update_snapshots=_suite(request.config).settings.update,
        extension_class=ReplaySnapshotExtension,
        test_location=PyTestLocation(request.node),
        session=request.session.config._syrupy,  # type: ignore[attr-defined]
    )


def _agent(item: pytest.Item, settings: Settings, agent: Agent | str, recorded: str, shown: str) -> Agent:
    """An agent as the marker names it: itself, `module:object`, or a name of the settings."""
    if isinstance(agent, Agent):
        return agent
    if ":" in agent:
        return load_named(settings, agent, agent, recorded, shown)
    if not settings.agents.get(agent):
        raise _wrong(item, f'no agent "{agent}" is configured; known: {", ".join(settings.agents) or "none"}')
    return load_named(settings, agent, settings.agents[agent], recorded, shown)


def _suite(config: pytest.Config) -> Suite:
    suite: Suite | None = config.pluginmanager.get_plugin(Suite.name)
    assert suite is not None, "the plugin registers its suite when pytest starts"
    return suite
