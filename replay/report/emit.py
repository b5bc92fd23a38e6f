"""Recordings and replays as traces again: written to a file, or sent to a collector or Jaeger beside the original.

A replay's trace has a new id that follows from what was replayed (the original, with what it ran, and all that came of it):
the same replay again is the same trace, another one is another. It has the service and span names of the original, a link
to it on its root, and marks where it differs, see `replay.report.marking`. A file keeps the recorded times. What is sent to a
server starts now, with the recorded durations, so that a search for the last hour finds it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kernel.errors import ConfigError, TraceError
from kernel.export import Client, destination
from kernel.record import FORMAT_VERSION, Mark, Run, StepMarks, compact_json, digest, to_jsonable
from kernel.seams import Ids
from kernel.trace import (
    ERROR,
    Link,
    Resource,
    Span,
    encode_line,
    encode_run,
    encode_span,
    finish_span,
    semconv as sc,
    span_name,
    write_trace,
)
from kernel.version import VERSION
from replay.play import DerivedIds, Recording, ReplayResult
from replay.report import marking

MAX_REQUEST_BYTES = 4 * 2**20
"""Spans are sent in requests of about this much; a larger span goes alone."""

_JAEGER_UI_PORT = 16686


def replay_trace_id(result: ReplayResult) -> str:
    """The id of a replay's own trace: 32 hex digits, the same for the same replay of the same original."""
    return _replay_ids(result).trace_id()


def _replay_ids(result: ReplayResult) -> DerivedIds:
    outcome = [result.ran_with, result.verdict, _content(result.observed), result.divergences]
    text = compact_json(to_jsonable(msgspec.to_builtins(outcome)))
    return _ids(result.recording, f"replay/{digest(text)}")


def _content(runs: Sequence[Run]) -> list[Run]:
    return [msgspec.structs.replace(run, mark=Mark(), marks=()) for run in runs]


def replay_spans(result: ReplayResult, *, start_ns: int | None = None) -> list[Span]:
    """The spans of a replay, linked to the original and marked where they differ from it.

    Args:
        start_ns: when the replay shall have started, since 1970; None keeps the recorded times.
    """
    recording = result.recording
    ids = _replay_ids(result)
    trace_id = ids.trace_id()
    originals = [recorded.run for recorded in recording.runs]
    runs = [with_marks(run, ids, like=like) for run, like in zip(result.observed, originals, strict=False)]
    spans = _spans(runs, recording, trace_id, ids)
    if not spans:
        return spans
    above, root = recording.conversation, spans[0]
    original = above.span_id if above is not None else originals[0].mark.span_id
    if recording.trace_id and original:
        root.links = (*root.links, Link(trace_id=recording.trace_id, span_id=original))
    root.attributes[sc.REPLAY_STARTED] = root.start_ns
    marking.mark(spans, result, runs)
    return spans if start_ns is None else _moved(spans, start_ns - root.start_ns)


def _moved(spans: list[Span], by_ns: int) -> list[Span]:
    """The same spans at another time, in the same distances."""
    return [
        msgspec.structs.replace(
            span,
            start_ns=span.start_ns + by_ns,
            end_ns=None if span.end_ns is None else span.end_ns + by_ns,
            events=tuple(msgspec.structs.replace(event, time_ns=event.time_ns + by_ns) for event in span.events),
        )
        for span in spans
    ]


def recording_spans(recording: Recording) -> list[Span]:
    """The spans of a recording, written anew; ids that it lacks are derived from its trace id."""
    ids = _ids(recording, "recording")
    trace_id = recording.trace_id or ids.trace_id()
    runs = [with_marks(recorded.run, ids, like=recorded.run) for recorded in recording.runs]
    above = recording.conversation
    return _spans(runs, recording, trace_id, ids, above.span_id if above is not None else "")


def _ids(recording: Recording, purpose: str) -> DerivedIds:
    runs = [recorded.run.head.run_id for recorded in recording.runs]
    return DerivedIds("/".join([purpose, recording.trace_id, *runs]))


def _spans(runs: Sequence[Run], recording: Recording, trace_id: str, ids: Ids, conversation_id: str = "") -> list[Span]:
    parent: str | None = None
    spans: list[Span] = []
    if runs and (recording.conversation is not None or len(runs) > 1):
        above = recording.conversation or Mark(start_ns=runs[0].mark.start_ns, end_ns=runs[-1].mark.end_ns)
        parent = conversation_id or ids.span_id()
        attributes = {sc.OPERATION: sc.CONVERSATION, sc.FORMAT: FORMAT_VERSION, sc.AGENT_NAME: recording.agent}
        root = Span(
            trace_id=trace_id,
            span_id=parent,
            name=span_name(sc.CONVERSATION, recording.agent),
            start_ns=above.start_ns,
            end_ns=above.end_ns,
            attributes=attributes,
        )
        if above.end_ns is not None:
            finish_span(root, {sc.RUNS: len(recording.runs)})
        spans.append(root)
    for run in runs:
        spans.extend(encode_run(run, trace_id=trace_id, parent_id=parent))
    return spans


def with_marks(run: Run, ids: Ids, *, like: Run) -> Run:
    """A run with an id for each of its spans; times are those of `like`, or the last known one. A run without an end
    keeps its root and its last step open."""
    same = run is like
    root = like.mark if same and like.mark.span_id else _new(like.mark, ids)
    last = root.start_ns
    marks: list[StepMarks] = []
    for at, step in enumerate(run.steps):
        known = like.marks[at] if at < len(like.marks) else None
        if same and known is not None and len(known.calls) == len(step.calls) and (known.chat or not step.chat):
            marks.append(known)
            continue
        own = known.step if known is not None else Mark(start_ns=last, end_ns=last)
        chat = None
        if step.chat is not None:
            chat = _new(known.chat if known is not None and known.chat is not None else own, ids)
        times = known.calls if known is not None else ()
        calls = tuple(_new(times[p] if p < len(times) else own, ids, close=last) for p in range(len(step.calls)))
        made = _new(own, ids, close=None if step.decision is None else own.start_ns)
        marks.append(StepMarks(step=made, chat=chat, calls=calls))
        last = max(last, own.end_ns or own.start_ns)
    end_ns = None if run.end is None else root.end_ns if root.end_ns is not None else last
    return msgspec.structs.replace(run, mark=msgspec.structs.replace(root, end_ns=end_ns), marks=tuple(marks))


