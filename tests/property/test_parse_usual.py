"""The quick reading of the usual reply gives what the thorough one gives."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from kernel.parse.model import Unreadable
from kernel.parse.thorough import thorough
from kernel.parse.usual import read_usual

words = st.lists(
    st.sampled_from(
        [
            "I",
            "look",
            "Thought:",
            "example",
            "format",
            "you can call",
            "Action:",
            "now",
            "a: b",
            "—",
            "[x]",
            "`y`",
            "\n",
            "对",
        ]
    ),
    max_size=6,
).map(" ".join)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
arguments = st.dictionaries(st.text(max_size=5) | st.just("type"), leaves | st.lists(leaves, max_size=2), max_size=3)
names = st.sampled_from(["search", "None", "functions.x", "finish", "a b", "查", "no_tool"])


PLAIN = (
    "{body}",
    "```json\n{body}\n```",
    "```\n{body}\n```",
    "<tool_call>\n{body}\n</tool_call>",
    "<tool_call>{body}</tool_call>",
    "Action: {name}\nAction Input: {args}",
    "Action: {name} \nAction Input:\n{args}",
    "Action:{name}\nAction Input: {args} so",
    "Action Input: {args}",
    "",
)


@st.composite
def replies(draw: st.DrawFn) -> str:
    keys = draw(
        st.sampled_from([("action", "args"), ("name", "arguments"), ("args", "action"), ("tool", "input"), ("x", "y")])
    )
    name, given_args = draw(names), draw(arguments)
    body = json.dumps({keys[0]: name, keys[1]: given_args}, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        body = body[:-1] + draw(st.sampled_from(["", ', "args": {}}', "}", ", }"]))
    form = draw(st.sampled_from(PLAIN))
    text = form.replace("{body}", body).replace("{name}", name).replace("{args}", json.dumps(given_args))
    return draw(words) + draw(st.sampled_from(["\n", "", " ", "\n\n"])) + text + draw(st.sampled_from(["", "\n", " x"]))


@given(replies(), st.sampled_from([frozenset[str](), frozenset({"search", "finish"}), frozenset({"查"})]))
def test_quick_and_thorough_readings_agree(text: str, tools: frozenset[str]) -> None:
    """Where the quick reading gives anything, it is what the thorough one gives."""
    try:
        quick = read_usual(text, tools)
    except Unreadable:
        return
    if quick is not None:
        assert quick == thorough(text, tools)
