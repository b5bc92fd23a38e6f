"""Act: the security boundary. `dispatch` is the only way to a tool: one pipeline, each stage a function named for it.

    lookup → schema → policy → allowance → repeat → approval → run → present

The first stage that refuses decides. Idempotency, pace, deadline and isolation belong to `run`, behind the `Tools`
seam. Whatever happens, a call gets exactly one `CallRecord`.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from kernel.loop.guard import LoopGuard
from kernel.loop.limits import Spending
from kernel.loop.tracer import Tracer
from kernel.record import (
    MAX_REASON_CHARS,
    READ_RANGE,
    Approval,
    ArtifactError,
    ArtifactStore,
    Call,
    CallRecord,
    Decision,
    RunHead,
    Texts,
    ToolFault,
    canonical_json,
    clipped,
    compact_json,
    describe,
    is_cancelled,
    result_text,
    show,
    shown_text,
)
from kernel.seams import Clock, DeadlineExceeded, Invocation, Tools
from kernel.stores import approval_binding, idempotency_key
from kernel.tools import Tool, read_range

Confirm = Callable[[str, dict[str, Any]], bool | Awaitable[bool]]
_MAX_ERROR_CHARS = 2000
FORK = "fork"
MASKED = "masked"
_DENIED_BY_PORT = {FORK: "tool.denied.fork", MASKED: "tool.denied.masked"}
RUN_CANCELLED = "the run was cancelled during this call"
_NAMES_SHOWN = 40


class ConfirmFailed(Exception):
    """Raised by a recorded `confirm`: it gave no answer, and this is why."""

    def __init__(self, failure: str) -> None:
        super().__init__(failure)
        self.failure = failure


class Dispatcher:
    """Runs the calls of a run's decisions."""

    def __init__(
        self,
        head: RunHead,
        tools: Mapping[str, Tool],
        port: Tools,
        *,
        guard: LoopGuard,
        spending: Spending,
        texts: Texts,
        confirm: Confirm | None,
        tracer: Tracer,
        clock: Clock,
    ) -> None:
        self._head = head
        self._tools = tools
        self._port = port
        self._guard = guard
        self._spending = spending
        self._texts = texts
        self._confirm = confirm
        self._tracer = tracer
        self._clock = clock
        self._artifacts = ArtifactStore(limit=max(head.context.max_observation_chars, 2), language=head.language)
        self.calls = 0
        self._counts: dict[str, int] = {}
        self._position = 0

    async def act(self, step: int, decision: Decision, left_s: float | None) -> tuple[CallRecord, ...]:
        """Run the calls of a decision; results in call order, also where they ran together."""
        calls = decision.calls
        if len(calls) == 1:
            records = [await self._traced(calls[0], step, 0, decision, left_s)]
        elif self._port.concurrent and not any(self._has_effect(call) for call in calls):
            records = await _together(
                [self._traced(call, step, position, decision, left_s) for position, call in enumerate(calls)]
            )
        else:
            records = [await self._traced(call, step, i, decision, left_s) for i, call in enumerate(calls)]
        return tuple([self._present(record, step, position) for position, record in enumerate(records)])

    async def _traced(
        self, call: Call, step: int, position: int, decision: Decision, left_s: float | None
    ) -> CallRecord:
        self.calls += 1
        self._tracer.call_started(step, position, call)
        try:
            token = self._tracer.enter(step, position)
            try:
                record = await self.dispatch(call, step, position, decision.estimated_cost, left_s)
            finally:
                self._tracer.leave(token)
        except BaseException as error:
            fault = ToolFault(type=type(error).__name__, message=RUN_CANCELLED)
            self._tracer.call_ended(step, position, CallRecord(call=call, outcome="cancelled", error=fault))
            raise
        self._tracer.call_ended(step, position, record)
        return record

    async def dispatch(
        self, call: Call, step: int, position: int, estimated_cost: float | None, left_s: float | None
    ) -> CallRecord:
        """One call through the pipeline."""
        tool = self._tools.get(call.name)
        if tool is None and call.fault is not None and call.fault.rule == "finish-not-alone":
            return _refusal(call, "bad_args", call.fault.rule, call.fault.message)
        if tool is None:
            return self._unknown(call)
        refused = self._schema(call, tool) or self._policy(call, tool) or self._allowance(call, tool)
        if refused is not None:
            return refused
        if (answered := self._repeat(call, tool)) is not None:
            return answered
        approval = None
        if tool.spec.side_effect or estimated_cost is not None:
            approval, refused = await self._approval(call, tool, step, position, estimated_cost, left_s)
            if refused is not None:
                return refused
        return await self._run(call, tool, step, position, approval, left_s)

    # ---- the stages

    def _unknown(self, call: Call) -> CallRecord:
        names = list(self._tools)
        close = difflib.get_close_matches(call.name, names, n=1)
        nearest = self._texts.say("tool.nearest", name=close[0]) if close else ""
        listed = ", ".join(names[:_NAMES_SHOWN]) or "-"
        text = self._texts.say("tool.unknown", name=call.name[:200], names=listed, nearest=nearest)
        return _refusal(call, "unknown_tool", "unknown_tool", text)

    def _schema(self, call: Call, tool: Tool) -> CallRecord | None:
        if call.fault is None:
            if self._head.source or tool.schema.is_valid(call.args):  # another program has used these arguments
                return None
            return _refusal(call, "bad_args", "bad-args", self._texts.say("tool.bad_json", **self._about(tool, "")))
        if call.fault.rule == "bad-args":
            about = {"name": tool.name, "problems": call.fault.message, "schema": compact_json(tool.spec.parameters)}
            text = self._texts.say("tool.bad_args", **about)
        elif call.fault.rule == "repaired":
            text = call.fault.message
        else:
            text = self._texts.say("tool.bad_json", **self._about(tool, call.fault.message))
        return _refusal(call, "bad_args", call.fault.rule, text)

    def _about(self, tool: Tool, message: str) -> dict[str, object]:
        return {"name": tool.name, "message": message, "schema": compact_json(tool.spec.parameters)}

    def _policy(self, call: Call, tool: Tool) -> CallRecord | None:
        policy = self._head.policy
        if policy.mode == "full" or not tool.spec.side_effect:
            return None
        if policy.mode == "allowlist" and call.name in policy.allow:
            return None
        key = f"tool.denied.{policy.mode}"
        text = self._texts.say(key, name=call.name, names=", ".join(policy.allow) or "-")
        return _refusal(call, "denied", policy.mode, text)

    def _allowance(self, call: Call, tool: Tool) -> CallRecord | None:
        used = self._counts.get(call.name, 0)
        if tool.spec.max_calls is not None and used >= tool.spec.max_calls:
            text = self._texts.say("tool.denied.calls", name=call.name, limit=tool.spec.max_calls)
            return _refusal(call, "denied", "max_calls", text)
        return None

    def _repeat(self, call: Call, tool: Tool) -> CallRecord | None:
        if tool.spec.volatile:
            return None
        seen = self._guard.repeats_last(call, side_effect=tool.spec.side_effect)
        if seen is None:
            return None
        again = "" if tool.spec.side_effect else self._texts.say("guard.answered.again")
        text = self._texts.say(
            "guard.answered", name=call.name, step=seen.step, text=shown_text(seen.record), again=again
        )
        return CallRecord(call=call, outcome="duplicate", result=seen.record.result, shown=text, served_by="guard")

    async def _approval(
        self, call: Call, tool: Tool, step: int, position: int, estimated_cost: float | None, left_s: float | None
    ) -> tuple[Approval | None, CallRecord | None]:
        left = self._spending.left_usd()
        too_costly = estimated_cost is not None and left is not None and estimated_cost > left
        if not too_costly and (not tool.spec.side_effect or self._confirm is None):
            return None, None
        binding = _binding(call, step, position)
        approved, failure = False, None
        if self._confirm is not None:
            approved, failure = await self._ask(call, left_s)
        reason: Literal["cost", "side_effect"] = "cost" if too_costly else "side_effect"
        approval = Approval(approved=approved, binding=binding, reason=reason, failure=failure)
        if approved:
            return approval, None
        if failure is not None:
            text = self._texts.say("tool.denied.confirm_failed", name=call.name, failure=failure)
        elif too_costly:
            text = self._texts.say("tool.denied.cost", name=call.name, estimate=f"{estimated_cost:g}", left=f"{left:g}")
        else:
            text = self._texts.say("tool.denied.confirm", name=call.name)
        return None, _refusal(call, "denied", "not_approved", text, approval)

    async def _ask(self, call: Call, left_s: float | None) -> tuple[bool, str | None]:
        """Whether `confirm` says True, and nothing else that would count as true; and why, where it gave no answer."""
        assert self._confirm is not None
        try:
            answer = self._confirm(call.name, _copy(call.args))
            if inspect.isawaitable(answer):
                answer = await self._clock.within(left_s, answer)
            return answer is True, None
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return False, clipped(": ".join(describe(error)), MAX_REASON_CHARS)
        except DeadlineExceeded:
            return False, "the wall clock of the run ran out"
        except ConfirmFailed as failed:
            return False, failed.failure
        except Exception as error:
            return False, clipped(": ".join(describe(error)), MAX_REASON_CHARS)

    async def _run(
        self, call: Call, tool: Tool, step: int, position: int, approval: Approval | None, left_s: float | None
    ) -> CallRecord:
        if approval is not None and approval.binding != _binding(call, step, position):
            return _refusal(call, "denied", "approval_mismatch", self._texts.say("tool.denied.confirm", name=call.name))
        self._counts[call.name] = self._counts.get(call.name, 0) + 1
        key = None
        if tool.spec.side_effect:
            place = self._position if tool.spec.idempotency == "position" else None
            self._position += 1
            key = idempotency_key(self._head.run_id, call.name, canonical_json(call.args), place)
        if call.name == READ_RANGE and tool.function is read_range:
            done = self._read_range(call, step, position)
        else:
            done = await self._port.invoke(tool, call, step=step, position=position, key=key, left_s=left_s)
        shown = None if done.outcome == "ok" else self._explain(call, tool, done, left_s)
        return CallRecord(
            call=call,
            outcome=done.outcome,
            result=done.result,
            error=done.error,
            shown=shown,
            key=key,
            approval=approval,
            served_by=done.served_by,
        )

    def _read_range(self, call: Call, step: int, position: int) -> Invocation:
        if (fixed := self._fixed(call, step, position)) is not None:
            return Invocation(outcome=fixed.outcome, result=fixed.result, error=fixed.error)
        try:
            return Invocation(outcome="ok", result=self._artifacts.read_range(**call.args))
        except ArtifactError as error:
            return Invocation(outcome="error", error=ToolFault(type="ArtifactError", message=str(error)))

    def _explain(self, call: Call, tool: Tool, done: Invocation, left_s: float | None) -> str | None:
        """The text for the model where the result alone does not say what happened."""
        say, name = self._texts.say, call.name
        match done.outcome:
            case "ok":
                return None
            case "duplicate":
                return say("tool.duplicate", name=name, text=result_text(done.result))
            case "timeout":
                limits = [s for s in (tool.spec.timeout_s, left_s) if s is not None]
                key = "tool.timeout_effect" if tool.spec.side_effect else "tool.timeout"
                return say(key, name=name, seconds=f"{min(limits, default=0):.3g}")
            case "unknown_outcome":
                return say("tool.unknown_outcome", name=name)
            case "cancelled":
                return say("tool.cancelled", name=name)
            case "denied":
                kind = "" if done.error is None else done.error.type
                return say(_DENIED_BY_PORT.get(kind, "tool.conflict"), name=name)
            case _:
                error = done.error or ToolFault(type=done.outcome, message="")
                return say("tool.error", name=name, type=error.type, message=error.message[:_MAX_ERROR_CHARS])

    def _fixed(self, call: Call, step: int, position: int) -> CallRecord | None:
        """What is shown of a call where that is given from outside, as for one that was masked when it was recorded."""
        fixed = self._port.shown.get((step, position)) if self._port.shown else None
        return fixed if fixed is not None and fixed.call == call else None

    def _present(self, record: CallRecord, step: int, position: int) -> CallRecord:
        """Bound what is shown; what does not fit is kept as an artifact that `read_range` reads."""
        if (fixed := self._fixed(record.call, step, position)) is not None:
            return msgspec.structs.replace(record, shown=fixed.shown, artifact=fixed.artifact, fixed=True)
        text = shown_text(record)
        limit = self._head.context.max_observation_chars
        if len(text) <= limit:
            return record
        handle = self._artifacts.put(text) if READ_RANGE in self._tools else None

        def mark(cut: int, total: int, handle: str | None, language: str, *, start: int) -> str:
            rest = self._texts.say("cut.rest", handle=handle, start=start) if handle is not None else ""
            return self._texts.say("cut", cut=cut, total=total, rest=rest)

        shown = show(text, limit=limit, handle=handle, language=self._head.language, mark=mark)
        return msgspec.structs.replace(record, shown=shown.text, artifact=handle)

    def _has_effect(self, call: Call) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.spec.side_effect


def _binding(call: Call, step: int, position: int) -> str:
    return approval_binding(call.name, canonical_json(call.args), step, position)


def _refusal(call: Call, outcome: Any, kind: str, text: str, approval: Approval | None = None) -> CallRecord:
    """A call that was not run; the error's message is what the model is shown."""
    return CallRecord(call=call, outcome=outcome, error=ToolFault(type=kind, message=text), approval=approval)


def _copy(args: dict[str, Any]) -> dict[str, Any]:
    return dict(msgspec.json.decode(compact_json(args)))


async def _together(work: list[Any]) -> list[CallRecord]:
    """Await all. A run that is cancelled cancels every one of them, and awaits them, before it goes on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            with suppress(asyncio.CancelledError):  # once more: the first is raised when all have ended
                await asyncio.wait(pending)
        raise
