"""Whatever field of a replayed run is another than the recorded one, a difference names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel.record import Run, Usage
from replay import load
from replay.play import Recording, compare

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = sorted(path.name.removesuffix(".trace.json") for path in FIXTURES.glob("*.trace.json"))
IGNORED = {"masked_tokens"}
"""How a masked text was counted when it was recorded; a replay cannot know it and does not need to."""


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    return "planted" if value is None else ABSENT


ABSENT = object()


def changed(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value with one leaf changed) for every leaf below structs and tuples of structs."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            for where, new in changed(getattr(value, name), (*path, name)):
                yield where, msgspec.structs.replace(value, **{name: new})
    elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        for i, item in enumerate(value):
            for where, new in changed(item, (*path, str(i))):
                yield where, (*value[:i], new, *value[i + 1 :])
    elif (new := other(value)) is not ABSENT:
        yield path, 1.5 if path[-1] == "cost_usd" and value is None else new


def runs(name: str) -> list[Run]:
    found: list[Recording] = load(FIXTURES / f"{name}.trace.json")
    return [recorded.run for recording in found for recorded in recording.runs]


@pytest.mark.parametrize("name", NAMES)
def test_each_field_of_each_step_is_compared(name: str) -> None:
    silent = []
    for run in runs(name):
        for at, step in enumerate(run.steps):
            for path, new in changed(step):
                if path[-1] in IGNORED or _of_other_type(path):
                    continue
                observed = msgspec.structs.replace(run, steps=(*run.steps[:at], new, *run.steps[at + 1 :]))
                if not any(d.step == step.index for d in compare(run, observed)):
                    silent.append((step.index, path))
    assert silent == []


def _of_other_type(path: tuple[str, ...]) -> bool:
    """A text planted where a record or none belongs; no run can hold it."""
    return path[-1] in ("chat", "decision", "budget", "reply", "fault", "error", "approval", "result")


@pytest.mark.parametrize("name", NAMES)
def test_each_field_of_the_end_is_compared(name: str) -> None:
    silent = []
    for run in runs(name):
        if run.end is not None:
            for path, new in changed(run.end):
                torn = run.end.stop_reason == "cancelled" and path == ("tool_calls",)
                if not torn and not compare(run, msgspec.structs.replace(run, end=new)):
                    silent.append(path)
    assert silent == []


def test_an_end_on_one_side_only_is_a_difference() -> None:
    (run,) = runs("order-5xx")
    without = msgspec.structs.replace(run, end=None)
    for was, now in ((run, without), (without, run)):
        (found,) = compare(was, now)
        assert (found.kind, found.path, {found.recorded, found.observed}) == (
            "stop",
            "/stop_reason",
            {"finish", "no end"},
        )


@pytest.mark.parametrize(("was", "now"), [(1, True), (1, 1.0), (0, False), ("1", 1), (None, 0)])
def test_arguments_that_python_takes_for_equal_are_told_apart(was: Any, now: Any) -> None:
    (run,) = runs("order-5xx")
    sides = []
    for value in (was, now):
        record = run.steps[0].calls[0]
        record = msgspec.structs.replace(record, call=msgspec.structs.replace(record.call, args={"n": value}))
        step = msgspec.structs.replace(run.steps[0], calls=(record,))
        sides.append(msgspec.structs.replace(run, steps=(step, *run.steps[1:])))
    assert [(d.step, d.kind, d.path) for d in compare(*sides)] == [(1, "call", "/args/n")]


def test_costs_are_compared_in_whole_nano_dollars() -> None:
    (run,) = runs("order-5xx")
    assert run.end is not None

    def costing(cost_usd: float) -> Run:
        return msgspec.structs.replace(run, end=msgspec.structs.replace(run.end, cost_usd=cost_usd))

    assert compare(costing(0.1 + 0.2), costing(0.3)) == []
    assert [d.path for d in compare(costing(0.3), costing(0.300000002))] == ["/cost_usd"]


def test_usage_is_compared_field_by_field() -> None:
    (run,) = runs("order-5xx")
    end = msgspec.structs.replace(run.end, usage=Usage(input_tokens=1))
    assert {d.path for d in compare(run, msgspec.structs.replace(run, end=end))} >= {"/usage/input_tokens"}
