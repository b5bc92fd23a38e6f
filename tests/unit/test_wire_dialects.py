"""Each dialect is read the same, streamed or not, and what is of another shape is no reply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel import Message
from replay.wire.dialects import dialect_of, question_of, reply_of
from replay.wire.exchange import Answer, Asked, Chunk
from tests.wireworld import DIALECTS, PATHS, STREAM_PATHS, agent, brain, heard, spoken, streamed


def asked(dialect: str, body: object, path: str = "") -> Asked:
    return Asked(upstream="x", method="POST", target=path or PATHS[dialect], body=body)


def answer(data: bytes, kind: str = "application/json", end: str = "complete", status: int = 200) -> Answer:
    chunks = (Chunk(after_ns=1, data=data),)
    return Answer(status=status, headers={"content-type": kind}, chunks=chunks, end=end)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("args", [None, {"q": "π", "round": 1}])
def test_a_stream_and_a_body_are_read_as_the_same_reply(dialect: str, args: dict[str, object] | None) -> None:
    body = spoken(dialect, 7, "Some words, some more.", args)
    whole, why = reply_of(asked(dialect, {}), answer(json.dumps(body).encode()))
    assert whole is not None, why
    stream = answer(b"".join(streamed(dialect, body)), "text/event-stream")
    again, why = reply_of(asked(dialect, {}, STREAM_PATHS[dialect]), stream)
    assert again == whole, why
    assert whole.text == "Some words, some more."
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == ([("look", args)] if args else [])
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (10, 5)
    assert whole.model == "m-1"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_is_cut_anywhere_is_no_reply(dialect: str) -> None:
    events = streamed(dialect, spoken(dialect, 7, "Some words.", {"q": "x", "round": 1}))
    ends = len(events) - (2 if dialect == "chat" else 0)  # usage and [DONE] of a chat come after its end
    for cut in range(ends - 1):
        data = b"".join(events[: cut + 1])
        assert reply_of(asked(dialect, {}), answer(data, "text/event-stream"))[0] is None
    whole = b"".join(events)
    assert reply_of(asked(dialect, {}), answer(whole, "text/event-stream", end="cut"))[0] is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_is_read_with_prompt_tools_and_results(dialect: str) -> None:
    one = agent(dialect, "why?", temperature=0.5) if dialect != "gemini" else agent(dialect, "why?")
    body = next(one)
    for number in (1, 2):
        body = one.send(spoken(dialect, number, *brain(*heard(dialect, body))))
    question = question_of(asked(dialect, body))
    assert question is not None
    assert [m.role for m in question.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert question.messages[0] == Message(role="system", content="Be brief.")
    assert "seen why? 2" in question.messages[5].content
    assert [tool.name for tool in question.tools] == ["look"]
    assert question.params.model == "m-1"
    assert question.params.temperature == (None if dialect == "gemini" else 0.5)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "body", [None, [], "text", 1, {}, {"messages": 1, "input": 1, "contents": 1}, {"messages": [1, None, {"role": 7}]}]
)
def test_reading_is_total(dialect: str, body: object) -> None:
    question_of(asked(dialect, body))
    for kind in ("application/json", "text/event-stream"):
        for data in (json.dumps(body).encode(), b"data: " + json.dumps(body).encode() + b"\n\n", b"\xff\xfe", b""):
            reply, why = reply_of(asked(dialect, {}), answer(data, kind))
            assert reply is None or dialect == "responses"
            assert why or reply


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chat"),
        ("/openai/deployments/x/chat/completions", "chat"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "anthropic"),
        ("/v1beta/models/g:generateContent", "gemini"),
        ("/v1beta/models/g:streamGenerateContent", "gemini"),
        ("/v1/embeddings", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/rerank", None),
    ],
)
def test_the_dialect_is_told_by_the_path(path: str, name: str | None) -> None:
    found = dialect_of("POST", path)
    assert (found.name if found is not None else None) == name
    assert dialect_of("GET", path) is None


def test_cached_tokens_of_anthropic_are_part_of_the_input(tmp_path: Path) -> None:
    body = spoken("anthropic", 1, "x", None)
    body["usage"] = {
        "input_tokens": 3,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 7,
        "output_tokens": 1,
    }
    reply, _ = reply_of(asked("anthropic", {}), answer(json.dumps(body).encode()))
    assert reply is not None
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.cache_write_tokens) == (15, 5, 7)
