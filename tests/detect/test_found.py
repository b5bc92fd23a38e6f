"""What an unfriendly user found: each case is what was done, and what rightly happens."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ToolRegistry
from kernel.errors import ConfigError
from kernel.model.scripted import ScriptedModel
from kernel.record.messages import ModelParams, Reply, Request, ToolCall, Usage
from kernel.trace import semconv as sc
from kernel.trace.otlp import encode_document
from kernel.trace.span import Resource
from replay.cli.app import main
from replay.loading import load
from replay.play.play import ReplayResult, replay
from replay.readers import read_traces

FIXTURES = Path(__file__).parents[2] / "fixtures"
HALF = "\ud83d"

tools = ToolRegistry()


@tools.register(
    name="look",
    description=f"Look something up. {HALF}",
    params={"type": "object", "properties": {"q": {"type": "string", "description": HALF}}},
)
def look(args: dict[str, Any]) -> str:
    return f"found {args}"


def said(action: str, args: dict[str, Any], thought: str = "t") -> str:
    return json.dumps({"thought": thought, "action": action, "args": args})


FINISH = said("finish", {"answer": "done"})


class One:
    """A model that a user wrote by hand: it gives one value, then a finish."""

    protocol = "text"
    provider = "own"
    name = "own"

    def __init__(self, first: Any) -> None:
        self._replies = [first, Reply(text=FINISH)]

    async def complete(self, request: Request) -> Any:
        return self._replies.pop(0)


def recorded(agent: Agent, model: Any, path: Path, **options: Any) -> tuple[Any, ReplayResult]:
    """Run, record, and replay what was recorded."""
    result = asyncio.run(agent.run(f"task {HALF}", llm=model, trace=path, **options))
    assert result.warnings == ()
    result.to_json()
    return result, replay(load(path)[0])


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        (None, "NoneType"),
        (Reply(text=None), "text"),
        (Reply(text=b"x"), "text must be text, it is bytes"),
        (Reply(text=FINISH, finish_reason=3), "finish_reason"),
        (Reply(text=FINISH, model=4), "model"),
        (Reply(text=FINISH, response_id=4), "response_id"),
        (Reply(text=FINISH, usage={"input_tokens": 4}), "usage"),
        (Reply(tool_calls=None), "tool_calls"),
        (Reply(tool_calls=({"name": "look"},)), "tool_calls[0]"),
        (Reply(tool_calls=(ToolCall(name="look", arguments={}),)), "tool_calls[0].arguments"),
        (Reply(tool_calls=(ToolCall(name="look", arguments="{}", id=7),)), "tool_calls[0].id"),
    ],
)
def test_a_reply_of_the_wrong_type_ends_the_run_as_model_error_and_says_which_field(
    reply: Any, names: str, tmp_path: Path
) -> None:
    result, again = recorded(Agent(tools=tools), One(reply), tmp_path / "a.trace.json")
    assert result.stop_reason == "model_error"
    assert names in result.detail
    assert again.verdict == "same"


@pytest.mark.parametrize("count", ["12", -12, 12.5, float("nan"), float("inf"), True])
def test_a_token_count_that_is_none_is_unknown_and_neither_crashes_nor_drifts(count: Any, tmp_path: Path) -> None:
    reply = Reply(text=FINISH, usage=Usage(input_tokens=count, output_tokens=3))
    result, again = recorded(Agent(tools=tools), One(reply), tmp_path / "a.trace.json")
    assert result.ok and result.usage.estimated and result.usage.input_tokens > 0
    assert again.verdict == "same"


def test_usage_none_is_unknown_usage(tmp_path: Path) -> None:
    result, again = recorded(Agent(tools=tools), One(Reply(text=FINISH, usage=None)), tmp_path / "a.trace.json")
    assert result.ok and result.usage.estimated
    assert again.verdict == "same"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text=FINISH, model=f"m{HALF}"),
        Reply(text=FINISH, response_id=f"r{HALF}"),
        Reply(text=FINISH, finish_reason=HALF),
        Reply(tool_calls=[ToolCall(name="look", arguments='{"q": "x"}')]),
        Reply(tool_calls=(ToolCall(name="look", arguments='{"q": "x"}', id=None),)),
    ],
)
def test_small_slips_of_a_model_are_mended_before_they_are_recorded(reply: Reply, tmp_path: Path) -> None:
    result, again = recorded(Agent(tools=tools), One(reply), tmp_path / "a.trace.json")
    assert result.ok
    assert again.verdict == "same"


@pytest.mark.parametrize(
    "first",
    [
        said("look", {"q": HALF}, thought=f"half {HALF}"),
        json.dumps({"thought": "t", "action": "look", "args": {"q": "x"}, "intent": HALF}),
        said(f"lo{HALF}", {}),
        said("look", {}) + "\n" + said(f"other{HALF}", {}),
        '{"thought": "\\ud83d", "action": "look", "args": {"q": "\\ud83d',
    ],
    ids=["thought", "intent", "unknown tool", "ignored action", "cut off"],
)
def test_half_an_emoji_in_a_reply_replays_as_same(first: str, tmp_path: Path) -> None:
    agent = Agent(name=f"ops {HALF}", system=HALF, tools=tools, params=ModelParams(model=f"m{HALF}", extra={HALF: 1}))
    result, again = recorded(
        agent, ScriptedModel([first, FINISH]), tmp_path / "a.trace.json", conversation_id=f"c{HALF}"
    )
    assert result.ok
    assert again.verdict == "same"


@pytest.mark.parametrize("blank", ["\u200b", "\ufeff \u200d", "\u2066\u2069\n", "\x00"])
def test_an_answer_that_shows_nothing_is_no_answer(blank: str, tmp_path: Path) -> None:
    model = ScriptedModel([said("finish", {"answer": blank}), blank, FINISH])
    result, again = recorded(Agent(tools=tools), model, tmp_path / "a.trace.json")
    assert [step.decision.kind for step in result.steps] == ["fault", "fault", "finish"]
    assert again.verdict == "same"


def answered(agent: Agent, path: Path) -> ReplayResult:
    asyncio.run(
        Agent(name=agent.name, tools=agent.tools).run(
            "task", llm=ScriptedModel([said("nowhere", {}), FINISH]), trace=path
        )
    )
    return replay(load(path)[0], agent)


def test_a_finish_check_that_refuses_is_named_as_the_cause(tmp_path: Path) -> None:
    result = answered(Agent(tools=tools, finish_check=lambda answer, run: "cite a line"), tmp_path / "a.trace.json")
    assert result.verdict == "diverged"
    assert result.first is not None
    assert (result.first.step, result.first.path, result.first.cause) == (2, "/refusal", "finish check")


def test_a_smaller_error_allowance_is_named_as_a_budget(tmp_path: Path) -> None:
    result = answered(Agent(tools=tools, budget=Budget(max_errors=1)), tmp_path / "a.trace.json")
    assert result.verdict == "diverged"
    assert result.first is not None
    assert (result.first.path, result.first.observed) == ("/stop_reason", "tool_error_exhausted")
    assert result.first.cause == "budget"


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    return int(ended.value.code or 0)


@pytest.mark.parametrize("verb", [[], ["import"]])
def test_a_recording_is_never_written_over_by_its_own_replay(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.trace.json"
    shutil.copy(FIXTURES / "order-5xx.trace.json", path)
    before = path.read_bytes()
    assert status(*verb, str(path), "--output", str(tmp_path / "." / "a.trace.json")) == 2
    assert "not written over" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("verb", [[], ["show"], ["check"]])
def test_a_pipe_is_refused_with_a_remedy_instead_of_hanging(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert status(*verb, str(path)) == 3
    assert "is a pipe" in capsys.readouterr().err


def test_a_zstd_file_that_is_cut_off_is_called_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zstandard

    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress((FIXTURES / "order-5xx.trace.json").read_bytes())[:700])
    assert status(str(path)) == 3
    assert "cut off" in capsys.readouterr().err


def test_a_closed_conversation_takes_no_turn_that_no_trace_would_hold(tmp_path: Path) -> None:
    async def talk() -> None:
        chat = Agent(tools=tools).conversation(llm=ScriptedModel([FINISH] * 2), trace=tmp_path / "a.trace.json")
        await chat.send("one")
        await chat.close()
        with pytest.raises(ConfigError, match="closed"):
            await chat.send("two")
        await chat.close()

    asyncio.run(talk())
    assert replay(load(tmp_path / "a.trace.json")[0]).verdict == "same"


def test_a_turn_that_was_refused_is_traced_when_it_is_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "a.trace.json"
    path.write_text("something dear")

    async def talk() -> Any:
        async with Agent(system="be brief", tools=tools).conversation(llm=ScriptedModel([FINISH]), trace=path) as chat:
            with pytest.raises(ConfigError, match="there already"):
                await chat.send("one")
            path.unlink()
            return await chat.send("one")

    result = asyncio.run(talk())
    assert result.run.head.turn == 1 and result.run.head.system == "be brief"
    assert replay(load(path)[0]).verdict == "same"


def test_a_system_prompt_where_none_was_is_named_as_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "a.trace.json"
    asyncio.run(Agent(tools=tools).run("task", llm=ScriptedModel(["done"], protocol="tools"), trace=path))
    result = replay(load(path)[0], Agent(tools=tools, system="be brief"))
    assert result.verdict == "drifted"
    assert result.first is not None and result.first.cause == "prompt"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tools": [look]}, "ToolRegistry"),
        ({"tools": {"look": look}}, "ToolRegistry"),
        ({"name": None}, "name is NoneType"),
        ({"system": None}, "system is NoneType"),
        ({"budget": 8}, "budget is int"),
        ({"confirm": 5}, "confirm is int"),
        ({"finish_check": 5}, "finish_check is int"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named_before_anything_runs(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent(**settings)


@pytest.mark.parametrize("task", [None, 5, b"bytes", ["a"]])
def test_a_task_that_is_no_text_is_named_before_anything_runs(task: Any) -> None:
    with pytest.raises(ConfigError, match="the task is"):
        asyncio.run(Agent(tools=tools).run(task, llm=ScriptedModel([FINISH]), trace=False))


def test_a_conversation_that_lost_its_last_turn_is_not_the_same(tmp_path: Path) -> None:
    """The root of a conversation counts its runs under its seal, so that a turn cannot vanish unnoticed."""
    trace = read_traces(FIXTURES / "conversation.trace.json").traces[0]
    turns = [span for span in trace.spans if span.attributes.get(sc.TURN) == 2]
    gone = {turns[0].span_id}
    for span in trace.spans:
        if span.parent_id in gone:
            gone.add(span.span_id)
    target = tmp_path / "cut.trace.json"
    target.write_bytes(encode_document([s for s in trace.spans if s.span_id not in gone], Resource()))
    result = replay(load(target)[0])
    assert result.verdict != "same"
    assert any(d.path == f"/{sc.RUNS}" for d in result.divergences)


def test_a_confirm_that_fails_says_why(tmp_path: Path) -> None:
    """A `confirm` with the wrong signature denies, is told apart from a refusal, and replays the same."""
    tools = ToolRegistry()

    @tools.register(side_effect=True)
    def send(text: str) -> str:
        """Send."""
        return text

    model = ScriptedModel(
        ['{"action": "send", "args": {"text": "a"}}', '{"action": "finish", "args": {"answer": "b"}}']
    )
    path = tmp_path / "run.trace.json"
    confirm: Any = lambda: True  # noqa: E731
    result = Agent(tools=tools).run_sync("go", llm=model, confirm=confirm, trace=path)
    record = result.steps[0].calls[0]
    assert record.outcome == "denied"
    assert record.approval is not None and "TypeError" in (record.approval.failure or "")
    assert "TypeError" in record.error.message  # type: ignore[union-attr]
    assert replay(load(path)[0]).verdict == "same"


def test_an_agent_that_now_asks_is_not_the_same(tmp_path: Path) -> None:
    """Recorded without `confirm`, replayed with an agent that has one: its question has no recorded answer."""
    tools = ToolRegistry()

    @tools.register(side_effect=True)
    def send(text: str) -> str:
        """Send."""
        return text

    model = ScriptedModel(
        ['{"action": "send", "args": {"text": "a"}}', '{"action": "finish", "args": {"answer": "b"}}']
    )
    path = tmp_path / "run.trace.json"
    Agent(tools=tools).run_sync("go", llm=model, trace=path)
    result = replay(load(path)[0], Agent(tools=tools, confirm=lambda name, args: True))
    assert result.verdict == "diverged"
    assert result.first is not None and result.first.path == "/approval"


def test_a_key_in_the_name_or_id_of_a_call_is_masked(tmp_path: Path) -> None:
    """Whatever short field of a reply a secret stands in, none of it reaches the file, and the replay is the same."""
    key = "sk-" + "proj-" + "A1b2C3d4" * 5
    shapes = [
        Reply(tool_calls=(ToolCall(name=key, arguments="{}", id="1"),)),
        Reply(tool_calls=(ToolCall(name="look", arguments="{}", id=key),)),
        Reply(text="done", finish_reason=key),
        Reply(text="done", model=key, response_id=key),
    ]
    for number, reply in enumerate(shapes):
        path = tmp_path / f"{number}.trace.json"
        model = ScriptedModel([reply, "done", "done"], protocol="tools")
        Agent(tools=ToolRegistry()).run_sync("go", llm=model, trace=path)
        assert key not in path.read_text("utf-8")
        assert replay(load(path)[0]).verdict == "same"
