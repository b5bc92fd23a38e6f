"""Files that are made to stop a reader: they are refused with a reason, in little time and memory, and nothing blocks."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kernel.errors import TraceError
from kernel.trace import JOURNAL_SUFFIX
from replay import load, scan_file
from replay.cli import main
from replay.readers import find_trace, iter_traces, read_traces
from replay.readers.packed import Cut, Damaged, TooMuch, Trailing, unpacked

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures" / "order-5xx.trace.json"

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)

    def command(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(args)
        return int(ended.value.code or 0), capsys.readouterr().err

    return command


VERBS: dict[str, tuple[str, ...]] = {
    "replay": (),
    "show": ("show",),
    "check": ("check",),
    "stats": ("stats",),
    "scan": ("scan",),
    "import": ("import", "-o", "out"),
    "diff": ("diff", str(FIXTURE)),
}

# ---- regular files only


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Names that are no plain files, and links to such."""
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(tmp_path)  # the name of a socket is short
    server.bind("socket")
    os.chdir(before)
    (tmp_path / "folder.trace.json").mkdir()
    found = {"pipe": tmp_path / "pipe", "socket": tmp_path / "socket", "folder": tmp_path / "folder.trace.json"}
    found |= {"device": Path("/dev/zero"), "terminal": Path("/dev/tty")}
    for name, aim in list(found.items()):
        link = tmp_path / f"{name}-link.trace.json"
        link.symlink_to(aim)
        found[f"{name}-link"] = link
    (tmp_path / "dangling.trace.json").symlink_to("nowhere")
    (tmp_path / "loop.trace.json").symlink_to("loop.trace.json")
    yield found | {"dangling": tmp_path / "dangling.trace.json", "loop": tmp_path / "loop.trace.json"}
    server.close()


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_plain_file_is_refused_by_every_verb_and_blocks_none(
    verb: str, odd: dict[str, Path], run: Command
) -> None:
    for name, path in odd.items():
        status, told = run(*VERBS[verb], str(path))
        assert status == 3 and told.startswith("replay: ") and "defect" not in told, (name, told)


@pytest.mark.parametrize("read", [load, read_traces, scan_file, lambda path: find_trace(path, "0" * 32)])
def test_what_is_no_plain_file_is_refused_in_python_as_well(read: Callable[[Path], Any], odd: dict[str, Path]) -> None:
    for path in odd.values():
        with pytest.raises(TraceError):
            read(path)
        with pytest.raises(TraceError):
            list(iter_traces(path))


def test_a_folder_is_gone_through_although_such_files_are_in_it(
    odd: dict[str, Path], tmp_path: Path, run: Command
) -> None:
    shutil.copy(FIXTURE, tmp_path / "good.trace.json")
    status, told = run(str(tmp_path))
    assert status == 3
    for name in ("pipe-link", "socket-link", "device-link", "dangling", "loop"):
        assert f"{name}.trace.json" in told


# ---- numbers, zeros


def numbers() -> list[tuple[str, str]]:
    """The fixture with one number made very long, for each kind of place that a number has."""
    text = FIXTURE.read_text()
    long = "1" + "0" * 5000
    places = {
        "time as text": (r'"startTimeUnixNano":"\d+"', f'"startTimeUnixNano":"{long}"'),
        "time": (r'"startTimeUnixNano":"\d+"', f'"startTimeUnixNano":{long}'),
        "end": (r'"endTimeUnixNano":"\d+"', f'"endTimeUnixNano":"{long}"'),
        "event": (r'"timeUnixNano":"\d+"', f'"timeUnixNano":"{long}"'),
        "integer as text": (r'"intValue":"\d+"', f'"intValue":"{long}"'),
        "integer": (r'"intValue":"\d+"', f'"intValue":{long}'),
        "kind": (r'"kind":\d', f'"kind":{long}'),
        "argument": (r'limit\\":\d', f'limit\\":{long}'),
        "below the limit": (r'"startTimeUnixNano":"\d+"', f'"startTimeUnixNano":"{long[:4000]}"'),
        "negative": (r'"startTimeUnixNano":"\d+"', '"startTimeUnixNano":"-5"'),
        "65 bits": (r'"endTimeUnixNano":"\d+"', f'"endTimeUnixNano":"{2**64}"'),
        "float": (r'"startTimeUnixNano":"\d+"', '"startTimeUnixNano":1e308'),
        "step": (r'"key":"tracefirst.step.index","value":\{"intValue":"\d+"', f'"key":"tracefirst.step.index","value":{{"intValue":"{long[:300]}"'),
        "tokens": (r'"key":"gen_ai.usage.input_tokens","value":\{"intValue":"\d+"', f'"key":"gen_ai.usage.input_tokens","value":{{"intValue":"{long[:300]}"'),
    }  # fmt: skip
    found = []
    for name, (pattern, put) in places.items():
        changed, count = re.subn(pattern, put.replace("\\", "\\\\"), text, count=1)
        if count:
            found.append((name, changed))
    assert len(found) >= 12
    return found


