"""Serves a recording strictly: the whole request first, lineage second, nothing else; and keeps the account.

A request that was recorded gets its recorded answer, equal ones in the order of their recording. Any other is refused, and
after it every further one, unless `drift` lets a request be served by the conversation it goes on with. Pure: no I/O.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kernel.masking import Masker
from kernel.record import Message, Reply, digest
from replay.play import ABSENT, DRIFT, Divergence, Rule
from replay.wire.dialects import Question, question_of, reply_of
from replay.wire.differing import Difference, compared, nearness, place_of, summary
from replay.wire.exchange import Asked, Exchange
from replay.wire.lineage import Lineage, Place
from replay.wire.stored import Book
from replay.wire.varying import Varying
from replay.wire.veil import veiled

Verdict = Literal["same", "drifted", "diverged", "not_checked"]


class Served(Struct, frozen=True, kw_only=True):
    """An answer to give: that of this exchange."""

    exchange: Exchange


class Refused(Struct, frozen=True, kw_only=True):
    """A request that gets no answer, and what to tell the client."""

    message: str


class Found(Struct, frozen=True, kw_only=True):
    """A difference, with the exchange it was found at: 0 where that is none of the recording."""

    exchange: int
    divergence: Divergence


class Account(Struct, frozen=True, kw_only=True):
    """What came of a replay. `ambiguous` counts answers that went to one of several equal requests with different
    answers; `refused` requests that got none. `rules` are those that applied, each with how many texts of the recorded
    requests it matches."""

    verdict: Verdict
    served: int
    unused: int
    refused: int
    ambiguous: int
    found: tuple[Found, ...]
    why_not: str = ""
    steps: int = 0
    drifted: int = 0
    rules: tuple[tuple[Rule, int], ...] = ()


class Player:
    """One replay of one recording. Not safe for threads: one event loop calls it."""

    def __init__(
        self, book: Book, *, masker: Masker | None = None, varying: Varying | None = None, drift: bool = False
    ) -> None:
        self.book = book
        self.varying = varying or Varying()
        self._masker = masker
        self.drift = drift
        self._left: dict[int, Exchange] = {e.number: e for e in book.exchanges if e.answer.end != "open"}
        self._waiting: dict[str, deque[Exchange]] = {}
        for exchange in self._left.values():
            self._waiting.setdefault(self.varying.key(exchange.asked), deque()).append(exchange)
        rules = self.varying.rules
        self._rules = tuple((rule, rules.matched.get(rule.name, 0)) for rule in rules.rules)
        self._questions: dict[int, Question] = {}
        self._places: dict[int, Place] = {}
        self._replies: dict[int, Reply] = {}
        self._read_lineage()
        self._seen = Lineage()
        self._found: list[Found] = []
        self._steps: set[tuple[int, int]] = set()
        self._observed: dict[int, str] = {}
        self._served = self._refused = self._ambiguous = self._drifted = 0

    def _read_lineage(self) -> None:
        lineage = Lineage()
        for exchange in self.book.exchanges:
            question = question_of(exchange.asked)
            if question is None:
                continue
            place = lineage.place(question)
            lineage.extend(place)
            self._questions[exchange.number], self._places[exchange.number] = question, place
            reply, _ = reply_of(exchange.asked, exchange.answer)
            if reply is not None:
                self._replies[exchange.number] = reply
                lineage.answered(exchange.number, place, reply)

    # ---- serving

    def ask(self, asked: Asked) -> Served | Refused:
        """The answer to a request, or a refusal."""
        asked = veiled(asked, self._masker)
        question = question_of(asked)
        place = self._seen.place(question) if question is not None else None
        broken = bool(self._found) and not self.drift
        exact = None if broken else self._exact(asked, place)
        if exact is not None:
            return self._serve(exact, asked, place)
        candidates, at = self._candidates(asked, place)
        differing = self._differing(candidates[0], asked) if candidates else []
        if self.drift and len(candidates) == 1 and differing:
            self._note(differing, candidates[0])
            self._drifted += 1
            self._take(candidates[0])
            return self._serve(candidates[0], asked, place)
        if candidates and at is None and not self.drift and not broken:
            self._note(differing, candidates[0])
        else:
            self._miss(asked, candidates, differing)
        self._refused += 1
        return Refused(message=self._refusal())

    def _exact(self, asked: Asked, place: Place | None) -> Exchange | None:
        """The next recorded exchange with this very request: of several conversations, the one it goes on with."""
        waiting = self._waiting.get(self.varying.key(asked))
        if not waiting:
            return None
        if len({_told(exchange) for exchange in waiting}) > 1:
            self._ambiguous += 1
        parent = place.parent if place is not None else None
        chosen = waiting[0]
        if parent is not None and len(waiting) > 1:
            chosen = next((e for e in waiting if self._parent(e) == parent), chosen)
        self._take(chosen)
        return chosen

    def _take(self, exchange: Exchange) -> None:
        key = self.varying.key(exchange.asked)
        waiting = self._waiting[key]
        waiting.remove(exchange)
        if not waiting:
            del self._waiting[key]
        del self._left[exchange.number]

    def seen(self, number: int) -> str:
        """A digest of the request that this exchange was served to, "" where it was to none."""
        return self._observed.get(number, "")

    def _serve(self, exchange: Exchange, asked: Asked, place: Place | None) -> Served:
        self._observed[exchange.number] = digest(self.varying.key(asked))
        self._served += 1
        if exchange.step:
            self._steps.add((exchange.turn, exchange.step))
        if place is not None:
            self._seen.extend(place)
            if (reply := self._replies.get(exchange.number)) is not None:
                self._seen.answered(exchange.number, place, reply)
        return Served(exchange=exchange)

    def _parent(self, exchange: Exchange) -> int | None:
        place = self._places.get(exchange.number)
        return place.parent if place is not None else None

    # ---- a request that was not recorded

    def _candidates(self, asked: Asked, place: Place | None) -> tuple[list[Exchange], int | None]:
        """The recorded exchanges that a request may stand for, the nearest first: those that go on with the same
        conversation at the same place. More than one is for explaining, never for serving."""
        left = list(self._left.values())
        if place is None:
            same = [e for e in left if e.number not in self._questions]
            here = [e for e in same if (e.asked.method, e.asked.path) == (asked.method, asked.path)]
            return sorted(here or same, key=lambda e: e.asked.path != asked.path)[:1], None
        models = [e for e in left if e.number in self._questions]
        going_on = [e for e in models if self._parent(e) == place.parent]
        if len(going_on) > 1:
            going_on = self._narrowed(going_on, place)
        if going_on:
            return going_on, None
        nearest = sorted(models, key=lambda e: nearness(self._places[e.number].messages, place.messages), reverse=True)
        return nearest[:1], place.parent

    def _narrowed(self, candidates: list[Exchange], place: Place) -> list[Exchange]:
        """Of several places, the one whose task is the same, else whose prompt is; if that is one. Else all, nearest
        first."""
        for role in ("user", "system"):
            wanted = _last(place.messages, role)
            fitting = [e for e in candidates if _last(self._places[e.number].messages, role) == wanted]
            if len(fitting) == 1:
                return fitting
            candidates = fitting or candidates
        return sorted(candidates, key=lambda e: nearness(self._places[e.number].messages, place.messages), reverse=True)

    def _differing(self, exchange: Exchange, asked: Asked) -> list[Difference]:
        """The differences to a recorded request. What a program says right after a reply with calls is their results, also
        where it says so as a user."""
        differing = compared(exchange.asked, asked, self.varying)
        place = self._places.get(exchange.number)
        reply = self._replies.get(place.parent) if place is not None and place.parent is not None else None
        if place is None or reply is None or not reply.tool_calls:
            return differing
        return [
            d._replace(cause="tool result") if d.cause == "task" and place_of(d.path) >= place.said_at else d
            for d in differing
        ]

    def _note(self, differing: list[Difference], exchange: Exchange) -> None:
        leading = not any(not found.divergence.downstream for found in self._found)
        for number, difference in enumerate(differing):
            is_result = difference.cause == "tool result"
            parent = self._result_of(exchange) if is_result else None
            at = parent or exchange
            divergence = Divergence(
                step=at.step,
                kind="result" if is_result else "request",
                path=difference.path,
                recorded=_shown(difference.recorded),
                observed=_shown(difference.observed),
                span_id=at.span_id,
                cause=difference.cause,
                downstream=not leading or (number > 0 and _follows(difference, differing[0])),
                turn=at.turn,
            )
            self._found.append(Found(exchange=exchange.number, divergence=divergence))

    def _result_of(self, exchange: Exchange) -> Exchange | None:
        parent = self._parent(exchange)
        return next((e for e in self.book.exchanges if e.number == parent), None)

    def _miss(self, asked: Asked, candidates: list[Exchange], differing: list[Difference]) -> None:
        if self._found and not self.drift:
            return
        cause, observed = "more requests", summary(asked)
        if differing and candidates:
            self._note(differing, candidates[0])
            return
        divergence = Divergence(
            step=0,
            kind="missing",
            path="/requests",
            recorded=ABSENT,
            observed=observed,
            span_id="",
            cause=cause,
            downstream=bool(self._found),
        )
        self._found.append(Found(exchange=0, divergence=divergence))

    def _refusal(self) -> str:
        first = self._found[0]
        where = f"exchange {first.exchange}, {first.divergence.path}" if first.exchange else first.divergence.path
        return f"replay diverged at {where} ({first.divergence.cause}); the report of the replay says more"

    # ---- the account

    def account(self) -> Account:
        """What came of it so far; after the end of the program, what came of the replay."""
        found = list(self._found)
        for exchange in self._left.values():
            divergence = Divergence(
                step=exchange.step,
                kind="missing",
                path="/requests",
                recorded=summary(exchange.asked),
                observed=ABSENT,
                span_id=exchange.span_id,
                cause="fewer requests",
                downstream=bool(found),
                turn=exchange.turn,
            )
            found.append(Found(exchange=exchange.number, divergence=divergence))
        verdict, why = self._verdict(found)
        return Account(
            verdict=verdict,
            served=self._served,
            unused=len(self._left),
            refused=self._refused,
            ambiguous=self._ambiguous,
            found=tuple(found),
            why_not=why,
            steps=len(self._steps),
            drifted=self._drifted,
            rules=self._rules,
        )

    def _verdict(self, found: list[Found]) -> tuple[Verdict, str]:
        if self.book.problems:
            problem = self.book.problems[0]
            return "not_checked", f"the recording is not as it was recorded: {problem.attribute}: {problem.message}"
        if not self._served and not self._refused:
            return "not_checked", "the program made no request to the gateway"
        if self._refused or self._left or any(f.divergence.kind not in DRIFT for f in found):
            return "diverged", ""
        return ("drifted" if found else "same"), ""


def _last(messages: tuple[Message, ...], role: str) -> str | None:
    return next((message.content for message in reversed(messages) if message.role == role), None)


def _told(exchange: Exchange) -> tuple[int, bytes, str]:
    return exchange.answer.status, exchange.answer.body, exchange.answer.end


def _shown(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else msgspec.to_builtins(value)


def _follows(difference: Difference, first: Difference) -> bool:
    """Whether a further difference of the same request is no finding of its own."""
    return difference.cause == first.cause
