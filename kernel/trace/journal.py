"""The trace file. A journal takes each span at its start and at its end, one write a line; a clean end turns it into the
final `*.trace.json` by rename. Killed at any byte, the journal still loads: finished spans, and the open ones marked open.

Journal lines: a header `{"tracefirst": "journal", …}`, then `{"s": span}` at a start, `{"v": …}` for an event on an open
span, `{"e": span}` at an end. Spans are OTLP/JSON.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from kernel.files import put_new, sync_folder, write_and_put, write_whole
from kernel.trace.otlp import (
    DOCUMENT_MARK,
    encode_document,
    encode_ended,
    encode_event,
    encode_for_review,
    encode_resource,
    encode_started,
    join_document,
)
from kernel.trace.span import Event, Resource, Span

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".trace.json"
JOURNAL_SUFFIX = ".trace.journal"
_MARK = b'{"tracefirst":"journal",'


class Journal:
    """Sink that writes one trace to one file. `final` is where that will be; `path` is where the trace is now.

    A disk that takes no more ends the journal, not the recording: the spans are kept, and `close` tries the final file.

    With `overwrite` a trace file that is there at the start is replaced at a clean end; what is no trace file, or came
    meanwhile, never is.

    A `hidden` journal has no name to be found by until `reveal`: a run that goes on from a recording first repeats what it
    goes on from, and a journal that is cut in the middle of that would know less than the recording.

    The writer holds a lock on its journal. One that is there without a lock is of a process that was killed: it is kept
    under another name, `moved`.

    Raises:
        FileExistsError: the final file, or the journal of a run that goes on, is there already. Neither is written over.
        OSError: the journal cannot be created.
    """

    def __init__(
        self, final: Path, resource: Resource, *, fsync: bool = False, overwrite: bool = False, hidden: bool = False
    ) -> None:
        self.final = final
        self.path = journal_of(final)
        self._resource = resource
        self._fsync = fsync
        self._open: dict[str, tuple[Span, list[str]]] = {}
        self._done: dict[str, bytes] = {}
        self._failure: OSError | None = None
        self.moved = move_dead(self.path)
        self._hidden = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.tmp") if hidden else None
        self._file: int | None = _create(self._hidden or self.path)
        self._before = _trace_file(final) if overwrite else None
        # asked when the journal is ours, so that of two writers at once only one comes this far
        taken = final if final.exists() and self._before is None else self.path
        if taken is final or (self._hidden is not None and self.path.exists()):
            os.close(self._file)
            (self._hidden or self.path).unlink()
            raise FileExistsError(errno.EEXIST, "the trace file exists", str(taken))
        attributes, scope = encode_resource(resource)
        head = _MARK + b'"version":1,"resource":%b,"scope":%b}\n' % (attributes, scope)
        self._write(head)
        if fsync:
            sync_folder(final.parent)

    @property
    def failure(self) -> OSError | None:
        """Why the journal takes no more lines."""
        return self._failure

    def started(self, span: Span) -> None:
        line, texts = encode_started(span)
        self._open[span.span_id] = span, texts
        self._done[span.span_id] = b""
        self._write(b'{"s":%b}\n' % line)

    def event(self, span: Span, event: Event) -> None:
        ids = b'"traceId":"%b","spanId":"%b"' % (span.trace_id.encode(), span.span_id.encode())
        self._write(b'{"v":{%b,"event":%b}}\n' % (ids, encode_event(event)))

    def ended(self, span: Span) -> None:
        _, texts = self._open.pop(span.span_id)
        laid_out = self._done[span.span_id] = encode_ended(span, texts)
        self._write(b'{"e":%b}\n' % laid_out.translate(None, b"\n"))

    def _write(self, line: bytes) -> None:
        if self._failure is not None:
            return
        if self._file is None:
            raise ValueError("the trace is closed")
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
            if self._fsync:
                os.fsync(self._file)
        except OSError as error:
            self._failure = error

    def close(self) -> None:
        """Write the final file beside the journal, rename it into place, then remove the journal.

        Raises:
            OSError: the final file cannot be written, or another one has appeared in its place. The journal stays.
        """
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            self._finish()
        finally:
            os.close(file)

    def reveal(self) -> None:
        """Give a hidden journal its name. Where that is taken by now, it keeps its own."""
        hidden, self._hidden = self._hidden, None
        if hidden is None:
            return
        try:
            put_new(hidden, self.path)
        except OSError as error:
            self._failure, self.path = self._failure or error, hidden

    def _finish(self) -> None:
        self.reveal()
        for span_id, (span, _) in self._open.items():
            self._done[span_id] = encode_for_review(span)
        try:
            data = join_document(list(self._done.values()), self._resource)
            write_and_put(self.final, data, self._put, fsync=self._fsync)
        except OSError as error:
            since = f", and the journal lacks what came after {self._failure}" if self._failure is not None else ""
            message = f"{error.strerror or error}{since}; what is there: {self.path}"
            raise OSError(error.errno, message, str(self.final)) from error
        self.path.unlink(missing_ok=True)
        self.path = self.final

    def _put(self, temporary: Path, path: Path) -> None:
        """Give the new file its name, in place of the one that was there at the start, if that may be replaced."""
        if self._before is not None and _trace_file(path) == self._before:
            os.replace(temporary, path)
        else:
            put_new(temporary, path)


def _trace_file(path: Path) -> tuple[int, ...] | None:
    """Which trace file is there: its device, number, size and time of change. None where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        stat = os.fstat(file)
        is_trace = S_ISREG(stat.st_mode) and os.read(file, len(DOCUMENT_MARK)) == DOCUMENT_MARK
    finally:
        os.close(file)
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) if is_trace else None