@pytest.mark.parametrize(("name", "text"), numbers(), ids=[name for name, _ in numbers()])
@pytest.mark.parametrize("verb", VERBS)
def test_numbers_of_any_length_are_read_or_refused_but_no_defect(verb: str, name: str, text: str, run: Command) -> None:
    Path("n.trace.json").write_text(text)
    status, told = run(*VERBS[verb], "n.trace.json")
    assert "defect" not in told and "set_int_max_str_digits" not in told
    if "time" in name or name in ("end", "65 bits", "negative", "float", "below the limit"):
        assert status == (0 if verb == "scan" else 3), told


def test_a_sparse_file_is_refused_by_its_beginning(tmp_path: Path) -> None:
    """With a quarter of the memory that it would take."""
    with open(tmp_path / "zeros.trace.json", "wb") as file:
        file.truncate(2 * 2**30)
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); from replay.cli import main; main()"
    )
    for verb in ((), ("scan",), ("check",), ("import", "-o", "out")):
        command = [sys.executable, "-c", limited, *verb, "zeros.trace.json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60)
        assert done.returncode == 3 and "begins with zeros only" in done.stderr, done.stderr


# ---- packed data


class Counting(io.BytesIO):
    """Counts the bytes that are read from it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def pack(kind: str, data: bytes) -> bytes:
    return gzip.compress(data) if kind == "gzip" else zstandard.compress(data)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_very_many_members_are_read_in_time_that_grows_with_the_file(kind: str) -> None:
    """Counted in bytes read: a reader that begins anew behind each member reads the square of the file."""
    packed = pack(kind, b"start ") + pack(kind, b"") * 5_000 + pack(kind, b"end")
    stream = Counting(packed)
    assert b"".join(unpacked(stream, limit=100)) == b"start end"
    assert stream.count < 40 * len(packed)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("members", [1, 40])
def test_unpacking_stops_at_its_bound(kind: str, members: int) -> None:
    packed = pack(kind, b" " * (40_000_000 // members)) * members
    handed_out = 0
    with pytest.raises(TooMuch, match="more than 1 MiB"):
        for piece in unpacked(io.BytesIO(packed), limit=1 << 20):
            handed_out += len(piece)
    assert handed_out <= 1 << 20


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_what_is_cut_damaged_or_has_something_behind_it_is_told_apart(kind: str) -> None:
    text = bytes(range(256)) * 1000
    packed = pack(kind, text)

    def read(data: bytes) -> bytes:
        return b"".join(unpacked(io.BytesIO(data), limit=1 << 30))

    assert read(packed) == read(packed + b"\0" * 1000) == text
    with pytest.raises(Cut):
        read(packed[:-5])
    with pytest.raises(Trailing):
        read(packed + b"more")
    with pytest.raises((Damaged, Cut)):
        read(packed[:5] + b"\xff" * 20 + packed[25:])


@pytest.mark.parametrize("verb", ["replay", "scan", "import"])
def test_a_file_of_blanks_that_unpacks_to_gigabytes_is_refused(verb: str, run: Command) -> None:
    Path("spaces.json.gz").write_bytes(gzip.compress(b" " * (64 << 20), compresslevel=1) * 32)
    status, told = run(*VERBS[verb], "spaces.json.gz")
    assert status == 3 and "more than 512 MiB" in told


def test_scan_says_that_it_did_not_read_what_stands_behind_packed_data(run: Command) -> None:
    Path("x.gz").write_bytes(gzip.compress(b"nothing here") + b"AKIAIOSFODNN7EXAMPLE")
    status, told = run("scan", "x.gz")
    assert status == 3 and "something else stands behind" in told


# ---- counts that a file chooses


def test_a_journal_of_very_many_events_is_read_whole_and_in_order(tmp_path: Path) -> None:
    ids = '"traceId":"' + "1" * 32 + '","spanId":"' + "2" * 16 + '"'
    lines = ['{"tracefirst":"journal","version":1}', f'{{"s":{{{ids},"name":"x","startTimeUnixNano":"1"}}}}']
    lines += [f'{{"v":{{{ids},"event":{{"name":"{n}","timeUnixNano":"{n}"}}}}}}' for n in range(100_000)]
    path = tmp_path / f"x{JOURNAL_SUFFIX}"
    path.write_text("\n".join(lines) + "\n")
    (trace,) = read_traces(path).traces
    assert [event.time_ns for event in trace.spans[0].events] == list(range(100_000))


def test_spans_without_ids_among_ids_that_are_taken_each_get_one_of_their_own() -> None:
    taken = [
        {"traceId": "1" * 32, "spanId": f"{n:016x}", "name": "x", "startTimeUnixNano": "1"} for n in range(1, 3001)
    ]
    taken += [{**span, "spanId": f"{n:016x}"} for n, span in enumerate(taken, 3001)]
    nameless = [{"traceId": "1" * 32, "name": f"n{n}", "startTimeUnixNano": "1"} for n in range(3000)]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": taken + nameless}]}]}
    (trace,) = read_traces(json.dumps(document).encode()).traces
    assert len({span.span_id for span in trace.spans}) == len(trace.spans) == 9000


def test_very_many_documents_in_a_row_are_read_and_the_line_of_a_bad_one_is_right() -> None:
    good = json.dumps(json.loads(FIXTURE.read_text()))
    text = " ".join(['{"resourceMetrics":[]}'] * 50_000) + "\n" + good + "\n  \n[1]"
    with pytest.raises(TraceError, match="line 4"):
        read_traces(text.encode())
