"""Snapshots of replays: what they say, and the four ways in which one is not right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from replay.loading import load
from replay.play.play import replay
from replay.suite.extension import diff, file_name
from replay.suite.paths import snapshot_path
from replay.suite.snapshot import snapshot_text
from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = sorted((ROOT / "fixtures").glob("*.trace.json"))


def test_a_missing_snapshot_fails_shows_what_it_would_hold_and_names_the_option(project: Project) -> None:
    project.record("order-5xx")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*order-5xx.trace.json: its snapshot is missing: fixtures/__replays__/order-5xx.replay.txt would hold",
            "  replay snapshot 1",
            '     1 ????????  query_metrics {"service":"order",*} -> ok',
            "next: pytest fixtures/order-5xx.trace.json::replay --replay-update",
            "replay: snapshots 1 missing",
            "FAILED fixtures/order-5xx.trace.json::replay - snapshot missing: pytest *--replay-update",
        ]
    )
    assert not project.snapshot("order-5xx").exists()


def test_a_snapshot_of_the_same_recording_that_differs_has_changed(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    path = project.snapshot("order-5xx")
    path.write_text(path.read_text().replace("stop finish", "stop max_steps"), encoding="utf-8")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*its snapshot changed: *", "  -stop max_steps", "  +stop finish", "replay: snapshots 1 changed"]
    )


def test_a_snapshot_of_another_recording_is_stale(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.record("max-steps", to="order-5xx")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its snapshot is stale: * is of another recording *", "replay: snapshots 1 stale"])


def test_a_snapshot_of_another_format_is_stale(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    path = project.snapshot("order-5xx")
    path.write_text(path.read_text().replace("replay snapshot 1", "replay snapshot 0"), encoding="utf-8")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*is not of this format*", "replay: snapshots 1 stale"])


def test_a_snapshot_without_a_recording_is_unused_and_fails_a_run_that_is_whole(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    (project.fixtures / "max-steps.trace.json").unlink()
    result = project.run()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["unused fixtures/__replays__/max-steps.replay.txt: no recording belongs to it"])
    assert project.snapshot("max-steps").exists()
    assert project.run("--snapshot-warn-unused").ret == pytest.ExitCode.OK


def test_other_tests_alone_do_not_look_for_unused_snapshots(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "max-steps")
    (project.fixtures / "max-steps.trace.json").unlink()
    project.write("tests/test_unit.py", "def test_unit(): pass\n")
    assert project.run("tests").ret == pytest.ExitCode.OK


def test_the_snapshot_does_not_depend_on_the_spelling_of_the_file(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    path = project.fixtures / "order-5xx.trace.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4), encoding="utf-8")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name.removesuffix(".trace.json"))
def test_a_snapshot_is_short_printable_and_free_of_ids_and_times(path: Path) -> None:
    (recording,) = load(path)
    text = snapshot_text(replay(recording))
    assert all(line.isprintable() for line in text.splitlines())
    assert text == snapshot_text(replay(recording))
    assert recording.trace_id not in text
    assert len(text) < 6000
    steps = sum(len(recorded.run.steps) for recorded in recording.runs)
    assert sum(line[:4].strip().isdigit() for line in text.splitlines()) == steps


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("name caf\u00e9", "name cafe\u0301", ["-name caf\\xe9", "+name cafe\\u0301"]),
        ("stop\u00a0finish", "stop finish", ["-stop\\xa0finish", "+stop finish"]),
        ("stop finish ", "stop finish", ["-stop finish\\x20", "+stop finish"]),
        ("stop finish\r", "stop finish", ["-stop finish\\r", "+stop finish"]),
        ("\x1b[2Jstop", "stop", ["-\\x1b[2Jstop", "+stop"]),
    ],
)
def test_a_diff_shows_what_cannot_be_seen(old: str, new: str, shown: list[str]) -> None:
    assert diff(f"{old}\n", f"{new}\n")[1:-1] == shown


names = st.text(alphabet="ab.AB-_[]~ é\u202e", min_size=1, max_size=12).filter(lambda name: name.strip(". ") != "")
ids = st.none() | st.text(alphabet="0123456789abcdef", min_size=32, max_size=32) | st.text(min_size=1, max_size=80)


@given(one=st.tuples(names, ids), other=st.tuples(names, ids))
def test_recordings_and_snapshots_are_one_to_one_also_where_case_is_ignored(
    one: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    """As long as the fixtures themselves are told apart there."""
    fixture, another = (Path("f") / f"{name}.trace.json" for name, _ in (one, other))
    places = snapshot_path(fixture, one[1]), snapshot_path(another, other[1])
    for place, key in zip(places, (one, other), strict=True):
        assert place.is_relative_to(Path("f") / "__replays__") and ".." not in place.parts
        assert len(place.name.encode()) <= max(255, len(f"{key[0]}.trace.json".encode()))
    if fixture.name.lower() != another.name.lower() or one[1] != other[1]:
        assert str(places[0]).lower() != str(places[1]).lower()


@given(one=st.text(min_size=1, max_size=300), other=st.text(min_size=1, max_size=300))
def test_each_test_has_a_snapshot_file_of_its_own(one: str, other: str) -> None:
    names = [file_name(f"test_a[{text}]") for text in (one, other, one + "x" * 300, one + "x" * 300 + "y")]
    assert all(len(name.encode()) <= 220 and not set(name) & set('\\/?*:|"<>\n') for name in names)
    assert len({name.lower() for name in names}) == len({one, other}) + 2 - (len(one) > 300)


@pytest.mark.parametrize("value", ["x" * 240, "Upper", "a/b", "日本語" * 30])
def test_names_that_are_cut_do_not_share_a_snapshot(project: Project, value: str) -> None:
    for name in ("order-5xx", "max-steps"):
        project.record(name)
    rows = ",".join(
        f'pytest.param("{value}{n}", marks=pytest.mark.replay("fixtures/{name}.trace.json"))'
        for n, name in ((1, "order-5xx"), (2, "max-steps"))
    )
    project.write(
        "test_own.py",
        f"import pytest\n@pytest.mark.parametrize('a', [{rows}])\n"
        "def test_own(replayed, replay_snapshot, a): assert replayed == replay_snapshot\n",
    )
    for option in ("--replay-update", "-q"):
        project.run("test_own.py", option).assert_outcomes(passed=2)
    assert len(list((project.path / "__snapshots__" / "test_own").iterdir())) == 2


@pytest.mark.parametrize("update", ["--snapshot-update", "--replay-update"])
def test_the_snapshots_of_skipped_tests_are_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    project.record("order-5xx")
    project.write(
        "test_own.py",
        "import os, pytest\n"
        '@pytest.mark.skipif(not os.environ.get("KEY"), reason="no key")\n'
        '@pytest.mark.parametrize("a", ["x", "y.z", "W" * 250])\n'
        '@pytest.mark.replay("fixtures/order-5xx.trace.json")\n'
        "def test_own(replayed, replay_snapshot, a): assert replayed == replay_snapshot\n",
    )
    monkeypatch.setenv("KEY", "1")
    project.run("--replay-update").assert_outcomes(passed=4)
    before = {path.name for path in project.path.rglob("*.replay")}
    assert len(before) == 3
    monkeypatch.delenv("KEY")
    assert project.run().ret == pytest.ExitCode.OK
    assert project.run(update).ret == pytest.ExitCode.OK
    assert {path.name for path in project.path.rglob("*.replay")} == before


@pytest.mark.parametrize("option", ["", "--replay-update"])
@pytest.mark.parametrize("how", ["a folder for the file", "no UTF-8"])
def test_a_snapshot_that_cannot_be_read_is_named_and_the_replay_counts(project: Project, how: str, option: str) -> None:
    project.settings()
    project.record("order-5xx")
    path = project.snapshot("order-5xx")
    path.parent.mkdir()
    path.mkdir() if how == "a folder for the file" else path.write_bytes(b"\xff\xfe\x00")
    result = project.run(*filter(None, [option]))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert "the snapshot fixtures/__replays__/order-5xx.replay.txt cannot be read: " in text
    assert "replay: 1 same, 0 drifted, 0 diverged, 0 not checked" in text
    assert "replay: snapshots 1 unusable" in text
    assert "Traceback" not in text and "nothing was checked" not in text and "Error: [Errno" not in text


def test_a_snapshot_that_cannot_be_written_is_named_and_the_replay_counts(project: Project) -> None:
    """On a disk that takes no byte more: permissions would not stop root."""
    project.settings()
    project.record("order-5xx")
    project.write(
        "conftest.py",
        """
import resource, signal, pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        return (yield)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
""",
    )
    result = project.run_apart("--replay-update", "-p", "no:pytester")
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "the snapshot fixtures/__replays__/order-5xx.replay.txt cannot be written: File too large" in text
    assert "replay: 1 same" in text and "replay: snapshots 1 unusable" in text
    assert "Traceback" not in text and "no snapshot needed an update" not in text
    assert list(project.snapshot("order-5xx").parent.iterdir()) == []
