"""A tool call in a process of its own, with limits, that can be killed together with all it started.

Each call gets a fresh interpreter, as multiprocessing's `spawn` would: nothing is inherited, neither threads nor locks
nor sockets, and no server process outlives the run. The price is the start of Python and the import of the tool's
module for every call. The function and its arguments travel as a pickle, so the function must be found by its name in
a module; the result comes back as JSON. What the tool leaves running ends with it. A child that makes itself a session
of its own escapes the kill.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from kernel.errors import ConfigError
from kernel.record import ToolFault, parse_json, valid_text
from kernel.seams import Invocation
from kernel.tools import isolate_child
from kernel.tools.isolate_child import MAX_ANSWER_BYTES, frame, write_all

DIED = "ProcessDied"
_OUTPUT_BYTES = 2000
_POLL_MS = 50
_GUARD = re.compile(r"""__name__\s*==\s*["']__main__["']""")


def request(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any], limits: Mapping[str, int]
) -> bytes:
    """What the new process needs to make the call.

    Args:
        limits: `memory_mb`, mebibytes of address space that the tool and its imports may take beside the interpreter
            itself, and `cpu_s`, seconds of processor time of the whole process. Its children are limited alike, each
            on its own.
    Raises:
        ConfigError: the function or an argument cannot be carried to another process.
    """
    if os.name != "posix":
        raise ConfigError("isolate=True needs process groups and resource limits.\nRun on a POSIX system, or without.")
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        call = pickle.dumps((function, args, dict(keywords)))
        script = _names_main(call)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be run with isolate=True: {type(error).__name__}: {error}.\n"
            "Define it at module level, so that another process can import it by name, with plain arguments."
        ) from None
    memory_mb = limits.get("memory_mb")
    return pickle.dumps(
        {
            "path": sys.path,
            "argv": sys.argv,
            "main": _main(name) if script else None,
            "memory_bytes": None if memory_mb is None else memory_mb << 20,
            "cpu_s": limits.get("cpu_s"),
            "call": call,
        }
    )