def journal_of(final: Path) -> Path:
    """The journal of a trace file."""
    return final.with_name(final.name.removesuffix(SUFFIX) + JOURNAL_SUFFIX)


def _create(path: Path) -> int:
    """A new file for appending. Its folder is made anew when somebody removes it in between, as old empty ones are."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
    for _ in range(3):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "its folder is a file", str(path.parent)) from None
        try:
            return _locked(os.open(path, flags, 0o600))
        except FileNotFoundError:
            continue
    return _locked(os.open(path, flags, 0o600))


def _locked(file: int) -> int:
    """The open file, locked for as long as its process lives and keeps it open, where the system has such locks."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks: the journal is then taken for one that goes on
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the lock of a journal or trace file. A file that is not there, or cannot be locked, is no reason to stop.

    Raises:
        BlockingIOError: another holds it: the run of this journal goes on, or is being resumed.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        yield
        return
    try:
        if fcntl is not None and S_ISREG(os.fstat(file).st_mode):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:  # a file system without locks
                pass
        yield
    finally:
        os.close(file)


def move_dead(journal: Path) -> Path | None:
    """Move a journal aside whose writer is dead; where it is now, None where there is none such.

    A service that was killed and starts again is not kept down by what its last run left, and nothing of that is lost.
    """
    if fcntl is None:
        return None
    try:
        file = os.open(journal, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stat = os.fstat(file)
        digits = f"{stat.st_mtime_ns:x}"
        aside = journal.with_name(f"{journal.name.removesuffix(JOURNAL_SUFFIX)}.killed-{digits}{JOURNAL_SUFFIX}")
        is_ours = S_ISREG(stat.st_mode) and os.read(file, len(_MARK)) in (_MARK, b"")
        if not is_ours or not os.path.samestat(stat, os.stat(journal)) or aside.exists():
            return None
        os.rename(journal, aside)
    except OSError:
        return None
    finally:
        os.close(file)
    return aside


def write_trace(
    path: Path, spans: list[Span], resource: Resource, *, replace: bool = True, fsync: bool = False
) -> None:
    """Write a trace file, whole or not at all. Raises `FileExistsError` where there is one, but for `replace`."""
    write_whole(path, encode_document(spans, resource), replace=replace, fsync=fsync)
