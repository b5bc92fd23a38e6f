"""Recordings of the small world made by hand, without a socket, and replays of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fixtures.record import CountingIds
from kernel import Masker, Tracing
from replay.wire.exchange import Answer, Asked, Chunk
from replay.wire.player import Player, Refused, Served
from replay.wire.scribe import Scribe
from replay.wire.stored import Book, load_book
from tests.wireworld import UPSTREAMS, Agent, Body, brain, drive, heard, path_of, spoken, streamed


class Recording:
    """Records agents into a file, an exchange at a time."""

    def __init__(self, path: Path, *, masker: Masker | None = None, stream: bool = False, name: str = "lab") -> None:
        self.path = path
        self._time = 1_800_000_000_000_000_000
        self.scribe = Scribe(Tracing(file=path, masker=masker), CountingIds(str(path.name)), name, self.tick)
        self.stream = stream
        self.numbers = 0

    def tick(self) -> int:
        self._time += 1_000_000
        return self._time

    def ask(self, dialect: str, body: Body) -> tuple[int, Asked]:
        self.numbers += 1
        body = body | ({"stream": True} if self.stream and dialect != "gemini" else {})
        asked = Asked(
            upstream=UPSTREAMS[dialect],
            method="POST",
            target=path_of(dialect, self.stream),
            body=body,
            at_ns=self.tick(),
            version="/v1" if UPSTREAMS[dialect] == "openai" else "",
        )
        self.scribe.asked(self.numbers, asked)
        return self.numbers, asked

    def answer(self, number: int, dialect: str, body: Body) -> None:
        self.scribe.answered(number, self.whole(dialect, body))

    def whole(self, dialect: str, body: Body) -> Answer:
        if self.stream:
            pieces, kind = streamed(dialect, body), "text/event-stream"
        else:
            pieces, kind = [json.dumps(body).encode()], "application/json"
        chunks = tuple(Chunk(after_ns=1000 * at, data=piece) for at, piece in enumerate(pieces, 1))
        headers = {"content-type": kind}
        return Answer(status=200, reason="OK", headers=headers, chunks=chunks, end="complete", at_ns=self.tick())

    def run(self, dialect: str, one: Agent, rounds: int = 2) -> str:
        """One agent from its first request to its answer."""
        return drive(one, lambda body: self.exchange(dialect, body, rounds))

    def exchange(self, dialect: str, body: Body, rounds: int = 2) -> Body:
        number, asked = self.ask(dialect, body)
        reply = spoken(dialect, number, *brain(*heard(dialect, asked.body), rounds=rounds))
        self.answer(number, dialect, reply)
        return reply

    def close(self) -> Book:
        self.scribe.close()
        return load_book(self.path)


class Refusal(Exception):
    """What a client makes of a 400."""


def served(player: Player, dialect: str, body: Body, *, stream: bool = False) -> Body:
    """One request of a replay, by hand. Raises `Refusal`."""
    from replay.wire.dialects import dialect_of, events_of

    body = body | ({"stream": True} if stream and dialect != "gemini" else {})
    target = path_of(dialect, stream)
    found = player.ask(Asked(upstream=UPSTREAMS[dialect], method="POST", target=target, body=body))
    if isinstance(found, Refused):
        raise Refusal(found.message)
    assert isinstance(found, Served)
    answer = found.exchange.answer
    if not answer.streamed:
        return dict(json.loads(answer.body))
    spoken_in = dialect_of("POST", target.partition("?")[0])
    assert spoken_in is not None
    return spoken_in.assembled(events_of(answer.body))


def replayed(player: Player, dialect: str, one: Agent, *, stream: bool = False) -> str:
    """Run an agent on a player's answers; "" where it was refused."""
    try:
        return drive(one, lambda body: served(player, dialect, body, stream=stream))
    except Refusal:
        return ""


def recorded(path: Path, runs: Iterable[tuple[str, Agent]], *, stream: bool = False) -> Book:
    """A recording of agents that ran one after the other."""
    recording = Recording(path, stream=stream)
    for dialect, one in runs:
        recording.run(dialect, one)
    return recording.close()
