"""The jobs of the wire, whole: record a program, replay it, serve a recording."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernel.seams import RandomIds
from kernel.tracing import Tracing
from replay.wire.background import Background
from replay.wire.child import name_of, run_program
from replay.wire.gateway import Gateway
from replay.wire.listening import listening
from replay.wire.player import Account, Player
from replay.wire.playing import Players
from replay.wire.scribe import Scribe
from replay.wire.stored import book_upstreams
from replay.wire.upstreams import Upstream, environment

Say = Callable[[str], None]


class Recorded(Struct, frozen=True, kw_only=True):
    """What came of a recording: the program's exit status, where the trace is, what of it was lost."""

    status: int
    path: Path | None
    exchanges: int
    conversations: int
    warnings: tuple[str, ...]


def record_program(
    command: Sequence[str],
    tracing: Tracing,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
    *,
    name: str = "",
    say: Say = lambda message: None,
) -> Recorded:
    """Run a program behind a gateway and write what passes as one trace.

    Raises:
        ConfigError: the program cannot be started, or the trace file cannot be created.
    """
    return asyncio.run(_record(command, tracing, upstreams, environ, name or name_of(command), say))


async def _record(
    command: Sequence[str],
    tracing: Tracing,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
    name: str,
    say: Say,
) -> Recorded:
    now = Gateway.clock()
    scribe = Scribe(tracing, RandomIds(), name, now)
    background, session = Background(), scribe.session
    gateway = Gateway(upstreams, scribe, background, say, now)
    started = False
    try:
        async with gateway, listening(gateway.handle) as url:
            status = await run_program(command, environment(url, upstreams, environ, keys=False))
            started = True
    finally:
        background.put(scribe.close)
        await asyncio.to_thread(background.close)
        if not started and not scribe.exchanges and session is not None and session.path is not None:
            session.path.unlink(missing_ok=True)  # of a program that was not started there is nothing to keep
    warnings = [*background.told(), *scribe.warnings()]
    return Recorded(
        status=status,
        path=session.path if session is not None else None,
        exchanges=scribe.exchanges,
        conversations=scribe.conversations,
        warnings=tuple(warnings),
    )


def record_traffic(
    tracing: Tracing,
    upstreams: Mapping[str, Upstream],
    host: str,
    port: int,
    *,
    name: str,
    idle_s: float,
    started: Callable[[str], None],
    say: Say,
) -> tuple[int, int]:
    """Record what passes until an interrupt, a trace for each conversation; returns how many exchanges and conversations.

    Raises:
        ConfigError: it cannot listen.
    """
    return asyncio.run(_record_traffic(tracing, upstreams, host, port, name, idle_s, started, say))


async def _record_traffic(
    tracing: Tracing,
    upstreams: Mapping[str, Upstream],
    host: str,
    port: int,
    name: str,
    idle_s: float,
    started: Callable[[str], None],
    say: Say,
) -> tuple[int, int]:
    background, now = Background(), Gateway.clock()
    scribe = Scribe(tracing, RandomIds(), name, now, idle_s=idle_s)
    gateway = Gateway(upstreams, scribe, background, say, now)
    try:
        async with gateway, listening(gateway.handle, host, port) as url:
            started(url)
            watch = asyncio.create_task(_watch(scribe, background, now, say))
            await until_stopped()
            watch.cancel()
    finally:
        background.put(scribe.close)
        await asyncio.to_thread(background.close)
        _tell_losses(scribe, background, say)
    return scribe.exchanges, scribe.conversations


async def _watch(scribe: Scribe, background: Background, now: Callable[[], int], say: Say) -> None:
    """Close what is idle, and say what was lost, every second."""
    while True:
        await asyncio.sleep(1)
        background.put(lambda: scribe.close_idle(now()))
        _tell_losses(scribe, background, say)


def _tell_losses(scribe: Scribe, background: Background, say: Say) -> None:
    for warning in [*background.told(), *scribe.warnings()]:
        say(warning)


class Replayed(Struct, frozen=True, kw_only=True):
    """What came of a replay: the account, and the program's exit status, None where it was stopped for its time."""

    account: Account
    status: int | None


def replay_program(
    command: Sequence[str],
    player: Player,
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    output: Any = None,
) -> Replayed:
    """Run a program on the recorded answers. Raises `ConfigError` where it cannot be started."""
    return asyncio.run(_replay(command, player, environ, cwd, timeout_s, output))


async def _replay(
    command: Sequence[str],
    player: Player,
    environ: Mapping[str, str],
    cwd: Path | None,
    timeout_s: float | None,
    output: Any,
) -> Replayed:
    async with listening(Players({"": player}).handle) as url:
        led = environment(url, book_upstreams(player.book), environ, keys=True)
        try:
            status: int | None = await run_program(command, led, cwd=cwd, timeout_s=timeout_s, output=output)
        except TimeoutError:
            status = None
    return Replayed(account=player.account(), status=status)


def serve(players: Mapping[str, Player], host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve recordings until an interrupt. Raises `ConfigError` where it cannot listen."""
    asyncio.run(_serve(Players(players), host, port, started))


async def _serve(players: Players, host: str, port: int, started: Callable[[str], None]) -> None:
    async with listening(players.handle, host, port) as url:
        started(url)
        await until_stopped()


async def until_stopped() -> None:
    """Wait for SIGTERM or an interrupt."""
    import signal

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
