"""The wire format of chat completions, server-sent events, and what the client may say about its endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from kernel.errors import ConfigError
from kernel.model.endpoint import Endpoint, kind_of, retry_after_s
from kernel.model.openai import OpenAIModel, default_model
from kernel.model.openai_reply import (
    Malformed,
    decode_reply,
    decode_usage,
    failed_generation,
    parse_body,
    provider_error,
)
from kernel.model.openai_request import encode_messages, encode_request
from kernel.model.sse import CutStream, Event, EventParser, StreamedCompletion
from kernel.record.messages import Message, ModelParams, Reply, Request, ToolCall, ToolSpec, Usage, merged

CASSETTES = Path(__file__).parents[2].parent / "shared" / "corpus" / "cassettes"


def body(message: dict[str, Any], finish_reason: str | None = "stop", **top: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], **top}


def call(name: str, arguments: Any, call_id: Any = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# --------------------------------------------------------------------------------------------------------- request


def encode(params: ModelParams, **how: Any) -> dict[str, Any]:
    request = Request(messages=[Message(role="user", content="hi")])
    return encode_request(request, params, stream=how.get("stream", False), max_tokens_field="max_tokens")


def test_only_parameters_that_are_set_are_sent() -> None:
    assert encode(ModelParams(model="m")) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    full = ModelParams(model="m", temperature=0.0, top_p=0.5, seed=7, max_output_tokens=9, stop=("a",), extra={"k": 1})
    assert encode(full) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "max_tokens": 9,
        "stop": ["a"],
        "k": 1,
    }


def test_a_stream_asks_for_its_usage_and_extra_has_the_last_word() -> None:
    assert encode(ModelParams(model="m"), stream=True)["stream_options"] == {"include_usage": True}
    assert encode(ModelParams(model="m", extra={"stream_options": None}), stream=True)["stream_options"] is None


def test_the_parameters_of_a_request_win_over_those_of_the_model() -> None:
    defaults = ModelParams(model="m", temperature=1.0, seed=1, extra={"a": 1, "b": 1})
    given_ones = ModelParams(temperature=0.0, extra={"b": 2})
    assert merged(given_ones, defaults) == ModelParams(model="m", temperature=0.0, seed=1, extra={"a": 1, "b": 2})


def test_a_tool_is_described_with_what_it_returns_and_always_has_an_object_schema() -> None:
    spec = ToolSpec(name="t", description="Look.", returns="a list")
    request = Request(messages=[], tools=(spec,))
    encoded = encode_request(request, ModelParams(model="m"), stream=False, max_tokens_field="max_tokens")
    function = {
        "name": "t",
        "description": "Look.\nReturns: a list",
        "parameters": {"type": "object", "properties": {}},
    }
    assert encoded["tools"] == [{"type": "function", "function": function}]


def test_messages_with_sound_ids_are_sent_as_they_are() -> None:
    calls = (ToolCall(name="a", arguments='{ "x": 1}', id="i"), ToolCall(name="b", arguments="{}", id="j"))
    sent = encode_messages(
        [
            Message(role="system", content="s"),
            Message(role="assistant", content="", tool_calls=calls, reasoning="not sent back"),
            Message(role="tool", content="2", tool_call_id="j", name="b"),
            Message(role="tool", content="1", tool_call_id="i", name="a"),
            Message(role="assistant", content="done"),
        ]
    )
    assert sent == [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": None, "tool_calls": [call("a", '{ "x": 1}', "i"), call("b", "{}", "j")]},
        {"role": "tool", "tool_call_id": "j", "content": "2"},
        {"role": "tool", "tool_call_id": "i", "content": "1"},
        {"role": "assistant", "content": "done"},
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "x", "y"]), min_size=1, max_size=5))
def test_calls_with_missing_or_doubled_ids_are_sent_with_one_id_each_and_results_keep_to_their_calls(
    ids: list[str],
) -> None:
    calls = tuple(ToolCall(name=f"t{n}", arguments="{}", id=one) for n, one in enumerate(ids))
    results = [Message(role="tool", content=str(n), tool_call_id=one or None) for n, one in enumerate(ids)]
    assistant, *sent = encode_messages([Message(role="assistant", tool_calls=calls), *results])
    sent_ids = [one["id"] for one in assistant["tool_calls"]]
    assert len(set(sent_ids)) == len(ids) and all(sent_ids)
    assert [result["tool_call_id"] for result in sent] == sent_ids


@pytest.mark.parametrize("text", ['{"a": ', "[1]", "not json", "\ud800"])
def test_broken_arguments_in_the_history_are_sent_inside_an_object(text: str) -> None:
    """vLLM and others parse the arguments of old calls, and answer 400 where they cannot."""
    [sent] = encode_messages([Message(role="assistant", tool_calls=(ToolCall(name="t", arguments=text, id="i"),))])
    arguments = json.loads(sent["tool_calls"][0]["function"]["arguments"])
    assert list(arguments) == ["malformed_arguments"]


def test_empty_arguments_in_the_history_are_sent_as_an_empty_object() -> None:
    [sent] = encode_messages([Message(role="assistant", tool_calls=(ToolCall(name="t", arguments=" ", id="i"),))])
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


# ----------------------------------------------------------------------------------------------------------- reply


def test_a_whole_reply_is_read() -> None:
    message = {"content": "hi", "tool_calls": [call("t", '{"x":1}')], "reasoning_content": "hm", "refusal": None}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    assert decode_reply(body(message, "tool_calls", id="r1", model="m-2", usage=usage)) == Reply(
        text="hi",
        tool_calls=(ToolCall(name="t", arguments='{"x":1}', id="c1"),),
        reasoning="hm",
        finish_reason="tool_calls",
        usage=Usage(input_tokens=9, output_tokens=3, cache_read_tokens=4),
        model="m-2",
        response_id="r1",
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": None}, Reply()),
        ({}, Reply()),
        ({"content": None, "refusal": "no"}, Reply(refusal="no")),
        ({"content": "a", "reasoning": "r"}, Reply(text="a", reasoning="r")),
        ({"content": "a", "reasoning": "same", "reasoning_content": "same"}, Reply(text="a", reasoning="same")),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]}, Reply(text="ab")),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, Reply(refusal="no")),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"text": "a"}]},
            Reply(text="a", reasoning="t"),
        ),
        ({"content": "\ud83d\ude00 \ud800"}, Reply(text="😀 \ufffd")),
        (
            {"content": "", "tool_calls": [call("t", {"x": [1, "ü"]}, None), call("t", None, 7)]},
            Reply(
                tool_calls=(
                    ToolCall(name="t", arguments='{"x":[1,"ü"]}'),
                    ToolCall(name="t", arguments="", id="7"),
                )
            ),
        ),
        (
            {"tool_calls": [call("t", "{}", "same"), call("u", "{}", "same")]},
            Reply(
                tool_calls=(
                    ToolCall(name="t", arguments="{}", id="same"),
                    ToolCall(name="u", arguments="{}", id="same"),
                )
            ),
        ),
    ],
)
def test_what_servers_differ_in_is_read(message: dict[str, Any], expected: Reply) -> None:
    assert decode_reply(body(message, None)) == expected


def test_of_several_choices_the_first_by_index_counts() -> None:
    other = {"index": 1, "message": {"content": "b"}}
    assert decode_reply({"choices": [other, {"index": 0, "message": {"content": "a"}}]}).text == "a"
    assert decode_reply({"choices": [other, {"message": {"content": "a"}}]}).text == "a"
    assert decode_reply({"choices": [other]}).text == "b"
    both = delta({"content": "a"})
    both["choices"].insert(0, {"index": 1, "delta": {"content": "b"}, "finish_reason": "length"})
    assert streamed(stream(both, delta({}, "stop"))).text == "a"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "/choices: missing or empty"),
        ({"choices": []}, "/choices: missing or empty"),
        ({"choices": {"a": 1}}, "/choices: object"),
        ({"choices": ["x"]}, "/choices/0/message"),
        ({"choices": [{"message": "x"}]}, "/choices/0/message"),
        (body({"content": 3}), "/choices/0/message/content: number"),
        (body({"content": [{"type": "text", "text": 3}]}), "/choices/0/message/content/0"),
        (body({"tool_calls": {}}), "/choices/0/message/tool_calls: object"),
        (body({"tool_calls": [call("t", "{}"), {"id": "x"}]}), "/choices/0/message/tool_calls/1/function"),
        (body({"tool_calls": [call("", "{}")]}), "/choices/0/message/tool_calls/0/function/name"),
    ],
)
def test_a_body_that_is_no_chat_completion_is_refused_with_the_place(sent: dict[str, Any], said: str) -> None:
    with pytest.raises(Malformed, match=said):
        decode_reply(sent)


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"a": ', b"[]", b"null", b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed, match="body"):
        parse_body(raw)


def test_the_json_servers_really_send_is_read() -> None:
    assert parse_body(b'\xef\xbb\xbf{"logprob": NaN, "big": 1e400}')["logprob"] != 0
    assert parse_body(b'{"text": "\\ud800"}') == {"text": "\ud800"}


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: (
            st.lists(v)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "message",
                        "content",
                        "tool_calls",
                        "function",
                        "name",
                        "index",
                        "type",
                        "text",
                        "usage",
                    ]
                ),
                v,
            )
        ),
    )
)
def test_any_json_is_a_reply_or_is_refused(value: Any) -> None:
    """Reading is total: nothing but `Malformed` comes out of it."""
    for sent in (
        {"choices": value, "usage": value},
        body({"content": value}),
        body({"tool_calls": value}),
        body(value),
    ):
        try:
            provider_error(sent)
            decode_reply(sent)
        except Malformed:
            pass


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": "many", "completion_tokens": True}, Usage()),
        (
            {
                "prompt_tokens": 19073,
                "completion_tokens": 50,
                "total_tokens": 19123,
                "prompt_tokens_details": {"cached_tokens": 18971},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(input_tokens=19073, output_tokens=50, cache_read_tokens=18971, reasoning_tokens=20),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8},
            Usage(input_tokens=10, output_tokens=1, cache_read_tokens=8),
        ),
        (
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 109000,
                "cache_read_input_tokens": 0,
                "output_tokens": 81,
            },
            Usage(input_tokens=109003, output_tokens=81, cache_read_tokens=0, cache_write_tokens=109000),
        ),
        (
            {"prompt_tokens": 3, "cache_creation_input_tokens": 109000, "completion_tokens": 81},
            Usage(input_tokens=109003, output_tokens=81, cache_write_tokens=109000),
        ),
        (
            {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 2},
            Usage(input_tokens=30, output_tokens=2, cache_read_tokens=20),
        ),
    ],
)
def test_usage_has_four_classes_and_the_unsaid_is_none(usage: Any, expected: Usage) -> None:
    assert decode_usage(usage) == expected


def test_thinking_that_only_the_total_counts_is_output() -> None:
    """Gemini's compatible endpoint: prompt 35, completion 12, total 109."""
    usage = decode_usage({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109})
    assert usage == Usage(input_tokens=35, output_tokens=74, reasoning_tokens=62)
    usage = decode_usage(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 22,
            "completion_tokens_details": {"reasoning_tokens": 7},
        }
    )
    assert usage == Usage(input_tokens=10, output_tokens=12, reasoning_tokens=7)


