"""Which verdict a replay has: what happened decides, not which part of the replay noticed it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ModelError, ScriptedModel, ToolRegistry, Tracing, Usage
from replay import load, replay
from replay.cli.app import main
from replay.play import Recording

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
