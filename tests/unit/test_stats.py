"""`replay stats`: what is not known is null, estimates are marked, and what the steps recorded counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernel.record import BudgetReading, Call, CallRecord, Chat, Reply, Run, RunEnd, RunHead, Step, Usage
from replay.explain.stats import Stats, stats_lines
from replay.play import RecordedRun, Recording
from replay.report import Paint, View

VIEW = View(columns=100, paint=Paint(False))


def stats_of(*runs: Run) -> Stats:
    stats = Stats()
    for run in runs:
        stats.add(Recording(trace_id="", runs=(RecordedRun(run=run),)))
    return stats


def run_of(*usages: Usage | None, end: RunEnd | None = None, cost_usd: float | None = None) -> Run:
    steps = [
        Step(
            index=n,
            chat=Chat(kept=0, new=(), reply=None if usage is None else Reply(text="x", usage=usage)),
            budget=BudgetReading(cost_usd=cost_usd),
        )
        for n, usage in enumerate(usages, 1)
    ]
    return Run(head=RunHead(agent="a", task="t", run_id="r"), steps=tuple(steps), end=end)


def figures(*runs: Run) -> dict[str, Any]:
    (agent,) = stats_of(*runs).document()["agents"]
    return agent


def text(*runs: Run) -> str:
    return "\n".join(stats_lines(stats_of(*runs), VIEW))


def test_what_no_run_reports_is_null_and_not_zero() -> None:
    for run in (run_of(), run_of(Usage()), run_of(Usage(), end=RunEnd(ok=True, stop_reason="finish"))):
        found = figures(run)
        assert found["input_tokens"] is found["output_tokens"] is found["cost_usd"] is None
        assert found["runs_without_tokens"] == found["runs_without_price"] == 1
        assert "0" not in text(run).partition("tokens")[2].partition("stop reason")[0]


def test_a_known_zero_is_zero() -> None:
    end = RunEnd(ok=True, stop_reason="finish", usage=Usage(input_tokens=0, output_tokens=0), cost_usd=0.0)
    found = figures(run_of(Usage(input_tokens=0, output_tokens=0), end=end))
    assert (found["input_tokens"], found["output_tokens"], found["cost_usd"]) == (0, 0, 0.0)


def test_a_sum_holds_what_is_known_and_says_of_how_many_runs_it_is_not() -> None:
    known = RunEnd(ok=True, stop_reason="finish", usage=Usage(input_tokens=10, output_tokens=2), cost_usd=0.5)
    found = figures(run_of(end=known), run_of(end=RunEnd(ok=False, stop_reason="timeout")))
    assert (found["input_tokens"], found["output_tokens"], found["cost_usd"]) == (10, 2, 0.5)
    assert (found["runs_without_tokens"], found["runs_without_price"]) == (1, 1)


@pytest.mark.parametrize("end", [None, RunEnd(ok=True, stop_reason="finish")], ids=["cut short", "end without usage"])
def test_what_the_steps_recorded_counts(end: RunEnd | None) -> None:
    usage = Usage(input_tokens=10, output_tokens=2)
    found = figures(run_of(usage, usage, end=end, cost_usd=0.25))
    assert (found["input_tokens"], found["output_tokens"], found["cost_usd"]) == (20, 4, 0.25)
    assert found["runs_without_tokens"] == found["runs_with_tokens_in_part"] == found["runs_without_price"] == 0


def test_a_run_of_which_some_steps_report_nothing_is_known_in_part() -> None:
    run = run_of(Usage(input_tokens=10, output_tokens=2), Usage(), None)
    assert figures(run)["runs_with_tokens_in_part"] == 1
    assert "10 in, 2 out (reported in part by 1 of 1 runs)" in text(run)


def test_one_class_of_tokens_alone_is_not_completed_with_zero() -> None:
    run = run_of(Usage(input_tokens=10))
    assert (figures(run)["input_tokens"], figures(run)["output_tokens"]) == (10, None)
    assert "10 in, not known out" in text(run)


@pytest.mark.parametrize("where", ["end", "step"])
def test_estimates_are_marked(where: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=2, estimated=True)
    end = RunEnd(ok=True, stop_reason="finish", usage=usage, cost_usd=1.0) if where == "end" else None
    run = run_of(usage, end=end, cost_usd=1.0)
    assert figures(run)["runs_with_estimated_tokens"] == 1
    assert "about 10 in, 2 out (estimated in 1 of 1 runs)" in text(run)
    assert "about $1.0000" in text(run)


def test_foreign_calls_of_which_no_outcome_is_known_are_not_ok() -> None:
    calls = tuple(CallRecord(call=Call(name="get", args={}), outcome=outcome) for outcome in ("ok", "error", "ok"))
    own = Run(head=RunHead(agent="a", task="t", run_id="r"), steps=(Step(index=1, calls=calls),))
    foreign = msgspec.structs.replace(own, head=msgspec.structs.replace(own.head, absent=("tool outcomes",)))
    assert figures(own)["tools"]["get"]["outcomes"] == {"ok": 2, "error": 1}
    assert figures(foreign)["tools"]["get"]["outcomes"] == {"not recorded": 2, "error": 1}
