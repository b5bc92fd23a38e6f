"""What holds for every run, whatever the model says and the tools do: random scripts against the whole kernel."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import enum
import os
import re
import tempfile
import threading
import types
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fixtures.record import CountingClock, CountingIds
from kernel import (
    Agent,
    Budget,
    ContextLimits,
    FinishContext,
    Guard,
    MemoryLedger,
    Message,
    ModelError,
    Policy,
    Price,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    Tracing,
    Usage,
)
from kernel.record.run import Run
from kernel.trace.journal import JOURNAL_SUFFIX
from kernel.trace.span import Event, Span
from replay.loading import load
from replay.play.play import replay
from tests.helpers import act, finish

MANY = int(os.environ.get("TRACEFIRST_SOAK", "0"))
wild = settings(max_examples=MANY or 60, deadline=None, suppress_health_check=list(HealthCheck))


class Unfriendly(BaseException):
    """Not an `Exception`, and not for the kernel to stop at."""


def toolbox() -> ToolRegistry:
    """Tools that answer, fail, hang, cancel themselves and change things."""
    tools = ToolRegistry()

    @tools.tool
    def look(q: str, n: int = 1) -> list[str]:
        return [q] * n

    @tools.register(timeout=0.02)
    async def hang() -> None:
        await asyncio.Event().wait()

    @tools.tool
    async def wait(turns: int = 1) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        return f"{turns} turns"

    @tools.tool
    def fail(kind: str = "value") -> str:
        raise {"value": ValueError(), "base": Unfriendly("no"), "key": KeyError("k")}.get(kind, OSError(5, kind))

    @tools.tool
    async def cancel_me() -> str:
        raise asyncio.CancelledError("from inside")

    @tools.register(side_effect=True)
    def write(x: int) -> dict[str, int]:
        return {"written": x}

    @tools.register(side_effect=True, idempotency="position", max_calls=2)
    async def send(text: str) -> str:
        return f"sent {text}"

    @tools.tool
    def big() -> str:
        return "0123456789" * 60

    @tools.register(volatile=True)
    def poll() -> str:
        return "still running"

    return tools


NAMES = ["look", "hang", "wait", "fail", "cancel_me", "write", "send", "big", "poll", "lok", "read_range", "finish"]
ARGS: list[dict[str, Any]] = [
    {},
    {"q": "a"},
    {"q": "a", "n": 2},
    {"q": "a", "n": "2"},
    {"turns": 3},
    {"kind": "base"},
    {"kind": "key"},
    {"x": 1},
    {"x": "1"},
    {"text": "hi"},
    {"handle": "artifact-1", "start": 5, "length": 9},
    {"answer": "done"},
    {"answer": " "},
]
names, arguments = st.sampled_from(NAMES), st.sampled_from(ARGS)
usages = st.sampled_from(
    [Usage(), Usage(input_tokens=40, output_tokens=9), Usage(input_tokens=900, cache_read_tokens=880)]
)
actions = st.builds(lambda name, args: act(name, **args), names, arguments)
pieces = st.one_of(
    actions,
    actions,
    actions,
    st.sampled_from(
        [finish("done"), finish(""), "I think so.", "", "   ", '{"action": "look", "args": {"q": "a"', "\ud83d", "{}"]
    ),
    st.tuples(actions, actions).map("\nObservation: made up\n".join),
)
reasons = st.sampled_from(["stop", "stop", "stop", "length", "content_filter", None, "tool_calls", "error"])
text_replies = st.builds(
    lambda text, reason, usage: Reply(text=text, finish_reason=reason, usage=usage), pieces, reasons, usages
)
raw_arguments = arguments.map(lambda a: msgspec.json.encode(a).decode()) | st.sampled_from(
    ["", "{", "[]", "null", '{"q": "a",}', '{"q":"\\ud83d"}', '{"x": 1} {"x": 2}']
)
structured = st.lists(
    st.builds(ToolCall, name=names, arguments=raw_arguments, id=st.sampled_from(["", "a", "b"])), min_size=1, max_size=4
)
call_replies = st.builds(
    lambda made, text, usage: Reply(tool_calls=tuple(made), text=text, finish_reason="tool_calls", usage=usage),
    structured,
    st.sampled_from(["", "let me see"]),
    usages,
)
failures = st.sampled_from(
    [
        ModelError("503", kind="server", status=503),
        ModelError("slow down", kind="rate_limited", status=429, retry_after_s=1.0),
        ModelError("days", kind="rate_limited", status=429, retry_after_s=86400.0),
        ModelError("bad key", kind="auth", status=401, retryable=False),
        RuntimeError("bug in the client"),
    ]
)
scripts = st.one_of(
    st.tuples(
        st.just("text"), st.lists(st.one_of(text_replies, text_replies, text_replies, failures), min_size=1, max_size=9)
    ),
    st.tuples(
        st.just("tools"),
        st.lists(st.one_of(call_replies, call_replies, text_replies, failures), min_size=1, max_size=9),
    ),
)


def refuse_some(answer: str, context: FinishContext) -> str | None:
    """Accepts every third answer; fails itself at the second."""
    if context.attempt == 2:
        raise LookupError("the check itself")
    return None if context.attempt == 3 else f"attempt {context.attempt}"


@st.composite
def agents(draw: st.DrawFn) -> Agent:
    cost = draw(st.sampled_from([None, None, 0.0001, 1.0]))
    return Agent(
        name="wild",
        system="be wild",
        tools=toolbox(),
        budget=Budget(
            max_steps=draw(st.sampled_from([1, 3, 12])),
            max_prompt_tokens=draw(st.sampled_from([None, None, 700, 3000])),
            max_cost_usd=cost,
            timeout_s=draw(st.sampled_from([None, None, 0.05, 60.0])),
            max_errors=draw(st.sampled_from([1, 3, 9])),
            max_finish_refusals=draw(st.sampled_from([1, 3])),
            model_retries=draw(st.sampled_from([0, 2])),
        ),
        guard=Guard(
            enabled=draw(st.booleans()),
            window=draw(st.sampled_from([1, 8])),
            max_warnings=draw(st.sampled_from([1, 3])),
        ),
        policy=draw(st.sampled_from([Policy(), Policy(mode="read_only"), Policy(mode="allowlist", allow=("write",))])),
        context=ContextLimits(
            max_observation_chars=draw(st.sampled_from([200, 8000])),
            window_tokens=draw(st.sampled_from([None, 1500])),
            keep_steps=draw(st.sampled_from([1, 2])),
        ),
        finish_check=draw(st.sampled_from([None, refuse_some])),
        require_finish=draw(st.booleans()),
        prices={"scripted-model": Price(input_usd=1.0, output_usd=4.0)} if cost is not None else None,
        language=draw(st.sampled_from(["en", "zh"])),
        ledger=draw(st.sampled_from([None, MemoryLedger])) and MemoryLedger(),
        confirm=draw(st.sampled_from([None, lambda name, args: True, lambda name, args: name == "write"])),
    )


class Watch:
    """A sink that counts open spans, and keeps the journal's bytes as they are when the run has ended."""

    def __init__(self, path: Path) -> None:
        self._journal = path.with_name(path.name.removesuffix(".trace.json") + JOURNAL_SUFFIX)
        self.open: list[str] = []
        self.ended_twice: list[str] = []
        self.journal = b""

    def started(self, span: Span) -> None:
        self.open.append(span.span_id)

    def event(self, span: Span, event: Event) -> None: ...

    def ended(self, span: Span) -> None:
        if span.span_id in self.open:
            self.open.remove(span.span_id)
        else:
            self.ended_twice.append(span.span_id)
        if span.parent_id is None:
            self.journal = self._journal.read_bytes()

    def close(self) -> None: ...


