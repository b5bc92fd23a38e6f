"""The loop as users call it: the documented interface without a warning, and every way a run can stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from kernel import (
    Agent,
    Budget,
    ConfigError,
    FinishContext,
    Guard,
    ModelError,
    Policy,
    Price,
    Reply,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
)
from kernel.record.run import STOP_REASONS
from tests.helpers import act, calls, counting, finish, play

ROOT = Path(__file__).parents[2]

INTERFACE = '''
import asyncio, json, warnings
from kernel import Agent, Budget, ToolRegistry, react

tools = ToolRegistry()

@tools.register(name="query_metrics", description="Values of a metric.", params={"type": "object", "properties": {"metric": {"type": "string"}}}, returns="one line", timeout=15, side_effect=False)
async def query_metrics(args: dict) -> str:
    return "12 %"

@tools.tool
def search_logs(service: str, since: str, limit: int = 20) -> list[str]:
    """Search the logs of a service."""
    return [f"{service} {since}"] * limit

REPLIES = [
    {"action": "query_metrics", "args": {"metric": "5xx"}},
    {"action": "search_logs", "args": {"service": "order", "since": "10:00", "limit": 2}},
    {"action": "finish", "args": {"answer": "the pool is full"}},
]

def sync_model():
    replies = iter(map(json.dumps, REPLIES))
    def model(prompt):
        return next(replies)
    return model

def async_model():
    replies = iter(map(json.dumps, REPLIES))
    async def model(prompt):
        await asyncio.sleep(0)
        return next(replies)
    return model

async def confirm(name, args):
    return False

def check(result):
    assert (result.ok, result.answer, result.stop_reason) == (True, "the pool is full", "finish"), result
    assert len(result.steps) == 3 and result.usage.input_tokens and len(result.trace_id) == 32
    assert json.loads(result.to_json())["answer"] == result.answer

async def main():
    for model in (sync_model(), async_model()):
        check(await react("find the root cause", tools, budget=Budget(max_steps=8), llm=model, confirm=lambda name, args: False))
    agent = Agent(name="ops", system="Be brief.", tools=tools, budget=Budget(max_steps=8), guard=None, policy=None, finish_check=None)
    check(await agent.run("find the root cause", llm=async_model(), confirm=confirm))
    chat = agent.conversation(llm=async_model())
    check(await chat.send("find the root cause"))
    await chat.close()
    return agent

check(asyncio.run(main()).run_sync("find the root cause", llm=sync_model()))
'''


def test_the_documented_interface_works_in_development_mode_without_a_warning(tmp_path: Path) -> None:
    """Unawaited coroutines, unclosed files, slow callbacks and deprecations would all speak up here."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", INTERFACE]
    environment = {"PYTHONASYNCIODEBUG": "1", "PYTHONPATH": str(ROOT), "PATH": ""}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    noise = [line for line in ran.stderr.splitlines() if "took" not in line]  # a slow machine is no fault of ours
    assert (ran.returncode, ran.stdout, noise) == (0, "", [])
    assert list(tmp_path.iterdir()) == []


def tools() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    def find(q: str) -> str:
        return f"{q} found"

    @registry.tool
    def fail() -> None:
        raise ValueError("no")

    return registry


def different(count: int) -> list[str]:
    return [act("find", q=str(n)) for n in range(count)]


def refuse(answer: str, context: FinishContext) -> bool:
    return False


async def _cancelled_reason() -> str:
    here, ends = asyncio.Event(), []

    async def model(prompt: str) -> str:
        here.set()
        await asyncio.Event().wait()
        return ""

    class Ends:
        def started(self, span: Any) -> None: ...
        def event(self, span: Any, event: Any) -> None: ...
        def ended(self, span: Any) -> None:
            ends.append(span.attributes.get("tracefirst.stop_reason"))

        def close(self) -> None: ...

    from kernel import Tracing

    running = asyncio.ensure_future(Agent().run("x", llm=model, trace=Tracing(sinks=[Ends()])))
    await here.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return str(ends[-1])


