"""Where traces go: settings from code or the environment, and the session that holds one trace open."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernel.ambient import Parent, current_parent
from kernel.errors import ConfigError
from kernel.masking import Masker
from kernel.record import FORMAT_VERSION, RunHead
from kernel.seams import Clock, Ids
from kernel.trace import (
    JOURNAL_SUFFIX,
    SUFFIX,
    Journal,
    Link,
    Recorder,
    Scrubber,
    Sink,
    Span,
    described_resource,
    finish_span,
    prune,
    semconv as sc,
    trace_path,
)

DIRECTORY_VARIABLE = "TRACEFIRST_TRACES"
_PRUNE_NS = 10 * 10**9
_SETTINGS = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL})
"""What no other day and no other disk would mend."""
_log = logging.getLogger("tracefirst")


class Tracing:
    """Settings of tracing, shared by many runs and threads.

    Args:
        directory: traces are written to `directory/YYYY-MM-DD/AGENT-TRACEID.trace.json`.
        file: or one file, for one run or conversation.
        overwrite: replace the trace that `file` holds already, at the clean end of the new one.
        otlp: endpoint of a collector or of Jaeger, such as `http://localhost:4318`; spans are sent there as well.
        provider: an OpenTelemetry SDK `TracerProvider` that gets the same spans.
        metrics: GenAI metrics of the runs: True for the global OpenTelemetry meter provider, or a meter provider.
        sinks: further sinks.
        masker: what is masked before anything is written or sent; None masks nothing.
        fsync: make each line durable before the run goes on.
        keep_days, keep_bytes: older traces that were written to `directory` are removed beyond these, oldest first; None
            keeps all. Looked at when a trace is closed, at most every ten seconds. Other files are left alone.
        service: `service.name` of the resource. attributes: further resource attributes.
        join: become part of the caller's OpenTelemetry trace where there is one; else the run's own span only links to
            the caller's.

    A file that is there already is not written over unless `overwrite` says so, and what the user got wrong is a
    `ConfigError` before anything runs. What goes wrong with the disk is not: the run is the same, and its result's `warnings` say what was lost.
    """

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        file: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        otlp: str | None = None,
        provider: Any = None,
        metrics: Any = False,
        sinks: Sequence[Sink] = (),
        masker: Masker | None = None,
        mask: bool = True,
        fsync: bool = False,
        keep_days: float | None = None,
        keep_bytes: int | None = None,
        service: str | None = None,
        attributes: dict[str, Any] | None = None,
        join: bool = True,
    ) -> None:
        if directory is not None and file is not None:
            raise ConfigError("tracing: give a directory or a file, not both")
        if overwrite and file is None:
            raise ConfigError("tracing: overwrite belongs to a file; in a directory each trace has a name of its own")
        self.directory = Path(directory) if directory is not None else None
        self.file = Path(file) if file is not None else None
        self.overwrite = overwrite
        self.otlp = otlp
        self.provider = provider
        self.metrics = metrics
        self.sinks = tuple(sinks)
        self.masker = masker if masker is not None or not mask else Masker.default()
        self.fsync = fsync
        self.keep_days = keep_days
        self.keep_bytes = keep_bytes
        self.join = join
        resource = described_resource(service, attributes or {})
        shown = resource.attributes if self.masker is None else self.masker.mask(resource.attributes)
        self.resource = msgspec.structs.replace(resource, attributes=shown)
        self._pruned_ns: int | None = None

    def parent(self) -> Parent | None:
        """The caller's span that a run joins."""
        return current_parent() if self.join else None

    def open(
        self,
        head: RunHead,
        *,
        trace_id: str,
        parent: Parent | None,
        clock: Clock,
        ids: Ids,
        single: bool,
        hidden: bool = False,
    ) -> Session:
        """Open the trace of a run or conversation; a `hidden` one has no journal to be found before `Session.reveal`.

        Raises:
            ConfigError: what the user got wrong.
        """
        sinks = self._copies()
        journal, lost = self._journal(head.agent, trace_id, parent, clock, hidden)
        caller = parent if self.join else current_parent()
        session = Session(
            self, [*([journal] if journal is not None else []), *sinks], trace_id, parent, caller, journal
        )
        if journal is not None and journal.moved is not None:
            session.lost(f"the journal of a run that was killed was there, and is kept as {journal.moved}")
        if lost is not None:
            session.lost(lost)
            session.unkept = lost
        elif journal is not None and journal.failure is not None:
            session.unkept = f"{journal.path} cannot be written: {journal.failure.strerror or journal.failure}"
        if not single:
            session.open_conversation(head, clock, ids)
        return session

    def _copies(self) -> list[Sink]:
        """The sinks beside the trace file."""
        sinks: list[Sink] = []
        if self.otlp is not None:
            from kernel.export import OtlpSink

            sinks.append(OtlpSink(self.otlp, self.resource))
        if self.provider is not None:
            from kernel.export import SdkSink

            sinks.append(SdkSink(self.provider))
        if self.metrics:
            from kernel.export import MetricsSink

            sinks.append(MetricsSink(None if self.metrics is True else self.metrics))
        unique: dict[object, Sink] = {}  # a span goes to each destination once, however often that was named
        for sink in (*sinks, *self.sinks):
            unique.setdefault(getattr(sink, "destination", id(sink)), sink)
        return list(unique.values())

    def _journal(
        self, agent: str, trace_id: str, parent: Parent | None, clock: Clock, hidden: bool
    ) -> tuple[Journal | None, str | None]:
        """The trace file, or what is lost without it. Raises `ConfigError`."""
        path = self._path(agent, trace_id, parent, clock)
        if path is None:
            return None, None
        try:
            try:
                overwrite = self.overwrite
                return Journal(path, self.resource, fsync=self.fsync, overwrite=overwrite, hidden=hidden), None
            except FileExistsError:
                if self.directory is None:
                    raise
            return Journal(_another(path), self.resource, fsync=self.fsync, hidden=hidden), None
        except FileExistsError as error:
            raise ConfigError(_exists(path, str(error.filename or path))) from None
        except OSError as error:
            if error.errno in _SETTINGS:
                raise ConfigError(f"the trace file {path} cannot be created: {error.strerror}") from None
            lost = f"no trace file: {path} cannot be created: {error.strerror or error}"
            _log.warning("%s", lost)
            return None, lost

    def _path(self, agent: str, trace_id: str, parent: Parent | None, clock: Clock) -> Path | None:
        if self.file is not None:
            name = self.file.name
            return self.file if name.endswith(SUFFIX) else self.file.with_name(name.removesuffix(".json") + SUFFIX)
        if self.directory is None:
            return None
        path = trace_path(self.directory, agent, trace_id, clock.now("run"))
        return path if parent is None else _another(path)  # the caller's trace may hold many runs

    def prune(self, now_ns: int) -> None:
        """Remove traces that were written to `directory` beyond `keep_days` and `keep_bytes`; see `kernel.trace.prune`."""
        if self.directory is None or (self.keep_days is None and self.keep_bytes is None):
            return
        if self._pruned_ns is None or not 0 <= now_ns - self._pruned_ns < _PRUNE_NS:
            self._pruned_ns = now_ns
            prune(self.directory, now_ns, keep_days=self.keep_days, keep_bytes=self.keep_bytes)