async def watched(agent: Agent, model: ScriptedModel, path: Path) -> tuple[RunResult, Watch]:
    """Run with a trace file; nothing of the run may be alive after it."""
    watch, threads, tasks = Watch(path), set(threading.enumerate()), asyncio.all_tasks()
    tracing = Tracing(file=path, join=False, sinks=[watch])
    result = await agent.run("task", llm=model, trace=tracing, clock=CountingClock(), ids=CountingIds("wild"))
    assert asyncio.all_tasks() <= tasks
    assert set(threading.enumerate()) <= threads
    assert (watch.open, watch.ended_twice) == ([], [])
    return result, watch


def assert_protocol_is_kept(messages: Sequence[Message]) -> None:
    """What function-calling servers demand: each assistant call is followed by exactly its results, in order."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert waiting and message.tool_call_id == waiting.pop(0)
            continue
        assert waiting == [], f"no result of {waiting} before a message of the {message.role}"
        assert message.content.strip() or message.tool_calls, "blank messages are refused by some servers"
        waiting = [call.id for call in message.tool_calls]
        assert len(set(waiting)) == len(waiting) and "" not in waiting
    assert waiting == []


def assert_steps_are_whole(result: RunResult, budget: Budget) -> None:
    assert len(result.steps) <= budget.max_steps
    assert [step.index for step in result.steps] == [*range(1, len(result.steps) + 1)]
    for step in result.steps:
        if step.decision is not None:
            assert [record.call for record in step.calls] == list(step.decision.calls)


def assert_an_answer_is_one(result: RunResult) -> None:
    assert result.ok == (result.stop_reason == "finish") == (result.answer is not None)
    if result.ok:
        last = result.steps[-1]
        assert result.answer is not None and result.answer.strip()
        assert last.refusal is None and last.decision is not None and last.decision.kind == "finish"
    else:
        assert result.detail


def assert_the_budget_was_kept(result: RunResult, budget: Budget, estimates: Sequence[int]) -> None:
    """Spent before the last call, plus what was reserved for it, is within the budget."""
    if budget.max_prompt_tokens is None or not result.steps:
        return
    spent = [step.budget.prompt_tokens for step in result.steps if step.budget is not None]
    before = spent[-2] if len(spent) > 1 else 0
    assert before <= budget.max_prompt_tokens


def content(run: Run) -> tuple[Any, ...]:
    """A run without its identity and times."""
    return run.head, run.steps, run.end


@wild
@given(agents(), scripts)
def test_every_run_ends_whole_and_its_recording_replays_the_same(agent: Agent, script: tuple[Any, list[Any]]) -> None:
    protocol, replies = script
    model = ScriptedModel(replies, protocol=protocol)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wild.trace.json")
        result, watch = asyncio.run(watched(agent, model, path))
        assert os.listdir(folder) == [path.name]
        [recording] = load(path)
        assert_journal_prefixes(watch.journal, recording.runs[0].run, Path(folder))
    for request in model.requests:
        assert_protocol_is_kept(list(request.messages))
    assert_steps_are_whole(result, agent.budget)
    assert_an_answer_is_one(result)
    assert_the_budget_was_kept(result, agent.budget, [])
    [recorded] = recording.runs
    assert recorded.problems == () and result.warnings == ()
    assert content(recorded.run) == content(result.run)
    played = replay(recording)
    assert played.divergences == ()
    assert (played.unused.model, played.unused.tools) == (0, 0)
    if model.requests:
        assert (played.verdict, played.complete) == ("same", True)


def assert_journal_prefixes(journal: bytes, whole: Run, folder: Path) -> None:
    """Cut at the end of any line and inside some: what is left is a prefix of the steps, and marked as cut short."""
    path = folder / f"cut{JOURNAL_SUFFIX}"
    ends = [i + 1 for i, byte in enumerate(journal) if byte == 10]
    for cut in [*ends[1:-1], *(end + 9 for end in ends[1:-1]), *(end - 1 for end in ends[2:-1])]:
        path.write_bytes(journal[:cut])
        [recording] = load(path)
        [recorded] = recording.runs
        run = recorded.run
        finished = [step for step in run.steps if step.budget is not None]
        assert finished == list(whole.steps[: len(finished)])
        assert len(run.steps) - len(finished) <= 1
        played = replay(recording)
        assert run.end is None and not played.complete and played.divergences == ()
    path.unlink(missing_ok=True)


# ---- cancelled anywhere


@wild
@given(agents(), scripts, st.integers(0, 60))
def test_a_run_cancelled_at_any_turn_leaves_nothing_behind(
    agent: Agent, script: tuple[Any, list[Any]], turns: int
) -> None:
    """The cancellation reaches the caller, every span is ended, and the trace says `cancelled` and replays as far."""
    protocol, replies = script

    async def main(path: Path) -> bool:
        model = _Yielding(replies, protocol=protocol)
        running = asyncio.ensure_future(watched(agent, model, path))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return True
        return False

    threads = set(threading.enumerate())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cancelled.trace.json")
        cancelled = asyncio.run(main(path))
        assert set(threading.enumerate()) <= threads
        if not path.exists():
            assert cancelled and os.listdir(folder) == []
            return
        [recording] = load(path)
        [recorded] = recording.runs
        assert recorded.problems == ()
        assert recorded.run.mark.end_ns is not None
        assert all(m.end_ns is not None for marks in recorded.run.marks for m in (marks.step, *marks.calls))
        assert recorded.run.end is not None
        assert (recorded.run.end.stop_reason == "cancelled") == cancelled
        assert replay(recording).divergences == ()


class _Yielding(ScriptedModel):
    """Answers after a few turns of the loop, so that a run can be cancelled while it waits."""

    async def complete(self, request: Any) -> Reply:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().complete(request)


# ---- any Python value


class Hostile:
    """Every question about it fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __len__ = __iter__ = __bool__ = __eq__ = __repr__  # type: ignore[assignment]

    def __hash__(self) -> int:
        return 7


