"""The doubles of a replay: they serve a recording at the kernel's four seams, and nothing else can be reached.

What is not recorded is not served: the run is torn down with `ReplayMiss`, which no agent code can catch as an ordinary
exception, and the miss is the divergence.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, Literal, TypeVar

from kernel.errors import ModelError
from kernel.loop import DEADLINE, FORK, MASKED, Confirm, ConfirmFailed, FinishContext, Transcript
from kernel.record import (
    READ_RANGE,
    Approval,
    Call,
    CallRecord,
    ModelParams,
    Reply,
    Request,
    Run,
    RunHead,
    Step,
    Texts,
    canonical_json,
)
from kernel.seams import DeadlineExceeded, Invocation, Point
from kernel.tools import Tool

T = TypeVar("T")


class RecordingEnded(BaseException):
    """The recording was cut short here: there is nothing more to compare."""


class RecordedCancel(BaseException):
    """The recorded run was cancelled here."""


class ReplayMiss(BaseException):
    """The run asked for something that was not recorded. `kind` is `model`, `call` or `approval`."""

    def __init__(self, kind: str, step: int, position: int, wanted: Any) -> None:
        super().__init__(kind, step, position, wanted)
        self.kind = kind
        self.step = step
        self.position = position
        self.wanted = wanted


class RecordedModel:
    """Serves replies by position, failed attempts first. Requests are compared afterwards, whole."""

    def __init__(self, run: Run) -> None:
        head = run.head
        self.protocol: Literal["text", "tools"] = head.protocol
        self.provider = head.provider
        self.name = head.params.model
        self.params: ModelParams = head.model_params or head.params
        self._run = run
        self._chats = [step.chat for step in run.steps if step.chat is not None]
        self._chat = 0
        self._attempt = 0
        self.served = 0
        self.recorded = sum(chat.reply is not None or bool(chat.attempts) for chat in self._chats)

    async def complete(self, request: Request) -> Reply:
        if self._chat >= len(self._chats):
            _cut_short(self._run)
            raise ReplayMiss("model", self._chat + 1, 0, len(request.messages))
        chat = self._chats[self._chat]
        if self._attempt < len(chat.attempts):
            attempt = chat.attempts[self._attempt]
            self._attempt += 1
            if self._attempt == len(chat.attempts) and chat.reply is None:
                self._next()
            if attempt.kind == DEADLINE:
                raise DeadlineExceeded
            raise ModelError(
                attempt.message,
                kind=attempt.kind,
                status=attempt.status,
                retry_after_s=attempt.retry_after_s,
                retryable=attempt.retryable,
                input_tokens=attempt.input_tokens,
            )
        if chat.reply is None:
            _cut_short(self._run)
            raise RecordingEnded
        self._next()
        return chat.reply

    def _next(self) -> None:
        self._chat += 1
        self._attempt = 0
        self.served += 1


class RecordedTools:
    """Serves results by (tool, canonical arguments), equal calls in the order they were recorded."""

    concurrent = False
    late: Sequence[Any] = ()

    def __init__(self, run: Run) -> None:
        self._run = run
        self._results: dict[tuple[str, str], deque[CallRecord]] = {}
        self.shown = fixed_calls(run)
        self.recorded = 0
        self.served = 0
        self._is_closed = False
        for step in run.steps:
            for record in step.calls:
                if ran(record) and step.decision is not None:
                    self.recorded += 1
                    self._results.setdefault(_key(record.call), deque()).append(record)

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None
    ) -> Invocation:
        waiting = self._results.get(_key(call))
        if not waiting:
            if step == len(self._run.steps):
                _cut_short(self._run)
            raise ReplayMiss("call", step, position, call)
        record = waiting.popleft()
        self.served += 1
        return Invocation(outcome=record.outcome, result=record.result, error=record.error, served_by=record.served_by)

    async def close(self) -> tuple[str, ...]:
        """Where the recorded run was cancelled while it closed, after its last step, so is its replay."""
        last = self._run.steps[-1] if self._run.steps else None
        closed, self._is_closed = self._is_closed, True
        if last is not None and last.budget is not None and not closed:
            _cut_short(self._run)
        return self._run.end.alive if self._run.end is not None else ()

    def unused(self) -> list[CallRecord]:
        """Recorded results that were not asked for."""
        return [record for waiting in self._results.values() for record in waiting]


def _cut_short(run: Run) -> None:
    """Where a recording stops in the middle, so does its replay, in the same way."""
    if run.end is None:
        raise RecordingEnded
    if run.end.stop_reason == "cancelled":
        raise RecordedCancel


def fixed_calls(run: Run) -> dict[tuple[int, int], CallRecord]:
    """Calls, by step and position, of which the shown text was masked and does not follow from the masked result."""
    return {(s.index, i): record for s in run.steps for i, record in enumerate(s.calls) if record.fixed}


def ran(record: CallRecord) -> bool:
    """Whether a recorded call went through dispatch to its tool or the ledger, rather than being answered before."""
    if record.served_by == "guard" or record.call.name == READ_RANGE:
        return False
    if record.outcome == "denied":
        return record.error is not None and record.error.type in ("conflict", FORK, MASKED)
    return record.outcome not in ("unknown_tool", "bad_args")


def _key(call: Call) -> tuple[str, str]:
    return call.name, canonical_json(call.args)


class RecordedClock:
    """Serves the recorded readings; time stands still where nothing was recorded. With `tears`, a run that was torn after
    the last call of a step and before its end is torn there again."""

    def __init__(self, run: Run, *, tears: bool = False) -> None:
        self._run = run
        last = run.steps[-1] if run.steps else None
        self._torn = len(run.steps) if tears and last and last.decision is None and last.budget is None else 0
        self._start = run.mark.start_ns
        self._steps: Sequence[Step] = run.steps
        self._last = self._start

    def now(self, point: Point, step: int = 0, position: int = 0) -> int:
        if point == "step_end" and step <= len(self._steps):
            if step == self._torn:
                _cut_short(self._run)
            budget = self._steps[step - 1].budget
            if budget is not None:
                self._last = self._start + budget.elapsed_ns
        elif point == "attempt" and step <= len(self._steps):
            chat = self._steps[step - 1].chat
            if chat is not None and position <= len(chat.attempts):
                self._last = self._start + chat.attempts[position - 1].elapsed_ns
        elif point == "run":
            self._last = self._start
        return self._last

    async def sleep(self, seconds: float) -> None:
        return None

    async def within(self, seconds: float | None, awaitable: Awaitable[T]) -> T:
        return await awaitable


class RecordedTranscript(Transcript):
    """Counts messages as they were counted in the recording, where secrets in them are masked now.

    `recorded` is the run that is played; set it before each turn.
    """

    recorded: Run | None = None

    def begin(self, head: RunHead) -> None:
        super().begin(head)
        if self.recorded is not None and self.recorded.head.masked_tokens:
            self.adjust(self.recorded.head.masked_tokens)

    def add(self, step: Step, head: RunHead, texts: Texts) -> None:
        super().add(step, head, texts)
        if self.recorded is not None and step.index <= len(self.recorded.steps):
            self.adjust(self.recorded.steps[step.index - 1].masked_tokens)


class DerivedIds:
    """Ids that depend on the original trace alone, so that replaying twice gives equal output."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def _next(self, size: int) -> str:
        self._count += 1
        return hashlib.blake2b(f"{self._seed}/{self._count}".encode(), digest_size=size).hexdigest()

    def trace_id(self) -> str:
        return self._next(16)

    def span_id(self) -> str:
        return self._next(8)


