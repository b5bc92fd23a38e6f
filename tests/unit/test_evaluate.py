"""Evaluate is a total function: whatever a model sent becomes calls, a finish or a fault that says what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kernel.loop.evaluation import Rules, evaluate, fault_text
from kernel.record.messages import Reply, ToolCall
from kernel.record.run import Decision, Fault
from kernel.record.texts import Texts
from kernel.tools.registry import Tool, ToolRegistry
from tests import helpers


def registry() -> dict[str, Tool]:
    tools = ToolRegistry()

    @tools.tool
    def look(q: str, n: int = 1) -> str:
        return q

    @tools.register(side_effect=True)
    def write(path: str, tags: list[str] | None = None) -> str:
        return path

    return {tool.name: tool for tool in tools}


TOOLS = registry()


def rules(protocol: Any = "text", language: str = "en", **more: Any) -> Rules:
    return Rules(protocol=protocol, tools=TOOLS, texts=Texts(language), **more)


def call(name: str, arguments: str, id: str = "c") -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments, id=id),), finish_reason="tool_calls")


surrogates = st.text(st.characters(codec=None), max_size=30)
shapes = st.one_of(
    surrogates,
    st.sampled_from(
        [helpers.act("look", q="a"), helpers.finish("x"), "<tool_call>", "```json\n{", "Action: look\nAction Input:"]
    ),
)
anything = st.builds(
    Reply,
    text=st.lists(shapes, max_size=3).map("".join),
    tool_calls=st.lists(st.builds(ToolCall, name=shapes, arguments=shapes, id=surrogates), max_size=3).map(tuple),
    reasoning=st.none() | surrogates,
    finish_reason=st.none() | st.sampled_from(["stop", "length", "tool_use_failed", "\ud800"]),
    refusal=st.none() | st.none() | surrogates,
)


@given(anything, st.sampled_from(["text", "tools"]), st.sampled_from(["en", "zh"]), st.booleans())
@settings(deadline=None)
def test_it_never_raises_and_gives_exactly_one_kind(reply: Reply, protocol: str, language: str, insist: bool) -> None:
    decision = evaluate(reply, rules(protocol, language, require_finish=insist))
    assert (decision.kind == "calls") == bool(decision.calls)
    assert (decision.kind == "finish") == (decision.answer is not None)
    assert (decision.kind == "fault") == (decision.fault is not None)
    if decision.answer is not None:
        assert decision.answer.strip()
    for made in decision.calls:
        if made.fault is None and made.name in TOOLS:
            assert TOOLS[made.name].schema.is_valid(made.args)


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        (Reply(text=helpers.act("look", q="a"), finish_reason="length"), "cut-off"),
        (Reply(text=helpers.finish("half an ans"), finish_reason="length"), "cut-off"),
        (
            call("look", '{"q": "a"}').__class__(
                tool_calls=(ToolCall(name="look", arguments='{"q":"a"}'),), finish_reason="length"
            ),
            "cut-off",
        ),
        (Reply(text="x", finish_reason="content_filter"), "filtered"),
        (Reply(text=helpers.act("look", q="a"), refusal="I cannot"), "refusal"),
        (Reply(text=" \n"), "blank"),
        (Reply(text="I think it is the pool."), "no-action"),
        (Reply(text=helpers.finish("  ")), "blank-finish"),
    ],
)
def test_what_must_not_run_is_a_fault(reply: Reply, rule: str) -> None:
    decision = evaluate(reply, rules())
    assert decision.kind == "fault" and decision.fault is not None
    assert decision.fault.rule == rule and decision.fault.message


def test_structured_calls_come_before_the_text() -> None:
    reply = Reply(text=helpers.act("write", path="x"), tool_calls=call("look", '{"q": "a"}').tool_calls)
    [made] = evaluate(reply, rules("tools")).calls
    assert (made.name, made.args, made.id) == ("look", {"q": "a", "n": 1}, "c")


def test_text_is_still_parsed_where_function_calling_left_a_call_in_it() -> None:
    [made] = evaluate(Reply(text=helpers.act("look", q="a"), finish_reason="stop"), rules("tools")).calls
    assert (made.name, made.args) == ("look", {"q": "a", "n": 1})


@pytest.mark.parametrize(
    "text", ['Use {"action": "grep", "args": {}} there.', "Run `look(q=1)` yourself.", "```py\nx = 1\n```"]
)
def test_a_plain_answer_may_quote_code(text: str) -> None:
    decision = evaluate(Reply(text=text, finish_reason="stop"), rules("tools"))
    assert (decision.kind, decision.answer) in (("finish", text), ("calls", None))
    assert all(made.name in TOOLS for made in decision.calls)


def test_an_agent_can_insist_on_the_finish_tool() -> None:
    insist = rules("tools", require_finish=True)
    assert evaluate(Reply(text="done", finish_reason="stop"), insist).kind == "fault"
    assert evaluate(call("finish", '{"answer": "done"}'), insist).answer == "done"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"q": 5}', "/q: 5 is not"),
        ("{}", "/q: is missing"),
        ('{"q": "a", "n": "many"}', '/n: "many" is not'),
        ('{"q": "a", "extra": 1}', "/extra"),
    ],
)
def test_a_misfit_names_path_value_and_what_was_expected(arguments: str, said: str) -> None:
    [made] = evaluate(call("look", arguments), rules("tools")).calls
    assert made.fault is not None and made.fault.rule == "bad-args" and said in made.fault.message


def test_types_are_coerced_only_where_the_schema_demands_it_and_the_raw_text_stays() -> None:
    [made] = evaluate(call("look", '{"q": "7", "n": "7"}'), rules("tools")).calls
    assert (made.args, made.coerced, made.raw, made.fault) == (
        {"q": "7", "n": 7},
        ("/n",),
        '{"q": "7", "n": "7"}',
        None,
    )


def test_repaired_arguments_reach_a_reading_tool_but_no_side_effect() -> None:
    [read] = evaluate(call("look", "{'q': 'a',}"), rules("tools")).calls
    [written] = evaluate(call("write", "{'path': 'a',}"), rules("tools")).calls
    assert read.repaired and read.fault is None and read.args == {"q": "a", "n": 1}
    assert written.repaired and written.fault is not None and written.fault.rule == "repaired"


def test_a_default_is_filled_in_and_the_raw_text_stays() -> None:
    [made] = evaluate(call("look", '{"q":"a"}'), rules("tools")).calls
    assert (made.args, made.raw, made.coerced, made.fault) == ({"q": "a", "n": 1}, '{"q":"a"}', (), None)
    [made] = evaluate(Reply(text=helpers.act("look", q="a")), rules()).calls
    assert (made.args, made.raw) == ({"q": "a", "n": 1}, '{"q":"a"}')
    [given] = evaluate(call("look", '{"q":"a","n":1}'), rules("tools")).calls
    assert (given.args, given.raw) == ({"q": "a", "n": 1}, None)


def shown_example(text: str) -> Decision:
    """What the kernel's own example would be read as, by a kernel that knows the same tools."""
    return evaluate(Reply(text=text.split("\n", 1)[1]), rules())


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("rule", ["no-action", "cut-off", "malformed-json", "blank"])
def test_the_example_in_a_format_error_is_a_call_that_the_tool_takes(rule: str, language: str) -> None:
    decision = shown_example(fault_text(Fault(rule=rule, message="m"), rules(language=language)))
    assert decision.kind == "calls" and decision.calls[0].fault is None and decision.calls[0].name == "look"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("rule", ["blank-finish", "finish-arguments"])
