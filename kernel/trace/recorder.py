"""Tracing: what the loop reports while it runs, and the recorder that makes spans of it.

The recorder gives each span to its sinks when it starts and when it ends: a journal file,
an OTLP outbox, an OpenTelemetry provider. A sink that fails is cut off and counted; it never reaches the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from kernel.ambient import Parent, Token, attach, detach
from kernel.record import READ_RANGE, Attempt, Call, CallRecord, Chat, Mark, Reply, RequestDigest, RunEnd, RunHead, Step
from kernel.seams import Clock, Ids, Point
from kernel.trace import semconv as sc
from kernel.trace.codec import (
    attempt_event,
    call_attributes,
    call_end_attributes,
    call_name,
    chat_attributes,
    chat_end_attributes,
    effect_begun_event,
    effects_of,
    end_attributes,
    finish_span,
    head_attributes,
    span_name,
    step_attributes,
    step_end_attributes,
)
from kernel.trace.scrub import Scrubber, may_name_a_secret
from kernel.trace.span import CLIENT, INTERNAL, Event, Link, Span

P = ParamSpec("P")
T = TypeVar("T")


class Sink(Protocol):
    """Where spans go. Called on the run's own path: must be quick, and may keep no reference to an open span's dict."""

    def started(self, span: Span) -> None: ...
    def event(self, span: Span, event: Event) -> None: ...
    def ended(self, span: Span) -> None: ...
    def close(self) -> None: ...


def _kept_from_the_run(method: Callable[Concatenate[Recorder, P], T]) -> Callable[Concatenate[Recorder, P], T | Any]:
    """A report that fails ends the recording, not the run."""

    @functools.wraps(method)
    def report(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> T | Any:
        if self.stopped:
            return ""
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # its text may hold what is to be masked
            self.stopped = True
            self.failed_sinks.append(f"recording stopped in {method.__name__}: {type(error).__name__}")
            return ""

    return report


class Recorder:
    """Makes the spans of one run. Every span has one owner, is started once and ended once, in this class.

    Args:
        parent_id: the span above the run's own, of the same trace.
        caller: the span of another library that the run was started in; its sampling decision is handed on.
        scrubber: masks what is recorded; runs of one conversation share it.
        digest: of the requests of the conversation so far.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        clock: Clock,
        ids: Ids,
        trace_id: str,
        parent_id: str | None = None,
        caller: Parent | None = None,
        links: tuple[Link, ...] = (),
        attributes: dict[str, Any] | None = None,
        scrubber: Scrubber | None = None,
        digest: RequestDigest | None = None,
    ) -> None:
        self.scrubber = self._scrubber = scrubber or Scrubber(None)
        self._masker = self._scrubber.masker
        self._clean = True
        self.digest = digest
        self._sinks = list(sinks)
        self._clock = clock
        self._ids = ids
        self.trace_id = trace_id
        self._parent_id = parent_id
        self._caller = caller
        self._links = links
        self._extra = attributes or {}
        self._head: RunHead | None = None
        self._root: Span | None = None
        self._step: Span | None = None
        self._chat: Span | None = None
        self._attempts: tuple[Attempt, ...] = ()
        self._calls: dict[int, Span] = {}
        self._effects: frozenset[str] = frozenset()
        self._begun: dict[int, str] = {}
        self._reply: Reply | None = None
        self._records: dict[int, CallRecord] = {}
        self._previous: Step | None = None
        self.stopped = False
        self.failed_sinks: list[str] = []

    # ---- what the loop reports

    @_kept_from_the_run
    def run_started(self, head: RunHead) -> None:
        head = self._head = self._scrubber.head(head)
        self._effects = effects_of(head)
        if self.digest is None:
            self.digest = RequestDigest()
        self.digest.begin(head)
        name = span_name(sc.INVOKE_AGENT, head.agent)
        attributes = {**head_attributes(head), **self._extra}
        self._root = self._start(name, INTERNAL, self._parent_id, attributes, "run", links=self._links)

    @_kept_from_the_run
    def run_ended(self, end: RunEnd) -> None:
        root, end = self._owned(self._root), self._scrubber.end(end)
        for span in (*self._calls.values(), self._chat, self._step):
            if span is not None:
                self._end(span, {sc.FLAGGED: True}, "run_end", failed=True)
        self._end(root, end_attributes(end), "run_end", failed=not end.ok)

    @_kept_from_the_run
    def step_started(self, step: int) -> None:
        self._reply = None
        self._records.clear()
        self._begun.clear()
        self._step = self._start(
            sc.STEP, INTERNAL, self._owned(self._root).span_id, step_attributes(step), "step", step
        )

    @_kept_from_the_run
    def step_ended(self, step: Step) -> None:
        span = self._owned(self._step)
        if not self._clean or (step.feedback is not None and self._masker is not None):
            records = [self._records[position] for position in range(len(step.calls))]
            masked = self._scrubber.step(step, records, self._reply)
            self._clean, step = self._clean and masked == step, masked
        self._end(span, step_end_attributes(step), "step_end", step.index)
        self._previous, self._step = step, None

    @_kept_from_the_run
    def chat_started(self, step: int, chat: Chat) -> str:
        head, digest = self._head, self.digest
        assert head is not None and digest is not None
        if not self._clean or self._previous is None or (chat.condensed and self._scrubber.touched):
            chat = self._scrubber.chat(chat)
        chat = msgspec.structs.replace(chat, digest=digest.extend(chat.kept, chat.new, chat.max_output_tokens))
        attributes = chat_attributes(step, chat, head, self._previous)
        name = span_name(sc.CHAT, head.params.model)
        self._attempts = ()
        self._chat = self._start(name, CLIENT, self._owned(self._step).span_id, attributes, "chat", step)
        return chat.digest

    @_kept_from_the_run
    def attempt_failed(self, step: int, number: int, attempt: Attempt) -> None:
        masked = self._scrubber.attempt(attempt)
        self._attempts = (*self._attempts, masked)
        self._event(self._owned(self._chat), attempt_event(number, masked, self._owned(self._root).start_ns))

    @_kept_from_the_run
    def chat_ended(self, step: int, chat: Chat) -> None:
        span, self._clean = self._owned(self._chat), self._is_clean(chat)
        if not self._clean:
            chat = self._scrubber.reply(msgspec.structs.replace(chat, attempts=()))
            chat = msgspec.structs.replace(chat, attempts=self._attempts)
        self._reply = chat.reply
        self._end(span, chat_end_attributes(chat), "chat_end", step, failed=chat.reply is None)
        self._chat = None

    @_kept_from_the_run
    def call_started(self, step: int, position: int, call: Call) -> None:
        if not self._clean:
            call = self._scrubber.asked(call)
        name = call_name(call.name)
        parent = self._owned(self._step).span_id
        attributes = call_attributes(step, position, call, effect=call.name in self._effects)
        self._calls[position] = self._start(name, INTERNAL, parent, attributes, "call", step, position)

    @_kept_from_the_run
    def effect_begun(self, step: int, position: int, call: Call, key: str) -> None:
        self._begun[position] = key
        self._scrubber.effect()
        if not self._clean:
            key = self._scrubber.call(CallRecord(call=call, outcome="ok", key=key), step, position).key or key
        span = self._calls[position]
        self._event(span, effect_begun_event(key, self._clock.now("call", step, position)))

    @_kept_from_the_run
    def call_ended(self, step: int, position: int, record: CallRecord) -> None:
        span = self._calls.pop(position)
        masker, result, begun = self._masker, record.result, self._begun.get(position)
        if record.key is None and begun is not None:  # the run is torn down in the middle of it
            record = msgspec.structs.replace(record, key=begun)
        if masker is not None:
            if record.key is not None and begun is None:
                self._scrubber.effect()
            plain = self._clean and record.error is None and type(result) is str and masker.mask_text(result) is result
            plain = plain and self._scrubber.known.mask_text(result) is result
            partial = record.call.name == READ_RANGE and self._scrubber.touched
            if not plain or partial:
                masked = self._scrubber.call(record, step, position)
                self._clean, record = self._clean and masked is record and not partial, masked
            self._records[position] = record
        failed = record.outcome not in ("ok", "duplicate")
        self._end(span, call_end_attributes(record), "call_end", step, position, failed=failed)

    @_kept_from_the_run
    def late_result(self, step: int, position: int, tool: str, outcome: str) -> None:
        root = self._owned(self._root)
        attributes = {sc.STEP_INDEX: step, sc.POSITION: position, sc.TOOL_NAME: tool, sc.OUTCOME: outcome}
        self._event(root, Event(name=sc.LATE_EVENT, time_ns=self._clock.now("run_end"), attributes=attributes))

    def enter(self, step: int, position: int | None) -> Token | None:
        span = (self._chat or self._step) if position is None else self._calls.get(position)
        return attach(self.trace_id, span.span_id, self._caller) if span is not None else None

    def leave(self, token: Token | None) -> None:
        if token is not None:
            detach(token)

    @property
    def chat(self) -> Mark:
        """Id and times of the span of the model call at work."""
        return _mark(self._chat) if self._chat is not None else Mark()

    def call(self, position: int) -> Mark:
        """Id and times of the span of a tool call at work."""
        return _mark(self._calls[position]) if position in self._calls else Mark()

    @property
    def root(self) -> Mark:
        """Id and times of the run's own span."""
        return _mark(self._root) if self._root is not None else Mark()

    def _is_clean(self, chat: Chat) -> bool:
        """Whether a reply surely holds nothing to mask. What a step reads out of a clean reply is clean."""
        masker, reply = self._masker, chat.reply
        if masker is None:
            return True
        if reply is None or chat.attempts or not masker.by_text_alone:
            return False
        if may_name_a_secret(reply) and self._scrubber.hides(reply) is not reply:
            return False
        texts = [reply.text, *(call.arguments for call in reply.tool_calls)]
        short = (reply.reasoning, reply.refusal, reply.finish_reason, reply.model, reply.response_id)
        texts += [text for text in (*short, *(t for call in reply.tool_calls for t in (call.name, call.id))) if text]
        known = self._scrubber.known
        return all(masker.mask_text(text) is text and known.mask_text(text) is text for text in texts)

    # ---- spans

    def _start(
        self,
        name: str,
        kind: int,
        parent: str | None,
        attributes: dict[str, Any],
        point: Point,
        step: int = 0,
        position: int = 0,
        links: tuple[Link, ...] = (),
    ) -> Span:
        span = Span(
            trace_id=self.trace_id,
            span_id=self._ids.span_id(),
            parent_id=parent,
            name=name,
            kind=kind,
            start_ns=self._clock.now(point, step, position),
            attributes=attributes,
            links=links,
        )
        self._each("started", span)
        return span

    def _end(
        self,
        span: Span,
        attributes: dict[str, Any],
        point: Point,
        step: int = 0,
        position: int = 0,
        failed: bool = False,
    ) -> None:
        span.end_ns = self._clock.now(point, step, position)
        finish_span(span, attributes, failed=failed)
        self._each("ended", span)

    def _event(self, span: Span, event: Event) -> None:
        span.events = (*span.events, event)
        self._each("event", span, event)

    def _each(self, method: str, *values: Any) -> None:
        for sink in self._sinks:
            try:
                getattr(sink, method)(*values)
            except Exception as error:  # a sink's failure is recorded here and shown in the result, never raised
                self._sinks = [other for other in self._sinks if other is not sink]
                self.failed_sinks.append(f"{type(sink).__name__}: {type(error).__name__}: {error}")

    def _owned(self, span: Span | None) -> Span:
        assert span is not None, "spans are started before they are ended"
        return span


def _mark(span: Span) -> Mark:
    return Mark(span_id=span.span_id, start_ns=span.start_ns, end_ns=span.end_ns)
