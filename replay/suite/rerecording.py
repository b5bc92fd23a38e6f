"""Record the tasks of a fixture anew, live, and put the new recording in its place once it is known to be good."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.record import Run, RunHead
from kernel.result import RunResult
from kernel.tracing import Tracing
from replay.explain import diff, diff_lines
from replay.loading import load
from replay.play import RecordedRun, Recording, record_anew, replay
from replay.report import View
from replay.suite.accepting import withdraw
from replay.suite.paths import SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerecorded:
    """What came of one file. `kept` says why the old recording stays, "" where it was replaced; `new` is None where
    nothing could be recorded."""

    path: Path
    old: Recording | None
    new: Recording | None
    kept: str = ""

    def lines(self, view: View) -> list[str]:
        """The difference of the old and the new recording as text."""
        if self.old is None or self.new is None:
            return []
        return list(diff_lines(diff(self.old, self.new), view))


def rerecord(
    path: Path, old: Recording, agent: Agent, *, llm: Any = None, allow: Collection[str] = (), renamed: bool = True
) -> Rerecorded:
    """Record the tasks of a fixture again. The file is replaced when the new run ended, and replays as itself; the recording
    of a program stays, and without `renamed` that of an agent with another name.

    Raises:
        ConfigError: the recording cannot be recorded anew, the folder cannot be written, or a setting cannot work.
    """
    if not path.name.endswith(SUFFIX):
        raise ConfigError(f"{path}: only a file *{SUFFIX} is replaced")
    if why := _why_another(old, agent, renamed):
        return Rerecorded(path=path, old=old, new=None, kept=why)
    return _recorded(path, old, agent, llm, allow, [one.run for one in old.runs])


def _why_another(old: Recording, agent: Agent, renamed: bool) -> str:
    """Why a recording is not of this agent, or ""."""
    if old.foreign == "wire":
        return "it was recorded from a program: record that again with `replay record -o FILE -- COMMAND`"
    if renamed or agent.name == old.agent:
        return ""
    return (
        f"it is of the agent {old.agent or 'without a name'}, and today's is {agent.name}; "
        "where that is meant, let --agent name a dict of the recorded name to the agent"
    )


def record_new(
    path: Path, tasks: Sequence[str], agent: Agent, *, llm: Any = None, allow: Collection[str] = ()
) -> Rerecorded:
    """Record a fixture that is not there yet: one run, or the turns of a conversation.

    Raises:
        ConfigError: as `rerecord`, or the file is there.
    """
    if path.exists() or not path.name.endswith(SUFFIX):
        raise ConfigError(f"{path}: is there already, or is not named *{SUFFIX}")
    heads = [RunHead(agent=agent.name, task=task, run_id="", turn=turn) for turn, task in enumerate(tasks, 1)]
    runs = tuple(RecordedRun(run=Run(head=head, steps=())) for head in heads)
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = Recording(trace_id="", runs=runs, file=str(path))
    return _recorded(path, asked, agent, llm, allow, [])


def _recorded(
    path: Path, asked: Recording, agent: Agent, llm: Any, allow: Collection[str], before: Sequence[Run]
) -> Rerecorded:
    try:
        folder = Path(tempfile.mkdtemp(prefix=".rerecord-", dir=path.parent))
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be written ({error.strerror}), so nothing was recorded") from None
    try:
        target = folder / path.name
        results = asyncio.run(record_anew(asked, agent, llm=llm, allow=allow, trace=Tracing(file=target)))
        new = msgspec.structs.replace(load(target)[0], file=f"{path} (new)") if target.exists() else None
        kept = _why_kept(results, len(asked.runs), before, new, agent)
        if not kept:
            os.replace(target, path)
            withdraw(path)
        return Rerecorded(path=path, old=asked if before else None, new=new, kept=kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _why_kept(
    results: Sequence[RunResult], turns: int, before: Sequence[Run], new: Recording | None, agent: Agent
) -> str:
    """Why a new recording may not take the place of the old one, or ""."""
    for turn, result in enumerate(results, 1):
        where = f"turn {turn} of " if turns > 1 else ""
        end = before[turn - 1].end if turn <= len(before) else None
        was = "finish" if end is None else end.stop_reason
        if not result.ok and (result.stop_reason != was or result.stop_reason in ("model_error", "cancelled")):
            detail = f" ({result.detail})" if result.detail else ""
            return f"{where}the new run ended with {result.stop_reason}{detail}, not with {was}"
    if len(results) < turns:
        return f"only {len(results)} of {turns} turns were run"
    if new is None:
        return "no trace was written: " + "; ".join(warning for result in results for warning in result.warnings)
    verdict = replay(new, agent).verdict
    return "" if verdict == "same" else f"the new recording does not replay as itself: {verdict.replace('_', ' ')}"
