"""A process can be killed after every line of its journal: from each of these states a resume does nothing twice.

No process is killed here: after each line what is on disk is kept, with what the tools had done by the next line, which is
the worst that a kill can leave. `tests/e2e/test_kill_and_resume.py` does it by SIGKILL, at random.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from kernel import Tracing
from kernel.errors import TraceError
from kernel.testing import CountingIds
from kernel.trace.journal import journal_of
from replay import load, replay, resume
from tests.property.test_cancelled_everywhere import AGAIN, LEDGERS, SCRIPTS, Client, Scene, WaitingClock


class Disk:
    """A sink after the journal: the bytes that were there after each line, and what had been done by then."""

    def __init__(self, scene: Scene, journal: Path) -> None:
        self._scene, self._journal = scene, journal
        self.states: list[tuple[bytes, int]] = []

    def _line(self, *_: Any) -> None:
        self.states.append((self._journal.read_bytes(), len(self._scene.effects)))

    started = event = ended = _line

    def close(self) -> None:
        self._line()


def run(scene: Scene, script: str, path: Path) -> list[tuple[bytes, int]]:
    """The states of a whole run: a journal, and how many effects there were when its next line was written."""
    disk = Disk(scene, journal_of(path))
    replies, protocol = SCRIPTS[script]
    tracing = Tracing(file=path, join=False, sinks=[disk])
    model, ids = Client(replies, protocol=protocol), CountingIds("waits")
    asyncio.run(scene.agent.run("do it all", llm=model, trace=tracing, clock=WaitingClock(), ids=ids))
    return [(data, later) for (data, _), (_, later) in itertools.pairwise(disk.states)]


@pytest.mark.parametrize("script", ["text", "together"])
def test_killed_after_each_line_and_resumed_nothing_is_done_twice_or_unapproved(script: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, LEDGERS["none"])
    states = run(scene, script, tmp_path / "run.trace.json")
    done, whole = list(scene.effects), 0
    for number, (data, count) in enumerate(states):
        cut = tmp_path / f"{number}.trace.journal"
        cut.write_bytes(data)
        try:
            [recording] = load(cut)
        except TraceError:
            assert count == 0, "an effect without a run in the journal"
            continue
        if recording.runs[0].run.end is not None:
            whole += 1
            continue
        scene.effects[:] = done[:count]
        scene.asked.clear()
        again = tmp_path / f"{number}.again.trace.json"
        model = Client(AGAIN[script], protocol=SCRIPTS[script][1])
        result = asyncio.run(resume(recording, scene.agent, llm=model, trace=again))
        assert result.stop_reason == "finish"
        assert len(scene.effects) == len(set(scene.effects)) and "pay 13" not in scene.effects, number
        assert {f"{name} {next(iter(args.values()))}" for name, args in scene.asked} >= set(scene.effects[count:])
        assert replay(load(again)[0]).verdict == "same"
    assert len(states) > 30 and whole <= 1
