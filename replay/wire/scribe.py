"""What passes on the wire, written as traces: runs, steps, chats and tool calls, and each exchange whole.

Called from one thread. What the wire does not show is not made up: results of the last calls stay unseen. A program's
recording is one trace; a gateway for production writes one for each conversation with what it started, and closes it when
nothing has come for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kernel.record import RunHead
from kernel.seams import Ids
from kernel.trace import CLIENT, Span, semconv as sc
from kernel.tracing import Session, Tracing
from replay.wire.dialects import provider_of, question_of, reply_of
from replay.wire.exchange import Answer, Asked
from replay.wire.lineage import Lineage, Place
from replay.wire.stored import Base, asked_attributes, finish_exchange
from replay.wire.tale import Tale, WireClock
from replay.wire.veil import veiled, veiled_answer

_HEAD_TASK = "what passed on the wire"
_MOST_PLAIN = 1000
"""Exchanges that belong to no conversation share a trace, up to so many."""


class _Volume:
    """One trace that is being written."""

    def __init__(self, session: Session, at_ns: int) -> None:
        self.session = session
        self.tales: list[Tale] = []
        self.numbers: list[int] = []
        self.open = self.exchanges = 0
        self.last_ns = at_ns


class _Open(Struct, frozen=True, kw_only=True):
    """An exchange whose answer has not ended."""

    span: Span
    asked: Asked
    place: Place | None
    volume: _Volume


class Scribe:
    """Writes what passes. `asked` and `answered` may be called for many exchanges at once, in any order of their ends.

    Args:
        idle_s: a trace for each conversation, closed after so many seconds in which nothing came; None: one trace for all.

    `exchanges` and `conversations` count what is in closed traces; `whole` is False once one of them lacks something.
    """

    def __init__(
        self, tracing: Tracing, ids: Ids, agent: str, now_ns: Callable[[], int], *, idle_s: float | None = None
    ) -> None:
        self.agent = agent
        self._tracing, self._ids, self._now_ns, self._idle_s = tracing, ids, now_ns, idle_s
        self._clock = WireClock(now_ns)
        self._lineage = Lineage()
        self._volumes: list[_Volume] = []
        self._volume_of: dict[int, _Volume] = {}
        self._plain: _Volume | None = None
        self._tale_of: dict[int, Tale] = {}
        self._open: dict[int, _Open] = {}
        self._bases: dict[int, Any] = {}
        self._failed: dict[bytes, tuple[Tale, _Volume]] = {}
        self._waiting: dict[int, tuple[Tale, _Volume]] = {}
        self._lost: list[str] = []
        self.exchanges = self.conversations = 0  # of the traces that are closed and have all
        self.whole = True
        self.session: Session | None = None
        if idle_s is None:
            self._plain = self._new_volume(now_ns())
            self.session = self._plain.session

    # ---- what passes

    def asked(self, number: int, asked: Asked) -> None:
        """A request came in; numbers count from 1 in the order in which they did."""
        self._clock.at_ns = asked.at_ns
        self.close_idle(asked.at_ns)
        question = question_of(asked)
        place, tale = None, None
        if question is not None:
            place = self._lineage.place(question)
            tale, volume = self._tale(place, asked.at_ns)
            self._lineage.extend(place)
            tale.asked(question, place, provider_of(asked))
            self._waiting.pop(id(tale), None)
            self._tale_of[number] = tale
        else:
            volume = self._for_plain(asked.at_ns)
        volume.numbers.append(number)
        volume.open += 1
        self._volume_of[number] = volume
        self._begin(number, asked, place, tale, volume)

    def _begin(self, number: int, asked: Asked, place: Place | None, tale: Tale | None, volume: _Volume) -> None:
        told = veiled(asked, volume.session.masker)
        at = len(volume.numbers)
        base = None
        if tale is not None and tale.last_number in self._bases:
            base = Base(number=tale.last_place, body=self._bases.pop(tale.last_number))
        parent = tale.chat_span_id if tale is not None else None
        span = Span(
            trace_id=volume.session.trace_id,
            span_id=self._ids.span_id(),
            parent_id=parent or volume.session.root_id,
            name=f"{sc.EXCHANGE} {asked.method}",
            kind=CLIENT,
            start_ns=asked.at_ns,
            attributes=asked_attributes(at, told, base),
        )
        volume.session.started(span)
        volume.exchanges += 1
        if tale is not None:
            self._bases[number], tale.last_number, tale.last_place = told.body, number, at
        self._open[number] = _Open(span=span, asked=told, place=place, volume=volume)

    def answered(self, number: int, answer: Answer) -> None:
        """An answer has ended, in whatever way."""
        found = self._open.pop(number, None)
        if found is None:
            return
        volume = found.volume
        volume.open -= 1
        volume.last_ns = max(volume.last_ns, answer.at_ns)
        self._clock.at_ns = answer.at_ns
        finish_exchange(found.span, found.asked, veiled_answer(answer, volume.session.masker))
        volume.session.ended(found.span)
        tale = self._tale_of.get(number)
        if tale is None or found.place is None:
            return
        reply, why = reply_of(found.asked, answer)
        tale.answered(found.place, answer, reply, why)
        if reply is None:
            self._failed[found.place.key] = tale, volume
            return
        self._lineage.answered(number, found.place, reply)
        if tale.waiting:
            self._waiting[id(tale)] = tale, volume

    # ---- conversations and traces

    def _tale(self, place: Place, at_ns: int) -> tuple[Tale, _Volume]:
        """The conversation that a request goes on with: an attempt again, its next request, or a new one."""
        failed = self._failed.pop(place.key, None)
        if failed is not None and failed[0].awaits_again(place):
            return failed
        if place.parent is not None and not self._lineage.is_extended(place.parent):
            return self._tale_of[place.parent], self._volume_of[place.parent]
        above, volume = self._caller(place.messages[-1].content if place.messages else "")
        if volume is None:
            shared = self._plain if self._idle_s is None else None
            volume = shared or self._new_volume(at_ns)
        tale = Tale(volume.session, self._clock, self._ids, self.agent, above)
        volume.tales.append(tale)
        return tale, volume

    def _caller(self, task: str) -> tuple[str | None, _Volume | None]:
        """The span of the tool call that starts a conversation: the newest open one whose arguments hold its task, or, of a
        single program, the only one that is open at all."""
        waiting = [(v, tale, position) for tale, v in self._waiting.values() for position in tale.waiting]
        for volume, tale, position in reversed(waiting):
            if tale.hands_over(position, task):
                return tale.call_span_id(position), volume
        if len(waiting) == 1 and self._idle_s is None:
            volume, tale, position = waiting[0]
            return tale.call_span_id(position), volume
        return None, None

    def _for_plain(self, at_ns: int) -> _Volume:
        full = self._plain is not None and self._idle_s is not None and len(self._plain.numbers) >= _MOST_PLAIN
        volume = self._plain
        if volume is None or full:
            volume = self._plain = self._new_volume(at_ns)
        return volume

    def _new_volume(self, at_ns: int) -> _Volume:
        head = RunHead(agent=self.agent, task=_HEAD_TASK, run_id="")
        trace_id, parent = self._ids.trace_id(), self._tracing.parent()
        session = self._tracing.open(
            head, trace_id=trace_id, parent=parent, clock=self._clock, ids=self._ids, single=False
        )
        volume = _Volume(session, at_ns)
        self._volumes.append(volume)
        return volume

    def close_idle(self, now_ns: int) -> None:
        """Close the traces in which nothing has come for a while; those that wait for an answer are not idle."""
        if self._idle_s is None:
            return
        oldest = now_ns - int(self._idle_s * 1e9)
        for volume in [v for v in self._volumes if not v.open and v.last_ns < oldest]:
            self._close(volume)

    def _close(self, volume: _Volume) -> None:
        for tale in volume.tales:
            tale.close()
            self._waiting.pop(id(tale), None)
        self._failed = {key: found for key, found in self._failed.items() if found[1] is not volume}
        volume.session.close()
        if volume.session.kept:
            self.exchanges += volume.exchanges
            self.conversations += len(volume.tales)
        else:
            self.whole = self.whole and not volume.exchanges
        self._lost.extend(warning for warning in volume.session.warnings() if warning not in self._lost[-20:])
        self._volumes.remove(volume)
        if self._plain is volume:
            self._plain = None
        for number in volume.numbers:
            self._lineage.forget(number)
            self._volume_of.pop(number, None)
            self._tale_of.pop(number, None)
            self._bases.pop(number, None)

    def close(self) -> None:
        """End everything that is open, and the traces."""
        for number in list(self._open):
            now = self._now_ns()
            self.answered(number, Answer(end="open", detail="the recording ended first", at_ns=now))
        for volume in list(self._volumes):
            self._close(volume)

    def warnings(self) -> list[str]:
        """What of the telemetry was lost, so far; told once."""
        lost, self._lost = self._lost, []
        return lost
