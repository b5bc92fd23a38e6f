"""What an application's own OpenTelemetry SDK sees of a run: our spans, exactly, as its provider's own."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span as SdkSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased

from kernel.export.sdk import MetricsSink, SdkSink
from kernel.trace import semconv as sc
from kernel.trace.span import CLIENT, ERROR, INTERNAL, Event, Link, Span

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, parent: int | None = None, trace_id: str = TRACE, **attributes: Any) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=f"{number:016x}",
        parent_id=None if parent is None else f"{parent:016x}",
        name=f"step {number}",
        start_ns=1000 + number,
        attributes={"n": number, **attributes},
    )


def end(sink: SdkSink | MetricsSink, one: Span, **attributes: Any) -> None:
    one.attributes.update(attributes)
    one.end_ns = one.start_ns + 1_500_000_000
    sink.ended(one)


def provider(sampler: Sampler | None = None) -> tuple[TracerProvider, InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    made = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(memory))
    return made, memory


def finished(memory: InMemorySpanExporter) -> dict[int, ReadableSpan]:
    spans = {}
    for one in memory.get_finished_spans():
        context = one.get_span_context()
        assert context is not None
        assert context.span_id not in spans
        spans[context.span_id] = one
    return spans


def test_a_span_has_our_ids_times_kind_status_events_links_and_attributes() -> None:
    made, memory = provider()
    sink = SdkSink(made)
    root, call = span(1), span(2, parent=1, early=True, replaced="before")
    root.links = (Link(trace_id="1" * 32, span_id="2" * 16, attributes={"why": "replay"}),)
    call.kind = CLIENT
    sink.started(root)
    sink.started(call)
    call.events = (Event(name="try", time_ns=7, attributes={"number": 1}), Event(name="try", time_ns=6))
    call.status, call.status_message = ERROR, "no"
    end(sink, call, late=1.5, replaced="after")
    end(sink, root)

    spans = finished(memory)
    got, top = spans[2], spans[1]
    assert got.context is not None
    assert (f"{got.context.trace_id:032x}", got.context.span_id) == (TRACE, 2)
    assert got.parent is not None
    assert (got.parent.span_id, got.parent.is_remote) == (1, False)
    assert top.parent is None
    assert (got.name, got.start_time, got.end_time) == ("step 2", 1002, 1_500_001_002)
    assert (got.kind, top.kind) == (trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL)
    assert (got.status.status_code, got.status.description) == (trace.StatusCode.ERROR, "no")
    assert top.status.status_code is trace.StatusCode.UNSET
    assert dict(got.attributes or {}) == {"n": 2, "early": True, "replaced": "after", "late": 1.5}
    assert [(e.name, e.timestamp, dict(e.attributes or {})) for e in got.events] == [
        ("try", 7, {"number": 1}),
        ("try", 6, {}),
    ]
    (link,) = top.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == ("1" * 32, "2" * 16)
    assert dict(link.attributes or {}) == {"why": "replay"}
    assert got.instrumentation_scope is not None
    assert (got.instrumentation_scope.name, got.instrumentation_scope.schema_url) == (sc.SCOPE_NAME, sc.SCHEMA_URL)


def test_any_value_is_taken_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """SDKs differ in which values they take; a lone surrogate could cost the whole batch."""
    made, memory = provider()
    sink = SdkSink(made)
    one = span(
        1,
        none=None,
        wide=2**70,
        bad="a\ud83d",
        map={"b": 1, "a": None},
        mixed=[1, "a"],
        empty=[],
        texts=["a\ud83d"],
        numbers=[1, 2],
        huge=[2**70],
        data=b"\x00",
        other=object,
    )
    one.name = "lone \ud83d"
    sink.started(one)
    end(sink, one)
    (got,) = finished(memory).values()
    values = dict(got.attributes or {})
    assert got.name == "lone \ufffd"
    assert "none" not in values
    assert (values["wide"], values["bad"], values["texts"]) == (str(2**70), "a\ufffd", ("a\ufffd",))
    assert (values["map"], values["mixed"], values["empty"]) == ('{"a":null,"b":1}', '[1,"a"]', "[]")
    assert (values["numbers"], values["huge"]) == ((1, 2), f"[{2**70}]")
    assert isinstance(values["data"], str)
    assert isinstance(values["other"], str)
    assert caplog.records == []


def test_processors_see_the_start_of_a_span_when_it_starts() -> None:
    """A processor that shows running spans, or adds baggage, works as for the application's own spans."""
    seen: list[str] = []

    class Watch(SpanProcessor):
        def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
            seen.append(f"start {span.name}")
            span.set_attribute("team", "x")

        def on_end(self, span: ReadableSpan) -> None:
            seen.append(f"end {span.name} {dict(span.attributes or {})}")

    made, _ = provider()
    made.add_span_processor(Watch())
    sink = SdkSink(made)
    one = span(1)
    sink.started(one)
    assert seen == ["start step 1"]
    end(sink, one)
    assert seen[1:] == ["end step 1 {'n': 1, 'team': 'x'}"]


def test_the_providers_sampler_decides_for_whole_traces() -> None:
    made, memory = provider(ParentBased(TraceIdRatioBased(0.5)))
    sink = SdkSink(made)
    for number in range(40):
        trace_id = f"{number % 2:016x}{number % 2 * (2**64 - 1):016x}"
        root, child = span(2 * number + 1, trace_id=trace_id), span(2 * number + 2, 2 * number + 1, trace_id)
        sink.started(root)
        sink.started(child)
        end(sink, child)
        end(sink, root)
    assert set(finished(memory)) == {n for number in range(0, 40, 2) for n in (2 * number + 1, 2 * number + 2)}


