"""The program behind the gateway: started, sent the signals that we get, waited for; its exit status is told."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel.errors import ConfigError

_GRACE_S = 5.0


async def run_program(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    output: Any = None,
) -> int:
    """Run a program to its end; returns its exit status, 128 + N where signal N ended it, as a shell does.

    Args:
        output: where its standard output goes; None leaves it ours.
    Raises:
        ConfigError: it cannot be started.
        TimeoutError: it was stopped after `timeout_s`.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environ), cwd=cwd, stdout=output)
    except FileNotFoundError:
        raise ConfigError(f"{command[0]}: no such program{f' in {cwd}' if cwd else ''}") from None
    except OSError as error:
        raise ConfigError(f"{command[0]}: cannot be started: {error.strerror or error}") from None
    with _signals_to(process):
        try:
            async with asyncio.timeout(timeout_s):
                status = await process.wait()
        except (TimeoutError, asyncio.CancelledError):
            await _stop(process)
            raise
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _signals_to(process: asyncio.subprocess.Process) -> Any:
    """Send on what would end us, so that the program ends first and the recording is whole."""
    loop = asyncio.get_running_loop()
    handled = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if sys.platform != "win32" else ():
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(number, _send, process, number)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def name_of(command: Sequence[str]) -> str:
    """What to call the agent that a command runs: its script where an interpreter runs one, else the program."""
    first = Path(command[0]).name
    if first.rstrip("0123456789.").removesuffix(".exe") in (
        "python",
        "node",
        "bun",
        "deno",
        "ruby",
        "uv",
        "npx",
        "sh",
        "bash",
    ):
        for word in command[1:]:
            if not word.startswith("-") and Path(word).suffix:
                return Path(word).stem
    return Path(first).stem or first
