"""The client against a real server process: what it sends, what it makes of answers, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kernel.ambient import outgoing_headers
from kernel.errors import ModelError
from kernel.model.openai import OpenAIModel
from kernel.model.openai_reply import decode_reply
from kernel.model.sse import StreamedCompletion
from kernel.record.messages import Message, ModelParams, Reply, Request, ToolCall, ToolSpec, Usage

from .model_server import Behaviour, ModelServer, completion, event_stream, running_model_server

KEY = "sk-test-0123456789abcdef"
ASK = Request(messages=[Message(role="user", content="hi")])
CALLS = [{"name": "look", "arguments": '{"x": 1}', "id": "c1"}, {"name": "run", "arguments": "{}", "id": "c2"}]
WHOLE: Behaviour = {
    "text": "Größe: 3 😀",
    "tool_calls": CALLS,
    "reasoning": "hm",
    "usage": {"prompt_tokens": 7, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2}},
}
WHOLE_REPLY = Reply(
    text="Größe: 3 😀",
    tool_calls=(ToolCall(name="look", arguments='{"x": 1}', id="c1"), ToolCall(name="run", arguments="{}", id="c2")),
    reasoning="hm",
    finish_reason="tool_calls",
    usage=Usage(input_tokens=7, output_tokens=5, reasoning_tokens=2),
    model="scripted-1",
    response_id="chatcmpl-scripted",
)


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[ModelServer]:
    with running_model_server([]) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """An unclosed socket warns when it is collected, and a warning is a failure."""
    yield
    gc.collect()


def ask(base_url: str, request: Request = ASK, **settings: Any) -> Reply:
    """One call as a user makes it who never closes anything."""
    return asyncio.run(OpenAIModel(base_url, **{"model": "m", "api_key": KEY, **settings}).complete(request))


def failure(server: ModelServer, behaviour: Behaviour, **settings: Any) -> ModelError:
    """The error one behaviour ends in. Whatever it is, the key is nowhere on it."""
    server.play([behaviour])
    with pytest.raises(ModelError) as caught:
        ask(server.base_url, **settings)
    error = caught.value
    assert error.__cause__ is None and error.__context__ is None
    assert KEY not in "".join(traceback.format_exception(error))
    assert error.message.startswith(f"POST {server.base_url}/chat/completions (model m): ")
    return error


def facts(error: ModelError) -> tuple[str, int | None, bool]:
    return error.kind, error.status, error.retryable


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_the_same_streamed_and_whole(server: ModelServer, stream: bool) -> None:
    server.play([WHOLE])
    assert ask(server.base_url, stream=stream) == WHOLE_REPLY
    [sent] = server.requests()
    assert sent["path"] == "/v1/chat/completions"
    assert sent["headers"]["authorization"] == f"Bearer {KEY}"
    assert sent["headers"]["content-type"] == "application/json"
    assert sent["body"].get("stream", False) is stream


def test_a_request_arrives_as_it_was_meant(server: ModelServer) -> None:
    request = Request(
        messages=[Message(role="system", content="s"), Message(role="user", content="lone \ud800")],
        tools=(ToolSpec(name="look", description="d", parameters={"type": "object"}),),
        params=ModelParams(temperature=0.0, max_output_tokens=9),
    )
    server.play([WHOLE])
    ask(
        server.base_url,
        request,
        params=ModelParams(temperature=1.0, seed=3),
        headers={"X-Title": "t"},
        api_key=None,
    )
    [sent] = server.requests()
    assert sent["body"] == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "lone \ufffd"}],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
        ],
        "temperature": 0.0,
        "seed": 3,
        "max_tokens": 9,
    }
    assert sent["headers"]["x-title"] == "t" and "authorization" not in sent["headers"]


def test_headers_of_the_context_go_along_and_are_gone_after_it(server: ModelServer) -> None:
    async def main(base_url: str) -> None:
        async with OpenAIModel(base_url, model="m", api_key=KEY) as model:
            token = outgoing_headers.set({"Traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})
            await model.complete(ASK)
            outgoing_headers.reset(token)
            await model.complete(ASK)

    server.play([{**WHOLE, "times": 2}])
    asyncio.run(main(server.base_url))
    first, second = (one["headers"].get("traceparent") for one in server.requests())
    assert first == "00-" + "a" * 32 + "-" + "b" * 16 + "-01" and second is None


def test_the_current_span_is_sent_and_baggage_is_not(server: ModelServer) -> None:
    from opentelemetry import baggage, context, trace

    span = trace.NonRecordingSpan(
        trace.SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=trace.TraceFlags(1))
    )
    token = context.attach(baggage.set_baggage("user", "secret", trace.set_span_in_context(span)))
    try:
        server.play([WHOLE])
        ask(server.base_url)
        [sent] = server.requests()
    finally:
        context.detach(token)
    assert sent["headers"]["traceparent"] == f"00-{1:032x}-{2:016x}-01"
    assert "baggage" not in sent["headers"]


def test_an_entered_model_keeps_its_connection_and_closes_it(server: ModelServer) -> None:
    async def main(base_url: str) -> Reply:
        async with OpenAIModel(base_url, model="m") as model, model:
            await asyncio.gather(*(model.complete(ASK) for _ in range(3)))
            await model.aclose()
            return await model.complete(ASK)

    server.play([{**WHOLE, "times": 4}])
    assert asyncio.run(main(server.base_url)) == WHOLE_REPLY


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ("rejected", False)),
        (401, ("auth", False)),
        (403, ("auth", False)),
        (404, ("rejected", False)),
        (408, ("server", True)),
        (422, ("rejected", False)),
        (429, ("rate_limited", True)),
        (500, ("server", True)),
        (503, ("server", True)),
    ],
)
def test_a_status_becomes_an_error_that_quotes_the_body(
    server: ModelServer, status: int, expected: tuple[str, bool]
) -> None:
    error = failure(server, {"status": status, "body": {"error": {"message": f"no, {KEY} " + "x" * 400}}})
    assert facts(error) == (expected[0], status, expected[1])
    assert f"status {status}" in error.message and "no, [secret] xxx" in error.message
    assert len(error.message) < 480


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "86400"}, 86400.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30.0),
    ],
)
def test_a_wait_the_server_asks_for_is_handed_on(server: ModelServer, headers: dict[str, str], wait_s: float) -> None:
    error = failure(server, {"status": 429, "headers": headers})
    assert error.retry_after_s == wait_s and f"asks to wait {wait_s:g} s" in error.message


def test_an_empty_account_is_not_tried_again(server: ModelServer) -> None:
    error = failure(server, {"status": 429, "body": {"error": {"code": "insufficient_quota"}}})
    assert facts(error) == ("rate_limited", 429, False)


def test_a_redirect_is_not_followed(server: ModelServer) -> None:
    with running_model_server([WHOLE]) as other:
        location = f"{other.base_url}/chat/completions?k={KEY}"
        error = failure(server, {"status": 307, "headers": {"Location": location}})
        assert other.requests() == []
    assert facts(error) == ("rejected", 307, False)
    assert f"set base_url to '{other.base_url}/chat/completions'" in error.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ({"body": '{"choices": [', "headers": {"Content-Type": "application/json"}}, ("bad_response", 200, True)),
        ({"body": "<html>hi</html>", "headers": {"Content-Type": "text/html"}}, ("bad_response", 200, True)),
        ({"body": {"contentType": "application/json"}}, ("bad_response", 200, True)),
        ({"body": {"choices": [{"message": {"content": 3}}]}}, ("bad_response", 200, True)),
        ({"body": {"error": {"message": "overloaded"}}}, ("server", 200, True)),
        ({"body": {"error": {"message": "too long", "code": 400}}}, ("rejected", 200, False)),
        ({**WHOLE, "cut": 60}, ("transport", None, True)),
        ({"drop": True}, ("transport", None, True)),
        ({"raw": "SSH-2.0-OpenSSH\r\n\r\n"}, ("bad_response", None, True)),
        ({"raw": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"}, ("transport", None, True)),
    ],
)
def test_an_answer_that_is_none_is_an_error(
    server: ModelServer, behaviour: Behaviour, expected: tuple[str, int | None, bool], stream: bool
) -> None:
    assert facts(failure(server, behaviour, stream=stream)) == expected


def test_a_stream_that_ends_early_is_cut_even_where_http_sees_no_cut(server: ModelServer) -> None:
    events = event_stream(completion(WHOLE), done=False)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    error = failure(server, {"raw": head + events[:-200].decode()}, stream=True)
    assert facts(error) == ("transport", None, True) and "the stream ended" in error.message


def test_an_answer_too_long_to_be_one_is_not_read_to_its_end(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.model.openai._MAX_BODY_BYTES", 1000)
    for stream in (False, True):
        error = failure(server, {"text": "x" * 2000}, stream=stream)
        assert facts(error) == ("bad_response", 200, True) and "longer than 1000 bytes" in error.message


def test_a_stream_ends_with_its_end_mark_though_the_server_holds_the_connection(server: ModelServer) -> None:
    server.play([{**WHOLE, "hold": True}])
    assert ask(server.base_url, stream=True, timeout_s=5.0) == WHOLE_REPLY
    server.wait_for(2)
    assert server.events()[-1]["event"] == "client_gone"


def test_an_event_stream_nobody_asked_for_is_read_as_one(server: ModelServer) -> None:
    events = event_stream(completion(WHOLE)).decode()
    server.play([{"body": events, "headers": {"Content-Type": "text/event-stream"}}])
    assert ask(server.base_url) == WHOLE_REPLY


def test_a_plain_body_in_place_of_a_stream_is_read(server: ModelServer) -> None:
    server.play([{"body": completion(WHOLE)}])
    assert ask(server.base_url, stream=True) == WHOLE_REPLY


REFUSED = {"error": {"code": "tool_use_failed", "failed_generation": '{"name": "look"}', "message": "no such tool"}}


@pytest.mark.parametrize(
    "behaviour",
    [
        {"status": 400, "body": REFUSED},
        {"body": REFUSED},
        {"body": f"event: error\ndata: {json.dumps(REFUSED)}\n\n", "headers": {"Content-Type": "text/event-stream"}},
    ],
)
def test_words_the_provider_refused_come_back_as_a_reply(server: ModelServer, behaviour: Behaviour) -> None:
    server.play([behaviour])
    assert ask(server.base_url) == Reply(text='{"name": "look"}', finish_reason="tool_use_failed")


def test_a_refusal_without_the_words_may_be_tried_again(server: ModelServer) -> None:
    error = failure(server, {"status": 400, "body": {"error": {"code": "tool_use_failed", "failed_generation": ""}}})
    assert facts(error) == ("bad_response", 400, True)


@pytest.mark.parametrize("behaviour", [{"hang": True}, {**WHOLE, "drip_s": 0.02}])
def test_the_timeout_covers_the_whole_attempt(server: ModelServer, behaviour: Behaviour) -> None:
    error = failure(server, behaviour, timeout_s=0.2)
    assert facts(error) == ("timeout", None, True) and "within 0.2 s (timeout_s)" in error.message


def test_a_slow_answer_in_time_is_an_answer(server: ModelServer) -> None:
    server.play([{**WHOLE, "drip_s": 0.001}])
    assert ask(server.base_url, stream=True) == WHOLE_REPLY


def test_a_refused_connection_may_be_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port
        with pytest.raises(ModelError) as caught:
            ask(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert facts(caught.value) == ("transport", None, True)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("entered", [False, True])
def test_cancelling_closes_the_connection_at_once(server: ModelServer, entered: bool) -> None:
    async def main() -> None:
        model = OpenAIModel(server.base_url, model="m")
        async with model if entered else contextlib.nullcontext():
            task = asyncio.create_task(model.complete(ASK))
            await asyncio.to_thread(server.wait_for, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(server.wait_for, 2)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    server.play([{"hang": True}])
    asyncio.run(main())
    assert [event["event"] for event in server.events()] == ["request", "client_gone"]


def test_a_masked_secret_is_never_sent(server: ModelServer) -> None:
    held = Request(messages=[*ASK.messages, Message(role="user", content="use ~masked.openai-key.1a2b3c4d~")])
    server.play([])
    with pytest.raises(ModelError, match="/messages/1 holds the placeholder") as caught:
        ask(server.base_url, held)
    assert server.requests() == []
    assert facts(caught.value) == ("rejected", None, False)


def test_a_script_that_is_used_up_says_so(server: ModelServer) -> None:
    server.play([])
    with pytest.raises(ModelError, match="the script has 0 behaviours, this is request 1"):
        ask(server.base_url)


@settings(deadline=None)
@given(st.text(max_size=30), st.integers(min_value=1, max_value=7))
def test_the_streams_the_server_sends_hold_what_it_would_send_whole(text: str, piece_chars: int) -> None:
    body = completion({**WHOLE, "text": text, "refusal": text[::-1]})
    streamed = StreamedCompletion()
    streamed.feed(event_stream(body, piece_chars=piece_chars))
    assert decode_reply(streamed.body()) == decode_reply(body)
