"""Compare two recordings: steps are aligned first, then compared at every seam; one added step is one difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec
from msgspec import Struct

from kernel.record import Run, Step, canonical_json
from replay.play import Divergence, Recording, compare, differences
from replay.report import View, arguments, contrast, line, literal, title

_MOMENTARY = ("/elapsed_ns", "/id", "/key", "/token")
"""Where two live runs always differ: times, ids that providers make up, and what is derived from the run's own id."""

_IDENTITY = ("run_id", "conversation_id", "turn", "masked", "resumes", "witnessed", "source", "absent")
_SHOWN_PER_STEP = 4


class Pair(Struct, frozen=True, kw_only=True):
    """Two steps that belong together, or one that only one side has. Indexes count from 1, 0 is none."""

    turn: int
    a: int
    b: int
    summary: str
    differences: tuple[Divergence, ...] = ()

    @property
    def equal(self) -> bool:
        return bool(self.a and self.b) and not self.differences


class Answered(Struct, frozen=True, kw_only=True):
    """Which model a turn asked for and which answered, on both sides; none where nobody said. Not `pinned`: an alias was
    asked for, so that the provider decides which model answers tomorrow."""

    turn: int
    asked: tuple[str, str]
    a: tuple[str, ...]
    b: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return bool(self.a and self.b) and self.a != self.b

    @property
    def pinned(self) -> bool:
        sides = zip(self.asked, (self.a, self.b), strict=True)
        return all(answered in ((), (asked,)) for asked, answered in sides)


class Diff(Struct, frozen=True, kw_only=True):
    """How two recordings differ: in their settings, step by step, and in their ends."""

    a: Recording
    b: Recording
    settings: tuple[tuple[str, Any, Any], ...]
    pairs: tuple[Pair, ...]
    ends: tuple[Divergence, ...]
    models: tuple[Answered, ...] = ()

    @property
    def same(self) -> bool:
        equal = all(pair.equal for pair in self.pairs) and not any(model.differs for model in self.models)
        return equal and not self.settings and not self.ends


def diff(a: Recording, b: Recording) -> Diff:
    """Compare two recordings turn by turn. Ids, times and what a provider makes up do not count."""
    settings: list[tuple[str, Any, Any]] = []
    pairs: list[Pair] = []
    ends: list[Divergence] = []
    models: list[Answered] = []
    for turn in range(max(len(a.runs), len(b.runs))):
        one = a.runs[turn].run if turn < len(a.runs) else None
        other = b.runs[turn].run if turn < len(b.runs) else None
        if one is None or other is None:
            pairs.extend(_one_sided(one, other, turn + 1))
            continue
        settings.extend(differences(_settings(one), _settings(other), f"/turns/{turn + 1}" if turn else ""))
        pairs.extend(_pairs(one, other, turn + 1))
        ends.extend(_ends(one, other, turn + 1))
        asked = one.head.params.model, other.head.params.model
        models.append(Answered(turn=turn + 1, asked=asked, a=_answered(one), b=_answered(other)))
    return Diff(a=a, b=b, settings=tuple(settings), pairs=tuple(pairs), ends=tuple(ends), models=tuple(models))


def _answered(run: Run) -> tuple[str, ...]:
    """The models that answered, each once, in order."""
    replies = [step.chat.reply for step in run.steps if step.chat is not None and step.chat.reply is not None]
    return tuple(dict.fromkeys(reply.model for reply in replies if reply.model))


def _settings(run: Run) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: msgspec.to_builtins(getattr(run.head, name))
        for name in run.head.__struct_fields__
        if name not in _IDENTITY
    }
    plain["tools"] = {tool["name"]: tool for tool in plain["tools"]}
    return plain


def _one_sided(one: Run | None, other: Run | None, turn: int) -> Iterator[Pair]:
    for step in one.steps if one is not None else ():
        yield Pair(turn=turn, a=step.index, b=0, summary=_summary(step))
    for step in other.steps if other is not None else ():
        yield Pair(turn=turn, a=0, b=step.index, summary=_summary(step))


