"""A run can be cancelled at every `await` it comes to: not at random ones, at each.

Two ways to come to all of them. `interrupted` counts the suspensions of the run's own task and cancels it at number n,
for every n, once and twice in a row. `after_turns` cancels from outside after n turns of the event loop, which also
meets calls that run together at every mixture of their own states. A run is small, so all of it takes a second.
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, FinishContext, Ledger, MemoryLedger, ModelError, Reply, SqliteLedger, ToolRegistry
from kernel.testing import CountingClock, CountingIds, ScriptedModel
from replay import load, replay, resume
from tests.helpers import act, finish

FAILED = ModelError("503", kind="server", status=503)


class Client(ScriptedModel):
    """A model that waits wherever a model may: where it is opened, asked and closed."""

    async def __aenter__(self) -> Client:
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def complete(self, request: Any) -> Reply:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await super().complete(request)


class WaitingClock(CountingClock):
    """Takes a turn of the loop to sleep."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        await super().sleep(seconds)


class Scene:
    """An agent with what its tools did, and the replies that lead it to every place where it waits."""

    def __init__(self, folder: Path, ledger: Callable[[Path], Ledger | None]) -> None:
        self.effects: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.release = threading.Event()
        tools = ToolRegistry()

        @tools.tool
        async def wait(turns: int) -> str:
            """Wait for some turns of the loop."""
            for _ in range(turns):
                await asyncio.sleep(0)
            return f"{turns} turns"

        @tools.tool
        def think(about: str) -> str:
            """Think, in a thread."""
            return about

        @tools.tool
        def later(about: str) -> Any:
            """A plain function that gives back something to await."""
            return asyncio.sleep(0, about)

        @tools.register(timeout=0.01)
        async def hang() -> None:
            """Never end."""
            await asyncio.Event().wait()

        @tools.register(timeout=0.01)
        def overrun() -> str:
            """Hold a thread until the test lets it go."""
            self.release.wait(10)
            return "late"

        @tools.register(side_effect=True)
        async def pay(order: int) -> str:
            """Pay an order."""
            self.effects.append(f"pay {order}")
            await asyncio.sleep(0)
            return f"paid {order}"

        @tools.register(side_effect=True, calls_per_second=1000)
        def send(text: str) -> str:
            """Send a text, from a thread."""
            self.effects.append(f"send {text}")
            return "sent"

        async def confirm(name: str, args: dict[str, Any]) -> bool:
            await asyncio.sleep(0)
            self.asked.append((name, args))
            return args != {"order": 13}

        async def check(answer: str, context: FinishContext) -> str | None:
            await asyncio.sleep(0)
            return "say more" if context.attempt == 1 else None

        self.agent = Agent(
            name="waits",
            tools=tools,
            budget=Budget(max_steps=12, max_errors=9, model_retries=2, timeout_s=600),
            ledger=ledger(folder),
            confirm=confirm,
            finish_check=check,
        )

    def run(self, replies: list[Any], protocol: Any, path: Path) -> Coroutine[Any, Any, Any]:
        model = Client(replies, protocol=protocol)
        clock, ids = WaitingClock(), CountingIds("waits")
        return self.agent.run("do it all", llm=model, trace=path, clock=clock, ids=ids)


TEXT: list[Any] = [
    FAILED,
    FAILED,
    "no action in this",
    act("wait", turns=2),
    FAILED,
    act("later", about="x"),
    act("pay", order=1),
    act("pay", order=13),
    act("send", text="hello"),
    finish("short"),
    finish("long enough"),
]
TOGETHER: list[Any] = [
    [("wait", '{"turns": 1}'), ("wait", '{"turns": 3}'), ("later", '{"about": "y"}'), ("wait", '{"turns": 0}')],
    [("pay", '{"order": 2}'), ("send", '{"text": "two"}'), ("pay", '{"order": 13}')],
    "short",
    "long enough",
]
SLOW: list[Any] = [act("think", about="z"), act("hang"), act("overrun"), finish("short"), finish("long enough")]
SCRIPTS = {"text": (TEXT, "text"), "together": (TOGETHER, "tools"), "slow": (SLOW, "text")}
LEDGERS: dict[str, Callable[[Path], Ledger | None]] = {
    "none": lambda folder: None,
    "memory": lambda folder: MemoryLedger(),
    "sqlite": lambda folder: SqliteLedger(folder / "ledger.db"),
}


@types.coroutine
def interrupted(work: Coroutine[Any, Any, Any], at: int, times: int) -> Generator[Any, Any, Any]:
    """Await `work`; at its suspension number `at`, and at the `times - 1` after it, cancel the task that awaits."""
    task = asyncio.current_task()
    assert task is not None
    suspended, resume = -1, lambda: work.send(None)
    while True:
        try:
            awaited = resume()
        except StopIteration as done:
            return done.value
        suspended += 1
        if at <= suspended < at + times:
            task.cancel()
        try:
            value = yield awaited
            resume = lambda value=value: work.send(value)  # noqa: E731
        except BaseException as error:
            resume = lambda error=error: work.throw(error)  # noqa: E731


