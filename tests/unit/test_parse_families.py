"""Every family under the same conditions: made, quoted, forbidden, and broken off at every character."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.loop.evaluation import Rules, evaluate
from kernel.parse import parse
from kernel.record import Reply, Texts
from kernel.tools import Tool, ToolRegistry

ARGS = {"path": "/srv/a"}
BODY = '{"path": "/srv/a"}'
CALL = f'{{"name": "wipe", "arguments": {BODY}}}'
FAMILIES = {
    "json": f'{{"action": "wipe", "args": {BODY}}}',
    "json of a type": f'{{"type": "function", "name": "wipe", "parameters": {BODY}}}',
    "json in a list": f"[{CALL}]",
    "json call with tool_calls": f'{{"tool_calls": [{{"function": {CALL}}}]}}',
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "several calls' tag": f"<tool_calls>[{CALL}]</tool_calls>",
    "a namespace": f"<minimax:tool_call>\n{CALL}\n</minimax:tool_call>",
    "function tag": f"<function=wipe>{BODY}</function>",
    "parameter tags": "<function=wipe>\n<parameter=path>\n/srv/a\n</parameter>\n</function>",
    "parameter tags in a tag": (
        "<tool_call>\n<function=wipe>\n<parameter=path>\n/srv/a\n</parameter>\n</function>\n</tool_call>"
    ),
    "parameter tags in a namespace": (
        "<seed:tool_call>\n<function=wipe>\n<parameter=path>/srv/a</parameter>\n</function>\n</seed:tool_call>"
    ),
    "invoke": (
        '<function_calls>\n<invoke name="wipe">\n<parameter name="path">/srv/a</parameter>\n</invoke>\n</function_calls>'
    ),
    "invoke in a namespace": (
        '<x-y:function_calls>\n<x-y:invoke name="wipe">\n<x-y:parameter name="path">/srv/a</x-y:parameter>\n'
        "</x-y:invoke>\n</x-y:function_calls>"
    ),
    "minimax invoke": (
        '<minimax:tool_call>\n<invoke name="wipe">\n<parameter name="path">/srv/a</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    ),
    "DSML": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="wipe">\n<｜DSML｜parameter name="path" string="true">/srv/a'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "mistral with a name": f"[TOOL_CALLS]wipe[ARGS]{BODY}",
    "deepseek": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>wipe\n```json\n{BODY}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi": (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.wipe:0<|tool_call_argument_begin|>{BODY}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "glm": "<tool_call>wipe\n<arg_key>path</arg_key>\n<arg_value>/srv/a</arg_value>\n</tool_call>",
    "granite": f"<|tool_call|>[{CALL}]",
    "llama 4": f"<|python_start|>{CALL}<|python_end|>",
    "python tag": f"<|python_tag|>{CALL}<|eom_id|>",
    "functionary": f">>>wipe\n{BODY}",
    "qwen agent": f"✿FUNCTION✿: wipe\n✿ARGS✿: {BODY}",
    "gemma": "<start_function_call>call:wipe{path:<escape>/srv/a<escape>}<end_function_call>",
    "harmony": f"<|channel|>commentary to=functions.wipe <|constrain|>json<|message|>{BODY}<|call|>",
    "command's action": f"<|START_ACTION|>[{CALL}]<|END_ACTION|>",
    "internlm": f"<|action_start|><|plugin|>{CALL}<|action_end|>",
    "pythonic": '[wipe(path="/srv/a")]',
    "react": f"Action: wipe\nAction Input: {BODY}",
    "react in Chinese": f"动作：wipe\n动作输入：{BODY}",
    "react with a call": f"Action: wipe({BODY})",
    "a name over JSON": f"wipe\n{BODY}",
    "fenced json": f'```json\n{{"action": "wipe", "args": {BODY}}}\n```',
    "fenced json behind a blank": f'``` json\n{{"action": "wipe", "args": {BODY}}}\n```',
    "shell": "```bash\nls -la\n```",
}
WANTED = {"shell": ("bash", {"command": "ls -la"})}
NAMES = frozenset({"wipe", "look", "bash"})
MADE = (
    "",
    "I remove the folder now.\n\n",
    "Let us see what it looks like.\n\n",
    "For example, it fails on 3.\n\n",
    "I cannot run everything; run one thing.\n\n",
    "I'll add an example to the docs.\n\n",
    "First the following:\n\n",
)
WITHDRAWN = ("Do not run this:\n\n", "Should I run this?\n\n", "You should never call this:\n\n", "不要执行：\n\n")
MARKED = [name for name in FAMILIES if name not in ("shell", "a name over JSON")]


def registry() -> dict[str, Tool]:
    tools = ToolRegistry()
    params = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools.register(name="wipe", side_effect=True, params=params)(lambda args: "gone")
    tools.register(name="look", params={"type": "object"})(lambda args: "x")
    tools.register(name="bash", params={"type": "object"})(lambda args: "x")
    return {tool.name: tool for tool in tools}


_CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "parser_known.jsonl").read_text("utf-8").splitlines()
]

RULES = Rules(protocol="tools", tools=registry(), texts=Texts("en"))


def read(text: str) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, call.args) for call in parse(text, tool_names=NAMES).calls]


@pytest.mark.parametrize("before", MADE)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_of_a_known_tool_that_ends_the_reply_is_made(family: str, before: str) -> None:
    assert read(before + FAMILIES[family]) == [WANTED.get(family, ("wipe", ARGS))]


@pytest.mark.parametrize("before", WITHDRAWN)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_that_the_words_before_it_forbid_or_ask_about_is_not_made(family: str, before: str) -> None:
    assert read(before + FAMILIES[family]) == []


@pytest.mark.parametrize("family", [name for name in FAMILIES if "```" not in FAMILIES[name]])
def test_a_block_with_prose_behind_it_is_quotation(family: str) -> None:
    text = f"Old frameworks print this:\n\n```\n{FAMILIES[family]}\n```\n\nIt is no longer used. The answer is 42."
    assert read(text) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "frame",
    [
        "<example>\n{}\n</example>\nThat is all.",
        "<!-- {} -->\nDone.",
        "<think>\n{}\n</think>\nI ask first.",
        "Observation: {}",
    ],
)
def test_what_stands_in_an_example_a_comment_thinking_or_a_result_is_not_made(family: str, frame: str) -> None:
    assert read(frame.replace("{}", FAMILIES[family])) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quoted_line_is_not_made(family: str) -> None:
    quoted = "\n".join("> " + line for line in FAMILIES[family].split("\n"))
    assert read(f"The log has:\n\n{quoted}\n\nso somebody called it.") == []


@pytest.mark.parametrize("family", FAMILIES)
def test_broken_off_anywhere_it_is_the_same_call_or_none(family: str) -> None:
    whole = FAMILIES[family]
    wanted = read(whole)
    wanted = WANTED.get(family, ("wipe", ARGS))
    for end in range(1, len(whole)):
        calls = parse("I remove it.\n\n" + whole[:end], tool_names=NAMES).calls
        assert all((call.name, call.args) == wanted or call.repaired for call in calls), whole[:end]


@pytest.mark.parametrize("family", MARKED)
def test_broken_off_anywhere_it_is_never_a_finished_answer(family: str) -> None:
    whole = FAMILIES[family]
    for end in range(3, len(whole)):
        text = "I check the log first.\n\n" + whole[:end]
        assert evaluate(Reply(text=text, finish_reason="stop"), RULES).kind != "finish", whole[:end]


@pytest.mark.parametrize("case", _CASES, ids=[case["id"] for case in _CASES])
def test_with_known_tools_the_first_call_is_the_expected_one_or_there_is_none(case: dict[str, Any]) -> None:
    calls = parse(case["raw"], tool_names=NAMES | {"write"}).calls
    first = {"name": calls[0].name, "args": calls[0].args} if calls else "unparsable"
    assert first == case["expect"], case["why"]
