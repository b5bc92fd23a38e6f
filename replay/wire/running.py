"""The jobs of the wire, whole: record a program, replay it, serve a recording."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from replay.wire.aside import Recorder, Setting, Summary
from replay.wire.child import name_of, run_program
from replay.wire.gateway import Gateway
from replay.wire.listening import listening
from replay.wire.player import Account, Player
from replay.wire.playing import Players
from replay.wire.stored import book_upstreams
from replay.wire.upstreams import Upstream, environment

Say = Callable[[str], None]


class Recorded(Struct, frozen=True, kw_only=True):
    """What came of a recording: the program's exit status, and what was recorded."""

    status: int
    summary: Summary


def record_program(
    command: Sequence[str],
    setting: Setting,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
    *,
    say: Say = lambda message: None,
) -> Recorded:
    """Run a program behind a gateway and record what passes.

    Raises:
        ConfigError: the program cannot be started, or the trace file cannot be created.
    """
    return asyncio.run(_record(command, setting, upstreams, environ, say))


async def _record(
    command: Sequence[str],
    setting: Setting,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
    say: Say,
) -> Recorded:
    recorder = Recorder(msgspec.structs.replace(setting, name=setting.name or name_of(command)))
    gateway = Gateway(upstreams, recorder.tell, say)
    try:
        async with gateway, listening(gateway.handle) as url:
            status = await run_program(command, environment(url, upstreams, environ, keys=False))
    finally:
        summary = await asyncio.to_thread(recorder.close)
    return Recorded(status=status, summary=summary)


def record_traffic(
    setting: Setting,
    upstreams: Mapping[str, Upstream],
    host: str,
    port: int,
    *,
    started: Callable[[str], None],
    say: Say,
) -> Summary:
    """Record what passes until an interrupt.

    Raises:
        ConfigError: it cannot listen, or the recording cannot be opened.
    """
    return asyncio.run(_record_traffic(setting, upstreams, host, port, started, say))


async def _record_traffic(
    setting: Setting,
    upstreams: Mapping[str, Upstream],
    host: str,
    port: int,
    started: Callable[[str], None],
    say: Say,
) -> Summary:
    recorder = Recorder(setting)
    gateway = Gateway(upstreams, recorder.tell, say)
    try:
        async with gateway, listening(gateway.handle, host, port) as url:
            started(url)
            watch = asyncio.create_task(_watch(recorder, gateway, say))
            await until_stopped()
            watch.cancel()
    finally:
        summary = await asyncio.to_thread(recorder.close)
    return summary


async def _watch(recorder: Recorder, gateway: Gateway, say: Say) -> None:
    """Have closed what is idle, and say what was lost, every second."""
    while True:
        await asyncio.sleep(1)
        recorder.tick(gateway.now_ns())
        for warning in recorder.told():
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
