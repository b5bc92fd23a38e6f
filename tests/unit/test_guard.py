"""The loop guard: repeats and cycles stop a run, progress never does, and real trajectories show both."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel.loop.guard import LoopGuard
from kernel.record.run import Call, CallRecord, Guard, GuardVerdict, ToolFault

CORPUS = Path(os.environ.get("TRACEFIRST_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


def record(name: str, result: Any, outcome: Any = "ok", *, key: str | None = None, **args: Any) -> CallRecord:
    return CallRecord(call=Call(name=name, args=args), outcome=outcome, result=result, key=key)


def judge(
    records: Iterable[CallRecord | Sequence[CallRecord]], settings: Guard | None = None, **repeats: int
) -> list[GuardVerdict]:
    """Feed calls as dispatch does: one that repeats the last call is answered without a run. Ends where a run would."""
    guard, verdicts = LoopGuard(settings or Guard(), repeats), []
    for step, given_records in enumerate(records, 1):
        batch = [given_records] if isinstance(given_records, CallRecord) else list(given_records)
        noted = []
        for one in batch:
            seen = guard.repeats_last(one.call, side_effect=one.key is not None)
            answered = CallRecord(call=one.call, outcome="duplicate", served_by="guard")
            noted.append(one if seen is None or one.call.name.startswith("volatile") else answered)
        verdicts.append(guard.note(step, tuple(noted)))
        if verdicts[-1].verdict == "loop":
            break
    return verdicts


def words(verdicts: Iterable[GuardVerdict]) -> list[str]:
    return [verdict.verdict for verdict in verdicts]


A, B, C = record("a", 1), record("b", 2), record("c", 3)


def test_the_same_call_right_after_itself_is_answered_then_run_once_more_then_stopped() -> None:
    verdicts = judge([A] * 9)
    assert words(verdicts) == ["ok", "answered", "warned", "loop"]
    assert [v.seen_step for v in verdicts] == [0, 1, 1, 1] and [v.warnings for v in verdicts] == [0, 1, 2, 3]


def test_a_side_effect_right_after_itself_is_answered_and_never_run_again() -> None:
    assert words(judge([record("pay", "ok", key="k")] * 9)) == ["ok", "answered", "answered", "loop"]


def test_a_call_that_gives_something_else_each_time_runs_freely_once_it_is_known() -> None:
    pages = [record("next_page", n) for n in range(6)]
    assert words(judge([pages[0], pages[0], *pages[1:]])) == ["ok", "answered", *["ok"] * 5]
    assert words(judge([pages[0], B, *pages[1:]])) == ["ok"] * 7


def test_a_failing_call_is_stopped_although_another_makes_progress_in_between() -> None:
    failed = CallRecord(call=A.call, outcome="error", error=ToolFault(type="E", message="m"))
    turns = [one for n in range(9) for one in (failed, record("b", n, n=n))]
    verdicts = judge(turns)
    assert words(verdicts) == ["ok", "ok", "warned", "ok", "warned", "ok", "loop"] and verdicts[-1].tool == "a"
    batches = [[failed, record("b", n, n=n)] for n in range(9)]
    assert words(judge(batches)) == ["ok", "warned", "warned", "loop"]


def test_a_call_that_succeeds_beside_progress_is_warned_of_twice_as_often() -> None:
    verdicts = judge([one for n in range(9) for one in (A, record("b", n, n=n))])
    assert words(verdicts).count("warned") == 5 and verdicts[-1].verdict == "loop" and verdicts[-1].warnings == 6


def test_re_reading_several_different_things_is_no_loop() -> None:
    files = [record("read", n, n=n) for n in range(5)]
    assert "loop" not in words(judge([*files, files[3], files[1], files[2], files[0]], Guard(window=12)))


def edit(n: int) -> CallRecord:
    return record("edit", "done", key=f"k{n}", n=n)


def test_a_test_run_after_an_edit_is_no_repetition() -> None:
    tests = record("run_tests", "1 failed")
    assert words(judge([one for n in range(20) for one in (tests, edit(n))])) == ["ok"] * 40
    assert words(judge([edit(0), tests, B, tests])) == ["ok", "ok", "ok", "warned"], "nothing changed in between"


def test_a_shell_that_declares_its_effects_may_run_a_test_after_each_edit() -> None:
    tests = record("bash", "1 failed", key="t", command="pytest")
    assert words(judge([one for n in range(20) for one in (tests, edit(n))])) == ["ok"] * 40


def test_effects_that_repeat_themselves_are_a_cycle_all_the_same() -> None:
    verdicts = judge([edit(0), record("run_tests", "1 failed")] * 9)
    assert verdicts[-1].verdict == "loop" and verdicts[-1].cycle == ("run_tests (step 4)", "edit (step 5)")


@pytest.mark.parametrize("outcome", ["denied", "duplicate"])
def test_an_effect_that_did_not_happen_clears_nothing(outcome: Any) -> None:
    refused = record("edit", "no", outcome, key="k")
    assert words(judge([A, refused, A])) == ["ok", "ok", "warned"]


def test_a_tool_may_be_repeated_as_often_as_it_says() -> None:
    poll = record("poll", "pending")
    assert words(judge([poll] * 30, poll=10)) == ["ok"] * 11 + ["warned", "warned", "loop"]
    done = record("poll", "done")
    assert words(judge([*[poll] * 11, done, *[poll] * 2], poll=10)) == ["ok"] * 12 + ["warned"] * 2
    wait = record("sleep", "5 s")
    assert words(judge([poll, wait] * 10, poll=20, sleep=20)) == ["ok"] * 20


def test_what_a_cycle_holds_is_named() -> None:
    verdict = judge([A, B, C] * 3)[-1]
    assert verdict.verdict == "loop" and verdict.cycle == ("a (step 4)", "b (step 5)", "c (step 6)")


def test_a_failed_call_is_run_again_and_its_equal_failure_is_no_progress() -> None:
    failed = CallRecord(call=A.call, outcome="error", error=ToolFault(type="E", message="m"))
    verdicts = judge([failed] * 9)
    assert words(verdicts) == ["ok", "warned", "warned", "loop"] and verdicts[1].rule == "again"


def test_a_cycle_is_named_with_its_length_and_start() -> None:
    verdicts = judge([A, B] * 5)
    assert words(verdicts) == ["ok", "ok", "warned", "warned", "loop"]
    assert [(v.rule, v.period, v.seen_step) for v in verdicts[2:]] == [
        ("again", 0, 1),
        ("cycle", 2, 1),
        ("cycle", 2, 2),
    ]


def test_a_cycle_of_three_is_stopped_too() -> None:
    verdicts = judge([A, B, C] * 5)
    assert verdicts[-1].verdict == "loop" and verdicts[-1].period in (0, 3) and len(verdicts) == 6


def test_progress_elsewhere_gives_a_repeated_call_more_time() -> None:
    assert words(judge([A, A, A, B, A, C, A])) == ["ok", "answered", "warned", "ok", "warned", "ok", "warned"]


def test_a_new_result_of_the_same_call_clears_its_warnings() -> None:
    other = record("a", 9)
    assert [v.warnings for v in judge([A, B, A, B, other, B, other])] == [0, 0, 1, 2, 0, 2, 3]


def test_what_left_the_window_is_new_again() -> None:
    others = [record("x", n, n=n) for n in range(3)]
    assert words(judge([A, *others, A], Guard(window=3))) == ["ok"] * 5
    assert words(judge([A, *others, A], Guard(window=4))) == ["ok"] * 4 + ["warned"]


def test_a_call_that_repeats_itself_is_noticed_beside_new_ones() -> None:
    verdicts = judge([[A, B], [A, C], [A, B]])
    assert words(verdicts) == ["ok", "warned", "warned"] and [v.tool for v in verdicts] == ["", "a", "a"]


def test_switched_off_it_says_nothing() -> None:
    assert words(judge([A] * 9, Guard(enabled=False))) == ["ok"] * 9


def test_one_warning_can_be_enough() -> None:
    assert words(judge([A, B, A], Guard(max_warnings=1))) == ["ok", "ok", "loop"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=40), st.integers(1, 9), st.integers(1, 4)
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_new_results_never_warn_and_a_run_without_any_always_stops(
    pairs: list[tuple[str, int]], window: int, most: int
) -> None:
    limits = Guard(window=window, max_warnings=most)
    fresh = [record(f"volatile_{name}", place, n=n) for place, (name, n) in enumerate(pairs)]
    assert words(judge(fresh, limits)) == ["ok"] * len(pairs)
    if pairs:
        name, n = pairs[0]
        stuck = [record(f"volatile_{name}", "same", n=n)] * (most + 1)
        assert words(judge(stuck, limits))[-1] == "loop"


# ---- real trajectories


def webshop(name: str) -> list[CallRecord]:
    text = (CORPUS / "react-webshop" / name).read_text("utf-8")
    found = re.findall(r"^Action: (\w+)(?:\[(.*?)\])?\s*\nObservation: ?(.*?)(?=\n\nAction:|\Z)", text, re.M | re.S)
    return [record(tool, observation.strip(), input=argument) for tool, argument, observation in found]


@pytest.mark.parametrize("name", ["episode_210.txt", "episode_349.txt"])
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
def test_twelve_identical_webshop_actions_are_stopped_early(name: str) -> None:
    records = webshop(name)
    assert len(records) >= 12
    verdicts = judge(records)
    assert verdicts[-1].verdict == "loop" and len(verdicts) < len(records) - 6


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
def test_four_identical_submits_are_stopped_before_the_fifth_attempt() -> None:
    steps = json.loads((CORPUS / "swe-agent" / "ctf_eps.traj").read_text("utf-8"))["trajectory"]
    records = [record("shell", step["observation"], command=step["action"].strip()) for step in steps]
    verdicts = judge(records)
    assert [(v.verdict, v.rule) for v in verdicts[-3:]] == [
        ("answered", "repeat"),
        ("warned", "again"),
        ("loop", "repeat"),
    ]
    assert words(verdicts[:-3]) == ["ok"] * (len(verdicts) - 3)


HEALTHY = sorted((CORPUS / "mini-swe-agent").glob("*.traj.json")) if CORPUS.is_dir() else []


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.name)
@pytest.mark.corpus
def test_a_healthy_run_is_never_stopped(path: Path) -> None:
    document = json.loads(path.read_text("utf-8"))
    messages = document["messages"] if isinstance(document, dict) else document
    pairs = [
        (_command(asked["content"]), told["content"])
        for asked, told in itertools.pairwise(messages)
        if asked["role"] == "assistant" and told["role"] == "user"
    ]
    assert pairs
    verdicts = judge([record("bash", output, command=command) for command, output in pairs])
    assert len(verdicts) == len(pairs) and "loop" not in words(verdicts)


def _command(text: str) -> str:
    found = re.search(r"```\w*\n(.*?)\n```", text, re.S)
    return found[1] if found else text
