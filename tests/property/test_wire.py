"""Whatever the order in which conversations mingle: what was recorded replays the same, each to its own conversation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from replay.wire.lineage import Lineage
from replay.wire.player import Player
from tests.wirelab import Recording, Refusal, served
from tests.wireworld import DIALECTS, Agent, Body, agent, brain, heard, spoken

CONVERSATIONS = 8


def conversations() -> list[tuple[str, Agent]]:
    """Eight of them, in all dialects; two pairs have one task, and one pair is told apart by its prompt alone."""
    made = []
    for number in range(CONVERSATIONS):
        dialect = DIALECTS[number % 4] if number < 6 else "chat"
        task = "the same task" if number in (2, 6, 7) else f"task {number}"
        system = f"Prompt {number}." if number in (6, 7) else "Be brief."
        look = lambda args, n=number: f"seen {args['round']} by {n}"  # noqa: E731
        follow_up = "and then?" if number % 3 == 0 else ""
        made.append((dialect, agent(dialect, task, system=system, look=look, follow_up=follow_up)))
    return made


def record_mingled(path: Path, rng: random.Random, stream: bool) -> dict[int, str]:
    """Record them with requests and answers in a random order; the answers of each."""
    recording = Recording(path, stream=stream)
    running = dict(enumerate(conversations()))
    bodies = {number: next(one) for number, (_, one) in running.items()}
    waiting: dict[int, tuple[int, Body]] = {}
    ended: dict[int, str] = {}
    while bodies or waiting:
        number = rng.choice(sorted([*bodies, *waiting]))
        dialect, one = running[number]
        if number in bodies:
            exchange, asked = recording.ask(dialect, bodies.pop(number))
            waiting[number] = exchange, spoken(dialect, exchange, *brain(*heard(dialect, asked.body)))
            continue
        exchange, reply = waiting.pop(number)
        recording.answer(exchange, dialect, reply)
        try:
            bodies[number] = one.send(reply)
        except StopIteration as stop:
            ended[number] = str(stop.value)
    recording.scribe.close()
    return ended


def replay_mingled(player: Player, rng: random.Random, stream: bool) -> dict[int, str]:
    running = dict(enumerate(conversations()))
    bodies = {number: next(one) for number, (_, one) in running.items()}
    ended: dict[int, str] = {}
    while bodies:
        number = rng.choice(sorted(bodies))
        dialect, one = running[number]
        try:
            bodies[number] = one.send(served(player, dialect, bodies[number], stream=stream))
        except StopIteration as stop:
            ended[number] = str(stop.value)
            del bodies[number]
        except Refusal:
            ended[number] = "refused"
            del bodies[number]
    return ended


def check_mingled(folder: Path, seed: int) -> None:
    from replay.wire.stored import load_book

    rng = random.Random(seed)
    stream = bool(seed % 2)
    path = folder / f"{seed}.trace.json"
    recorded = record_mingled(path, rng, stream)
    book = load_book(path)
    assert book.recording is not None
    turns = {number: 1 + (number % 3 == 0) for number in range(CONVERSATIONS)}
    assert len(book.recording.runs) == sum(turns.values())
    assert [problem for one in book.recording.runs for problem in one.problems] == []
    assert all(len(one.run.steps) == 3 for one in book.recording.runs)
    player = Player(book)
    assert replay_mingled(player, rng, stream) == recorded
    account = player.account()
    assert (account.verdict, account.unused, account.refused) == ("same", 0, 0)
    path.unlink()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_mingled_conversations_replay_the_same(seed: int, tmp_path: Path) -> None:
    check_mingled(tmp_path, seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_changed_result_of_one_conversation_is_found_in_it(seed: int, tmp_path: Path) -> None:
    """Of eight, one has another result: it is named, at its own step and span."""
    rng = random.Random(seed)
    path = tmp_path / "r.trace.json"
    record_mingled(path, rng, False)
    from replay.wire.stored import load_book

    book = load_book(path)
    player = Player(book, drift=True)
    running = conversations()
    changed = agent("chat", "task 4", look=lambda args: "seen by nobody")
    running[4] = ("chat", changed)
    bodies = {number: next(one) for number, (_, one) in enumerate(running)}
    while bodies:
        number = rng.choice(sorted(bodies))
        dialect, one = running[number]
        try:
            bodies[number] = one.send(served(player, dialect, bodies[number]))
        except (StopIteration, Refusal):
            del bodies[number]
    account = player.account()
    first = account.found[0]
    assert (account.verdict, first.divergence.kind, first.divergence.step) == ("diverged", "result", 1)
    assert first.divergence.observed == "seen by nobody"
    assert first.divergence.recorded == "seen 1 by 4"


def test_a_lineage_forgets(tmp_path: Path) -> None:
    """A gateway that runs for ever keeps nothing of conversations that are over."""
    recording = Recording(tmp_path / "r.trace.json")
    for number in range(5):
        recording.run("chat", agent("chat", f"task {number}"))
    lineage: Lineage = recording.scribe._lineage
    recording.close()
    left = {
        name: len(getattr(lineage, name)) for name in ("_ends", "_replies", "_requests", "_ids", "_extended", "_told")
    }
    assert left == dict.fromkeys(left, 0)
