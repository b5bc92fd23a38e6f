"""Spans of other frameworks, in each one's own spelling, become recordings that replay; what they lack is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kernel.errors import TraceError
from kernel.trace.span import ERROR, Event, Resource, Span
from replay.importers import import_trace
from replay.play.play import ReplayResult, replay
from replay.play.recording import Recording
from replay.readers import RawTrace

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
ARGS = {"service": "gateway"}


def span(number: int, attributes: dict[str, Any], *, name: str = "x", parent: int = 0, **more: Any) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else None,
        name=name,
        start_ns=number * SECOND,
        end_ns=number * SECOND + SECOND // 2,
        attributes=attributes,
        **more,
    )


def trace(spans: Sequence[Span], scope: str = "") -> RawTrace:
    resource = Resource(attributes={"service.name": "shop"}, scope_name=scope)
    return RawTrace(trace_id=TRACE, spans=tuple(spans), resources={s.span_id: resource for s in spans})


def replayed(spans: Sequence[Span], scope: str = "") -> tuple[Recording, ReplayResult]:
    recording = import_trace(trace(spans, scope), "t.json")
    return recording, replay(recording)


def assert_round(spans: Sequence[Span], framework: str, scope: str = "", *, system: str = "You help.") -> Recording:
    """One question, one call of `status` that gave `up`, one answer: served whole, in this order."""
    recording, result = replayed(spans, scope)
    assert result.verdict == "imported", (result.first, result.why_not)
    assert (result.served.model, result.served.tools) == (2, 1)
    (run,) = result.observed
    assert (run.head.system, run.head.task, run.head.source) == (system, "Is it up?", framework)
    assert run.steps[0].calls[0].call.args == ARGS
    assert run.steps[0].calls[0].result == "up"
    assert run.end is not None and run.end.answer == "It is up."
    assert recording.foreign == framework
    assert recording.trace_id == TRACE
    assert recording.service == "shop"
    return recording


# ---- semantic conventions


def parts(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(content)}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


ASKED = parts("user", text("Is it up?"))
CALLED = parts("assistant", {"type": "tool_call", "id": "c1", "name": "status", "arguments": ARGS})
ANSWERED = parts("assistant", text("It is up."))


def semconv(number: int, asked: list[Any], reply: dict[str, Any], **more: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.system_instructions": json.dumps([text("You help.")]),
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps([reply]),
        "gen_ai.usage.input_tokens": 10 * number,
        "gen_ai.usage.output_tokens": number,
        **more.pop("attributes", {}),
    }
    return span(number, attributes, **more)


def response(role: str = "tool", key: str = "response", **more: Any) -> dict[str, Any]:
    return parts(role, {"type": "tool_call_response", "id": "c1", key: "up", **more})


@pytest.mark.parametrize(
    ("role", "key"), [("tool", "response"), ("tool", "result"), ("user", "result"), ("user", "content")]
)
def test_messages_of_the_conventions_in_each_form_of_a_tool_result(role: str, key: str) -> None:
    recording = assert_round(
        [semconv(1, [ASKED], CALLED), semconv(3, [ASKED, CALLED, response(role, key)], ANSWERED)], "otel-genai"
    )
    run = recording.runs[0].run
    assert run.end is not None and run.end.usage.input_tokens == 40
    assert run.head.params.model == "gpt-x"
    assert "usage" not in run.head.absent and "times" not in run.head.absent
    assert [mark.chat.span_id for mark in run.marks if mark.chat] == [f"{1:016x}", f"{3:016x}"]
    assert run.steps[1].budget is not None and run.steps[1].budget.elapsed_ns == 2 * SECOND + SECOND // 2


def test_values_may_be_lists_and_maps_instead_of_json_text() -> None:
    first, second = semconv(1, [ASKED], CALLED), semconv(3, [ASKED, CALLED, response()], ANSWERED)
    for found in (first, second):
        for key in ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"):
            found.attributes[key] = json.loads(found.attributes[key])
    assert_round([first, second], "otel-genai")


def test_the_order_of_spans_in_the_file_does_not_matter() -> None:
    assert_round([semconv(3, [ASKED, CALLED, response()], ANSWERED), semconv(1, [ASKED], CALLED)], "otel-genai")


def test_ids_that_disagree_between_a_reply_and_the_next_request_are_the_reply_s() -> None:
    again = parts("assistant", {"type": "tool_call", "id": "fc_1", "name": "status", "arguments": json.dumps(ARGS)})
    result = parts("tool", {"type": "tool_call_response", "id": "fc_1", "response": "up"})
    recording = assert_round([semconv(1, [ASKED], CALLED), semconv(3, [ASKED, again, result], ANSWERED)], "otel-genai")
    assert recording.runs[0].run.steps[0].calls[0].call.id == "c1"


def test_a_call_traced_twice_is_one_step() -> None:
    outer = span(1, {"openinference.span.kind": "LLM", "input.value": "?"})
    inner = semconv(2, [ASKED], CALLED, parent=1)
    recording = assert_round([outer, inner, semconv(3, [ASKED, CALLED, response()], ANSWERED)], "otel-genai")
    assert len(recording.runs[0].run.steps) == 2


def test_a_call_below_a_tool_of_another_is_a_conversation_of_its_own() -> None:
    tool = span(2, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "status"}, parent=1)
    inner = semconv(3, [parts("user", text("Look."))], parts("assistant", text("up")), parent=2)
    outer = semconv(1, [ASKED], CALLED)
    recording, result = replayed([outer, tool, inner, semconv(5, [ASKED, CALLED, response()], ANSWERED)])
    assert result.verdict == "imported"
    assert [len(recorded.run.steps) for recorded in recording.runs] == [2, 1]


def test_agents_of_one_trace_are_runs_that_do_not_see_each_other() -> None:
    agents = [
        span(n, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name})
        for n, name in ((1, "a"), (2, "b"))
    ]
    calls = [semconv(n, [ASKED], ANSWERED, parent=parent) for n, parent in ((3, 1), (4, 2))]
    recording, result = replayed([*agents, *calls])
    assert result.verdict == "imported"
    assert [recorded.run.head.agent for recorded in recording.runs] == ["a", "b"]


def test_the_result_after_the_last_request_is_the_tool_span_s() -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "status",
        "gen_ai.tool.call.result": "123",
    }
    recording, result = replayed([semconv(1, [ASKED], CALLED), span(2, attributes)])
    record = recording.runs[0].run.steps[0].calls[0]
    assert (record.outcome, record.result) == ("ok", "123")
    assert result.verdict == "imported" and not result.complete
    assert recording.runs[0].run.marks[0].calls[0].span_id == f"{2:016x}"


def test_a_result_that_a_tracer_wrapped_is_unwrapped_where_the_tool_is_the_only_one() -> None:
    attributes = {"traceloop.span.kind": "tool", "traceloop.entity.name": "status"}
    attributes |= {"traceloop.entity.input": json.dumps({"inputs": ARGS, "tags": []})}
    attributes |= {"traceloop.entity.output": json.dumps({"output": "up", "kwargs": {}})}
    recording, result = replayed([semconv(1, [ASKED], CALLED), span(2, attributes)])
    assert result.verdict == "imported"
    assert recording.runs[0].run.steps[0].calls[0].result == "up"


def test_a_tool_span_of_another_call_is_not_taken_for_this_one() -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "status",
        "gen_ai.tool.call.result": "no",
    }
    earlier = span(1, attributes)
    other = span(3, {**attributes, "gen_ai.tool.call.id": "c9"})
    recording, _ = replayed([earlier, semconv(2, [ASKED], CALLED), other])
    assert recording.runs[0].run.steps[0].calls[0].outcome == "unknown_outcome"


def test_a_failed_tool_after_the_last_request_keeps_its_failure() -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "status", "error.type": "TimeoutError"}
    recording, result = replayed(
        [semconv(1, [ASKED], CALLED), span(2, attributes, status=ERROR, status_message="too slow")]
    )
    record = recording.runs[0].run.steps[0].calls[0]
    assert record.outcome == "error" and record.error is not None
    assert (record.error.type, record.error.message) == ("TimeoutError", "too slow")
    assert result.verdict == "imported"


def test_a_call_without_any_result_stays_open() -> None:
    recording, result = replayed([semconv(1, [ASKED], CALLED)])
    step = recording.runs[0].run.steps[0]
    assert step.decision is None and step.calls[0].outcome == "unknown_outcome"
    assert result.verdict == "imported" and not result.complete


def test_a_later_user_message_is_the_next_turn() -> None:
    more = parts("user", text("Sure?"))
    recording, result = replayed([semconv(1, [ASKED], ANSWERED), semconv(2, [ASKED, ANSWERED, more], ANSWERED)])
    assert result.verdict == "imported"
    assert [recorded.run.head.turn for recorded in recording.runs] == [1, 2]
    assert recording.conversation is not None


def test_a_request_with_only_what_is_new_goes_on_where_the_server_keeps_the_history() -> None:
    recording = assert_round([semconv(1, [ASKED], CALLED), semconv(3, [response()], ANSWERED)], "otel-genai")
    assert any("the server kept the history" in name for name in recording.runs[0].run.head.absent)


# ---- other spellings


def test_events_of_the_older_conventions() -> None:
    def event(name: str, **attributes: Any) -> Event:
        return Event(name=name, attributes=attributes)

    call = json.dumps([{"id": "c1", "type": "function", "function": {"name": "status", "arguments": json.dumps(ARGS)}}])
    asked = (event("gen_ai.system.message", content="You help."), event("gen_ai.user.message", content="Is it up?"))
    called = event("gen_ai.choice", index=0, finish_reason="tool_calls", tool_calls=call)
    again = (event("gen_ai.assistant.message", tool_calls=call), event("gen_ai.tool.message", id="c1", content="up"))
    answered = event(
        "gen_ai.choice", finish_reason="stop", message=json.dumps({"role": "assistant", "content": "It is up."})
    )
    attributes = {"gen_ai.system": "openai", "gen_ai.request.model": "gpt-x", "gen_ai.usage.prompt_tokens": 5}
    first = span(1, attributes, events=(*asked, called))
    recording = assert_round([first, span(3, attributes, events=(*asked, *again, answered))], "otel-genai")
    chat = recording.runs[0].run.steps[0].chat
    assert chat is not None and chat.reply is not None
    assert (chat.reply.finish_reason, chat.reply.usage.input_tokens) == ("tool_calls", 5)


def openllmetry(number: int, messages: list[dict[str, Any]], reply: dict[str, Any]) -> Span:
    attributes: dict[str, Any] = {
        "llm.request.type": "chat",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-x",
    }
    for index, message in enumerate(messages):
        attributes |= {f"gen_ai.prompt.{index}.{key}": value for key, value in message.items()}
    attributes |= {f"gen_ai.completion.0.{key}": value for key, value in reply.items()}
    return span(number, attributes)


INDEXED_CALL = {"tool_calls.0.id": "c1", "tool_calls.0.name": "status", "tool_calls.0.arguments": json.dumps(ARGS)}


def test_indexed_attributes_of_openllmetry() -> None:
    asked = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Is it up?"}]
    again = [{"role": "assistant", **INDEXED_CALL}, {"role": "tool", "content": "up", "tool_call_id": "c1"}]
    first = openllmetry(1, asked, {"role": "assistant", "finish_reason": "tool_calls", **INDEXED_CALL})
    second = openllmetry(3, [*asked, *again], {"role": "assistant", "content": "It is up."})
    assert_round([first, second], "openllmetry")


def test_numbers_in_names_are_read_as_numbers() -> None:
    asked = [{"role": "user", "content": "Is it up?"}, {"role": "assistant", "content": "Yes."}] * 6
    recording, result = replayed([openllmetry(1, [*asked, {"role": "user", "content": "Now?"}], {"content": "Yes."})])
    assert result.verdict == "imported"
    assert recording.runs[-1].run.head.task == "Now?"


def openinference(
    number: int, messages: list[dict[str, Any]], reply: dict[str, Any], start: int = 0, **more: Any
) -> Span:
    attributes: dict[str, Any] = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-x"}
    for index, message in enumerate(messages, start):
        attributes |= {f"llm.input_messages.{index}.message.{key}": value for key, value in message.items()}
    attributes |= {f"llm.output_messages.0.message.{key}": value for key, value in reply.items()}
    return span(number, attributes, **more)


NESTED_CALL = {
    "tool_calls.0.tool_call.id": "c1",
    "tool_calls.0.tool_call.function.name": "status",
    "tool_calls.0.tool_call.function.arguments": json.dumps(ARGS),
}
USER = {"role": "user", "contents.0.message_content.type": "text", "contents.0.message_content.text": "Is it up?"}
RESULT = {"role": "tool", "content": "up", "tool_call_id": "c1"}


def test_indexed_attributes_of_openinference_that_begin_at_one() -> None:
    first = openinference(1, [USER], {"role": "assistant", **NESTED_CALL}, start=1)
    second = openinference(
        3, [USER, {"role": "assistant", **NESTED_CALL}, RESULT], {"role": "assistant", "content": "It is up."}, start=1
    )
    recording = assert_round([first, second], "openinference", system="")
    assert "system prompt" in recording.runs[0].run.head.absent


def test_a_call_that_openinference_also_writes_as_a_content_block_is_one_call() -> None:
    of, block = "llm.output_messages.0.message.", "contents.1."
    called = {"id": "c1", "function.name": "status", "function.arguments": '{"service": "x"}'}
    attributes: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Is it up?",
        f"{of}role": "assistant",
        f"{of}contents.0.message_content.type": "text",
        f"{of}contents.0.message_content.text": "I look.",
        f"{of}{block}message_content.type": "tool_use",
        **{f"{of}{at}tool_call.{key}": value for at in ("tool_calls.0.", block) for key, value in called.items()},
    }
    recording, _ = replayed([span(1, attributes)])
    [step] = recording.runs[0].run.steps
    assert [(one.call.name, one.call.args) for one in step.calls] == [("status", {"service": "x"})]
    assert step.chat and step.chat.reply and step.chat.reply.text == "I look."


def test_a_missing_reply_in_the_next_request_is_known_from_its_own_span() -> None:
    first = openinference(1, [USER], {"role": "assistant", **NESTED_CALL})
    second = openinference(3, [USER, {}, RESULT], {"role": "assistant", "content": "It is up."})
    assert_round([first, second], "openinference", system="")


def test_a_missing_message_that_no_span_knows_is_not_made_up() -> None:
    recording, result = replayed([openinference(1, [USER, {}, RESULT], {"role": "assistant", "content": "It is up."})])
    assert result.verdict == "not_checked"
    assert "message 1 of the request is missing" in recording.runs[0].run.head.absent[-1]


def test_dropped_attributes_make_indexed_messages_partial() -> None:
    recording, result = replayed([openinference(1, [USER], {"role": "assistant", "content": "Yes."}, dropped=4)])
    assert result.verdict == "not_checked"
    assert "messages" in result.why_not
    head = recording.runs[0].run.head
    assert "messages" in head.absent and "4 of its attributes were dropped" in head.absent[-1]


def test_the_whole_request_stands_in_for_dropped_attributes() -> None:
    found = openinference(1, [USER], {"role": "assistant", "content": "Yes."}, dropped=4)
    found.attributes["input.value"] = json.dumps({"messages": [{"role": "user", "content": "Is it up?"}]})
    _, result = replayed([found])
    assert result.verdict == "imported"


def test_pydantic_ai_of_the_second_version() -> None:
    first, second = semconv(1, [ASKED], CALLED), semconv(3, [ASKED, CALLED, response("user")], ANSWERED)
    attributes = {
        "gen_ai.tool.name": "status",
        "gen_ai.tool.call.id": "c1",
        "tool_arguments": ARGS,
        "tool_response": "up",
    }
    assert_round([first, span(2, attributes, name="running tool"), second], "pydantic-ai", "pydantic-ai")


def langsmith(number: int, messages: list[Any], reply: dict[str, Any]) -> Span:
    attributes = {
        "langsmith.span.kind": "llm",
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt": json.dumps({"messages": [messages]}),
        "gen_ai.completion": json.dumps({"generations": [[{"text": "", "message": reply}]]}),
        "langsmith.metadata.LANGSMITH_ENDPOINT": "https://secret.example",
    }
    return span(number, attributes)


def serialised(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


def test_serialised_messages_of_langsmith_without_its_metadata() -> None:
    asked = [serialised("SystemMessage", content="You help."), serialised("HumanMessage", content="Is it up?")]
    called = serialised("AIMessage", content="", tool_calls=[{"name": "status", "args": ARGS, "id": "c1"}])
    gave = serialised("ToolMessage", content="up", tool_call_id="c1", name="status")
    answered = serialised("AIMessage", content="It is up.")
    recording = assert_round([langsmith(1, asked, called), langsmith(3, [*asked, called, gave], answered)], "langsmith")
    assert "secret.example" not in repr(recording)


def vercel(number: int, messages: list[Any], **response: Any) -> Span:
    attributes = {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": json.dumps(messages)}
    tool = json.dumps({"type": "function", "name": "status", "inputSchema": {"type": "object"}})
    attributes |= {"ai.prompt.tools": [tool], **{f"ai.response.{key}": value for key, value in response.items()}}
    return span(number, {**attributes, "ai.usage.inputTokens": 7}, parent=9)


def test_the_vercel_ai_sdk() -> None:
    asked = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "Is it up?"}]},
    ]
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "status", "input": ARGS}
    gave = {"type": "tool-result", "toolCallId": "c1", "toolName": "status", "output": {"type": "text", "value": "up"}}
    again = [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [gave]}]
    reply = json.dumps([{"toolCallId": "c1", "toolName": "status", "input": json.dumps(ARGS)}])
    outer = span(9, {"ai.operationId": "ai.generateText", "ai.prompt": "{}"})
    first = vercel(1, asked, text="", toolCalls=reply, finishReason="tool-calls")
    recording = assert_round([first, vercel(3, [*asked, *again], text="It is up."), outer], "vercel-ai-sdk")
    run = recording.runs[0].run
    assert [tool.name for tool in run.head.tools] == ["status"]
    assert run.end is not None and run.end.usage.input_tokens == 14


def test_results_of_vercel_tool_spans_are_decoded_once() -> None:
    reply = json.dumps([{"toolCallId": "c1", "toolName": "status", "input": json.dumps(ARGS)}])
    attributes = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "status", "ai.toolCall.id": "c1"}
    attributes["ai.toolCall.result"] = '"rainy"'
    recording, _ = replayed(
        [vercel(1, [{"role": "user", "content": "Is it up?"}], toolCalls=reply), span(2, attributes)]
    )
    assert recording.runs[0].run.steps[0].calls[0].result == "rainy"


def test_requests_and_responses_of_google() -> None:
    def call(number: int, contents: list[Any], part: dict[str, Any]) -> Span:
        request = {"model": "gemini-x", "config": {"system_instruction": "You help."}, "contents": contents}
        attributes = {"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-x"}
        attributes["gcp.vertex.agent.llm_request"] = json.dumps(request)
        attributes["gcp.vertex.agent.llm_response"] = json.dumps({"content": {"role": "model", "parts": [part]}})
        return span(number, attributes, name="call_llm")

    asked = {"role": "user", "parts": [{"text": "Is it up?"}]}
    part = {"function_call": {"name": "status", "args": ARGS, "id": "c1"}}
    gave = {"role": "user", "parts": [{"function_response": {"name": "status", "id": "c1", "response": "up"}}]}
    again = [asked, {"role": "model", "parts": [part]}, gave]
    assert_round([call(1, [asked], part), call(3, again, {"text": "It is up."})], "google-adk")


def test_requests_and_responses_of_the_responses_api() -> None:
    def call(number: int, given: list[Any], out: list[Any]) -> Span:
        attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps({"output": out})}
        attributes["input.value"] = json.dumps({"instructions": "You help.", "input": given})
        return span(number, attributes)

    asked = {"role": "user", "content": "Is it up?"}
    made = {"type": "function_call", "call_id": "c1", "name": "status", "arguments": json.dumps(ARGS)}
    gave = {"type": "function_call_output", "call_id": "c1", "output": "up"}
    answered = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is up."}]}
    assert_round([call(1, [asked], [made]), call(3, [asked, made, gave], [answered])], "openinference")


# ---- what is missing


def test_model_calls_without_messages_are_steps_that_are_not_checked() -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-x"}
    recording, result = replayed([span(1, attributes), span(2, attributes), span(3, attributes)])
    assert result.verdict == "not_checked" and "messages" in result.why_not
    (recorded,) = recording.runs
    assert len(recorded.run.steps) == 3
    assert "messages" in recorded.run.head.absent and recorded.run.head.params.model == "gpt-x"
    assert all(step.chat is not None and step.chat.reply is None for step in recorded.run.steps)


def test_calls_without_messages_beside_whole_ones_are_counted_and_named() -> None:
    bare = span(2, {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"})
    recording, result = replayed([semconv(1, [ASKED], ANSWERED), bare])
    assert result.verdict == "imported"
    assert "1 of 2 model calls" in recording.runs[0].run.head.absent
    assert any(f"span {2:016x}" in note for note in recording.notes)


def test_a_part_that_is_no_text_is_kept_as_it_is() -> None:
    image = parts("user", {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"})
    recording, _ = replayed([semconv(1, [image], ANSWERED)])
    assert '"uri":"https://example.org/a.png"' in recording.runs[0].run.head.task


def test_content_that_was_not_captured_is_missing_and_never_empty() -> None:
    asked, answered = ({"role": role, "parts": [{"type": "text"}]} for role in ("user", "assistant"))
    recording, result = replayed([semconv(1, [asked], answered)])
    assert result.verdict == "not_checked"
    assert "not captured" in recording.runs[0].run.head.absent[-1]


def test_a_failed_call_is_a_step_that_names_its_error() -> None:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([ASKED]),
        "error.type": "RateLimit",
    }
    recording, _ = replayed([span(1, attributes, status=ERROR)])
    [step] = recording.runs[0].run.steps
    assert step.chat is not None and step.chat.reply is None
    assert [(a.kind, a.message) for a in step.chat.attempts] == [("RateLimit", "RateLimit")]
    assert "the last reply: the call failed with RateLimit: RateLimit" in recording.runs[0].run.head.absent


def test_a_trace_of_no_agent_is_refused_with_what_was_found() -> None:
    with pytest.raises(TraceError) as caught:
        import_trace(trace([span(n, {"http.method": "GET"}, name=f"GET /{n}") for n in range(1, 6)]), "t.json")
    message = str(caught.value)
    assert message.startswith(
        f"t.json: trace {TRACE} holds no model call of an agent; it has 5 spans: 'GET /1', 'GET /2'"
    )
    assert "Accepted: " in message and "\n" not in message


@pytest.mark.parametrize(
    "value", ["", "[]", "{", "[1]", '[{"role": 3}]', '{"messages": [[]]}', "null", '"x"', "[[[", '[{"parts": 1}]']
)
@pytest.mark.parametrize(
    "name", ["gen_ai.input.messages", "gen_ai.output.messages", "input.value", "gen_ai.tool.definitions"]
)
def test_whatever_an_attribute_holds_the_import_is_total(name: str, value: str) -> None:
    attributes = {"gen_ai.operation.name": "chat", "openinference.span.kind": "LLM", name: value}
    recording, result = replayed([span(1, attributes)])
    assert len(recording.runs[0].run.steps) == 1
    assert result.verdict == "not_checked"


def test_a_cycle_of_parents_ends() -> None:
    one, other = semconv(1, [ASKED], ANSWERED, parent=2), span(2, {}, parent=1)
    _, result = replayed([one, other])
    assert result.verdict == "imported"
