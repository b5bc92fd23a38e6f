"""`--replay-record`: which cases are recorded live in this run, and what is then told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel.agent import Agent
from kernel.errors import TracefirstError
from replay.play import NotLoaded, Recording, ReplayResult, load_object
from replay.report import View
from replay.suite.failure import ReplayFailed
from replay.suite.rerecording import Rerecorded, record_new, rerecord
from replay.suite.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Records the cases of one run of pytest with its settings."""

    settings: Settings

    def wants(self, result: ReplayResult | None) -> bool:
        """Whether a recording is to be recorded anew: before its replay (None), or after it, by its verdict."""
        if result is None:
            return self.settings.record == "all"
        return self.settings.record == "drifted" and result.verdict == "drifted"

    def anew(self, fixture: Path, recording: Recording, agent: Agent | None, shown: str) -> tuple[str, ...]:
        """Record a fixture anew; the difference of old and new as lines. Raises `ReplayFailed` where the old one stays."""
        if agent is None:
            raise _kept(shown, "no agent is configured for it in [tool.tracefirst.agents]")
        try:
            done = rerecord(fixture, recording, agent, llm=self._model(shown), allow=self.settings.allow)
        except TracefirstError as error:
            raise _kept(shown, str(error)) from None
        return self._told(done, shown)

    def new(self, fixture: Path, tasks: Sequence[str], agent: Agent, shown: str) -> tuple[str, ...]:
        """Record a fixture that is not there. Raises `ReplayFailed`."""
        try:
            done = record_new(fixture, tasks, agent, llm=self._model(shown), allow=self.settings.allow)
        except TracefirstError as error:
            raise _kept(shown, str(error)) from None
        return self._told(done, shown)

    def _told(self, done: Rerecorded, shown: str) -> tuple[str, ...]:
        if done.kept:
            raise _kept(shown, done.kept)
        return tuple(done.lines(View(columns=100)))

    def _model(self, shown: str) -> Any:
        """The live model: what `--replay-llm` names, or None for that of the environment."""
        spec = self.settings.llm
        if not spec:
            return None
        try:
            return load_object(spec)
        except NotLoaded as error:
            raise _kept(shown, f"--replay-llm {spec}: {error}") from None


def _kept(shown: str, why: str) -> ReplayFailed:
    return ReplayFailed("not_recorded", shown, f"not recorded: {why}", f"not recorded: {shown}: {why}")
