"""Run tools for real: on the loop, in a thread or in a process, with a deadline that lies outside the tool.

    arguments → pace → ledger → run until the deadline → result as JSON → ledger

Every call is started as something of its own (a task, a worker thread, a process) and waited for from outside. At the
deadline its slot is sealed and it is told to end; what it still says becomes an entry of `late`, never a result.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from kernel.errors import ConfigError
from kernel.record import MAX_CHARS, Call, CallRecord, Outcome, ToolFault, compact_json, describe, to_jsonable
from kernel.seams import Clock, Invocation
from kernel.stores import Ledger
from kernel.tools.booking import Booking
from kernel.tools.isolate import IsolatedCall, request
from kernel.tools.registry import Tool
from kernel.tools.tasks import Tasks
from kernel.tools.workers import Workers

OnEffect = Callable[[int, int, Call, str], None]
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Late(Struct, frozen=True, kw_only=True):
    """What a call said after its slot was sealed, or why the ledger could not keep its result."""

    tool: str
    step: int
    position: int
    outcome: Outcome
    text: str


class _Place(Struct, frozen=True, gc=False):
    tool: Tool
    step: int
    position: int


class _Started(Struct, frozen=True):
    """A call under way. `stop` tells it to end and says whether it is worth waiting for that."""

    future: asyncio.Future[Any]
    stop: Callable[[], bool]


class _Pending(Struct, frozen=True):
    """A sync function gave back something to await."""

    awaitable: Any


class LiveTools:
    """Tools that really run.

    Async tools get a task of their own, sync tools a worker thread, `isolate` tools a process. Calls are independent of
    each other. With a `ledger`, a call that has a key and side effects is booked there; see `kernel.tools.booking`.

    Args:
        grace_s: how long a call that was told to end is waited for; in `close`, all of them together.
        clock: where calls wait for their turn (`calls_per_second`).
        on_effect: told step, position, call and key of each call with a side effect, right before its tool runs.
    """

    concurrent = True
    shown: Mapping[tuple[int, int], CallRecord] = {}

    def __init__(
        self,
        ledger: Ledger | None = None,
        *,
        run_id: str,
        grace_s: float = 0.25,
        clock: Clock,
        on_effect: OnEffect | None = None,
    ) -> None:
        self.late: list[Late] = []
        self._grace_s = grace_s
        self._clock = clock
        self._on_effect = on_effect
        self._workers = Workers()
        self._tasks = Tasks()
        self._booking = None if ledger is None else Booking(ledger, run_id=run_id, workers=self._workers)
        self._running: dict[asyncio.Future[Any], tuple[_Place, _Started]] = {}
        self._next_turn: dict[str, float] = {}
        self._step: tuple[int, float | None] = (0, None)
        self._step_ends_at: float | None = None
        self._is_closed = False

    async def invoke(
        self, tool: Tool, call: Call, *, step: int, position: int, key: str | None, left_s: float | None = None
    ) -> Invocation:
        """Run one call; raises only cancellation of the run, `KeyboardInterrupt`, and the exit of a signal's handler."""
        now = asyncio.get_running_loop().time()
        ends_at = self._run_ends_at(step, left_s, now)
        if ends_at is not None and ends_at <= now:
            return _timed_out(tool, "the run had no time left, so it was not run")
        try:
            args, keywords = _arguments(tool, call.args, key)
        except (Exception, SystemExit) as error:
            return _failure("bad_args", error)
        try:
            start = self._starter(tool, args, keywords)
        except ConfigError as error:
            return _failure("error", error)
        if tool.spec.calls_per_second:
            if not await self._turn(tool, tool.spec.calls_per_second, ends_at):
                return _timed_out(tool, "its turn did not come while the run had time left, so it was not run")
            now = asyncio.get_running_loop().time()
        place = _Place(tool, step, position)
        if key is None or not tool.spec.side_effect:
            return await self._run(place, start, ends_at, now)
        refused = None if self._booking is None else await self._booking.begin(call, key)
        if refused is not None:
            return refused
        if self._on_effect is not None:
            self._on_effect(step, position, call, key)
        done = await self._run(place, start, ends_at, asyncio.get_running_loop().time())
        unkept = None if self._booking is None else await self._booking.finish(key, done)
        if unkept is not None:
            self._note(place, "error", unkept)
        return done

    def _run_ends_at(self, step: int, left_s: float | None, now: float) -> float | None:
        """The deadline of the run, which the calls of a step share: one after the other they do not get it each anew."""
        if (step, left_s) != self._step:
            self._step = (step, left_s)
            rest = getattr(self._clock, "rest", None)
            left_s = left_s if rest is None or left_s is None else rest(left_s)
            self._step_ends_at = None if left_s is None else now + left_s
        return self._step_ends_at

    async def close(self) -> tuple[str, ...]:
        """End all tasks, threads and processes of the run; names the tools of which one could not be ended.

        Takes no longer than `grace_s`, so a cancellation waits for it; to close once more then waits no more.
        """
        for _, started in () if self._is_closed else self._running.values():
            started.stop()
        cancelled = await self._all_ended(asyncio.get_running_loop().time() + self._grace_s)
        threads = self._workers.close()
        self._tasks.abandon()
        self._is_closed = True
        if cancelled is not None:
            self._grace_s = 0.0
            raise cancelled
        tasks = [place.tool.name for future, (place, _) in self._running.items() if isinstance(future, asyncio.Task)]
        return tuple(dict.fromkeys([*tasks, *threads]))

    async def _all_ended(self, ends_at: float) -> asyncio.CancelledError | None:
        """Wait until then for all that runs; a cancellation that came meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        spare = self._tasks.close()
        while True:
            left_s = ends_at - asyncio.get_running_loop().time()
            pending: set[asyncio.Future[Any]] = {task for task in spare if not task.done()}
            if left_s > 0:
                pending |= {*self._running, *self._workers.busy()}
            if not pending:
                return cancelled
            try:
                await asyncio.wait(pending, timeout=left_s if left_s > 0 else None)
            except asyncio.CancelledError as error:
                cancelled = cancelled or error

    # ---- starting

    def _starter(self, tool: Tool, args: tuple[Any, ...], keywords: dict[str, Any]) -> Callable[[], Any]:
        """How to start the call, which gives a `_Started`, or an outcome at once.

        Raises:
            ConfigError: the call cannot be carried to a process of its own.
        """
        if tool.spec.isolate:
            isolated = IsolatedCall(request(tool.function, args, keywords, tool.limits), cpu_s=tool.limits.get("cpu_s"))
            return functools.partial(self._in_process, tool.name, isolated)
        function = functools.partial(tool.function, *args, **keywords)
        return functools.partial(self._as_task if tool.is_async else self._in_thread, tool.name, function)

    def _as_task(self, name: str, function: Callable[[], Any]) -> Any:
        """The outcome at once where the function never waits, else a `_Started`."""
        task, done = self._tasks.start(name, _awaited(function))
        return done if task is None else _Started(task, task.cancel)

    def _in_thread(self, name: str, function: Callable[[], Any]) -> _Started:
        future = self._workers.submit(name, functools.partial(_called, function))

        def stop() -> bool:
            self._workers.abandon(future)
            return False

        return _Started(future, stop)

    def _in_process(self, name: str, isolated: IsolatedCall) -> _Started:
        future = self._workers.submit(name, isolated.run)

        def stop() -> bool:
            isolated.kill()
            return True

        return _Started(future, stop)

    # ---- waiting

    async def _run(self, place: _Place, start: Callable[[], Any], run_ends_at: float | None, now: float) -> Invocation:
        try:
            started = start()
        except RuntimeError as error:  # the system gives no more threads
            return _failure("error", error)
        if type(started) is Invocation:  # it never waited
            return started
        ends_at = None if place.tool.spec.timeout_s is None else now + place.tool.spec.timeout_s
        if run_ends_at is not None and (ends_at is None or run_ends_at < ends_at):
            ends_at = run_ends_at
        done = await self._outcome(place, started, ends_at)
        if isinstance(done, _Pending):
            awaitable = done.awaitable
            done = await self._outcome(place, self._as_task(place.tool.name, lambda: awaitable), ends_at)
        if done is None:
            assert ends_at is not None
            effect = "; it is unknown whether it took effect" if place.tool.spec.side_effect else ""
            return _timed_out(place.tool, f"no result within {max(ends_at - now, 0):.3g} s{effect}")
        if isinstance(done, BaseException):
            raise done
        assert isinstance(done, Invocation)
        return done

    async def _outcome(self, place: _Place, started: Any, ends_at: float | None) -> Any:
        """What the call came to, or None where it had come to nothing by its deadline."""
        if not isinstance(started, _Started):
            return started
        future = started.future
        self._running[future] = (place, started)
        try:
            in_time = await _done_by(future, ends_at)
        except asyncio.CancelledError:  # of the run: `future` itself is never awaited, so nothing leaks out of a tool
            await self._end(started)
            raise
        if in_time:
            del self._running[future]
            return _cancelled() if future.cancelled() else future.result()
        await self._end(started)
        return None

    async def _end(self, started: _Started) -> None:
        """Seal the slot of a call and tell it to end."""
        started.future.add_done_callback(self._ended_late)
        if started.stop():
            await _done_by(started.future, asyncio.get_running_loop().time() + self._grace_s)

    def _ended_late(self, future: asyncio.Future[Any]) -> None:
        place, _ = self._running.pop(future)
        done = _cancelled() if future.cancelled() else future.result()
        if isinstance(done, _Pending):
            _drop(done.awaitable)
            done = Invocation(outcome="ok", result="something to await, which was dropped")
        elif isinstance(done, BaseException):
            done = _failure("error", done)
        if done.outcome == "cancelled" or place.tool.spec.isolate:
            return  # it ended because it was told to
        if done.error is not None:
            self._note(place, done.outcome, f"{done.error.type}: {done.error.message}")
        else:
            self._note(place, done.outcome, done.result if isinstance(done.result, str) else compact_json(done.result))

    def _note(self, place: _Place, outcome: Outcome, text: str) -> None:
        text = text[:MAX_CHARS]
        self.late.append(
            Late(tool=place.tool.name, step=place.step, position=place.position, outcome=outcome, text=text)
        )

    async def _turn(self, tool: Tool, calls_per_second: float, ends_at: float | None) -> bool:
        """Wait for the next free turn of the tool; False where the run's time ends before it."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_turn.get(tool.name, now))
        if ends_at is not None and turn > ends_at:
            await self._clock.sleep(max(ends_at - now, 0.0))
            return False
        self._next_turn[tool.name] = turn + 1 / calls_per_second
        if turn > now:
            await self._clock.sleep(turn - now)
        return True


