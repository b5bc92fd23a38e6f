"""Sending spans by OTLP/HTTP, off the run's path: a run is the same, result and time, with a collector or without.

    ended(span) → queue → [writer] → spool (disk) → [sender] → collector

One *outbox* a process and destination, shared by all runs, with two daemon threads. The writer encodes ended spans and
appends them to the spool, so that from then on they outlive the process; the sender sends what the spool holds, in
order, split by bytes, until the server has acknowledged it. What a process could not send is sent by the next one.

The OpenTelemetry exporters are not used for this. `BatchSpanProcessor` drops the oldest span when its queue is full,
holds nothing over the end of the process, waits up to 30 s at shutdown; the OTLP exporter loses a whole batch over one
large span and retries for ten seconds at most. Their message types (opentelemetry-proto) are used, and the variables
they obey are obeyed (`kernel.export.http.destination`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel.errors import ConfigError
from kernel.export.http import Compression, Destination, destination
from kernel.export.outbox import ExportStats, Limits, Outbox
from kernel.trace import Event, Resource, Span, environment_resource

__all__ = ["SPOOL_VARIABLE", "ExportStats", "Limits", "OtlpSink", "export_stats", "shutdown"]

SPOOL_VARIABLE = "TRACEFIRST_SPOOL"


class OtlpSink:
    """Sink that sends ended spans to a collector. Costs the run microseconds a span, never blocks on a network.

    Args:
        endpoint: such as `http://localhost:4318`; None for what `OTEL_EXPORTER_OTLP_*` say.
        resource: who emits the spans.
        headers: beside those of `OTEL_EXPORTER_OTLP_HEADERS`.
        content: whether prompts, replies, arguments and results are sent. None: to this machine yes, elsewhere only if
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says so.
        spool: folder for what waits; None for `TRACEFIRST_SPOOL`, else `$XDG_STATE_HOME/tracefirst/spool`. `off` keeps
            it in memory, where it ends with the process.

    Raises:
        ConfigError: an endpoint or header that cannot work.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        resource: Resource | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        compression: Compression | None = None,
        content: bool | None = None,
        spool: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        target = destination(endpoint, headers=headers, timeout_s=timeout_s, compression=compression, content=content)
        self._resource = resource or environment_resource()
        self._outbox = None if target is None else _outbox(target, _spool_folder(spool, target), limits or _limits())
        self._told = self.stats  # counts of the process: what was lost before is not told again

    def started(self, span: Span) -> None:
        """Open spans are not sent: OTLP knows none."""

    def event(self, span: Span, event: Event) -> None:
        """Events are sent with their span."""

    def ended(self, span: Span) -> None:
        """Take a span over; it may not be changed afterwards."""
        if self._outbox is not None:
            self._outbox.put(span, self._resource)

    def close(self) -> None:
        """Bring what was taken over to the spool, where it is safe from the end of the process. Waits for no server."""
        if self._outbox is not None:
            self._outbox.write()

    @property
    def destination(self) -> object:
        """Equal for sinks that send to one place from one spool."""
        return self._outbox

    def warnings(self) -> list[str]:
        """What was lost, cannot be kept or cannot be sent since this was last asked; spans in the spool are not lost."""
        if self._outbox is None:
            return []
        now, told, place = self.stats, self._told, self._outbox.target.shown
        self._told = now
        found = []
        if now.dropped > told.dropped:
            found.append(
                f"{now.dropped - told.dropped} spans for {place} are lost: no room to wait, or killed while they were written"
            )
        if now.rejected > told.rejected:
            found.append(f"{place} refused {now.rejected - told.rejected} spans: {now.last_error}")
        spool = self._outbox.spool
        if spool.folder is not None and (in_memory := spool.in_memory):
            found.append(f"{in_memory} spans for {place} wait in {spool.place}")
        if now.waiting and self._outbox.failing:
            found.append(f"{now.waiting} spans wait for {place}, which does not take them: {now.last_error}")
        return found

    def flush(self, timeout_s: float = 5.0) -> ExportStats:
        """Wait until all is acknowledged, at most so long."""
        return self._outbox.flush(timeout_s) if self._outbox is not None else ExportStats()

    @property
    def stats(self) -> ExportStats:
        """Counts of this process and destination."""
        return self._outbox.stats() if self._outbox is not None else ExportStats()


