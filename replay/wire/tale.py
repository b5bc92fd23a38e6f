"""One conversation on the wire as a run of the trace: its requests are steps, what they repeat of tools are results.

A user's message after an answer is a turn: the run ends with the answer, and the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel.record import (
    Attempt,
    Budget,
    BudgetReading,
    Call,
    CallRecord,
    Chat,
    Decision,
    Fault,
    Guard,
    Message,
    Reply,
    RunEnd,
    RunHead,
    Step,
    ToolCall,
    Usage,
    compact_json,
)
from kernel.seams import Ids, SystemClock
from kernel.trace import Recorder
from kernel.tracing import Session
from replay.wire.dialects import Question, fields_of
from replay.wire.exchange import Answer
from replay.wire.lineage import Place, same_message

_UNLIMITED = 1_000_000_000
OPEN_ENDED = Budget(max_steps=_UNLIMITED, max_errors=_UNLIMITED, max_finish_refusals=_UNLIMITED, model_retries=0)
ABSENT = ("tool outcomes", "tool effects", "budget", "guard", "policy")
"""What the wire does not show. Each result is recorded as `ok` with the text that the model was shown."""
UNSEEN = "the program made no further request: results of the last calls are not seen on the wire"
_LEAST_SHARED = 8


class WireClock(SystemClock):
    """The times at which things passed on the wire."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        super().__init__()
        self._now_ns = now_ns
        self.at_ns: int | None = None

    def now(self, point: object, step: int = 0, position: int = 0) -> int:
        return self.at_ns if self.at_ns is not None else self._now_ns()


class Tale:
    """A conversation that is being written. `last_number` is the exchange whose request came last, `last_place` its number
    in the trace."""

    def __init__(self, session: Session, clock: WireClock, ids: Ids, agent: str, above: str | None) -> None:
        self._session, self._clock, self._ids, self._agent = session, clock, ids, agent
        self._above = above
        self._recorder: Recorder | None = None
        self._head: RunHead | None = None
        self._turn = 0
        self._step = 0
        self._chat: Chat | None = None
        self._place: Place | None = None
        self._said: tuple[Message, ...] = ()
        self._reply: Reply | None = None
        self._calls: tuple[Call, ...] = ()
        self._records: list[CallRecord] = []
        self._attempts: list[Attempt] = []
        self._in_flight = 0
        self._tool_calls = 0
        self._started_ns = 0
        self.usage = Usage(input_tokens=0, output_tokens=0)
        self.chat_span_id: str | None = None
        self.last_number = self.last_place = 0

    # ---- what passes

    def awaits_again(self, place: Place) -> bool:
        """Whether this request is the last one once more, after it failed."""
        return (
            self._place is not None
            and not self._in_flight
            and self._reply is None
            and self._place.key == place.key
            and self._place.parent == place.parent
        )

    def asked(self, question: Question, place: Place, provider: str) -> None:
        """The next request of the conversation, or the last one again."""
        if self.awaits_again(place):
            self._in_flight += 1
            return
        self._end_step(place)
        if self._recorder is None or self._is_new_turn(place):
            self._begin_run(question, place, provider)
        self._step += 1
        self._attempts, self._reply, self._calls, self._records = [], None, (), []
        kept = 0
        while kept < min(len(self._said), len(place.messages)) and same_message(self._said[kept], place.messages[kept]):
            kept += 1
        self._place, self._said, self._in_flight = place, place.messages, 1
        recorder = self._owned()
        recorder.step_started(self._step)
        self._chat = Chat(kept=kept, new=_named(place.messages)[kept:])
        recorder.chat_started(self._step, self._chat)
        self.chat_span_id = recorder.chat.span_id

    def answered(self, place: Place, answer: Answer, reply: Reply | None, why: str) -> None:
        """The answer to the request at `place`; without a reply, `why` says what was wrong with it."""
        self._in_flight -= 1
        if self._place is None or place.key != self._place.key or self._reply is not None or self._chat is None:
            return
        if reply is None:
            status = answer.status or None
            kind = f"HTTP {status}" if status and status >= 400 else answer.end
            elapsed = max(answer.at_ns - self._started_ns, 0)
            self._attempts.append(Attempt(kind=kind, message=why, status=status, elapsed_ns=elapsed))
            self._owned().attempt_failed(self._step, len(self._attempts), self._attempts[-1])
            return
        self._reply = reply
        self._calls = tuple([_call(call) for call in reply.tool_calls])
        self._spend(reply.usage)
        recorder = self._owned()
        recorder.chat_ended(self._step, self._ended_chat())
        for position, call in enumerate(self._calls):
            recorder.call_started(self._step, position, call)

    def close(self) -> None:
        """The program is over, or the conversation is."""
        if self._recorder is None:
            return
        reply = self._reply
        self._end_step(None)
        self._end_run(reply)

    # ---- calls that wait for their results

    @property
    def waiting(self) -> range:
        """Positions of the calls whose results have not been seen."""
        return range(len(self._calls) if self._reply is not None else 0)

    def hands_over(self, position: int, task: str) -> bool:
        """Whether the arguments of an open call hold a task, or the task holds one of them."""
        told = [value for value in self._calls[position].args.values() if isinstance(value, str)]
        whole = compact_json(self._calls[position].args)
        return len(task) >= _LEAST_SHARED and (
            task in whole or any(task in value or (len(value) >= _LEAST_SHARED and value in task) for value in told)
        )

    def call_span_id(self, position: int) -> str:
        return self._owned().call(position).span_id

    # ---- runs and steps

    def _is_new_turn(self, place: Place) -> bool:
        new = place.messages[place.said_at :]
        return not self._last_calls and any(message.role == "user" for message in new)

    def _begin_run(self, question: Question, place: Place, provider: str) -> None:
        if self._recorder is not None:
            self._end_run(self._last_reply)
        self._turn += 1
        self._step, self._tool_calls = 0, 0
        self.usage = Usage(input_tokens=0, output_tokens=0)
        self._started_ns = self._clock.now("run")
        new = place.messages[place.said_at :]
        self._head = RunHead(
            agent=self._agent,
            task=next((m.content for m in reversed(new) if m.role == "user"), ""),
            run_id=self._ids.trace_id()[:32],
            system=next((m.content for m in place.messages if m.role == "system"), ""),
            protocol="tools",
            provider=provider,
            params=question.params,
            tools=question.tools,
            budget=OPEN_ENDED,
            guard=Guard(enabled=False),
            turn=self._turn,
            source="wire",
            absent=ABSENT,
        )
        self._recorder = self._session.recorder(
            self._clock, self._ids, parent_id=self._above, after=self._recorder, apart=True
        )
        self._recorder.run_started(self._head)

    def _end_step(self, place: Place | None) -> None:
        """End the step at work: with the results that the next request repeats, where there is one."""
        self._last_reply, self._last_calls = self._reply, self._calls
        if self._chat is None or self._recorder is None:
            return
        recorder = self._recorder
        if self._reply is None:
            recorder.chat_ended(self._step, self._ended_chat())
        results = _results(self._calls, place.messages[place.said_at :] if place is not None else ())
        for position, (call, result) in enumerate(zip(self._calls, results, strict=True)):
            record = CallRecord(call=call, outcome="unknown_outcome" if result is None else "ok", result=result)
            recorder.call_ended(self._step, position, record)
            self._records.append(record)
        self._tool_calls += len(self._calls)
        recorder.step_ended(self._ended_step())
        self._chat, self._reply, self._calls, self._place = None, None, (), None

    def _ended_chat(self) -> Chat:
        assert self._chat is not None
        return Chat(kept=self._chat.kept, new=self._chat.new, reply=self._reply, attempts=tuple(self._attempts))

    def _ended_step(self) -> Step:
        elapsed = max(self._clock.now("step_end") - self._started_ns, 0)
        spent = self.usage
        budget = BudgetReading(
            prompt_tokens=spent.input_tokens or 0, output_tokens=spent.output_tokens or 0, elapsed_ns=elapsed
        )
        return Step(
            index=self._step,
            chat=self._ended_chat(),
            decision=_decision(self._reply, self._calls),
            calls=tuple(self._records),
            errors=0 if self._reply is not None else 1,
            budget=budget,
        )

    def _end_run(self, reply: Reply | None) -> None:
        answered = reply is not None and not reply.tool_calls and bool(reply.text.strip())
        detail = "" if answered else UNSEEN if reply is not None else "the last request has no reply"
        end = RunEnd(
            ok=answered,
            stop_reason="finish" if answered else "cancelled" if reply is not None else "model_error",
            answer=reply.text if answered and reply is not None else None,
            detail=detail,
            usage=self.usage,
            steps=self._step,
            model_calls=self._step,
            tool_calls=self._tool_calls,
        )
        self._owned().run_ended(end)

    def _spend(self, usage: Usage) -> None:
        self.usage = Usage(
            input_tokens=(self.usage.input_tokens or 0) + (usage.input_tokens or 0),
            output_tokens=(self.usage.output_tokens or 0) + (usage.output_tokens or 0),
        )

    def _owned(self) -> Recorder:
        assert self._recorder is not None, "a run begins with its first request"
        return self._recorder

    _last_reply: Reply | None = None
    _last_calls: tuple[Call, ...] = ()


