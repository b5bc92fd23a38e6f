"""OTLP protobuf, bare or length-prefixed as the Collector's file exporter writes it; prefixed JSON and zstd too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel.trace import Event, Link, Resource, Span
from replay.readers import json_text
from replay.readers.gather import Gather
from replay.readers.packed import ZSTD
from replay.readers.refusal import refuse
from replay.readers.source import Source, unpack

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan


def split_frames(source: Source) -> list[tuple[int, bytes]] | None:
    """(position, message) of each 4-byte big-endian length and its bytes; None where the data is not framed so.

    A message cut off at the end is left out, with a note in `source.notes`.
    """
    data = source.data
    if not _starts_with_frame(data):
        return None
    frames: list[tuple[int, bytes]] = []
    at = 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data):
            break
        frames.append((at, data[at + 4 : at + 4 + size]))
        at += 4 + size
    if at < len(data):
        source.notes.append(f"the last message, at byte {at}, is cut off and was left out")
    return frames


def _starts_with_frame(data: bytes) -> bool:
    size = int.from_bytes(data[:4], "big")
    body = data[4:8]
    return size > 0 and len(body) == 4 and data[0] < 0x09 and (body[:1] in (b"\x0a", b"{") or body == ZSTD)


def read_frames(frames: list[tuple[int, bytes]], gather: Gather, source: Source) -> str:
    """Read each message as what it is. Raises `TraceError`."""
    if not frames:
        refuse(source.name, "its only message is cut off", remedy="Copy the file again, or wait until it is written.")
    for note in source.notes:
        gather.note(note)
    formats = {_read_frame(position, message, gather, source.name) for position, message in frames}
    return "otlp-protobuf" if "otlp-protobuf" in formats else formats.pop()


def _read_frame(position: int, message: bytes, gather: Gather, name: str) -> str:
    notes: list[str] = []
    if message.startswith(ZSTD):
        message = unpack(message, name, notes)
    for note in notes:
        gather.note(f"in the message at byte {position}, {note}")
    if message[:1] == b"{":
        return json_text.read(Source(name=f"{name}, message at byte {position}", data=message), gather)
    return read_message(message, gather, name, position)


def read_message(data: bytes, gather: Gather, name: str, position: int = 0) -> str:
    """Read one protobuf `TracesData`. Raises `TraceError` where it is none."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    if data[:1] != b"\x0a":
        refuse(name, f"binary data of an unknown kind (it starts with {data[:4].hex(' ')})", byte=position)
    try:
        document = TracesData.FromString(data)
    except DecodeError:
        refuse(name, "binary data that is neither OTLP protobuf nor a known compression", byte=position)
    for group in document.resource_spans:
        attributes = _attributes(group.resource.attributes)
        for scoped in group.scope_spans:
            if scoped.scope.attributes:
                gather.note("attributes of the instrumentation scope were left out")
            resource = Resource(attributes=attributes, scope_name=scoped.scope.name, scope_version=scoped.scope.version)
            for raw in scoped.spans:
                if len(raw.trace_id) != 16 or len(raw.span_id) != 8:
                    refuse(name, "OTLP protobuf of another signal than traces", remedy="Export traces.", byte=position)
                if raw.trace_state:
                    gather.note("trace state (W3C tracestate) was left out")
                gather.add(_span(raw), resource)
    return "otlp-protobuf"


def _span(raw: ProtoSpan) -> Span:
    dropped = raw.dropped_attributes_count + raw.dropped_events_count + raw.dropped_links_count
    inner = [*raw.events, *raw.links]
    return Span(
        trace_id=_hex(raw.trace_id),
        span_id=_hex(raw.span_id),
        parent_id=_hex(raw.parent_span_id) or None,
        name=raw.name,
        kind=int(raw.kind),
        start_ns=raw.start_time_unix_nano,
        end_ns=raw.end_time_unix_nano or None,
        attributes=_attributes(raw.attributes),
        events=tuple(
            Event(name=event.name, time_ns=event.time_unix_nano, attributes=_attributes(event.attributes))
            for event in raw.events
        ),
        links=tuple(
            Link(trace_id=_hex(link.trace_id), span_id=_hex(link.span_id), attributes=_attributes(link.attributes))
            for link in raw.links
        ),
        status=int(raw.status.code),
        status_message=raw.status.message,
        dropped=dropped + sum(item.dropped_attributes_count for item in inner),
    )


def _hex(raw: bytes) -> str:
    return raw.hex() if any(raw) else ""


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(raw: Any) -> Any:
    kind = raw.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in raw.array_value.values]
    if kind == "kvlist_value":
        return _attributes(raw.kvlist_value.values)
    return getattr(raw, kind)
