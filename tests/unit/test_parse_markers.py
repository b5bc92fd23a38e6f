"""Calls behind a model's own markers: whole, bent, cut, quoted."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.parse import parse

Call = tuple[str, dict[str, Any]]

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
F1 = [("f", {"a": 1})]
NS = "antml" + ":"

JSON_IN_TAGS: dict[str, tuple[str, list[Call]]] = {
    "two tags": (CALL + "\n" + CALL.replace("1", "2"), [("f", {"a": 1}), ("f", {"a": 2})]),
    "two objects in a tag": (
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}\n</tool_call>',
        [*F1, ("g", {})],
    ),
    "a list in a tag": ('<tool_call>[{"name": "f", "arguments": {"a": 1}}]</tool_call>', F1),
    "tag never closed around whole JSON": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}', F1),
    "opening tag twice": ('<tool_call>\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', F1),
    "opening tag for a closing one": ('<tool_call>{"name": "f", "arguments": {"a": 1}}<tool_call>', F1),
    "fence in a tag": ('<tool_call>\n```json\n{"name": "f", "arguments": {"a": 1}}\n```\n</tool_call>', F1),
    "tag in a fence": ('```xml\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n```', F1),
    "python dict in a tag": ("<tool_call>{'name': 'f', 'arguments': {'a': 1}}</tool_call>", F1),
    "a brace too many in a tag": ('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>', F1),
    "name alone in a closed tag": ('<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
    "prose before and behind": (f"I look.\n{CALL}\nNow I wait.", F1),
    "an invented response ends the reply": (
        CALL + "\n<tool_response>3</tool_response>\n" + CALL.replace("1", "2"),
        F1,
    ),
    "another turn ends the reply": (CALL + "<|im_end|>\n<|im_start|>user\nhi\n" + CALL.replace("1", "2"), F1),
    "function_call tag": ('<function_call>{"name": "f", "arguments": {"a": 1}}</function_call>', F1),
    "functioncall with quoted arguments": (
        """<functioncall> {"name": "f", "arguments": '{"a": 1}'} </functioncall>""",
        F1,
    ),
    "tools tag": ('<tools>\n{"name": "f", "arguments": {"a": 1}}\n</tools>', F1),
    "tool-use tag": ('<tool-use>{"tool_calls": [{"name": "f", "parameters": {"a": 1}}]}</tool-use>', F1),
    "TOOLCALL list": ('<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>', F1),
    "granite token": ('<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]', F1),
    "internlm": ('Sure<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": 1}}<|action_end|>', F1),
    "command-r": (
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>',
        F1,
    ),
    "functools": ('functools[{"name": "f", "arguments": {"a": 1}}]', F1),
}

ARGUMENTS_IN_TAGS: dict[str, tuple[str, list[Call]]] = {
    "parameters without the wrapper": (
        "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>",
        [("f", {"a": "x"})],
    ),
    "several parameters": (
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\ny\n</parameter>\n</function>\n</tool_call>",
        [("f", {"a": "1", "b": "x\ny"})],
    ),
    "function tag never closed, wrapper closed": (
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</tool_call>",
        [("f", {"a": "x"})],
    ),
    "no parameters": ("<tool_call>\n<function=f>\n</function>\n</tool_call>", [("f", {})]),
    "parameter never closed before the next": (
        "<function=f>\n<parameter=a>\nx\n<parameter=b>\ny\n</parameter>\n</function>",
        [("f", {"a": "x", "b": "y"})],
    ),
    "closing tags inside a value": (
        "<function=f>\n<parameter=a>\nuse </parameter> and </function> well\n</parameter>\n</function>",
        [("f", {"a": "use </parameter> and </function> well"})],
    ),
    "two function calls": (
        "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n<function=g>\n</function>",
        [("f", {"a": "1"}), ("g", {})],
    ),
    "blank lines of a value are kept": (
        "<function=f><parameter=a>\n\nx\n\n</parameter></function>",
        [("f", {"a": "\nx\n"})],
    ),
    "namespaced wrapper": (
        "<seed:tool_call><function=f><parameter=a>1</parameter></function></seed:tool_call>",
        [("f", {"a": "1"})],
    ),
    "invoke with a prefix": (
        f'<{NS}invoke name="f">\n<{NS}parameter name="a">x</{NS}parameter>\n</{NS}invoke>',
        [("f", {"a": "x"})],
    ),
    "two invokes": (
        '<invoke name="f"><parameter name="a">1</parameter></invoke>\n<invoke name="g"></invoke>',
        [("f", {"a": "1"}), ("g", {})],
    ),
    "invoke with single quotes": ("<invoke name='f'><parameter name='a'>1</parameter></invoke>", [("f", {"a": "1"})]),
    "numeric entities": ('<invoke name="f"><parameter name="a">&#65;&#x42;</parameter></invoke>', [("f", {"a": "AB"})]),
    "entities beside raw ampersands stay": (
        '<invoke name="f"><parameter name="a">a && b &lt;</parameter></invoke>',
        [("f", {"a": "a && b &lt;"})],
    ),
    "HTML names are no entities here": (
        '<invoke name="f"><parameter name="a">/?a=1&copy=2</parameter></invoke>',
        [("f", {"a": "/?a=1&copy=2"})],
    ),
    "CDATA": (
        '<invoke name="f"><parameter name="a"><![CDATA[a < b && c]]></parameter></invoke>',
        [("f", {"a": "a < b && c"})],
    ),
    "DSML value marked as JSON": (
        '<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="false">[1, 2]</｜DSML｜parameter>'
        "</｜DSML｜invoke></｜DSML｜function_calls>",
        [("f", {"a": [1, 2]})],
    ),
    "DSML value marked as text": (
        '<｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="true">1 &amp; 2</｜DSML｜parameter></｜DSML｜invoke>',
        [("f", {"a": "1 &amp; 2"})],
    ),
    "DSML in plain bars": (
        '<|DSML|invoke name="f"><|DSML|parameter name="a" string="true">x</|DSML|parameter></|DSML|invoke>',
        [("f", {"a": "x"})],
    ),
    "step's prefix": (
        '<steptml:invoke name="f"><steptml:parameter name="a">x</steptml:parameter></steptml:invoke>',
        [("f", {"a": "x"})],
    ),
    "parameters as tags of their own": (
        "<invoke>\n<tool_name>f</tool_name>\n<parameters>\n<a>x &amp; y</a>\n</parameters>\n</invoke>",
        [("f", {"a": "x & y"})],
    ),
    "glm on one line": (
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        [("f", {"a": "1"})],
    ),
    "glm without arguments": ("<tool_call>f\n</tool_call>", [("f", {})]),
    "glm closing tag inside a value": (
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x </arg_value> y</arg_value>\n</tool_call>",
        [("f", {"a": "x </arg_value> y"})],
    ),
    "glm twice": (
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
        [("f", {"a": "1"}), ("g", {})],
    ),
}

TOKENS: dict[str, tuple[str, list[Call]]] = {
    "llama tag without its bracket": ('<function=f{"a": 1}</function>', F1),
    "llama tag with an equals sign": ('<function=f={"a": 1}</function>', F1),
    "llama tag with parentheses": ('<function=f({"a": 1})</function>', F1),
    "llama tag closed by an opening one": ('<function=f>{"a": 1}<function>', F1),
    "llama tag never closed": ('<function=f>{"a": 1}', F1),
    "llama opening tag lost": ('f{"a": 1}</function>', F1),
    "python tag with JSON": ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>', F1),
    "python tag with two calls": (
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        [*F1, ("g", {})],
    ),
    "python tag with a built-in call": (
        '<|python_tag|>brave_search.call(query="x")',
        [("brave_search", {"query": "x"})],
    ),
    "python tag with closed code": (
        "<|python_tag|>import math\nprint(math.pi)<|eom_id|>",
        [("python", {"code": "import math\nprint(math.pi)"})],
    ),
    "mistral without a marker": ('f[ARGS]{"a": 1}', F1),
    "mistral with a call id": ('[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{"a": 1}', F1),
    "mistral without [ARGS]": ('[TOOL_CALLS]f{"a": 1}', F1),
    "mistral list of two": (
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        [*F1, ("g", {})],
    ),
    "mistral behind prose": ('I look.[TOOL_CALLS]f[ARGS]{"a": 1}</s>', F1),
    "deepseek r1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        F1,
    ),
    "deepseek v3.1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        F1,
    ),
    "deepseek, two calls": (
        '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>',
        [*F1, ("g", {})],
    ),
    "deepseek in plain bars": ('<|tool▁call▁begin|>f<|tool▁sep|>{"a": 1}<|tool▁call▁end|>', F1),
    "deepseek, invented output": (
        '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁outputs▁begin｜>x'
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        F1,
    ),
    "deepseek, opening token lost": ('function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>', F1),
    "kimi, two calls": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
        "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [*F1, ("g", {})],
    ),
    "kimi, no prefix": ('<|tool_call_begin|>f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>', F1),
    "kimi, digits in the name": (
        '<|tool_call_begin|>functions.get_v2:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>',
        [("get_v2", {"a": 1})],
    ),
    "functionary": ('>>>f\n{"a": 1}', F1),
    "functionary v2": ('<|from|>assistant\n<|recipient|>f\n<|content|>{"a": 1}', F1),
    "qwen-agent": ('✿FUNCTION✿: f\n✿ARGS✿: {"a": 1}\n✿RESULT✿: 3\n✿FUNCTION✿: g\n✿ARGS✿: {}', F1),
    "gemma with several types": (
        "<start_function_call>call:f{a:1,b:true,c:[<escape>x<escape>,2],d:{e:<escape>y<escape>}}<end_function_call>",
        [("f", {"a": 1, "b": True, "c": ["x", 2], "d": {"e": "y"}})],
    ),
    "gemma's newer quotes": (
        '<|tool_call>call:f{a:<|"|>say "x", {y}<|"|>}<tool_call|>',
        [("f", {"a": 'say "x", {y}'})],
    ),
    "lfm list of two": ("<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>", [*F1, ("g", {})]),
}

READ = JSON_IN_TAGS | ARGUMENTS_IN_TAGS | TOKENS

REFUSED: dict[str, tuple[str, str]] = {
    "JSON cut in a tag": ('<tool_call>\n{"name": "f", "arguments": {"a": "x', "cut-off"),
    "two braces missing before the closing tag": (
        '<tool_call>{"name": "f", "arguments": {"a": 1\n</tool_call>',
        "malformed-json",
    ),
    "one brace missing without a closing tag": ('<tool_call>{"name": "f", "arguments": {"a": 1}', "cut-off"),
    "a word for a value in a tag": ('<tool_call>{"name": "f", "arguments": {"a": x}}</tool_call>', "malformed-json"),
    "flat arguments in a tag": ('<tool_call>{"name": "f", "a": 1}</tool_call>', "malformed-call"),
    "first of two broken": (f'<tool_call>{{"name": "f", "arg</tool_call>\n{CALL}', "ambiguous"),
    "empty tag": ("<tool_call>\n</tool_call>", "malformed-call"),
    "parameter cut": ("<function=f>\n<parameter=a>\nhel", "cut-off"),
    "function tag cut behind a parameter": ("<function=f>\n<parameter=a>\nx\n</parameter>\n", "cut-off"),
    "a parameter twice": (
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "ambiguous",
    ),
    "text between a value and the next parameter": (
        "<function=f><parameter=a>x</parameter> and <parameter=b>y</parameter></function>",
        "malformed-call",
    ),
    "invoke cut": ('<invoke name="f"><parameter name="a">x</parameter>', "cut-off"),
    "glm cut in a value": ("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x", "cut-off"),
    "glm cut behind a value": ("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n", "cut-off"),
    "mistral list never closed": ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}', "cut-off"),
    "mistral cut": ('[TOOL_CALLS]f[ARGS]{"a": ', "cut-off"),
    "deepseek cut": ('<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x', "cut-off"),
    "kimi cut": ('<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x', "cut-off"),
    "kimi arguments in a list": (
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[1, 2]<|tool_call_end|>",
        "not-an-object",
    ),
    "gemma cut": ("<start_function_call>call:f{a:<escape>x", "cut-off"),
    "marker alone": ("[TOOL_CALLS]", "malformed-call"),
    "tag in an example": (f"For example, a call looks like this:\n{CALL}", "no-action"),
    "tag in a sentence": (f"I could call {CALL} but that is unsafe.", "no-action"),
    "tag in backticks": (f"Use `{CALL}` for that.", "no-action"),
    "name of a tag in prose": ("Put it in `<tool_call>` tags.", "no-action"),
    "a choice of calls": (f"{CALL}\nor\n{CALL.replace('1', '2')}", "ambiguous"),
}


@pytest.mark.parametrize(("raw", "expected"), READ.values(), ids=READ)
def test_call_is_read(raw: str, expected: list[Call]) -> None:
    parsed = parse(raw)
    assert [(call.name, call.args) for call in parsed.calls] == expected, parsed.fault


@pytest.mark.parametrize(("raw", "rule"), REFUSED.values(), ids=REFUSED)
def test_text_gives_no_call(raw: str, rule: str) -> None:
    parsed = parse(raw)
    assert parsed.calls == ()
    assert parsed.fault is not None
    assert parsed.fault.rule == rule


def test_a_damaged_tag_is_a_repair() -> None:
    assert parse("<function=f><parameter=a>x</parameter/></function>").calls[0].repaired
    assert not parse("<function=f><parameter=a>x</parameter></function>").calls[0].repaired


def test_known_names_resolve_a_glued_id() -> None:
    raw = "<|tool_call_begin|>functionsget_v25<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert parse(raw, tool_names=["get_v2"]).calls[0].name == "get_v2"
    assert parse(raw, tool_names=["get_v"]).calls[0].name == "get_v"
