"""A spool that cannot be written is no safe place, and nothing says that it is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.errors import ConfigError
from kernel.export import OtlpSink
from kernel.export.spool import Spool
from tests.unit.test_spool import numbers, record, take_all, taken

ROOT = Path(__file__).parents[2]

RUN = """
import json, logging, os, resource, signal, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO, format="%(message)s")
place, how, arg = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
from kernel import Agent, Budget, Tracing
from kernel.export import OtlpSink
from kernel.export.sink import shutdown
def model(prompt):
    return '{"thought":"t","action":"finish","args":{"answer":"x"}}'
def run(sink):
    return Agent(name="a", budget=Budget(max_steps=2)).run_sync("t", llm=model, trace=Tracing(sinks=[sink]))
asked_for = OtlpSink("http://127.0.0.1:9", spool="off")
run(asked_for)  # whatever is imported lazily is there before imports become impossible
if how == "nobody" and os.geteuid() == 0:
    os.seteuid(65534)
if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
if how == "gone":
    os.makedirs(place / "here"); os.chdir(place / "here"); os.rmdir(place / "here")
sink = OtlpSink("http://127.0.0.1:9", spool=arg)
result = run(sink)
print(json.dumps({"stop": result.stop_reason, "warnings": result.warnings, "in_memory": sink.stats.in_memory}))
sys.stdout.flush()
shutdown(0.1)
os._exit(0)
"""
"""Ends without a server and without a place on disk: its spans are lost, whatever it does, and it has to say so."""

VARIANTS = ["nobody", "file", "parent", "long", "loop", "dangling", "device", "proc", "full", "gone"]


def prepare(how: str, place: Path) -> str:
    if how == "nobody":
        (place / "closed").mkdir(mode=0o555)
        return str(place / "closed" / "spool")
    if how in ("file", "parent"):
        (place / "file").write_text("in the way")
        return str(place / "file" if how == "file" else place / "file" / "spool")
    if how == "loop":
        (place / "loop").symlink_to("loop")
        return str(place / "loop")
    if how == "dangling":
        (place / "link").symlink_to("/nowhere/at/all")
        return str(place / "link")
    fixed = {"long": "x" * 300, "device": "/dev/null/spool", "proc": "/proc/spool", "gone": "spool"}
    return fixed.get(how, str(place / "spool"))


@pytest.mark.parametrize("how", VARIANTS)
def test_the_result_and_the_log_say_that_spans_wait_in_memory_and_end_with_the_process(
    how: str, public_path: Path
) -> None:
    arg = prepare(how, public_path)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(public_path / "state")}
    command = [sys.executable, "-c", RUN, str(public_path), how, arg]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environ, cwd=public_path, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["stop"] == "finish" and told["in_memory"] == 3
    assert any("3 spans" in text and "wait in memory" in text and "are lost" in text for text in told["warnings"])
    assert "wait in memory, and are lost when the process ends" in done.stderr
    assert "wait in /" not in done.stderr and "wait in spool" not in done.stderr


def test_what_waited_in_memory_goes_to_disk_when_the_disk_takes_it_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "spool")
    spool.append([record(n) for n in range(3)])
    assert (spool.in_memory, spool.waiting) == (3, 3)
    (tmp_path / "file").unlink()
    spool.append([record(3)])
    assert (spool.in_memory, spool.waiting) == (0, 4)
    assert take_all(spool) == [0, 1, 2, 3]


def test_settling_brings_memory_to_disk_without_a_further_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "spool")
    spool.append([record(0)])
    spool.settle()
    assert spool.in_memory == 1
    (tmp_path / "file").unlink()
    spool.settle()
    assert spool.in_memory == 0 and spool.place == str(tmp_path / "file" / "spool")


def test_what_is_being_sent_from_memory_is_neither_moved_nor_sent_twice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "spool")
    spool.append([record(n) for n in range(4)])
    batch = taken(spool, 2)
    (tmp_path / "file").unlink()
    spool.append([record(4)])
    assert spool.in_memory == 5
    spool.done(batch)
    spool.append([record(5)])
    assert spool.in_memory == 0
    assert numbers(batch.records) + take_all(spool) == [0, 1, 2, 3, 4, 5]
    assert spool.dropped == 0


UNREADABLE = """
import logging, os, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO, format="%(message)s")
from kernel.export import OtlpSink
place = Path(sys.argv[1])
sink = OtlpSink("http://127.0.0.1:9", spool=place)
folder = next(iter(place.glob("*")), None) or sink._outbox.spool.folder
folder.mkdir(parents=True, exist_ok=True); folder.chmod(0o755)
left = folder / "00000000000000000001-1-1.otlp.jsonl"
left.write_bytes(b"{}\\n"); left.chmod(0o600 if os.geteuid() == 0 else 0)
if os.geteuid() == 0:
    os.seteuid(65534)
sink.flush(30)
os._exit(0)
"""


def test_spans_that_another_user_left_in_the_spool_are_named(public_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", UNREADABLE, str(public_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    assert "spans of ended processes cannot be sent: spool " in done.stderr and "Permission denied" in done.stderr


def test_a_folder_that_cannot_be_one_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        OtlpSink("http://127.0.0.1:9", spool="a\0b")
