"""Read: an append-only conversation, stored once, condensed by a rule near its window."""

from __future__ import annotations

from typing import Any

import pytest

from kernel import ContextLimits, ModelParams, ScriptedModel, ToolRegistry
from kernel.record.messages import Message, MessageView
from kernel.record.run import RunHead
from kernel.record.transcript import RequestDigest, initial_messages, offered_tools
from tests.helpers import Played, act, calls, finish, play


def tools() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    def find(q: str) -> str:
        """Find something."""
        return f"{q}: " + "x" * 200

    return registry


def messages_of(model: ScriptedModel) -> list[list[Message]]:
    return [list(request.messages) for request in model.requests]


@pytest.mark.parametrize("protocol", ["text", "tools"])
def test_each_request_begins_with_the_whole_request_before_it(protocol: str) -> None:
    """So that a provider's prompt cache works, and a trace stores only what is new."""
    script: list[Any] = (
        [act("find", q=str(n)) for n in range(4)]
        if protocol == "text"
        else [calls(("find", {"q": str(n)})) for n in range(4)]
    )
    played = play([*script, finish("x") if protocol == "text" else "x"], tools(), protocol=protocol)
    sent = messages_of(played.model)
    for before, after, request in zip(sent, sent[1:], played.model.requests[1:], strict=False):
        assert after[: len(before)] == before and request.kept == len(before) and len(after) > len(before)


def test_a_request_does_not_change_after_it_was_sent() -> None:
    growing = [Message(role="user", content="a")]
    view = MessageView(growing)
    growing.append(Message(role="user", content="b"))
    assert list(view) == growing[:1] and view[-1] is growing[0] and view == [growing[0]] and view[0:9] == growing[:1]
    with pytest.raises(IndexError):
        view[1]


def test_a_steps_cost_does_not_grow_with_the_run() -> None:
    """What a step counts and hashes is what it adds, however long the conversation is by then."""
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    def chars(steps: int) -> int:
        counted.clear()
        play([*(act("find", q=str(n)) for n in range(steps)), finish("x")], tools(), count_tokens=count)
        return sum(counted)

    four, eight, twelve = chars(4), chars(8), chars(12)
    assert twelve - eight == pytest.approx(eight - four, rel=0.05)


def condensed(steps: int, **limits: Any) -> Played:
    script = [*(act("find", q=f"question {n}") for n in range(steps)), finish("x")]
    return play(script, tools(), context=ContextLimits(**limits))


def test_near_the_window_older_steps_become_a_line_each_and_the_newest_stay_whole() -> None:
    played = condensed(12, window_tokens=900, keep_steps=2)
    sent = messages_of(played.model)
    cut = [messages for messages in sent if any("[Condensed]" in m.content for m in messages)]
    assert played.result.ok and cut
    assert all(messages[:2] == sent[0][:2] for messages in sent), "system prompt and task always stay"
    last = cut[-1]
    summary = next(m.content for m in cut[0] if "[Condensed]" in m.content)
    assert 'find({"q":"question 0"}) -> ok: question 0' in summary
    assert sum("[Condensed]" in m.content for m in last) == 1
    assert last[-1].content.startswith("Observation: question 11: ") and len(last[-1].content) > 200
    chats = [step.chat for step in played.result.steps if step.chat is not None]
    assert [chat.condensed for chat in chats] == sorted(chat.condensed for chat in chats) and chats[-1].condensed > 0


def test_condensing_is_the_same_each_time() -> None:
    one, other = (messages_of(condensed(12, window_tokens=900, keep_steps=2).model) for _ in range(2))
    assert one == other


def test_without_a_window_nothing_is_condensed() -> None:
    played = condensed(12)
    assert len(played.last_request) == 2 + 2 * 12


def test_the_digest_of_a_request_does_not_depend_on_how_it_was_built_up() -> None:
    head = RunHead(agent="a", task="t", run_id="r", params=ModelParams(model="m"))
    m = [Message(role="user", content=str(n)) for n in range(6)]
    whole, grown, forked = RequestDigest(), RequestDigest(), RequestDigest()
    for digest in (whole, grown, forked):
        digest.begin(head)
    forked.extend(0, (m[0], m[5]))
    grown.extend(0, (m[0],))
    assert whole.extend(0, tuple(m[:3])) == grown.extend(1, (m[1], m[2])) == forked.extend(1, (m[1], m[2]))
    assert grown.extend(3, (m[3],)) != whole.extend(3, (m[4],))


@pytest.mark.parametrize("change", [{"params": ModelParams(model="other")}, {"language": "zh", "protocol": "text"}])
def test_the_first_messages_follow_from_the_head_alone(change: dict[str, Any]) -> None:
    head = RunHead(agent="a", task="t", run_id="r", system="s", notes=("n1",), **change)
    first, again = initial_messages(head), initial_messages(head)
    assert first == again and [m.role for m in first] == ["system", "user"] and "n1" in first[1].content


def test_the_finish_tool_is_offered_only_where_the_agent_insists_on_it() -> None:
    head = RunHead(agent="a", task="t", run_id="r", protocol="tools")
    assert offered_tools(head) == ()
    insisting = RunHead(agent="a", task="t", run_id="r", protocol="tools", require_finish=True)
    assert [tool.name for tool in offered_tools(insisting)] == ["finish"]
