"""Spans are what others write: valid by protobuf, and equal to those of the official GenAI utility package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from kernel import Budget, ModelParams, Reply, ToolCall, Tracing, Usage
from kernel.export.sink import Limits, OtlpSink
from kernel.trace import semconv as sc
from kernel.trace.otlp_json import decode_span
from kernel.trace.span import Span
from tests.e2e.otlp_server import OtlpServer, _parse
from tests.helpers import play, registry

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("*.trace.json"))
ANSWER = Reply(
    text="It is order.",
    reasoning="The logs say so.",
    finish_reason="stop",
    model="served-1",
    response_id="resp-2",
    usage=Usage(input_tokens=30, output_tokens=5, cache_read_tokens=20),
)
ASKED = Reply(
    text="I look.",
    tool_calls=(ToolCall(id="call_1", name="look", arguments='{"at":"order","lines":[1,2.5,true,null,"é"]}'),),
    finish_reason="tool_calls",
    model="served-1",
    response_id="resp-1",
    usage=Usage(input_tokens=20, output_tokens=7),
)
PARAMS = ModelParams(model="asked-1", temperature=0.5, top_p=0.9, seed=7, stop=("END",), max_output_tokens=100)


def look(at: str, lines: list[Any]) -> dict[str, Any]:
    """Look at a service."""
    return {"at": at, "errors": 3, "ratio": 0.5}


def recorded(tmp_path: Path, *sinks: Any) -> list[Span]:
    """Spans of a run with a tool call and a final answer, from its trace file."""
    path = tmp_path / "run.trace.json"
    tracing = Tracing(file=path, sinks=sinks, join=False)
    tools = registry(look)
    play([ASKED, ANSWER], tools, protocol="tools", params=PARAMS, system="Be brief.", name="ops", trace=tracing)
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    return [decode_span(json.dumps(span)) for span in document["scopeSpans"][0]["spans"]]


def operation(spans: list[Span], name: str) -> list[Span]:
    return sorted((s for s in spans if s.attributes.get(sc.OPERATION) == name), key=lambda s: s.start_ns)


# ---- protobuf


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_what_is_sent_is_valid_and_complete_protobuf(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver parses each request by opentelemetry-proto; every field of the trace file is in the message."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with OtlpServer() as server:
        sink = OtlpSink(server.url, spool=tmp_path / "spool", limits=Limits(delay_s=0.01))
        spans = {span.span_id: span for span in recorded(tmp_path, sink)}
        assert sink.flush(10).waiting == 0
        assert server.faults == []
        assert server.span_ids == dict.fromkeys(spans, 1)
        for message in server.spans:
            span = spans[message.span_id.hex()]
            assert message.trace_id.hex() == span.trace_id
            assert message.parent_span_id.hex() == (span.parent_id or "")
            assert (message.name, message.kind) == (span.name, span.kind)
            assert (message.start_time_unix_nano, message.end_time_unix_nano) == (span.start_ns, span.end_ns)
            assert message.status.code == span.status
            assert {pair.key: plain(pair.value) for pair in message.attributes} == span.attributes
            assert len(message.events) == len(span.events)


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name.removesuffix(".trace.json"))
def test_trace_files_are_valid_by_the_json_rules_of_protobuf(path: Path) -> None:
    request = _parse(path.read_bytes(), "application/json")
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    (group,) = request.resource_spans
    assert len(group.scope_spans[0].spans) == len(document["scopeSpans"][0]["spans"]) > 0
    for span in group.scope_spans[0].spans:
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)


# ---- the official utility package


class Official:
    """Spans that the package makes of the same data."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("opentelemetry.util.genai", reason="opentelemetry-util-genai is not installed")
        from opentelemetry.util.genai import types
        from opentelemetry.util.genai.handler import TelemetryHandler

        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
        self.types: Any = types
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.handler: Any = TelemetryHandler(tracer_provider=provider)

    def span(self) -> ReadableSpan:
        (span,) = self._exporter.get_finished_spans()
        return span

    def part(self, part: dict[str, Any]) -> Any:
        """A part of one of our messages as the package's class for it; a field it does not know is an error."""
        kinds = {
            "text": self.types.TextPart,
            "reasoning": self.types.ReasoningPart,
            "tool_call": self.types.ToolCallRequestPart,
            "tool_call_response": self.types.ToolCallResponsePart,
        }
        return kinds[part["type"]](**{key: value for key, value in part.items() if key != "type"})

    def messages(self, text: str, kind: Any) -> list[Any]:
        return [
            kind(**{**message, "parts": [self.part(part) for part in message["parts"]]}) for message in json.loads(text)
        ]


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> Official:
    return Official(monkeypatch)


def without_nulls(value: Any) -> Any:
    """The package writes absent fields as null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def normal(key: str, value: Any) -> Any:
    """An attribute's value: JSON parsed, so that spelling does not count, sequences as lists."""
    if isinstance(value, str) and value[:1] in "[{":
        return without_nulls(json.loads(value))
    return list(value) if isinstance(value, tuple) else value


