"""What went wrong for others in the loop, tool calls and budgets, one test a case: here it must not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kernel import (
    Agent,
    Budget,
    ConfigError,
    ContextLimits,
    FinishContext,
    MemoryLedger,
    ModelError,
    Price,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    Tracing,
    Usage,
)
from kernel.model.openai_reply import decode_reply
from kernel.model.sse import StreamedCompletion
from kernel.stores.ledger import approval_binding
from kernel.testing import CountingClock
from replay.loading import load
from replay.play.play import replay
from tests.helpers import act, calls, counting, finish, play


def find_tools() -> ToolRegistry:
    tools = ToolRegistry()

    @tools.tool
    def find(q: str) -> list[str]:
        return []

    return tools


def outcomes(result: RunResult) -> list[list[str]]:
    return [[record.outcome for record in step.calls] for step in result.steps]


def contents(played: Any, role: str) -> list[str]:
    return [message.content for message in played.last_request if message.role == role]


def test_B001_a_lookup_that_always_answers_empty_is_stopped_and_the_steps_show_the_loop() -> None:
    result = play([act("find", q="x")] * 30, find_tools(), budget=Budget(max_steps=50)).result
    assert result.stop_reason == "loop_detected" and len(result.steps) <= 6
    looped = [step.guard for step in result.steps if step.guard.verdict != "ok"]
    assert looped and all((verdict.tool, verdict.seen_step) == ("find", 1) for verdict in looped)


def test_B002_ids_key_order_and_blanks_do_not_hide_a_repeat() -> None:
    tools = ToolRegistry()

    @tools.tool
    def lint(path: str, level: int = 1) -> str:
        return "errors: 1"

    spelled = [
        '{"path":"a","level":2}',
        '{"level": 2, "path": "a"}',
        '{ "path" :"a",\n"level":2}',
        '{"level":2.0,"path":"a"}',
    ]
    replies = [
        Reply(tool_calls=(ToolCall(id=f"id-{n}", name="lint", arguments=spelled[n % 3]),), finish_reason="tool_calls")
        for n in range(40)
    ]
    result = play(replies, tools, protocol="tools", budget=Budget(max_steps=50)).result
    assert result.stop_reason == "loop_detected" and len(result.steps) <= 6


def polling(volatile: bool) -> tuple[RunResult, int]:
    """Twelve times the same question, twelve different answers."""
    tools, answers = ToolRegistry(), iter(range(0, 109, 9))

    @tools.register(volatile=volatile)
    def status(job: str) -> dict[str, int]:
        return {"pct": next(answers)}

    result = play([*[act("status", job="7")] * 12, finish("done")], tools).result
    return result, 12 - len([*answers])


def test_B003_a_healthy_polling_loop_runs_to_its_end_where_the_tool_is_volatile() -> None:
    result, _ = polling(volatile=True)
    assert result.ok and all(step.guard.verdict == "ok" for step in result.steps)
    assert [record.result["pct"] for step in result.steps for record in step.calls] == [*range(0, 108, 9)]


def test_B003_where_it_is_not_the_same_call_is_answered_by_the_guard_once_and_the_warning_names_the_way_out() -> None:
    result, _ = polling(volatile=False)
    assert result.ok and [step.guard.verdict for step in result.steps[:4]] == ["ok", "answered", "ok", "ok"]
    told = result.steps[1].calls[0]
    assert told.served_by == "guard" and "send the call once more" in (told.shown or "")
    assert [record.served_by for step in result.steps[2:] for record in step.calls] == [None] * 10


def test_B003_a_poll_may_wait_as_long_as_its_tool_says() -> None:
    tools, answers = ToolRegistry(), iter(["waiting"] * 9 + ["ready"])
    tools.register(name="status", repeats=9)(lambda: next(answers))
    result = play([*[act("status")] * 10, finish("ready")], tools).result
    assert result.ok and all(step.guard.verdict == "ok" for step in result.steps)


def test_B003_an_effect_right_after_itself_is_never_run_a_second_time() -> None:
    tools, paid = ToolRegistry(), []
    tools.register(name="pay", side_effect=True, idempotency="position")(lambda: paid.append(1))
    result = play([act("pay")] * 9, tools).result
    assert result.stop_reason == "loop_detected" and paid == [1]


def test_B003_a_stop_names_the_calls_of_its_cycle_and_what_allows_them() -> None:
    tools = ToolRegistry()
    tools.register(name="left")(lambda: "wall")
    tools.register(name="right")(lambda: "wall")
    result = play([act("left"), act("right")] * 9, tools).result
    assert result.stop_reason == "loop_detected"
    assert "a cycle of 2 calls (right (step 4) → left (step 5)) since step" in result.run.end.detail  # type: ignore[union-attr]
    assert "repeats=N" in result.run.end.detail  # type: ignore[union-attr]
    assert "actions (left (step 3) → right (step 4)) repeat" in (result.steps[3].feedback or "")


def test_B003_a_volatile_tool_that_never_changes_is_still_a_loop() -> None:
    tools = ToolRegistry()
    tools.register(name="status", volatile=True)(lambda: "waiting")
    assert play([act("status")] * 12, tools).result.stop_reason == "loop_detected"


def test_B003_a_pollable_tool_has_a_limit_of_its_own() -> None:
    tools, count = ToolRegistry(), iter(range(99))
    tools.register(name="status", volatile=True, max_calls=3)(lambda: next(count))
    played = play([*[act("status")] * 4, finish("gave up")], tools)
    assert outcomes(played.result)[:4] == [["ok"], ["ok"], ["ok"], ["denied"]]
    assert "may be called 3 times" in contents(played, "user")[-1]


def test_B006_a_refused_finish_has_its_own_small_limit_and_never_ends_as_success() -> None:
    def check(answer: str, context: FinishContext) -> str | None:
        return None if "finding_id" in answer else "the field finding_id is missing"

    result = play([finish("no id")] * 100, find_tools(), finish_check=check, budget=Budget(max_steps=50)).result
    assert (result.stop_reason, result.ok, result.answer) == ("finish_refused_exhausted", False, None)
    assert len(result.steps) == 3 and "finding_id is missing" in result.detail
    assert [step.budget.prompt_tokens > 0 for step in result.steps if step.budget] == [True] * 3
    by_steps = play([finish("no id")] * 9, find_tools(), finish_check=check, budget=Budget(max_steps=2)).result
    assert by_steps.stop_reason == "max_steps"


def test_B007_hitting_the_step_limit_gives_no_answer_and_keeps_what_was_gathered(tmp_path: Path) -> None:
    replies = [act("find", q=str(n)) for n in range(9)]
    path = tmp_path / "limit.trace.json"
    result = play(replies, find_tools(), budget=Budget(max_steps=3), trace=path).result
    assert (result.ok, result.answer, result.stop_reason) == (False, None, "max_steps")
    assert [record.call.args["q"] for step in result.steps for record in step.calls] == ["0", "1", "2"]
    end = load(path)[0].runs[0].run.end
    assert end is not None and (end.ok, end.answer, end.stop_reason) == (False, None, "max_steps")


def test_B009_every_entry_point_gives_the_same_typed_stop_and_no_limit_text_as_answer() -> None:
    agent = Agent(tools=find_tools(), budget=Budget(max_steps=2))
    replies = [act("find", q=str(n)) for n in range(5)]

    async def by_conversation() -> RunResult:
        async with agent.conversation(llm=ScriptedModel(replies), trace=False) as chat:
            return await chat.send("go")

    results = [
        agent.run_sync("go", llm=ScriptedModel(replies), trace=False),
        asyncio.run(agent.run("go", llm=ScriptedModel(replies), trace=False)),
        asyncio.run(by_conversation()),
    ]
    assert {(r.stop_reason, r.ok, r.answer, r.detail) for r in results} == {
        ("max_steps", False, None, "max_steps=2 reached")
    }


@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_B010_a_blank_reply_is_no_finish_and_does_not_enter_the_history(protocol: str) -> None:
    first = act("find", q="x") if protocol == "text" else [("find", '{"q": "x"}')]
    blank = Reply(text="", finish_reason="stop", usage=Usage(input_tokens=5, output_tokens=0))
    played = play([first, *[blank] * 9], find_tools(), protocol=protocol, budget=Budget(max_errors=2))
    assert (played.result.stop_reason, played.result.answer) == ("unparsable_exhausted", None)
    assert len(played.result.steps) == 3 and "empty" in played.result.detail
    assert all(m.content.strip() or m.tool_calls for m in played.last_request)


def test_B013_a_token_budget_is_checked_before_each_call() -> None:
    usage = Usage(input_tokens=400, output_tokens=0)
    budget = Budget(max_prompt_tokens=1000, max_steps=20)
    played = play([act("find", q=str(n)) for n in range(10)], find_tools(), usage=usage, budget=budget)
    assert played.result.stop_reason == "token_budget"
    assert len(played.model.requests) <= 3 and (played.result.usage.input_tokens or 0) <= 1400


def test_B015_unknown_usage_is_estimated_and_flagged_never_zero() -> None:
    words = " ".join(["word"] * 50)
    played = play(
        [f"{words}\n{act('find', q=str(n))}" for n in range(20)], find_tools(), budget=Budget(max_prompt_tokens=900)
    )
    assert played.result.stop_reason == "token_budget" and 1 < len(played.model.requests) < 10
    usage = played.result.usage
    assert usage.estimated and usage.input_tokens and usage.output_tokens
    reply = played.result.steps[0].chat.reply  # type: ignore[union-attr]
    assert reply is not None and reply.usage.estimated and reply.usage.output_tokens


def test_B016_cached_tokens_are_priced_counted_and_stored(tmp_path: Path) -> None:
    """Input includes cached tokens here: 3 plain, 109,000 written to the cache."""
    usage = Usage(input_tokens=109_003, output_tokens=81, cache_read_tokens=0, cache_write_tokens=109_000)
    path = tmp_path / "cache.trace.json"
    result = play(
        [act("find", q=str(n)) for n in range(9)],
        find_tools(),
        usage=usage,
        trace=path,
        budget=Budget(max_cost_usd=0.10),
        prices={"scripted-model": Price(input_usd=3.0, output_usd=15.0, cache_read_usd=0.3, cache_write_usd=3.75)},
    ).result
    assert result.stop_reason == "cost_budget" and len(result.steps) == 1
    assert result.cost_usd == pytest.approx((3 * 3 + 109_000 * 3.75 + 81 * 15) / 1e6)
    [recorded] = load(path)[0].runs
    reply = recorded.run.steps[0].chat.reply  # type: ignore[union-attr]
    assert reply is not None and reply.usage == usage
    assert recorded.run.end is not None and recorded.run.end.usage.cache_write_tokens == 109_000


def test_B018_a_wait_of_days_ends_the_run_at_once_with_the_hint() -> None:
    refused = ModelError("too many requests", kind="rate_limited", status=429, retry_after_s=86_400.0)
    clock = CountingClock()
    began = clock.now("run")
    result = play([refused] * 3, find_tools(), budget=Budget(timeout_s=5.0), clock=clock).result
    assert clock.now("run") - began < 10**9, "nobody slept: sleeping moves this clock on"
    assert result.stop_reason == "model_error" and "rate_limited" in result.detail and "86400" in result.detail


@pytest.mark.parametrize("limit", [1, 4])
def test_B019_the_check_is_told_the_numbers_that_really_end_the_run(limit: int) -> None:
    seen: list[tuple[int, bool]] = []

    def check(answer: str, context: FinishContext) -> str:
        seen.append((context.attempt, context.is_last))
        return "no"

    result = play([finish("x")] * 9, find_tools(), finish_check=check, budget=Budget(max_finish_refusals=limit)).result
    assert result.stop_reason == "finish_refused_exhausted"
    assert seen == [(n, n == limit) for n in range(1, limit + 1)]


PLAIN = ["The pool is full since 10:01.", "Der Pool ist seit 10:01 Uhr voll.", "Η δεξαμενή είναι γεμάτη από τις 10:01."]


@pytest.mark.parametrize("answer", PLAIN)
def test_B020_a_plain_answer_is_an_answer_with_function_calling_and_a_fault_in_text(answer: str) -> None:
    result = play([answer], find_tools(), protocol="tools").result
    assert (result.ok, result.answer) == (True, answer)
    played = play([answer, finish(answer)], find_tools(), protocol="text")
    assert (played.result.ok, played.result.answer, len(played.result.steps)) == (True, answer, 2)
    assert "[FormatError]" in contents(played, "user")[-1]
    assert played.result.steps[0].chat.reply.text == answer  # type: ignore[union-attr]


def test_B021_only_the_first_action_of_a_made_up_dialogue_runs() -> None:
    reply = (
        'Thought: look\nAction: find\nAction Input: {"q": "a"}\nObservation: 3 results, made up\n'
        'Thought: again\nAction: find\nAction Input: {"q": "b"}\nObservation: nothing, made up\n'
        "Thought: done\nFinal Answer: 42"
    )
    played = play([reply, finish("none")], find_tools())
    [record] = played.result.steps[0].calls
    assert record.call.args == {"q": "a"}
    assert not any("made up" in text for text in contents(played, "user"))
    assert played.result.answer == "none"


def test_B021_what_came_after_the_first_action_is_named_to_the_model() -> None:
    several = f"{act('find', q='a')}\n{act('find', q='b')}\n{finish('42')}"
    played = play([several, finish("none")], find_tools())
    assert [len(step.calls) for step in played.result.steps] == [1, 0] and played.result.answer == "none"
    assert played.result.steps[0].decision.ignored == ("find", "finish")  # type: ignore[union-attr]
    assert "Only the first action was run. Ignored: find, finish" in contents(played, "user")[-1]


def test_B023_a_fenced_reply_in_odd_case_with_crlf_is_read() -> None:
    reply = '\r\n```\r\nthought: look first\r\nACTION : find\r\nAction Input: {"q": "a"}\r\n```\r\n'
    result = play([reply, finish("x")], find_tools()).result
    [record] = result.steps[0].calls
    assert (record.call.name, record.call.args, record.outcome) == ("find", {"q": "a"}, "ok")


def writer() -> tuple[ToolRegistry, list[dict[str, str]]]:
    tools, written = ToolRegistry(), []

    @tools.register(side_effect=True)
    def write(path: str, text: str) -> str:
        written.append({"path": path, "text": text})
        return "written"

    return tools, written


def test_B025_cut_off_arguments_labelled_as_a_call_never_run() -> None:
    tools, written = writer()
    played = play([calls(("write", '{"path":"a.txt","text":"hello')), "gave up"], tools, protocol="tools")
    [record] = played.result.steps[0].calls
    assert (record.outcome, written) == ("bad_args", [])
    assert record.call.fault is not None and record.call.raw == '{"path":"a.txt","text":"hello'
    assert "cannot be read" in contents(played, "tool")[-1]


def test_B027_malformed_arguments_are_called_malformed_with_the_place_and_the_schema() -> None:
    tools = ToolRegistry()

    @tools.tool
    def run(action: str) -> str:
        return action

    reply = Reply(
        tool_calls=(ToolCall(id="c", name="run", arguments='{"action": listt"}'),),
        finish_reason="stop",
        usage=Usage(input_tokens=9, output_tokens=20),
    )
    played = play([reply, "gave up"], tools, protocol="tools")
    [record] = played.result.steps[0].calls
    assert record.outcome == "bad_args" and record.call.fault is not None
    said = contents(played, "tool")[-1]
    assert record.call.fault.position >= 0 and '"properties"' in said
    assert not any(word in said.lower() for word in ("cut", "truncat", "length", "incomplete"))


def test_B029_a_list_sent_as_text_is_decoded_where_the_schema_says_list(tmp_path: Path) -> None:
    tools, got = ToolRegistry(), []

    @tools.tool
    def todos(items: list[dict[str, int]]) -> int:
        got.append(items)
        return len(items)

    path = tmp_path / "todos.trace.json"
    play([calls(("todos", {"items": '[{"t": 1}]'})), "done"], tools, protocol="tools", trace=path)
    assert got == [[{"t": 1}]]
    [recorded] = load(path)[0].runs
    [record] = recorded.run.steps[0].calls
    assert record.call.coerced == ("/items",) and record.call.args == {"items": [{"t": 1}]}
    assert replay(load(path)[0]).verdict == "same"


def chunk(*deltas: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": list(deltas)} if deltas else {}, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "r", "choices": [choice]}).encode() + b"\n\n"


def test_B031_two_streamed_calls_that_share_an_index_stay_two() -> None:
    def delta(arguments: str, **more: Any) -> dict[str, Any]:
        name = more.pop("name", None)
        return {"index": 0, **more, "function": {"arguments": arguments, **({"name": name} if name else {})}}

    by_id, by_object = StreamedCompletion(), StreamedCompletion()
    by_id.feed(chunk(delta('{"q":', id="a", name="find"), delta('"x"}', id="a")))
    by_id.feed(chunk(delta('{"q":"y"}', id="b", name="find")) + chunk(reason="tool_calls") + b"data: [DONE]\n\n")
    by_object.feed(chunk(delta('{"q":"x"}', name="find")) + chunk(delta('{"q":"y"}', name="find")))
    by_object.feed(chunk(reason="tool_calls") + b"data: [DONE]\n\n")
    for completion in (by_id, by_object):
        reply = decode_reply(completion.body())
        assert [call.arguments for call in reply.tool_calls] == ['{"q":"x"}', '{"q":"y"}']


def test_B032_a_made_up_tool_name_is_answered_with_the_real_ones() -> None:
    tools = ToolRegistry()
    tools.register(name="search")(lambda: "found")
    tools.register(name="read")(lambda: "text")
    replies = [act("search"), act("read"), act("search"), act("serch"), act("read"), finish("ok")]
    played = play(replies, tools)
    assert played.result.ok and outcomes(played.result)[3] == ["unknown_tool"]
    said = next(text for text in contents(played, "user") if "[ToolError]" in text)
    assert "search, read" in said and 'Did you mean "search"?' in said


class Odd(BaseException):
    """Not derived from `Exception`."""


def test_B034_every_call_of_a_parallel_batch_has_one_result_with_the_type_of_its_failure() -> None:
    tools = ToolRegistry()

    @tools.tool
    def work(n: int) -> int:
        if n == 2:
            raise ValueError
        if n == 3:
            raise Odd("third")
        return n

    played = play([calls(*(("work", {"n": n}) for n in (1, 2, 3))), "done"], tools, protocol="tools")
    assert played.result.ok and outcomes(played.result)[0] == ["ok", "error", "error"]
    assert [m.tool_call_id for m in played.last_request if m.role == "tool"] == ["c0", "c1", "c2"]
    said = contents(played, "tool")
    assert "ValueError" in said[1] and "Odd: third" in said[2]


def test_B034_a_keyboard_interrupt_in_a_tool_still_ends_the_program() -> None:
    tools = ToolRegistry()

    @tools.tool
    async def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play([act("stop")], tools)


def test_B036_results_go_back_in_call_order_and_the_next_prompt_is_always_the_same(tmp_path: Path) -> None:
    def once(order: tuple[int, ...]) -> list[Any]:
        """The three tools end in the order given; each waits for the one before it."""
        tools, gates = ToolRegistry(), [asyncio.Event() for _ in range(4)]

        @tools.tool
        async def work(n: int) -> str:
            place = order.index(n)
            if place:
                await gates[place].wait()
            gates[place + 1].set()
            return f"result {n}"

        gates.append(asyncio.Event())
        return play([calls(*(("work", {"n": n}) for n in range(3))), "done"], tools, protocol="tools").last_request

    prompts = [once(order) for order in [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)] * 5]
    assert all(prompt == prompts[0] for prompt in prompts)
    results = [(m.tool_call_id, m.content) for m in prompts[0] if m.role == "tool"]
    assert results == [("c0", "result 0"), ("c1", "result 1"), ("c2", "result 2")]


@pytest.mark.parametrize("approve", [False, True])
def test_B038_an_approval_in_a_batch_drops_no_other_call(approve: bool, tmp_path: Path) -> None:
    tools, ran = ToolRegistry(), []

    @tools.tool
    def read(n: int) -> int:
        ran.append(f"read {n}")
        return n

    @tools.register(side_effect=True)
    def delete(n: int) -> str:
        ran.append(f"delete {n}")
        return "deleted"

    batch = calls(("read", {"n": 1}), ("delete", {"n": 2}), ("read", {"n": 3}))
    path = tmp_path / "batch.trace.json"
    played = play([batch, "done"], tools, protocol="tools", confirm=lambda name, args: approve, trace=path)
    assert outcomes(played.result)[0] == ["ok", "ok" if approve else "denied", "ok"]
    assert ran == ["read 1", *(["delete 2"] if approve else []), "read 3"]
    assert [m.tool_call_id for m in played.last_request if m.role == "tool"] == ["c0", "c1", "c2"]
    [record] = [r for r in load(path)[0].runs[0].run.steps[0].calls if r.call.name == "delete"]
    assert record.outcome == ("ok" if approve else "denied")
    assert record.approval is not None and record.approval.approved is approve


@pytest.mark.parametrize("entry", ["sync", "async"])
def test_B039_a_blocking_tool_is_given_up_at_its_deadline_while_the_loop_goes_on(entry: str) -> None:
    tools, began, release, ticks = ToolRegistry(), threading.Event(), threading.Event(), []

    @tools.register(timeout=1.0)
    def block() -> str:
        began.set()
        release.wait()  # for ever, unless the run ends before
        return "late"

    agent = Agent(tools=tools)

    async def with_ticks() -> RunResult:
        async def tick() -> None:
            await asyncio.to_thread(began.wait)
            ticks.append("while the tool blocked its own thread")

        ticking = asyncio.ensure_future(tick())
        try:
            return await agent.run("go", llm=ScriptedModel([act("block"), finish("gave up")]), trace=False)
        finally:
            ticking.cancel()

    try:
        if entry == "async":
            result = asyncio.run(with_ticks())
            assert ticks == ["while the tool blocked its own thread"]
        else:
            result = agent.run_sync("go", llm=ScriptedModel([act("block"), finish("gave up")]), trace=False)
    finally:
        release.set()
    assert outcomes(result)[0] == ["timeout"] and result.ok
    assert any("block" in warning for warning in result.warnings)


def cancel_cases() -> dict[str, Callable[[asyncio.Event], tuple[Any, ToolRegistry, Any]]]:
    def hanging(tools: ToolRegistry, here: asyncio.Event, **options: Any) -> None:
        @tools.register(name="hang", **options)
        async def hang(n: int = 0) -> None:
            here.set()
            await asyncio.Event().wait()

    def model(here: asyncio.Event) -> tuple[Any, ToolRegistry, Any]:
        async def ask(prompt: str) -> str:
            here.set()
            await asyncio.Event().wait()
            return ""

        return ask, find_tools(), None

    def two_tools(here: asyncio.Event) -> tuple[Any, ToolRegistry, Any]:
        tools = ToolRegistry()
        hanging(tools, here)
        return ScriptedModel([calls(("hang", {"n": 1}), ("hang", {"n": 2}))], protocol="tools"), tools, None

    def confirming(here: asyncio.Event) -> tuple[Any, ToolRegistry, Any]:
        async def confirm(name: str, args: dict[str, Any]) -> bool:
            here.set()
            await asyncio.Event().wait()
            return True

        tools = ToolRegistry()
        hanging(tools, here, side_effect=True)
        return ScriptedModel([act("hang", n=1)]), tools, confirm

    return {"model call": model, "two tools": two_tools, "confirmation": confirming}


@pytest.mark.parametrize("where", ["model call", "two tools", "confirmation"])
def test_B042_a_cancelled_run_leaves_no_task_and_a_whole_trace(where: str, tmp_path: Path) -> None:
    path = tmp_path / "cancelled.trace.json"

    async def main() -> None:
        here = asyncio.Event()
        llm, tools, confirm = cancel_cases()[where](here)
        running = asyncio.ensure_future(Agent(tools=tools).run("go", llm=llm, confirm=confirm, trace=path))
        await here.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main(), debug=True)
    [recorded] = load(path)[0].runs
    assert recorded.problems == () and recorded.run.end is not None
    assert recorded.run.end.stop_reason == "cancelled"
    assert all(m.end_ns is not None for marks in recorded.run.marks for m in (marks.step, *marks.calls))
    assert {record.outcome for step in recorded.run.steps for record in step.calls} <= {"cancelled"}


def test_B043_a_cancellation_from_inside_a_tool_is_its_failure_and_the_run_goes_on(tmp_path: Path) -> None:
    tools = ToolRegistry()

    @tools.tool
    async def leaky() -> None:
        raise asyncio.CancelledError("from a library")

    path = tmp_path / "leaky.trace.json"
    result = play([act("leaky"), finish("went on")], tools, trace=path).result
    assert result.ok and outcomes(result)[0] == ["cancelled"]
    record = load(path)[0].runs[0].run.steps[0].calls[0]
    assert record.error is not None and "nobody had cancelled the run" in record.error.message


def test_B044_a_timed_out_side_effect_is_not_run_again_and_its_outcome_is_unknown() -> None:
    tools, rows, keys = ToolRegistry(), [], []

    @tools.register(side_effect=True, timeout=0.03)
    async def send(text: str, idempotency_key: str = "") -> None:
        rows.append(text)
        keys.append(idempotency_key)
        await asyncio.Event().wait()

    replies = [act("send", text="hi"), act("send", text="hi"), act("send", text="hi"), finish("unknown")]
    played = play(replies, tools, ledger=MemoryLedger())
    assert rows == ["hi"] and keys[0]
    assert [o for [o] in outcomes(played.result)[:3]] == ["timeout", "unknown_outcome", "unknown_outcome"]
    assert "not known whether it took effect" in contents(played, "user")[1]


def test_B046_an_approval_is_bound_to_tool_arguments_and_call() -> None:
    tools, sent, asked = ToolRegistry(), [], []

    @tools.register(side_effect=True)
    def send(msg: str) -> str:
        sent.append(msg)
        return "sent"

    def confirm(name: str, args: dict[str, Any]) -> bool:
        asked.append(args["msg"])
        args["msg"] = "changed"
        return len(asked) == 1

    play([act("send", msg="ok"), act("send", msg="changed"), finish("x")], tools, confirm=confirm)
    assert (asked, sent) == (["ok", "changed"], ["ok"])
    args = ('{"msg":"ok"}', '{"msg":"changed"}')
    bindings = {approval_binding("send", a, step, place) for a in args for step in (1, 2) for place in (0, 1)}
    assert len(bindings) == 8


def big_value(size: int) -> dict[str, Any]:
    return {"id": "r-1", "rows": ["x" * 50] * (size // 53)}


def test_B048_a_long_result_is_shown_cut_and_marked_and_kept_whole(tmp_path: Path) -> None:
    tools, value = ToolRegistry(), big_value(50_000)
    tools.register(name="dump")(lambda: value)
    path = tmp_path / "long.trace.json"
    limits = ContextLimits(max_observation_chars=2000)
    played = play([calls(("dump", {})), "done"], tools, protocol="tools", context=limits, trace=path)
    [shown] = contents(played, "tool")
    whole = len(json.dumps(value, separators=(",", ":")))
    assert len(shown) <= 2000 and f"of {whole} characters" in shown and "read_range(" in shown
    assert load(path)[0].runs[0].run.steps[0].calls[0].result == value


def test_B050_a_result_keeps_its_type_whatever_its_size() -> None:
    tools = ToolRegistry()
    seen: list[str] = []

    @tools.tool
    def get(size: int) -> dict[str, Any]:
        return big_value(size)

    def check(answer: str, context: FinishContext) -> None:
        seen.extend(record.result["id"] for step in context.steps for record in step.calls)

    play([act("get", size=1000), act("get", size=100_000), finish("x")], tools, finish_check=check)
    assert seen == ["r-1", "r-1"]


def test_B051_surrogates_become_valid_text_by_rule(tmp_path: Path) -> None:
    tools, got = ToolRegistry(), []

    @tools.tool
    def open_file(name: str) -> str:
        got.append(name)
        return "bad\udcff name"

    path = tmp_path / "emoji.trace.json"
    raw = '{"name": "\\ud83d\\ude00"}'
    played = play([calls(("open_file", raw)), "done \ud83d"], tools, protocol="tools", trace=path)
    assert got == ["\U0001f600"] and played.result.answer == "done \ufffd"
    assert load(path)[0].runs[0].run.steps[0].calls[0].result == "bad\ufffd name"
    assert json.loads(played.result.to_json())["answer"] == "done \ufffd"
    assert replay(load(path)[0]).verdict == "same"


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    return value


ENCODED: list[tuple[Any, Any]] = [
    (b"\xff", {"$bytes": "/w=="}),
    (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
    (Decimal("1.50"), {"$decimal": "1.50"}),
    ({"b", "a"}, ["a", "b"]),
    (float("nan"), {"$float": "nan"}),
    (cyclic(), {"a": 1, "self": {"$cycle": True}}),
    (Usage, {"$repr": "<class 'kernel.record.messages.Usage'>"}),
    (ValueError("v"), {"$error": "ValueError", "message": "v"}),
]


@pytest.mark.parametrize(("value", "encoded"), ENCODED, ids=[type(value).__name__ for value, _ in ENCODED])
def test_B052_a_result_that_json_cannot_hold_has_one_documented_form(value: Any, encoded: Any, tmp_path: Path) -> None:
    tools = ToolRegistry()
    tools.register(name="odd")(lambda: value)
    path = tmp_path / "odd.trace.json"
    result = play([act("odd"), finish("x")], tools, trace=path).result
    assert result.ok and result.steps[0].calls[0].result == encoded
    assert replay(load(path)[0]).verdict == "same"


def test_B054_the_sync_entry_inside_a_running_loop_names_the_async_one_and_leaves_no_file(tmp_path: Path) -> None:
    async def notebook_cell() -> None:
        Agent(tools=find_tools()).run_sync("go", llm=ScriptedModel([finish("x")]), trace=tmp_path)

    with pytest.raises(ConfigError, match=r"use `await agent\.run\(\.\.\.\)`"):
        asyncio.run(notebook_cell())
    assert list(tmp_path.iterdir()) == []


def test_B043_a_real_cancellation_inside_the_same_tool_reaches_the_caller(tmp_path: Path) -> None:
    tools, path = ToolRegistry(), tmp_path / "real.trace.json"

    async def main() -> None:
        here = asyncio.Event()

        @tools.tool
        async def leaky() -> None:
            here.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise asyncio.CancelledError("passed on") from None

        work = Agent(tools=tools).run("go", llm=ScriptedModel([act("leaky")]), trace=Tracing(file=path), **counting())
        running = asyncio.ensure_future(work)
        await here.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    run = load(path)[0].runs[0].run
    assert run.end is not None and run.end.stop_reason == "cancelled"
    [record] = run.steps[0].calls
    assert record.outcome == "cancelled" and record.error is not None
    assert "the run was cancelled" in record.error.message