# --- one outbox a process and destination -----------------------------------------------------------------------------

_SHUTDOWN_S = 5.0
_outboxes: dict[tuple[Destination, Path | None, Limits], Outbox] = {}
_outboxes_lock = threading.Lock()
_observed = False


def shutdown(timeout_s: float = _SHUTDOWN_S) -> ExportStats:
    """Bring all that was taken over to the spools, and send what can be sent within `timeout_s`; counts of all sinks.

    Runs at the end of the process by itself. Sinks can be used afterwards.
    """
    deadline = time.monotonic() + timeout_s
    outboxes = list(_outboxes.values())
    for outbox in outboxes:
        outbox.flush(0.0)
    stats = []
    for outbox in outboxes:
        stats.append(outbox.flush(max(0.0, deadline - time.monotonic()), give_up=True))
        outbox.tell()
    return _sum(stats)


def export_stats() -> ExportStats:
    """Counts of all sinks of this process."""
    return _sum([outbox.stats() for outbox in list(_outboxes.values())])


def _sum(stats: Sequence[ExportStats]) -> ExportStats:
    errors = [s.last_error for s in stats if s.last_error]
    return ExportStats(
        sent=sum(s.sent for s in stats),
        waiting=sum(s.waiting for s in stats),
        in_memory=sum(s.in_memory for s in stats),
        dropped=sum(s.dropped for s in stats),
        rejected=sum(s.rejected for s in stats),
        last_error=errors[-1] if errors else None,
    )


def _outbox(target: Destination, folder: Path | None, limits: Limits) -> Outbox:
    key = (target, folder, limits)
    with _outboxes_lock:
        if not _outboxes:
            atexit.register(shutdown)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_after_fork)
        if key not in _outboxes:
            _outboxes[key] = Outbox(target, folder, limits)
        _observe()
        return _outboxes[key]


def _after_fork() -> None:
    global _outboxes_lock
    _outboxes_lock = threading.Lock()
    for outbox in _outboxes.values():
        outbox.after_fork()


def _spool_folder(given: str | os.PathLike[str] | None, target: Destination) -> Path | None:
    chosen = os.fspath(given) if given is not None else os.environ.get(SPOOL_VARIABLE)
    if chosen == "off":
        return None
    if chosen is not None and "\0" in chosen:
        raise ConfigError(f"spool {chosen!r}: a NUL is in no folder's name; name a folder, or `off` for memory")
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # no home
        return Path(chosen) / target.digest if chosen else None
    return (Path(chosen) if chosen else state / "tracefirst" / "spool") / target.digest


def _limits() -> Limits:
    """The defaults, with the two settings of the batch processor that have a meaning here."""
    delay_ms = os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "")
    spans = os.environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "")
    limits = Limits()
    if delay_ms.isdecimal():
        limits = replace(limits, delay_s=int(delay_ms) / 1000)
    if spans.isdecimal():
        limits = replace(limits, max_batch_spans=max(1, int(spans)))
    return limits


def _observe() -> None:
    """The counts as OpenTelemetry metrics, once and if the process uses metrics."""
    global _observed
    api: Any = sys.modules.get("opentelemetry.metrics")
    if _observed or api is None:
        return
    _observed = True

    def spans(options: Any) -> list[Any]:
        now = export_stats()
        counts = {"sent": now.sent, "dropped": now.dropped, "rejected": now.rejected}
        return [api.Observation(count, {"tracefirst.export.outcome": outcome}) for outcome, count in counts.items()]

    def waiting(options: Any) -> list[Any]:
        return [api.Observation(export_stats().waiting)]

    meter = api.get_meter("tracefirst")
    meter.create_observable_counter("tracefirst.export.spans", [spans], "{span}", "Spans by what became of them")
    meter.create_observable_up_down_counter("tracefirst.export.waiting", [waiting], "{span}", "Spans not yet sent")
