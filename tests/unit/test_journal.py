"""The trace file: whole or not there, never half, and a journal for what was cut short."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel import Agent, ConfigError, ScriptedModel, Tracing
from kernel.errors import TraceError
from kernel.trace.journal import JOURNAL_SUFFIX, Journal, journal_of
from kernel.trace.span import Resource, Span
from replay.loading import load
from tests.helpers import act, finish
from tests.property.test_invariants import Watch, toolbox


def recorded(path: Path) -> bytes:
    """The journal of a run of three steps, as it was just before it became a file."""
    watch = Watch(path)
    model = ScriptedModel([act("look", q="a"), act("write", x=1), finish("done")])
    Agent(tools=toolbox()).run_sync("task", llm=model, trace=Tracing(file=path, join=False, sinks=[watch]))
    return watch.journal


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return recorded(tmp_path_factory.mktemp("journal") / "run.trace.json")


def test_a_clean_end_leaves_the_file_and_no_journal(tmp_path: Path) -> None:
    recorded(tmp_path / "run.trace.json")
    assert [path.name for path in tmp_path.iterdir()] == ["run.trace.json"]


def test_one_record_is_one_line_in_one_write(journal: bytes) -> None:
    assert journal.endswith(b"\n") and len(journal.splitlines()) == journal.count(b"\n") == 1 + 2 * (1 + 3 + 3 + 2)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_cut_at_any_byte_it_is_a_prefix_of_the_steps_or_one_clear_refusal(
    journal: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(journal) - 2))
    path = tmp_path_factory.getbasetemp() / f"cut{JOURNAL_SUFFIX}"
    path.write_bytes(journal)
    [whole] = load(path)
    path.write_bytes(journal[:cut])
    first_span_is_whole = journal[:cut].count(b"\n") >= 2 or cut + 1 >= len(b"".join(journal.splitlines(True)[:2]))
    if not first_span_is_whole:
        with pytest.raises(TraceError) as refused:
            load(path)
        assert "\n" not in str(refused.value)
        return
    [recording] = load(path)
    run = recording.runs[0].run
    done = [step for step in run.steps if step.budget is not None]
    assert done == list(whole.runs[0].run.steps[: len(done)]) and len(run.steps) - len(done) <= 1
    assert run.end is None


def test_two_runs_never_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    journal_of(path).write_bytes(b"of another process\n")
    with pytest.raises(ConfigError, match="is the journal of a run that goes on or was killed"):
        recorded(path)
    assert journal_of(path).read_bytes() == b"of another process\n" and not path.exists()


def test_only_the_owner_may_read_a_journal(tmp_path: Path) -> None:
    made = Journal(tmp_path / "run.trace.json", Resource())
    assert os.stat(journal_of(tmp_path / "run.trace.json")).st_mode & 0o077 == 0
    made.close()


def test_where_the_final_file_cannot_be_written_the_journal_stays_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    made = Journal(path, Resource())
    span = Span(trace_id="a" * 32, span_id="b" * 16, name="step", start_ns=1, attributes={"k": 1})
    made.started(span)
    path.mkdir()
    with pytest.raises(OSError) as failed:
        made.close()
    assert str(journal_of(path)) in str(failed.value) and journal_of(path).exists()


def test_a_full_disk_does_not_reach_the_run_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, written = tmp_path / "run.trace.json", [0]
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        written[0] += 1
        if written[0] > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("kernel.trace.journal.os.write", full)
    model: Any = ScriptedModel([act("look", q="a"), finish("done")])
    result = Agent(tools=toolbox()).run_sync("task", llm=model, trace=Tracing(file=path, join=False))
    assert result.ok and result.answer == "done"
    assert path.exists() or any("No space" in warning for warning in result.warnings)
