"""Thinking, harmony, Python syntax and code blocks; and what a person sees of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.parse import Parsed, parse

Call = tuple[str, dict[str, Any]]

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
F1 = [("f", {"a": 1})]

READ: dict[str, tuple[str, list[Call]]] = {
    # thinking
    "call behind thinking": (f"<think>\nmaybe {CALL.replace('f', 'g')}\n</think>\n{CALL}", F1),
    "thinking without its opening tag": (f"I could {CALL.replace('1', '2')}\n</think>\n{CALL}", F1),
    "thinking between calls": (f"{CALL}\n<think>or {CALL.replace('1', '2')}</think>", F1),
    "other tags": (f"<thinking>{CALL.replace('1', '2')}</thinking>{CALL}", F1),
    "magistral": (f"[THINK]{CALL.replace('1', '2')}[/THINK]{CALL}", F1),
    "labels in thinking": ('<think>\nAction: g\nAction Input: x\n</think>\nAction: f\nAction Input: {"a": 1}', F1),
    "JSON in thinking": ('<think>{"action": "g", "args": {}}</think>{"action": "f", "args": {"a": 1}}', F1),
    "a closing tag as text in an argument": (
        '<tool_call>{"name": "f", "arguments": {"a": "</think>"}}</tool_call>',
        [("f", {"a": "</think>"})],
    ),
    "calls behind thinking never closed": (f"<think>\nI go.\n{CALL}\n{CALL.replace('1', '2')}", [*F1, ("f", {"a": 2})]),
    # harmony
    "harmony call": ('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>', F1),
    "harmony call whose token was the stop word": ('<|channel|>commentary to=functions.f json<|message|>{"a": 1}', F1),
    "harmony recipient before the channel": (
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        F1,
    ),
    "harmony brace missing before the call token": (
        '<|channel|>commentary to=functions.f json<|message|>{"a": {"b": 1}<|call|>',
        [("f", {"a": {"b": 1}})],
    ),
    "harmony, two calls": (
        '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>'
        "<|start|>assistant<|channel|>commentary to=functions.g<|message|>{}<|call|>",
        [*F1, ("g", {})],
    ),
    "harmony, invented result": (
        '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>'
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>3<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.g<|message|>{}<|call|>",
        F1,
    ),
    "harmony python": (
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        [("python", {"code": "print(1)"})],
    ),
    "harmony without its tokens": ('analysisWe look.assistantcommentary to=functions.f json{"a": 1}', F1),
    "an action on harmony's final channel": (
        '<|channel|>analysis<|message|>{"action": "g", "args": {}}<|end|>'
        '<|start|>assistant<|channel|>final<|message|>{"action": "f", "args": {"a": 1}}<|return|>',
        F1,
    ),
    # Python syntax
    "list of calls": ("[f(a=1), g(b='x', c=[1, {'d': None}])]", [*F1, ("g", {"b": "x", "c": [1, {"d": None}]})]),
    "list of calls behind prose": ("I look.\n[f(a=1)]", F1),
    "JSON literals": ("[f(a=true, b=null)]", [("f", {"a": True, "b": None})]),
    "one call with keywords": ("f(a=1)", F1),
    "one call with an object": ('functions.f({"a": 1})', F1),
    "negative and floating numbers": ("[f(a=-1, b=2.5)]", [("f", {"a": -1, "b": 2.5})]),
    "tool_code with print": ("```tool_code\nprint(f(a=1))\n```", F1),
    "tool_code with two calls": ("```tool_code\nf(a=1)\ng()\n```", [*F1, ("g", {})]),
    "tool_code with a variable": ("```tool_code\nx = f(a=1)\nprint(x)\n```", F1),
    "default_api in a python block": ("```python\nprint(default_api.f(a=1))\n```", F1),
    "two printed calls as the whole text": (
        "print(default_api.f(a=1))\nprint(default_api.g(b=2))",
        [*F1, ("g", {"b": 2})],
    ),
    "strings next to each other": ("[f(a='x' 'y')]", [("f", {"a": "xy"})]),
    "triple quotes": ('[f(a="""x\n"y"\n""")]', [("f", {"a": 'x\n"y"\n'})]),
    "raw string": ("[f(a=r'\\d')]", [("f", {"a": "\\d"})]),
    "brackets and parentheses in a string": ("[f(a=')]')]", [("f", {"a": ")]"})]),
    # code blocks
    "labelled python": ("Thought: go\nCode:\n```py\nprint(1)\n```<end_code>", [("python", {"code": "print(1)"})]),
    "code tag": ("Thought: go\n<code>\nprint(1)\n</code>", [("python", {"code": "print(1)"})]),
    "one python block": ("I compute.\n```python\nprint(1)\n```", [("python", {"code": "print(1)"})]),
    "shell under a label": ("Action:\n```bash\nls\n```", [("bash", {"command": "ls"})]),
    "output block before the shell block": (
        "It printed\n```\nx\n```\nso\n```bash\nls\n```",
        [("bash", {"command": "ls"})],
    ),
    "execute_bash tag": ("I look.\n<execute_bash>\nls\n</execute_bash>", [("bash", {"command": "ls"})]),
    "tildes": ("~~~bash\nls\n~~~", [("bash", {"command": "ls"})]),
    "backticks inside a shell block": ("```bash\necho `date`\n```", [("bash", {"command": "echo `date`"})]),
}

REFUSED: dict[str, tuple[str, str]] = {
    "thinking only": ("<think>I could look.</think>", "thinking-only"),
    "thinking never closed": ("<think>I could look.", "thinking-only"),
    "rehearsal in thinking never closed": (f"<think>I could {CALL} but I need more.", "thinking-only"),
    "rehearsal in a line of thinking never closed": (f"<think>I could {CALL}", "thinking-only"),
    "unmarked JSON in thinking never closed": ('<think>hm\n{"action": "f", "args": {}}', "thinking-only"),
    "harmony analysis only": ("<|channel|>analysis<|message|>We look.<|end|>", "thinking-only"),
    "harmony cut": ('<|channel|>commentary to=functions.f<|message|>{"a": "x', "cut-off"),
    "harmony header cut": ("<|channel|>commentary to=functions.f", "cut-off"),
    "call cut": ("[f(a='x", "cut-off"),
    "one call cut": ("f(a='x", "cut-off"),
    "arguments that are code": ("[f(a=g(1))]", "malformed-call"),
    "arguments without names": ("[f(1, 2)]", "malformed-call"),
    "an argument twice": ("[f(a=1, a=2)]", "ambiguous"),
    "a call without names as the whole text": ('f("x")', "no-action"),
    "print of a value": ('print("x")', "no-action"),
    "code without a block": ("x = f(a=1)\nprint(x)", "no-action"),
    "two python blocks": ("```python\na\n```\n```python\nb\n```", "several-blocks"),
    "python and shell": ("```python\na\n```\n```bash\nb\n```", "several-blocks"),
    "shell block cut": ("```bash\nls", "cut-off"),
    "two blocks without a language": ("```\na\n```\n```\nb\n```", "several-blocks"),
    "a block without a language, then prose": ("```\nsrc/\n  a.py\n```\nThat is the tree.", "no-action"),
    "an example block": ("For example:\n```bash\nrm -r build\n```", "no-action"),
    "another language": ("```sql\nselect 1\n```", "no-action"),
    "inline code tag": ("<code>f(1)</code> is a call", "no-action"),
    "empty": ("", "no-action"),
    "blank": (" \n", "no-action"),
    "plain answer": ("Die Antwort ist 42.", "no-action"),
    "markdown link": ("[docs](https://example.org/a(b))", "no-action"),
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


def test_code_block_is_a_call_only_where_its_tool_is_known() -> None:
    raw = "Run this:\n```bash\nls\n```"
    assert parse(raw, tool_names=["search"]).calls == ()
    assert parse(raw, tool_names=["bash"]).calls[0].args == {"command": "ls"}


@pytest.mark.parametrize(
    ("raw", "visible"),
    [
        ("<think>hm</think>\nIt is 42.<|im_end|>", "It is 42."),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|return|>",
            "It is 42.",
        ),
        ("</s>It is 42.</s></s>", "It is 42."),
        ("The `</think>` tag ends it.", "The `</think>` tag ends it."),
    ],
)
def test_visible_text_is_what_a_person_sees(raw: str, visible: str) -> None:
    assert parse(raw).visible == visible


def test_thought_is_the_visible_text_before_the_call() -> None:
    parsed = parse(f"<think>secret</think>I look.\n{CALL}\nThen more.\n{CALL}")
    assert [call.thought for call in parsed.calls] == ["I look.", "Then more."]
    assert parsed.thought == "I look."


def test_a_reading_has_calls_or_a_fault() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Parsed(calls=(), fault=None, thought="", visible="")
