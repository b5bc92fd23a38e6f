"""The fixture `replay_serving`: recordings served to the agent of a test, each accounted for at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernel.errors import ConfigError, TraceError
from replay.suite.case import Outcome
from replay.suite.failure import Reason, ReplayFailed
from replay.suite.session import Suite
from replay.wire import NotSame, Server, serving


def serve_for(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """What the fixture gives: a function that serves a recording until the end of the test.

    Raises:
        ReplayFailed: what was served is not what was recorded, or nothing was served.
    """
    suite: Suite | None = request.config.pluginmanager.get_plugin(Suite.name)
    assert suite is not None, "the plugin registers its suite when pytest starts"
    settings = suite.settings
    servers: list[tuple[str, Server]] = []
    with ExitStack() as stack:

        def serve(file: str | Path, *, drift: bool | None = None) -> Server:
            path = settings.root / Path(file)
            if not path.is_file():
                raise pytest.UsageError(f"{request.node.nodeid}: there is no {path}; paths count from {settings.root}")
            allowed = settings.allow_drift if drift is None else drift
            try:
                server = stack.enter_context(serving(path, drift=allowed, check=False))
            except TraceError as error:
                raise ReplayFailed(
                    "unreadable", settings.shown(path), "not a recording of a program", str(error)
                ) from None
            except ConfigError as error:
                raise ReplayFailed("agent", settings.shown(path), "its rules cannot be used", str(error)) from None
            servers.append((settings.shown(path), server))
            return server

        yield serve
    for shown, server in servers:
        _account(suite, request.node, shown, server)


def _account(suite: Suite, item: pytest.Item, shown: str, server: Server) -> None:
    account = server.account()
    name = server.player.book.agent
    rules = tuple((rule.name, matched > 0) for rule, matched in account.rules)
    outcome = Outcome(verdict=account.verdict, snapshot="not_compared", agent=name, model=account.served, rules=rules)
    suite.note(item, outcome)
    try:
        server.check()
    except NotSame as error:
        first = account.found[0].divergence if account.found else None
        headline = f"{account.verdict.replace('_', ' ')}" + (f" at {first.path} ({first.cause})" if first else "")
        reason: Reason = account.verdict if account.verdict != "same" else "diverged"
        raise ReplayFailed(reason, shown, headline, str(error), first.step if first else 0) from None
