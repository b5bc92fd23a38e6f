"""Write a recording as a trace file of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel.record import FORMAT_VERSION
from kernel.trace import Resource, Span, encode_run, finish_span, semconv as sc, write_trace
from kernel.version import VERSION
from replay.play import Recording


def save(recording: Recording, path: Path, *, replace: bool = True) -> None:
    """Write `recording` to `path`, from where `replay.play.recording.load` reads an equal one. Equal input, equal bytes.

    Where the source has no times, spans carry a count of events, a microsecond each from 1970 on: Jaeger needs order.
    A file that is there gives way; without `replace` it raises `FileExistsError`.
    """
    parent: str | None = None
    spans: list[Span] = []
    if recording.conversation is not None:
        mark = recording.conversation
        head = recording.runs[0].run.head
        attributes: dict[str, Any] = {
            sc.OPERATION: sc.CONVERSATION,
            sc.FORMAT: FORMAT_VERSION,
            sc.AGENT_NAME: head.agent,
        }
        if head.conversation_id is not None:
            attributes[sc.CONVERSATION_ID] = head.conversation_id
        parent = mark.span_id
        root = Span(
            trace_id=recording.trace_id,
            span_id=mark.span_id,
            name=f"{sc.CONVERSATION} {head.agent}",
            start_ns=mark.start_ns,
            end_ns=mark.end_ns,
            attributes=attributes,
        )
        finish_span(root, {sc.RUNS: len(recording.runs), **({} if mark.end_ns is not None else {sc.CLOSED: True})})
        spans.append(root)
    for recorded in recording.runs:
        spans.extend(encode_run(recorded.run, trace_id=recording.trace_id, parent_id=parent, closed=True))
    service = {"service.name": recording.service} if recording.service else {}
    resource = Resource(attributes=service, scope_name=sc.SCOPE_NAME, scope_version=VERSION)
    write_trace(path, spans, resource, replace=replace)
