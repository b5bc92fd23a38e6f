"""What an adversary found in the kernel, each with its right value: evaluate, act, read, stop, signatures."""

from __future__ import annotations

from typing import Any

import pytest

from kernel import Reply, ToolRegistry
from kernel.evaluate import Rules, evaluate
from kernel.messages import ToolCall
from kernel.run import Decision
from kernel.texts import texts_for

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
    assert (same.args, same.fault) == ({"q": "x: y"}, None)


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