class Answers:
    """What `confirm` answered in a recording, by (tool, canonical arguments), each answer once and in order."""

    def __init__(self, run: Run) -> None:
        self._waiting: dict[tuple[str, str], deque[Approval]] = {}
        for step in run.steps:
            for record in step.calls:
                if record.approval is not None:
                    self._waiting.setdefault(_key(record.call), deque()).append(record.approval)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, name: str, args: dict[str, Any]) -> bool | None:
        """The next answer, None where there is none. Raises `ConfirmFailed` where the recorded `confirm` gave none."""
        waiting = self._waiting.get((name, canonical_json(args)))
        if not waiting:
            return None
        approval = waiting.popleft()
        if approval.failure is not None:
            raise ConfirmFailed(approval.failure)
        return approval.approved


def recorded_confirm(run: Run) -> Confirm:
    """Answers as `confirm` answered in the recording."""
    answers = Answers(run)

    def confirm(name: str, args: dict[str, Any]) -> bool:
        answer = answers.take(name, args)
        if answer is None:
            if run.steps and run.steps[-1].decision is None:
                _cut_short(run)
            raise ReplayMiss("approval", 0, 0, Call(name=name, args=args))
        return answer

    return confirm


def recorded_finish_check(run: Run) -> Any:
    """Refuses what was refused in the recording, step by step."""

    def check(answer: str, context: FinishContext) -> str | None:
        if context.step <= len(run.steps):
            return run.steps[context.step - 1].refusal
        return None

    return check


def recorded_toolbox(head: RunHead) -> dict[str, Tool]:
    """The tools of a recorded head; none of them can be run, the seam serves their results."""
    from kernel.tools import read_range

    tools: dict[str, Tool] = {}
    for spec in head.tools:
        tools[spec.name] = Tool(spec, read_range if spec.name == READ_RANGE else _never_run)
    return tools


def _never_run(**_: Any) -> Any:
    raise AssertionError("a replay runs no tool")
