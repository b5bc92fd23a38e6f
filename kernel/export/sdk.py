"""The same spans through the application's own OpenTelemetry SDK, and GenAI metrics from them.

`SdkSink` gives a `TracerProvider` spans with our ids, parents and times. It uses what the SDK offers to everybody:
`start_span` and `end` with explicit times, and the tracer's `id_generator`, which on our tracer hands out the ids that
the trace file has. So the provider's processors see real spans at their start and at their end, as of any other
instrumentation. (A `ReadableSpan` built by hand and given to the processors would pass the sampler and every `on_start`
by, and needs the provider's private list of processors.)

The provider's sampler and span limits hold for this copy, as for every span of the application: a trace that is not
sampled there is whole in the trace file all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kernel.record import canonical_json, to_jsonable, valid_text
from kernel.trace import CLIENT, CONSUMER, INTERNAL, PRODUCER, SERVER, Event, Span, semconv as sc
from kernel.version import VERSION

_KINDS = {
    INTERNAL: SpanKind.INTERNAL,
    SERVER: SpanKind.SERVER,
    CLIENT: SpanKind.CLIENT,
    PRODUCER: SpanKind.PRODUCER,
    CONSUMER: SpanKind.CONSUMER,
}
_STATUSES = {0: StatusCode.UNSET, 1: StatusCode.OK, 2: StatusCode.ERROR}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOTHING = Context()
_INT64 = range(-(2**63), 2**63)


class _Given(threading.local):
    span: Span | None = None


class _GivenIds(IdGenerator):
    """Hands out the ids of the span that this thread is about to start; where there is none, those of the provider."""

    def __init__(self, own: IdGenerator) -> None:
        self.given = _Given()
        self.own = own

    def generate_span_id(self) -> int:
        span = self.given.span
        return int(span.span_id, 16) if span is not None else self.own.generate_span_id()

    def generate_trace_id(self) -> int:
        span = self.given.span
        return int(span.trace_id, 16) if span is not None else self.own.generate_trace_id()


class SdkSink:
    """Sink that emits spans through an OpenTelemetry SDK `TracerProvider`: same ids, parents, times, status, links.

    Attributes the SDK has no type for are JSON text; None is left out. Closing flushes nothing: the provider is the
    application's.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self.destination: object = provider
        self._tracer = provider.get_tracer(sc.SCOPE_NAME, VERSION, sc.SCHEMA_URL)
        self._ids = _GivenIds(provider.id_generator)
        if isinstance(self._tracer, Tracer):  # else the SDK is disabled, and nothing is emitted
            if isinstance(self._tracer.id_generator, _GivenIds):  # another sink has this tracer as well
                self._ids = self._tracer.id_generator
            self._tracer.id_generator = self._ids
        self._open: dict[str, tuple[trace.Span, dict[str, Any]]] = {}
        self._parents: dict[str, Context] = {}  # of open spans, by their ids

    def started(self, span: Span) -> None:
        attributes = dict(span.attributes)
        self._ids.given.span = span
        try:
            emitted = self._tracer.start_span(
                valid_text(span.name),
                self._parent(span),
                _KINDS.get(span.kind, SpanKind.INTERNAL),
                _attributes(attributes),
                [Link(_context(link.trace_id, link.span_id), _attributes(link.attributes)) for link in span.links]
                or None,
                span.start_ns,
            )
        finally:
            self._ids.given.span = None
        self._open[span.span_id] = emitted, attributes

    def event(self, span: Span, event: Event) -> None:
        """Events are added when their span ends, in its order."""

    def ended(self, span: Span) -> None:
        emitted, before = self._open.pop(span.span_id)
        self._parents.pop(span.span_id, None)
        if not emitted.is_recording():
            return
        after = span.attributes
        changed = {key: value for key, value in after.items() if key not in before or before[key] is not value}
        emitted.set_attributes(_attributes(changed))
        for event in span.events:
            emitted.add_event(event.name, _attributes(event.attributes), event.time_ns)
        if span.status:
            emitted.set_status(
                Status(_STATUSES.get(span.status, StatusCode.UNSET), valid_text(span.status_message) or None)
            )
        emitted.end(span.end_ns)

    def close(self) -> None:
        """Nothing to do: every span has ended."""

    def _parent(self, span: Span) -> Context:
        """A context with the parent alone in it: what else is current in the caller is no parent of ours."""
        if span.parent_id is None:
            return _NOTHING
        known = self._parents.get(span.parent_id)
        if known is not None:
            return known
        ours = self._open.get(span.parent_id)
        if ours is not None:
            context = self._parents[span.parent_id] = trace.set_span_in_context(ours[0], _NOTHING)
            return context
        current = trace.get_current_span()  # a run inside a span of the caller: its sampling decision is ours as well
        if current.get_span_context().span_id != int(span.parent_id, 16):
            current = NonRecordingSpan(_context(span.trace_id, span.parent_id))
        return trace.set_span_in_context(current, _NOTHING)


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What every SDK takes without a warning: str, bool, int of 64 bits, float, and lists of one of them."""
    out = {}
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            out[key] = value if value.isascii() else valid_text(value)
        elif kind is bool or kind is float or (kind is int and value in _INT64):
            out[key] = value
        elif value is not None:
            out[key] = _other(value)
    return out


def _other(value: Any) -> Any:
    if isinstance(value, list | tuple) and value:
        kinds = set(map(type, value))
        if kinds == {str}:
            return [valid_text(item) for item in value]
        if kinds in ({bool}, {float}) or (kinds == {int} and all(item in _INT64 for item in value)):
            return list(value)
    return str(value) if type(value) is int else canonical_json(to_jsonable(value))


# --- metrics ----------------------------------------------------------------------------------------------------------

_TOKEN_BUCKETS = tuple(float(4**n) for n in range(14))
_SECONDS_BUCKETS = tuple(0.01 * 2**n for n in range(14))
_COUNT_BUCKETS = tuple(float(2**n) for n in range(11))
# Boundaries: the GenAI conventions' advice for tokens and seconds; powers of two for calls a run.


class MetricsSink:
    """Sink that counts ended spans as GenAI metrics: tokens, durations, and model and tool calls a run.

    Args:
        meter_provider: None for the global one.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        self.destination: object = (MetricsSink, meter_provider)
        meter = metrics.get_meter(sc.SCOPE_NAME, VERSION, meter_provider, sc.SCHEMA_URL)

        def histogram(name: str, unit: str, text: str, buckets: tuple[float, ...]) -> metrics.Histogram:
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)

        client, agent = "gen_ai.client", "gen_ai.invoke_agent"
        self._tokens = histogram(f"{client}.token.usage", "{token}", "Tokens of one model call", _TOKEN_BUCKETS)
        self._durations = {
            sc.CHAT: histogram(f"{client}.operation.duration", "s", "One model call", _SECONDS_BUCKETS),
            sc.EXECUTE_TOOL: histogram("gen_ai.execute_tool.duration", "s", "One tool call", _SECONDS_BUCKETS),
            sc.INVOKE_AGENT: histogram(f"{agent}.duration", "s", "One run", _SECONDS_BUCKETS),
        }
        self._model_calls = histogram(f"{agent}.inference_calls", "{call}", "Model calls of a run", _COUNT_BUCKETS)
        self._tool_calls = histogram(f"{agent}.tool_calls", "{call}", "Tool calls of a run", _COUNT_BUCKETS)

    def started(self, span: Span) -> None:
        """Only ended spans count."""

    def event(self, span: Span, event: Event) -> None:
        """Only ended spans count."""

    def ended(self, span: Span) -> None:
        duration = self._durations.get(span.attributes.get(sc.OPERATION, ""))
        if duration is None or span.end_ns is None:
            return
        labels = {key: value for key in _LABELS if (value := span.attributes.get(key)) is not None}
        duration.record((span.end_ns - span.start_ns) / 1e9, labels)
        if span.attributes[sc.OPERATION] == sc.CHAT:
            for key, kind in ((sc.INPUT_TOKENS, "input"), (sc.OUTPUT_TOKENS, "output")):
                if (count := span.attributes.get(key)) is not None:
                    self._tokens.record(count, {**labels, "gen_ai.token.type": kind})
        for key, calls in ((sc.MODEL_CALLS, self._model_calls), (sc.TOOL_CALLS, self._tool_calls)):
            if (count := span.attributes.get(key)) is not None:
                calls.record(count, labels)

    def close(self) -> None:
        """Nothing to do: the meter provider is the application's."""


_LABELS = (
    *(sc.OPERATION, sc.PROVIDER, sc.REQUEST_MODEL, sc.RESPONSE_MODEL, sc.AGENT_NAME, sc.TOOL_NAME, sc.ERROR_TYPE),
    sc.STOP_REASON,
)
"""Attributes of few values. Ids and texts never become labels."""