def test_words_a_provider_refused_become_the_reply() -> None:
    error = {"code": "tool_use_failed", "failed_generation": '{"name": "t", "arguments": {}}', "message": "no match"}
    reply = failed_generation(error, Reply(reasoning="r", finish_reason="stop"))
    assert reply == Reply(text='{"name": "t", "arguments": {}}', reasoning="r", finish_reason="tool_use_failed")
    assert failed_generation({"code": "tool_use_failed", "failed_generation": ""}, Reply()) is None
    assert failed_generation({"message": "overloaded"}, Reply()) is None


# ---------------------------------------------------------------------------------------------- server-sent events


def events_of(data: bytes, cuts: list[int]) -> list[Event]:
    parser = EventParser()
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=30)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "error"]), st.text(st.characters(codec="utf-8", exclude_characters="\r\n")))
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    CUTS,
)
def test_events_do_not_depend_on_where_the_bytes_are_split(
    events: list[tuple[str, str]], end: bytes, cuts: list[int]
) -> None:
    data = b"\xef\xbb\xbf: comment" + end + end
    for kind, text in events:
        data += f"event: {kind}".encode() + end if kind else b""
        data += b"data: " + text.encode() + end + b": keep-alive" + end + b"data:2" + end + b"id: 5" + end + end
    assert events_of(data, cuts) == [Event(kind, f"{text}\n2") for kind, text in events]


