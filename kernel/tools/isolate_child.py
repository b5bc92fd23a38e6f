"""The inside of an isolated call: run as a script in a fresh interpreter, it makes one call and answers as JSON.

Two pipes lead here. One brings a pickled request and then stays open for as long as the caller wants the call: when it
closes, because the caller is gone, the whole process group is killed. The other takes the answer: eight bytes of
length, then JSON. The tool's own output goes where the caller put stdout and stderr, never into the answer.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import types
from _thread import stack_size, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MAX_ANSWER_BYTES = 64 << 20
_WATCHER_STACK_BYTES = 128 << 10


def read_exactly(fd: int, size: int) -> bytes:
    """Read `size` bytes from a blocking pipe; fewer only where it ends before."""
    parts: list[bytes] = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a blocking pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[: 1 << 20]) :]


def frame(data: bytes) -> bytes:
    """`data` with its length in front, as both pipes carry it."""
    return len(data).to_bytes(8, "big") + data


def main(request_fd: int, answer_fd: int) -> None:
    """Serve the one request, and end the process without waiting for what the tool left running."""
    os.set_inheritable(request_fd, False)
    os.set_inheritable(answer_fd, False)
    size = int.from_bytes(read_exactly(request_fd, 8), "big")
    request = pickle.loads(read_exactly(request_fd, size))
    stack_size(_WATCHER_STACK_BYTES)
    start_new_thread(_end_with_caller, (request_fd,))
    stack_size(0)
    out_of_memory = frame(b'{"type":"MemoryError","message":"the tool used more than its memory_mb","ran":true}')
    try:
        answer = frame(_answer(request))
    except MemoryError:
        answer = out_of_memory
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed or replaced by the tool: what it printed is no part of the answer
            stream.flush()
    write_all(answer_fd, answer)
    os._exit(0)


def _end_with_caller(request_fd: int) -> None:
    os.read(request_fd, 1)
    os.killpg(0, signal.SIGKILL)


def _answer(request: dict[str, Any]) -> bytes:
    sys.path[:], sys.argv[:] = request["path"], request["argv"]
    from kernel.record import compact_json, describe, to_jsonable

    _limit(request["memory_bytes"], request["cpu_s"])
    try:
        _load_main(request["main"])
        function, args, keywords = pickle.loads(request["call"])
    except BaseException as error:
        kind, message = describe(error)
        return compact_json({"type": kind, "message": message, "ran": False}).encode()
    try:
        data = compact_json({"result": to_jsonable(_called(function, args, keywords))}).encode()
    except MemoryError:
        raise
    except BaseException as error:
        kind, message = describe(error)
        data = compact_json({"type": kind, "message": message, "ran": True}).encode()
    if len(data) <= MAX_ANSWER_BYTES:
        return data
    message = f"the result is {len(data)} bytes of JSON; an isolated tool may return {MAX_ANSWER_BYTES}. Return less."
    return compact_json({"type": "ResultTooLarge", "message": message, "ran": True}).encode()


def _called(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    result = function(*args, **keywords)
    if not hasattr(result, "__await__"):
        return result
    import asyncio

    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited())


def _limit(memory_bytes: int | None, cpu_s: int | None) -> None:
    import resource  # here, so that the constants above can be had on any system

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if cpu_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    if memory_bytes is not None:
        bound = memory_bytes + _address_space_bytes()
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def _address_space_bytes() -> int:
    """What the interpreter itself has taken, most of it reserved and never used; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def _load_main(main: tuple[str, str] | None) -> None:
    """Import the caller's script under another name, so that what it defines is found and its guarded part not run."""
    if main is None:
        return
    import runpy

    kind, name = main
    module = types.ModuleType("__mp_main__")
    run = runpy.run_module if kind == "module" else runpy.run_path
    module.__dict__.update(run(name, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
