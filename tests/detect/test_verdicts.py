"""Which verdict a replay has: what happened decides, not which part of the replay noticed it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel import Agent, Budget, ModelError, ScriptedModel, ToolRegistry, Tracing, Usage
from replay import import_file, load, replay
from replay.cli.app import main
from replay.importers import save
from replay.play import RecordedRun, Recording

tools = ToolRegistry()


@tools.tool
def look(what: str) -> str:
    """Look."""
    return "12 %"


LOOK = '{"action": "look", "args": {"what": "rate"}}'
DONE = '{"action": "finish", "args": {"answer": "12 %"}}'
USAGE = Usage(input_tokens=100, output_tokens=9)


def agent(**options: Any) -> Agent:
    return Agent(**{"name": "ops", "system": "Be brief.", "tools": tools, **options})


def recorded(file: Path, was: Agent, replies: list[Any]) -> Recording:
    model = ScriptedModel(replies, usage=USAGE)
    asyncio.run(was.run("How bad?", llm=model, trace=Tracing(file=file, join=False)))
    return load(file)[0]


def failed(kind: str = "transport") -> ModelError:
    return ModelError("connection reset", kind=kind, retry_after_s=0.001)


@pytest.mark.parametrize("kind", ["transport", "server", "timeout", "rate_limited"])
def test_a_prompt_edit_after_a_failed_attempt_is_drift(kind: str, tmp_path: Path) -> None:
    """What was booked for the attempt is in the recording: a longer prompt changes no budget of the past."""
    recording = recorded(tmp_path / "x.trace.json", agent(), [failed(kind), LOOK, DONE])
    result = replay(recording, agent(system="Be brief. Name the evidence for each of your claims."))
    assert result.verdict == "drifted"
    assert {(d.step, d.kind, d.cause) for d in result.divergences if not d.downstream} == {(1, "request", "prompt")}
    assert replay(recording, agent()).verdict == replay(recording).verdict == "same"


@pytest.mark.parametrize(
    "budget", [Budget(model_retries=0), Budget(max_prompt_tokens=1), Budget(max_prompt_tokens=20)], ids=str
)
def test_a_run_that_ends_before_its_first_reply_has_diverged(budget: Budget, tmp_path: Path) -> None:
    """Nothing was served, and yet the replay differs: that is behaviour, and not a replay that was not checked."""
    recording = recorded(tmp_path / "x.trace.json", agent(), [failed(), LOOK, DONE])
    result = replay(recording, agent(budget=budget))
    assert (result.verdict, result.why_not) == ("diverged", "")
    assert result.first is not None and (result.first.step, result.first.cause) == (1, "budget")


def _breaks(text: str) -> int:
    raise KeyError("no tokenizer for this model")


def test_a_failure_in_the_replay_is_a_verdict_of_its_own_with_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.trace.json"
    recording = recorded(file, agent(), [LOOK, DONE])
    result = replay(recording, agent(count_tokens=_breaks))
    assert result.verdict == "crashed"
    first = result.first
    assert first is not None and (first.step, first.kind, first.cause) == (1, "crash", "token counter")
    assert "KeyError: 'no tokenizer for this model' (test_verdicts.py, line" in first.observed
    tmp_path.joinpath("broken_agents.py").write_text(
        "from tests.detect.test_verdicts import _breaks, agent\nops = agent(count_tokens=_breaks)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main([str(file), "--agent", "broken_agents:ops"])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "CRASHED" in out and "step 1" in out and "KeyError" in out


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def imported(folder: Path, *messages: dict[str, Any]) -> Path:
    source, target = folder / "chat.json", folder / "chat.trace.json"
    start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How bad?"}]
    source.write_text(json.dumps({"messages": [*start, *messages]}))
    (recording,) = import_file(source)
    save(recording, target)
    return target


ASKED = {"role": "assistant", "content": "", "tool_calls": [call("a", "look", '{"what": "rate"}')]}
TOLD = {"role": "tool", "tool_call_id": "a", "content": "12 %"}
ANSWER = {"role": "assistant", "content": "It is 12 %."}


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    return ended.value.code, capsys.readouterr().out


def test_an_import_without_an_agent_is_imported_and_exits_as_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replay compares our reading with itself, which says nothing of the agent."""
    file = imported(tmp_path, ASKED, TOLD, ANSWER)
    assert replay(load(file)[0]).verdict == "imported"
    code, out = outcome(capsys, str(file))
    assert code == 3 and "IMPORTED  rebuilt as it was read; nothing of the agent ran" in out
    assert "next  replay" in out and "--agent MODULE:OBJECT" in out
    code, out = outcome(capsys, str(file), "--format", "json")
    assert code == 3 and json.loads(out)["traces"][0]["verdict"] == "imported"


def test_a_run_of_which_a_reader_dropped_a_part_is_never_same(tmp_path: Path) -> None:
    """What is left of it may well be the same; of the whole run that says nothing, and the verdict says so."""
    recording = recorded(tmp_path / "x.trace.json", agent(), [LOOK, DONE])
    run = recording.runs[0].run
    assert replay(recording, agent()).verdict == "same"
    head = msgspec.structs.replace(run.head, dropped=("everything from /messages/6 on: it cannot be read",))
    part = msgspec.structs.replace(run, head=head)
    recording = msgspec.structs.replace(recording, runs=(RecordedRun(run=part),))
    result = replay(recording, agent())
    assert result.verdict == "not_checked" and "everything from /messages/6 on" in result.why_not
    assert replay(recording, agent(system="Be long.")).verdict == "drifted"
    save(recording, tmp_path / "part.trace.json")
    assert load(tmp_path / "part.trace.json")[0].dropped == head.dropped


def test_a_changed_setting_that_nothing_exercises_is_one_line_and_fails_only_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.trace.json"
    recorded(file, agent(), [LOOK, DONE])
    (tmp_path / "other_agents.py").write_text(
        "from tests.detect.test_verdicts import agent\nops = agent(policy='read_only', name='billing')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out = outcome(capsys, str(file), "--agent", "other_agents:ops")
    assert code == 0 and "changed, not exercised here: policy" in out
    assert 'the recording is of another agent: "ops", today\'s is "billing"' in out
    code, out = outcome(capsys, str(file), "--agent", "other_agents:ops", "--strict-settings")
    assert code == 1 and "SAME" in out
