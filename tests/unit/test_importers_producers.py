"""What instrumentations really write, one trait a test: nothing is glued, dropped, invented or read as empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.record import CallRecord, Run
from kernel.trace.span import ERROR, Event, Span
from replay import Recording, diff, load, replay
from replay.importers import import_trace
from tests.unit.test_importers_spans import (
    ANSWERED,
    ARGS,
    ASKED,
    CALLED,
    SECOND,
    TRACE,
    parts,
    replayed,
    response,
    semconv,
    span,
    text,
    trace,
)

PERMISSION = Event(
    name="exception", attributes={"exception.type": "PermissionError", "exception.message": "not allowed"}
)


def only(recording: Recording) -> Run:
    [recorded] = recording.runs
    return recorded.run


def calls(run: Run) -> list[CallRecord]:
    return [record for step in run.steps for record in step.calls]


def chat(number: int, **attributes: Any) -> Span:
    return span(number, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes})


def events(number: int, *named: tuple[str, dict[str, Any]], **attributes: Any) -> Span:
    return span(
        number,
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes},
        events=tuple(Event(name=name, attributes=body) for name, body in named),
    )


def tool(number: int, **more: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "status",
        "gen_ai.tool.call.arguments": json.dumps(ARGS),
        **more.pop("attributes", {}),
    }
    return span(number, attributes, **more)


# ---- where the content is


def test_the_details_event_has_the_content() -> None:
    def details(asked: list[Any], answer: Any) -> tuple[str, dict[str, Any]]:
        name = "gen_ai.client.inference.operation.details"
        return name, {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([answer])}

    recording, result = replayed(
        [events(1, details([ASKED], CALLED)), events(3, details([ASKED, CALLED, response()], ANSWERED))]
    )
    assert result.served.model == 2
    assert [record.result for record in calls(only(recording))] == ["up"]


def log(name: str, span_id: int, body: dict[str, Any]) -> dict[str, Any]:
    values = [{"key": key, "value": value} for key, value in body.items()]
    ids = {"traceId": TRACE, "spanId": f"{span_id:016x}"}
    return {"timeUnixNano": "1", "eventName": name, "body": {"kvlistValue": {"values": values}}, **ids}


@pytest.mark.parametrize("lines", [False, True], ids=["one document", "a line a signal, logs first"])
def test_log_records_of_the_same_file_have_the_content(tmp_path: Path, lines: bool) -> None:
    reply = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "It is up."}}]}}
    logs = [
        log("gen_ai.user.message", 1, {"content": {"stringValue": "Is it up?"}}),
        log("gen_ai.choice", 1, {"finish_reason": {"stringValue": "stop"}, "message": reply}),
        log("gen_ai.choice", 9, {"finish_reason": {"stringValue": "stop"}, "message": reply}),
    ]
    one = {"traceId": TRACE, "spanId": f"{1:016x}", "name": "chat m", "startTimeUnixNano": "5", "endTimeUnixNano": "6"}
    one["attributes"] = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]  # type: ignore[assignment]
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}
    records = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
    path = tmp_path / "both.json"
    whole = "\n".join([json.dumps(records), json.dumps(spans)]) if lines else json.dumps({**spans, **records})
    path.write_text(whole + "\n")
    [recording] = load(path)
    end = only(recording).end
    assert end is not None and end.answer == "It is up."
    assert any("1 log records name spans that are not in the file" in note for note in recording.notes)


def test_blocks_of_bedrock_in_events_are_text_calls_and_results() -> None:
    asked = ("gen_ai.user.message", {"content": '[{"text": "Is it up?"}]'})
    use = json.dumps([{"text": "I look."}, {"toolUse": {"toolUseId": "t1", "name": "status", "input": ARGS}}])
    given = '[{"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "up"}]}}]'
    recording, result = replayed(
        [
            events(1, asked, ("gen_ai.choice", {"finish_reason": "tool_use", "message": use})),
            events(
                3,
                asked,
                ("gen_ai.assistant.message", {"content": use}),
                ("gen_ai.tool.message", {"content": given}),
                ("gen_ai.choice", {"finish_reason": "end_turn", "message": '[{"text": "It is up."}]'}),
            ),
        ]
    )
    run = only(recording)
    assert (run.head.task, result.served.model) == ("Is it up?", 2)
    [record] = calls(run)
    assert (record.call.args, record.result) == (ARGS, "up")
    assert run.end is not None and run.end.answer == "It is up."


def test_json_that_is_no_block_stays_the_text_that_it_is() -> None:
    recording, _ = replayed([semconv(1, [parts("user", text('[{"text": "a", "n": 1}]'))], ANSWERED)])
    assert only(recording).head.task == '[{"text": "a", "n": 1}]'


def test_a_value_that_an_exporter_cut_is_noticed() -> None:
    whole = json.dumps([ASKED])
    recording, result = replayed([chat(1, **{"gen_ai.input.messages": whole[:-9]})])
    assert result.verdict == "not_checked"
    assert any(f"was cut at {len(whole) - 9} characters" in name for name in only(recording).head.absent)


def test_without_content_the_tools_names_and_errors_are_still_there() -> None:
    spans = [chat(1), tool(2), tool(3, status=ERROR, events=(PERMISSION,)), chat(4)]
    recording = import_trace(trace(spans), "t.json")
    run = only(recording)
    assert [[r.call.name for r in step.calls] for step in run.steps] == [["status", "status"], []]
    failed = run.steps[0].calls[1]
    assert (failed.outcome, failed.error and failed.error.message) == ("error", "not allowed")


# ---- replies


def test_two_choices_are_not_one_answer() -> None:
    spans = [semconv(1, [ASKED], ANSWERED)]
    spans[0].attributes["gen_ai.output.messages"] = json.dumps(
        [parts("assistant", text("Yes.")), parts("assistant", text("No."))]
    )
    run = only(replayed(spans)[0])
    assert run.end is not None and run.end.answer == "Yes."
    assert "1 further choices of replies: the first counts" in run.head.absent


def test_calls_in_messages_of_their_own_are_parallel_calls_of_one_reply() -> None:
    def completion(index: int, name: str) -> dict[str, Any]:
        made = [{"id": f"k{index}", "type": "function", "function": {"name": name, "arguments": "{}"}}]
        key = f"gen_ai.completion.{index}"
        return {f"{key}.role": "assistant", f"{key}.content": json.dumps(made), f"{key}.finish_reason": "tool_calls"}

    asked = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "greet", "gen_ai.system": "openai"}
    spans = [span(1, {"gen_ai.operation.name": "chat", **asked, **completion(0, "hello"), **completion(1, "bye")})]
    assert [record.call.name for record in calls(only(replayed(spans)[0]))] == ["hello", "bye"]


def test_text_and_calls_of_one_reply_may_be_items_of_the_next_request() -> None:
    """The Responses API sends a thought and each call back as items: the thought is no answer."""
    one, other = ({"type": "tool_call", "id": i, "name": "status", "arguments": ARGS} for i in ("c1", "c2"))
    results = [
        parts("tool", {"type": "tool_call_response", "id": i, "response": r}) for i, r in (("c1", "up"), ("c2", "down"))
    ]
    reply = parts("assistant", text("I look."), one, other)
    items = [parts("assistant", text("I look.")), parts("assistant", one), parts("assistant", other)]
    recording, result = replayed([semconv(1, [ASKED], reply), semconv(3, [ASKED, *items, *results], ANSWERED)])
    run = only(recording)
    assert [record.result for record in calls(run)] == ["up", "down"] and result.served.model == 2
    assert run.end is not None and run.end.answer == "It is up."


def test_a_reply_may_be_told_by_the_next_request_alone() -> None:
    first = semconv(1, [ASKED], ANSWERED)
    del first.attributes["gen_ai.output.messages"]
    recording, result = replayed([first, semconv(3, [ASKED, CALLED, response()], ANSWERED)])
    run = only(recording)
    assert [record.call.args for record in calls(run)] == [ARGS] and result.served.model == 2
    assert any("known from the next request" in name for name in run.head.absent)


def test_a_request_that_ends_with_the_assistant_and_has_no_reply_is_read() -> None:
    for last in (ANSWERED, CALLED):
        spans = [semconv(1, [ASKED, last], ANSWERED)]
        del spans[0].attributes["gen_ai.output.messages"]
        assert "the last reply" in only(replayed(spans)[0]).head.absent


def test_the_same_response_seen_twice_is_one_call() -> None:
    whole = semconv(1, [ASKED], ANSWERED, attributes={"gen_ai.response.id": "r1"})
    shadow = chat(2, **{"gen_ai.response.id": "r1"})
    recording, result = replayed([whole, shadow])
    assert result.served.model == 1 and len(only(recording).steps) == 1


def test_smolagents_shows_a_model_its_own_calls_as_text() -> None:
    i, o = "llm.input_messages.", "llm.output_messages.0.message."
    call = f"{o}tool_calls.0.tool_call."
    shown = (
        f"Calling tools:\n[{{'id': 'c1', 'type': 'function', 'function': {{'name': 'status', 'arguments': {ARGS!r}}}}}]"
    )
    asked = {"openinference.span.kind": "LLM", f"{i}0.message.role": "user", f"{i}0.message.content": "Is it up?"}
    first = {
        **asked,
        f"{o}role": "assistant",
        f"{o}content": "I look.",
        f"{call}id": "c1",
        f"{call}function.name": "status",
    }
    first[f"{call}function.arguments"] = json.dumps(ARGS)
    second = {**asked, f"{o}role": "assistant", f"{o}content": "It is up."}
    for number, (role, said) in enumerate(
        [("assistant", "I look."), ("tool-call", shown), ("tool-response", "Observation:\nup")], 1
    ):
        second |= {f"{i}{number}.message.role": role, f"{i}{number}.message.content": said}
    recording, result = replayed([span(1, first), span(3, second)])
    assert result.served.model == 2
    assert [(r.call.args, r.result) for r in calls(only(recording))] == [(ARGS, "Observation:\nup")]


@pytest.mark.parametrize("spelled", ["", "{}", " "])
def test_no_arguments_are_no_arguments_however_spelled(spelled: str) -> None:
    first = parts("assistant", {"type": "tool_call", "id": "c1", "name": "status", "arguments": spelled})
    again = parts("assistant", {"type": "tool_call", "id": "c1", "name": "status", "arguments": {}})
    recording, result = replayed([semconv(1, [ASKED], first), semconv(3, [ASKED, again, response()], ANSWERED)])
    assert len(only(recording).steps) == 2 and result.served.model == 2


# ---- failures


def test_a_failed_call_and_its_retry_are_one_step() -> None:
    failed = semconv(1, [ASKED], ANSWERED, status=ERROR, status_message="429", attributes={"error.type": "RateLimit"})
    del failed.attributes["gen_ai.output.messages"]
    recording, result = replayed([failed, semconv(2, [ASKED], ANSWERED)])
    [step] = only(recording).steps
    assert step.chat is not None
    assert [(attempt.kind, attempt.message) for attempt in step.chat.attempts] == [("RateLimit", "429")]
    assert (result.divergences, result.served.model) == ((), 1)


def test_a_tool_that_failed_by_its_span_is_never_ok() -> None:
    """What the model was shown of it stays as the next request has it."""
    shown = parts("tool", {"type": "tool_call_response", "id": "c1", "response": "Sorry, not allowed."})
    spans = [
        semconv(1, [ASKED], CALLED),
        tool(2, status=ERROR, events=(PERMISSION,)),
        semconv(3, [ASKED, CALLED, shown], ANSWERED),
    ]
    recording, result = replayed(spans)
    [record] = calls(only(recording))
    assert (record.outcome, record.error and record.error.type) == ("error", "PermissionError")
    assert record.shown == "Sorry, not allowed." and result.divergences == ()


def test_a_tool_that_failed_last_tells_why() -> None:
    recording, _ = replayed([semconv(1, [ASKED], CALLED), tool(2, status=ERROR, events=(PERMISSION,))])
    [record] = calls(only(recording))
    assert record.error is not None and record.error.message == "not allowed"


# ---- settings and usage


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("gen_ai.request.frequency_penalty", 0.1, 1.9),
        ("gen_ai.request.presence_penalty", 0.1, 1.9),
        ("gen_ai.request.top_k", 5, 50),
        ("gen_ai.request.stop_sequences", ["END"], ["\n"]),
        ("gen_ai.request.choice.count", 1, 2),
        ("gen_ai.output.type", "text", "json"),
        ("ai.settings.topK", 5, 50),
        ("llm.invocation_parameters", '{"reasoning_effort": "low"}', '{"reasoning_effort": "high"}'),
    ],
)
def test_every_parameter_counts_when_recordings_are_compared(name: str, one: Any, other: Any) -> None:
    left, right = (
        import_trace(trace([semconv(1, [ASKED], ANSWERED, attributes={name: value})]), "t.json")
        for value in (one, other)
    )
    assert diff(left, right).settings


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ],
)
def test_tokens_written_to_a_cache_are_counted_by_every_name(name: str) -> None:
    run = only(replayed([semconv(1, [ASKED], ANSWERED, attributes={name: 7})])[0])
    assert run.end is not None and run.end.usage.cache_write_tokens == 7


def test_a_part_of_the_tokens_that_is_more_than_the_whole_is_named() -> None:
    spans = [semconv(1, [ASKED], ANSWERED, attributes={"gen_ai.usage.cache_read.input_tokens": 11})]
    assert any("adds up" in name for name in only(replayed(spans)[0]).head.absent)


def test_a_call_of_the_source_that_the_schema_refuses_is_replayed_as_it_was() -> None:
    schema = {"type": "object", "properties": {"service": {"type": "string"}}, "required": ["service"]}
    listed = {"gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "status", "parameters": schema}])}
    bad = parts("assistant", {"type": "tool_call", "id": "c1", "name": "status", "arguments": {"wrong": "a"}})
    told = parts("tool", {"type": "tool_call_response", "id": "c1", "response": "service is missing"})
    spans = [semconv(1, [ASKED], bad, attributes=listed), semconv(3, [ASKED, bad, told], ANSWERED, attributes=listed)]
    recording, result = replayed(spans)
    assert [(r.call.args, r.result) for r in calls(only(recording))] == [({"wrong": "a"}, "service is missing")]
    assert result.divergences == () and only(recording).end is not None


def test_times_are_the_sources() -> None:
    recording, _ = replayed([semconv(1, [ASKED], ANSWERED)])
    assert only(recording).marks[0].step.start_ns == SECOND
    assert replay(recording).divergences == ()


# ---- order and identity


def test_the_histories_order_the_calls_whatever_the_clocks_say() -> None:
    """The second call's host is behind by more than the first call took."""
    first, second = semconv(5, [ASKED], CALLED), semconv(2, [ASKED, CALLED, response()], ANSWERED)
    recording, result = replayed([second, first])
    run = only(recording)
    assert [len(step.calls) for step in run.steps] == [1, 0] and result.served.model == 2
    assert run.end is not None and run.end.answer == "It is up."


def test_equal_calls_that_overlap_are_one_call_and_others_are_not() -> None:
    one, other = semconv(1, [ASKED], ANSWERED), semconv(2, [ASKED], ANSWERED)
    apart, _ = replayed([one, other])
    assert len(apart.runs) == 2
    other.start_ns = one.start_ns + 1
    together, result = replayed([one, other])
    assert len(only(together).steps) == 1 and result.served.model == 1
    assert any("counted once" in note for note in together.notes)


def test_a_call_that_failed_without_content_says_how() -> None:
    failed = chat(3, **{"error.type": "BadRequestError"})
    failed.status, failed.status_message = ERROR, "400 context length exceeded"
    recording, _ = replayed([semconv(1, [ASKED], CALLED), failed])
    assert any(
        "failed with BadRequestError: 400 context length exceeded" in name for name in only(recording).head.absent
    )