class _Modules(pickle.Unpickler):
    """Notes the modules that a pickle refers to."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.seen: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.seen.add(module)
        return super().find_class(module, name)


def _names_main(call: bytes) -> bool:
    if b"__main__" not in call:
        return False
    modules = _Modules(call)
    modules.load()
    return "__main__" in modules.seen


def _main(name: str) -> tuple[str, str]:
    """How the script of this process is imported elsewhere, where that runs nothing but definitions."""
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None or not _guarded(file):
        raise ConfigError(
            f"{name} cannot be run with isolate=True: its script would run again from the top in the new process.\n"
            'Move it to a module of its own, or put the script\'s work below if __name__ == "__main__":.'
        )
    return ("module", spec.name) if spec is not None else ("path", os.path.abspath(file))


@cache
def _guarded(file: str) -> bool:
    try:
        return _GUARD.search(Path(file).read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return False


class IsolatedCall:
    """One call in a process of its own. `run` blocks and belongs in a worker; `kill` may come from any thread."""

    def __init__(self, request: bytes, *, cpu_s: int | None = None) -> None:
        self._request = request
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def kill(self) -> None:
        """Kill the process and its children, or keep it from starting."""
        with self._lock:
            if self._over:
                return
            self._over = True
            if self._process is not None:
                with suppress(ProcessLookupError, PermissionError):  # all of it has ended already
                    os.killpg(self._process.pid, signal.SIGKILL)

    def run(self) -> Invocation:
        """Start the process, hand over the request, take the answer, leave nothing behind. Never raises."""
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            return self._talk(pipes)
        except OSError as error:
            return _failed(type(error).__name__, f"the tool's process could not be started: {error}")
        finally:
            for fd in pipes:
                os.close(fd)

    def _talk(self, pipes: list[int]) -> Invocation:
        request_out, request_in, answer_out, answer_in, output_out, output_in = pipes
        # -P: the script's own folder must not shadow other modules
        command = [sys.executable, "-P", isolate_child.__file__, str(request_out), str(answer_in)]
        with self._lock:
            if self._over:
                return _failed(DIED, "the call was given up before its process was started")
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output_in,
                stderr=output_in,
                pass_fds=(request_out, answer_in),
                start_new_session=True,
            )
        try:
            for fd in (request_out, answer_in, output_in):
                pipes.remove(fd)
                os.close(fd)
            with suppress(BrokenPipeError):  # it has died: its exit status says of what
                write_all(request_in, frame(self._request))
            answer, output = _listen(process, answer_out, output_out)
        finally:
            self.kill()
            status = process.wait()
        return _read(answer) or _failed(DIED, self._death(status, output))

    def _death(self, status: int, output: bytes) -> str:
        if status == -signal.SIGXCPU:
            text = f"the tool's process was killed: it used more than its cpu_s={self._cpu_s}"
        elif status < 0:
            text = f"the tool's process was killed by {_signal_name(-status)}"
        else:
            text = f"the tool's process ended with exit status {status} and no result"
        said = valid_text(output.decode("utf-8", "replace")).strip()
        return f"{text}; it is unknown how far it got" + (f". Its last output: {said}" if said else "")


def _listen(process: subprocess.Popen[bytes], answer_fd: int, output_fd: int) -> tuple[bytes, bytes]:
    """Read until the answer is complete or the process has ended; also the end of what it printed.

    A grandchild may hold the pipes open, so their end is no sign of the end of the process.
    """
    os.set_blocking(answer_fd, False)
    os.set_blocking(output_fd, False)
    answer, output = bytearray(), bytearray()
    ended, pidfd = False, _pidfd(process.pid)
    poll = select.poll()
    for fd in (answer_fd, output_fd, pidfd):
        if fd is not None:
            poll.register(fd, select.POLLIN)
    try:
        while not ended:
            ready = {fd for fd, _ in poll.poll(None if pidfd is not None else _POLL_MS)}
            ended = pidfd in ready if pidfd is not None else process.poll() is not None
            if answer_fd in ready and not _drain(answer_fd, answer, None):
                poll.unregister(answer_fd)
            if output_fd in ready and not _drain(output_fd, output, _OUTPUT_BYTES):
                poll.unregister(output_fd)
            if len(answer) >= 8 and len(answer) >= 8 + _size(answer):
                break
        if ended:
            _drain(answer_fd, answer, None)
            _drain(output_fd, output, _OUTPUT_BYTES)
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return bytes(answer), bytes(output)


def _size(answer: bytearray) -> int:
    return min(int.from_bytes(answer[:8], "big"), MAX_ANSWER_BYTES)


def _drain(fd: int, into: bytearray, keep: int | None) -> bool:
    """Read what is there, at most the bound of an answer at a time; False at the end of the pipe."""
    for _ in range(MAX_ANSWER_BYTES >> 16):
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            return False
        into += part
        if keep is not None:
            del into[:-keep]
        elif len(into) > MAX_ANSWER_BYTES + 8:
            return False
    return True


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _read(answer: bytes) -> Invocation | None:
    """The answer as an invocation; None where it is cut short or no answer of ours."""
    size = int.from_bytes(answer[:8], "big")
    if len(answer) < 8 or len(answer) != 8 + size:
        return None
    try:
        said = parse_json(answer[8:])
        if "result" in said:
            return Invocation(outcome="ok", result=said["result"])
        kind, message, ran = said["type"], said["message"], said["ran"]
    except (ValueError, TypeError, KeyError):
        return None
    return _failed(kind, message if ran else f"the tool could not be loaded in its process, with its limits: {message}")


def _failed(kind: str, message: str) -> Invocation:
    return Invocation(outcome="error", error=ToolFault(type=kind, message=message))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
