"""What passes on the wire, written as a trace: runs, steps, chats and tool calls, and each exchange whole.

Called from one thread. What the wire does not show is not made up: results of the last calls stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

SOURCE = "wire"
_HEAD_TASK = "what passed on the wire"


class Scribe:
    """Writes one trace. `asked` and `answered` may be called for many exchanges at once, in any order of their ends."""

    def __init__(self, tracing: Tracing, ids: Ids, agent: str, now_ns: Callable[[], int]) -> None:
        self.agent = agent
        self._ids = ids
        self._clock = WireClock(now_ns)
        head = RunHead(agent=agent, task=_HEAD_TASK, run_id="")
        self.session: Session = tracing.open(
            head, trace_id=ids.trace_id(), parent=tracing.parent(), clock=self._clock, ids=ids, single=False
        )
        self._lineage = Lineage()
        self._tales: list[Tale] = []
        self._tale_of: dict[int, Tale] = {}
        self._open: dict[int, tuple[Span, Asked, Place | None]] = {}
        self._bases: dict[int, Any] = {}
        self.exchanges = 0

    def asked(self, number: int, asked: Asked) -> None:
        """A request came in; numbers count from 1 in the order in which they did."""
        self.exchanges += 1
        question = question_of(asked)
        place = None if question is None else self._lineage.place(question)
        tale = None
        if question is not None and place is not None:
            tale = self._tale(place, number)
            self._lineage.extend(place)
            self._clock.at_ns = asked.at_ns
            tale.asked(question, place, provider_of(asked))
            self._tale_of[number] = tale
        told = veiled(asked, self.session.masker)
        base = None
        if tale is not None and tale.last_number in self._bases:
            base = Base(number=tale.last_number, body=self._bases[tale.last_number])
        attributes = asked_attributes(number, told, base)
        parent = tale.chat_span_id if tale is not None else None
        span = Span(
            trace_id=self.session.trace_id,
            span_id=self._ids.span_id(),
            parent_id=parent or self.session.root_id,
            name=f"{sc.EXCHANGE} {asked.method}",
            kind=CLIENT,
            start_ns=asked.at_ns,
            attributes=attributes,
        )
        self.session.started(span)
        if tale is not None:
            self._bases.pop(tale.last_number, None)
            self._bases[number], tale.last_number = told.body, number
        self._open[number] = span, told, place

    @property
    def conversations(self) -> int:
        """How many conversations were told apart."""
        return len(self._tales)

    def _tale(self, place: Place, number: int) -> Tale:
        """The conversation that a request goes on with: an attempt again, its next request, or a new one."""
        for tale in self._tales:
            if tale.awaits_again(place):
                return tale
        if place.parent is not None and not self._lineage.is_extended(place.parent):
            return self._tale_of[place.parent]
        asked = place.messages[-1].content if place.messages else ""
        tale = Tale(self.session, self._clock, self._ids, self.agent, above=self._caller(asked))
        self._tales.append(tale)
        return tale

    def _caller(self, task: str) -> str | None:
        """The span of the tool call that starts a conversation: the newest open one whose arguments hold its task, or the
        only one that is open at all."""
        waiting = [(tale, position) for tale in self._tales for position in tale.waiting]
        for tale, position in reversed(waiting):
            if tale.hands_over(position, task):
                return tale.call_span_id(position)
        if len(waiting) == 1:
            return waiting[0][0].call_span_id(waiting[0][1])
        return None

    def answered(self, number: int, answer: Answer) -> None:
        """An answer has ended, in whatever way."""
        span, told, place = self._open.pop(number)
        tale = self._tale_of.get(number)
        self._clock.at_ns = answer.at_ns
        finish_exchange(span, told, veiled_answer(answer, self.session.masker))
        self.session.ended(span)
        if tale is None or place is None:
            return
        reply, why = reply_of(told, answer)
        tale.answered(place, answer, reply, why)
        if reply is not None:
            self._lineage.answered(number, place, reply)

    def close(self) -> None:
        """End everything that is open, and the trace."""
        for number in list(self._open):
            self.answered(
                number, Answer(end="open", detail="the recording ended first", at_ns=self._clock.now("run_end"))
            )
        for tale in self._tales:
            tale.close()
        self.session.close()