class Session:
    """One open trace: its file, its sinks, and for a conversation the span over its runs."""

    def __init__(
        self,
        tracing: Tracing,
        sinks: list[Sink],
        trace_id: str,
        parent: Parent | None,
        caller: Parent | None,
        journal: Journal | None,
    ) -> None:
        self._tracing = tracing
        self._journal = journal
        self._sinks = sinks
        self.trace_id = trace_id
        self._parent_id = parent.span_id if parent is not None else None
        self._caller = parent
        self._links = (
            () if caller is None or parent is not None else (Link(trace_id=caller.trace_id, span_id=caller.span_id),)
        )
        self._scrubber = Scrubber(tracing.masker)
        self._recorders: list[Recorder] = []
        self._conversation: Span | None = None
        self._clock: Clock | None = None
        self._lost: list[str] = []
        self._closed = False
        self.unkept: str | None = None  # why there is no trace file where one was asked for

    @property
    def path(self) -> Path | None:
        """Where the trace file is, or will be when it is closed; None where there is none."""
        if self._journal is None:
            return None
        return self._journal.path if self._closed else self._journal.final

    @property
    def kept(self) -> bool:
        """Whether the closed trace has the file that was asked for: a journal that could not be closed is none."""
        return self.unkept is None if self._journal is None else self._journal.path == self._journal.final

    def reveal(self) -> None:
        """The run does something from here on: what its journal says counts."""
        if self._journal is not None:
            self._journal.reveal()

    def open_conversation(self, head: RunHead, clock: Clock, ids: Ids) -> None:
        """Start the root span over the runs of a conversation."""
        attributes: dict[str, Any] = {sc.OPERATION: sc.CONVERSATION, sc.FORMAT: FORMAT_VERSION}
        attributes[sc.AGENT_NAME] = head.agent
        if head.conversation_id is not None:
            attributes[sc.CONVERSATION_ID] = head.conversation_id
        self._conversation = Span(
            trace_id=self.trace_id,
            span_id=ids.span_id(),
            parent_id=self._parent_id,
            name=f"{sc.CONVERSATION} {head.agent}",
            start_ns=clock.now("run"),
            attributes=attributes,
        )
        self._clock = clock
        self._tell("started", self._conversation)

    def recorder(
        self,
        clock: Clock,
        ids: Ids,
        *,
        links: tuple[Link, ...] = (),
        attributes: dict[str, Any] | None = None,
        parent_id: str | None = None,
        after: Recorder | None = None,
        apart: bool = False,
    ) -> Recorder:
        """The recorder of one run in this trace.

        Args:
            parent_id: a span of this trace that the run is below; without it the conversation's.
            apart: the run shares no history with the ones before it, but with the run `after`, where that is given.
        """
        recorder = Recorder(
            self._sinks,
            clock=clock,
            ids=ids,
            trace_id=self.trace_id,
            parent_id=parent_id or self.root_id,
            caller=self._caller,
            links=(*self._links, *links),
            attributes=attributes,
            scrubber=after.scrubber if after is not None else Scrubber(self.masker) if apart else self._scrubber,
            digest=before.digest if (before := after or (None if apart else self._last())) is not None else None,
        )
        self._clock = clock
        self._recorders.append(recorder)
        return recorder

    def _last(self) -> Recorder | None:
        return self._recorders[-1] if self._recorders else None

    @property
    def masker(self) -> Masker | None:
        """What masks what is written."""
        return self._tracing.masker

    @property
    def root_id(self) -> str | None:
        """The span above all runs of this trace."""
        return self._conversation.span_id if self._conversation is not None else self._parent_id

    def started(self, span: Span) -> None:
        """Hand on a span that is no part of a run; its owner has masked it, ends it and says so with `ended`."""
        self._tell("started", span)

    def ended(self, span: Span) -> None:
        """Hand on the end of a span that was handed on with `started`."""
        self._tell("ended", span)

    def close(self) -> None:
        """End the conversation's span and close all sinks: the file gets its final form."""
        if self._conversation is not None and self._clock is not None:
            self._conversation.end_ns = self._clock.now("run_end")
            finish_span(self._conversation, {sc.RUNS: sum(1 for recorder in self._recorders if recorder.root.span_id)})
            self._tell("ended", self._conversation)
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # telemetry never reaches the run; `warnings` tells
                self._lost.append(f"{type(sink).__name__}: {type(error).__name__}: {error}")
        self._closed = True
        if self._clock is not None:
            try:
                self._tracing.prune(self._clock.now("run_end"))
            except OSError as error:
                self._lost.append(f"old traces were not removed: {error}")

    def lost(self, what: str) -> None:
        """Add to what `warnings` tells."""
        self._lost.append(what)

    def warnings(self) -> list[str]:
        """What of the telemetry was lost, or cannot be sent."""
        for sink in self._sinks:
            try:
                self._lost.extend(getattr(sink, "warnings", list)())
            except Exception as error:  # as in `close`
                self._lost.append(f"{type(sink).__name__}: {type(error).__name__}: {error}")
        return [*(w for recorder in self._recorders for w in recorder.failed_sinks), *self._lost]

    def _tell(self, method: str, span: Span) -> None:
        for sink in self._sinks:
            try:
                getattr(sink, method)(span)
            except Exception as error:  # as in `close`
                self._lost.append(f"{type(sink).__name__}: {type(error).__name__}: {error}")


