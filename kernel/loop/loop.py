"""The loop: read → evaluate → act → stop?

`Loop` holds one run. The phases are modules of their own; here is only their order, and the one place where a run ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from kernel.loop.act import Confirm, Dispatcher
from kernel.loop.ask import ask
from kernel.loop.evaluation import Rules, evaluate, fault_text
from kernel.loop.guard import LoopGuard
from kernel.loop.limits import Spending, TokenCounter, estimate_tokens
from kernel.loop.read import Transcript
from kernel.loop.tracer import NullTracer, Tracer
from kernel.record import (
    GUARD_OK,
    MAX_REASON_CHARS,
    BudgetReading,
    CallRecord,
    Chat,
    Decision,
    GuardVerdict,
    RunEnd,
    RunHead,
    Step,
    StopReason,
    clipped,
    describe,
    is_cancelled,
    output_bound,
    result_text,
    texts_for,
    to_jsonable,
)
from kernel.seams import DeadlineExceeded, Seams
from kernel.tools import Tool


class FinishContext(Struct, frozen=True, kw_only=True):
    """What a `finish_check` may look at. `attempt` counts from 1; `is_last` is true when one more refusal ends the run."""

    task: str
    steps: tuple[Step, ...]
    step: int
    attempt: int
    is_last: bool


FinishCheck = Callable[[str, FinishContext], Any | Awaitable[Any]]
Stop = tuple[StopReason, str]


class Loop:
    """One run of an agent, from its head to its end."""

    def __init__(
        self,
        head: RunHead,
        tools: dict[str, Tool],
        seams: Seams,
        transcript: Transcript,
        *,
        confirm: Confirm | None = None,
        finish_check: FinishCheck | None = None,
        tracer: Tracer | None = None,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        self.head = head
        self.seams = seams
        self.transcript = transcript
        self.texts = texts_for(head.language, head.texts)
        self.rules = Rules(protocol=head.protocol, tools=tools, texts=self.texts, require_finish=head.require_finish)
        self.spending = Spending(head.budget, head.price, count)
        self.bound = output_bound(head.params)
        self._bound_name = "" if self.bound is None else f"max_output_tokens={self.bound}"
        self.guard = LoopGuard(head.guard, {tool.name: tool.repeats for tool in head.tools if tool.repeats})
        self.tracer: Tracer = tracer or NullTracer()
        self.dispatcher = Dispatcher(
            head,
            tools,
            seams.tools,
            guard=self.guard,
            spending=self.spending,
            texts=self.texts,
            confirm=confirm,
            tracer=self.tracer,
            clock=seams.clock,
        )
        self.steps: list[Step] = []
        self.end: RunEnd | None = None
        self._finish_check = finish_check
        self._started_ns = 0
        self._elapsed_ns = 0
        self._errors = 0
        self._refusals = 0
        self._opened = 0
        self._answer: str | None = None
        self._is_open = False
        self._alive: tuple[str, ...] = ()
        self.warnings: list[str] = []

    async def run(self) -> RunEnd:
        """Run to the end. Raises only what is not ours to answer: cancellation, KeyboardInterrupt, SystemExit.

        Wherever it is torn down, also while it closes, its trace is ended first, as `cancelled`.
        """
        self._started_ns = self.seams.clock.now("run")
        self.tracer.run_started(self.head)
        self.transcript.begin(self.head)
        torn: BaseException | None = None
        stop: Stop = "cancelled", ""
        try:
            stop = await self._opened_rounds()
        except BaseException as error:
            torn = error
        for close in (self._close_model, self._close_tools):
            try:
                await close()
            except BaseException as error:
                torn = torn or error
        if torn is None:
            return self._finish(stop)
        self._finish(("cancelled", "" if stop[0] == "cancelled" else f"while the run closed, after {stop[0]}"))
        raise torn

    async def _opened_rounds(self) -> Stop:
        """All rounds, with the model open: a client that is a context manager keeps its connections for one run."""
        model: Any = self.seams.model
        if hasattr(model, "__aenter__"):
            try:
                await model.__aenter__()
            except Exception as error:
                return "model_error", f"the model could not be opened: {': '.join(describe(error))}"
            self._is_open = True
        return await self._rounds()

    async def _rounds(self) -> Stop:
        stop = self._before()
        while stop is None:
            stop = await self._round(len(self.steps) + 1)
            if stop is None:
                stop = self._before()
        return stop

    async def _round(self, index: int) -> Stop | None:
        """One step: read, ask, evaluate, act, stop?"""
        self._opened = index
        self.tracer.step_started(index)
        prompt = self.transcript.prompt(self.head, self.texts)
        reserved = self.spending.reserve(prompt.estimated_tokens, self.bound)
        if reserved.refused is not None:
            self._close(Step(index=index, budget=self._reading(index)), reserved.refused)
            return reserved.refused
        if reserved.by:
            prompt = prompt.bounded(reserved.bound, reserved.by)
        chat, failed = await ask(self, index, prompt)
        if chat.reply is None:
            self._close(Step(index=index, chat=chat, budget=self._reading(index)), failed)
            return failed
        decision = evaluate(chat.reply, self.rules, chat.bounded_by or self._bound_name)
        calls: tuple[CallRecord, ...] = ()
        if decision.kind == "calls":
            calls = await self.dispatcher.act(index, decision, self.left_s())
        return await self._judge(index, chat, decision, calls)

    async def _judge(self, index: int, chat: Chat, decision: Decision, calls: tuple[CallRecord, ...]) -> Stop | None:
        """What a step means for the run: the guard's verdict, feedback, the error streak, a reason to stop."""
        stop: Stop | None = None
        verdict = GUARD_OK
        refusal: str | None = None
        feedback: list[str] = []
        match decision.kind:
            case "finish":
                assert decision.answer is not None
                refusal = await self._check_finish(index, decision.answer)
                if refusal is None:
                    self._answer, self._errors = decision.answer, 0
                    stop = ("finish", "")
                else:
                    stop = self._refused(refusal, feedback)
            case "fault":
                assert decision.fault is not None
                self._errors += 1
                feedback.append(fault_text(decision.fault, self.rules))
                if self._errors >= self.head.budget.max_errors:
                    stop = ("unparsable_exhausted", f"{self._errors} replies in a row failed: {decision.fault.message}")
            case "calls":
                failed = [record for record in calls if record.outcome not in ("ok", "duplicate")]
                self._errors = self._errors + 1 if len(failed) == len(calls) else 0
                verdict = self.guard.note(index, calls)
                if verdict.verdict != "ok" and verdict.rule != "repeat":
                    feedback.append(self._guard_text(verdict))
                if verdict.verdict == "loop":
                    stop = ("loop_detected", self._loop_detail(verdict))
                elif self._errors >= self.head.budget.max_errors:
                    last = failed[-1]
                    kind = last.error.type if last.error is not None else last.outcome
                    detail = f"{self._errors} steps in a row failed, the last with {kind} in {last.call.name}"
                    stop = ("tool_error_exhausted", detail)
        if decision.ignored:
            feedback.append(self.texts.say("ignored", names=", ".join(decision.ignored)))
        step = Step(
            index=index,
            chat=chat,
            decision=decision,
            calls=calls,
            guard=verdict,
            feedback="\n".join(feedback) if feedback else None,
            refusal=refusal,
            errors=self._errors,
            budget=self._reading(index),
        )
        return self._close(step, stop)

    # ---- stop?

    def _before(self) -> Stop | None:
        """A hard limit that forbids another step."""
        budget = self.head.budget
        if budget.max_steps is not None and len(self.steps) >= budget.max_steps:
            return "max_steps", f"max_steps={budget.max_steps} reached"
        return self.spending.exceeded()

    def _close(self, step: Step, stop: Stop | None) -> Stop | None:
        """Book a step and add its messages; the wall clock may overrule `stop`."""
        self.steps.append(step)
        self.tracer.step_ended(step)
        self.transcript.add(step, self.head, self.texts)
        timeout_s = self.head.budget.timeout_s
        if timeout_s is not None and self._elapsed_ns >= timeout_s * 1e9 and (stop is None or stop[0] != "finish"):
            return "timeout", f"timeout_s={timeout_s:g} reached after {self._elapsed_ns / 1e9:.3f} s"
        return stop

    def _reading(self, step: int) -> BudgetReading:
        """What has been used by the end of a step."""
        self._elapsed_ns = self.seams.clock.now("step_end", step) - self._started_ns
        return self.spending.reading(self._elapsed_ns)

    def elapsed_ns(self) -> int:
        """Time since the start of the run at the end of the last step."""
        return self._elapsed_ns

    def started_ns(self) -> int:
        return self._started_ns

    def left_s(self) -> float | None:
        """Seconds left of the wall clock at the end of the last step, or None where there is no limit."""
        timeout_s = self.head.budget.timeout_s
        return None if timeout_s is None else max(timeout_s - self._elapsed_ns / 1e9, 0.0)

    def _refused(self, reason: str, feedback: list[str]) -> Stop | None:
        self._refusals += 1
        feedback.append(self.texts.say("finish.refused", reason=reason))
        if self._refusals >= self.head.budget.max_finish_refusals:
            return "finish_refused_exhausted", f"the answer was refused {self._refusals} times: {reason}"
        return None

    async def _check_finish(self, index: int, answer: str) -> str | None:
        """The reason to refuse an answer, or None."""
        if self._finish_check is None:
            return None
        context = FinishContext(
            task=self.head.task,
            steps=tuple(self.steps),
            step=index,
            attempt=self._refusals + 1,
            is_last=self._refusals + 1 >= self.head.budget.max_finish_refusals,
        )
        token = self.tracer.enter(index, None)
        try:
            verdict = self._finish_check(answer, context)
            if inspect.isawaitable(verdict):
                verdict = await self.seams.clock.within(self.left_s(), verdict)
        except DeadlineExceeded:
            return "the wall clock of the run ran out while the answer was checked"
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return clipped(": ".join(describe(error)), MAX_REASON_CHARS)
        except (
            Exception,
            SystemExit,
        ) as error:  # a check that fails has not passed the answer: its failure is the reason
            return clipped(": ".join(describe(error)), MAX_REASON_CHARS)
        finally:
            self.tracer.leave(token)
        if verdict is None or verdict is True:
            return None
        reason = "" if verdict is False else result_text(to_jsonable(verdict)).strip()
        return clipped(reason, MAX_REASON_CHARS) or "not accepted"

    def _guard_text(self, verdict: GuardVerdict) -> str:
        key = "guard.warned.cycle" if verdict.rule == "cycle" else "guard.warned.again"
        calls = " → ".join(verdict.cycle)
        return self.texts.say(key, name=verdict.tool, step=verdict.seen_step, period=verdict.period, calls=calls)

    def _loop_detail(self, verdict: GuardVerdict) -> str:
        same = f"{verdict.tool} with the same result"
        what = f"a cycle of {verdict.period} calls ({' → '.join(verdict.cycle)})" if verdict.rule == "cycle" else same
        return (
            f"{what} since step {verdict.seen_step}, warned of {verdict.warnings} times; where that is meant, register the tool "
            "with repeats=N, or with volatile=True if it gives something else each time"
        )

    # ---- the end

    async def _close_model(self) -> None:
        model: Any = self.seams.model
        if self._is_open:
            try:
                await model.__aexit__(None, None, None)
            except Exception as error:  # the run is over, and what it came to stands
                self.warnings.append(f"the model could not be closed: {': '.join(describe(error))}")

    async def _close_tools(self) -> None:
        try:
            self._alive = await self.seams.tools.close()
        except BaseException:
            self._alive = await self.seams.tools.close()  # they are closed: this says what of them is alive
            raise

    def _finish(self, stop: Stop) -> RunEnd:
        reason, detail = stop
        for late in self.seams.tools.late:
            self.tracer.late_result(late.step, late.position, late.tool, late.outcome)
        self.end = RunEnd(
            ok=reason == "finish",
            stop_reason=reason,
            answer=self._answer if reason == "finish" else None,
            detail=detail,
            usage=self.spending.usage(),
            cost_usd=self.spending.cost_usd,
            steps=self._opened,
            model_calls=self.spending.chats,
            tool_calls=self.dispatcher.calls,
            alive=self._alive,
        )
        self.tracer.run_ended(self.end)
        return self.end
