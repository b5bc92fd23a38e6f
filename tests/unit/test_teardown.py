"""What opens and closes around a run: conversations, models as context managers, and who may swallow a cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ConfigError, ModelError, Reply, ToolRegistry
from kernel.testing import ScriptedModel
from kernel.trace.journal import journal_of
from replay import Recording, load, replay
from tests.helpers import act, finish


class Gate:
    """A model that waits until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, prompt: str) -> str:
        self.asked.set()
        await self.go.wait()
        return finish("x")


def recording(path: Path) -> Recording:
    [found] = load(path)
    assert all(run.problems == () for run in found.runs)
    return found


# ---- conversations


def test_a_conversation_is_not_closed_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """As `send` refuses it: the end of the run would be in no trace."""
    path = tmp_path / "chat.trace.json"

    async def main() -> None:
        model = Gate()
        chat = Agent().conversation(llm=model, trace=path)
        turn = asyncio.ensure_future(chat.send("long"))
        await model.asked.wait()
        with pytest.raises(ConfigError, match="in the middle of a run"):
            await chat.close()
        model.go.set()
        assert (await turn).warnings == ()
        assert (await chat.send("more")).ok, "a close that was refused has closed nothing"
        await chat.close()
        await chat.close()

    asyncio.run(main())
    assert [run.run.end.stop_reason for run in recording(path).runs if run.run.end] == ["finish", "finish"]
    assert replay(recording(path)).verdict == "same"


def test_leaving_the_block_of_a_conversation_closes_it_when_its_run_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "chat.trace.json"

    async def main() -> None:
        model = Gate()
        async with Agent().conversation(llm=model, trace=path) as chat:
            turn = asyncio.ensure_future(chat.send("long"))
            await model.asked.wait()
        assert not path.exists() and journal_of(path).exists()
        model.go.set()
        assert (await turn).ok and path.exists()
        with pytest.raises(ConfigError, match="closed"):
            await chat.send("more")

    asyncio.run(main())
    assert replay(recording(path)).verdict == "same"


def test_what_closing_a_conversation_loses_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No result is left to say it."""
    path = tmp_path / "chat.trace.json"

    async def main() -> None:
        async with Agent().conversation(llm=lambda prompt: finish("x"), trace=path) as chat:
            assert (await chat.send("one")).warnings == ()
            path.write_text("PRECIOUS")

    asyncio.run(main())
    assert path.read_text() == "PRECIOUS"
    [record] = caplog.records
    assert str(journal_of(path)) in record.getMessage() and load(journal_of(path))


@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_a_conversation_goes_on_after_a_turn_that_was_cancelled_anywhere(protocol: Any, tmp_path: Path) -> None:
    """At every turn of the loop that the first run takes; the whole conversation replays as itself."""
    tools = ToolRegistry()

    @tools.tool
    async def wait(turns: int) -> str:
        """Wait."""
        for _ in range(turns):
            await asyncio.sleep(0)
        return "waited"

    class Slow(ScriptedModel):
        async def complete(self, request: Any) -> Reply:
            await asyncio.sleep(0)
            return await super().complete(request)

    first: list[Any] = [ModelError("503", retryable=True, retry_after_s=0.0), act("wait", turns=2), finish("a")]
    second: list[Any] = [act("wait", turns=0), finish("b")]
    if protocol == "tools":
        both = [("wait", '{"turns": 2}'), ("wait", '{"turns": 0}')]
        first, second = [first[0], both, "a"], [[("wait", '{"turns": 1}')], "b"]

    async def main(path: Path, at: int) -> bool:
        chat = Agent(tools=tools, budget=Budget(max_steps=5)).conversation(
            llm=Slow(first, protocol=protocol), trace=path
        )
        turn = asyncio.ensure_future(chat.send("one"))
        for _ in range(at):
            await asyncio.sleep(0)
        turn.cancel()
        [done] = await asyncio.gather(turn, return_exceptions=True)
        chat._model = Slow(second, protocol=protocol)
        assert (await chat.send("two")).answer == "b"
        await chat.close()
        return isinstance(done, asyncio.CancelledError)

    at, cancelled = 1, True
    while cancelled:
        path = tmp_path / f"{at}.trace.json"
        cancelled = asyncio.run(main(path, at))
        found = recording(path)
        assert [run.run.end is not None for run in found.runs] == [True, True]
        played = replay(found)
        assert (played.divergences, played.verdict) == ((), "same"), at
        at += 1
    assert at > 8


# ---- models that open and close


class Client(ScriptedModel):
    def __init__(self, replies: list[Any], **fails: BaseException) -> None:
        super().__init__(replies)
        self.fails = fails

    async def __aenter__(self) -> Client:
        if "opening" in self.fails:
            raise self.fails["opening"]
        return self

    async def __aexit__(self, *_: object) -> None:
        if "closing" in self.fails:
            raise self.fails["closing"]


def test_a_model_that_cannot_be_opened_ends_the_run_with_model_error(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    model = Client([finish("x")], opening=OSError("no route"))
    result = Agent().run_sync("task", llm=model, trace=path)
    assert (result.stop_reason, result.detail) == ("model_error", "the model could not be opened: OSError: no route")
    assert model.requests == [] and recording(path).runs[0].run.end == result.run.end


def test_a_model_that_cannot_be_closed_takes_no_answer_away_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    result = Agent().run_sync("task", llm=Client([finish("x")], closing=OSError("reset")), trace=path)
    assert result.ok and result.warnings == ("the model could not be closed: OSError: reset",)
    assert replay(recording(path)).verdict == "same"


# ---- cancellations that user code swallows


@pytest.mark.parametrize("where", ["model", "confirm", "finish_check"])
@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_cancellation_that_user_code_swallows_cancels_the_run_all_the_same(
    where: str, timeout_s: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.trace.json"
    waiting, done = asyncio.Event(), []
    tools = ToolRegistry()

    @tools.register(side_effect=True)
    def pay() -> str:
        """Pay."""
        done.append("paid")
        return "paid"

    async def swallow(at: str, value: Any) -> Any:
        if at == where:
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if at == "model":
                    raise ModelError("the connection is gone", kind="transport") from None
        return value

    class Model(ScriptedModel):
        async def complete(self, request: Any) -> Reply:
            return await swallow("model", None) or await super().complete(request)

    agent = Agent(
        tools=tools,
        budget=Budget(timeout_s=timeout_s),
        confirm=lambda name, args: swallow("confirm", True),
        finish_check=lambda answer, context: swallow("finish_check", None),
    )

    async def main() -> None:
        run = asyncio.ensure_future(agent.run("task", llm=Model([act("pay"), finish("x")]), trace=path))
        await waiting.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    end = recording(path).runs[0].run.end
    assert end is not None and end.stop_reason == "cancelled"
    assert done == (["paid"] if where == "finish_check" else [])
    assert replay(recording(path)).divergences == ()
