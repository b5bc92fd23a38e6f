"""Real trajectories import and replay: every reply served, every result in order, nothing left over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel.errors import TraceError
from replay.importers import save
from replay.loading import import_file, load
from replay.play.play import replay
from replay.play.recording import Recording

pytestmark = pytest.mark.corpus


def _import_one(file: Path) -> Recording:
    (recording,) = import_file(file)
    return recording


def _assert_same(recording: Recording) -> None:
    result = replay(recording)
    steps = [step for recorded in recording.runs for step in recorded.run.steps]
    assert result.verdict == "imported", (recording.file, result.first, result.why_not)
    assert result.served.model == len(steps)
    assert result.served.tools == sum(len(step.calls) for step in steps)
    assert (result.unused.model, result.unused.tools) == (0, 0)


def _results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def _served(recording: Recording) -> list[Any]:
    """What the tools gave back in the replay, in order."""
    observed = replay(recording).observed
    return [record.result for run in observed for step in run.steps for record in step.calls]


def test_every_tau_bench_run_replays_the_same(corpus: Path) -> None:
    files = sorted((corpus / "tau-bench").glob("*.json"))
    assert len(files) == 60
    for file in files:
        _assert_same(_import_one(file))


def test_every_result_is_served_in_order_also_where_call_ids_repeat(corpus: Path) -> None:
    repeated = 0
    for file in sorted((corpus / "tau-bench").glob("*.json")):
        messages = json.loads(file.read_bytes())["traj"]
        ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        repeated += len(set(ids)) < len(ids)
        assert _served(_import_one(file)) == _results(messages), file.name
    assert repeated == 17


def test_every_request_is_the_prefix_of_the_source(corpus: Path) -> None:
    for file in sorted((corpus / "tau-bench").glob("*.json")):
        source = json.loads(file.read_bytes())["traj"]
        sent = 0
        for recorded in _import_one(file).runs:
            for step in recorded.run.steps:
                assert step.chat is not None
                for message in step.chat.new:
                    was = source[sent]
                    assert (message.role, message.content) == (was["role"], was["content"] or ""), file.name
                    calls = [(c["id"], c["function"]) for c in was.get("tool_calls", [])]
                    assert [(c.id, {"name": c.name, "arguments": c.arguments}) for c in message.tool_calls] == calls, (
                        file.name
                    )
                    sent += 1
                assert source[sent]["role"] == "assistant"


WHOLE = {
    "swe-agent/ctf_BabyEncryption.traj": 15,
    "swe-agent/ctf_eps.traj": 14,
    "swe-agent/humanevalfix-python-0.traj": 5,
    "swe-agent/marshmallow-1867_thought_action.traj": 11,
    "swe-agent/marshmallow-1867_xml.traj": 11,
    "swe-agent/pydicom-1458_gpt4.traj": 12,
    "mini-swe-agent/local.traj.json": 2,
    "mini-swe-agent/django__django-13401.traj.json": 27,
    "mini-swe-agent/django__django-16255.traj.json": 17,
    "mini-swe-agent/matplotlib__matplotlib-22871.traj.json": 22,
    "mini-swe-agent/matplotlib__matplotlib-25287.traj.json": 32,
}
"""Trajectories with actions in the text, and how many replies they hold."""


@pytest.mark.parametrize("name", WHOLE)
def test_actions_in_the_text_replay_the_same(corpus: Path, name: str) -> None:
    recording = _import_one(corpus / name)
    result = replay(recording)
    assert result.verdict == "imported", (result.first, result.why_not)
    assert result.served.model == WHOLE[name]
    assert (result.unused.model, result.unused.tools) == (0, 0)


@pytest.mark.parametrize(
    ("name", "model", "tools"),
    [("G1_answer_57", 4, 3), ("G1_answer_59", 5, 4), ("G2_answer_127", 3, 2), ("G3_answer_21", 4, 3)],
)
def test_answers_of_toolbench_replay_the_same(corpus: Path, name: str, model: int, tools: int) -> None:
    result = replay(_import_one(corpus / "toolbench" / f"{name}.json"))
    assert result.verdict == "imported", (result.first, result.why_not)
    assert (result.served.model, result.served.tools) == (model, tools)


@pytest.mark.parametrize(
    "name", ["toolbench/G1_answer_69.json", "react-webshop/episode_042.txt", "cassettes/google_model_retry.yaml"]
)
def test_what_holds_no_whole_trajectory_is_refused_in_one_line(corpus: Path, name: str) -> None:
    with pytest.raises(TraceError, match="holds no chat messages; read as a trace: ") as caught:
        import_file(corpus / name)
    assert "\n" not in str(caught.value) and str(caught.value).count(str(corpus)) == 1


@pytest.mark.parametrize("name", ["django__django-11951", "django__django-14155"])
def test_a_second_kind_of_complaint_cuts_nothing(corpus: Path, name: str) -> None:
    file = corpus / "mini-swe-agent" / f"{name}.traj.json"
    recording = _import_one(file)
    _assert_same(recording)
    spoken = [m for m in json.loads(file.read_text("utf-8"))["messages"] if m["role"] == "assistant"]
    [recorded] = recording.runs
    assert len(recorded.run.steps) == len(spoken)
    assert not any("everything from" in name for name in recorded.run.head.absent)


@pytest.mark.parametrize("name", ["function_calling", "function_calling_replace"])
def test_function_calling_trajectories_of_swe_agent_replay_the_same(corpus: Path, name: str) -> None:
    file = corpus / "swe-agent" / f"marshmallow-1867_{name}.traj"
    recording = _import_one(file)
    _assert_same(recording)
    assert recording.agent == "main"
    assert _served(recording) == _results(json.loads(file.read_bytes())["history"])


def test_a_saved_import_loads_again_equal_and_is_written_alike_twice(corpus: Path, tmp_path: Path) -> None:
    for file in sorted((corpus / "tau-bench").glob("*.json"))[::6]:
        one, other = tmp_path / "one.trace.json", tmp_path / "other.trace.json"
        recording = _import_one(file)
        save(recording, one)
        save(_import_one(file), other)
        assert one.read_bytes() == other.read_bytes()
        (loaded,) = load(one)
        assert msgspec.structs.replace(loaded, file=recording.file) == recording
        _assert_same(loaded)


FOREIGN = {
    "otlp/agentevals_tempo_export_with_batches.json": ("openllmetry", 2, 1),
    "otlp/ai-gateway_span_chat-multiturn.json": ("openinference", 2, 0),
    "otlp/ai-gateway_span_chat-parallel-tools.json": ("openinference", 1, 0),
    "otlp/ai-gateway_span_chat-streaming.json": ("openinference", 1, 0),
    "jaeger/agentevals_helm_2.json": ("openllmetry", 1, 0),
    "jaeger/agentevals_k8s.json": ("openllmetry", 1, 0),
    "jaeger/jaeger-ui_genaiTestTrace.json": ("otel-genai", 2, 0),
    "langfuse/agno-2025-06-11.trace.json": ("openinference", 2, 1),
    "langfuse/crewai-2025-07-11.trace.json": ("openinference", 1, 0),
    "langfuse/google-adk-2025-08-28.trace.json": ("openinference", 2, 1),
    "langfuse/langgraph-python-2025-08-22.trace.json": ("langfuse", 2, 1),
    "langfuse/microsoft-agent-2025-12-17.trace.json": ("otel-genai", 2, 1),
    "langfuse/openai-agents-2025-09-30.trace.json": ("openinference", 2, 1),
    "langfuse/pydantic-ai-tools-2025-12-04.trace.json": ("pydantic-ai", 4, 3),
}
"""Framework, model calls and tool results that a replay serves."""


@pytest.mark.parametrize("name", FOREIGN)
def test_spans_of_other_frameworks_replay_the_same(corpus: Path, tmp_path: Path, name: str) -> None:
    (recording,) = load(corpus / name)
    result = replay(recording)
    assert (recording.foreign, result.served.model, result.served.tools) == FOREIGN[name]
    assert result.verdict == "imported", (result.first, result.why_not)
    assert (result.unused.model, result.unused.tools) == (0, 0)
    save(recording, tmp_path / "saved.trace.json")
    (loaded,) = load(tmp_path / "saved.trace.json")
    assert msgspec.structs.replace(loaded, file=recording.file, notes=recording.notes) == recording


@pytest.mark.parametrize("name", ["bad-request", "unknown-model"])
def test_a_model_call_that_failed_shows_its_error(corpus: Path, name: str) -> None:
    (recording,) = load(corpus / "otlp" / f"ai-gateway_span_chat-{name}.json")
    [step] = recording.runs[0].run.steps
    assert step.chat is not None and step.chat.reply is None and len(step.chat.attempts) == 1
    assert any("the call failed with" in name for name in recording.runs[0].run.head.absent)


@pytest.mark.parametrize(
    "name", ["otlp/jaeger_example_trace.json", "otlp/opentelemetry-proto_trace.json", "jaeger/jaeger-ui_testTrace.json"]
)
def test_a_trace_of_no_agent_is_refused_with_what_is_in_it(corpus: Path, name: str) -> None:
    with pytest.raises(
        TraceError, match=r"holds no model call of an agent; it has \d+ spans?: ['\"].*Accepted: "
    ) as caught:
        load(corpus / name)
    assert caught.value.file == str(corpus / name)
