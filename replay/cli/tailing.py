"""`replay show --tail`: the steps of a run while it goes on, from its journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernel.errors import TraceError
from kernel.record import Run
from kernel.trace import JOURNAL_SUFFIX, SUFFIX
from replay.cli import output
from replay.cli.files import message_of, recordings
from replay.cli.status import SAME, UNUSABLE
from replay.play import Recording
from replay.report import View, end_lines, heading, run_lines, step_lines

_POLL_S = 0.5


def tail(file: str, view: View, *, trace_id: str | None = None, wait: Callable[[float], None] = time.sleep) -> int:
    """Show the steps that a journal holds and those that come, until the run has ended. Returns the exit status.

    Where the recorder has made the trace file of it, that is read to the end.
    """
    shown = _Shown(view)
    try:
        while True:
            recording = _latest(file, trace_id)
            if recording is not None:
                output.lines(shown.more(recording))
                if recording.runs and shown.is_over(recording, Path(file)):
                    return SAME
            wait(_POLL_S)
    except (TraceError, OSError) as error:
        output.problem(message_of(error, file))
        return UNUSABLE


def _latest(file: str, trace_id: str | None) -> Recording | None:
    """The recording as far as it is written: of the journal, or of the trace file that was made of it."""
    for name in (file, _final(file)):
        try:
            return next(recordings(name, trace_id=trace_id), None)
        except TraceError:
            if Path(name).exists() and not _has_begun(name):
                raise
    if not Path(file).exists():
        raise TraceError(f"{file}: no such journal, and no {_final(file)}", file=file)
    return None


def _has_begun(name: str) -> bool:
    """Whether a file is a journal of which no span is there yet, or nothing at all."""
    with open(name, "rb") as file:
        first = file.readline(4096)
    return not first or (name.endswith(JOURNAL_SUFFIX) and b'"tracefirst"' in first)


def _final(file: str) -> str:
    return file.removesuffix(JOURNAL_SUFFIX) + SUFFIX if file.endswith(JOURNAL_SUFFIX) else file


class _Shown:
    """What was shown so far: the heading, whole steps of each run, and ends."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._steps: list[int] = []
        self._ended: list[bool] = []

    def more(self, recording: Recording) -> Iterator[str]:
        """The lines of what came since the last time."""
        if not self._steps:
            yield from heading(recording, self._view)
        for at, run in enumerate(one.run for one in recording.runs):
            if at == len(self._steps):
                self._steps.append(0)
                self._ended.append(False)
                yield next(run_lines(run, self._view, turn=at + 1 if recording.conversation is not None else 0))
            yield from self._run(at, run)

    def _run(self, at: int, run: Run) -> Iterator[str]:
        whole = [step for step in run.steps if step.budget is not None or run.end is not None]
        for step in whole[self._steps[at] :]:
            yield from step_lines(step, self._view)
        self._steps[at] = len(whole)
        if run.end is not None and not self._ended[at]:
            self._ended[at] = True
            yield from end_lines(run.end, self._view)

    def is_over(self, recording: Recording, file: Path) -> bool:
        """Whether nothing more will come: all runs have ended, and the journal of a conversation is closed."""
        journal = file.name.endswith(JOURNAL_SUFFIX) and file.exists()
        return all(self._ended) and not (journal and recording.conversation is not None)