def _new(times: Mark, ids: Ids, close: int | None = None) -> Mark:
    end_ns = times.end_ns
    if end_ns is None and close is not None:
        end_ns = max(close, times.start_ns)
    return Mark(span_id=ids.span_id(), start_ns=times.start_ns, end_ns=end_ns)


def resource_of(recording: Recording) -> Resource:
    """Who emits the trace: the service of the original, so that Jaeger compares like with like."""
    attributes = {"service.name": recording.service or "tracefirst"}
    return Resource(attributes=attributes, scope_name=sc.SCOPE_NAME, scope_version=VERSION)


def write(path: Path, spans: list[Span], resource: Resource, *, replace: bool = True) -> None:
    """Write a trace file. Raises `ConfigError` where that is not possible, without `replace` also where one is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(path, spans, resource, replace=replace)
    except OSError as error:
        raise ConfigError(unwritable(path, error)) from None


def unwritable(path: Path, error: OSError) -> str:
    """What to tell of a file that could not be written."""
    if not isinstance(error, FileExistsError) or error.filename != str(path):
        return f"{path} cannot be written: {error.strerror or error}"
    if not path.is_file() or path.is_symlink():
        return f"{path} is there already and is no plain file: name another"
    return f"{path} is there already and is not written over: name another file, or replace it with --force"


def send_both(result: ReplayResult, endpoint: str, *, now_ns: int, ui: str | None = None) -> str:
    """Send the original and its replay to an OTLP endpoint; returns the address of the page that compares them.

    The original keeps its times, since it may lie there already; the replay starts at `now_ns`.

    Raises:
        ConfigError: the endpoint is no address, cannot be reached, or refuses.
    """
    url = traces_url(endpoint)
    _send(url, *_original(result.recording))
    _send(url, replay_spans(result, start_ns=now_ns), lambda _: resource_of(result.recording))
    original = result.recording.trace_id or recording_spans(result.recording)[0].trace_id
    return f"{(ui or ui_url(endpoint)).rstrip('/')}/trace/{original}...{replay_trace_id(result)}"


def _original(recording: Recording) -> tuple[Sequence[Span], Callable[[Span], Resource]]:
    """The spans of the original as its file holds them, or written anew where it has none (a run result)."""
    from replay.readers import read_traces

    whole = resource_of(recording)
    try:
        traces = read_traces(Path(recording.file)).traces if recording.file else ()
    except TraceError:
        traces = ()
    trace = next((trace for trace in traces if trace.trace_id == recording.trace_id), None)
    if trace is None:
        return recording_spans(recording), lambda _: whole
    return trace.spans, lambda span: trace.resources.get(span.span_id, whole)


def traces_url(endpoint: str) -> str:
    """The address that takes traces, from an OTLP endpoint such as `http://localhost:4318`. Raises `ConfigError`."""
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--otlp {endpoint}: not an HTTP address; give one such as http://localhost:4318")
    path = parts.path.rstrip("/")
    if not path.endswith("/v1/traces"):
        path += "/v1/traces"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def ui_url(endpoint: str) -> str:
    """Where Jaeger's pages most likely are: the endpoint's host at port 16686."""
    host = urlsplit(traces_url(endpoint)).hostname or "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{_JAEGER_UI_PORT}"


def requests_of(spans: Iterable[Span], resource: Callable[[Span], Resource]) -> Iterable[bytes]:
    """OTLP/JSON requests of about `MAX_REQUEST_BYTES`. OTLP has no open spans: those end with their last child."""
    waiting: list[Span] = []
    size, current = 0, None
    for span in _closed(list(spans)):
        owner, length = resource(span), len(encode_span(span))
        if waiting and (owner != current or size + length > MAX_REQUEST_BYTES):
            yield encode_line(waiting, current or owner)
            waiting, size = [], 0
        current = owner
        waiting.append(span)
        size += length
    if waiting and current is not None:
        yield encode_line(waiting, current)


def _closed(spans: list[Span]) -> list[Span]:
    if all(span.end_ns is not None for span in spans):
        return spans
    last = max(span.end_ns or span.start_ns for span in spans)
    return [
        span if span.end_ns is not None else msgspec.structs.replace(span, end_ns=last, status=ERROR) for span in spans
    ]


def _send(url: str, spans: Iterable[Span], resource: Callable[[Span], Resource]) -> None:
    """Post all requests with the exporter's own client, so that headers, certificates and time limits are the standard ones."""
    asked = {name: value for name, value in os.environ.items() if name.startswith("OTEL_EXPORTER_OTLP_")}
    target = destination(url, content=True, environ=asked)
    assert target is not None, "an endpoint that is named is never switched off"
    client = Client(dataclasses.replace(target, url=url, protocol="http/json"))
    for body in requests_of(spans, resource):
        answer = client.post(body)
        if answer.status is None:
            raise ConfigError(
                f"{url} cannot be reached: {answer.message}; is a collector or Jaeger listening there for OTLP over HTTP?"
            )
        if not 200 <= answer.status < 300:
            raise ConfigError(f"{url} refused the trace: {answer.message}")
