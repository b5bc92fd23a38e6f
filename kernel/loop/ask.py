"""Ask the model: one reserved call, its transport errors retried with backoff inside the budgets, settled after."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from kernel.errors import ModelError
from kernel.loop.limits import Spending
from kernel.loop.read import Prompt, Transcript
from kernel.loop.tracer import Tracer
from kernel.record import (
    MAX_ATTEMPT_CHARS,
    Attempt,
    Chat,
    Reply,
    RunHead,
    StopReason,
    ToolCall,
    Usage,
    clipped,
    describe,
    output_bound,
    valid_text,
)
from kernel.seams import DeadlineExceeded, Seams

FIRST_WAIT_S = 0.5
MAX_WAIT_S = 60.0
"""A server that asks for a longer pause is not waited for: the run ends and says so."""

DEADLINE = "deadline"
_OPTIONAL_TEXTS = ("reasoning", "finish_reason", "refusal", "model", "response_id")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_INF = float("inf")


class Asking(Protocol):
    """What asking a model needs of the loop."""

    head: RunHead
    seams: Seams
    spending: Spending
    tracer: Tracer
    transcript: Transcript

    @property
    def bound(self) -> int | None: ...
    def elapsed_ns(self) -> int: ...
    def started_ns(self) -> int: ...
    def left_s(self) -> float | None: ...


async def ask(loop: Asking, step: int, prompt: Prompt) -> tuple[Chat, tuple[StopReason, str] | None]:
    """Get a reply. Without one, the second value says why the run must stop."""
    bound = output_bound(prompt.request.params) if prompt.bounded_by else loop.bound
    chat = Chat(
        kept=prompt.request.kept,
        new=prompt.new,
        condensed=prompt.condensed,
        max_output_tokens=bound if prompt.bounded_by else None,
        bounded_by=prompt.bounded_by,
    )
    loop.spending.chats += 1
    digest = loop.tracer.chat_started(step, chat)
    attempts: list[Attempt] = []
    try:
        reply, stop = await _attempted(loop, step, prompt, bound, attempts)
    except BaseException:
        loop.tracer.chat_ended(step, replace(chat, digest=digest, attempts=tuple(attempts)))
        raise
    if reply is not None:
        reply = loop.transcript.identified(loop.spending.counted(reply, prompt.estimated_tokens), step)
        loop.spending.settle(reply, prompt.estimated_tokens)
    chat = replace(chat, digest=digest, reply=reply, attempts=tuple(attempts))
    loop.tracer.chat_ended(step, chat)
    return chat, stop


async def _attempted(
    loop: Asking, step: int, prompt: Prompt, bound: int | None, attempts: list[Attempt]
) -> tuple[Reply | None, tuple[StopReason, str] | None]:
    """The reply, or why there is none; failed attempts are added to `attempts` and reported as they happen."""
    reply: Reply | None = None
    stop: tuple[StopReason, str] | None = None
    while reply is None and stop is None:
        left_s = _left(loop, attempts[-1].elapsed_ns, attempts[-1].wait_s or 0.0) if attempts else loop.left_s()
        token = loop.tracer.enter(step, None)
        try:
            reply = clean(await loop.seams.clock.within(left_s, loop.seams.model.complete(prompt.request)))
        except DeadlineExceeded:
            error = ModelError("the wall clock of the run ran out", kind=DEADLINE, retryable=False)
        except ModelError as failed:
            error = failed
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = _foreign(cancelled)
        except Exception as failed:
            error = _foreign(failed)
        finally:
            loop.tracer.leave(token)
        if reply is None:
            attempt, stop = _failed(loop, step, attempts, error)
            charged = _charged(error, prompt)
            attempts.append(attempt if charged is None else replace(attempt, input_tokens=charged))
            loop.tracer.attempt_failed(step, len(attempts), attempts[-1])
            if charged is not None:
                loop.spending.settle(None, charged)
            if stop is None:
                stop = _reserve_again(loop, prompt, bound)
            if stop is None and attempt.wait_s:
                await loop.seams.clock.sleep(attempt.wait_s)
    return reply, stop


def clean(reply: Reply) -> Reply:
    """The reply with valid Unicode and whole counts: nearly always the very same object.

    A count that is none (negative, a fraction, no number) is unknown, and so is usage that is missing altogether.

    Raises:
        TypeError: a field holds what no reply can hold; the message names it.
    """
    if _is_usual(reply):
        return reply
    if not isinstance(reply, Reply):
        raise TypeError(f"the model must return a Reply, it returned {type(reply).__name__}")
    texts = [("text", reply.text)]
    texts += [(name, value) for name in _OPTIONAL_TEXTS if (value := getattr(reply, name)) is not None]
    for position, call in enumerate(_calls(reply)):
        if not isinstance(call, ToolCall):
            raise TypeError(f"the reply's tool_calls[{position}] must be a ToolCall, it is {type(call).__name__}")
        texts += [(f"tool_calls[{position}].{name}", getattr(call, name)) for name in ("name", "arguments")]
        if call.id is not None:
            texts.append((f"tool_calls[{position}].id", call.id))
    for name, value in texts:
        if not isinstance(value, str):
            raise TypeError(f"the reply's {name} must be text, it is {type(value).__name__}")
    if (
        type(reply.tool_calls) is tuple
        and _is_counted(reply.usage)
        and all(call.id is not None for call in reply.tool_calls)
        and all(value.isascii() or value == valid_text(value) for _, value in texts)
    ):
        return reply
    return msgspec.structs.replace(
        reply,
        text=valid_text(reply.text),
        tool_calls=tuple(
            ToolCall(name=valid_text(c.name), arguments=valid_text(c.arguments), id=valid_text(c.id or ""))
            for c in _calls(reply)
        ),
        usage=_counts(reply.usage),
        **{name: None if (v := getattr(reply, name)) is None else valid_text(v) for name in _OPTIONAL_TEXTS},
    )


def _is_usual(reply: Any) -> bool:
    """Whether a reply surely needs no cleaning: ASCII text alone. Says nothing of any other."""
    return (
        type(reply) is Reply
        and reply.reasoning is None
        and reply.refusal is None
        and (reply.tool_calls == () or _are_usual(reply.tool_calls))
        and type(text := reply.text) is str
        and text.isascii()
        and ((reason := reply.finish_reason) is None or (type(reason) is str and reason.isascii()))
        and ((model := reply.model) is None or (type(model) is str and model.isascii()))
        and ((name := reply.response_id) is None or (type(name) is str and name.isascii()))
        and type(usage := reply.usage) is Usage
        and ((count := usage.input_tokens) is None or (type(count) is int and count >= 0))
        and ((count := usage.output_tokens) is None or (type(count) is int and count >= 0))
        and ((count := usage.cache_read_tokens) is None or (type(count) is int and count >= 0))
        and ((count := usage.cache_write_tokens) is None or (type(count) is int and count >= 0))
        and ((count := usage.reasoning_tokens) is None or (type(count) is int and count >= 0))
    )


def _are_usual(calls: Any) -> bool:
    if type(calls) is not tuple:
        return False
    for call in calls:
        if type(call) is not ToolCall:
            return False
        for text in (call.name, call.arguments, call.id):
            if type(text) is not str or not text.isascii():
                return False
    return True


def _calls(reply: Reply) -> tuple[ToolCall, ...] | list[ToolCall]:
    calls: Any = reply.tool_calls
    if not isinstance(calls, tuple | list):
        raise TypeError(f"the reply's tool_calls must be a tuple of ToolCall, it is {type(calls).__name__}")
    return calls


def _is_counted(usage: Any) -> bool:
    return isinstance(usage, Usage) and all(
        count is None or (type(count) is int and count >= 0) for count in map(usage.__getattribute__, _COUNTS)
    )


def _counts(usage: Any) -> Usage:
    """Usage of which each count is a whole number or unknown."""
    if _is_counted(usage):
        return cast(Usage, usage)
    if usage is None:
        return Usage()
    if not isinstance(usage, Usage):
        raise TypeError(f"the reply's usage must be a Usage, it is {type(usage).__name__}")
    whole = {name: _whole(getattr(usage, name)) for name in _COUNTS}
    return Usage(**whole, estimated=usage.estimated is True)


def _whole(count: Any) -> int | None:
    if isinstance(count, bool) or not isinstance(count, int | float) or count != count or count in (_INF, -_INF):
        return None
    return int(count) if count >= 0 and count == int(count) else None


def _seconds(pause: Any) -> float | None:
    """The pause that a server asks for, if it is one."""
    if isinstance(pause, bool) or not isinstance(pause, int | float) or pause != pause or pause == _INF:
        return None
    return max(float(pause), 0.0)


def _foreign(error: BaseException) -> ModelError:
    kind, message = describe(error)
    return ModelError(message, kind=kind, retryable=False)


def _was_processed(error: ModelError) -> bool:
    """Whether the provider may have charged for a failed attempt; when in doubt it has."""
    return error.kind in ("timeout", "transport", "bad_response", "server", DEADLINE)


def _charged(error: ModelError, prompt: Prompt) -> int | None:
    """What is booked for a failed attempt: what is known, else an estimate where the provider may have charged."""
    if error.input_tokens is not None:
        return error.input_tokens
    return prompt.estimated_tokens if _was_processed(error) else None


def _left(loop: Asking, elapsed_ns: int, waited_s: float) -> float | None:
    timeout_s = loop.head.budget.timeout_s
    return None if timeout_s is None else max(timeout_s - elapsed_ns / 1e9 - waited_s, 0.0)


def _reserve_again(loop: Asking, prompt: Prompt, bound: int | None) -> tuple[StopReason, str] | None:
    """Why the same request, with the same bound on its reply, may not be sent once more."""
    reserved = loop.spending.reserve(prompt.estimated_tokens, bound)
    if reserved.refused is not None:
        reason, detail = reserved.refused
        return reason, f"another attempt at the model call does not fit the budget, {detail}"
    if reserved.bound != bound:
        reason = "cost_budget" if reserved.by.startswith("max_cost_usd") else "token_budget"
        return reason, f"another attempt at the model call does not fit the budget, {reserved.by}"
    return None


def _failed(
    loop: Asking, step: int, attempts: list[Attempt], error: ModelError
) -> tuple[Attempt, tuple[StopReason, str] | None]:
    """Book a failed attempt: how long to wait, or why to stop."""
    number = len(attempts) + 1
    elapsed_ns = loop.seams.clock.now("attempt", step, number) - loop.started_ns()
    attempt = Attempt(
        kind=error.kind,
        message=clipped(valid_text(str(error)), MAX_ATTEMPT_CHARS),
        status=error.status,
        retry_after_s=_seconds(error.retry_after_s),
        retryable=error.retryable,
        elapsed_ns=elapsed_ns,
    )
    if error.kind == DEADLINE:
        limit = loop.head.budget.timeout_s  # None where a replay has no limit today and the recording had one
        stated = "none" if limit is None else f"{limit:g}"
        return attempt, ("timeout", f"timeout_s={stated} ran out during a model call")
    detail = f"{error.kind}: {attempt.message}"
    if not error.retryable or number > loop.head.budget.model_retries:
        return attempt, ("model_error", f"{detail} (attempt {number})")
    wait_s = FIRST_WAIT_S * 2 ** (number - 1) if attempt.retry_after_s is None else attempt.retry_after_s
    left_s = _left(loop, elapsed_ns, 0.0)
    if wait_s > MAX_WAIT_S or (left_s is not None and wait_s >= left_s):
        return attempt, ("model_error", f"{detail}; the wait of {wait_s:g} s before the next attempt is too long")
    return (
        Attempt(
            kind=attempt.kind,
            message=attempt.message,
            status=attempt.status,
            retry_after_s=attempt.retry_after_s,
            retryable=True,
            wait_s=wait_s,
            elapsed_ns=elapsed_ns,
        ),
        None,
    )
