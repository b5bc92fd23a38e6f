"""Tools in a process of their own: limits hold, the kill reaches children, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel.record.run import Call
from kernel.seams import Invocation, SystemClock
from kernel.stores.ledger import MemoryLedger
from kernel.tools import isolate, isolate_child
from kernel.tools.execute import LiveTools
from kernel.tools.registry import Tool, ToolRegistry

sys.path.append(str(Path(__file__).parent))  # where the new processes find the tools, too
acts = importlib.import_module("isolated_tools")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs process groups")


def tool_of(function: Callable[..., Any], **options: Any) -> Tool:
    registry = ToolRegistry()
    params = None if function is acts.move else {"type": "object"}
    given = {"name": "probe", "params": params, "description": "d", "isolate": True, "timeout": 20, **options}
    registry.register(**given)(function)
    return next(iter(registry))


def run(function: Callable[..., Any], args: dict[str, Any] | None = None, **options: Any) -> Invocation:
    """One call in a run of its own; no descriptor, process or thread is left."""
    key = "k" if options.get("side_effect") else None

    async def go() -> Invocation:
        tools = LiveTools(MemoryLedger(), run_id="r", clock=SystemClock())
        try:
            tool = tool_of(function, **options)
            call = Call(name="probe", args=args or {})
            return await tools.invoke(tool, call, step=1, position=0, key=key)
        finally:
            assert await tools.close() == ()

    pipes, threads, processes = open_pipes(), workers(), children()
    done = asyncio.run(go(), debug=True)
    # What other tests left behind may end meanwhile; nothing may be added.
    assert open_pipes() <= pipes
    assert workers() <= threads
    assert children() <= processes
    return done


def children() -> set[str]:
    """Processes that this one has started and not yet reaped; other tests may have left some."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found.update((task / "children").read_text().split())
    return found


def workers() -> set[str]:
    """The threads that carry calls of tools."""
    return {thread.name for thread in threading.enumerate() if "(_work)" in thread.name}


def open_pipes() -> set[str]:
    """The pipes this process holds; files and sockets are left to the threads of other tests."""
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {link for link in found if link.startswith("pipe:")}


def error_of(done: Invocation) -> tuple[str, str]:
    assert done.outcome == "error"
    assert done.error is not None
    return done.error.type, done.error.message


def test_a_function_runs_in_another_process() -> None:
    done = run(acts.add, {"a": 1, "b": 2**70})
    assert done.outcome == "ok"
    assert done.result["sum"] == 1 + 2**70
    assert done.result["pid"] != os.getpid()


def test_an_async_function_runs_in_another_process() -> None:
    assert run(acts.add_later, {"a": 1, "b": 2}).result == 3


def test_bound_arguments_and_the_key_travel_along() -> None:
    assert run(acts.move, {"point": {"x": 1}}, side_effect=True).result == [{"x": 1, "y": 0}, "k"]


def test_what_the_tool_prints_touches_neither_result_nor_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(acts.noisy).result == "quiet result"
    assert capfd.readouterr() == ("", "")


def test_arguments_and_results_may_be_larger_than_a_pipe() -> None:
    text = "界" * 1_000_000
    assert run(acts.echo_size, {"text": text}).result == [1_000_000, text]


def test_an_exception_comes_back_by_name() -> None:
    assert error_of(run(acts.fail)) == ("LookupError", "nothing there")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            acts.leave,
            "ended with exit status 3 and no result; it is unknown how far it got. Its last output: last words",
        ),
        (acts.abort, "was killed by SIGSEGV; it is unknown how far it got"),
        (acts.fork_and_leave, "ended with exit status 7 and no result; it is unknown how far it got"),
    ],
)
def test_a_process_that_dies_is_an_error_that_says_how(function: Any, said: str) -> None:
    kind, message = error_of(run(function))
    assert (kind, message) == ("ProcessDied", f"the tool's process {said}")


def test_memory_is_limited() -> None:
    kind, _ = error_of(run(acts.eat_memory, memory_mb=64))
    assert kind == "MemoryError"


def test_a_small_memory_limit_leaves_room_for_the_interpreter() -> None:
    assert run(acts.add, {"a": 1, "b": 2}, memory_mb=16).outcome == "ok"


def test_processor_time_is_limited() -> None:
    kind, message = error_of(run(acts.eat_cpu, cpu_s=1))
    assert kind == "ProcessDied"
    assert "it used more than its cpu_s=1" in message


def test_a_result_that_is_too_large_is_an_error_that_names_the_bound() -> None:
    kind, message = error_of(run(acts.return_much))
    assert kind == "ResultTooLarge"
    assert str(isolate_child.MAX_ANSWER_BYTES) in message


