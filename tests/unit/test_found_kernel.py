"""What an adversary found in the kernel, each with its right value: evaluate, act, read, stop, signatures."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ConfigError, ContextLimits, Guard, ModelError, Reply, ScriptedModel, ToolRegistry
from kernel.loop.evaluation import Rules, evaluate
from kernel.loop.limits import estimate_tokens, message_tokens
from kernel.record.messages import ToolCall
from kernel.record.run import Decision
from kernel.record.texts import texts_for
from replay.loading import load
from replay.play.play import replay
from tests.helpers import act, calls, counting, finish, play, registry

TOOLS = ToolRegistry()


@TOOLS.tool
def search(q: str, limit: int = 3) -> str:
    """Search."""
    return f"{q} {limit}"


@TOOLS.register(params={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})
def bash(args: dict[str, Any]) -> str:
    """Run a command."""
    return str(args["command"])


def read(reply: Reply, protocol: Any = "tools", *, tools: Any = None, language: Any = "en") -> Decision:
    known = {tool.name: tool for tool in TOOLS} if tools is None else tools
    return evaluate(reply, Rules(protocol=protocol, tools=known, texts=texts_for(language, {})))


def structured(arguments: str, name: str = "search", **fields: Any) -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments, id="c"),), **fields)


# ---- evaluate

ENDS = {
    "cut-off": ("length", "LENGTH", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"),
    "filtered": ("content_filter", "content-filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "sensitive"),
    "refusal": ("refusal",),
    "provider-refused": ("error", "network_error", "MALFORMED_FUNCTION_CALL"),
}


@pytest.mark.parametrize(("rule", "reason"), [(rule, reason) for rule, reasons in ENDS.items() for reason in reasons])
def test_a_reply_that_ended_badly_is_a_fault_under_every_name_of_that_end(rule: str, reason: str) -> None:
    for reply in (structured('{"q": "x"}', finish_reason=reason), Reply(text="Half an answer", finish_reason=reason)):
        decision = read(reply)
        assert decision.kind == "fault"
        assert decision.fault is not None
        assert decision.fault.rule == rule


def test_a_refusal_without_words_is_none() -> None:
    assert read(Reply(text="It is 4.", refusal="")).answer == "It is 4."


def test_structured_arguments_that_give_a_key_twice_are_ambiguous() -> None:
    (call,) = read(structured('{"q": "x", "q": "y"}')).calls
    assert call.fault is not None
    assert call.fault.rule == "ambiguous"
    (same,) = read(structured('{"q": "x: y", "q": "x: y"}')).calls
    assert (same.args, same.fault) == ({"q": "x: y", "limit": 3}, None)


@pytest.mark.parametrize("arguments", ['{"answer": null}', '{"text": null}'])
def test_null_is_no_answer(arguments: str) -> None:
    decision = read(structured(arguments, "finish"))
    assert decision.fault is not None
    assert decision.fault.rule == "blank-finish"


ANSWERS = [
    "To clean it:\n```bash\nrm -rf build\n```",
    "Two ways:\n```bash\na\n```\nand\n```bash\nb\n```",
    "First\n```python\nprint(1)\n```\nthen\n```python\nprint(2)\n```",
    '```json\n{"name": "svc", "parameters": {"x": [1,}\n```',
    '{"tool": "hammer", "input": "nail", "tool_input": 5}',
    "My steps:\n1. Action: hammer\n2. done",
    'In JavaScript: function f() { return {"action": x } }',
]


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_that_shows_code_or_json_is_an_answer_of_function_calling(text: str) -> None:
    """Also where a tool is called like the block's language, and where there are no tools at all."""
    for tools in (None, {}):
        assert read(Reply(text=text, finish_reason="stop"), tools=tools).answer == text


def test_a_marked_call_of_an_unknown_tool_is_no_answer() -> None:
    decision = read(Reply(text='<tool_call>{"name": "serch", "arguments": {"q": "x"}}</tool_call>'))
    assert [call.name for call in decision.calls] == ["serch"]
    broken = read(Reply(text='<tool_call>{"name": "search", "arguments": {"q": "x"}'))
    assert broken.fault is not None
    assert broken.fault.rule == "cut-off"


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("en", '- /zzz: 1 is not a known property. Allowed: ["limit","q"].'),
        ("zh", '- /zzz：1 不是已知的属性。允许的值：["limit","q"]。'),
    ],
)
def test_an_unknown_argument_is_named_in_one_negation(language: str, message: str) -> None:
    (call,) = read(structured('{"q": "x", "zzz": 1}'), language=language).calls
    assert call.fault is not None
    assert call.fault.message == message


# ---- read


def look(x: int) -> str:
    """Look."""
    return f"value {x} " + "y" * 400


def test_condensing_keeps_the_task_of_the_present_turn_and_the_earlier_answers(tmp_path: Path) -> None:
    steps = [act("look", x=i) for i in range(12)]
    model = ScriptedModel([*steps, finish("four boats"), *steps, finish("two"), finish("none")])
    agent = Agent(
        tools=registry(look), context=ContextLimits(window_tokens=1100, keep_steps=2), guard=Guard(enabled=False)
    )

    async def talk() -> None:
        async with agent.conversation(llm=model, trace=tmp_path / "chat.trace.json") as chat:
            for task in ("count the boats", "count the piers", "count the gulls"):
                assert (await chat.send(task)).ok

    asyncio.run(talk())
    shown = ["\n".join(message.content for message in request.messages) for request in model.requests]
    assert all("count the piers" in text for text in shown[13:26])
    assert "count the gulls" in shown[26]
    assert any("finish: four boats" in text and "condensed" in text.lower() for text in shown[13:26])
    assert replay(load(tmp_path / "chat.trace.json")[0]).verdict == "same"


