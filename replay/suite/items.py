"""Traces as pytest collects them: a file, and one item for each trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from replay.suite.failure import failure_in, render

if TYPE_CHECKING:
    from replay.suite.case import Outcome
    from replay.suite.settings import Settings


class Suite(Protocol):
    """Who collects the items, and hears what came of them."""

    @property
    def settings(self) -> Settings: ...
    def note(self, item: pytest.Item, outcome: Outcome) -> None: ...


class TraceFile(pytest.File):
    """A file of recordings."""

    suite: Suite

    @classmethod
    def of(cls, suite: Suite, path: Path, parent: pytest.Collector) -> TraceFile:
        file: TraceFile = cls.from_parent(parent, path=path)
        file.suite = suite
        return file

    def collect(self) -> Iterator[pytest.Item]:
        """One case a trace. What cannot be read is one case too, and fails when it runs, so that the others run."""
        from replay.suite.paths import traces_in

        try:
            ids: list[str | None] = [*traces_in(self.path)]
        except Exception:  # said by the case, which reads the file again
            ids = []
        if len(ids) < 2:
            yield ReplayCase.of(self, "replay", None)
            return
        for trace_id in ids:
            yield ReplayCase.of(self, f"replay[{trace_id}]", trace_id)


class ReplayCase(pytest.Item):
    """One recording, replayed and compared with its snapshot."""

    suite: Suite
    trace_id: str | None

    @classmethod
    def of(cls, file: TraceFile, name: str, trace_id: str | None) -> ReplayCase:
        case: ReplayCase = cls.from_parent(file, name=name)
        case.suite = file.suite
        case.trace_id = trace_id
        return case

    def runtest(self) -> None:
        """Raises `ReplayFailed`."""
        from replay.suite.case import Outcome, run_case

        outcome = Outcome(verdict="not_checked", snapshot="not_compared")
        try:
            outcome = run_case(self.suite.settings, self.path, self.trace_id, self.nodeid)
        finally:
            self.suite.note(self, outcome)
        if outcome.failure is not None:
            raise outcome.failure

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The story of a failure instead of a traceback."""
        failure = failure_in(excinfo)
        return super().repr_failure(excinfo) if failure is None else render(failure, self.nodeid.partition("::")[0])

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the case is, and its name in headings."""
        return self.path, 0, f"{self.name} of {self.suite.settings.shown(self.path)}"
