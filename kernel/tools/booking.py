"""Book calls with side effects in a ledger around their run, without holding up the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from kernel.record import Call, ToolFault, canonical_json, compact_json, describe, digest, parse_json
from kernel.seams import Invocation
from kernel.stores import Entry, Ledger, MemoryLedger
from kernel.tools.isolate import DIED
from kernel.tools.workers import Workers


class Booking:
    """One run's side of a ledger. A `MemoryLedger` is asked directly, any other in a worker thread.

    A call is finished with its result, or with the exception it raised: an exception is the tool's answer, and the
    effect may have happened before it. What ended otherwise (deadline, cancellation, a process that died) stays begun.
    """

    def __init__(self, ledger: Ledger, *, run_id: str, workers: Workers) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._workers = workers
        self._direct = isinstance(ledger, MemoryLedger)

    async def begin(self, call: Call, key: str) -> Invocation | None:
        """Claim the key; None means that the call may run, anything else is its outcome without a run."""
        begin = functools.partial(
            self._ledger.begin,
            key,
            run_id=self._run_id,
            tool=call.name,
            args_digest=digest(canonical_json(call.args)),
        )
        entry = await self._ask(begin, if_cancelled=functools.partial(self._release, key))
        if isinstance(entry, Entry):
            try:
                return _answer(entry, call.name)
            except ValueError as error:
                entry = error
        _, message = describe(entry)
        return _refusal("error", "LedgerError", f"{call.name} was not run, because it could not be booked: {message}")

    async def finish(self, key: str, done: Invocation) -> str | None:
        """Keep the first result; a text says that the ledger could not keep it, and why."""
        if done.outcome == "ok":
            kept = compact_json(done.result)
        elif done.outcome == "error" and done.error is not None and done.error.type != DIED:
            kept = compact_json({"type": done.error.type, "message": done.error.message})
        else:
            return None
        failed = await self._ask(functools.partial(self._ledger.finish, key, done.outcome, kept))
        if failed is None:
            return None
        kind, message = describe(failed)
        return f"{kind}: the tool ran, but its result could not be booked, so its key stays begun: {message}"

    async def _ask(self, function: Callable[[], Any], *, if_cancelled: Callable[[Any], None] | None = None) -> Any:
        """The function's result, or the exception it raised."""
        if self._direct:
            return _caught(function)
        try:
            future = self._workers.submit("ledger", functools.partial(_caught, function))
        except RuntimeError as error:  # the system gives no more threads
            return error
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if if_cancelled is not None:
                future.add_done_callback(if_cancelled)
            raise

    def _release(self, key: str, begun: asyncio.Future[Any]) -> None:
        """The run was cancelled while the key was being claimed: the call certainly did not run."""
        entry = begun.result()
        if isinstance(entry, Entry) and entry.state == "new":
            self._workers.submit("ledger", functools.partial(_caught, functools.partial(self._ledger.abandon, key)))


def _caught(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return error


def _answer(entry: Entry, tool: str) -> Invocation | None:
    match entry.state:
        case "new":
            return None
        case "started":
            return _refusal(
                "unknown_outcome",
                "unknown_outcome",
                f"a call of {tool} with key {entry.key} was begun in run {entry.run_id} and never finished: "
                "it is unknown whether it took effect, so it is not run again",
            )
        case "conflict":
            return _refusal(
                "denied",
                "conflict",
                f"key {entry.key} stands for a call of {entry.tool} with other arguments (run {entry.run_id})",
            )
        case "done":
            return _first_result(entry)


def _first_result(entry: Entry) -> Invocation:
    """Raises `ValueError` where what was kept cannot be read."""
    kept = parse_json(entry.result or "")
    if entry.outcome == "ok":
        return Invocation(outcome="duplicate", result=kept, served_by="ledger")
    try:
        fault = ToolFault(type=kept["type"], message=kept["message"])
    except (TypeError, KeyError):
        raise ValueError(f"the ledger's entry for key {entry.key} holds no error") from None
    failed = {"$error": fault.type, "message": fault.message}
    return Invocation(outcome="duplicate", result=failed, error=fault, served_by="ledger")


def _refusal(outcome: Any, kind: str, message: str) -> Invocation:
    return Invocation(outcome=outcome, error=ToolFault(type=kind, message=message))
