"""Every key runs at most once: in any order of calls, across racing processes, and after `kill -9` at any point."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings, strategies as st

from kernel.stores.ledger import Entry, Ledger, LedgerError, MemoryLedger, SqliteLedger

ROOT = Path(__file__).resolve().parents[2]

# Waits for a line on stdin, then runs one "effect" per key under the ledger: a line appended between begin and finish.
# Reports each key when it is done with it.
WORKER = """
import os, sys
from kernel.stores.ledger import SqliteLedger
path, effects, *keys = sys.argv[1:]
ledger = SqliteLedger(path)
print("ready", flush=True)
sys.stdin.readline()
effect = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for key in keys:
    entry = ledger.begin(key, run_id=str(os.getpid()), tool="append", args_digest="d")
    if entry.state == "new":
        os.write(effect, (key + "\\n").encode())
        ledger.finish(key, "ok", '"' + key + '"')
    print(key, entry.state, flush=True)
"""

# Begins a key and then hangs in its "tool" until it is killed.
HANGING = """
import sys
from kernel.stores.ledger import SqliteLedger
assert SqliteLedger(sys.argv[1]).begin("k", run_id="killed", tool="send", args_digest="d").state == "new"
print("begun", flush=True)
sys.stdin.readline()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@settings(max_examples=4, deadline=None)
@given(st.integers(2, 4), st.data())
def test_however_processes_race_every_key_runs_exactly_once(processes: int, data: st.DataObject) -> None:
    keys = [f"key-{n}" for n in range(8)]
    orders = [data.draw(st.permutations(keys)) for _ in range(processes)]
    with tempfile.TemporaryDirectory() as folder:
        path, effects = Path(folder, "ledger.sqlite"), Path(folder, "effects.txt")
        workers = [start(WORKER, str(path), str(effects), *order) for order in orders]
        assert [line(worker) for worker in workers] == ["ready"] * processes
        for worker in workers:
            release(worker)
        outputs = [worker.communicate(timeout=60)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * processes
        told = Counter(tuple(row.split()) for output in outputs for row in output.splitlines())
        assert sorted(effects.read_text().split()) == keys
        assert {key: told[key, "new"] for key in keys} == dict.fromkeys(keys, 1)
        assert {state for _, state in told} <= {"new", "started", "done"}
        ledger = SqliteLedger(path)
        assert [state_and_result(ledger, key) for key in keys] == [("done", f'"{key}"') for key in keys]


def release(worker: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
    return worker


def state_and_result(ledger: Ledger, key: str) -> tuple[str, str | None]:
    entry = ledger.begin(key, run_id="later", tool="append", args_digest="d")
    return entry.state, entry.result


def test_a_process_killed_between_begin_and_finish_leaves_an_unknown_outcome() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger.sqlite")
        child = start(HANGING, str(path))
        assert line(child) == "begun"
        alive = SqliteLedger(path).begin("k", run_id="other", tool="send", args_digest="d")
        child.kill()
        child.communicate(timeout=60)
        dead = SqliteLedger(path).begin("k", run_id="other", tool="send", args_digest="d")
        assert alive == dead == Entry(key="k", state="started", run_id="killed", tool="send", args_digest="d")
        assert SqliteLedger(path).unfinished() == (dead,)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 12))
def test_killed_at_any_point_no_effect_is_lost_or_handed_out_again(finished_before_kill: int) -> None:
    keys = [f"key-{n}" for n in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        path, effects = Path(folder, "ledger.sqlite"), Path(folder, "effects.txt")
        child = release(start(WORKER, str(path), str(effects), *keys))
        reported = [line(child) for _ in range(finished_before_kill + 1)][1:]
        child.kill()
        child.communicate(timeout=60)
        ledger = SqliteLedger(path)
        ran = effects.read_text().split() if effects.exists() else []
        states = {key: state_and_result(ledger, key)[0] for key in keys[: len(ran) + 2]}
        assert all(states[row.split()[0]] == "done" for row in reported)
        assert all(states[key] in ("done", "started") for key in ran), (
            "an effect happened that the ledger does not know"
        )
        assert list(states.values()).count("started") <= 1


operations = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "finish", "abandon"]),
        st.sampled_from(["k1", "k2"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(operations)
def test_both_ledgers_give_the_same_answers(calls: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory, sqlite = MemoryLedger(), SqliteLedger(Path(folder, "ledger.sqlite"))
        for call in calls:
            assert answer(memory, *call) == answer(sqlite, *call)
            assert memory.unfinished() == sqlite.unfinished()


def answer(ledger: Ledger, operation: str, key: str, value: str) -> Entry | str | None:
    try:
        if operation == "begin":
            return ledger.begin(key, run_id="run", tool="tool", args_digest=value)
        if operation == "finish":
            ledger.finish(key, "ok", value)
        else:
            ledger.abandon(key)
    except LedgerError as error:
        return str(error)
    return None