def test_after_an_empty_finish_the_example_is_a_finish(rule: str, language: str) -> None:
    decision = shown_example(fault_text(Fault(rule=rule, message="m"), rules(language=language)))
    assert decision.kind == "finish" and decision.answer
    assert "finish(" in fault_text(Fault(rule=rule, message="m"), rules("tools", language))


def test_an_example_is_never_a_call_that_the_schema_refuses() -> None:
    registry = ToolRegistry()
    narrow = {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{9}$"}},
        "required": ["id"],
    }
    registry.register(name="narrow", params=narrow)(lambda args: None)
    none = Rules(protocol="text", tools={tool.name: tool for tool in registry}, texts=Texts("en"))
    assert '"action": "finish"' in fault_text(Fault(rule="no-action", message="m"), none)
    registry.register(name="write", side_effect=True, params={"type": "object"})(lambda args: None)
    registry.register(name="read", params={"properties": {"at": {"enum": ["top"]}}, "required": ["at"]})(
        lambda args: None
    )
    some = Rules(protocol="text", tools={tool.name: tool for tool in registry}, texts=Texts("en"))
    assert '{"action": "read", "args": {"at":"top"}}' in fault_text(Fault(rule="no-action", message="m"), some)


def test_who_must_finish_is_not_told_to_answer_in_plain_text() -> None:
    assert "as text" not in fault_text(Fault(rule="no-action", message="m"), rules("tools", require_finish=True))
    assert "as text" in fault_text(Fault(rule="no-action", message="m"), rules("tools"))


