"""Large files of OTLP JSON lines: find one trace without parsing the others, or go through all with few in memory.

Other formats, and one document over many lines, are read whole.
"""

from __future__ import annotations

import re
from array import array
from binascii import b2a_base64
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, Struct

from kernel.errors import TraceError
from kernel.trace import SpanJson, read_id, to_resource, to_span
from replay.readers import otlp
from replay.readers.documents import read_document
from replay.readers.gather import Gather
from replay.readers.json_text import NotJson, parse
from replay.readers.lines import Lines, blocks, decode_outer, lines_with, open_lines
from replay.readers.model import RawTrace
from replay.readers.read import collector_paused, read_traces
from replay.readers.refusal import refuse

_GROUP_BYTES = 32 * 2**20
"""Traces are read together up to about this much text, so that lines that mix traces are not read too often."""

_ID = re.compile(rb'"trace_?[iI][dD]"\s*:\s*"([^"\\]{0,64})"')


class _Unsure(Exception):
    """A line needs the tolerant reader."""


class _TraceId(Struct, rename="camel"):
    trace_id: str | None = None


_decode_span = msgspec.json.Decoder(SpanJson).decode
_decode_id = msgspec.json.Decoder(_TraceId).decode

Wanted = Callable[[Raw], bool]
"""Whether an unparsed span may be of a trace that is looked for."""


def find_trace(path: Path, trace_id: str) -> RawTrace:
    """Read one trace of a file; only the lines that name it are parsed.

    Args:
        trace_id: 32 hex digits, or whatever the file has in their place.
    Raises:
        TraceError: the file is unreadable or has no such trace; the message then names the traces it has.
    """
    trace_id = read_id(trace_id, 16)
    with open_lines(path) as file:
        if file is None:
            known = {trace.trace_id: trace for trace in read_traces(path).traces}
            return known[trace_id] if trace_id in known else _refuse_unknown(path, trace_id, known)
        needles = _spellings(trace_id)
        gather = Gather(file.name, only=(trace_id,))
        with collector_paused():
            for offset, line in lines_with(file.stream, needles, file.start):
                _add_line(line, offset, lambda raw: any(needle in bytes(raw) for needle in needles), gather, file)
        for trace in _finished(gather, file):
            return trace
        return _refuse_unknown(path, trace_id, _index(file).offsets)


def iter_traces(path: Path) -> Iterator[RawTrace]:
    """All traces of a file, in order of their first span, with the spans of few at a time in memory.

    A first pass notes which lines name which trace; then those lines are read again, for as many traces together as
    stay below 32 MiB of text, and for at least one.

    Raises:
        TraceError: as `read_traces`; for a damaged line, when its first trace is reached.
    """
    with open_lines(path) as file:
        if file is None:
            yield from read_traces(path).traces
            return
        index = _index(file)
        for group in index.groups():
            gather = Gather(file.name, only=group)
            with collector_paused():
                for offset in sorted({offset for trace_id in group for offset in index.offsets[trace_id]}):
                    _add_line(file.line_at(offset), offset, _id_in(group), gather, file)
            traces = {trace.trace_id: trace for trace in _finished(gather, file)}
            yield from [traces[trace_id] for trace_id in group if trace_id in traces]  # else only links name it


def _finished(gather: Gather, file: Lines) -> tuple[RawTrace, ...]:
    for text in file.notes:
        gather.note(text)
    return gather.finish()


def _id_in(group: Container[str]) -> Wanted:
    def is_wanted(raw: Raw) -> bool:
        trace_id = _decode_id(raw).trace_id
        return trace_id is None or read_id(trace_id, 16) in group  # None: its key may be spelled in another way

    return is_wanted