class Unreachable:
    """It has no attribute, not even its class."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def _cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Pair(NamedTuple):
    a: int
    b: bytes


class Subtext(str):
    def __str__(self) -> str:
        raise RuntimeError


VALUES: list[Any] = [
    None, b"\xff\x00", float("nan"), float("-inf"), 2**70, -(10**5000), 1e308 * 10, "\ud83d", "\ud83d\ude00", "\x00\x1b[31m",
    Decimal("1.50"), Decimal("sNaN"), {1, 2}, frozenset({"b", "a"}), {1: "int", "1": "text"}, {None: 1, (1, 2): 2, b"k": 3},
    ValueError("v"), ExceptionGroup("g", [KeyError("k")]), object(), Hostile(), [Hostile()], Unreachable(), {"x": Hostile()}, Subtext("s"),
    _cyclic(), _deep(), range(3), (i for i in range(2)), iter([]), memoryview(b"m"), bytearray(b"b"), Ellipsis, NotImplemented,
    int, len, asyncio, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta.max, dt.date.min, dt.time(1), UUID(int=1),
    PurePosixPath("a/\udcff"), Usage(input_tokens=1), Colour.RED, Point(1, float("nan")), Pair(1, b"x"), complex(1, 2),
    {"gen_ai.tool.name": "x"}, {"$bytes": "not base64"}, "x" * 300_000, [[]], {"": {"": ""}}, True, -0.0, [None] * 1000,
    collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1]), types.SimpleNamespace(a=1), re.compile("a"),
    lambda: None, threading.Lock(), Exception(Hostile()), StopIteration(3), {"a": {"b": {"c": {1, "x", None}}}},
]  # fmt: skip


@pytest.mark.parametrize("position", range(len(VALUES)))
@pytest.mark.parametrize("is_async", [False, True])
def test_any_value_a_tool_returns_is_recorded_exported_and_replayed(
    position: int, is_async: bool, tmp_path: Path
) -> None:
    value = VALUES[position]
    tools = ToolRegistry()
    if is_async:

        @tools.register(name="odd")
        async def odd() -> Any:
            return value

    else:
        tools.register(name="odd")(lambda: value)
    provider, exported = otel_provider()
    path = tmp_path / "odd.trace.json"
    model = ScriptedModel([act("odd"), finish("done")])
    tracing = Tracing(file=path, join=False, provider=provider, mask=True)
    result = asyncio.run(Agent(tools=tools).run("task", llm=model, trace=tracing))
    assert (result.stop_reason, result.warnings) == ("finish", ())
    record = result.steps[0].calls[0]
    assert record.outcome == "ok" or type(value) is Unreachable
    [recording] = load(path)
    assert recording.runs[0].problems == ()
    assert content(recording.runs[0].run) == content(result.run)
    played = replay(recording)
    assert (played.divergences[:2], played.verdict) == ((), "same")
    saved = tmp_path / "result.json"
    saved.write_text(result.to_json(), "utf-8")
    [again] = load(saved)
    assert content(again.runs[0].run) == content(result.run)
    assert sum(span.name == "execute_tool odd" for span in exported()) == 1


def otel_provider() -> tuple[Any, Any]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter.get_finished_spans


# ---- secrets

SECRET = "sk-proj-" + "Ab3dE5gH7jK9mN1pQ3sT5vX7zB2dF4hJ6kM8"
PLACES = [
    "task",
    "system",
    "reply",
    "arguments",
    "result",
    "error",
    "feedback",
    "answer",
    "model error",
    "tool name",
    "thought",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_planted_secret_is_in_no_file_of_a_run(place: str, tmp_path: Path) -> None:
    planted = {name: SECRET if name == place else f"a {name}" for name in PLACES}
    tools = ToolRegistry()

    @tools.tool
    def look(q: str) -> dict[str, Any]:
        return {"found": planted["result"], "nested": [{"text": f"token={planted['result']}"}]}

    @tools.tool
    def fail(q: str) -> None:
        raise ValueError(planted["error"])

    replies: list[Any] = [
        ModelError(planted["model error"], kind="rate_limited", status=429),
        f"{planted['reply']}\n" + act("look", q=planted["arguments"]),
        act("fail", q="x"),
        act(planted["tool name"], q="x"),
        Reply(text=planted["reply"], reasoning=planted["thought"]),
        finish("first"),
        finish(planted["answer"]),
    ]
    refusals = [planted["feedback"], None]
    agent = Agent(tools=tools, system=planted["system"], finish_check=lambda answer, context: refusals.pop(0))
    path = tmp_path / "secret.trace.json"
    watch = Watch(path)
    provider, exported = otel_provider()
    tracing = Tracing(file=path, join=False, sinks=[watch], provider=provider)
    work = agent.run(planted["task"], llm=ScriptedModel(replies), trace=tracing, clock=CountingClock())
    result = asyncio.run(work)
    assert result.stop_reason == "finish"
    seen = path.read_bytes() + watch.journal + repr([(s.name, s.attributes, s.events) for s in exported()]).encode()
    assert SECRET.encode() not in seen and SECRET[-20:].encode() not in seen
    [recording] = load(path)
    assert recording.runs[0].problems == ()
    played = replay(recording)
    assert (played.divergences[:2], played.verdict) == ((), "same")
