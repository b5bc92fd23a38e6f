"""What cannot be written or read is said, and blamed on nothing else: output, folders, names of files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures" / "order-5xx.trace.json"
MAIN = "from replay.cli import main; main()"
FULL = Path("/dev/full")

VERBS: dict[str, tuple[str, ...]] = {
    "replay": (str(FIXTURE),),
    "replay as JSON": (str(FIXTURE), "--format", "json"),
    "scan": ("scan", str(FIXTURE)),
    "help": ("--help",),
}


def replay(*args: str, shell: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a redirection."""
    line = f'exec "$0" -c "{MAIN}" "$@" {shell}'
    command = ["/bin/sh", "-c", line, sys.executable, *args]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, env=environ, check=False)


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_under_the_output_is_not_blamed_on_the_input_and_is_no_verdict(verb: str) -> None:
    done = replay(*VERBS[verb], shell=">/dev/full")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr and "No space left" in done.stderr
    assert FIXTURE.name not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["replay", "help"])
def test_a_closed_standard_output_is_said_and_is_no_verdict(verb: str) -> None:
    done = replay(*VERBS[verb], shell=">&-")
    assert done.returncode == 2
    assert done.stderr == (
        "replay: standard output is closed, so the report cannot be written: send it to a file, or to /dev/null\n"
    )


@pytest.mark.parametrize(("file", "status"), [(str(FIXTURE), 0), ("nowhere.trace.json", 3)])
@pytest.mark.parametrize("how", ["2>&- <&-", "2>/dev/full"])
def test_a_standard_error_or_input_that_is_closed_or_full_changes_no_verdict(how: str, file: str, status: int) -> None:
    if "full" in how and not FULL.exists():
        return
    done = replay(file, shell=how)
    assert done.returncode == status and "Traceback" not in done.stderr


def test_the_numbers_of_closed_streams_do_not_go_to_files_that_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out.trace.json"
    done = replay(str(FIXTURE), "--output", str(out), shell="2>&- <&-")
    assert done.returncode == 0
    assert json.loads(out.read_text())["resourceSpans"]


# ---- folders

AS_NOBODY = """
import contextlib, io, json, os, sys
from replay.cli import main
def run(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as ended:
            return ended.code, out.getvalue(), err.getvalue()
good, folder = sys.argv[1:3]
verbs = [(), ("check",), ("stats",), ("scan",), ("--format", "json"), ("scan", "--format", "json")]
for verb in verbs:
    run(*verb, good)  # whatever is imported when it is used is there before another user may not read it
if os.geteuid() == 0:
    os.seteuid(65534)
print(json.dumps([run(*verb, folder) for verb in verbs]))
"""


def as_nobody(folder: Path) -> list[tuple[int, str, str]]:
    """Every verb over a folder, by a user who is not root: permissions hold for him."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", AS_NOBODY, str(FIXTURE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return [(status, out, err) for status, out, err in json.loads(done.stdout)]


@pytest.fixture
def recordings(public_path: Path) -> Path:
    """A folder that anybody may read, with one good recording."""
    folder = public_path / "fx"
    folder.mkdir(mode=0o755)
    shutil.copy(FIXTURE, folder / "good.trace.json")
    (folder / "good.trace.json").chmod(0o644)
    return folder


@pytest.mark.parametrize("how", ["deep", "by a link", "not to be listed", "the folder itself", "a file"])
def test_what_cannot_be_read_below_a_folder_is_named_and_is_not_passed_over(how: str, recordings: Path) -> None:
    named = recordings / "team"
    if how == "the folder itself":
        recordings.chmod(0)
        named = recordings
    elif how == "a file":
        named = recordings / "secret.trace.json"
        shutil.copy(FIXTURE, named)
        named.chmod(0)
    elif how == "by a link":
        aim = recordings.parent / "elsewhere"
        (aim / "inner").mkdir(parents=True)
        aim.chmod(0)
        named.symlink_to(aim / "inner")
    else:
        named = recordings / "a" / "b" / "team" if how == "deep" else named
        named.mkdir(parents=True)
        shutil.copy(FIXTURE, named / "secret.trace.json")
        named.chmod(0o311 if how == "not to be listed" else 0)
    try:
        told = as_nobody(recordings)
    finally:
        for path in (recordings, named, recordings.parent / "elsewhere"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
    for status, _, err in told:
        assert status == 3
        assert str(named) in err and "cannot be read: Permission denied" in err
    assert "0 findings in 1 of 2 files" in told[3][1] or how == "the folder itself"


def test_a_linked_folder_is_gone_through_once_and_a_circle_of_links_ends(recordings: Path) -> None:
    other = recordings.parent / "other"
    other.mkdir()
    shutil.copy(FIXTURE, other / "linked.trace.json")
    (recordings / "one").symlink_to(other)
    (recordings / "two").symlink_to(other)
    (recordings / "round").symlink_to(recordings)
    done = replay("scan", str(recordings))
    assert done.returncode == 0 and done.stdout.endswith("0 findings in 2 of 2 files\n")
