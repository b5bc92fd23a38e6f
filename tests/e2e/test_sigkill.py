"""A process that is killed loses nothing that had ended, and does no side effect twice.

Run as a script, this file is the process: it starts a run in a fork of its own for each trial, and the fork is killed by
SIGKILL at some point: from outside after a random time, by itself inside a tool, or right after a line of its journal.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRIALS = int(os.environ.get("TRACEFIRST_SOAK") or 15)
STEPS = 6


# ---- the process


def run_once(folder: Path, trace: Path, how: tuple[str, float]) -> None:
    """One run of an agent whose tool appends a line to `effects`; `how` says when it dies."""
    from fixtures.record import CountingIds
    from kernel import Agent, Budget, ScriptedModel, SqliteLedger, ToolRegistry, Tracing

    kind, at = how
    tools, side = ToolRegistry(), os.open(folder / "side.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = {"effect": 0, "span": 0}

    def die(point: str) -> None:
        count[point] += 1
        if kind == point and count[point] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    @tools.register(side_effect=True)
    def effect(n: int) -> str:
        with open(folder / "effects", "ab", buffering=0) as file:
            file.write(b"%d\n" % n)
        die("effect")
        time.sleep(0.001)
        return f"done {n}"

    class SideLog:
        """Told after the journal: what is written here was in the journal before."""

        def started(self, span: Any) -> None:
            die("span")

        def event(self, span: Any, event: Any) -> None: ...

        def ended(self, span: Any) -> None:
            if span.name == "step":
                os.write(side, b"%d\n" % span.attributes["tracefirst.step.index"])
            die("span")

        def close(self) -> None: ...

    agent = Agent(tools=tools, ledger=SqliteLedger(folder / "ledger.db"), budget=Budget(max_steps=STEPS + 2))
    replies = [json.dumps({"action": "effect", "args": {"n": n}}) for n in range(STEPS)]
    model = ScriptedModel([*replies, json.dumps({"action": "finish", "args": {"answer": "all"}})])
    tracing = Tracing(file=trace, join=False, sinks=[SideLog()])
    agent.run_sync("go", llm=model, trace=tracing, ids=CountingIds(folder.name))


def trials(base: Path, number: int, seed: int) -> None:
    """Each trial: a run that is killed, then the same run again to its end, with the same ids and the same ledger."""
    dice = random.Random(seed)
    for trial in range(number):
        folder = base / f"{trial:04d}"
        folder.mkdir()
        kinds = [("delay", dice.uniform(0.0, 0.06)), ("effect", dice.randint(1, STEPS)), ("span", dice.randint(1, 40))]
        how = kinds[trial % 3]
        _in_fork(folder, folder / "killed.trace.json", how)
        _in_fork(folder, folder / "again.trace.json", ("never", 0))


def _in_fork(folder: Path, trace: Path, how: tuple[str, float]) -> None:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            run_once(folder, trace, how)
            status = 0
        finally:
            os._exit(status)
    if how[0] == "delay":
        time.sleep(how[1])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if status not in (0, signal.SIGKILL):
        raise RuntimeError(f"{folder.name}: the run ended with status {status}")


# ---- the test


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    """A kill differs from a power cut: what was written is there, whatever the disk. So the disk may be none."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def test_a_killed_run_keeps_its_finished_steps_and_repeats_no_effect(folder_in_memory: Path) -> None:
    seed = random.SystemRandom().randrange(2**32) if os.environ.get("TRACEFIRST_SOAK") else 7
    command = [sys.executable, __file__, str(folder_in_memory), str(TRIALS), str(seed)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=600)
    folders = sorted(folder_in_memory.iterdir())
    assert len(folders) == TRIALS
    killed = [check(folder) for folder in folders]
    assert sum(killed) >= TRIALS // 2, f"seed {seed}: too few runs were killed before their end"


def check(folder: Path) -> bool:
    """Look at one trial's files; whether its first run died before its end."""
    from replay.loading import load
    from replay.play.play import replay

    journal, final = folder / "killed.trace.journal", folder / "killed.trace.json"
    reported = (folder / "side.log").read_text().split() if (folder / "side.log").exists() else []
    first = reported[: len(reported) - (STEPS + 1)]
    path = final if final.exists() else journal
    if path.exists() and path.read_bytes().count(b"\n") > 1:
        [recording] = load(path)
        [recorded] = recording.runs
        steps = [step for step in recorded.run.steps if step.budget is not None]
        assert [str(step.index) for step in steps][: len(first)] == first, folder
        assert len(recorded.run.steps) - len(steps) <= 1
        if path is journal and recorded.run.steps:
            assert replay(recording).divergences == () or recorded.run.steps[-1].chat is None, folder
    else:
        assert first == [], folder
    effects = (folder / "effects").read_text().split()
    assert len(effects) == len(set(effects)), f"{folder}: done twice, {effects}"
    [again] = load(folder / "again.trace.json")
    outcomes = [record.outcome for step in again.runs[0].run.steps for record in step.calls]
    assert set(outcomes) <= {"ok", "duplicate", "unknown_outcome"}, folder
    assert STEPS - len(effects) <= outcomes.count("unknown_outcome") <= 1, f"{folder}: {effects}, {outcomes}"
    return not final.exists()


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forks of a process by SIGKILL")

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as warm:  # so that what is imported and compiled once is there before the forks
        run_once(Path(warm), Path(warm, "warm.trace.json"), ("never", 0))
    trials(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