def assert_agrees(ours: Span, theirs: ReadableSpan, *, lacking: frozenset[str] = frozenset()) -> None:
    """Name, kind, and every attribute of theirs but `lacking`, equal in ours."""
    assert ours.name == theirs.name
    assert ours.kind == {SpanKind.CLIENT: 3, SpanKind.INTERNAL: 1}[theirs.kind]
    wanted = {key: normal(key, value) for key, value in (theirs.attributes or {}).items() if key not in lacking}
    assert {key: normal(key, ours.attributes.get(key)) for key in wanted} == wanted
    assert len(wanted) > 4


def test_a_chat_span_agrees_with_the_package(official: Official, tmp_path: Path) -> None:
    ours = operation(recorded(tmp_path), sc.CHAT)[1]
    with official.handler.inference("scripted", request_model="asked-1") as chat:
        chat.input_messages = (
            official.messages(ours.attributes[sc.INPUT_MESSAGES], official.types.InputMessage)
            if (sc.INPUT_MESSAGES in ours.attributes)
            else []
        )
        chat.output_messages = official.messages(ours.attributes[sc.OUTPUT_MESSAGES], official.types.OutputMessage)
        chat.response_model_name, chat.response_id, chat.finish_reasons = "served-1", "resp-2", ["stop"]
        chat.input_tokens, chat.output_tokens, chat.cache_read_input_tokens = 30, 5, 20
    assert_agrees(ours, official.span())


def test_a_chat_span_with_a_tool_call_agrees_with_the_package(official: Official, tmp_path: Path) -> None:
    ours = operation(recorded(tmp_path), sc.CHAT)[0]
    with official.handler.inference("scripted", request_model="asked-1") as chat:
        chat.input_messages = official.messages(ours.attributes[sc.INPUT_MESSAGES], official.types.InputMessage)
        chat.output_messages = official.messages(ours.attributes[sc.OUTPUT_MESSAGES], official.types.OutputMessage)
        chat.response_model_name, chat.response_id, chat.finish_reasons = "served-1", "resp-1", ["tool_calls"]
        chat.input_tokens, chat.output_tokens = 20, 7
    theirs = official.span()
    assert_agrees(ours, theirs)
    (message,) = json.loads(str((theirs.attributes or {})[sc.OUTPUT_MESSAGES]))
    assert message["parts"][1]["arguments"] == json.loads(ASKED.tool_calls[0].arguments)


def test_a_tool_span_agrees_with_the_package(official: Official, tmp_path: Path) -> None:
    (ours,) = operation(recorded(tmp_path), sc.EXECUTE_TOOL)
    with official.handler.tool("look") as call:
        call.tool_call_id = "call_1"
        call.arguments = json.loads(ASKED.tool_calls[0].arguments)
        call.tool_result = {"at": "order", "errors": 3, "ratio": 0.5}
    assert_agrees(ours, official.span())


def test_an_agent_span_agrees_with_the_package(official: Official, tmp_path: Path) -> None:
    (ours,) = operation(recorded(tmp_path), sc.INVOKE_AGENT)
    with official.handler.invoke_local_agent(request_model="asked-1", agent_name="ops") as agent:
        agent.temperature, agent.top_p, agent.seed = 0.5, 0.9, 7
        agent.stop_sequences, agent.max_tokens = ["END"], 100
        agent.input_messages = official.messages(ours.attributes[sc.INPUT_MESSAGES], official.types.InputMessage)
        agent.output_messages = official.messages(ours.attributes[sc.OUTPUT_MESSAGES], official.types.OutputMessage)
        agent.system_instruction = [official.types.TextPart(content="Be brief.")]
        agent.input_tokens, agent.output_tokens = 50, 12
        agent.tool_definitions = [
            official.types.FunctionToolDefinition(
                name=tool["name"], description=tool["description"], parameters=tool["parameters"]
            )
            for tool in json.loads(ours.attributes[sc.TOOL_DEFINITIONS])
        ]
    theirs = official.span()
    assert_agrees(ours, theirs, lacking=frozenset({sc.TOOL_DEFINITIONS}))
    tools = [json.loads(str(where[sc.TOOL_DEFINITIONS])) for where in (ours.attributes, theirs.attributes or {})]
    for tool in tools[0]:
        tool.pop("tracefirst", None)  # what dispatch needs besides
    assert tools[0] == tools[1]


def test_a_failed_tool_has_the_error_type_of_the_package(official: Official, tmp_path: Path) -> None:
    def fail() -> str:
        """Fail."""
        raise ConnectionError("no route")

    path = tmp_path / "run.trace.json"
    script = [Reply(tool_calls=(ToolCall(id="c", name="fail", arguments="{}"),)), "done"]
    play(script, registry(fail), protocol="tools", budget=Budget(), trace=Tracing(file=path, join=False))
    (document,) = json.loads(path.read_bytes())["resourceSpans"]
    spans = [decode_span(json.dumps(span)) for span in document["scopeSpans"][0]["spans"]]
    (ours,) = operation(spans, sc.EXECUTE_TOOL)
    with pytest.raises(ConnectionError), official.handler.tool("fail"):
        raise ConnectionError("no route")
    theirs = official.span()
    assert ours.attributes[sc.ERROR_TYPE] == (theirs.attributes or {})[sc.ERROR_TYPE] == "ConnectionError"
    assert ours.status == 2 == theirs.status.status_code.value
