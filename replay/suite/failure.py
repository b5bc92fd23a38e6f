"""Why a case failed: one error with the whole story, and how pytest shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

    from replay.play import ReplayResult

Reason = Literal[
    "diverged",
    "drifted",
    "crashed",
    "imported",
    "not_checked",
    "missing",
    "stale",
    "changed",
    "unusable",
    "unreadable",
    "agent",
    "marker",
    "not_recorded",
    "settings",
]


class ReplayFailed(Exception):
    """A recording did not replay as it must. `story` is what the user reads; `headline` its one-line form.

    Args:
        reason: a verdict of the replay, what is wrong with the snapshot, `unreadable` (the file), `agent` (it cannot be
            loaded), `marker` (it cannot be followed) `not_recorded` (what was to be
            recorded live was not) or `settings` (one changed that the recording does not exercise).
        step: where the first difference is, 0 where there is none.
    """

    def __init__(self, reason: Reason, fixture: str, headline: str, story: str, step: int = 0) -> None:
        super().__init__(reason, fixture, headline, story, step)
        self.reason = reason
        self.fixture = fixture
        self.headline = headline
        self.story = story
        self.step = step

    def __str__(self) -> str:
        return self.story


def of_verdict(result: ReplayResult, fixture: str, *lines: str) -> ReplayFailed:
    """The failure of a replay that is not as recorded: first difference, cause, evidence, next command."""
    from replay.report import View, report

    assert result.verdict != "same"
    first = result.first
    headline = headline_of(result)
    story = "\n".join([*report(result, View(columns=100), brief=True), *lines])
    return ReplayFailed(result.verdict, fixture, headline, story, first.step if first is not None else 0)


def of_settings(result: ReplayResult, fixture: str) -> ReplayFailed:
    """The failure of a replay that is as recorded, of which a setting changed that it does not exercise."""
    from replay.report import View, report

    names = ", ".join(setting.name for setting in result.unexercised)
    told = "replay_strict_settings is set: record a run that exercises them, or one with the settings of today"
    story = "\n".join([*report(result, View(columns=100), brief=True), told])
    return ReplayFailed("settings", fixture, f"changed, not exercised here: {names}", story)


def headline_of(result: ReplayResult) -> str:
    """A verdict with its first difference, on one line."""
    from replay.report import literal

    first = result.first
    where = f" at step {first.step}: {first.kind} {literal(first.path)} ({first.cause})" if first is not None else ""
    why = result.why_not or ("nothing of the agent ran" if result.verdict == "imported" else "")
    return f"{result.verdict.replace('_', ' ')}{where}" + (f": {why}" if why else "")


def render(failure: ReplayFailed, path: str) -> TerminalRepr:
    """The failure as pytest shows it, also when it comes from a worker: the story, and the headline in the summary."""
    from _pytest._code.code import ExceptionChainRepr, ReprEntryNative, ReprFileLocation, ReprTraceback

    entries = [ReprEntryNative([f"{line}\n" for line in failure.story.splitlines()])]
    where = ReprFileLocation(path, 1, failure.headline)
    return ExceptionChainRepr([(ReprTraceback(entries, None, "native"), where, None)])


def failure_in(excinfo: pytest.ExceptionInfo[BaseException]) -> ReplayFailed | None:
    """The failure that was raised, if it is ours."""
    return excinfo.value if isinstance(excinfo.value, ReplayFailed) else None