async def _interrupted(work: Coroutine[Any, Any, Any], at: int, times: int) -> Any:
    return await interrupted(work, at, times)


def cancelled_at_suspension(scene: Scene, work: Coroutine[Any, Any, Any], at: int, times: int) -> bool:
    """Whether the run ended by the cancellation."""

    async def main() -> bool:
        task = asyncio.ensure_future(_interrupted(work, at, times))
        [done] = await asyncio.gather(task, return_exceptions=True)
        return ended(done)

    return settled(scene, main())


def cancelled_after_turns(scene: Scene, work: Coroutine[Any, Any, Any], at: int, times: int) -> bool:
    async def main() -> bool:
        task = asyncio.ensure_future(work)
        for _ in range(at):
            await asyncio.sleep(0)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        [done] = await asyncio.gather(task, return_exceptions=True)
        return ended(done)

    return settled(scene, main())


def ended(done: Any) -> bool:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
        raise done
    return isinstance(done, asyncio.CancelledError)


def settled(scene: Scene, main: Coroutine[Any, Any, bool]) -> bool:
    try:
        return asyncio.run(main)
    finally:
        scene.release.set()


def assert_told(path: Path, cancelled: bool) -> None:
    """The trace of a cancelled run is whole: an end, no open span, and a replay that agrees."""
    assert [name.name for name in path.parent.iterdir() if "journal" in name.name] == []
    [recording] = load(path)
    [recorded] = recording.runs
    run = recorded.run
    assert recorded.problems == ()
    assert run.end is not None and run.mark.end_ns is not None
    assert (run.end.stop_reason == "cancelled") == cancelled
    for marks in run.marks:
        assert all(mark.end_ns is not None for mark in (marks.step, marks.chat, *marks.calls) if mark is not None)
    played = replay(recording)
    assert played.divergences == ()
    assert (played.unused.model, played.unused.tools) == (0, 0)
    assert played.verdict == ("same" if played.served.model else "not_checked")


WAYS = {"suspension": cancelled_at_suspension, "turn": cancelled_after_turns}
CASES = [  # threads take as many turns as they like, so there is no counting where they work
    ("text", "none", "suspension"),
    ("text", "none", "turn"),
    ("text", "sqlite", "suspension"),
    ("together", "none", "suspension"),
    ("together", "none", "turn"),
    ("slow", "none", "suspension"),
]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("script", "ledger", "way"), CASES)
def test_a_run_cancelled_at_each_await_ends_its_trace_and_replays_as_itself(
    script: str, ledger: str, way: str, times: int, tmp_path: Path
) -> None:
    at, cancelled = 0, True
    threads = set(threading.enumerate())
    while cancelled:
        folder = tmp_path / str(at)
        folder.mkdir()
        scene = Scene(folder, LEDGERS[ledger])
        path = folder / "run.trace.json"
        cancelled = WAYS[way](scene, scene.run(*SCRIPTS[script], path), at, times)
        assert path.exists() or (at == 0 and cancelled)
        if path.exists():
            assert_told(path, cancelled)
        at += 1
        assert at < 300
    assert at > 15
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()


AGAIN: dict[str, list[Any]] = {
    "text": [act("pay", order=1), act("pay", order=13), act("send", text="hello"), *TEXT[-2:]],
    "together": [[("pay", '{"order": 2}')], [("send", '{"text": "two"}')], [("pay", '{"order": 13}')], *TOGETHER[-2:]],
}


@pytest.mark.parametrize(("script", "way"), [("text", "suspension"), ("together", "suspension"), ("together", "turn")])
def test_cancelled_at_each_await_and_resumed_nothing_is_done_twice_or_unapproved(
    script: str, way: str, tmp_path: Path
) -> None:
    """The model asks for every effect again; all that is known of the first run is its trace."""
    at, cancelled = 1, True
    while cancelled:
        folder = tmp_path / str(at)
        folder.mkdir()
        scene = Scene(folder, LEDGERS["none"])
        path = folder / "run.trace.json"
        cancelled = WAYS[way](scene, scene.run(*SCRIPTS[script], path), at, 1)
        if cancelled:
            model = Client(AGAIN[script], protocol=SCRIPTS[script][1])
            again = folder / "again.trace.json"
            result = asyncio.run(resume(load(path)[0], scene.agent, llm=model, trace=again))
            assert result.stop_reason == "finish"
            assert len(scene.effects) == len(set(scene.effects)) and "pay 13" not in scene.effects
            approved = {f"{name} {next(iter(args.values()))}" for name, args in scene.asked}
            assert set(scene.effects) <= approved
            assert replay(load(again)[0]).verdict == "same"
        at += 1
    assert at > 15