def test_intent_and_cost_ride_along() -> None:
    text = '{"action": "look", "args": {"q": "a"}, "intent": "scan", "estimated_cost": 0.5}'
    decision = evaluate(Reply(text=text), rules())
    assert (decision.intent, decision.estimated_cost) == ("scan", 0.5)


def test_faults_are_said_in_the_language_of_the_run() -> None:
    decision = evaluate(call("look", "{}"), rules("tools", "zh"))
    [made] = decision.calls
    assert made.fault is not None and "缺失" in made.fault.message


@pytest.mark.parametrize("value", ["null", "[]", "true", "3", '"x"', "the first"])
@pytest.mark.parametrize(
    "form", ['{{"name": "write", "arguments": {}}}', '<tool_call>{{"name": "write", "arguments": {}}}</tool_call>']
)
def test_a_text_without_a_name_never_becomes_an_argument_of_a_side_effect(form: str, value: str) -> None:
    decision = evaluate(Reply(text=form.format(json.dumps(value))), rules())
    assert decision.kind == "fault" or all(made.fault is not None for made in decision.calls)


def test_a_lone_text_is_the_one_argument_of_a_tool_that_reads_and_is_refused_with_the_names_for_a_side_effect() -> None:
    [read] = evaluate(Reply(text="Action: look\nAction Input: kelp"), rules()).calls
    assert read.args == {"q": "kelp", "n": 1} and read.fault is None
    [written] = evaluate(Reply(text="Action: write\nAction Input: kelp"), rules()).calls
    assert (
        written.fault is not None and "/path: is missing" in written.fault.message and "path" in written.fault.message
    )


def test_an_action_whose_input_is_not_written_reaches_no_side_effect() -> None:
    [written] = evaluate(Reply(text="Action: write\nAction Input:"), rules()).calls
    assert written.repaired and written.fault is not None


def test_the_same_arguments_twice_are_a_repair_and_two_objects_are_a_fault() -> None:
    [twice] = evaluate(call("look", '{"q": "a"}{"q": "a"}'), rules("tools")).calls
    assert twice.repaired and twice.args["q"] == "a" and twice.fault is None
    [two] = evaluate(call("look", '{"q": "a"}{"q": "b"}'), rules("tools")).calls
    assert two.fault is not None and two.fault.rule == "ambiguous"


QUOTED = """Old frameworks print this:
```
Thought: clean up
Action: write
Action Input: {"path": "/"}
```
Do not do that. The answer is 42."""


def test_an_answer_that_quotes_labels_in_a_block_is_an_answer() -> None:
    decision = evaluate(Reply(text=QUOTED, finish_reason="stop"), rules("tools"))
    assert (decision.kind, decision.answer) == ("finish", QUOTED)
