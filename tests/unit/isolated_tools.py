"""Tools for the tests of isolation. A module of its own, and a light one: every isolated call imports it anew."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from typing import Any


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def add(args: dict[str, Any]) -> Any:
    return {"sum": args["a"] + args["b"], "pid": os.getpid()}


async def add_later(args: dict[str, Any]) -> int:
    import asyncio

    await asyncio.sleep(0)
    return int(args["a"]) + int(args["b"])


def move(point: Point, idempotency_key: str | None = None) -> Any:
    return [point, idempotency_key]


def noisy(args: dict[str, Any]) -> str:
    print("to stdout")
    os.write(1, b"\x00\xff not JSON " * 20_000)
    os.write(2, b"to stderr")
    return sys.stdin.read() + "quiet result"


def fail(args: dict[str, Any]) -> None:
    raise LookupError("nothing there")


def leave(args: dict[str, Any]) -> None:
    os.write(2, b"last words")
    os._exit(3)


def abort(args: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def eat_memory(args: dict[str, Any]) -> int:
    return len(bytearray(4 << 30))


def eat_cpu(args: dict[str, Any]) -> None:
    while True:
        pass


def return_much(args: dict[str, Any]) -> str:
    return "x" * (64 * 2**20 + 1)


def echo_size(args: dict[str, Any]) -> list[Any]:
    return [len(args["text"]), args["text"]]


def with_child(args: dict[str, Any]) -> None:
    """Starts a child that holds a pipe of the test open, says so, and waits for ever."""
    subprocess.Popen(["sleep", "600"])
    with open(args["fifo"], "w") as fifo:
        fifo.write("ready")
        fifo.flush()
        fifo_held = os.dup(fifo.fileno())
        os.set_inheritable(fifo_held, True)
        subprocess.run(["sleep", "600"], pass_fds=(fifo_held,), check=False)


def fork_and_leave(args: dict[str, Any]) -> None:
    """A grandchild inherits all pipes and lives on, while the process ends without a result."""
    if os.fork() == 0:
        signal.pause()
    os._exit(7)
