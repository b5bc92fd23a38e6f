"""For any text whatever: a reading or one fault, within the text, in time that grows with its length."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kernel.parse import loads_lenient, parse, parse_arguments

TOKENS = [
    *'{}[]()"\'`:,\\<>|=/#\n ',
    "“", "’", "：", '{"action": ', '"f"', ', "args": ', "{}", '{"a": 1}', "}}", '{"name": "f", "arguments": {"a": "x"}}',
    '\\"', "\\n", "\\d", "//", "/*", '"""', "true", "None", "NaN", "1e999", "9" * 50, "\ud800", "\x00",
    "```", "```json\n", "```bash\n", "```python\n", "~~~\n", "```tool_code\n",
    "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=a>", "</parameter>", "</parameter/>",
    '<invoke name="f">', "</invoke>", '<parameter name="a">', "<arg_key>a</arg_key>", "<arg_value>", "</arg_value>",
    "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
    "<|tool_call_begin|>functions.f:0", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|python_tag|>", "<|eom_id|>",
    "<|channel|>", "<|message|>", "<|start|>", "<|call|>", "<|end|>", "analysis", "commentary to=functions.f ", "assistant",
    "<start_function_call>", "call:f{a:", "<escape>", "<end_function_call>", "<|tool_call_start|>", "f(a=", "f(", "print(",
    "Thought: ", "Action: ", "\nAction: f", "\nAction Input: ", "\nObservation: ", "\nFinal Answer: ", "f[x]", "思考：", "\n动作：",
    "<think>", "</think>", "[THINK]", "[/THINK]", "<command>", "</command>", "<code>\n", "</code>", "for example ", " or ", "&lt;",
    "<tool_response>", "<|im_end|>", "✿FUNCTION✿: f\n✿ARGS✿: ", ">>>f\n",
]  # fmt: skip

mixtures = st.lists(st.sampled_from(TOKENS), max_size=25).map("".join)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=40), inner, max_size=4),
    max_leaves=12,
)
arguments = st.dictionaries(st.text(max_size=40), values, max_size=4)


@given(
    any_text | mixtures,
    st.sampled_from([None, "stop", "length", "tool_calls"]),
    st.sets(st.sampled_from(["f", "bash", "a"])),
)
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused_with_a_place_in_it(text: str, finish_reason: str | None, names: set[str]) -> None:
    parsed = parse(text, finish_reason=finish_reason, tool_names=names)
    assert bool(parsed.calls) != (parsed.fault is not None)
    if parsed.fault:
        assert 0 <= parsed.fault.position <= len(text)
        assert parsed.fault.message
    behind = 0
    for call in parsed.calls:
        assert 0 <= call.start <= call.end <= len(text)
        assert call.end >= behind
        behind = call.end
        assert call.name


@given(any_text | mixtures)
@settings(max_examples=200, deadline=None)
def test_any_arguments_string_is_read_or_refused(text: str) -> None:
    args, _, fault = parse_arguments(text)
    assert (args is None) != (fault is None)
    if fault:
        assert 0 <= fault.position <= len(text)


@given(any_text | mixtures)
@settings(max_examples=200, deadline=None)
def test_lenient_reading_raises_only_its_own_error(text: str) -> None:
    try:
        loads_lenient(text)
    except ValueError as error:
        assert error.args[0].rule


@given(mixtures)
@settings(max_examples=100, deadline=None)
def test_a_cut_reply_never_gives_a_call(text: str) -> None:
    assert parse(text, finish_reason="length").calls == ()


@given(arguments, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=200, deadline=None)
def test_strict_json_keeps_its_meaning(args: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    """Alone, behind prose, fenced and in a tag, a strict action gives exactly its arguments, unrepaired."""
    flat = json.dumps({"name": "f", "arguments": args}, ensure_ascii=ascii_only, indent=indent)
    for raw in (flat, f"I look.\n{flat}", f"I look.\n```json\n{flat}\n```", f"<tool_call>\n{flat}\n</tool_call>"):
        if args.get("type") == "object" and "properties" in args:
            return
        calls = parse(raw).calls
        assert [(call.name, call.args, call.repaired) for call in calls] == [("f", args, False)]


@given(arguments)
@settings(max_examples=150, deadline=None)
def test_lenient_reading_of_strict_json_is_the_strict_one(args: dict[str, Any]) -> None:
    """The second reader, forced by a trailing comma, agrees with the standard one on everything else."""
    assert loads_lenient("[" + json.dumps(args) + ",]") == ([args], True)


@given(arguments, st.data())
@settings(max_examples=200, deadline=None)
def test_a_prefix_of_an_action_never_gives_a_call(args: dict[str, Any], data: st.DataObject) -> None:
    whole = json.dumps({"action": "f", "args": args})
    cut = data.draw(st.integers(0, len(whole) - 1))
    for opening in ("", "I look.\n", "```json\n", "<tool_call>\n", "Action: f\nAction Input: ", "[TOOL_CALLS]f[ARGS]"):
        assert parse(opening + whole[:cut]).calls == () or (opening.startswith("Action: f") and cut == 0)


HOSTILE = [
    "{", "[", '"', "\\", "```\n", "```json\n", "<tool_call>", "Action: x\n", "Action: x\nAction Input: {", "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>", "<think>", "</think>", '{"a":', '{"action": "x", "args": {"a":', '{"a', '{\\"a', "<function=a>",
    "<function=a>\n<parameter=b>\n", "<function=a><parameter=b>x</parameter>", '<invoke name="a">', "[TOOL_CALLS]", "[ARGS]",
    "<|channel|>analysis<|message|>", "f(a=", "print(", "(", " ", "\n", "Action: a[", '{"a": "b" c ', '{"a": "b"c" ',
    '{"a":1 // ', "`{`", "<|python_tag|>", "<start_function_call>call:a{b:<escape>", '{"a": "C:\\b', '{"name":"x","arguments":{}}',
    '<tool_call>{"name":"a","arguments":{}}\n', "<arg_key>", "<tool_call>f\n<arg_key>a</arg_key><arg_value>b", "to=functions.a {",
]  # fmt: skip


@pytest.mark.parametrize("seed", HOSTILE)
def test_a_long_hostile_text_is_read_to_its_end(seed: str) -> None:
    """Work that grew with the square of the length would hold this up for minutes."""
    parsed = parse(seed * (50_000 // len(seed)))
    assert bool(parsed.calls) != (parsed.fault is not None)


@pytest.mark.parametrize(
    "opening", ["{", "[", "(", '{"a":', "f(a=[", '[f(a={"b":', '{"action": "f", "args": {"a": ' + "["]
)
def test_deep_nesting_is_a_fault(opening: str) -> None:
    assert parse(opening * 20_000).calls == ()
    assert parse_arguments(opening * 20_000)[0] is None


def test_nesting_beyond_the_bound_is_refused_though_it_is_strict_json() -> None:
    deep = "[" * 150 + "]" * 150
    fault = parse(f'{{"action": "f", "args": {{"a": {deep}}}}}').fault
    assert fault is not None
    assert fault.rule == "too-deep"
