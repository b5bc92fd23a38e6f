"""Fork and resume: the prefix is served, what follows is live, side effects are never doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fixtures.incident import agent, operator
from fixtures.record import CAUSE, CODE, LOGS, CountingClock, CountingIds, act, finish
from kernel import Agent, Budget, ConfigError, MemoryLedger, ScriptedModel, ToolRegistry
from kernel.trace import semconv as sc
from replay.loading import load
from replay.play.forking import Change, fork, resume
from replay.play.play import replay
from replay.play.recording import Recording
from replay.readers import read_traces

FIXTURES = Path(__file__).parents[2] / "fixtures"


def recorded(name: str) -> Recording:
    return load(FIXTURES / f"{name}.trace.json")[0]


def forked(name: str, who: Agent, replies: list[Any], path: Path, **options: Any) -> Any:
    work = fork(
        recorded(name),
        who,
        llm=ScriptedModel(replies),
        trace=path,
        clock=CountingClock(),
        ids=CountingIds("fork"),
        **options,
    )
    return asyncio.run(work)


def test_a_fork_serves_the_prefix_and_goes_on_live(tmp_path: Path) -> None:
    """Steps before the fork are the recorded ones; from there the live model answers."""
    path = tmp_path / "fork.trace.json"
    result = forked("order-5xx", agent, [LOGS, finish("another answer")], path, at_step=3)
    steps = recorded("order-5xx").runs[0].run.steps
    assert [s.decision for s in result.steps[:2]] == [s.decision for s in steps[:2]]
    assert result.answer == "another answer"
    assert len(result.steps) == 4


def test_a_fork_leaves_a_linked_trace_that_replays(tmp_path: Path) -> None:
    """The new trace has its own id, a link and an attribute that lead to the original, and replays as `same`."""
    path = tmp_path / "fork.trace.json"
    forked("order-5xx", agent, [CODE, finish(CAUSE)], path, at_step=2)
    original = recorded("order-5xx")
    root = read_traces(path).traces[0].spans[0]
    assert root.trace_id != original.trace_id
    assert [link.trace_id for link in root.links] == [original.trace_id]
    assert root.attributes[sc.ORIGINAL_TRACE_ID] == original.trace_id
    assert replay(load(path)[0]).verdict == "same"


def test_a_replaced_result_is_what_the_model_sees_next(tmp_path: Path) -> None:
    """A fork can ask what would have happened had a tool answered differently."""
    model = ScriptedModel([finish("all is well")])
    work = fork(
        recorded("order-5xx"), agent, at_step=2, llm=model, change=Change(results={(1, 0): "10:00 0.1 %"}), trace=False
    )
    asyncio.run(work)
    assert model.requests[0].messages[-1].content == "Observation: 10:00 0.1 %"


def test_a_fork_denies_side_effects_unless_allowed_by_name(tmp_path: Path) -> None:
    """The live part of a fork changes nothing in the world by default."""
    page = act("page_engineer", message="pool full")
    denied = forked("order-5xx", operator, [page, finish("x")], tmp_path / "a.trace.json", at_step=2)
    assert [r.outcome for s in denied.steps for r in s.calls] == ["ok", "denied"]
    allowed = forked(
        "order-5xx",
        operator,
        [page, finish("x")],
        tmp_path / "b.trace.json",
        at_step=2,
        change=Change(allow=["page_engineer"]),
        confirm=lambda name, args: True,
    )
    assert [r.outcome for s in allowed.steps for r in s.calls] == ["ok", "ok"]
    for path in (tmp_path / "a.trace.json", tmp_path / "b.trace.json"):
        assert replay(load(path)[0]).verdict == "same"


@pytest.mark.parametrize("step", [0, 7, 99])
def test_a_step_that_is_not_there_is_refused(step: int) -> None:
    """Forking at a step that was not recorded names the steps there are."""
    with pytest.raises(ConfigError, match="it has steps 1 to 5"):
        asyncio.run(fork(recorded("order-5xx"), agent, at_step=step, llm=ScriptedModel([])))


def test_a_finished_run_is_not_resumed() -> None:
    """Only what was cut short can go on; the message says what to do instead."""
    with pytest.raises(ConfigError, match=r"has ended \(finish\); fork it"):
        asyncio.run(resume(recorded("order-5xx"), agent, llm=ScriptedModel([])))


def test_resume_goes_on_where_the_run_was_cut(tmp_path: Path) -> None:
    """A cancelled run is continued: its finished steps are served, the next reply is live."""
    path = tmp_path / "resumed.trace.json"
    result = asyncio.run(resume(recorded("cancelled"), agent, llm=ScriptedModel([LOGS, finish("resumed")]), trace=path))
    assert (result.stop_reason, result.answer, len(result.steps)) == ("finish", "resumed", 3)
    assert result.run.head.run_id == recorded("cancelled").runs[0].run.head.run_id
    assert replay(load(path)[0]).verdict == "same"


def test_a_side_effect_cut_in_the_middle_is_not_run_again(tmp_path: Path) -> None:
    """Killed inside a tool: on resume the ledger says that it was begun, the model is told, nothing runs twice."""
    done: list[str] = []
    begun = asyncio.Event()
    tools = ToolRegistry()

    @tools.register(side_effect=True)
    async def send(text: str) -> str:
        """Send a text."""
        done.append(text)
        if len(done) == 2:
            begun.set()
            await asyncio.Event().wait()
        return "sent"

    who = Agent(name="sender", tools=tools, budget=Budget(max_steps=6), ledger=MemoryLedger())
    path = tmp_path / "cut.trace.json"

    async def cut() -> None:
        model = ScriptedModel([act("send", text="one"), act("send", text="two")])
        run = asyncio.create_task(who.run("send both", llm=model, trace=path))
        await begun.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(cut())
    assert done == ["one", "two"]
    again = tmp_path / "again.trace.json"
    result = asyncio.run(resume(load(path)[0], who, llm=ScriptedModel([finish("one sent, two unknown")]), trace=again))
    assert done == ["one", "two"]
    assert [r.outcome for s in result.steps for r in s.calls] == ["ok", "unknown_outcome"]
    assert replay(load(again)[0]).verdict == "same"
