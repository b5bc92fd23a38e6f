"""Whatever a source holds, an import is a recording that replays the same, or one clear refusal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from kernel.errors import TraceError
from kernel.trace.span import Event, Resource, Span
from replay.importers import import_trace, save
from replay.loading import import_file, load
from replay.play.play import replay
from replay.readers import RawTrace

_texts = st.one_of(
    st.sampled_from(["", " ", "ok", '{"action": "t", "args": {}}', "```bash\nls\n```", "Action: t[x]"]),
    st.text(max_size=8),
)
_ids = st.sampled_from(["a", "b", "", None])
_names = st.sampled_from(["t", "u", "finish", "bash"])
_arguments = st.sampled_from(["{}", '{"x": 1}', '{ "x":1.0 }', "{", "[]", "null", '"x"', '{"x": {"y": [1, null]}}', ""])
_calls = st.lists(
    st.fixed_dictionaries({"id": _ids, "function": st.fixed_dictionaries({"name": _names, "arguments": _arguments})}),
    max_size=3,
)
_messages = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": _texts}),
        st.fixed_dictionaries({"role": st.just("assistant"), "content": _texts, "tool_calls": _calls}),
        st.fixed_dictionaries({"role": st.just("tool"), "content": _texts, "tool_call_id": _ids}),
    ),
    max_size=8,
)


@st.composite
def dialogues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Dialogues in which each call has a result, so that imports go deep."""
    messages: list[dict[str, Any]] = draw(st.lists(st.just({"role": "system", "content": "S"}), max_size=1))
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(_texts)})
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(_calls)
            messages.append({"role": "assistant", "content": draw(_texts), "tool_calls": calls})
            if not calls:
                break
            messages.extend({"role": "tool", "tool_call_id": call["id"], "content": draw(_texts)} for call in calls)
    return messages


def _holds(document: Any) -> bool:
    """Whether the document was imported; what was, replays the same, twice, and also from its own file."""
    with tempfile.TemporaryDirectory() as folder:
        path, saved = Path(folder, "source.json"), Path(folder, "saved.trace.json")
        path.write_text(json.dumps(document))
        try:
            recordings = import_file(path)
        except TraceError as error:
            assert error.file == str(path) and "\n" not in str(error)
            return False
        assert recordings == import_file(path)
        for recording in recordings:
            result = replay(recording)
            served = any(s.chat and s.chat.reply for r in recording.runs for s in r.run.steps)
            assert result.verdict == ("imported" if served else "not_checked"), (result.first, result.why_not)
            assert (result.unused.model, result.unused.tools) == (0, 0)
            save(recording, saved)
            (loaded,) = load(saved)
            assert msgspec.structs.replace(loaded, file=recording.file) == recording
    return True


@given(_messages)
@settings(max_examples=50, deadline=None)
def test_any_message_list_is_imported_whole_or_refused(messages: list[dict[str, Any]]) -> None:
    _holds({"messages": messages})


@given(dialogues())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_any_dialogue_is_imported_as_far_as_the_kernel_does_the_same(messages: list[dict[str, Any]]) -> None:
    assume(_holds(messages))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["messages", "traj", "role", "content", "history", "tool_calls", "tools"]),
                inner,
                max_size=3,
            )
        ),
    )
)
@settings(max_examples=50, deadline=None)
def test_any_json_is_imported_or_refused(document: Any) -> None:
    _holds(document)


_keys = st.sampled_from(
    [
        "gen_ai.operation.name", "gen_ai.system", "gen_ai.request.model", "gen_ai.input.messages", "gen_ai.output.messages",
        "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.prompt", "gen_ai.prompt.0.role",
        "gen_ai.prompt.0.content", "gen_ai.prompt.1.tool_calls.0.name", "gen_ai.completion.0.content", "gen_ai.tool.name",
        "openinference.span.kind", "llm.input_messages.0.message.role", "llm.input_messages.0.message.contents.0",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "input.value", "output.value",
        "ai.operationId", "ai.prompt.messages", "ai.response.text", "ai.response.toolCalls", "events",
        "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response", "gen_ai.usage.input_tokens",
        "gen_ai.response.finish_reasons", "llm.invocation_parameters", "langfuse.observation.type",
    ]
)  # fmt: skip
_values = st.one_of(
    st.sampled_from(
        [
            "chat", "execute_tool", "invoke_agent", "LLM", "TOOL", "AGENT", "GENERATION", "ai.generateText.doGenerate", "user",
            '[{"role": "user", "content": "q"}]', '[{"role": "user", "parts": [{"type": "text", "content": "q"}]}]',
            '{"messages": [{"role": "user", "content": "q"}]}', '{"choices": [{"message": {"content": "a"}}]}',
            '[{"role": "assistant", "parts": [{"type": "tool_call", "name": "t", "arguments": {}}]}]', '{"choices": [3]}',
            '{"content": {"parts": [{"text": "a"}]}}', '{"contents": 1}', '{"generations": [[]]}', '[{"function_call": 1}]',
            '{"role": "assistant", "content": "a"}', '[{"kwargs": {}, "id": []}]', '{"temperature": "x"}', "[]", "{", "null",
        ]
    ),
    st.integers(), st.booleans(), st.floats(), st.binary(max_size=3), st.text(max_size=4),
    st.lists(st.dictionaries(st.sampled_from(["role", "parts", "type", "content"]), st.text(max_size=3))),
)  # fmt: skip


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Spans with known attributes and any values, in any shape of tree."""
    out = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        attributes = draw(st.dictionaries(_keys, _values, max_size=8))
        names = st.sampled_from(["gen_ai.user.message", "gen_ai.choice", "gen_ai.tool.message", "exception"])
        events = draw(
            st.lists(st.builds(Event, name=names, attributes=st.dictionaries(_keys, _values, max_size=2)), max_size=2)
        )
        parent = draw(st.integers(0, 4))
        out.append(
            Span(
                trace_id="0" * 31 + "1",
                span_id=f"{number:016x}",
                parent_id=f"{parent:016x}" if parent else None,
                name="x",
                start_ns=draw(st.integers(0, 5)),
                end_ns=draw(st.none() | st.integers(0, 5)),
                attributes=attributes,
                events=tuple(events),
            )
        )
    return out


@given(spans())
@settings(max_examples=100, deadline=None)
def test_any_spans_are_a_recording_or_refused(found: list[Span]) -> None:
    raw = RawTrace(trace_id="0" * 31 + "1", spans=tuple(found), resources={span.span_id: Resource() for span in found})
    try:
        recording = import_trace(raw, "t.json")
    except TraceError as error:
        assert error.file == "t.json" and "\n" not in str(error)
        return
    assert any(recorded.run.steps for recorded in recording.runs)
    assert replay(recording).verdict in ("imported", "not_checked")
    with tempfile.TemporaryDirectory() as folder:
        save(recording, Path(folder, "saved.trace.json"))
        (loaded,) = load(Path(folder, "saved.trace.json"))
        assert msgspec.structs.replace(loaded, file=recording.file, notes=recording.notes) == recording