def _pairs(one: Run, other: Run, turn: int) -> Iterator[Pair]:
    """Steps in aligned order: equal actions belong together, then what stands in the same place."""
    matcher = SequenceMatcher(None, [_action(s) for s in one.steps], [_action(s) for s in other.steps], autojunk=False)
    for _, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        for at in range(max(a_to - a_from, b_to - b_from)):
            left = one.steps[a_from + at] if a_from + at < a_to else None
            right = other.steps[b_from + at] if b_from + at < b_to else None
            yield _pair(one, other, left, right, turn)


def _pair(one: Run, other: Run, left: Step | None, right: Step | None, turn: int) -> Pair:
    if left is None or right is None:
        step = left or right
        assert step is not None
        return Pair(turn=turn, a=left.index if left else 0, b=right.index if right else 0, summary=_summary(step))
    found: tuple[Divergence, ...] = ()
    if left != right:
        marks = one.marks[left.index - 1 : left.index] if left.index <= len(one.marks) else ()
        was = Run(head=one.head, steps=(left,), marks=marks)
        now = Run(head=other.head, steps=(right,))
        found = tuple(msgspec.structs.replace(d, step=left.index) for d in compare(was, now, turn=turn) if _counts(d))
    return Pair(turn=turn, a=left.index, b=right.index, summary=_summary(left), differences=found)


def _counts(divergence: Divergence) -> bool:
    """Requests follow from settings, replies and results, each of which is compared where it arises; of a reply, that is
    what was read from it."""
    return divergence.kind not in ("request", "reply", "budget") and not divergence.path.endswith(_MOMENTARY)


def _action(step: Step) -> str:
    """What a step did, as one text: equal texts are aligned."""
    decision = step.decision
    if decision is None:
        return "open"
    calls = [(record.call.name, canonical_json(record.call.args)) for record in step.calls]
    return canonical_json([decision.kind, calls])


def _summary(step: Step) -> str:
    """What a step did, harmless, on one line."""
    decision = step.decision
    if decision is None:
        return "cut short"
    if step.calls:
        return "; ".join(f"{literal(record.call.name)}({arguments(record.call)[:200]})" for record in step.calls)
    return line(decision.answer or "", 200) if decision.kind == "finish" else decision.kind


def _ends(one: Run, other: Run, turn: int) -> Iterator[Divergence]:
    bare = [msgspec.structs.replace(run, steps=(), marks=()) for run in (one, other)]
    for divergence in compare(bare[0], bare[1], turn=turn):
        if _counts(divergence):
            yield msgspec.structs.replace(divergence, step=0)


def diff_document(diff: Diff) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "a": {"trace_id": diff.a.trace_id, "file": diff.a.file},
        "b": {"trace_id": diff.b.trace_id, "file": diff.b.file},
        "same": diff.same,
        "settings": [{"path": path, "a": one, "b": other} for path, one, other in diff.settings],
        "steps": [
            {"turn": pair.turn, "a": pair.a or None, "b": pair.b or None, "summary": pair.summary,
             "differences": [_plain(d) for d in pair.differences]}
            for pair in diff.pairs
        ],
        "ends": [_plain(d) for d in diff.ends],
        "models": [
            {"turn": model.turn, "asked": {"a": model.asked[0], "b": model.asked[1]},
             "answered": {"a": list(model.a), "b": list(model.b)}, "pinned": model.pinned}
            for model in diff.models
        ],
    }  # fmt: skip


def _plain(divergence: Divergence) -> dict[str, Any]:
    return {"kind": divergence.kind, "path": divergence.path, "a": divergence.recorded, "b": divergence.observed}