STOPS: dict[str, Any] = {
    "finish": lambda: play([finish("x")], tools()).result.stop_reason,
    "max_steps": lambda: play(different(9), tools(), budget=Budget(max_steps=2)).result.stop_reason,
    "token_budget": lambda: play(different(9), tools(), budget=Budget(max_prompt_tokens=400)).result.stop_reason,
    "timeout": lambda: play(different(9), tools(), budget=Budget(timeout_s=0.005), **counting()).result.stop_reason,
    "unparsable_exhausted": lambda: play(["?"] * 9, tools(), budget=Budget(max_errors=2)).result.stop_reason,
    "tool_error_exhausted": lambda: (
        play([act("fail"), act("serch"), act("find", z=1)], tools(), budget=Budget(max_errors=3)).result.stop_reason
    ),
    "loop_detected": lambda: play([act("find", q="a")] * 9, tools()).result.stop_reason,
    "finish_refused_exhausted": lambda: play([finish("x")] * 9, tools(), finish_check=refuse).result.stop_reason,
    "model_error": lambda: play([ModelError("no key", kind="auth", retryable=False)], tools()).result.stop_reason,
    "cancelled": lambda: asyncio.run(_cancelled_reason()),
}


@pytest.mark.parametrize("reason", [reason for reason in STOP_REASONS if reason != "cost_budget"])
def test_every_stop_reason_is_reached(reason: str) -> None:
    """`cost_budget` is reached in the scenarios, with prices of cached tokens."""
    assert STOPS[reason]() == reason


def test_a_successful_step_clears_the_error_streak() -> None:
    replies = ["?", act("find", q="a"), "?", act("find", q="b"), finish("x")]
    result = play(replies, tools(), budget=Budget(max_errors=2)).result
    assert result.ok and [step.errors for step in result.steps] == [1, 0, 1, 0, 0]


def test_the_wall_clock_is_a_deadline_for_a_model_that_never_answers() -> None:
    async def model(prompt: str) -> str:
        await asyncio.Event().wait()
        return ""

    result = asyncio.run(Agent(budget=Budget(timeout_s=0.05)).run("x", llm=model, trace=False))
    assert (result.stop_reason, result.answer) == ("timeout", None)
    assert "during a model call" in result.detail


def test_transport_errors_are_retried_with_growing_pauses_and_each_attempt_is_kept() -> None:
    down = ModelError("503", kind="server", status=503)
    result = play([down, down, finish("x")], tools(), **counting()).result
    chat = result.steps[0].chat
    assert result.ok and chat is not None
    assert [(attempt.kind, attempt.wait_s) for attempt in chat.attempts] == [("server", 0.5), ("server", 1.0)]


def test_what_retries_may_have_cost_is_booked() -> None:
    down = ModelError("503", kind="server", status=503)
    once, thrice = play([finish("x")], tools()), play([down, down, finish("x")], tools(), **counting())
    assert once.result.usage.input_tokens is not None
    assert thrice.result.usage.input_tokens == 3 * once.result.usage.input_tokens and thrice.result.usage.estimated


@pytest.mark.parametrize("error", [RuntimeError("bug"), asyncio.CancelledError("leak"), KeyError()])
def test_a_failure_inside_the_model_client_stops_the_run_with_its_name(error: BaseException) -> None:
    result = play([error], tools()).result
    assert result.stop_reason == "model_error" and type(error).__name__ in result.detail


def test_a_model_that_returns_no_reply_is_named() -> None:
    class Wrong:
        protocol: Literal["text", "tools"] = "text"
        provider = name = "wrong"

        async def complete(self, request: Any) -> Any:
            return {"text": "hi"}

    result = asyncio.run(Agent().run("x", llm=Wrong(), trace=False))
    assert result.stop_reason == "model_error" and "must return a Reply, it returned dict" in result.detail


def test_a_finish_check_that_fails_has_not_passed_the_answer() -> None:
    def check(answer: str, context: FinishContext) -> None:
        if context.attempt == 1:
            raise LookupError("no such finding")

    played = play([finish("first"), finish("second")], tools(), finish_check=check)
    assert played.result.answer == "second"
    assert "LookupError: no such finding" in played.last_request[-1].content


def test_a_conversation_shares_its_history_and_each_turn_stops_for_itself() -> None:
    model = ScriptedModel(
        [calls(("find", {"q": "a"})), "12 %", Reply(text="", finish_reason="length"), "since 10:01"], protocol="tools"
    )

    async def main() -> list[str | None]:
        async with Agent(tools=tools(), system="s").conversation(llm=model, trace=False) as chat:
            return [(await chat.send("how bad?")).answer, (await chat.send("since when?")).answer]

    assert asyncio.run(main()) == ["12 %", "since 10:01"]
    last = list(model.requests[-1].messages)
    assert [m.role for m in last] == ["system", "user", "assistant", "tool", "assistant", "user", "user"]
    assert model.requests[-1].kept == len(last) - 1


