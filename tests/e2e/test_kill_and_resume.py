"""A run that is killed and resumed, and killed again, does no side effect twice and none that was not approved.

Run as a script, this file is the process: each attempt is a fork of its own, killed by SIGKILL from outside after a random
time, by itself while an approval is asked or inside a tool, or right after a line of its journal.
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
TRIALS = int(os.environ.get("TRACEFIRST_SOAK") or 12)
STEPS, REFUSED, ATTEMPTS = 5, 2, 3
LEDGERS = ("default", "sqlite")
CONFIRMS = ("the agent's", "given to the run")


# ---- the process


def attempt(folder: Path, number: int, how: tuple[str, float], ledger: str, confirms: str) -> None:
    """The first run, or a resume of what the attempt before has left; `how` says when it dies."""
    import asyncio

    from kernel import Agent, Budget, Guard, Reply, SqliteLedger, ToolRegistry, Tracing
    from replay import load, resume

    kind, at = how
    tools, count = ToolRegistry(), {"asked": 0, "before": 0, "after": 0, "span": 0}

    def log(name: str, n: int) -> None:
        with open(folder / name, "ab", buffering=0) as file:
            file.write(b"%d\n" % n)

    def die(point: str) -> None:
        count[point] += 1
        if kind == point and count[point] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    @tools.register(side_effect=True)
    def effect(n: int) -> str:
        """Change the world."""
        die("before")
        log("effects", n)
        die("after")
        time.sleep(0.001)
        return f"done {n}"

    def confirm(name: str, args: dict[str, Any]) -> bool:
        die("asked")
        if args["n"] == REFUSED:
            return False
        log("approved", args["n"])
        return True

    class Model:
        """Says what comes next by what was said: one effect after the other, each asked for twice."""

        protocol, provider, name, params = "text", "own", "m", None

        async def complete(self, request: Any) -> Reply:
            said = sum(message.role == "assistant" for message in request.messages)
            if said >= 2 * STEPS:
                return Reply(text=json.dumps({"action": "finish", "args": {"answer": "all"}}))
            return Reply(text=json.dumps({"action": "effect", "args": {"n": said % STEPS}}))

    class Lines:
        """Told after each line of the journal."""

        def started(self, span: Any) -> None:
            die("span")

        def event(self, span: Any, event: Any) -> None:
            die("span")

        def ended(self, span: Any) -> None:
            die("span")

        def close(self) -> None: ...

    agent = Agent(
        tools=tools,
        ledger=SqliteLedger(folder / "ledger.db") if ledger == "sqlite" else None,
        budget=Budget(max_steps=2 * STEPS + 2, max_errors=99),
        guard=Guard(enabled=False),
        confirm=confirm if confirms == CONFIRMS[0] else None,
    )
    tracing = Tracing(file=folder / f"{number}.trace.json", join=False, sinks=[Lines()])
    left = [file for file in (_left(folder, number - 1), _left(folder, number - 2)) if file is not None]
    if left:
        asyncio.run(resume(load(left[0])[0], agent, llm=Model(), trace=tracing))
    else:
        agent.run_sync("go", llm=Model(), trace=tracing, confirm=confirm)


def _left(folder: Path, number: int) -> Path | None:
    """What an attempt that was killed has left, if its run had begun."""
    journal = folder / f"{number}.trace.journal"
    return journal if journal.exists() and journal.read_bytes().count(b"\n") > 1 else None


def trials(base: Path, number: int, seed: int) -> None:
    dice = random.Random(seed)
    for trial in range(number):
        folder = base / f"{trial:04d}"
        folder.mkdir()
        ledger, confirms = LEDGERS[trial % 2], CONFIRMS[trial // 2 % 2]
        (folder / "setting").write_text(f"{ledger}\n{confirms}")
        for attempt_number in range(ATTEMPTS):
            deaths = [
                ("delay", dice.uniform(0.0, 0.04)),
                ("asked", dice.randint(1, STEPS)),
                ("before", dice.randint(1, STEPS)),
                ("after", dice.randint(1, STEPS)),
                ("span", dice.randint(1, 60)),
            ]
            how = ("never", 0.0) if attempt_number == ATTEMPTS - 1 else dice.choice(deaths)
            if not _in_fork(folder, attempt_number, how, ledger, confirms):
                break


def _in_fork(folder: Path, number: int, how: tuple[str, float], ledger: str, confirms: str) -> bool:
    """Whether the attempt was killed."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            attempt(folder, number, how, ledger, confirms)
            status = 0
        finally:
            os._exit(status)
    if how[0] == "delay":
        time.sleep(how[1])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if status not in (0, signal.SIGKILL):
        raise RuntimeError(f"{folder.name}: attempt {number} ended with status {status}")
    return status == signal.SIGKILL and not (folder / f"{number}.trace.json").exists()


# ---- the test


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def test_killed_and_resumed_nothing_is_done_twice_or_unapproved(folder_in_memory: Path) -> None:
    seed = random.SystemRandom().randrange(2**32) if os.environ.get("TRACEFIRST_SOAK") else 11
    command = [sys.executable, __file__, str(folder_in_memory), str(TRIALS), str(seed)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=3000)
    folders = sorted(folder_in_memory.iterdir())
    assert len(folders) == TRIALS
    killed = sum(check(folder) for folder in folders)
    print(f"seed {seed}: {killed} kills in {TRIALS} runs, 0 effects doubled, 0 unapproved")
    assert killed >= TRIALS, f"seed {seed}: too few attempts were killed"


def check(folder: Path) -> int:
    """Look at what one run did in all its attempts; how many of them were killed."""
    from replay import load, replay

    done, approved = (_logged(folder / name) for name in ("effects", "approved"))
    assert len(done) == len(set(done)), f"{folder}: done twice, {done}"
    assert set(done) <= set(approved) and str(REFUSED) not in done, f"{folder}: {done} of {approved} were approved"
    ended = [file for number in range(ATTEMPTS) if (file := folder / f"{number}.trace.json").exists()]
    [recording] = load(ended[0])
    run = recording.runs[0].run
    assert run.end is not None and run.end.stop_reason == "finish", folder
    assert replay(recording).divergences == (), folder
    ok = {record.call.args["n"] for step in run.steps for record in step.calls if record.outcome == "ok"}
    assert {str(n) for n in ok} <= set(done), folder
    return len(list(folder.glob("*.trace.journal")))


def _logged(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forks of a process by SIGKILL")

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as warm:  # so that what is imported and compiled once is there before the forks
        attempt(Path(warm), 0, ("never", 0), "sqlite", CONFIRMS[0])
    trials(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
