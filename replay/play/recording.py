"""A recording: the runs of one trace, decoded, with what is known to be missing or changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import Mark, Run
from kernel.trace import Problem, Reader, Span, decode_run, semconv as sc
from replay.readers import RawTrace, TraceFile, read_traces


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
    def agent(self) -> str:
        return self.runs[0].run.head.agent if self.runs else ""


def load(source: Path | str, *, trace_id: str | None = None) -> list[Recording]:
    """All recordings in a file, or the one named by `trace_id` (a prefix that fits one is enough).

    Raises:
        TraceError: the file is not a trace, or holds none of that id; the message says what is there.
    """
    path = Path(source)
    found = _run_result(path)
    if found is not None:
        return [found]
    file = _read(path)
    traces = [trace for trace in file.traces if trace_id is None or trace.trace_id.startswith(trace_id.lower())]
    if not traces:
        known = ", ".join(trace.trace_id for trace in file.traces[:5]) or "none"
        raise TraceError(f"{path}: holds no trace {trace_id}; it has {known}", file=str(path))
    return _assembled(traces, path)


def _read(path: Path) -> TraceFile:
    try:
        return read_traces(path)
    except TraceError as error:
        from replay.importers import holds_chat

        if not holds_chat(path):
            raise
        message = (
            f"{path}: holds chat messages, not a trace. Turn it into one: replay import {path} -o recording.trace.json"
        )
        raise TraceError(message, file=str(path), line=error.line) from None


def _assembled(traces: Sequence[RawTrace], path: Path) -> list[Recording]:
    """The recordings among the traces of a file. Traces without an agent's run are left out, and said to be."""
    found: list[Recording] = []
    refused: list[tuple[str, TraceError]] = []
    for trace in traces:
        try:
            found.append(assemble(trace, str(path)))
        except TraceError as error:
            refused.append((trace.trace_id, error))
    if not found:
        raise refused[0][1]
    if refused:
        ids = ", ".join(trace_id for trace_id, _ in refused[:5])
        note = f"{len(refused)} other traces of the file hold no run of an agent and were left out: {ids}"
        found[0] = msgspec.structs.replace(found[0], notes=(*found[0].notes, note))
    return found


def _run_result(path: Path) -> Recording | None:
    """What `RunResult.to_json` wrote, or None."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
            if b'"tracefirst":"run"' not in start.replace(b'": "', b'":"'):
                return None
            document = json.loads(start + file.read())
        run = msgspec.convert(document["run"], Run)
    except (OSError, KeyError, ValueError, msgspec.ValidationError) as error:
        if isinstance(error, OSError):
            return None
        raise TraceError(f"{path}: is a run result that cannot be read: {error}", file=str(path)) from None
    return Recording(trace_id=str(document.get("trace_id", "")), runs=(RecordedRun(run=run),), file=str(path))


def assemble(trace: RawTrace, file: str = "") -> Recording:
    """The runs of one trace, in order. A trace that is not ours is read by the importers of foreign frameworks."""
    roots = [span for span in trace.spans if span.attributes.get(sc.RUN_ID) is not None]
    ours = bool(roots) or any(sc.STEP_INDEX in span.attributes for span in trace.spans)
    if not ours:
        from replay.importers import import_trace

        return import_trace(trace, file)
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
        if above.end_ns is not None:
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