def test_one_turn_at_a_time() -> None:
    async def main() -> None:
        here = asyncio.Event()

        async def model(prompt: str) -> str:
            here.set()
            await asyncio.Event().wait()
            return ""

        chat = Agent().conversation(llm=model, trace=False)
        first = asyncio.ensure_future(chat.send("a"))
        await here.wait()
        with pytest.raises(ConfigError, match="in the middle of a run"):
            await chat.send("b")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": Budget(max_steps=0)}, "max_steps is 0, it must be at least 1"),
        ({"budget": Budget(timeout_s=-1.0)}, "timeout_s is -1.0, it must be more than 0"),
        ({"budget": Budget(max_cost_usd=1.0)}, "there is no price for the model"),
        ({"policy": "yolo"}, "'yolo' (from code) is unknown; choose one of read_only, dry_run, allowlist, full"),
        ({"policy": Path("missing.toml")}, "policy file missing.toml cannot be read"),
        ({"policy": Policy(mode="none")}, "'none'"),  # type: ignore[arg-type]
        ({"language": "de"}, "choose one of en, zh"),
        ({"guard": Guard(max_warnings=0)}, "max_warnings is 0"),
        ({"budget": Budget(max_cost_usd=float("nan"))}, "max_cost_usd is nan"),
        ({"budget": Budget(timeout_s=float("inf"))}, "timeout_s is inf"),
        ({"prices": {"m": Price(input_usd=-1.0, output_usd=1.0)}}, 'input_usd of "m" is -1.0'),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(settings: dict[str, Any], said: str) -> None:
    model = ScriptedModel([finish("x")])
    with pytest.raises(ConfigError) as refused:
        asyncio.run(Agent(**settings).run("x", llm=model, trace=False))
    assert said in str(refused.value) and model.requests == []


def test_ids_that_are_made_up_are_those_of_no_other_call_of_the_conversation() -> None:
    tools = ToolRegistry()
    tools.register(name="look", params={"type": "object"}, volatile=True)(lambda args: args)

    def said(*ids: str) -> Reply:
        made = tuple(ToolCall(name="look", arguments=f'{{"n":{n}}}', id=id) for n, id in enumerate(ids))
        return Reply(tool_calls=made, finish_reason="tool_calls")

    replies = [said("call_2_0", "", "call_1_1"), said(""), said("x", "x", ""), "one", said(""), "two"]
    model = ScriptedModel(replies, protocol="tools")

    async def main() -> list[str]:
        async with Agent(tools=tools).conversation(llm=model, trace=False) as chat:
            runs = [await chat.send(task) for task in ("a", "b")]
        return [record.call.id for run in runs for step in run.steps for record in step.calls]

    used = asyncio.run(main())
    assert len(used) == len(set(used)) == 8 and {"call_2_0", "call_1_1", "x"} < set(used)
    last = model.requests[-1].messages
    asked = [call.id for message in last for call in message.tool_calls]
    assert asked == used == [message.tool_call_id for message in last if message.role == "tool"]


def test_a_default_reaches_the_tool_and_the_record() -> None:
    seen: list[Any] = []
    tools = ToolRegistry()
    schema = {"type": "object", "properties": {"limit": {"type": "integer", "default": 20}}}
    tools.register(name="look", params=schema)(seen.append)
    result = play([calls(("look", "{}")), "done"], tools, protocol="tools").result
    assert seen == [{"limit": 20}]
    assert result.steps[0].calls[0].call.args == {"limit": 20} and result.steps[0].calls[0].call.raw == "{}"


def test_a_tool_or_a_check_that_leaves_the_program_does_not_end_the_run() -> None:
    tools = ToolRegistry()

    @tools.tool
    def lint(flag: str) -> str:
        sys.exit(2)

    def check(answer: str, context: FinishContext) -> None:
        if context.attempt == 1:
            sys.exit("the checker is not set up")

    result = play([act("lint", flag="x"), finish("a"), finish("b")], tools, finish_check=check).result
    assert (result.answer, result.steps[0].calls[0].outcome) == ("b", "error")
    assert result.steps[1].refusal == "SystemExit: the checker is not set up"
