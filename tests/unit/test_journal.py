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
    lines = 1 + 2 * (1 + 3 + 3 + 2) + 1  # a header, two a span, and one where a side effect begins
    assert journal.endswith(b"\n") and len(journal.splitlines()) == journal.count(b"\n") == lines


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


def killed(path: Path) -> bytes:
    """What is left of a run whose process was killed: no lock, and a journal without an end."""
    made = Journal(path, Resource())
    made.started(Span(trace_id="a" * 32, span_id="b" * 16, name="step", start_ns=1, attributes={"k": 1}))
    os.close(made._file)
    return journal_of(path).read_bytes()


def test_the_journal_of_a_killed_run_keeps_no_service_down_and_is_kept(tmp_path: Path) -> None:
    """A service that writes to one file starts again after each kill; every journal is there under a name of its own."""
    path = tmp_path / "run.trace.json"
    left = [killed(path), killed(path)]
    result = Agent(tools=toolbox()).run_sync("task", llm=ScriptedModel([finish("done")]), trace=path)
    assert result.ok and path.exists() and not journal_of(path).exists()
    [warning] = result.warnings
    kept = sorted(tmp_path.glob("run.killed-*.trace.journal"))
    assert [one.read_bytes() for one in kept] == left and str(kept[1]) in warning


def test_the_journal_of_a_run_that_goes_on_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    made = Journal(path, Resource())
    with pytest.raises(ConfigError, match="is the journal of a run that goes on"):
        recorded(path)
    assert journal_of(path).exists() and not path.exists()
    made.close()
    assert path.exists()


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appeared_meanwhile_is_not_written_over(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a file system without links; what was recorded is in the journal, and the result says where."""
    if not links:
        monkeypatch.delattr("kernel.trace.journal.os.link")
        monkeypatch.setattr("kernel.trace.journal.os.link", _no_links, raising=False)
    path = tmp_path / "run.trace.json"

    def model(prompt: str) -> str:
        path.write_text("PRECIOUS")
        return finish("done")

    result = Agent().run_sync("task", llm=model, trace=path)
    assert result.ok and path.read_text() == "PRECIOUS"
    [warning] = result.warnings
    assert str(journal_of(path)) in warning and result.trace_path == journal_of(path)
    assert load(journal_of(path))[0].runs[0].run.end is not None
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.trace.journal", "run.trace.json"]
    path.unlink()
    assert Agent().run_sync("task", llm=lambda prompt: finish("again"), trace=path).ok
    assert load(path)[0].runs[0].run.end is not None


def test_with_overwrite_the_trace_of_the_run_before_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    tracing = Tracing(file=path, overwrite=True)
    first, second = (Agent().run_sync("task", llm=lambda prompt: finish("done"), trace=tracing) for _ in range(2))
    assert first.trace_id != second.trace_id == load(path)[0].trace_id and second.warnings == ()

    other = tmp_path / "other.trace.json"
    Agent().run_sync("other", llm=lambda prompt: finish("x"), trace=other)

    def meddles(prompt: str) -> str:
        os.replace(other, path)
        return finish("done")

    third = Agent().run_sync("task", llm=meddles, trace=tracing)
    assert load(path)[0].runs[0].run.head.task == "other" and third.trace_path == journal_of(path)
    path.write_text("PRECIOUS")
    with pytest.raises(ConfigError, match="is there already and is not written over"):
        Agent().run_sync("task", llm=lambda prompt: finish("done"), trace=tracing)
    assert path.read_text() == "PRECIOUS"


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_hidden_journal_gets_its_name_when_it_is_revealed(tmp_path: Path) -> None:
    path = tmp_path / "run.trace.json"
    made = Journal(path, Resource(), hidden=True)
    assert not journal_of(path).exists() and path.parent.exists()
    made.reveal()
    made.reveal()
    assert [one.name for one in tmp_path.iterdir()] == ["run.trace.journal"]
    made.close()
    assert [one.name for one in tmp_path.iterdir()] == ["run.trace.json"]
    with pytest.raises(FileExistsError):
        Journal(path, Resource(), hidden=True)
    path.unlink()
    Journal(path, Resource(), hidden=True).close()
    assert [one.name for one in tmp_path.iterdir()] == ["run.trace.json"]


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