def test_a_run_inside_an_unsampled_span_of_the_caller_is_not_sampled() -> None:
    made, memory = provider(ParentBased(ALWAYS_OFF))
    sink = SdkSink(made)
    with made.get_tracer("app").start_as_current_span("request") as outer:
        context = outer.get_span_context()
        inner = span(5, context.span_id, f"{context.trace_id:032x}")
        sink.started(inner)
        end(sink, inner)
    assert finished(memory) == {}


def test_a_run_inside_a_span_of_the_caller_is_its_child_and_the_callers_other_spans_keep_their_ids() -> None:
    made, memory = provider()
    sinks = (SdkSink(made), SdkSink(made))
    with made.get_tracer("app").start_as_current_span("request") as outer:
        context = outer.get_span_context()
        for number, sink in enumerate(sinks, 5):
            inner = span(number, context.span_id, f"{context.trace_id:032x}")
            sink.started(inner)
            end(sink, inner)
        with made.get_tracer(sc.SCOPE_NAME, schema_url=sc.SCHEMA_URL).start_as_current_span("own") as own:
            own_id = own.get_span_context().span_id
    spans = finished(memory)
    assert set(spans) == {context.span_id, 5, 6, own_id}
    assert own_id > 0xFFFF
    assert spans[5].parent is not None
    assert spans[5].parent.span_id == context.span_id


def test_an_unknown_parent_is_kept() -> None:
    made, memory = provider()
    sink = SdkSink(made)
    one = span(2, parent=77)
    sink.started(one)
    end(sink, one)
    parent = finished(memory)[2].parent
    assert parent is not None
    assert (parent.span_id, f"{parent.trace_id:032x}") == (77, TRACE)


def test_a_disabled_sdk_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    made, memory = provider()
    sink = SdkSink(made)
    one = span(1)
    sink.started(one)
    end(sink, one)
    assert finished(memory) == {}


# --- metrics ---------------------------------------------------------------------------------------------------------


def measured(*spans: tuple[Span, dict[str, Any]]) -> dict[str, list[tuple[dict[str, Any], int, float]]]:
    """Histograms by name: labels, count and sum of each series."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    sink = MetricsSink(meters)
    for one, attributes in spans:
        sink.started(one)
        end(sink, one, **attributes)
    sink.close()
    data = reader.get_metrics_data()
    assert data is not None
    out: dict[str, list[tuple[dict[str, Any], int, float]]] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            out.setdefault(metric.name, []).append(
                (dict(point.attributes or {}), getattr(point, "count", -1), getattr(point, "sum", -1))
            )
    return out


def test_a_run_is_measured_as_the_genai_conventions_name_it() -> None:
    run: dict[str, Any] = {sc.OPERATION: sc.INVOKE_AGENT, sc.AGENT_NAME: "ops", sc.PROVIDER: "openai", sc.RUN_ID: "r1"}
    chat: dict[str, Any] = {sc.OPERATION: sc.CHAT, sc.PROVIDER: "openai", sc.REQUEST_MODEL: "m"}
    step: dict[str, Any] = {sc.OPERATION: sc.STEP}
    tool: dict[str, Any] = {sc.OPERATION: sc.EXECUTE_TOOL, sc.TOOL_NAME: "search", sc.TOOL_ARGUMENTS: "{}"}
    got = measured(
        (span(1, **chat), {sc.INPUT_TOKENS: 100, sc.OUTPUT_TOKENS: 7}),
        (span(2, **chat), {sc.ERROR_TYPE: "server"}),
        (span(3, **tool), {sc.OUTCOME: "ok"}),
        (span(4, **step), {}),
        (span(5, **run), {sc.MODEL_CALLS: 2, sc.TOOL_CALLS: 1, sc.STOP_REASON: "finish"}),
    )
    model = {k: chat[k] for k in (sc.OPERATION, sc.PROVIDER, sc.REQUEST_MODEL)}
    agent = {**{k: run[k] for k in (sc.OPERATION, sc.PROVIDER, sc.AGENT_NAME)}, sc.STOP_REASON: "finish"}
    assert got == {
        "gen_ai.client.token.usage": [
            ({**model, "gen_ai.token.type": "input"}, 1, 100),
            ({**model, "gen_ai.token.type": "output"}, 1, 7),
        ],
        "gen_ai.client.operation.duration": [(model, 1, 1.5), ({**model, sc.ERROR_TYPE: "server"}, 1, 1.5)],
        "gen_ai.execute_tool.duration": [({sc.OPERATION: sc.EXECUTE_TOOL, sc.TOOL_NAME: "search"}, 1, 1.5)],
        "gen_ai.invoke_agent.duration": [(agent, 1, 1.5)],
        "gen_ai.invoke_agent.inference_calls": [(agent, 1, 2)],
        "gen_ai.invoke_agent.tool_calls": [(agent, 1, 1)],
    }


def test_without_a_meter_provider_nothing_is_measured_and_nothing_fails() -> None:
    sink = MetricsSink()
    chat: dict[str, Any] = {sc.OPERATION: sc.CHAT, sc.INPUT_TOKENS: 1}
    end(sink, span(1, **chat))


def test_kinds_of_spans_are_those_of_otlp() -> None:
    assert (trace.SpanKind.INTERNAL.value + 1, trace.SpanKind.CLIENT.value + 1) == (INTERNAL, CLIENT)
