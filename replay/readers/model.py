"""What a reader hands on: the traces of one file, each with its spans and what there is to say about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel.trace import Resource, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTrace:
    """The spans of one trace as the file holds them, in file order; parents may be missing or form a cycle.

    `trace_id` is "" where the file has none. `resources` has the emitter of every span, by span id. `notes` say in
    plain English what was undone, left out or cannot be restored, each naming the place.
    """

    trace_id: str
    spans: tuple[Span, ...]
    resources: Mapping[str, Resource]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One file that was read; `format` is `otlp-json`, `otlp-protobuf`, `jaeger-json`, `journal` or `langfuse`."""

    name: str
    format: str
    traces: tuple[RawTrace, ...]
