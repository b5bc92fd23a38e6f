"""Running tools: every way a tool can behave has one outcome, and nothing of a run outlives it."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kernel.record.fault import MAX_CHARS
from kernel.record.run import Call
from kernel.seams import Invocation, SystemClock
from kernel.stores.ledger import Entry, Ledger, LedgerError, MemoryLedger, SqliteLedger
from kernel.tools.execute import Late, LiveTools
from kernel.tools.registry import Tool, ToolRegistry
from kernel.tools.workers import Workers

ANY = {"type": "object"}


class InstantClock(SystemClock):
    """Notes how long it was asked to sleep, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 2))


def tool_of(function: Callable[..., Any], **options: Any) -> Tool:
    """`function` as a registered tool; one that takes a dict unless `params=None`."""
    registry = ToolRegistry()
    registry.register(**{"name": "probe", "params": ANY, "description": "d", **options})(function)
    return next(iter(registry))


def live(ledger: Ledger | None = None, *, run_id: str = "r1", grace_s: float = 0.1) -> LiveTools:
    return LiveTools(ledger, run_id=run_id, grace_s=grace_s, clock=InstantClock())


async def invoke(tools: LiveTools, tool: Tool, args: dict[str, Any] | None = None, **more: Any) -> Invocation:
    where: dict[str, Any] = {"step": 1, "position": 0, "key": None, "left_s": None, **more}
    return await tools.invoke(tool, Call(name=tool.name, args=args or {}), **where)


def once(function: Callable[..., Any], args: dict[str, Any] | None = None, **options: Any) -> Invocation:
    """The outcome of one call in a run of its own that leaves nothing alive."""

    async def go() -> Invocation:
        tools = live()
        try:
            return await invoke(tools, tool_of(function, **options), args)
        finally:
            assert await tools.close() == ()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    before = set(threading.enumerate())
    done = asyncio.run(go(), debug=True)
    assert set(threading.enumerate()) <= before
    return done