def tracing_from(target: Any) -> Tracing | None:
    """What a user passed as `trace`: a `Tracing`, a folder, a file `*.trace.json`, False for none, None for the
    environment (`TRACEFIRST_TRACES` names a folder, `OTEL_EXPORTER_OTLP_ENDPOINT` a collector). Raises `ConfigError`."""
    if target is False:
        return None
    if isinstance(target, Tracing):
        return target
    if isinstance(target, (str, os.PathLike)):
        path = Path(target)
        otlp = _endpoint()
        if path.name.endswith(".json"):
            return Tracing(file=path, otlp=otlp)
        return Tracing(directory=path, otlp=otlp)
    if target is not None and target is not True:
        raise ConfigError(f"trace is {type(target).__name__}: give a folder, a file *{SUFFIX}, a Tracing or False")
    directory, otlp = os.environ.get(DIRECTORY_VARIABLE), _endpoint()
    if not directory and not otlp:
        return Tracing(directory="traces") if target is True else None
    return Tracing(directory=directory or None, otlp=otlp)


def _endpoint() -> str | None:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporters = [name.strip() for name in (os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp").split(",")]
    if "otlp" not in exporters:
        return None
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None


def _another(path: Path) -> Path:
    """The same name with random digits in it."""
    return path.with_name(f"{path.name.removesuffix(SUFFIX)}-{os.urandom(4).hex()}{SUFFIX}")


def _exists(path: Path, found: str) -> str:
    if found == str(path):
        return f"the trace file {path} is there already and is not written over: move it away, or give another file"
    return (
        f"{found} is the journal of a run that goes on or was killed (`replay {found}` reads it): move it away, or give "
        "another file"
    )


__all__ = ["JOURNAL_SUFFIX", "SUFFIX", "Session", "Tracing", "tracing_from"]