async def _awaited(function: Callable[[], Any]) -> Any:
    try:
        return Invocation(outcome="ok", result=to_jsonable(await function()))
    except BaseException as error:
        return _caught(error)


def _called(function: Callable[[], Any]) -> Any:
    try:
        result = function()
        return _Pending(result) if inspect.isawaitable(result) else Invocation(outcome="ok", result=to_jsonable(result))
    except BaseException as error:
        return _caught(error)


def _caught(error: BaseException) -> Invocation | BaseException:
    """What a tool raised, as its outcome. Only the user ends the whole program: by Ctrl-C, or by a signal whose handler
    exits. A library in a tool that calls `sys.exit` has failed, no more."""
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and _came_by_signal(error)):
        return error
    return _cancelled() if isinstance(error, asyncio.CancelledError) else _failure("error", error)


def _came_by_signal(error: BaseException) -> bool:
    """Whether the handler of a signal raised it: such a handler runs wherever the main thread is, inside a tool as well."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _cancelled() -> Invocation:
    message = "raised inside the tool, while nobody had cancelled the run"
    return Invocation(outcome="cancelled", error=ToolFault(type="CancelledError", message=message))


def _failure(outcome: Outcome, error: BaseException) -> Invocation:
    kind, message = describe(error)
    return Invocation(outcome=outcome, error=ToolFault(type=kind, message=message))


def _timed_out(tool: Tool, message: str) -> Invocation:
    return Invocation(outcome="timeout", error=ToolFault(type="timeout", message=f"{tool.name}: {message}"))


async def _done_by(future: asyncio.Future[Any], ends_at: float | None) -> bool:
    """Wait for a future without ever cancelling it; what is cancelled here is only the waiting."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(wake)
    timer = None if ends_at is None else loop.call_at(ends_at, wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
    return future.done()


def _arguments(tool: Tool, args: dict[str, Any], key: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for the function, nothing of them shared with the record."""
    own = _copied(args)
    keywords = {} if tool.bind is None else dict(tool.bind(own))
    if tool.wants_key:
        keywords["idempotency_key"] = key
    return ((own,) if tool.bind is None else ()), keywords


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: item if type(item) in _PLAIN else _copied(item) for name, item in value.items()}
    if kind is list:
        return [item if type(item) in _PLAIN else _copied(item) for item in value]
    return value


def _drop(awaitable: Any) -> None:
    """Let it go, without the warning that it was never awaited."""
    close = getattr(awaitable, "close", None) or getattr(awaitable, "cancel", None)
    if close is not None:
        close()
