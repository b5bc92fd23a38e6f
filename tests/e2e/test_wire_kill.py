"""A program or a gateway that is killed: what had passed is in the trace, what had not is marked open."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from kernel.errors import ConfigError
from replay.wire.aside import Recorder, Setting
from replay.wire.player import Player
from replay.wire.raw import RawAnswer, RawAsked
from replay.wire.stored import Book, load_book
from tests.e2e.wire_provider import Provider, running_provider
from tests.wirelab import replayed
from tests.wireworld import agent

ROOT = Path(__file__).parents[2]
CLIENT = str(Path(__file__).with_name("wire_client.py"))
TRIALS = int(os.environ.get("TRACEFIRST_SOAK") or 1)
TASKS = [f"task {number}" for number in range(12)]


def start(folder: Path, provider: Provider, *program: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", "from replay.cli import main; main()", "record", "-o", str(folder / "r.trace.json")]
    words += ["--upstream", provider.url, "--", sys.executable, *program]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}
    return subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(provider: Provider, count: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 60
    while provider.count < count:
        assert time.monotonic() < ends, f"only {provider.count} of {count} requests came"
        assert process.poll() is None, "the recording ended first"
        time.sleep(0.001)


def check_prefix(book: Book, at_least: int) -> None:
    """All that had passed is there and replays; the rest is open."""
    done = [e for e in book.exchanges if e.answer.end == "complete"]
    assert len(done) >= at_least
    assert [e.number for e in done] == list(range(1, len(done) + 1)), "what is missing is the end"
    assert all(e.answer.end in ("open", "aborted") for e in book.exchanges[len(done) :])
    assert not book.problems
    player = Player(book)
    for task in TASKS[: len(done) // 3]:
        assert replayed(player, "chat", agent("chat", task)) == f"{task}: seen {task} 2"
    assert player.account().refused == 0


@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_killed_gateway_leaves_what_had_passed(seed: int, tmp_path: Path) -> None:
    count = random.Random(seed).randint(2, 3 * len(TASKS) - 1)
    with running_provider() as provider:
        process = start(tmp_path, provider, CLIENT, "chat", "--tasks", ",".join(TASKS))
        wait_for(provider, count, process)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    path = tmp_path / "r.trace.json"
    ends = time.monotonic() + 60
    while not path.exists():  # the recorder outlives the gateway: it writes what was handed to it, and closes the trace
        assert time.monotonic() < ends, "the recorder did not close the trace"
        time.sleep(0.005)
    # the client asks for the next only when it has the last: all but the last one had passed
    check_prefix(load_book(path), count - 1)


def test_a_killed_recorder_leaves_its_journal_and_fails_no_call(tmp_path: Path) -> None:
    recorder = Recorder(Setting(name="lab", file=str(tmp_path / "r.trace.json")))
    asked = RawAsked(number=1, upstream="x", method="GET", target="/models", headers={}, body=b"", encoding="", at_ns=1)
    answered = RawAnswer(
        number=1,
        status=200,
        reason="OK",
        headers={},
        chunks=[(1, b"{}")],
        encoding="",
        end="complete",
        detail="",
        lost_bytes=0,
        at_ns=2,
    )
    recorder.tell(asked)
    recorder.tell(answered)
    path = tmp_path / "r.trace.journal"
    ends = time.monotonic() + 60
    while b'"complete' not in path.read_bytes().replace(b"\\", b""):
        assert time.monotonic() < ends
        time.sleep(0.005)
    recorder._process.kill()
    recorder._process.wait(60)
    recorder.tell(structs.replace(asked, number=2))
    summary = recorder.close()
    assert any("the recorder is gone" in warning for warning in summary.warnings)
    assert any("what it wrote is in the journal" in warning for warning in summary.warnings)
    assert [e.answer.end for e in load_book(path).exchanges] == ["complete"]


def test_a_recording_that_cannot_be_opened_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "r.trace.json").write_text("here already")
    with pytest.raises(ConfigError, match="is there already and is not written over"):
        Recorder(Setting(name="lab", file=str(tmp_path / "r.trace.json")))


def test_a_killed_program_leaves_a_whole_trace(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import json, os, signal, urllib.request\n"
        "body = {'model': 'm-1', 'messages': [{'role': 'user', 'content': 'why?'}]}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "for _ in range(2):\n"
        "    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())).read()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with running_provider() as provider:
        process = start(tmp_path, provider, str(script))
        assert process.wait(60) == 128 + signal.SIGKILL
    book = load_book(tmp_path / "r.trace.json")
    assert [e.answer.end for e in book.exchanges] == ["complete", "complete"]
    assert book.recording is not None
    ends = [one.run.end for one in book.recording.runs]
    assert [(end.ok, "not seen on the wire" in end.detail) for end in ends if end is not None] == [(False, True)] * 2


def test_an_interrupt_ends_the_program_first_and_the_trace_is_whole(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import json, os, signal, sys, time, urllib.request\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "body = {'model': 'm-1', 'messages': [{'role': 'user', 'content': 'why?'}]}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())).read()\n"
        "open(sys.argv[1], 'w').close()\n"
        "time.sleep(600)\n"
    )
    ready = tmp_path / "ready"
    with running_provider() as provider:
        process = start(tmp_path, provider, str(script), str(ready))
        ends = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < ends, "the program did not come to wait"
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 9
    assert len(load_book(tmp_path / "r.trace.json").exchanges) == 1