def test_a_function_that_cannot_travel_is_an_error_with_the_remedy() -> None:
    kind, message = error_of(run(lambda args: 1))
    assert kind == "ConfigError"
    assert message.endswith(
        "Define it at module level, so that another process can import it by name, with plain arguments."
    )


@pytest.mark.parametrize("cancelled", [False, True], ids=["closed run", "cancelled run"])
def test_the_kill_reaches_the_children_of_the_tool(cancelled: bool, tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    async def go() -> Any:
        tools = LiveTools(run_id="r", clock=SystemClock())
        tool, call = tool_of(acts.with_child, timeout=60), Call(name="probe", args={"fifo": str(fifo)})
        started = asyncio.Event()
        asyncio.get_running_loop().add_reader(reading, started.set)
        work = asyncio.create_task(tools.invoke(tool, call, step=1, position=0, key=None))
        await started.wait()
        asyncio.get_running_loop().remove_reader(reading)
        if cancelled:
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert await tools.close() == ()
        return None if cancelled else (await work).outcome

    try:
        outcome = asyncio.run(go(), debug=True)
        assert os.read(reading, 100) == b"ready"
        select.select([reading], [], [], 5)
        assert os.read(reading, 100) == b"", "the pipe's other end is still held by a child"
        assert outcome in (None, "error")
    finally:
        os.close(reading)


def test_a_tool_over_its_deadline_is_killed() -> None:
    done = run(acts.eat_cpu, timeout=0.2)
    assert done.outcome == "timeout"


def test_a_side_effect_whose_process_died_stays_begun() -> None:
    async def go() -> Any:
        ledger = MemoryLedger()
        tools = LiveTools(ledger, run_id="r", clock=SystemClock())
        tool, call = tool_of(acts.leave, side_effect=True), Call(name="probe")
        got = [(await tools.invoke(tool, call, step=1, position=0, key="k")).outcome for _ in range(2)]
        await tools.close()
        return got

    assert asyncio.run(go()) == ["error", "unknown_outcome"]


def test_the_loop_goes_on_while_a_process_starts() -> None:
    async def go() -> tuple[str, int]:
        tools, ticks = LiveTools(run_id="r", clock=SystemClock()), 0
        call = Call(name="probe", args={"a": 1, "b": 1})
        work = asyncio.create_task(tools.invoke(tool_of(acts.add), call, step=1, position=0, key=None))
        while not work.done():
            ticks += 1
            await asyncio.wait([work], timeout=0.001)
        await tools.close()
        return work.result().outcome, ticks

    outcome, ticks = asyncio.run(go())
    assert outcome == "ok"
    assert ticks > 3


def test_a_call_given_up_before_its_process_starts_starts_none() -> None:
    call = isolate.IsolatedCall(isolate.request(acts.add, ({},), {}, {}))
    call.kill()
    assert error_of(call.run())[0] == "ProcessDied"


SCRIPT = """
import asyncio, sys
from dataclasses import dataclass
from kernel.tools.execute import LiveTools
from kernel.record.run import Call
from kernel.seams import SystemClock
from kernel.tools.registry import ToolRegistry

tools = ToolRegistry()

@tools.register(name="probe", params={"type": "object"}, isolate=True)
def probe(args):
    return args["n"] + 1

async def main():
    live = LiveTools(run_id="r", clock=SystemClock())
    call = Call(name="probe", args={"n": 1})
    done = await live.invoke(tools.get("probe"), call, step=1, position=0, key=None)
    await live.close()
    print(done.result, done.error and done.error.message)

"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ('if __name__ == "__main__":\n    asyncio.run(main())', "2 None\n"),
        ("asyncio.run(main())", "None probe cannot be run with isolate=True: its script would run again from the top"),
    ],
    ids=["guarded", "unguarded"],
)
def test_a_tool_in_a_script_runs_where_the_script_can_be_imported(end: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT + end)
    root = str(Path(isolate.__file__).parents[1])
    shell = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=shell, check=True)
    assert done.stdout.startswith(said)


def test_a_tool_ends_when_the_process_that_called_it_is_gone(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    script = tmp_path / "agent.py"
    script.write_text(
        textwrap.dedent(f"""
        from kernel.tools.isolate import IsolatedCall, request
        import holder
        IsolatedCall(request(holder.hold, ({str(fifo)!r},), {{}}, {{}})).run()
        """)
    )
    (tmp_path / "holder.py").write_text(
        "import signal\ndef hold(path):\n    with open(path, 'w') as f:\n        f.write('x')\n        f.flush()\n"
        "        signal.pause()\n"
    )
    root = str(Path(isolate.__file__).parents[1])
    shell = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, script], env=shell) as caller, open(fifo, "rb") as reading:
        assert reading.read(1) == b"x"
        caller.kill()
        assert reading.read() == b""
