"""Ids and times of an imported run's spans: the source's where it has them, else derived ids and a count of events."""

from __future__ import annotations

import hashlib

import msgspec

from kernel.record import Mark, Run, Step, StepMarks
from replay.importers.model import Round, Turn

_TICK_NS = 1000


def derived_id(seed: str, size: int) -> str:
    """An id of `size` bytes, in hex, that depends on `seed` alone."""
    return hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def ended_ns(round: Round) -> int:
    """When a round was over: its reply, or the last of its calls."""
    ends = [mark.end_ns or 0 for mark in (round.mark, *round.call_marks) if mark is not None]
    return max(ends, default=0)


class Marker:
    """Marks the runs of one trace. Where times are missing, each start and end is a microsecond after the last."""

    def __init__(self, seed: str, now_ns: int = 0) -> None:
        self._seed = seed
        self._spans = 0
        self.now_ns = now_ns

    def span_id(self) -> str:
        self._spans += 1
        return derived_id(f"{self._seed}/span/{self._spans}", 8)

    def tick(self) -> int:
        self.now_ns += _TICK_NS
        return self.now_ns

    def start(self) -> Mark:
        return Mark(span_id=self.span_id(), start_ns=self.tick())

    def end(self, mark: Mark, *, ended: bool = True) -> Mark:
        return msgspec.structs.replace(mark, end_ns=self.tick()) if ended else mark

    def mark(self, run: Run, turn: Turn) -> Run:
        """The run with a mark for each of its spans; what did not end stays open."""
        rounds = turn.rounds[: len(run.steps)]
        if rounds and all(_is_timed(round) for round in rounds):
            return self._timed(run, rounds)
        root = self.start()
        marks: list[StepMarks] = []
        for step in run.steps:
            own = self.start()
            chat = self.end(self.start(), ended=_replied(step))
            calls = tuple(self.end(self.start(), ended=r.outcome != "unknown_outcome") for r in step.calls)
            marks.append(StepMarks(step=self.end(own, ended=step.decision is not None), chat=chat, calls=calls))
        mark = self.end(root, ended=run.end is not None)
        return msgspec.structs.replace(run, mark=mark, marks=tuple(marks))

    def _timed(self, run: Run, rounds: tuple[Round, ...]) -> Run:
        marks: list[StepMarks] = []
        root_id = self.span_id()
        for step, round in zip(run.steps, rounds, strict=True):
            assert round.mark is not None
            over = ended_ns(round) if step.decision is not None else None
            own = Mark(span_id=self.span_id(), start_ns=round.mark.start_ns, end_ns=over)
            chat = self._known(round.mark, round.mark, ended=_replied(step))
            calls = tuple(
                self._known(
                    round.call_marks[at] if at < len(round.call_marks) else None,
                    Mark(start_ns=round.mark.end_ns or 0, end_ns=round.mark.end_ns),
                    ended=record.outcome != "unknown_outcome",
                )
                for at, record in enumerate(step.calls)
            )
            marks.append(StepMarks(step=own, chat=chat, calls=calls))
        self.now_ns = max(self.now_ns, *(ended_ns(round) for round in rounds))
        end_ns = ended_ns(rounds[-1]) if run.end is not None else None
        began = rounds[0].mark.start_ns if rounds[0].mark is not None else 0
        return msgspec.structs.replace(
            run, mark=Mark(span_id=root_id, start_ns=began, end_ns=end_ns), marks=tuple(marks)
        )

    def _known(self, mark: Mark | None, times: Mark, *, ended: bool) -> Mark:
        """The source's mark, or one with an id of ours and the times of `times`."""
        found = mark if mark is not None else times
        end_ns = (found.end_ns or found.start_ns) if ended else None
        return Mark(span_id=found.span_id or self.span_id(), start_ns=found.start_ns, end_ns=end_ns)


def _is_timed(round: Round) -> bool:
    return round.mark is not None and round.mark.start_ns > 0 and (bool(round.mark.end_ns) or round.reply is None)


def _replied(step: Step) -> bool:
    return step.chat is not None and step.chat.reply is not None
