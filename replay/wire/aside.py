"""The recorder beside the gateway: a process of its own, so that neither its work nor its death touches a call.

The gateway writes what passes into a pipe; whatever kills the gateway, what was in the pipe is still recorded, and the trace is
closed. Frames are a length in four bytes and MessagePack.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from kernel.errors import ConfigError, TracefirstError
from kernel.record import compact_json
from kernel.seams import RandomIds
from kernel.tracing import Tracing
from replay.wire.background import Background
from replay.wire.gateway import Gateway
from replay.wire.raw import Raw, Tick, deliver
from replay.wire.scribe import Scribe

_NICENESS = 10
_ENTRY = "from replay.wire.aside import main; main()"
_encode = msgspec.msgpack.Encoder().encode


class Setting(Struct, frozen=True, kw_only=True):
    """How to record: into a file, or a trace for each conversation into a folder, closed after `idle_s`."""

    name: str
    file: str | None = None
    directory: str | None = None
    otlp: str | None = None
    keep_days: float | None = None
    keep_bytes: int | None = None
    idle_s: float | None = None

    def tracing(self) -> Tracing:
        return Tracing(
            file=self.file,
            directory=self.directory,
            otlp=self.otlp,
            keep_days=self.keep_days,
            keep_bytes=self.keep_bytes,
        )

    def check(self) -> None:
        """Refuse before anything runs what no trace could be written or sent to. Raises `ConfigError`."""
        if self.otlp is not None:
            from kernel.export import destination

            destination(self.otlp)
        if self.directory is None:
            return
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            why = (
                "a file is there"
                if isinstance(error, (FileExistsError, NotADirectoryError))
                else error.strerror or error
            )
            raise ConfigError(f"--traces {self.directory}: traces cannot go there: {why}") from None
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise ConfigError(f"--traces {self.directory}: the folder cannot be written to")


class Summary(Struct, frozen=True, kw_only=True):
    """What was recorded: where the trace is, if it is one, and what was lost; `whole` is False where an exchange was."""

    exchanges: int = 0
    conversations: int = 0
    path: str | None = None
    warnings: list[str] = []
    whole: bool = True


class Recorder:
    """The gateway's end of the pipe. Raises `ConfigError` where the recording cannot be opened."""

    def __init__(self, setting: Setting) -> None:
        words = [sys.executable, "-c", _ENTRY, compact_json(setting)]
        path = [entry for entry in sys.path if entry]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_with_path(path), start_new_session=True
        )
        ready = _line(self._process.stdout)
        if error := ready.get("error"):
            self._release([])
            self._process.wait()
            raise ConfigError(str(error))
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._background = Background()

    def tell(self, raw: Raw) -> None:
        """Hand on what passed. Comes back at once: what the pipe does not take now waits for a thread to write it."""
        data = _encode(raw)
        frame = struct.pack(">I", len(data)) + data
        written = self._write_now(frame) if self._background.idle else 0
        if written < len(frame):
            rest = frame[written:]
            if not self._background.put(lambda: self._write(rest), len(rest)) and written:
                self._background.put(lambda: self._write(rest))  # a frame that was begun is ended

    def tick(self, at_ns: int) -> None:
        """Say what time it is: what has been quiet for long is closed."""
        data = _encode(Tick(at_ns=at_ns))
        self._background.put(lambda: self._write(struct.pack(">I", len(data)) + data))

    def _write_now(self, frame: bytes) -> int:
        """Write as much as the pipe takes without waiting; returns how much."""
        written = 0
        while written < len(frame):
            try:
                written += os.write(self._pipe, frame[written:])
            except OSError:  # full, or gone: the thread will see
                break
        return written

    def _write(self, data: bytes) -> None:
        try:
            while data:
                select.select([], [self._pipe], [])
                data = data[os.write(self._pipe, data) :]
        except OSError as error:
            raise OSError(error.errno, f"the recorder is gone ({error.strerror})") from None

    def told(self) -> list[str]:
        """What was lost on the way to the recorder, since this was last asked."""
        return self._background.told()

    def close(self) -> Summary:
        """Record what waits, close the trace, and say what is in it."""
        self._background.close()
        lost = self._background.told()
        found = self._release(lost)
        if self._process.wait() or not found:
            lost.append("the recorder ended before the recording did: what it wrote is in the journal")
            found = {"whole": False}
        summary = msgspec.convert(found, Summary)
        handed_on = not (self._background.dropped or self._background.failures)
        return msgspec.structs.replace(summary, warnings=[*lost, *summary.warnings], whole=summary.whole and handed_on)

    def _release(self, lost: list[str]) -> dict[str, Any]:
        """Close the pipe, and read what the recorder says at its end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        try:
            if stdin is not None:
                stdin.close()
        except OSError as error:
            lost.append(f"the recorder is gone: {error.strerror}")
        found = _line(stdout)
        if stdout is not None:
            stdout.close()
        return found


def _with_path(path: list[str]) -> dict[str, str]:
    """The environment, with what can be imported here to be imported there."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _line(stream: IO[bytes] | None) -> dict[str, Any]:
    data = stream.readline() if stream is not None else b""
    try:
        found: Any = msgspec.json.decode(data) if data else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def main() -> None:
    """The recorder's own life: open, record what comes through the pipe, close at its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the gateway does
    if hasattr(os, "nice"):
        os.nice(_NICENESS)  # calls come first, recording them second
    setting = msgspec.json.decode(sys.argv[1], type=Setting)
    try:
        setting.check()
        scribe = Scribe(setting.tracing(), RandomIds(), setting.name, Gateway.clock(), idle_s=setting.idle_s)
    except TracefirstError as error:
        _answer({"error": str(error)})
        return
    _answer({"ready": True})
    lost, failed = _record(sys.stdin.buffer, scribe, setting.idle_s is not None)
    session = scribe.session
    scribe.close()
    lost += [warning for warning in scribe.warnings() if warning not in lost]
    path = session.path if session is not None else None
    if session is not None and path is not None and not scribe.exchanges:
        Path(path).unlink(missing_ok=True)  # nothing passed: there is nothing to keep
        path = None
    summary = Summary(
        exchanges=scribe.exchanges,
        conversations=scribe.conversations,
        path=None if path is None else str(path),
        warnings=lost,
        whole=scribe.whole and not failed,
    )
    _answer(msgspec.to_builtins(summary))


def _answer(value: dict[str, Any]) -> None:
    try:
        sys.stdout.write(compact_json(value) + "\n")
        sys.stdout.flush()
    except OSError:  # the gateway was killed: nobody waits for it
        return


def _record(pipe: IO[bytes], scribe: Scribe, lasting: bool) -> tuple[list[str], int]:
    """Record frame by frame until the pipe ends, in whatever way; returns what was lost, at most so much of it, and how
    often something was."""
    decode: Callable[[bytes], Raw | Tick] = msgspec.msgpack.Decoder(Raw | Tick).decode
    lost: list[str] = []
    failed = 0
    while (frame := _frame(pipe)) is not None:
        try:
            raw = decode(frame)
            if isinstance(raw, Tick):
                scribe.close_idle(raw.at_ns)
            else:
                deliver(raw, scribe)
        except Exception as error:  # one exchange that cannot be recorded is one; said at the end, or at once
            failed += 1
            what = f"an exchange was not recorded: {type(error).__name__}: {error}"[:500]
            if lasting:
                print(f"replay: {what}", file=sys.stderr, flush=True)  # noqa: T201
            elif len(lost) < 20:
                lost.append(what)
        if lasting:
            for warning in scribe.warnings():
                print(f"replay: {warning}", file=sys.stderr, flush=True)  # noqa: T201
    return lost, failed


def _frame(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack(">I", head)[0]
    data = pipe.read(size)
    return data if len(data) == size else None