def diff_lines(diff: Diff, view: View) -> Iterator[str]:
    """The comparison as text. Runs of equal steps are one line."""
    paint = view.paint
    for name, recording in (("A", diff.a), ("B", diff.b)):
        yield f"{paint('strong', name)}  {title(recording, view)}"
    yield ""
    limit = len(diff.settings) if view.verbose else 6
    for path, one, other in diff.settings[:limit]:
        yield f"≠ settings {literal(path)}"
        yield from _sides(one, other, view)
    if len(diff.settings) > limit:
        yield paint("quiet", f"  ⋮ {len(diff.settings) - limit} more settings differ (--verbose)")
    equal: list[Pair] = []
    for pair in diff.pairs:
        if pair.equal and not view.verbose:
            equal.append(pair)
            continue
        yield from _equal(equal, view)
        equal = []
        yield from _pair_lines(pair, view, several=len(diff.a.runs) > 1)
    yield from _equal(equal, view)
    yield from _model_lines(diff)
    for divergence in diff.ends:
        yield f"≠ end {divergence.kind} {literal(divergence.path)}"
        yield from _sides(divergence.recorded, divergence.observed, view)
    yield ""
    if diff.same:
        yield f"{paint('good', 'SAME')}  settings, steps and ends are equal; ids, times and usage were not compared"
    else:
        changed = sum(bool(pair.a and pair.b and pair.differences) for pair in diff.pairs)
        only = [sum(not pair.b for pair in diff.pairs), sum(not pair.a for pair in diff.pairs)]
        yield (
            f"{paint('bad', 'DIFFERENT')}  settings: {len(diff.settings)}; steps: {changed} changed, "
            f"{only[0]} only in A, {only[1]} only in B; ends: {len(diff.ends)}"
        )


def _model_lines(diff: Diff) -> Iterator[str]:
    """Which models answered, where they differ or are not the ones that were asked for; each case once."""
    told = set()
    for model in diff.models:
        if model.pinned and not model.differs:
            continue
        sign, pinned = "≠" if model.differs else "=", "" if model.pinned else ": not pinned"
        sides = [
            f"{name} asked for {literal(asked) or '(none)'}, answered by {literal(', '.join(answered)) or '(not said)'}"
            for name, asked, answered in zip("AB", model.asked, (model.a, model.b), strict=True)
        ]
        told.add(f"{sign} model {'; '.join(sides)}{pinned}")
    yield from sorted(told)


def _equal(pairs: Sequence[Pair], view: View) -> Iterator[str]:
    if pairs:
        first, last = pairs[0], pairs[-1]
        names = f"step {first.a}" if first is last else f"steps {first.a}-{last.a}"
        other = "" if first.a == first.b else f" (in B from {first.b})"
        yield view.paint("quiet", f"= {names}{other}")


def _pair_lines(pair: Pair, view: View, *, several: bool) -> Iterator[str]:
    turn = f"turn {pair.turn} " if several else ""
    room = max(20, view.columns - 24)
    if not pair.b:
        yield view.paint("bad", f"- {turn}step {pair.a} only in A") + f"  {line(pair.summary, room)}"
    elif not pair.a:
        yield view.paint("good", f"+ {turn}step {pair.b} only in B") + f"  {line(pair.summary, room)}"
    else:
        sign = "=" if pair.equal else "≠"
        yield f"{sign} {turn}step {pair.a} / {pair.b}  {line(pair.summary, room)}"
        limit = len(pair.differences) if view.verbose else _SHOWN_PER_STEP
        for divergence in pair.differences[:limit]:
            yield f"    {divergence.kind} {literal(divergence.path)}"
            yield from _sides(divergence.recorded, divergence.observed, view)
        if len(pair.differences) > limit:
            yield view.paint("quiet", f"    ⋮ {len(pair.differences) - limit} more (--verbose)")


def _sides(one: Any, other: Any, view: View) -> Iterator[str]:
    left, right, remark = contrast(one, other, max(20, view.columns - 8))
    yield f"    {view.paint('bad', 'A')}  {left}"
    yield f"    {view.paint('good', 'B')}  {right}"
    if remark:
        yield f"       ({remark})"
