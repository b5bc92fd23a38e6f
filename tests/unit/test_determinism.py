"""Same recording, same code: byte-equal output, in any order, in any process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.record import record, scenarios
from replay.loading import load
from replay.play.play import replay

ROOT = Path(__file__).parents[2]
FIXTURES = sorted((ROOT / "fixtures").glob("*.trace.json"))


def report(files: list[Path], seed: str) -> bytes:
    """The JSON report of a process of its own, with its own hash seed."""
    code = "from replay.cli import main; main()"
    names = [str(file.relative_to(ROOT)) for file in files]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", code, *names, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes_give_byte_equal_reports() -> None:
    """No clock, id, hash order or environment reaches a report."""
    assert report(FIXTURES, "1") == report(FIXTURES, "2")


def test_the_order_of_replays_does_not_matter() -> None:
    """A replay leaves nothing behind that another could see."""
    forwards = {file: replay(load(file)[0]) for file in FIXTURES}
    for file in reversed(FIXTURES):
        assert replay(load(file)[0]) == forwards[file]


@pytest.mark.parametrize("name", sorted(scenarios()))
def test_a_fixture_is_recorded_again_byte_for_byte(name: str, tmp_path: Path) -> None:
    """With scripted model, counting clock and ids, the kernel writes the very file that is committed."""
    path = tmp_path / f"{name}.trace.json"
    asyncio.run(record(name, scenarios()[name](), path))
    assert path.read_bytes() == (ROOT / "fixtures" / path.name).read_bytes()


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_every_fixture_replays_with_evidence(file: Path) -> None:
    """`same`, with replies served, nothing unused, and no difference at all."""
    for recording in load(file):
        result = replay(recording)
        assert result.verdict == "same", result.first
        assert result.served.model > 0
        assert (result.unused.model, result.unused.tools) == (0, 0)