def _call(call: ToolCall) -> Call:
    args = fields_of(call.arguments)
    if args is None:
        fault = Fault(rule="not-json", message="the arguments are not a JSON object")
        return Call(name=call.name, id=call.id, raw=call.arguments, fault=fault)
    raw = None if compact_json(args) == call.arguments else call.arguments
    return Call(name=call.name, args=args, id=call.id, raw=raw)


def _decision(reply: Reply | None, calls: tuple[Call, ...]) -> Decision | None:
    if reply is None:
        return None
    if calls:
        return Decision(kind="calls", thought=reply.text, calls=calls, family="structured")
    return Decision(kind="finish", answer=reply.text, family="plain")


def _results(calls: tuple[Call, ...], new: tuple[Message, ...]) -> list[str | None]:
    """The text that each call's result has in the next request: by id, else in order."""
    told = [message for message in new if message.role == "tool"]
    by_id = {message.tool_call_id: message for message in told if message.tool_call_id}
    out: list[str | None] = []
    for call in calls:
        found = by_id.get(call.id) if call.id else None
        if found is None:
            found = next((message for message in told if not (call.id and message.tool_call_id)), None)
        if found is not None:
            told.remove(found)
        out.append(None if found is None else found.content)
    return out


def _named(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Results with the names of their tools, which most dialects leave out."""
    names = {call.id: call.name for message in messages for call in message.tool_calls if call.id}
    return tuple(
        [
            Message(
                role="tool",
                content=message.content,
                tool_call_id=message.tool_call_id,
                name=message.name or names.get(message.tool_call_id or ""),
            )
            if message.role == "tool"
            else message
            for message in messages
        ]
    )
