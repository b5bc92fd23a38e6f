"""A recording: the runs of one trace, decoded, with what is known to be missing or changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import Mark, Run
from kernel.trace import Problem, Reader, Span, decode_run, semconv as sc, why_unreadable
from replay.readers import RawTrace


class RecordedRun(Struct, frozen=True, kw_only=True):
    """One run of a recording. `problems` say what of it is not as it was recorded."""

    run: Run
    problems: tuple[Problem, ...] = ()


class Recording(Struct, frozen=True, kw_only=True):
    """A trace that can be replayed: one run, or the turns of a conversation in order.

    `foreign` names the framework that wrote it, where that was not us; `notes` say what a store or reader lost.
    """

    trace_id: str
    runs: tuple[RecordedRun, ...]
    file: str = ""
    service: str = ""
    conversation: Mark | None = None
    foreign: str = ""
    notes: tuple[str, ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """Steps and calls of the source that its reader left out."""
        return tuple(dict.fromkeys(what for one in self.runs for what in one.run.head.dropped))

    @property
    def agent(self) -> str:
        return self.runs[0].run.head.agent if self.runs else ""


def is_own(trace: RawTrace) -> bool:
    """Whether the kernel recorded this trace."""
    return any(sc.RUN_ID in span.attributes or sc.STEP_INDEX in span.attributes for span in trace.spans)


def own_recording(trace: RawTrace, file: str = "") -> Recording:
    """The runs that the kernel recorded in one trace, in order."""
    roots = [span for span in trace.spans if span.attributes.get(sc.RUN_ID) is not None]
    for span in trace.spans:
        if why := why_unreadable(span.attributes):
            where = f"{file}: " if file else ""
            raise TraceError(f"{where}trace {trace.trace_id} cannot be read: {why}", file=file, span_id=span.span_id)
    children = _group(trace.spans, {root.span_id for root in roots})
    runs: list[RecordedRun] = []
    for root in sorted(roots, key=lambda span: (_turn(span), span.start_ns, span.span_id)):
        run, problems = decode_run(root, children.get(root.span_id, ()))
        runs.append(RecordedRun(run=run, problems=problems))
    if lost := children.get("", ()):
        run, problems = decode_run(None, lost)
        if run.steps:
            runs.append(RecordedRun(run=run, problems=problems))
    service = ""
    if roots and roots[0].span_id in trace.resources:
        service = str(trace.resources[roots[0].span_id].attributes.get("service.name", ""))
    above = next((s for s in trace.spans if sc.FORMAT in s.attributes and sc.RUN_ID not in s.attributes), None)
    conversation = None
    if above is not None:
        conversation = Mark(span_id=above.span_id, start_ns=above.start_ns, end_ns=above.end_ns)
        damage: list[Problem] = []
        if above.end_ns is not None or sc.CLOSED in above.attributes:
            read = Reader(damage, above, 0)
            read.sealed()
            if above.attributes.get(sc.RUNS, len(runs)) != len(runs):
                read.problem(
                    "missing", sc.RUNS, f"{above.attributes[sc.RUNS]} runs were recorded, {len(runs)} are here"
                )
        if damage and runs:
            runs[0] = RecordedRun(run=runs[0].run, problems=(*damage, *runs[0].problems))
    return Recording(
        trace_id=trace.trace_id,
        runs=tuple(runs),
        file=file,
        service=service,
        conversation=conversation,
        foreign=next((r.run.head.source for r in runs if r.run.head.source), ""),
        notes=tuple(trace.notes),
    )


def _turn(span: Span) -> int:
    turn: Any = span.attributes.get(sc.TURN)
    return turn if isinstance(turn, int) else 1


def _group(spans: Sequence[Span], roots: set[str]) -> dict[str, list[Span]]:
    """Spans by the id of their nearest run above them, "" where that is not in the file. Iterative; cycles end."""
    parents = {span.span_id: span.parent_id for span in spans}
    owner: dict[str, str] = {root: root for root in roots}
    grouped: dict[str, list[Span]] = {}
    for span in spans:
        if span.span_id in roots:
            continue
        path: list[str] = []
        current: str | None = span.span_id
        while current is not None and current not in owner and len(path) <= len(spans):
            path.append(current)
            current = parents.get(current)
        found = owner.get(current, "") if current is not None else ""
        for step in path:
            owner[step] = found
        grouped.setdefault(found, []).append(span)
    return grouped
