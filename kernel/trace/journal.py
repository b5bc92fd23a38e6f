"""The trace file. A journal takes each span at its start and at its end, one write a line; a clean end turns it into the
final `*.trace.json` by rename. Killed at any byte, the journal still loads: finished spans, and the open ones marked open.

Journal lines: a header `{"tracefirst": "journal", …}`, then `{"s": span}` at a start, `{"v": …}` for an event on an open
span, `{"e": span}` at an end. Spans are OTLP/JSON.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kernel.trace.otlp import (
    encode_document,
    encode_ended,
    encode_event,
    encode_for_review,
    encode_resource,
    encode_started,
    join_document,
)
from kernel.trace.span import Event, Resource, Span

SUFFIX = ".trace.json"
JOURNAL_SUFFIX = ".trace.journal"


class Journal:
    """Sink that writes one trace to one file. `final` is where that will be; `path` is where the trace is now.

    A disk that takes no more ends the journal, not the recording: the spans are kept, and `close` tries the final file.

    Raises:
        FileExistsError: the final file or the journal is there already. Neither is ever written over: a journal is of a
            run that goes on, or all there is of one that was killed.
        OSError: the journal cannot be created.
    """

    def __init__(self, final: Path, resource: Resource, *, fsync: bool = False) -> None:
        self.final = final
        self.path = journal_of(final)
        self._resource = resource
        self._fsync = fsync
        self._open: dict[str, tuple[Span, list[str]]] = {}
        self._done: dict[str, bytes] = {}
        self._failure: OSError | None = None
        self._file: int | None = _create(self.path)
        if final.exists():  # asked when the journal is ours, so that of two writers at once only one comes this far
            os.close(self._file)
            self.path.unlink()
            raise FileExistsError(errno.EEXIST, "the trace file exists", str(final))
        attributes, scope = encode_resource(resource)
        head = b'{"tracefirst":"journal","version":1,"resource":%b,"scope":%b}\n' % (attributes, scope)
        self._write(head)
        if fsync:
            _sync_folder(final.parent)

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
            OSError: the final file cannot be written. The journal stays.
        """
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        for span_id, (span, _) in self._open.items():
            self._done[span_id] = encode_for_review(span)
        try:
            _replace(self.final, join_document(list(self._done.values()), self._resource), fsync=self._fsync)
        except OSError as error:
            since = f", and the journal lacks what came after {self._failure}" if self._failure is not None else ""
            message = f"{error.strerror or error}{since}; what is there: {self.path}"
            raise OSError(error.errno, message, str(self.final)) from error
        self.path.unlink(missing_ok=True)
        self.path = self.final


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
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            continue
    return os.open(path, flags, 0o600)


def write_trace(path: Path, spans: list[Span], resource: Resource, *, fsync: bool = False) -> None:
    """Write a trace file by way of a temporary one: the old file or the new one is there, never half of one."""
    _replace(path, encode_document(spans, resource), fsync=fsync)


def _replace(path: Path, data: bytes, *, fsync: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if fsync:
            _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make names in a folder durable. What has no such thing, as Windows, needs no such thing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
