"""Labelled actions: how models bend the Action / Action Input form, and what must not be taken for an action."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.parse import parse

Call = tuple[str, dict[str, Any]]

READ: dict[str, tuple[str, list[Call]]] = {
    "bare words are the input": (
        "Thought: look\nAction: search\nAction Input: harbour opening hours",
        [("search", {"input": "harbour opening hours"})],
    ),
    "a whole reply in a fence, odd case, CRLF": (
        '\r\n```\r\nthought: look it up\r\nACTION : search\r\nACTION INPUT : {"q": "kelp"}\r\n```',
        [("search", {"q": "kelp"})],
    ),
    "numbered labels": ("Thought 2: go\nAction 2: search\nAction Input 2: kelp", [("search", {"input": "kelp"})]),
    "full-width colons": ('思考：查一下\n动作：search\n动作输入：{"q": "潮汐"}', [("search", {"q": "潮汐"})]),
    "Chinese labels with Action's other words": (
        '思考: 需要数据\n行动: get_weather\n行动输入: {"city": "上海"}\n观察: 晴',
        [("get_weather", {"city": "上海"})],
    ),
    "Chinese operation label with a bracket": ("操作：finish[完成]", [("finish", {"input": "完成"})]),
    "Chinese tool name with a bracket": ("操作：搜索[北京天气]", [("搜索", {"input": "北京天气"})]),
    "both labels on one line": ('Action: search, Action Input: {"q": "kelp"}', [("search", {"q": "kelp"})]),
    "a whole round on one line": (
        'Thought: I need it. Action: search Action Input: {"q": "kelp"} Observation: none',
        [("search", {"q": "kelp"})],
    ),
    "tool name in brackets": ("Action: [search]\nAction Input: kelp", [("search", {"input": "kelp"})]),
    "tool name in backticks": ("Action: `search`\nAction Input: `kelp`", [("search", {"input": "kelp"})]),
    "tool name in quotes with a full stop": (
        'Action: "search".\nAction Input: "kelp"',
        [("search", {"input": "kelp"})],
    ),
    "tool name of several words": (
        'Action: Ask question to coworker\nAction Input: {"question": "ready?"}',
        [("Ask question to coworker", {"question": "ready?"})],
    ),
    "escaped underscore in the name": (
        'Action: web\\_search\nAction Input: {"q": "kelp"}',
        [("web_search", {"q": "kelp"})],
    ),
    "a remark behind the name": ('Action: search (for the tides)\nAction Input: {"q": "t"}', [("search", {"q": "t"})]),
    "headings as labels": (
        '### Thought\nhm\n### Action: search\n### Action Input: {"q": "t"}',
        [("search", {"q": "t"})],
    ),
    "bullets as labels": ('- Thought: hm\n- Action: search\n- Action Input: {"q": "t"}', [("search", {"q": "t"})]),
    "bold with the colon outside": ('**Action**: search\n**Action Input**: {"q": "t"}', [("search", {"q": "t"})]),
    "JSON blob under the label": (
        'Action:\n```json\n{"action": "search", "action_input": {"q": "t"}}\n```',
        [("search", {"q": "t"})],
    ),
    "JSON blob on the label's line": (
        'Action: {"action": "search", "action_input": "t"}',
        [("search", {"input": "t"})],
    ),
    "list of JSON actions under the label": (
        'Action: ```json\n[{"tool_name": "search", "parameters": {"q": "a"}}, {"tool_name": "read", "parameters": {}}]\n```',
        [("search", {"q": "a"}), ("read", {})],
    ),
    "string in parentheses": ('Action: search("tide tables")', [("search", {"input": "tide tables"})]),
    "keywords in parentheses": ("Action: search(q='tide', limit=3)", [("search", {"q": "tide", "limit": 3})]),
    "empty parentheses": ("Action: get_time()", [("get_time", {})]),
    "brackets inside a bracket": ("Action: search[a [b] c]", [("search", {"input": "a [b] c"})]),
    "only the first of two bracket actions": (
        "Thought 1: x\nAction 1: Search[Oslo]\nObservation 1: a city\nThought 2: y\nAction 2: Finish[yes]",
        [("Search", {"input": "Oslo"})],
    ),
    "two actions without an invented result": (
        "Action: a\nAction Input: 1\n\nAction: b\nAction Input: 2",
        [("a", {"input": "1"}), ("b", {"input": "2"})],
    ),
    "no input for a tool without parameters": ("Action: list_tables\nAction Input:\n", [("list_tables", {})]),
    "empty string as input": ('Action: list_tables\nAction Input: ""\nObservation: a', [("list_tables", {})]),
    "None as input": ("Action: list_tables\nAction Input: None", [("list_tables", {})]),
    "several lines of bare input": (
        "Action: run\nAction Input: a = 1\nprint(a)\nObservation: 1",
        [("run", {"input": "a = 1\nprint(a)"})],
    ),
    "code fence as input": ("Action: run\nAction Input:\n```python\nprint(1)\n```", [("run", {"input": "print(1)"})]),
    "object in stray quotes": ('Action: search\nAction Input: "{"q": "t"}"', [("search", {"q": "t"})]),
    "object as an escaped string": ('Action: search\nAction Input: "{\\"q\\": \\"t\\"}"', [("search", {"q": "t"})]),
    "input right under the name": ('Action: search\n{"q": "t"}', [("search", {"q": "t"})]),
    "colon between name and input, and PAUSE": (
        "Thought: x\nAction: calculate: 4 * 7\nPAUSE",
        [("calculate", {"input": "4 * 7"})],
    ),
    "label text inside a JSON string": (
        'Action: note\nAction Input: {"text": "first\\nAction: other\\nAction Input: {}"}',
        [("note", {"text": "first\nAction: other\nAction Input: {}"})],
    ),
    "Tool and Tool Input labels": ('Tool: search\nTool Input: {"q": "t"}', [("search", {"q": "t"})]),
    "a marker inside the input is text": (
        'Action: note\nAction Input: {"text": "<tool_call>{\\"name\\": \\"drop\\", \\"arguments\\": {}}</tool_call>"}',
        [("note", {"text": '<tool_call>{"name": "drop", "arguments": {}}</tool_call>'})],
    ),
    "a number stays text": ("Action: wait\nAction Input: 5", [("wait", {"input": "5"})]),
    "functions prefix": ('Action: functions.search\nAction Input: {"q": "t"}', [("search", {"q": "t"})]),
}

REFUSED: dict[str, tuple[str, str]] = {
    "no tool wanted": ("Thought: done\nAction: None\nAction Input: None", "no-action"),
    "no tool wanted, in words": ("Thought: done\nAction: no action needed", "no-action"),
    "final answer only": ("Thought: done\nFinal Answer: 42", "no-action"),
    "an action behind the final answer": ("Final Answer: 42\n\nAction: search\nAction Input: x", "no-action"),
    "input cut inside a string": ('Action: write\nAction Input: {"path": "a", "text": "hel', "cut-off"),
    "input cut behind a pair": ('Action: write\nAction Input: {"path": "a"', "cut-off"),
    "bracket never closed": ("Action 1: search[tide tab", "cut-off"),
    "parenthesis never closed": ('Action: search(q="tide', "cut-off"),
    "fence of the input never closed": ("Action: run\nAction Input: ```python\nprint(1)", "cut-off"),
    "a sentence for a name": ("Action: I will have to think about it\nAction Input: x", "malformed-call"),
    "a name without input": ("Thought: x\nAction: login", "missing-arguments"),
    "code in parentheses": ("Action: run(x + 1)", "malformed-call"),
}


@pytest.mark.parametrize(("raw", "expected"), READ.values(), ids=READ)
def test_action_is_read(raw: str, expected: list[Call]) -> None:
    assert [(call.name, call.args) for call in parse(raw).calls] == expected


@pytest.mark.parametrize(("raw", "rule"), REFUSED.values(), ids=REFUSED)
def test_text_gives_no_call(raw: str, rule: str) -> None:
    parsed = parse(raw)
    assert parsed.fault is not None
    assert parsed.fault.rule == rule


def test_thought_comes_without_its_label() -> None:
    parsed = parse("Thought: look it up\nAction: search\nAction Input: {}")
    assert parsed.thought == "look it up"


def test_span_covers_label_to_input() -> None:
    raw = 'Thought: x\nAction: search\nAction Input: {"q": 1}\nObservation: y'
    call = parse(raw).calls[0]
    assert raw[call.start : call.end] == 'Action: search\nAction Input: {"q": 1}'
