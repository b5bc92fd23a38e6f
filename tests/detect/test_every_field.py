"""Change any recorded field: the replay is never `same`, and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.trace import semconv as sc
from replay.loading import load
from replay.play.play import replay

from .planted import Place, places, planted

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = (
    "order-5xx",
    "order-5xx-tools",
    "order-5xx-zh",
    "tool-recovers",
    "loop-recovers",
    "side-effects",
    "model-retried",
    "finish-second-try",
    "truncated",
    "condensed",
    "conversation",
    "seeded",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_field_is_named_with_its_step(name: str, tmp_path: Path) -> None:
    """Each leaf of each attribute in turn: never `same`, and the changed span and attribute are in the report."""
    file = FIXTURES / f"{name}.trace.json"
    target = tmp_path / "planted.trace.json"
    silent = []
    for place in places(file):
        span_id = planted(file, place, target)
        result = replay(load(target)[0])
        named = any(
            d.span_id == span_id and (d.path == f"/{place.attribute}" or d.kind != "content")
            for d in result.divergences
        )
        identity = place.attribute in (sc.RUN_ID, sc.STEP_INDEX, sc.OPERATION, sc.POSITION, sc.TURN)
        if result.verdict == "same" or not (named or (identity and (result.divergences or result.why_not))):
            silent.append((place, result.verdict, result.why_not))
    assert not silent


def _behaviour(file: Path) -> list[Place]:
    """What makes up a run's behaviour: answers, arguments, results, prompt, tools, task, stop reason."""
    wanted = {
        sc.TOOL_ARGUMENTS,
        sc.TOOL_RESULT,
        sc.INPUT_MESSAGES,
        sc.TOOL_DEFINITIONS,
        sc.SYSTEM_INSTRUCTIONS,
        sc.STOP_REASON,
        sc.TOOL_NAME,
        sc.OUTCOME,
        sc.DECISION,
        sc.GUARD_DETAIL,
        sc.SHOWN,
        sc.BUDGET_AFTER,
    }
    spans = [place for place in places(file) if place.attribute in wanted or place.attribute == sc.OUTPUT_MESSAGES]
    own = ("tracefirst", "type", "finish_reason", "role")
    return [place for place in spans if not any(part in own for part in place.path)]


@pytest.mark.parametrize("name", NAMES)
def test_replay_alone_finds_a_change_that_was_sealed_again(name: str, tmp_path: Path) -> None:
    """A forger who mends the seal is caught by behaviour: the run no longer does what the file says."""
    file = FIXTURES / f"{name}.trace.json"
    target = tmp_path / "planted.trace.json"
    silent = []
    for place in _behaviour(file):
        planted(file, place, target, resealed=True)
        result = replay(load(target)[0])
        if result.verdict == "same" and not _is_reading(place) and not _is_trailing(file, place):
            silent.append(place)
    assert not silent


def _is_reading(place: Place) -> bool:
    """The clock's readings are what replay serves; a changed one is consistent with itself."""
    return place.path[-1:] == ("elapsed_ns",)


def _is_trailing(file: Path, place: Place) -> bool:
    """Text behind the action of the last reply: nothing reads it and no later request repeats it. Only the seal tells."""
    last = max(len(recorded.run.steps) for recorded in load(file)[0].runs)
    return place.attribute == sc.OUTPUT_MESSAGES and place.step == last and place.path[-1:] == ("content",)


@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_recording_is_silent(name: str) -> None:
    """No difference is reported where nothing was changed."""
    for recording in load(FIXTURES / f"{name}.trace.json"):
        result = replay(recording)
        assert result.verdict == "same", result.first
        assert result.divergences == ()
        assert result.served.model > 0 and result.unused.model == 0 and result.unused.tools == 0
