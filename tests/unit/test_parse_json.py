"""JSON actions: the shapes a call takes, the noise that may be removed, and where the reader must refuse."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.parse import loads_lenient, parse, parse_arguments

Call = tuple[str, dict[str, Any]]

SHAPES: dict[str, tuple[str, list[Call]]] = {
    "action and args": ('{"action": "f", "args": {"a": 1}}', [("f", {"a": 1})]),
    "tool and tool_input": ('{"tool": "f", "tool_input": {"a": 1}}', [("f", {"a": 1})]),
    "function and arguments": ('{"function": "f", "arguments": {"a": 1}}', [("f", {"a": 1})]),
    "tool_name and parameters": ('{"tool_name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})]),
    "title-case keys with a space": ('{"Action": "f", "Action Input": {"a": 1}}', [("f", {"a": 1})]),
    "escaped underscore in a key": ('{"action": "f", "action\\_input": {"a": 1}}', [("f", {"a": 1})]),
    "Chinese keys": ('{"动作": "f", "参数": {"a": 1}}', [("f", {"a": 1})]),
    "nested function object": (
        '{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}',
        [("f", {"a": 1})],
    ),
    "function object beside its arguments": ('{"function": {"name": "f"}, "arguments": {"a": 1}}', [("f", {"a": 1})]),
    "nested action object": ('{"thought": "t", "action": {"name": "f", "args": {"a": 1}}}', [("f", {"a": 1})]),
    "command object": ('{"thoughts": {"text": "t"}, "command": {"name": "f", "args": {"a": 1}}}', [("f", {"a": 1})]),
    "function_call": ('{"function_call": {"name": "f", "arguments": "{}"}}', [("f", {})]),
    "tool_use block": ('{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}', [("f", {"a": 1})]),
    "tool_calls of a message": (
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}',
        [("f", {})],
    ),
    "list of calls": (
        '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        [("f", {"a": 1}), ("g", {})],
    ),
    "parallel wrapper as a call": (
        '{"name": "multi_tool_use.parallel", "arguments": {"tool_uses": [{"recipient_name": "functions.f", "parameters": {}}]}}',
        [("f", {})],
    ),
    "one-element list of arguments": ('{"action": "f", "args": [{"a": 1}]}', [("f", {"a": 1})]),
    "a text input that starts with a brace": (
        '{"action": "awk", "action_input": "{print $1}"}',
        [("awk", {"input": "{print $1}"})],
    ),
    "finish is an ordinary action": ('{"action": "finish", "args": {"answer": "42"}}', [("finish", {"answer": "42"})]),
    "LangChain's final answer": (
        '{"action": "Final Answer", "action_input": "42"}',
        [("final_answer", {"input": "42"})],
    ),
    "prose, then fenced action": ('I look.\n```json\n{"action": "f", "args": {}}\n```', [("f", {})]),
    "fence of another name": ('```tool_call\n{"name": "f", "arguments": {}}\n```', [("f", {})]),
    "fence never closed around whole JSON": ('```json\n{"action": "f", "args": {}}', [("f", {})]),
    "whole text in single backticks": ('`{"action": "f", "args": {}}`', [("f", {})]),
    "one brace too many": ('{"action": "f", "args": {"a": 1}}}', [("f", {"a": 1})]),
    "data before the action": ('{"plan": ["x"]}\n{"action": "f", "args": {}}', [("f", {})]),
    "action after braces in prose": ('The set {a, b} matters.\n{"action": "f", "args": {}}', [("f", {})]),
    "thinking tag inside a string": (
        'Save it.\n{"action": "f", "args": {"t": "<think>x</think>"}}',
        [("f", {"t": "<think>x</think>"})],
    ),
    "marker inside a string": (
        'Save it.\n{"action": "f", "args": {"t": "<tool_call>{}</tool_call>"}}',
        [("f", {"t": "<tool_call>{}</tool_call>"})],
    ),
    "an invented observation ends the reply": (
        '{"action": "f", "args": {}}\nObservation: 3\n{"action": "g", "args": {}}',
        [("f", {})],
    ),
    "the same action twice": ('{"action": "f", "args": {}}\nor {"action": "f", "args": {}}', [("f", {}), ("f", {})]),
    "an example in another language's block": (
        '```python\nx = {"name": "g", "arguments": {}}\n```\n{"action": "f", "args": {}}',
        [("f", {})],
    ),
}

NOISE: dict[str, tuple[str, Any]] = {
    "line comment": ('{"a": 1, // why\n "b": 2}', {"a": 1, "b": 2}),
    "hash comment": ('{"a": 1, # why\n "b": 2}', {"a": 1, "b": 2}),
    "block comment": ('{"a": /* why */ 1}', {"a": 1}),
    "trailing comma in an array": ('{"a": [1, 2,]}', {"a": [1, 2]}),
    "two commas": ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}),
    "comma missing at a line end": ('{"a": "x"\n "b": "y"}', {"a": "x", "b": "y"}),
    "comma missing between objects": ('[{"a": 1} {"a": 2}]', [{"a": 1}, {"a": 2}]),
    "raw line break and tab": ('{"a": "x\n\ty"}', {"a": "x\n\ty"}),
    "python dict": ("{'a': True, 'b': None, 'c': 'd'}", {"a": True, "b": None, "c": "d"}),
    "apostrophe in single quotes": ("{'a': 'it's', 'b': 'x'}", {"a": "it's", "b": "x"}),
    "quotes around a word": ('{"a": "say "hi" now", "b": 1}', {"a": 'say "hi" now', "b": 1}),
    "quotes at the end": ('{"a": "say "hi""}', {"a": 'say "hi"'}),
    "quotes before a comma": ('{"a": "the "x", then y", "b": 1}', {"a": 'the "x", then y', "b": 1}),
    "curly quotes around an inner pair": ("{“a”: “b”, “c”: 1}", {"a": "b", "c": 1}),
    "single curly quotes": ("{‘a’: ‘b’}", {"a": "b"}),
    "full-width punctuation": ('{"a"： 1， "b"： 2}', {"a": 1, "b": 2}),
    "everything over-escaped": ('{\\"a\\": \\"b\\", \\"c\\": \\"say \\\\\\"hi\\\\\\"\\"}', {"a": "b", "c": 'say "hi"'}),
    "no-break spaces": ('{\xa0"a":\xa01,}', {"a": 1}),
    "triple quotes": ('{"code": """print("x")\nprint("y")"""}', {"code": 'print("x")\nprint("y")'}),
    "backtick string": ('{"code": `print("x")`}', {"code": 'print("x")'}),
    "unquoted keys": ("{a: 1, b_c: [true]}", {"a": 1, "b_c": [True]}),
    "escaped apostrophe": ('{"a": "it\\\'s"}', {"a": "it's"}),
    "a shell's apostrophe": ("{\"a\": \"'it'\\''s'\"}", {"a": "'it'\\''s'"}),
    "Windows path with n and t": ('{"p": "C:\\new\\temp\\app"}', {"p": "C:\\new\\temp\\app"}),
    "LaTeX with an unknown escape": ('{"t": "\\alpha\\frac{1}{2}"}', {"t": "\\alpha\\frac{1}{2}"}),
    "regular expression and a line break": ('{"t": "\\d+\\n "}', {"t": "\\d+\n "}),
    "object in stray quotes": ('{"a": "{"b": 1}"}', {"a": {"b": 1}}),
    "stray word": ('{"a": true, oops "b": 1}', {"a": True, "b": 1}),
}

REFUSED: dict[str, tuple[str, str]] = {
    "open at the end": ('{"action": "f", "args": {"a": 1}', "cut-off"),
    "cut in a key": ('{"action": "f", "ar', "cut-off"),
    "cut behind a colon": ('{"action": "f", "args":', "cut-off"),
    "cut behind prose": ('I write it.\n{"action": "f", "args": {"a": "x', "cut-off"),
    "cut in a fence": ('```json\n{"action": "f", "args": {"a": "x\n```', "cut-off"),
    "cut inside a string of JSON": ('{"name": "f", "arguments": "{\\"a\\": \\"x"}', "cut-off"),
    "list never closed": ('[{"name": "f", "arguments": {}}', "cut-off"),
    "a word for a value": ('{"action": "f", "args": {"a": later}}', "malformed-json"),
    "closing quote missing": ('{"action": "f", "args": {"a": "x, "b": 1}}', "ambiguous"),
    "left out": ('{"action": "f", "args": {"a": [1, ...]}}', "malformed-json"),
    "two names": ('{"action": "f", "tool": "g", "args": {}}', "ambiguous"),
    "two sets of arguments": ('{"name": "f", "arguments": {"a": 1}, "parameters": {"a": 2}}', "ambiguous"),
    "a key twice": ('{"action": "f", "args": {"a": 1, "a": 2}}', "ambiguous"),
    "closed too early": ('{"name": "f", "arguments": {"a": 1}}, "b": 2}}', "malformed-json"),
    "a choice": ('{"action": "f", "args": {}}\nor\n{"action": "g", "args": {}}', "ambiguous"),
    "taken back": ('{"action": "f", "args": {}}\nWait, that is wrong.\n{"action": "g", "args": {}}', "ambiguous"),
    "arguments in a list": ('{"name": "f", "arguments": [1, 2]}', "not-an-object"),
    "line break or letter": ('{"action": "f", "args": {"a": "\\d\\new"}}', "ambiguous"),
    "not a number": ('{"action": "f", "args": {"a": NaN}}', "malformed-json"),
    "too large a number": ('{"action": "f", "args": {"a": 1e999}}', "malformed-json"),
    "strings side by side": ('{"action": "f", "args": {"a": ["x" "y"]}}', "ambiguous"),
    "two strings for one value": ('{"action": "f", "args": {"a": "x" "y"}}', "ambiguous"),
    "no name to the arguments": ('{"args": {"a": 1}}', "no-action"),
    "no tool wanted": ('{"action": "None", "args": {}}', "no-action"),
    "a tool's definition": (
        '{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}',
        "no-action",
    ),
    "plain data": ('{"answer": 42}', "no-action"),
    "an announced example": ('For example, you could send:\n{"action": "f", "args": {}}', "no-action"),
    "a disowned call": ('```json\n{"action": "f", "args": {}}\n```\nThis is just an example.', "no-action"),
    "a block with prose behind": (
        '```json\n{"action": "f", "args": {}}\n```\nThis will list the files.',
        "no-action",
    ),
    "a thought of a call": ('I could call {"action": "f", "args": {}}', "no-action"),
    "in the middle of a sentence": ('The log shows {"action": "f", "args": {}} as the culprit.', "no-action"),
    "in backticks in a sentence": ('Do not send `{"action": "f", "args": {}}` here.', "no-action"),
    "in a Chinese example": ('例如：\n{"action": "f", "args": {}}', "no-action"),
    "behind a final answer": ('Final Answer: use {"action": "f", "args": {}}', "no-action"),
}


@pytest.mark.parametrize(("raw", "expected"), SHAPES.values(), ids=SHAPES)
def test_shape_is_a_call(raw: str, expected: list[Call]) -> None:
    assert [(call.name, call.args) for call in parse(raw).calls] == expected


@pytest.mark.parametrize(("raw", "expected"), NOISE.values(), ids=NOISE)
def test_noise_is_removed_and_said(raw: str, expected: Any) -> None:
    assert loads_lenient(raw) == (expected, True)


@pytest.mark.parametrize(("raw", "rule"), REFUSED.values(), ids=REFUSED)
def test_text_gives_no_call(raw: str, rule: str) -> None:
    parsed = parse(raw)
    assert parsed.calls == ()
    assert parsed.fault is not None
    assert parsed.fault.rule == rule


def test_a_cut_reply_is_a_fault_even_where_its_action_is_whole() -> None:
    parsed = parse('{"action": "f", "args": {}}', finish_reason="length")
    assert parsed.fault is not None
    assert parsed.fault.rule == "cut-off"


def test_strict_json_is_not_marked_as_repaired() -> None:
    assert not parse('Go.\n{"action": "f", "args": {"a": "\\ud83d\\ude00"}}').calls[0].repaired
    assert parse('{"action": "f", "args": {"a": 1,}}').calls[0].repaired


def test_intent_and_cost_ride_along() -> None:
    call = parse('{"action": "f", "args": {}, "intent": "see", "estimated_cost": 0.25, "thought": "hm"}').calls[0]
    assert (call.intent, call.estimated_cost, call.thought) == ("see", 0.25, "hm")


@pytest.mark.parametrize("cost", ['"much"', "true", "-1", "null", "1" + "0" * 400])
def test_an_unusable_cost_is_none(cost: str) -> None:
    assert parse(f'{{"action": "f", "args": {{}}, "estimated_cost": {cost}}}').calls[0].estimated_cost is None


def test_a_known_tool_may_be_named_alone() -> None:
    assert parse('{"action": "list_files"}').fault is not None
    assert parse('{"action": "list_files"}', tool_names=["list_files"]).calls[0].args == {}


@pytest.mark.parametrize(
    ("text", "args", "repaired"),
    [
        ("", {}, False),
        (" null ", {}, False),
        ('{"a": 1}', {"a": 1}, False),
        ('"{\\"a\\": 1}"', {"a": 1}, False),
        ('[{"a": 1}]', {"a": 1}, True),
        ('{"a": 1,}', {"a": 1}, True),
        ('{"a": 1}}', {"a": 1}, True),
        ('```json\n{"a": 1}\n```', {"a": 1}, True),
        ('{"a": 1}</tool_call>', {"a": 1}, True),
    ],
)
def test_arguments_string_is_read(text: str, args: dict[str, Any], repaired: bool) -> None:
    assert parse_arguments(text) == (args, repaired, None)


@pytest.mark.parametrize(
    ("text", "rule", "position"),
    [
        ('{"path":"a.txt","text":"hello   ', "cut-off", 32),
        ('{"action": listt"}', "malformed-json", 11),
        ('{"a": 1}{"a": 2}', "ambiguous", 8),
        ("[1, 2]", "not-an-object", 0),
        ("42", "not-an-object", 0),
        ('"words"', "not-an-object", 0),
        ("words", "malformed-json", 0),
    ],
)
def test_arguments_string_is_refused_with_its_place(text: str, rule: str, position: int) -> None:
    args, _, fault = parse_arguments(text)
    assert args is None
    assert fault is not None
    assert (fault.rule, fault.position) == (rule, position)


def test_malformed_arguments_are_not_called_cut_off() -> None:
    fault = parse_arguments('{"action": listt"}')[2]
    assert fault is not None
    assert "offset 11" in fault.message
    assert "end" not in fault.message


def test_lenient_reading_says_why_it_refuses() -> None:
    with pytest.raises(ValueError, match="cut-off"):
        loads_lenient('{"a": ')
