"""Any file as recordings: our own traces and journals, results of runs, and what other software wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kernel.errors import TraceError
from kernel.masking import Masker
from kernel.record import Run
from replay.importers import ACCEPTED, holds_chat, import_chat, import_trace
from replay.play import RecordedRun, Recording, is_own, own_recording
from replay.readers import RawTrace, TraceFile, open_plain, read_plain, read_traces


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
        with open_plain(path) as file:
            if b'"tracefirst":"run"' not in file.read(256).replace(b'": "', b'":"'):
                return None
        document = json.loads(read_plain(path))
        run = msgspec.convert(document["run"], Run)
    except (KeyError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise TraceError(f"{path}: is a run result that cannot be read: {error}", file=str(path)) from None
    return Recording(trace_id=str(document.get("trace_id", "")), runs=(RecordedRun(run=run),), file=str(path))


def assemble(trace: RawTrace, file: str = "") -> Recording:
    """The runs of one trace, in order. A trace that is not ours is read by the importers of foreign frameworks."""
    return own_recording(trace, file) if is_own(trace) else import_trace(trace, file)


def import_file(path: Path | str, *, agent: str | None = None, masker: Masker | None = None) -> list[Recording]:
    """All recordings of a file that other software wrote, found by content: chat messages, or spans.

    Args:
        agent: name for the agent of chat messages; without it the source's own, or `imported`.
        masker: masks secrets in chat messages before anything is made of them; None masks nothing.
    Raises:
        TraceError: the file holds neither, or one that is broken; the message names file, place and remedy.
    """
    path = Path(path)
    return import_chat(path, agent=agent, masker=masker) or _from_spans(path)


def _from_spans(path: Path) -> list[Recording]:
    try:
        return load(path)
    except TraceError as error:
        found = str(error).removeprefix(str(path)).lstrip(":, ")
        text = f"{path}: holds no chat messages; read as a trace: {found} Also accepted: {ACCEPTED}."
        raise TraceError(text, file=str(path), line=error.line) from None
