"""The trace file. A journal takes each span at its start and at its end, one write a line; a clean end turns it into the
final `*.trace.json` by rename. Killed at any byte, the journal still loads: finished spans, and the open ones marked open.

Journal lines: a header `{"tracefirst": "journal", …}`, then `{"s": span}` at a start, `{"v": …}` for an event on an open
span, `{"e": span}` at an end. Spans are OTLP/JSON.
"""

from __future__ import annotations

import os
from pathlib import Path

from kernel.otlp import (
    encode_document,
    encode_ended,
    encode_event,
    encode_for_review,
    encode_resource,
    encode_started,
    join_document,
)
from kernel.span import Event, Resource, Span

SUFFIX = ".trace.json"
JOURNAL_SUFFIX = ".trace.journal"


class Journal:
    """Sink that writes one trace to one file. `path` is where the final file will be."""

    def __init__(self, path: Path, resource: Resource, *, fsync: bool = False) -> None:
        self.path = path
        self._resource = resource
        self._fsync = fsync
        self._open: dict[str, tuple[Span, list[str]]] = {}
        self._done: dict[str, bytes] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._journal_path = path.with_name(path.name.removesuffix(SUFFIX) + JOURNAL_SUFFIX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file: int | None = os.open(self._journal_path, flags, 0o600)
        attributes, scope = encode_resource(resource)
        head = b'{"tracefirst":"journal","version":1,"resource":%b,"scope":%b}\n' % (attributes, scope)
        self._write(head)

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
        line, self._done[span.span_id] = encode_ended(span, texts)
        self._write(b'{"e":%b}\n' % line)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise ValueError("the trace is closed")
        written = os.write(self._file, line)
        while written < len(line):
            written += os.write(self._file, line[written:])
        if self._fsync:
            os.fsync(self._file)

    def close(self) -> None:
        """Write the final file beside the journal, rename it into place, then remove the journal."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        for span_id, (span, _) in self._open.items():
            self._done[span_id] = encode_for_review(span)
        _replace(self.path, join_document(list(self._done.values()), self._resource), fsync=self._fsync)
        self._journal_path.unlink()


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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
