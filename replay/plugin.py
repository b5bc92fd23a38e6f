"""The pytest plugin: each trace below the configured folders is a test, without a line of code.

    [tool.pytest.ini_options]
    replay_fixtures = ["fixtures"]

    [tool.tracefirst.agents]
    incident = "shop.agents:incident"

Loading this module loads neither the kernel nor syrupy; that happens when the first trace is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from syrupy.assertion import SnapshotAssertion

    from replay.play import ReplayResult
    from replay.wire import Server

MARKER = (
    "replay(fixture, agent=..., trace_id=None, allow_drift=False, check=True, task=None): the recording that the test "
    "replays, also without the fixture `replayed`; a path relative to the root of the project"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("replay", "replay of recorded agent runs")
    group.addoption(
        "--replay-update",
        action="store_true",
        default=False,
        dest="replay_update",
        help="write the snapshots of the replays that ran and were as recorded; refused in CI and under pytest-xdist",
    )
    group.addoption(
        "--replay-record",
        nargs="?",
        const="missing",
        choices=["missing", "drifted", "all"],
        dest="replay_record",
        help="record live, with the agents of today, and write the snapshots: what is missing (a marker with task=...), "
        "what drifted, or all that runs; refused in CI and under pytest-xdist",
    )
    group.addoption(
        "--replay-llm",
        dest="replay_llm",
        metavar="module:object",
        help="the live model of --replay-record; by default that of OPENAI_BASE_URL, OPENAI_API_KEY and MODEL",
    )
    group.addoption(
        "--replay-allow",
        action="append",
        default=[],
        dest="replay_allow",
        metavar="TOOL",
        help="let this tool with side effects run under --replay-record; others are denied; may be repeated",
    )
    group.addoption(
        "--replay-partial",
        action="store_true",
        default=False,
        dest="replay_partial",
        help="this run is one part of a split suite: recordings that another plugin takes out are not lost",
    )
    group.addoption(
        "--replay-agent",
        action="append",
        default=[],
        dest="replay_agent",
        metavar="NAME=module:object",
        help="replay the recordings of agent NAME with this agent of today; beats the configuration; may be repeated",
    )
    parser.addini("replay_fixtures", "folders whose *.trace.json are tests", type="paths", default=[])
    parser.addini("replay_agents", "agents of today, a line each: NAME=module:object", type="linelist", default=[])
    parser.addini(
        "replay_strict_settings",
        "fail also where a setting of the agent changed that the recording does not exercise",
        type="bool",
        default=False,
    )
    parser.addini("replay_allow_drift", "let drifted replays pass; they are counted apart", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    from replay.suite.session import Suite

    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(Suite(config), Suite.name)


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> ReplayResult:
    """The replay of the recording that `@pytest.mark.replay` names. Fails the test unless the replay is `same`."""
    from replay.suite.marked import replay_marked

    return replay_marked(request.node)


@pytest.fixture
def replay_serving(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Serves recordings made at the wire to the agent of a test: `server = replay_serving("fixtures/x.trace.json")`, then
    `base_url=server.url`. When the test has passed, all must have been served as recorded, and nothing else asked."""
    from replay.suite.served import serve_for

    yield from serve_for(request)


@pytest.fixture
def replay_snapshot(request: pytest.FixtureRequest) -> SnapshotAssertion:
    """A syrupy assertion that holds a `ReplayResult` as text: `assert replayed == replay_snapshot`."""
    from replay.suite.marked import snapshot_assertion

    return snapshot_assertion(request)