def test_fields_are_read_as_the_standard_says() -> None:
    assert events_of(b"data\n\n", []) == [Event("", "")]
    assert events_of(b"data:  two\n\n", []) == [Event("", " two")]
    assert events_of(b"event: x\n\ndata: 1", []) == [Event("", "1")], "an event without data is none"


# --------------------------------------------------------------------------------------------------------- streams

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def delta(message: dict[str, Any], finish_reason: str | None = None, **top: Any) -> dict[str, Any]:
    return {
        "id": "r1",
        "model": "m",
        "choices": [{"index": 0, "delta": message, "finish_reason": finish_reason}],
        **top,
    }


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n" * done


def streamed(data: bytes, cuts: list[int] | None = None) -> Reply:
    completion = StreamedCompletion()
    places = sorted({cut % (len(data) + 1) for cut in cuts or []})
    for a, b in zip([0, *places], [*places, len(data)], strict=True):
        completion.feed(data[a:b])
    return decode_reply(completion.body())


def tool_deltas(*deltas: dict[str, Any]) -> tuple[ToolCall, ...]:
    return streamed(stream(*(delta({"tool_calls": [one]}) for one in deltas), delta({}, "tool_calls"))).tool_calls


def tool(index: int | None, arguments: str, *, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    given_id = {} if id is None else {"id": id}
    return {**place, **given_id, "function": {"arguments": arguments, **({} if name is None else {"name": name})}}


TEXT = st.text(max_size=12)
CALLS = st.lists(
    st.tuples(st.sampled_from(["look", "run"]), st.dictionaries(TEXT, st.integers() | TEXT, max_size=3)), max_size=3
)


@st.composite
def replies(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """One answer, unstreamed and streamed: every text split anywhere, the bytes of escapes included."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | TEXT)}
    for name in draw(st.sets(st.sampled_from(["reasoning_content", "reasoning", "refusal"]))):
        message[name] = draw(TEXT)
    calls = [call(name, json.dumps(arguments), f"c{n}") for n, (name, arguments) in enumerate(draw(CALLS))]
    if calls:
        message["tool_calls"] = calls
    chunks: list[dict[str, Any]] = []
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        text = message.get(name) or ""
        units = text.encode("utf-16-le", "surrogatepass")  # a server may split a character into two escapes
        halves = [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]
        chunks += [delta({name: half}) for half in halves]
    for index, one in enumerate(calls):
        chunks.append(delta({"tool_calls": [{**one, "index": index, "function": {"name": one["function"]["name"]}}]}))
        text, size = one["function"]["arguments"], draw(st.integers(min_value=1, max_value=9))
        chunks += [delta({"tool_calls": [tool(index, text[at : at + size])]}) for at in range(0, len(text), size)]
    chunks.append(delta({}, "stop"))
    chunks.append({"choices": [], "usage": USAGE})
    return body(message, "stop", id="r1", model="m", usage=USAGE), stream(*chunks)


@settings(deadline=None)
@given(replies(), CUTS)
def test_a_streamed_reply_equals_the_unstreamed_one(both: tuple[dict[str, Any], bytes], cuts: list[int]) -> None:
    unstreamed, data = both
    assert streamed(data, cuts) == decode_reply(unstreamed)


@settings(deadline=None)
@given(replies(), st.integers(min_value=0))
@example((body({"content": "é"}), stream(delta({"content": "é"}), delta({}, "stop"), done=False)), 10_000)
def test_a_cut_stream_is_never_a_reply(both: tuple[dict[str, Any], bytes], cut: int) -> None:
    """Cut at any byte: the whole reply, with its usage, or none."""
    unstreamed, data = both
    data = data[: cut % len(data)]
    try:
        reply = streamed(data)
    except (CutStream, Malformed):
        return
    assert reply == decode_reply(unstreamed)


PAY = tool(0, '{"n": 1}', id="c", name="pay")


@pytest.mark.parametrize(
    "deltas",
    [
        [PAY, PAY],
        [PAY, PAY, PAY],
        [PAY, tool(0, '{"n":1}', id="c", name="pay")],
        [PAY, tool(0, '{"n": 1}', id="c")],
        [PAY, tool(1, '{"n": 1}', id="c", name="pay")],
        [PAY, tool(None, '{"n": 1}', id="c", name="pay")],
        [tool(0, "", id="c", name="pay"), tool(0, '{"n":'), tool(0, " 1}"), PAY],
        [tool(0, '{"n":', id="c", name="pay"), tool(0, " 1}", id="c", name="pay"), PAY],
    ],
)
def test_an_equal_call_id_in_a_stream_means_the_same_call(deltas: list[dict[str, Any]]) -> None:
    assert [(c.id, c.name, json.loads(c.arguments)) for c in tool_deltas(*deltas)] == [("c", "pay", {"n": 1})]


@pytest.mark.parametrize(
    "again", [tool(0, '{"n": 2}', id="c", name="pay"), tool(0, '{"n": 1}', id="c", name="refund"), tool(0, "{", id="c")]
)
def test_an_equal_call_id_for_another_call_is_no_answer(again: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="the call id 'c' names two calls"):
        tool_deltas(PAY, again)


def test_equal_calls_with_ids_of_their_own_are_two() -> None:
    assert [c.id for c in tool_deltas(PAY, tool(1, '{"n": 1}', id="d", name="pay"))] == ["c", "d"]
    assert len(tool_deltas(PAY, tool(1, '{"n": 2}', id="c", name="pay"))) == 2, "by its index it is another call"


def test_an_id_made_up_for_a_request_is_that_of_no_other_call() -> None:
    history = [
        Message(role="assistant", tool_calls=(ToolCall(name="a", arguments="{}", id="call_2_0"),)),
        Message(role="tool", content="1", tool_call_id="call_2_0"),
        Message(
            role="assistant",
            tool_calls=(ToolCall(name="b", arguments="{}"), ToolCall(name="c", arguments="{}", id="call_2_1")),
        ),
        Message(role="tool", content="2", tool_call_id=""),
        Message(role="tool", content="3", tool_call_id="call_2_1"),
    ]
    sent = encode_messages(history)
    called = [one["id"] for message in sent for one in message.get("tool_calls", ())]
    assert len(set(called)) == 3 and [m["tool_call_id"] for m in sent if m["role"] == "tool"] == called


def test_a_stream_without_its_end_mark_is_cut() -> None:
    with pytest.raises(CutStream, match=r"without \[DONE\]"):
        streamed(stream(delta({"content": "a"}), delta({}, "stop"), done=False))
    with pytest.raises(CutStream, match="without a finish_reason"):
        streamed(stream(delta({"content": "a"})))
    whole = stream(delta({"content": "a"}), delta({}, "stop", usage=USAGE), done=False)
    assert streamed(whole).usage == Usage(input_tokens=5, output_tokens=2), "the usage comes last: nothing is missing"


def test_a_stream_without_chunks_is_no_answer() -> None:
    for data in (b"", b"data: [DONE]\n\n", b"<html></html>"):
        with pytest.raises(Malformed, match="no chunk"):
            streamed(data)


def test_nothing_after_the_end_mark_counts() -> None:
    data = stream(delta({"content": "a"}), delta({}, "stop")) + stream(delta({"content": "b"}))
    assert streamed(data).text == "a"


def test_two_calls_that_share_an_index_are_two() -> None:
    calls = tool_deltas(
        tool(0, "", id="a", name="look"), tool(0, '{"x":1}'), tool(0, "", id="b", name="look"), tool(0, '{"x":2}')
    )
    assert calls == (
        ToolCall(name="look", arguments='{"x":1}', id="a"),
        ToolCall(name="look", arguments='{"x":2}', id="b"),
    )


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("second", ["look", "run"])
def test_without_ids_a_new_object_begins_a_new_call(index: int | None, second: str) -> None:
    calls = tool_deltas(
        tool(index, '{"x":', name="look"), tool(index, "{}}"), tool(index, '{"x"', name=second), tool(index, ":2}")
    )
    assert calls == (ToolCall(name="look", arguments='{"x":{}}'), ToolCall(name=second, arguments='{"x":2}'))


def test_another_name_begins_a_new_call_though_the_one_before_has_no_arguments() -> None:
    assert [one.name for one in tool_deltas(tool(0, "", name="look"), tool(0, "", name="run"))] == ["look", "run"]


def test_a_new_object_without_a_name_is_refused_and_never_merged() -> None:
    with pytest.raises(Malformed, match="second tool call"):
        tool_deltas(tool(0, '{"x":1}', name="look"), tool(0, '{"x":2}'))


def test_a_brace_inside_the_arguments_begins_no_call() -> None:
    pieces = ['{"a":[{"b":1}', ',{"c":2}', "]", ',"s":"}', '{"}']
    [only] = tool_deltas(tool(0, "", id="i", name="look"), *(tool(0, piece) for piece in pieces))
    assert only.arguments == "".join(pieces)


def test_names_and_ids_that_are_repeated_begin_no_call() -> None:
    [only] = tool_deltas(
        tool(0, "", id="i", name="look"), tool(0, '{"x"', id="i", name="look"), tool(0, ":1}", name="")
    )
    assert only == ToolCall(name="look", arguments='{"x":1}', id="i")


def test_calls_without_index_are_told_apart_by_id() -> None:
    calls = tool_deltas(
        tool(None, "", id="a", name="look"),
        tool(None, "", id="b", name="run"),
        tool(None, '{"x":1}', id="a"),
        tool(None, "{}", id="b"),
    )
    assert calls == (ToolCall(name="look", arguments='{"x":1}', id="a"), ToolCall(name="run", arguments="{}", id="b"))


def test_calls_come_in_the_order_of_their_index() -> None:
    calls = tool_deltas(tool(1, "{}", id="b", name="run"), tool(0, "{}", id="a", name="look"))
    assert [one.id for one in calls] == ["a", "b"]


def test_an_error_inside_a_stream_is_kept() -> None:
    completion = StreamedCompletion()
    completion.feed(stream(delta({"content": "half"}), {"error": {"message": "overloaded", "code": 503}}))
    assert completion.error == {"message": "overloaded", "code": 503}
    completion = StreamedCompletion()
    completion.feed(b'event: error\ndata: {"detail": "gone"}\n\n')
    assert completion.error == {"detail": "gone"}
    completion = StreamedCompletion()
    completion.feed(stream({"choices": [{"index": 0, "delta": {}, "error": {"code": 502}, "finish_reason": "error"}]}))
    assert completion.error == {"code": 502}


def test_what_came_before_an_error_can_be_read_though_a_call_in_it_is_half() -> None:
    completion = StreamedCompletion()
    half_call = delta({"reasoning": "hm", "tool_calls": [tool(0, '{"x"')]})
    completion.feed(stream(half_call, {"error": {"code": "tool_use_failed", "failed_generation": "look()"}}))
    assert decode_reply(completion.body()) == Reply(reasoning="hm", model="m", response_id="r1")


# -------------------------------------------------------------------------------------------------------- endpoint

KEY = "sk-test-0123456789abcdef"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "86400"}, 86400.0),
        ({"Retry-After": "-1"}, 0.0),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:27:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:27:00 GMT"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:27:00 -0000", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
    ],
)
def test_the_wait_a_server_asks_for_is_read(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers) == expected


def test_every_status_has_a_kind() -> None:
    kinds = {status: kind_of(status) for status in range(300, 600)}
    assert kinds[429] == ("rate_limited", True)
    assert kinds[401] == kinds[403] == ("auth", False)
    assert kinds[400] == kinds[404] == kinds[422] == kinds[413] == kinds[302] == ("rejected", False)
    assert {kinds[status] for status in (408, 409, 425, *range(500, 600))} == {("server", True)}


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1/chat/completions"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost/v1/chat/completions", "http://localhost/v1/chat/completions"),
        ("https://h/openai?api-version=1", "https://h/openai/chat/completions?api-version=1"),
    ],
)
def test_the_endpoint_is_under_the_base_url(base_url: str, url: str) -> None:
    assert Endpoint(base_url, api_key=None, headers={}).url == url


@pytest.mark.parametrize(
    "base_url", ["", "localhost:8000", "ftp://h/v1", "http://", f"http://me:{KEY}@h/v1", f"ws://me:{KEY}@h:x/?k={KEY}"]
)
def test_a_base_url_that_cannot_work_is_refused_without_its_secrets(base_url: str) -> None:
    with pytest.raises(ConfigError, match="base_url") as caught:
        Endpoint(base_url, api_key=None, headers={})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["api_key", "headers"])
def test_a_key_no_header_can_hold_is_refused_without_showing_it(name: str) -> None:
    bad = f"{KEY}\nX-Evil: 1"
    with pytest.raises(ConfigError, match=name) as caught:
        if name == "api_key":
            Endpoint("http://h", api_key=bad, headers={})
        else:
            Endpoint("http://h", api_key=None, headers={"Api-Key": bad})
    assert KEY not in str(caught.value)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=400), st.integers(min_value=0, max_value=400))
def test_an_excerpt_holds_no_part_of_a_secret_wherever_the_cut_falls(before: int, after: int) -> None:
    endpoint = Endpoint("http://h", api_key=KEY, headers={"X-Token": "tok-9876543210"})
    text = endpoint.excerpt(b"x" * before + KEY.encode() + b"\x1b[31m tok-9876543210" + b"y" * after)
    assert len(text) <= 300 and text.isprintable()
    assert "sk-t" not in text and "tok-9" not in text


def test_own_headers_replace_the_usual_ones_whatever_their_case() -> None:
    headers = Endpoint("http://h", api_key=KEY, headers={"AUTHORIZATION": "Basic abc"}).headers
    assert headers["authorization"] == "Basic abc" and len(headers) == 3


# ---------------------------------------------------------------------------------------------------------- client


def test_the_default_model_comes_from_three_variables() -> None:
    model = default_model({"MODEL": "m", "OPENAI_BASE_URL": "http://localhost:1/v1", "OPENAI_API_KEY": KEY})
    assert repr(model) == "OpenAIModel('http://localhost:1/v1/chat/completions', model='m', protocol='tools')"
    assert default_model({"MODEL": "m"}).name == "m", "no key is needed to build a client"
    assert "https://api.openai.com/v1/" in repr(default_model({"MODEL": "m", "OPENAI_BASE_URL": ""}))


def test_a_missing_model_names_the_variable_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"MODEL is not set: export MODEL="):
        default_model({"OPENAI_API_KEY": KEY})


@pytest.mark.parametrize("wrong", [{"model": ""}, {"protocol": "xml"}, {"timeout_s": 0}, {"connect_timeout_s": -1}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OpenAIModel("http://h", **{"model": "m", **wrong})


def test_a_run_sees_the_parameters_it_is_sent_with() -> None:
    model = OpenAIModel("http://h", model="m", params=ModelParams(model="ignored", temperature=0.5))
    assert model.effective_params(ModelParams(seed=1)) == ModelParams(model="m", temperature=0.5, seed=1)


def test_importing_the_client_does_not_import_aiohttp() -> None:
    code = "import sys, kernel.model.openai as o; o.default_model({'MODEL': 'm'}); sys.exit('aiohttp' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


# ---------------------------------------------------------------------------------------------------------- corpus


def recorded_streams() -> list[bytes]:
    """The event streams in a cassette, whose YAML has them as literal blocks."""
    text = (CASSETTES / "groq_tool_use_failed_error_streaming.yaml").read_text(encoding="utf-8")
    found = []
    for block in text.split("      string: |+\n")[1:]:
        lines = [line[8:] for line in block.split("\n    headers:")[0].split("\n")]
        found.append("\n".join(lines).encode())
    return found


@pytest.mark.corpus
@pytest.mark.skipif(not CASSETTES.exists(), reason="the corpus is not beside the checkout")
def test_recorded_streams_are_read() -> None:
    failed, with_call, with_text = recorded_streams()
    completion = StreamedCompletion()
    completion.feed(failed)
    partial = decode_reply(completion.body())
    assert completion.error is not None
    reply = failed_generation(completion.error, partial)
    assert reply is not None and reply.finish_reason == "tool_use_failed" and reply.reasoning
    assert json.loads(reply.text)["name"] == "get_something_by_name"
    reply = streamed(with_call)
    assert [(one.name, one.arguments) for one in reply.tool_calls] == [("get_something_by_name", '{"name":"example"}')]
    assert reply.usage == Usage(input_tokens=304, output_tokens=49, reasoning_tokens=23)
    assert streamed(with_text, list(range(0, len(with_text), 7))) == streamed(with_text)
    assert streamed(with_text).finish_reason == "stop" and streamed(with_text).text
