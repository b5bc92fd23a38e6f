"""The recorder: spans start and end once, telemetry never reaches the run, the caller's trace is joined."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, ConfigError, Reply, ScriptedModel, ToolRegistry, Tracing
from kernel.ambient import outgoing_headers
from kernel.trace import semconv as sc
from kernel.trace.span import CLIENT, ERROR, INTERNAL, Event, Span
from replay.loading import load
from replay.play.play import replay
from tests.helpers import act, calls, counting, finish, play


class Kept:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.spans: dict[str, Span] = {}

    def started(self, span: Span) -> None:
        self.told.append(("start", span.name))
        self.spans[span.span_id] = span

    def event(self, span: Span, event: Event) -> None:
        self.told.append(("event", event.name))

    def ended(self, span: Span) -> None:
        self.told.append(("end", span.name))

    def close(self) -> None:
        self.told.append(("close", ""))


class Failing(Kept):
    """A sink that fails at one kind of report."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def __getattribute__(self, name: str) -> Any:
        if name in ("started", "event", "ended", "close") and name == object.__getattribute__(self, "_at"):
            raise OSError(28, "No space left on device")
        return object.__getattribute__(self, name)


def tools() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    def look(q: str) -> str:
        if q == "bad":
            raise ValueError(q)
        return q

    return registry


SCRIPT = [act("look", q="a"), act("look", q="bad"), finish("x")]


def test_spans_nest_as_the_run_does_and_their_names_are_few() -> None:
    kept = Kept()
    play(SCRIPT, tools(), name="ops", trace=Tracing(sinks=[kept], join=False), **counting())
    step = [("start", "step"), ("start", "chat scripted-model"), ("end", "chat scripted-model")]
    tool = [("start", "execute_tool look"), ("end", "execute_tool look")]
    wanted = [
        ("start", "invoke_agent ops"),
        *step,
        *tool,
        ("end", "step"),
        *step,
        *tool,
        ("end", "step"),
        *step,
        ("end", "step"),
    ]
    assert kept.told == [*wanted, ("end", "invoke_agent ops"), ("close", "")]
    spans = list(kept.spans.values())
    root = spans[0]
    parents = {span.span_id: span.name for span in spans}
    assert [parents.get(span.parent_id or "") for span in spans[:4]] == [None, "invoke_agent ops", "step", "step"]
    assert {span.kind for span in spans if span.name.startswith("chat")} == {CLIENT} and root.kind == INTERNAL
    assert [span.status for span in spans if span.name.startswith("execute")] == [0, ERROR]
    assert all(span.end_ns is not None and span.end_ns > span.start_ns for span in spans)


@pytest.mark.parametrize("at", ["started", "ended", "close"])
def test_a_failing_sink_neither_stops_the_run_nor_the_other_sinks(at: str, tmp_path: Path) -> None:
    path, kept = tmp_path / "t.trace.json", Kept()
    result = play(SCRIPT, tools(), trace=Tracing(file=path, sinks=[Failing(at), kept], join=False)).result
    assert result.ok and result.answer == "x"
    assert any("No space left on device" in warning for warning in result.warnings)
    assert kept.told[-1] == ("close", "") and load(path)[0].runs[0].problems == ()


def test_without_tracing_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACEFIRST_TRACES", raising=False)
    result = play(SCRIPT, tools(), trace=None).result
    assert result.trace_path is None and list(tmp_path.iterdir()) == []


def test_a_folder_gets_a_file_a_day_and_run(tmp_path: Path) -> None:
    result = play(SCRIPT, tools(), name="an agent/with odd: name", trace=tmp_path, **counting()).result
    assert result.trace_path is not None and result.trace_path.exists()
    assert (
        str(result.trace_path.relative_to(tmp_path))
        == f"2026-01-01/an-agent-with-odd-name-{result.trace_id}.trace.json"
    )


def test_a_file_that_cannot_be_made_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = ScriptedModel(SCRIPT)
    with pytest.raises(ConfigError, match="cannot be created"):
        asyncio.run(Agent(tools=tools()).run("x", llm=model, trace=tmp_path / "file" / "t.trace.json"))
    assert model.requests == []


def test_the_turns_of_a_conversation_share_one_trace_under_one_span(tmp_path: Path) -> None:
    path = tmp_path / "chat.trace.json"

    async def main() -> list[str]:
        model = ScriptedModel([calls(("look", {"q": "a"})), "one", "two"], protocol="tools")
        async with Agent(tools=tools()).conversation(llm=model, trace=path, conversation_id="c-1") as chat:
            return [(await chat.send("first")).trace_id, (await chat.send("second")).trace_id]

    one, two = asyncio.run(main())
    [recording] = load(path)
    assert one == two == recording.trace_id and recording.conversation is not None
    assert [(r.run.head.turn, r.run.head.conversation_id, r.problems) for r in recording.runs] == [
        (1, "c-1", ()),
        (2, "c-1", ()),
    ]


def test_a_conversation_goes_on_after_a_cancelled_turn_and_replays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "chat.trace.json"

    async def main() -> str | None:
        here = asyncio.Event()

        class Hangs(ScriptedModel):
            async def complete(self, request: Any) -> Reply:
                if len(self.requests) == 1 and not here.is_set():
                    here.set()
                    await asyncio.Event().wait()
                return await super().complete(request)

        model = Hangs([calls(("look", {"q": "a"})), "two"], protocol="tools")
        async with Agent(tools=tools()).conversation(llm=model, trace=path) as chat:
            first = asyncio.ensure_future(chat.send("first"))
            await here.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            return (await chat.send("second")).answer

    assert asyncio.run(main()) == "two"
    [recording] = load(path)
    stops = [r.run.end.stop_reason for r in recording.runs if r.run.end is not None]
    assert stops == ["cancelled", "finish"] and [r.problems for r in recording.runs] == [(), ()]
    assert replay(recording).verdict == "same"


def test_a_run_joins_the_callers_trace_and_its_tools_see_their_own_span(tmp_path: Path) -> None:
    from opentelemetry import trace as otel
    from opentelemetry.sdk.trace import TracerProvider

    seen: list[tuple[str, str]] = []
    registry, kept = ToolRegistry(), Kept()

    @registry.tool
    def look() -> str:
        context = otel.get_current_span().get_span_context()
        seen.append((f"{context.trace_id:032x}", f"{context.span_id:016x}"))
        assert outgoing_headers.get()["traceparent"] == f"00-{seen[-1][0]}-{seen[-1][1]}-01"
        return "x"

    tracer = TracerProvider().get_tracer("caller")
    with tracer.start_as_current_span("request") as caller:
        result = play([act("look"), finish("x")], registry, trace=Tracing(sinks=[kept])).result
        assert otel.get_current_span() is caller
    context = caller.get_span_context()
    spans = list(kept.spans.values())
    assert result.trace_id == f"{context.trace_id:032x}" and spans[0].parent_id == f"{context.span_id:016x}"
    [tool] = [span for span in spans if span.name == "execute_tool look"]
    assert seen == [(tool.trace_id, tool.span_id)]
    assert outgoing_headers.get() == {}


def test_a_long_tool_name_of_the_models_own_does_not_become_a_long_span_name() -> None:
    kept = Kept()
    play([act("n" * 5000), finish("x")], tools(), trace=Tracing(sinks=[kept], join=False))
    assert max(len(span.name) for span in kept.spans.values()) < 150
    assert any(len(span.attributes.get(sc.TOOL_NAME, "")) == 5000 for span in kept.spans.values())
