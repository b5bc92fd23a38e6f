"""A turn of a conversation goes live as a single run does; the turns before it are repeated from the recording."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ConfigError, ToolRegistry
from kernel.testing import ScriptedModel
from kernel.trace.journal import journal_of
from replay import Change, Recording, fork, load, replay, resume
from tests.helpers import act, finish


class Desk:
    """An agent that books, with what it booked."""

    def __init__(self) -> None:
        self.booked: list[int] = []
        self.keep: tuple[Path, Path] | None = None
        tools = ToolRegistry()

        @tools.register(side_effect=True)
        def book(room: int) -> str:
            """Book a room."""
            self.booked.append(room)
            if room == 13 and self.keep is not None:
                self.keep[1].write_bytes(journal_of(self.keep[0]).read_bytes())
            return f"room {room}"

        @tools.tool
        def look(what: str) -> str:
            """Look."""
            return f"{what} is free"

        self.agent = Agent(name="desk", system="You book rooms.", tools=tools, budget=Budget(max_steps=6))

    def talk(self, path: Path, turns: list[list[Any]], *, killed: Path | None = None) -> Recording:
        """A whole conversation; or what is on disk when room 13 is being booked."""
        self.keep = None if killed is None else (path, killed)

        async def main() -> None:
            model = ScriptedModel([reply for turn in turns for reply in turn])
            async with self.agent.conversation(llm=model, trace=path) as chat:
                for number, _ in enumerate(turns, 1):
                    await chat.send(f"turn {number}")

        asyncio.run(main())
        [recording] = load(path if killed is None else killed)
        return recording


TURNS: list[list[Any]] = [
    [act("look", what="room 1"), act("book", room=1), finish("booked 1")],
    [act("look", what="room 2"), act("book", room=2), finish("booked 2")],
    [finish("good bye")],
]


def test_a_turn_in_the_middle_is_forked_and_the_turns_before_it_are_repeated(tmp_path: Path) -> None:
    desk = Desk()
    recording = desk.talk(tmp_path / "chat.trace.json", TURNS)
    desk.booked.clear()
    path, model = tmp_path / "fork.trace.json", ScriptedModel([act("book", room=3), finish("nothing booked")])
    result = asyncio.run(fork(recording, desk.agent, turn=2, at_step=2, llm=model, trace=path))
    assert result.answer == "nothing booked" and desk.booked == []
    assert [record.outcome for step in result.steps for record in step.calls] == ["ok", "denied"]
    [forked] = load(path)
    assert forked.conversation is not None
    assert [run.run.head.task for run in forked.runs] == ["turn 1", "turn 2"]
    before = recording.runs[0].run
    assert [step.decision for step in forked.runs[0].run.steps] == [step.decision for step in before.steps]
    texts = [message.content for message in model.requests[0].messages]
    assert texts[0].startswith("You book rooms.") and "turn 2" in texts[-3] and "room 2 is free" in texts[-1]
    assert any("room 1" in text for text in texts)
    assert replay(forked).verdict == "same"


def test_another_system_prompt_of_a_fork_holds_from_the_first_turn_on(tmp_path: Path) -> None:
    desk = Desk()
    recording = desk.talk(tmp_path / "chat.trace.json", TURNS)
    model = ScriptedModel([finish("x")])
    change = Change(system="Be brief.")
    asyncio.run(fork(recording, desk.agent, turn=3, at_step=1, llm=model, change=change, trace=False))
    assert model.requests[0].messages[0].content.startswith("Be brief.")


def test_the_last_turn_of_a_killed_conversation_is_resumed_and_nothing_is_done_twice(tmp_path: Path) -> None:
    desk = Desk()
    turns = [TURNS[0], [act("look", what="room 13"), act("book", room=13), finish("x")]]
    recording = desk.talk(tmp_path / "chat.trace.json", turns, killed=tmp_path / "killed.trace.journal")
    desk.booked.clear()
    path = tmp_path / "resumed.trace.json"
    model = ScriptedModel([act("look", what="the book"), finish("nobody knows about 13")])
    result = asyncio.run(resume(recording, desk.agent, llm=model, trace=path))
    assert desk.booked == [] and result.answer == "nobody knows about 13"
    assert [record.outcome for step in result.steps for record in step.calls] == ["ok", "unknown_outcome", "ok"]
    [resumed] = load(path)
    assert [run.run.end.stop_reason for run in resumed.runs if run.run.end] == ["finish", "finish"]
    ids = [run.run.head.run_id for run in recording.runs]
    assert [run.run.head.run_id for run in resumed.runs] == ids and replay(resumed).verdict == "same"


def test_which_turn_goes_on_has_to_be_said_and_be_there(tmp_path: Path) -> None:
    desk = Desk()
    recording = desk.talk(tmp_path / "chat.trace.json", TURNS)
    model = ScriptedModel([])
    with pytest.raises(ConfigError, match="holds 3 runs: say which goes on, with turn 1 to 3"):
        asyncio.run(fork(recording, desk.agent, at_step=1, llm=model))
    with pytest.raises(ConfigError, match="turn 4 is not in the recording: it has 3 runs"):
        asyncio.run(fork(recording, desk.agent, turn=4, at_step=1, llm=model))
    with pytest.raises(ConfigError, match="the run has ended"):
        asyncio.run(resume(recording, desk.agent, llm=model))


def test_a_turn_before_that_was_cancelled_is_not_repeated(tmp_path: Path) -> None:
    """It went as far as somebody let it, which no replay of it would know."""
    desk, path = Desk(), tmp_path / "chat.trace.json"

    async def main() -> None:
        class Slow(ScriptedModel):
            async def complete(self, request: Any) -> Any:
                await asyncio.sleep(0)
                return await super().complete(request)

        async with desk.agent.conversation(llm=Slow([finish("b"), finish("c")]), trace=path) as chat:
            turn = asyncio.ensure_future(chat.send("one"))
            await asyncio.sleep(0)
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            await chat.send("two")

    asyncio.run(main())
    [recording] = load(path)
    with pytest.raises(ConfigError, match="turn 1 of the conversation did not end by itself"):
        asyncio.run(fork(recording, desk.agent, turn=2, at_step=1, llm=ScriptedModel([]), trace=False))
