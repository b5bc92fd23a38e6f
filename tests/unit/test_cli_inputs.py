"""Standard input, a journal that grows, a folder summed up, and annotations for GitHub."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from replay.cli import main
from replay.cli.tailing import tail
from replay.report import Paint, View
from replay.suite.ci import VARIABLES

ROOT = Path(__file__).parents[2]
ORDER = ROOT / "fixtures" / "order-5xx.trace.json"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*args: str, given: bytes | None = None) -> tuple[int, str, str]:
        if given is not None:
            stdin = SimpleNamespace(buffer=io.BytesIO(given), isatty=lambda: False)
            monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_dash_reads_standard_input_in_any_form(run: Run, packed: Callable[[bytes], bytes]) -> None:
    for args in (["-"], ["show", "-"], ["check", "-"], ["stats", "-"], ["diff", "-", str(ORDER)]):
        status, out, err = run(*args, given=packed(ORDER.read_bytes()))
        assert (status, err) == (0, "") and "incident" in out
    status, out, _ = run("-", "--format", "json", given=packed(ORDER.read_bytes()))
    assert json.loads(out)["traces"][0]["verdict"] == "same"
    assert not list(Path.cwd().iterdir())


def test_what_cannot_be_read_from_standard_input_is_said_to_come_from_there(run: Run) -> None:
    status, out, err = run("-", given=b'{"hello": 1}')
    assert (status, out.strip()) == (3, "") or "unusable" in out
    assert "standard input" in err and "/tmp" not in err


def test_a_terminal_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    status, _, err = run("-")
    assert status == 2 and "is a terminal" in err


def journal_lines() -> list[bytes]:
    """The journal of a recording, as its recorder wrote it."""
    import asyncio

    from fixtures.incident import TASK, agent
    from fixtures.record import CAUSE, LOGS, METRICS, finish
    from kernel import ScriptedModel
    from kernel.tracing import Tracing

    lines: list[bytes] = []

    def look() -> None:
        lines[:] = Path("t.trace.journal").read_bytes().splitlines(keepends=True)

    class Model(ScriptedModel):
        async def complete(self, request: object) -> object:
            look()
            return await super().complete(request)  # type: ignore[arg-type]

    model = Model([METRICS, LOGS, finish(CAUSE)])
    asyncio.run(agent.run(TASK, llm=model, trace=Tracing(file="t.trace.json")))
    return lines


def test_a_journal_is_followed_until_its_run_has_ended(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal_lines()
    final = Path("t.trace.json").rename("whole.json")
    journal = Path("t.trace.journal")
    journal.write_bytes(lines[0])
    seen: list[str] = []

    def wait(_: float) -> None:
        seen.append(capsys.readouterr().out)
        if lines:
            with journal.open("ab") as file:
                file.write(lines.pop(0)[:-3] if len(lines) == 1 else lines.pop(0))
        else:
            journal.unlink()
            final.rename("t.trace.json")

    lines.pop(0)
    assert tail(str(journal), View(columns=100, paint=Paint(False)), wait=wait) == 0
    seen.append(capsys.readouterr().out)
    text = "".join(seen)
    assert text.count("task  ") == 1 and text.count("stop   finish") == 1
    assert [text.count(f"\n   {n} ") for n in (1, 2, 3)] == [1, 1, 1]
    assert "   1 " in "".join(seen[:-1]) and "stop" not in "".join(seen[:-1])


def test_a_finished_file_is_shown_once(run: Run) -> None:
    status, out, err = run("show", str(ORDER), "--tail")
    assert (status, err) == (0, "") and out.count("stop   finish") == 1


def test_a_journal_that_is_not_there_is_said(run: Run) -> None:
    status, _, err = run("show", "gone.trace.journal", "--tail")
    assert status == 3 and "no such journal" in err
    status, _, err = run("show", str(ORDER), "--tail", "--step", "1")
    assert status == 2 and "--tail shows one run" in err


def test_a_folder_in_the_place_of_a_file_is_called_one_and_a_file_of_it_is_named(run: Run, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        shutil.copy(ORDER, tmp_path / name / "a.trace.json")
    code, out, err = run("diff", "old", "new")
    assert code == 3
    assert "old: is a folder" in out + err and "a.trace.json" in out + err
    assert "no *.trace.json" not in out + err


@pytest.mark.parametrize("verb", [["show"], ["diff", str(ORDER)], ["import", "-o", "x.trace.json"]])
def test_a_folder_that_holds_recordings_only_further_down_is_called_one_too(
    run: Run, tmp_path: Path, verb: list[str]
) -> None:
    (tmp_path / "all" / "old").mkdir(parents=True)
    shutil.copy(ORDER, tmp_path / "all" / "old" / "a.trace.json")
    code, _, err = run(*verb, "all")
    assert code == 3
    assert "all: is a folder; this verb takes one file, such as all/old/a.trace.json" in err


@pytest.mark.parametrize("verb", [["accepted"], ["accept", "--undo"]])
def test_nothing_is_listed_or_taken_back_where_nothing_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty").mkdir()
    status, _, err = run(*verb, "gone.trace.json", "empty")
    assert status == 3
    assert "gone.trace.json: no such file" in err and "empty: no *.trace.json in this folder" in err


def test_an_undo_of_nothing_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    status, out, err = run("accept", "--undo", str(ORDER))
    assert (status, err) == (0, "") and "nothing was accepted here, so nothing was taken back" in out


def test_a_folder_is_summed_up(run: Run, tmp_path: Path) -> None:
    for name in ("order-5xx", "conversation", "max-steps"):
        shutil.copy(ROOT / "fixtures" / f"{name}.trace.json", tmp_path)
    changed = tmp_path / "max-steps.trace.json"
    changed.write_text(changed.read_text().replace("10:00 11/50", "10:00 12/50"))
    (tmp_path / "no.trace.json").write_text("{}")
    status, out, _ = run("check", ".")
    assert status == 3
    assert "3 recordings: 2 whole, 1 in part, 0 not, 1 unusable" in out
    status, out, _ = run("check", ".", "--format", "json")
    summary = json.loads(out)["summary"]
    assert (summary["whole"], summary["part"], summary["no"]) == (2, 1, 0)
    assert sum(summary["reasons"].values()) >= 1


def test_annotations_name_the_file_and_escape_what_github_reads(run: Run, tmp_path: Path) -> None:
    shutil.copy(ORDER, tmp_path / "good.trace.json")
    shutil.copy(ORDER, tmp_path / "a,b.trace.json")
    bad = tmp_path / "a,b.trace.json"
    bad.write_text(bad.read_text().replace("10:00 11/50", "10:00 12/50"))
    (tmp_path / "no.trace.json").write_text("{}\n")
    status, out, _ = run(".", "--format", "github")
    assert status == 3
    annotations = [line for line in out.splitlines() if line.startswith("::")]
    assert len(annotations) == 2
    assert annotations[0].startswith(("::error file=a%2Cb.trace.json,title=", "::warning file=a%2Cb.trace.json,title="))
    assert annotations[1].startswith("::error file=no.trace.json,title=unusable::")
    assert out.splitlines()[-1].endswith("1 unusable")


def test_annotations_are_quiet_where_all_is_as_recorded(run: Run) -> None:
    assert run(str(ORDER), "--format", "github") == (0, "1 same\n", "")
