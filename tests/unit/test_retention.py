"""Old traces are removed, and nothing else: a file goes only from where its own content says it was written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel import Tracing
from kernel.testing import CountingClock, CountingIds
from kernel.trace import JOURNAL_SUFFIX, SUFFIX
from tests.helpers import act, finish, play

DAY_NS = 86_400 * 10**9
NOW = 1_767_225_600_000_000_000


def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def written(folder: Path, days: float, name: str = "") -> Path:
    """A trace that was written so many days before NOW."""
    clock, ids = CountingClock(NOW - int(days * DAY_NS)), CountingIds(name or f"run-{days}")
    path = play([finish("done")], trace=Tracing(directory=folder), clock=clock, ids=ids).result.trace_path
    return aged(path, days)


def aged(path: Path, days: float) -> Path:
    time_ns = NOW - int(days * DAY_NS)
    os.utime(path, ns=(time_ns, time_ns))
    return path


def as_journal(path: Path) -> Path:
    """A trace as a killed process leaves it, as far as its name and its first span go."""
    journal = path.with_name(path.name.removesuffix(SUFFIX) + JOURNAL_SUFFIX)
    return path.rename(journal)


def everything_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def test_traces_are_kept_for_so_many_days_and_empty_days_go(tmp_path: Path) -> None:
    kept = {written(tmp_path, days) for days in (1, 6)} | {aged(as_journal(written(tmp_path, 0.5)), 0.5)}
    gone = [written(tmp_path, 8), written(tmp_path, 30), as_journal(written(tmp_path, 31))]
    Tracing(directory=tmp_path, keep_days=7).prune(NOW)
    assert everything_below(tmp_path) == kept
    assert [path.parent.exists() for path in gone] == [False, False, False]


def test_traces_are_kept_up_to_so_many_bytes_the_newest_always_and_a_journal_in_use(tmp_path: Path) -> None:
    files = [written(tmp_path, 10 - n) for n in range(9)]
    live = aged(as_journal(written(tmp_path, 0.5)), 0.5)
    size = files[0].stat().st_size
    Tracing(directory=tmp_path, keep_bytes=3 * size + size // 2).prune(NOW)
    assert everything_below(tmp_path) == {*files[7:], live}
    Tracing(directory=tmp_path, keep_bytes=0).prune(NOW)
    assert everything_below(tmp_path) == {live}


def test_a_run_removes_what_is_too_old(tmp_path: Path) -> None:
    gone = written(tmp_path, 360)
    tracing = Tracing(directory=tmp_path, keep_days=30)
    result = play([act("look", at="x"), finish("done")], trace=tracing, clock=CountingClock(NOW)).result
    assert not gone.exists()
    assert result.trace_path.exists()


def foreign_files(folder: Path) -> list[Path]:
    """Recordings and other files that no retention of `folder` wrote, by every way they may come to lie there."""
    elsewhere = folder.parent / "elsewhere"
    trace = written(elsewhere, 90)
    day, name = trace.parent.name, trace.name
    other_day, other_trace = "2020-02-02", f"agent-{'0' * 32}{SUFFIX}"
    places = [
        f"fixtures/{name}",
        f"fixtures/incident{SUFFIX}",
        f"{other_day}/{name}",
        f"{day}/kept{SUFFIX}",
        f"{day}/{other_trace}",
        f"{day}/{name}.bak",
        f"deep/{day}/{name}",
        name,
    ]
    found = [folder / place for place in places]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(trace, path)
    linked = folder / other_day / f"link-{'1' * 32}{SUFFIX}"
    linked.symlink_to(trace)
    (folder / "2020-03-03").symlink_to(trace.parent)
    (folder / other_day / f"agent-{'2' * 32}{SUFFIX}").write_bytes(b"x" * 1000)
    (folder / other_day / f"agent-{'3' * 32}{JOURNAL_SUFFIX}").write_bytes(b"x" * 1000)
    for path in everything_below(folder) - {linked}:
        if not path.is_symlink():
            aged(path, 90)
    return found


@pytest.mark.parametrize("limits", [{"keep_days": 1}, {"keep_bytes": 0}])
@pytest.mark.parametrize("dot", [False, True])
def test_retention_removes_nothing_that_it_never_wrote(
    dot: bool, limits: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    foreign_files(folder)
    before = everything_below(folder)
    gone = written(folder, 100, "gone")
    written(folder, 0.1, "newest")
    monkeypatch.chdir(folder)
    Tracing(directory="." if dot else folder, **limits).prune(NOW)
    assert before <= everything_below(folder)
    assert not gone.exists()
    assert (tmp_path / "elsewhere").is_dir() and everything_below(tmp_path / "elsewhere")


def test_a_run_that_starts_at_midnight_lies_in_the_day_before_and_is_removed_too(tmp_path: Path) -> None:
    midnight = NOW - 10 * DAY_NS
    clock = CountingClock(midnight - 2_000_000)
    path = play([finish("done")], trace=Tracing(directory=tmp_path), clock=clock).result.trace_path
    assert path.parent.name == "2025-12-21"
    written(tmp_path, 0.1)
    aged(path, 10)
    Tracing(directory=tmp_path, keep_days=1).prune(NOW)
    assert not path.exists()
