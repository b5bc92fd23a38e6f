"""Several live runs of one recording: how often each outcome came, and where the runs first part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from kernel.record import CallRecord, Run, Step, compact_json
from replay.play import UNRECORDED, Attempt, Recording, recorded_outcome
from replay.report.literals import cut, literal
from replay.report.render import View, title

_SHOWN = 5


class Parting(Struct, frozen=True, kw_only=True):
    """The first step at which runs do different things: what they do there, and how many do it."""

    turn: int
    step: int
    ways: tuple[tuple[str, int], ...]


class Tried(Struct, frozen=True, kw_only=True):
    """What came of running a recording live some times. `live` is `model` or `tools`."""

    recording: Recording
    live: str
    attempts: tuple[Attempt, ...]

    @property
    def recorded(self) -> str:
        return recorded_outcome(self.recording)

    @property
    def counted(self) -> tuple[Attempt, ...]:
        """Without those in which the model could not be reached."""
        return tuple(one for one in self.attempts if not one.infrastructure)

    @property
    def as_recorded(self) -> int:
        """How many ended as the recording did and, with live tools, got the recorded results."""
        return sum(one.outcome == self.recorded and not self.changes(one) for one in self.counted)

    @property
    def same(self) -> bool:
        return bool(self.counted) and self.as_recorded == len(self.counted)

    def changes(self, attempt: Attempt) -> tuple[str, ...]:
        """With live tools: where results are not as recorded. Calls that were denied are named apart."""
        if self.live != "tools":
            return ()
        return tuple(_changes(self.recording, attempt))

    def denied(self, attempt: Attempt) -> tuple[str, ...]:
        """Calls that ran when they were recorded and were denied now."""
        return tuple(
            f"step {step.index}: {_call(record)}"
            for recorded, run in zip(self.recording.runs, attempt.runs, strict=False)
            for step, was in zip(run.steps, recorded.run.steps, strict=False)
            for record, before in zip(step.calls, was.calls, strict=False)
            if _is_denied(record) and not _is_denied(before)
        )


def parting(attempts: Sequence[tuple[Run, ...]]) -> Parting | None:
    """Where runs first part, or None where they all do the same. What an answer says does not count."""
    paths = [[*_path(runs)] for runs in attempts]
    for at in range(max(map(len, paths), default=0)):
        there = [path[at] if at < len(path) else (path[-1][0], at + 1, "no further step") for path in paths if path]
        if len(ways := Counter(way for _, _, way in there)) > 1:
            turn, step, _ = there[0]
            return Parting(turn=turn, step=step, ways=tuple(ways.most_common()))
    return None


def _path(runs: Sequence[Run]) -> Iterator[tuple[int, int, str]]:
    for turn, run in enumerate(runs, 1):
        for step in run.steps:
            yield turn, step.index, _did(step)


def _did(step: Step) -> str:
    if step.decision is None:
        return "no decision"
    if step.decision.kind != "calls":
        return step.decision.kind
    return "; ".join(f"{call.name} {compact_json(call.args)}" for call in step.decision.calls)


def _call(record: CallRecord) -> str:
    return f"{record.call.name} {compact_json(record.call.args)}"


def _is_denied(record: CallRecord) -> bool:
    return record.outcome == "denied"


def _changes(recording: Recording, attempt: Attempt) -> Iterator[str]:
    for turn, (recorded, run) in enumerate(zip(recording.runs, attempt.runs, strict=False), 1):
        for was, now in zip(recorded.run.steps, run.steps, strict=False):
            for before, after in zip(was.calls, now.calls, strict=False):
                if _is_denied(after) or (before.outcome, before.result) == (after.outcome, after.result):
                    continue
                one, other = (f"{r.outcome} {compact_json(r.result)}" for r in (before, after))
                where = f"turn {turn}, " if len(recording.runs) > 1 else ""
                yield f"{where}step {now.index}: {_call(after)} gave {one}, now {other}"


def tried_lines(tried: Tried, view: View) -> Iterator[str]:
    """The outcomes of some live runs as text."""
    count, width = len(tried.attempts), view.columns
    live, kept = ("live model", "recorded tools") if tried.live == "model" else ("live tools", "recorded model")
    yield title(tried.recording, view)
    yield f"  {live}, {kept}, {count} {'run' if count == 1 else 'runs'}; recorded: {tried.recorded}"
    for (outcome, detail), times in Counter((a.outcome, a.detail) for a in tried.attempts).most_common():
        more = f"  {literal(detail)}" if detail else ""
        what = " (infrastructure, not counted)" if outcome == "model_error" else ""
        said = " was not recorded" if outcome == UNRECORDED else ""
        yield cut(f"  {times} × {outcome}{what}{more}{said}", width)
    for way in _shown([*dict.fromkeys(c for a in tried.attempts for c in tried.changes(a))]):
        yield cut(f"  ≠ {literal(way)}", width)
    for way in _shown([*dict.fromkeys(c for a in tried.attempts for c in tried.denied(a))]):
        yield cut(f"  not run, it has side effects (--allow): {literal(way)}", width)
    runs = [attempt.runs for attempt in tried.counted]
    if tried.live == "model":
        originals = tuple(one.run for one in tried.recording.runs)
        first = [found for one in runs if (found := parting([originals, one])) is not None]
        if first:
            earliest = min(first, key=lambda found: (found.turn, found.step))
            yield from _parted(
                f"from the recording {len(first)} of {len(runs)} runs part, first", earliest, view, False
            )
        if (apart := parting(runs)) is not None:
            yield from _parted("the runs part from each other", apart, view, True)
    counted = len(tried.counted)
    yield f"  {tried.as_recorded} of {counted} as recorded" if counted else "  inconclusive: the model was not reached"


def _parted(what: str, found: Parting, view: View, counts: bool) -> Iterator[str]:
    turn = f"turn {found.turn}, " if found.turn > 1 else ""
    yield f"  {what} at {turn}step {found.step}:"
    names = [f"{times} ×" for _, times in found.ways] if counts else ["recorded", "now"]
    for name, (way, _) in zip(names, found.ways, strict=False):
        yield cut(f"    {name:<8}  {literal(way)}", view.columns)


def _shown(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def tried_document(tried: Tried) -> dict[str, Any]:
    """The outcomes of some live runs as JSON."""
    apart = parting([attempt.runs for attempt in tried.counted])
    return {
        "trace_id": tried.recording.trace_id,
        "agent": tried.recording.agent,
        "file": tried.recording.file,
        "live": tried.live,
        "recorded": tried.recorded,
        "runs": [
            {
                "outcome": one.outcome,
                "detail": one.detail,
                "steps": sum(len(run.steps) for run in one.runs),
                "changes": list(tried.changes(one)),
                "denied": list(tried.denied(one)),
            }
            for one in tried.attempts
        ],
        "outcomes": dict(Counter(one.outcome for one in tried.attempts).most_common()),
        "as_recorded": tried.as_recorded,
        "counted": len(tried.counted),
        "part_at": None
        if apart is None
        else {"turn": apart.turn, "step": apart.step, "ways": [{"did": way, "runs": n} for way, n in apart.ways]},
    }
