"""Puts spans that arrive in any order together by trace, and says what is odd about each trace."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from kernel.trace import Event, Resource, Span
from replay.readers.model import RawTrace
from replay.readers.refusal import refuse

_TIME_BITS = 64
_HEX = "0123456789abcdef"


class Gather:
    """The traces of one file while it is read.

    Args:
        name: How messages call the file.
        only: Keep the spans of these traces alone.
    """

    def __init__(self, name: str = "", *, only: Container[str] | None = None) -> None:
        self._name = name
        self._only = only
        self._traces: dict[str, _Trace] = {}
        self._events: dict[str, dict[str, list[Event]]] = {}
        self._notes: dict[str, None] = {}  # an ordered set: the same note is said once

    def add(self, span: Span, resource: Resource) -> None:
        """Take a span. Of two with one id the more complete is kept. Raises `TraceError` for times beyond 64 bits."""
        trace_id = span.trace_id
        if self._only is not None and trace_id not in self._only:
            return
        if (span.start_ns | (span.end_ns or 0)) >> _TIME_BITS:
            found = f"{label(span)} has a time that is no count of nanoseconds since 1970 in {_TIME_BITS} bits"
            refuse(self._name, found, remedy="Export the trace again.")
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = _Trace(trace_id)
        if span.span_id in trace.spans or not span.span_id:
            trace.settle(span, resource)
        else:
            trace.spans[span.span_id] = span
            trace.resources[span.span_id] = resource

    def add_event(self, trace_id: str, span_id: str, event: Event) -> None:
        """Take an event that came apart from its span; the order of the two does not matter."""
        if self._only is None or trace_id in self._only:
            self._events.setdefault(trace_id, {}).setdefault(span_id, []).append(event)

    def note(self, text: str, trace_id: str | None = None) -> None:
        """Add a note for one trace, or for each trace of the file."""
        if trace_id is None:
            self._notes[text] = None
        elif trace_id in self._traces:
            self._traces[trace_id].notes[text] = None

    def __len__(self) -> int:
        return len(self._traces)

    def finish(self) -> tuple[RawTrace, ...]:
        """The traces, in order of their first span."""
        for trace_id, trace in self._traces.items():
            trace.take_events(self._events.pop(trace_id, {}))
        return tuple([trace.finish(self._notes) for trace in self._traces.values()])


class _Trace:
    def __init__(self, trace_id: str) -> None:
        self.trace_id = trace_id
        self.spans: dict[str, Span] = {}
        self.resources: dict[str, Resource] = {}
        self.notes: dict[str, None] = {}
        self.repeated: dict[str, None] = {}
        self.given = 0  # the last number that was given as an id

    def settle(self, span: Span, resource: Resource) -> None:
        """Take a span without an id, or one whose id is taken."""
        if not span.span_id:
            self.given = max(self.given, len(self.spans)) + 1
            while f"{self.given:016x}" in self.spans:
                self.given += 1
            span.span_id = f"{self.given:016x}"
            self.notes[f"{label(span)} had no span id in the file and was given that one"] = None
        elif self.spans[span.span_id] == span:
            self.repeated[span.span_id] = None
            return
        else:
            kept, dropped = self.spans[span.span_id], span
            if _completeness(span) > _completeness(kept):
                kept, dropped = span, kept
            text = f"{label(kept)} is in the file twice with different content; the more complete one is kept"
            self.notes[text if kept.name == dropped.name else f"{text}, the one named {dropped.name!r} is not"] = None
            if kept is not span:
                return
        self.spans[span.span_id] = span
        self.resources[span.span_id] = resource

    def take_events(self, events: dict[str, list[Event]]) -> None:
        lost = 0
        for span_id, found in events.items():
            if span_id in self.spans:
                span = self.spans[span_id]
                span.events = (*span.events, *sorted(found, key=lambda event: event.time_ns))
            else:
                lost += len(found)
        if lost:
            self.notes[f"{lost} log records name spans that are not in the file, and were left out"] = None

    def finish(self, file_notes: Iterable[str]) -> RawTrace:
        spans = tuple(self.spans.values())
        if self.repeated:
            count = f"{len(self.repeated)} spans are" if len(self.repeated) > 1 else "a span is"
            self.notes[f"{count} in the file more than once, each time the same: counted once"] = None
        notes = dict.fromkeys([*file_notes, *self.notes, *_id_notes(self.trace_id, spans), *_tree_notes(spans)])
        return RawTrace(trace_id=self.trace_id, spans=spans, resources=self.resources, notes=tuple(notes))


def label(span: Span) -> str:
    """How notes name a span."""
    return f"span {span.name!r} ({span.span_id})"


def _completeness(span: Span) -> tuple[bool, int, int]:
    return (span.end_ns is not None, len(span.attributes), len(span.events) + len(span.links))


def _id_notes(trace_id: str, spans: Sequence[Span]) -> Iterable[str]:
    if not trace_id:
        yield _counted("has no trace id", "have no trace id", spans)
    elif len(trace_id) != 32 or trace_id.strip(_HEX):
        yield f"trace id {trace_id!r} is not 32 hex digits; it is kept as it is"
    odd = [span for span in spans if len(span.span_id) != 16 or span.span_id.strip(_HEX)]
    if odd:
        yield _counted("has an id that is not 16 hex digits", "have ids that are not 16 hex digits", odd)
    lossy = [span for span in spans if span.dropped]
    if lossy:
        lost = sum(span.dropped for span in lossy)
        yield (
            _counted("lost", "lost", lossy) + f": {lost} attributes, events or links were dropped before it was written"
        )


def _tree_notes(spans: Sequence[Span]) -> Iterable[str]:
    parents = {span.span_id: span.parent_id for span in spans}
    orphans = [span for span in spans if span.parent_id is not None and span.parent_id not in parents]
    if orphans:
        note = _counted("names a parent that is not in the file", "name parents that are not in the file", orphans)
        yield f"{note}; the first one's parent is {orphans[0].parent_id}"
    cyclic = _in_cycles(parents)
    if cyclic:
        members = [span for span in spans if span.span_id in cyclic]
        yield _counted("is its own ancestor", "are their own ancestors", members)


def _in_cycles(parents: dict[str, str | None]) -> set[str]:
    """The ids that are their own ancestors. O(spans)."""
    done: set[str] = set()
    cyclic: set[str] = set()
    for start, parent in parents.items():
        if parent is None or parent in done or parent not in parents:
            done.add(start)
            continue
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in parents and at not in done and at not in path:
            path[at] = None
            at = parents[at]
        if at in path:
            walk = list(path)
            cyclic.update(walk[walk.index(at) :])
        done.update(path)
    return cyclic


def _counted(one: str, many: str, spans: Sequence[Span]) -> str:
    if len(spans) == 1:
        return f"{label(spans[0])} {one}"
    return f"{len(spans)} spans {many}, the first is {label(spans[0])}"
