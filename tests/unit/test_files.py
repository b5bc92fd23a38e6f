"""Files at rest: private to their owner, whole or not there, never over another, never outside the folder that was named."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kernel import Tracing
from kernel.export import OtlpSink
from kernel.files import make_private, name_part, write_whole
from kernel.stores import SqliteArchive, SqliteLedger
from replay import load
from replay.cli import main
from replay.importers import save
from tests.helpers import finish, play

FIXTURE = Path(__file__).parents[2] / "fixtures" / "order-5xx.trace.json"


@pytest.fixture(autouse=True)
def a_careless_umask() -> Iterator[None]:
    """Under which a file that is made without thought is readable and writable by everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_every_file_that_is_kept_is_private(tmp_path: Path) -> None:
    play([finish("done")], trace=Tracing(directory=tmp_path / "traces"))
    with SqliteArchive(tmp_path / "archive.db") as archive:
        archive.add("a note")
        ledger = SqliteLedger(tmp_path / "ledger.db")
        ledger.begin("k", run_id="r", tool="t", args_digest="a")
        sink = OtlpSink("http://127.0.0.1:9", spool=tmp_path / "spool")
        play([finish("done")], trace=Tracing(file=tmp_path / "run.trace.json", sinks=[sink]))
        save(load(FIXTURE)[0], tmp_path / "saved.trace.json")
        kept = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    names = {path.name for path in kept}
    assert {"archive.db", "archive.db-wal", "archive.db-shm", "ledger.db", "run.trace.json"} <= names
    assert any(name.endswith(".otlp.jsonl") for name in names) and any(name.endswith(".sent") for name in names)
    assert {f"{mode:o}" for mode in kept.values()} == {"600"}


def test_a_trace_is_private_also_while_it_is_written(tmp_path: Path) -> None:
    modes = []

    class Look:
        def started(self, span: object) -> None:
            modes.extend(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir())

        event = ended = lambda self, *_: None
        close = lambda self: None  # noqa: E731

    play([finish("done")], trace=Tracing(file=tmp_path / "run.trace.json", sinks=[Look()]))
    assert modes and {f"{mode:o}" for mode in modes} == {"600"}


def test_a_private_file_that_is_there_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("kept")
    make_private(path)
    assert path.read_text() == "kept"


@pytest.mark.parametrize("fsync", [False, True])
def test_nothing_is_replaced_unasked(fsync: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(FileExistsError):
        write_whole(path, b"new", replace=False, fsync=fsync)
    assert path.read_text() == "old"
    write_whole(path, b"new", replace=True, fsync=fsync)
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_what_is_no_plain_file_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    before = sorted((path.name, path.lstat().st_mode) for path in tmp_path.iterdir())
    for name in ("pipe", "folder", "link"):
        with pytest.raises(FileExistsError):
            write_whole(tmp_path / name, b"new", replace=True)
    assert sorted((path.name, path.lstat().st_mode) for path in tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "old"


@given(
    st.text(max_size=300) | st.sampled_from(["x/../../../pwned", "..", ".", "", "x\0y", "con\\..\\x", "\ud800", "ä"])
)
def test_no_text_names_a_file_outside_its_folder(text: str) -> None:
    name = name_part(text, "run")
    assert name and len(name.encode()) <= 80 and not name.startswith(".")
    assert not set(name) & set("/\\\0:*?\n")
    assert Path(os.path.normpath(Path("/folder") / f"{name}.trace.json")).parent == Path("/folder")


@given(st.text(min_size=1, max_size=90), st.text(min_size=1, max_size=90))
def test_two_texts_never_share_a_name(one: str, other: str) -> None:
    assert (name_part(one, "run") == name_part(other, "run")) == (one == other)


def test_a_clean_name_stays_as_it_is() -> None:
    assert name_part("4bf92f3577b34da6a3ce929d0e0e4736", "run") == "4bf92f3577b34da6a3ce929d0e0e4736"


# ---- the command line


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command three folders below `tmp_path`; gives status and diagnostics."""
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    shutil.copy(FIXTURE, "in.trace.json")

    def command(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(args)
        return int(ended.value.code or 0), capsys.readouterr().err

    return command


VERBS = {"replay": ("in.trace.json", "--output"), "import": ("import", "in.trace.json", "-o")}


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_is_replaced_only_when_that_is_asked_for(verb: str, run: Callable[..., Any]) -> None:
    Path("out.trace.json").write_text("mine")
    status, told = run(*VERBS[verb], "out.trace.json")
    assert status == 2 and "out.trace.json is there already" in told and "--force" in told
    assert Path("out.trace.json").read_text() == "mine"
    assert run(*VERBS[verb], "out.trace.json", "--force")[0] == 0
    assert load("out.trace.json")


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "dangling"])
@pytest.mark.parametrize("verb", VERBS)
def test_force_replaces_plain_files_only(verb: str, kind: str, run: Callable[..., Any]) -> None:
    out = Path("out.trace.json")
    if kind == "folder":
        out.mkdir()
    elif kind == "pipe":
        os.mkfifo(out)
    else:
        Path("aim").write_text("mine")
        out.symlink_to("aim" if kind == "link" else "nowhere")
    before = out.lstat().st_mode
    status, told = run(*VERBS[verb], str(out), "--force")
    assert status == 2 and "no plain file" in told
    assert out.lstat().st_mode == before and not Path("nowhere").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_recording_is_not_replaced_by_its_own_copy_even_with_force(verb: str, run: Callable[..., Any]) -> None:
    before = Path("in.trace.json").read_bytes()
    assert run(*VERBS[verb], "in.trace.json", "--force")[0] == 2
    assert Path("in.trace.json").read_bytes() == before


TRACE_IDS = ["x/../../../pwned", "x/../../.github/y", "x\0y", "/etc/x", "..", "", "a" * 400, "é/..\\..\\x", "-o"]


@pytest.mark.parametrize("agent", ["ops", "../../../agent", "/abs", "\0"])
@pytest.mark.parametrize("trace_id", TRACE_IDS)
@pytest.mark.parametrize("several", [False, True])
def test_an_import_writes_in_the_folder_that_was_named_and_nowhere_else(
    several: bool, trace_id: str, agent: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    document = json.loads(FIXTURE.read_text())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    evil = json.loads(json.dumps(spans))
    for span in evil:
        span["traceId"] = trace_id
        for attribute in span["attributes"]:
            if attribute["key"] == "gen_ai.agent.name":
                attribute["value"] = {"stringValue": agent}
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] = [*spans, *evil] if several else evil
    Path("in.json").write_text(json.dumps(document))
    before = set(tmp_path.rglob("*"))
    status, told = run("import", "in.json", "--all", "-o", "out/")
    assert "Traceback" not in told
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.parent == Path("out").absolute() for path in made), made
    assert status == 0 and len(made) == 1 + several


def test_an_import_of_several_traces_replaces_none_and_writes_none_where_one_is_there(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    two = (FIXTURE, FIXTURE.with_name("order-5xx-zh.trace.json"))
    traces = [json.dumps(json.loads(path.read_text())) for path in two]
    Path("two.jsonl").write_text("\n".join(traces) + "\n")
    assert run("import", "two.jsonl", "--all", "-o", "out")[0] == 0
    kept, gone = sorted(Path("out").iterdir())
    kept.write_text("mine")
    gone.unlink()
    status, told = run("import", "two.jsonl", "--all", "-o", "out")
    assert status == 2 and str(kept) in told
    assert sorted(Path("out").iterdir()) == [kept] and kept.read_text() == "mine"