def waits_first(function: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    async def later(args: Any) -> Any:
        await asyncio.sleep(0)
        return function(args)

    return later


def at_once(function: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    async def now(args: Any) -> Any:
        return function(args)

    return now


def as_it_is(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda args: function(args)


def gives_awaitable(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda args: waits_first(function)(args)


KINDS = pytest.mark.parametrize("kind", [as_it_is, at_once, waits_first, gives_awaitable])


# ---- results


@KINDS
def test_a_result_comes_back_as_a_json_value(kind: Any) -> None:
    done = once(
        kind(lambda args: {"when": dt.date(2020, 1, 2), "raw": b"x", "n": args["n"], "bad": float("nan")}), {"n": 2**70}
    )
    assert done == Invocation(
        outcome="ok",
        result={"when": "2020-01-02", "raw": {"$bytes": "eA=="}, "n": 2**70, "bad": {"$float": "nan"}},
    )


@KINDS
def test_a_result_that_contains_itself_is_recorded(kind: Any) -> None:
    def loop(args: Any) -> Any:
        args["self"] = args
        return args

    assert once(kind(loop)).result == {"self": {"$cycle": True}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@settings(max_examples=20, deadline=None)
def test_a_tool_gets_equal_arguments_that_share_nothing_with_the_record(value: Any) -> None:
    seen = []

    def spoil(args: dict[str, Any]) -> None:
        seen.append(repr(args))
        if isinstance(args["value"], list):
            args["value"].append("more")
        elif isinstance(args["value"], dict):
            args["value"]["more"] = 1
        args.clear()

    call_args = {"value": value, "deep": [{"a": [value]}]}
    before = repr(call_args)
    assert once(at_once(spoil), call_args).outcome == "ok"
    assert seen == [before]
    assert repr(call_args) == before


def test_a_tool_registered_by_signature_gets_bound_keywords() -> None:
    def on(day: dt.date, n: int = 1) -> list[str]:
        return [type(day).__name__, str(n)]

    assert once(on, {"day": "2020-01-02"}, params=None).result == ["date", "1"]


def test_arguments_that_cannot_be_bound_do_not_reach_the_tool() -> None:
    def on(day: dt.date) -> str:
        raise AssertionError("must not run")

    done = once(on, {"day": "never"}, params=None)
    assert (done.outcome, done.error and done.error.type) == ("bad_args", "ValueError")


@pytest.mark.parametrize("params", [ANY, None])
def test_a_tool_that_asks_for_the_key_gets_it(params: Any) -> None:
    if params is None:

        def tell(n: int, idempotency_key: str | None) -> str | None:
            return idempotency_key
    else:

        def tell(args: Any, idempotency_key: str | None) -> str | None:  # type: ignore[misc]
            return idempotency_key

    async def go() -> Any:
        tools = live()
        try:
            return await invoke(tools, tool_of(tell, params=params, side_effect=True), {"n": 1}, key="tf1-k")
        finally:
            await tools.close()

    assert asyncio.run(go()).result == "tf1-k"


@KINDS
def test_context_variables_go_in_and_do_not_come_out(kind: Any) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def change(args: Any) -> str:
        seen = variable.get()
        variable.set("changed by the tool")
        return seen

    async def go() -> Any:
        tools = live()
        variable.set("the run's")
        done = await invoke(tools, tool_of(kind(change)))
        await tools.close()
        return done.result, variable.get()

    assert asyncio.run(go()) == ("the run's", "the run's")


def test_a_context_variable_keeps_its_value_while_an_async_tool_waits() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def count(args: Any) -> int:
        for _ in range(3):
            variable.set(variable.get() + 1)
            await asyncio.sleep(0)
        return variable.get()

    assert once(count).result == 3


def test_an_async_tool_is_one_task_of_its_own_from_its_first_line_on() -> None:
    async def go() -> Any:
        tools = live()
        mine = asyncio.current_task()

        async def tasks(args: Any) -> list[bool]:
            first = asyncio.current_task()
            async with asyncio.timeout(5), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                await asyncio.sleep(0)
            return [first is asyncio.current_task(), first is mine]

        done = await invoke(tools, tool_of(tasks))
        assert asyncio.current_task() is mine
        await tools.close()
        return done.result

    assert asyncio.run(go()) == [True, False]


async def sleep(note: Callable[[Any], None]) -> None:
    await asyncio.sleep(0)
    note("slept")


async def overrun(note: Callable[[Any], None]) -> None:
    try:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    except TimeoutError:
        note("timed out")


async def group(note: Callable[[Any], None]) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sleep(note))
            tasks.create_task(raising())
            await asyncio.Event().wait()
    except* ValueError:
        note("group failed")


async def raising() -> None:
    raise ValueError


async def cancel_itself(note: Callable[[Any], None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        note(("swallowed", task.uncancel()))


async def cancel_what_it_waits_for(note: Callable[[Any], None]) -> None:
    task, inner = asyncio.current_task(), asyncio.create_task(asyncio.Event().wait())
    assert task is not None
    task.cancel()
    try:
        await inner
    except asyncio.CancelledError:
        note(("swallowed", task.uncancel(), inner.cancelled()))


async def handed_over(note: Callable[[Any], None]) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "value")
    note(await asyncio.shield(future))


@given(
    st.lists(st.sampled_from([sleep, overrun, group, cancel_itself, cancel_what_it_waits_for, handed_over]), max_size=4)
)
@settings(max_examples=40, deadline=None)
def test_an_async_tool_runs_as_it_would_in_a_plain_task(script: list[Callable[[Any], Awaitable[None]]]) -> None:
    async def work(notes: list[Any]) -> str:
        for part in script:
            await part(notes.append)
            notes.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
        return "done"

    async def go() -> None:
        plain: list[Any] = []
        assert await asyncio.create_task(work(plain)) == "done"
        tools, mine = live(), []
        for _ in range(2):
            mine.clear()
            assert (await invoke(tools, tool_of(lambda args: work(mine)))).result == "done"
            assert mine == plain

            async def direct(args: Any) -> str:
                return await work(mine)

            mine.clear()
            assert (await invoke(tools, tool_of(direct))).result == "done"
            assert mine == plain
        assert await tools.close() == ()

    asyncio.run(go())


# ---- what tools raise


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Outsider(BaseException):
    pass


@KINDS
@pytest.mark.parametrize(
    ("error", "kind_of_error", "text"),
    [
        (ValueError("no such service"), "ValueError", "no such service"),
        (ValueError(), "ValueError", "ValueError()"),
        (Hostile(), "Hostile", "Hostile, which cannot be shown as text"),
        (Outsider("x"), "Outsider", "x"),
        (GeneratorExit(), "GeneratorExit", "GeneratorExit()"),
        (ValueError("x" * 9000), "ValueError", "x" * MAX_CHARS + " … (9000 characters)"),
        (
            ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup",
            "two (2 sub-exceptions); ValueError: a; KeyError: 'b'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_an_exception_is_an_error_with_its_type_and_a_text(
    kind: Any, error: BaseException, kind_of_error: str, text: str
) -> None:
    def fail(args: Any) -> None:
        raise error

    done = once(kind(fail))
    assert (done.outcome, done.result) == ("error", None)
    assert done.error is not None
    assert (done.error.type, done.error.message) == (kind_of_error, text)


@KINDS
def test_a_cancellation_that_leaks_out_of_a_tool_is_the_tools_failure(kind: Any) -> None:
    def leak(args: Any) -> None:
        raise asyncio.CancelledError

    done = once(kind(leak))
    assert (done.outcome, done.error and done.error.type) == ("cancelled", "CancelledError")


def test_a_tool_that_cancels_its_own_task_fails_alone() -> None:
    async def go() -> list[str]:
        tools = live()

        async def suicide(args: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if args["wait"]:
                await asyncio.sleep(0)

        outcomes = [(await invoke(tools, tool_of(suicide), {"wait": wait})).outcome for wait in (True, False, True)]
        outcomes.append((await invoke(tools, tool_of(waits_first(lambda args: 1)))).outcome)
        await tools.close()
        return outcomes

    assert asyncio.run(go(), debug=True) == ["cancelled", "ok", "cancelled", "ok"]


@KINDS
def test_ctrl_c_is_handed_on(kind: Any) -> None:
    def end(args: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(kind(end))


@KINDS
@pytest.mark.parametrize("code", [0, 2, None, "no settings"])
def test_a_tool_that_leaves_the_program_has_failed(kind: Any, code: Any) -> None:
    def end(args: Any) -> None:
        sys.exit(code)

    done = once(kind(end))
    assert done.outcome == "error" and done.error is not None and done.error.type == "SystemExit"


def test_a_signal_that_ends_the_program_ends_it_inside_a_tool_too() -> None:
    async def wait(args: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    def leave(number: int, frame: Any) -> None:
        sys.exit(143)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit) as ended:
            once(wait)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143


def test_one_failing_call_does_not_disturb_its_siblings() -> None:
    async def go() -> Any:
        tools, met = live(), asyncio.Barrier(3)

        async def work(args: Any) -> int:
            await met.wait()
            if args["n"] == 1:
                raise Outsider("mine alone")
            return int(args["n"])

        tool = tool_of(work)
        done = await asyncio.gather(*[invoke(tools, tool, {"n": n}, position=n) for n in range(3)])
        await tools.close()
        return [(each.outcome, each.result) for each in done]

    assert asyncio.run(go()) == [("ok", 0), ("error", None), ("ok", 2)]


# ---- deadlines


def test_a_sync_tool_that_hangs_times_out_while_the_loop_goes_on_and_its_late_result_is_kept() -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang(args: Any) -> str:
        hanging.set()
        release.wait()
        return "late"

    async def go() -> Any:
        tools, ticks = live(), 0

        async def tick() -> None:
            nonlocal ticks
            await asyncio.to_thread(hanging.wait)
            ticks += 1

        ticking = asyncio.create_task(tick())
        done = await invoke(tools, tool_of(hang, timeout=1.0), step=3, position=2)
        ticking.cancel()
        other = await invoke(tools, tool_of(as_it_is(lambda args: threading.current_thread().name), name="other"))
        late_before = list(tools.late)
        release.set()
        alive = await tools.close()
        return done, ticks, other, late_before, tools.late, alive

    done, ticks, other, late_before, late, alive = asyncio.run(go(), debug=True)
    assert done.outcome == "timeout"
    assert done.result is None
    assert ticks == 1
    assert other.result == "tool other"
    assert late_before == []
    assert late == [Late(tool="probe", step=3, position=2, outcome="ok", text="late")]
    assert alive == ()


def test_a_sync_tool_that_hangs_for_ever_is_named_and_holds_up_nobody() -> None:
    never = threading.Event()

    async def go() -> Any:
        tools = live(grace_s=0.05)
        done = await invoke(tools, tool_of(lambda args: never.wait(), timeout=0.05))
        return done.outcome, await tools.close()

    try:
        assert asyncio.run(go()) == ("timeout", ("probe",))  # else it would not return at all
    finally:
        never.set()


def test_a_worker_is_used_again_unless_its_call_was_given_up() -> None:
    release = threading.Event()

    async def go() -> Any:
        tools = live()
        who = tool_of(lambda args: threading.get_ident())
        first, second = [(await invoke(tools, who)).result for _ in range(2)]

        def hang(args: Any) -> None:
            release.wait()

        await invoke(tools, tool_of(hang, timeout=0.05))
        third = (await invoke(tools, who)).result
        release.set()
        await tools.close()
        return first == second, first == third

    assert asyncio.run(go()) == (True, False)


def test_the_deadline_holds_against_an_async_tool_that_swallows_cancellation() -> None:
    async def go() -> Any:
        tools, release = live(grace_s=0.05), asyncio.Event()

        async def stubborn(args: Any) -> str:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return "at last"

        done = await invoke(tools, tool_of(stubborn, timeout=0.05))
        stuck = await tools.close()
        release.set()
        return done.outcome, stuck, await tools.close(), [(late.outcome, late.text) for late in tools.late]

    assert asyncio.run(go(), debug=True) == ("timeout", ("probe",), (), [("ok", "at last")])


def test_an_async_tool_is_cancelled_at_its_deadline_and_can_tidy_up() -> None:
    tidied = []

    async def slow(args: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(True)

    done = once(slow, timeout=0.05)
    assert done.outcome == "timeout"
    assert done.error is not None
    assert done.error.message == "probe: no result within 0.05 s"
    assert tidied == [True]


def test_the_runs_deadline_counts_beside_the_tools_own() -> None:
    async def go() -> Any:
        tools = live()
        slow = tool_of(lambda args: asyncio.Event().wait(), timeout=60)
        done = await invoke(tools, slow, left_s=0.05)
        await tools.close()
        return done.outcome

    assert asyncio.run(go(), debug=True) == "timeout"


def test_a_run_without_time_left_does_not_start_a_tool() -> None:
    async def go() -> Any:
        tools = live(ledger := MemoryLedger())
        outbox: list[Any] = []
        done = await invoke(tools, tool_of(sent(outbox), side_effect=True), key="k", left_s=0)
        await tools.close()
        return done.outcome, outbox, ledger.unfinished()

    assert asyncio.run(go()) == ("timeout", [], ())


# ---- cancellation of the run


@KINDS
def test_cancelling_the_run_reaches_the_caller_and_leaves_nothing(kind: Any) -> None:
    release = threading.Event()

    async def go() -> Any:
        tools, started = live(), asyncio.Event()
        loop = asyncio.get_running_loop()

        async def wait(args: Any) -> None:
            started.set()
            await asyncio.Event().wait()

        def block(args: Any) -> None:
            loop.call_soon_threadsafe(started.set)
            release.wait()

        tool = tool_of(block if kind is as_it_is else wait)
        work = [asyncio.create_task(invoke(tools, tool, position=n)) for n in range(2)]
        await started.wait()
        for task in work:
            task.cancel()
        got = await asyncio.gather(*work, return_exceptions=True)
        release.set()
        assert await tools.close() == ()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return [type(each) for each in got]

    before = set(threading.enumerate())
    assert asyncio.run(go(), debug=True) == [asyncio.CancelledError, asyncio.CancelledError]
    assert set(threading.enumerate()) <= before


def test_a_call_cancelled_in_the_turn_it_began_in_still_tidies_up() -> None:
    tidied = []

    async def go() -> None:
        tools = live()

        async def wait(args: Any) -> None:
            asyncio.get_running_loop().call_soon(work.cancel)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                tidied.append(True)

        work = asyncio.create_task(invoke(tools, tool_of(wait)))
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await tools.close() == ()

    asyncio.run(go(), debug=True)
    assert tidied == [True]


def test_a_timeout_around_the_run_is_told_apart_from_the_tools() -> None:
    async def go() -> None:
        tools = live()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await invoke(tools, tool_of(lambda args: asyncio.Event().wait()))
        assert await tools.close() == ()

    asyncio.run(go(), debug=True)


def test_a_loop_that_closes_under_a_running_thread_is_no_trouble_for_it() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang(args: Any) -> None:
        release.wait()
        ended.set()

    async def go() -> None:
        await invoke(live(), tool_of(hang, timeout=0.02))

    threads = set(threading.enumerate())
    asyncio.run(go())
    release.set()
    assert ended.wait(5)
    for thread in set(threading.enumerate()) - threads:
        thread.join(5)
        assert not thread.is_alive()


# ---- side effects


def ledgers(tmp_path: Any) -> list[Ledger]:
    return [MemoryLedger(), SqliteLedger(tmp_path / "ledger.db")]


def sent(outbox: list[Any]) -> Callable[[Any], Any]:
    def send(args: Any) -> dict[str, Any]:
        outbox.append(args)
        if args.get("fail"):
            raise ConnectionError("reset after send")
        return {"b": 1, "a": len(outbox)}

    return send


@pytest.mark.parametrize("which", [0, 1], ids=["memory", "sqlite"])
def test_a_repeated_side_effect_gives_the_first_result_and_does_not_run(which: int, tmp_path: Any) -> None:
    outbox: list[Any] = []

    async def go() -> list[Invocation]:
        ledger = ledgers(tmp_path)[which]
        tool, got = tool_of(sent(outbox), side_effect=True), []
        for _ in range(2):  # two runs, one key each for a success and a failure
            tools = live(ledger)
            got += [
                await invoke(tools, tool, {"to": "x"}, key="k1"),
                await invoke(tools, tool, {"fail": True}, key="k2"),
            ]
            assert await tools.close() == ()
        return got

    first, failed, again, failed_again = asyncio.run(go(), debug=True)
    assert len(outbox) == 2
    assert first.result == {"b": 1, "a": 1}
    assert again == Invocation(outcome="duplicate", result=first.result, served_by="ledger")
    assert failed.error is not None
    assert failed_again == Invocation(
        outcome="duplicate",
        result={"$error": "ConnectionError", "message": "reset after send"},
        error=failed.error,
        served_by="ledger",
    )


def test_one_key_with_other_arguments_is_denied() -> None:
    outbox: list[Any] = []

    async def go() -> Invocation:
        tools, tool = live(MemoryLedger()), tool_of(sent(outbox), side_effect=True)
        await invoke(tools, tool, {"to": "x"}, key="k")
        done = await invoke(tools, tool, {"to": "y"}, key="k")
        await tools.close()
        return done

    done = asyncio.run(go())
    assert (done.outcome, done.error and done.error.type) == ("denied", "conflict")
    assert outbox == [{"to": "x"}]


@pytest.mark.parametrize("which", [0, 1], ids=["memory", "sqlite"])
def test_a_side_effect_that_timed_out_is_of_unknown_outcome_and_is_not_run_again(which: int, tmp_path: Any) -> None:
    outbox: list[Any] = []

    async def go() -> Any:
        ledger = ledgers(tmp_path)[which]
        tools = live(ledger)

        async def send(args: Any) -> None:
            outbox.append(args)
            await asyncio.Event().wait()

        tool = tool_of(send, side_effect=True, timeout=0.05)
        got = [await invoke(tools, tool, {"to": "x"}, key="k") for _ in range(2)]
        await tools.close()
        return got, ledger.unfinished()

    (first, second), unfinished = asyncio.run(go(), debug=True)
    assert first.outcome == "timeout"
    assert "unknown whether it took effect" in first.error.message
    assert (second.outcome, second.error.type) == ("unknown_outcome", "unknown_outcome")
    assert outbox == [{"to": "x"}]
    assert [entry.key for entry in unfinished] == ["k"]


def test_tools_without_side_effects_are_not_booked() -> None:
    ledger = MemoryLedger()

    async def go() -> None:
        tools = live(ledger)
        for _ in range(2):
            assert (await invoke(tools, tool_of(at_once(lambda args: 1)), key="k")).outcome == "ok"
        await tools.close()

    asyncio.run(go())
    assert ledger.begin("k", run_id="r", tool="t", args_digest="d").state == "new"


def test_a_ledger_that_fails_keeps_the_tool_from_running(tmp_path: Any) -> None:
    path, outbox = tmp_path / "ledger.db", []
    ledger = SqliteLedger(path)
    path.unlink()

    async def go() -> Invocation:
        tools = live(ledger)
        done = await invoke(tools, tool_of(sent(outbox), side_effect=True), key="k")
        await tools.close()
        return done

    done = asyncio.run(go())
    assert (done.outcome, done.error and done.error.type, outbox) == ("error", "LedgerError", [])


class HalfLedger(MemoryLedger):
    """Begins, and can keep nothing."""

    def finish(self, key: str, outcome: str, result: str) -> None:
        raise LedgerError("disk full", key)


def test_a_result_that_cannot_be_booked_is_given_and_the_trouble_is_noted() -> None:
    async def go() -> Any:
        tools = live(HalfLedger())
        done = await invoke(tools, tool_of(sent([]), side_effect=True), key="k")
        await tools.close()
        return done.outcome, [(late.tool, late.outcome, "disk full" in late.text) for late in tools.late]

    assert asyncio.run(go()) == ("ok", [("probe", "error", True)])


class SlowLedger:
    """A ledger of its own kind, whose `begin` waits until it is let."""

    def __init__(self) -> None:
        self.inner, self.entered, self.let = MemoryLedger(), threading.Event(), threading.Event()

    def begin(self, key: str, *, run_id: str, tool: str, args_digest: str) -> Entry:
        self.entered.set()
        self.let.wait(5)
        return self.inner.begin(key, run_id=run_id, tool=tool, args_digest=args_digest)

    def finish(self, key: str, outcome: str, result: str) -> None:
        self.inner.finish(key, outcome, result)

    def abandon(self, key: str) -> None:
        self.inner.abandon(key)

    def unfinished(self) -> tuple[Entry, ...]:
        return self.inner.unfinished()


def test_a_run_cancelled_while_it_books_leaves_no_entry_for_a_call_that_never_ran() -> None:
    async def go() -> Any:
        ledger, outbox = SlowLedger(), []
        tools = live(ledger, grace_s=2)
        work = asyncio.create_task(invoke(tools, tool_of(sent(outbox), side_effect=True), key="k"))
        assert await asyncio.to_thread(ledger.entered.wait, 5)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        ledger.let.set()
        return await tools.close(), outbox, ledger.unfinished()

    assert asyncio.run(go(), debug=True) == ((), [], ())


def test_a_ledger_that_is_locked_does_not_stop_the_loop(tmp_path: Any) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)

    async def go() -> int:
        tools, ticks = live(ledger), 0
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        work = asyncio.create_task(invoke(tools, tool_of(sent([]), side_effect=True), key="k"))
        for _ in range(20):
            await asyncio.sleep(0)
            ticks += 1
        assert not work.done()
        holder.execute("ROLLBACK")
        holder.close()
        assert (await work).outcome == "ok"
        await tools.close()
        return ticks

    assert asyncio.run(go()) == 20


# ---- pace


def test_calls_wait_for_their_turn_also_when_they_come_together() -> None:
    async def go() -> Any:
        clock = InstantClock()
        tools = LiveTools(run_id="r", clock=clock)
        paced = tool_of(at_once(lambda args: 1), calls_per_second=2)
        free = tool_of(at_once(lambda args: 1), name="free")
        await asyncio.gather(*[invoke(tools, paced, position=n) for n in range(3)], invoke(tools, free))
        late = await invoke(tools, paced, left_s=0.2)
        await tools.close()
        return clock.slept, late.outcome

    slept, late = asyncio.run(go())
    assert slept[:2] == pytest.approx([0.5, 1.0], abs=0.05)
    assert late == "timeout"


def test_a_thread_that_takes_its_time_to_end_is_no_call_that_still_runs() -> None:
    class Lingering:
        """As a thread on a machine so busy that it has not left its loop yet."""

        name = "tool quick"

        def join(self, timeout: float) -> None: ...

        def is_alive(self) -> bool:
            return True

    async def go() -> tuple[str, ...]:
        workers = Workers()
        await workers.submit("quick", lambda: 1)
        for worker in workers._all:
            real, worker.thread = worker.thread, Lingering()  # type: ignore[assignment]
        alive = workers.close()
        real.join()
        return alive

    assert asyncio.run(go()) == ()