class _Index:
    """Which lines name which trace; `bytes` estimates the text of each trace."""

    def __init__(self) -> None:
        self.offsets: dict[str, array[int]] = {}
        self.bytes: dict[str, int] = {}

    def add(self, ids: set[str], offset: int, size: int) -> None:
        for trace_id in ids or {""}:  # "" for lines that name none
            self.offsets.setdefault(trace_id, array("Q")).append(offset)
            self.bytes[trace_id] = self.bytes.get(trace_id, 0) + size // max(1, len(ids))

    def leave_out(self, offset: int) -> None:
        """Forget the last line."""
        for trace_id, offsets in list(self.offsets.items()):
            if offsets[-1] == offset:
                offsets.pop()
            if not offsets:
                del self.offsets[trace_id]

    def groups(self) -> Iterator[dict[str, None]]:
        """The trace ids, in order, in groups that fit `_GROUP_BYTES`."""
        group: dict[str, None] = {}
        total = 0
        for trace_id in self.offsets:
            if group and total + self.bytes[trace_id] > _GROUP_BYTES:
                yield group
                group, total = {}, 0
            group[trace_id] = None
            total += self.bytes[trace_id]
        if group:
            yield group


def _index(file: Lines) -> _Index:
    index = _Index()
    last = file.start
    for at, block in blocks(file.stream, file.start):
        begin = 0
        while begin < len(block):
            end = block.find(b"\n", begin)
            end = len(block) if end < 0 else end
            if end > begin + 1:
                last = at + begin
                index.add(_ids_in(block, begin, end), last, end - begin)
            begin = end + 1
    try:
        parse(file.line_at(last))
    except NotJson:
        file.notes.append(_torn(file, last))
        index.leave_out(last)
    return index


def _ids_in(block: bytes, begin: int, end: int) -> set[str]:
    spelled: set[bytes] = set()
    for key in (b'"traceId"', b'"trace_id"'):
        hit = block.find(key, begin, end)
        while hit >= 0:
            match = _ID.match(block, hit, end)
            if match:
                spelled.add(match[1])
            hit = block.find(key, hit + 9, end)
    return {read_id(text.decode("utf-8", "replace"), 16) for text in spelled}


def _spellings(trace_id: str) -> list[bytes]:
    """How a file may spell an id: hex in lower or upper case, or base64."""
    spelled = {trace_id, trace_id.upper()}
    with suppress(ValueError):
        spelled.add(b2a_base64(bytes.fromhex(trace_id), newline=False).decode())
    return [text.encode() for text in sorted(spelled)]


def _torn(file: Lines, offset: int) -> str:
    return f"the last line, {file.number_of(offset)}, is cut off or damaged and was left out"


def _add_line(line: bytes, offset: int, wanted: Wanted, gather: Gather, file: Lines) -> None:
    """Add what a line has of the gatherer's trace."""
    try:
        _add_matching(line, wanted, gather)
    except (_Unsure, msgspec.DecodeError, ValueError, RecursionError):
        try:
            raw = parse(line)
        except NotJson as error:
            if not file.is_last(offset, line):
                remedy = "Remove or repair that line."
                refuse(file.name, f"not JSON: {error}", line=file.number_of(offset), remedy=remedy)
            file.notes.append(_torn(file, offset))
            return
        read_document(raw, gather, file.name, line=file.number_of(offset), ignored=[])


def _add_matching(line: bytes, wanted: Wanted, gather: Gather) -> None:
    ready: list[Any] = []
    for group in decode_outer(line).resource_spans:
        if not group.scope_spans:
            raise _Unsure
        for scoped in group.scope_spans:
            matching = [raw for raw in scoped.spans or () if wanted(raw)]
            if matching:
                spans = [_decode_span(raw) for raw in matching]
                ready.append((to_resource(group.resource, scoped.scope), scoped.scope, spans))
    for _, _, spans in ready:
        if any(raw.trace_id is None or raw.span_id is None or raw.start_time_unix_nano is None for raw in spans):
            raise _Unsure
    for resource, scope, spans in ready:
        otlp.add_scoped(resource, scope, [(to_span(raw), raw) for raw in spans], gather)


def _refuse_unknown(path: Path, trace_id: str, known: Iterable[str]) -> NoReturn:
    names = list(known)
    shown = ", ".join(name or "one without an id" for name in names[:5]) + (", …" if len(names) > 5 else "")
    raise TraceError(
        f"{path}: no trace {trace_id or 'without an id'} in this file. It holds {len(names)}: {shown}.",
        file=str(path),
    )