@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_a_request_passes_the_window_only_where_one_step_alone_does(protocol: Any, tmp_path: Path) -> None:
    """`keep_steps` gives way before the window does; a call's result always follows its call."""
    replies: list[Any] = [act("look", x=i) if protocol == "text" else calls(("look", {"x": i})) for i in range(14)]
    model = ScriptedModel([*replies, finish("x") if protocol == "text" else "x"], protocol=protocol)
    agent = Agent(
        tools=registry(look), context=ContextLimits(window_tokens=900, keep_steps=8), guard=Guard(enabled=False)
    )
    path = tmp_path / "run.trace.json"
    assert asyncio.run(agent.run("t", llm=model, trace=path)).ok
    for request in model.requests:
        assert sum(message_tokens(message, estimate_tokens) for message in request.messages) <= 900
        waiting: list[str] = []
        for message in request.messages:
            if message.role == "tool":
                assert message.tool_call_id == waiting.pop(0)
            else:
                assert not waiting
            waiting += [str(call.id) for call in message.tool_calls]
    assert replay(load(path)[0], agent).verdict == "same"


# ---- act


def charges() -> tuple[ToolRegistry, list[int]]:
    done: list[int] = []
    tools = ToolRegistry()

    @tools.register(side_effect=True)
    async def charge(amount: int) -> str:
        """Charge a card."""
        await asyncio.sleep(0.05)
        done.append(amount)
        return "charged"

    return tools, done


@pytest.mark.parametrize("answer", ["no", "yes", 1, ["x"], None, False])
def test_only_true_is_an_approval(answer: Any) -> None:
    tools, done = charges()
    played = play([act("charge", amount=5), finish("x")], tools, confirm=lambda name, args: answer)
    assert played.result.steps[0].calls[0].outcome == "denied"
    assert done == []


def test_a_foreign_cancellation_in_confirm_or_finish_check_does_not_end_the_run(tmp_path: Path) -> None:
    def cancelled(*_: Any) -> Any:
        raise asyncio.CancelledError

    tools, done = charges()
    path = tmp_path / "run.trace.json"
    played = play([act("charge", amount=5), finish("x")], tools, confirm=cancelled, trace=path)
    assert (played.result.steps[0].calls[0].outcome, done, played.result.ok) == ("denied", [], True)
    assert replay(load(path)[0]).verdict == "same"
    checked = play([finish("x")] * 3, tools, finish_check=cancelled)
    assert checked.result.stop_reason == "finish_refused_exhausted"


def test_calls_one_after_the_other_share_what_is_left_of_the_wall_clock(tmp_path: Path) -> None:
    tools, done = charges()
    batch = calls(*[("charge", {"amount": n}) for n in range(12)])
    path = tmp_path / "run.trace.json"
    played = play([batch, "x"], tools, protocol="tools", budget=Budget(timeout_s=0.2), trace=path)
    outcomes = [call.outcome for call in played.result.steps[0].calls]
    assert played.result.stop_reason == "timeout"
    assert outcomes[-6:] == ["timeout"] * 6
    assert len(done) < 6
    assert replay(load(path)[0]).verdict == "same"


def test_an_async_tool_that_swallows_its_cancellation_does_not_hold_up_asyncio_run() -> None:
    """As a careless retry loop does. The run says that the tool is still there."""
    tools = ToolRegistry()

    @tools.register(timeout=0.05)
    async def stubborn() -> str:
        """Never end."""
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    played = play([act("stubborn"), finish("x")], tools)  # else it would not return at all
    assert played.result.run.end is not None
    assert played.result.run.end.alive == ("stubborn",)


# ---- stop


def test_model_confirm_and_tools_of_a_step_share_the_wall_clock(tmp_path: Path) -> None:
    async def complete(prompt: str) -> str:
        await asyncio.sleep(0.15)
        return act("charge", amount=1)

    async def confirm(name: str, args: dict[str, Any]) -> bool:
        await asyncio.sleep(0.15)
        return True

    tools, done = charges()
    agent = Agent(tools=tools, budget=Budget(timeout_s=0.2), confirm=confirm)
    result = asyncio.run(agent.run("t", llm=complete, trace=tmp_path / "run.trace.json"))
    assert (result.stop_reason, done) == ("timeout", [])
    assert replay(load(tmp_path / "run.trace.json")[0], agent).verdict == "same"


@pytest.mark.parametrize("pause", [float("nan"), float("inf"), -3.0, "5", True])
def test_a_pause_that_is_none_is_not_waited_for_and_replays(pause: Any, tmp_path: Path) -> None:
    failed = ModelError("busy", kind="rate_limited", retryable=True, retry_after_s=pause)
    path = tmp_path / "run.trace.json"
    assert play([failed, finish("x")], trace=path, **counting()).result.ok
    assert replay(load(path)[0]).verdict == "same"


def test_an_empty_reason_to_refuse_an_answer_is_put_into_words() -> None:
    played = play([finish("x")] * 3, finish_check=lambda answer, context: "")
    assert played.result.steps[0].refusal == "not accepted"


def test_a_callable_without_a_signature_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no signature"):
        ToolRegistry().register(name="make")(dict)
