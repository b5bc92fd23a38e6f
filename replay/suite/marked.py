"""`@pytest.mark.replay` and the fixtures that go with it: a replay for one's own assertions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel.agent import Agent
from replay.play import Recording, ReplayResult, replay
from replay.suite.case import load_named, only_recording, outcome_of, replay_today, replay_with, verdict_failure
from replay.suite.session import Suite
from replay.suite.settings import Settings

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

_KNOWN = {"agent", "trace_id", "allow_drift", "check"}
_ABSENT: Any = object()


def replay_marked(request: pytest.FixtureRequest) -> ReplayResult:
    """The replay that a test's marker asks for.

    Raises:
        ReplayFailed: the verdict is not `same`, unless the marker says `check=False`.
        pytest.UsageError: the marker is missing or cannot be understood.
    """
    marker = request.node.get_closest_marker("replay")
    if marker is None or len(marker.args) != 1 or not set(marker.kwargs) <= _KNOWN:
        raise pytest.UsageError(
            f'{request.node.nodeid}: `replayed` needs @pytest.mark.replay("fixtures/x.trace.json"), '
            f"with {', '.join(sorted(_KNOWN))} as further arguments"
        )
    suite = _suite(request)
    settings, asked = suite.settings, marker.kwargs
    fixture = settings.root / Path(marker.args[0])
    if not fixture.is_file():
        raise pytest.UsageError(f"{request.node.nodeid}: there is no {fixture}; paths count from {settings.root}")
    shown = settings.shown(fixture)
    recording = only_recording(settings, fixture, asked.get("trace_id"))
    agent = asked.get("agent", _ABSENT)
    if agent is _ABSENT:
        result = replay_today(settings, recording, shown)
    elif agent is None:
        result = replay(recording)
    else:
        result = replay_with(_agent(settings, agent, recording, shown), recording, shown)
    suite.note(request.node, outcome_of(result))
    allow_drift = bool(asked.get("allow_drift", settings.allow_drift))
    failure = verdict_failure(settings, result, shown, allow_drift=allow_drift) if asked.get("check", True) else None
    if failure is not None:
        raise failure
    return result


def snapshot_assertion(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """syrupy's own assertion with the format of replays. It is written under `--replay-update` too, where that may."""
    from syrupy.assertion import SnapshotAssertion
    from syrupy.location import PyTestLocation

    from replay.suite.extension import ReplaySnapshotExtension

    return SnapshotAssertion(
        update_snapshots=_suite(request).settings.update,
        extension_class=ReplaySnapshotExtension,
        test_location=PyTestLocation(request.node),
        session=request.session.config._syrupy,  # type: ignore[attr-defined]
    )


def _agent(settings: Settings, agent: Agent | str, recording: Recording, shown: str) -> Agent:
    """An agent as the marker names it: itself, `module:object`, or a name of the settings."""
    if isinstance(agent, Agent):
        return agent
    if ":" in agent:
        return load_named(settings, (agent, agent), recording, shown)
    if not settings.agents.get(agent):
        raise pytest.UsageError(f'no agent "{agent}" is configured; known: {", ".join(settings.agents) or "none"}')
    return load_named(settings, (agent, settings.agents[agent]), recording, shown)


def _suite(request: pytest.FixtureRequest) -> Suite:
    suite: Suite | None = request.config.pluginmanager.get_plugin(Suite.name)
    assert suite is not None, "the plugin registers its suite when pytest starts"
    return suite
