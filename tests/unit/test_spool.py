"""The spool hands records out in the order they came in, each until it is acknowledged, whatever ends in between."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from kernel.export.spool import SUFFIX, Batch, Spool, waiting_elsewhere


def record(number: int, size: int = 0) -> bytes:
    return b'{"n":%d,"pad":"%s"}\n' % (number, b"x" * size)


def numbers(records: tuple[bytes, ...]) -> list[int]:
    return [json.loads(line)["n"] for line in records]


def take_all(spool: Spool, max_bytes: int = 1 << 20, max_records: int = 100) -> list[int]:
    out = []
    while batch := spool.take(max_bytes, max_records):
        out += numbers(batch.records)
        spool.done(batch)
    return out


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def taken(spool: Spool, max_records: int = 100) -> Batch:
    batch = spool.take(1 << 20, max_records)
    assert batch is not None
    return batch


@given(
    sizes=st.lists(st.integers(0, 3000), max_size=40),
    max_bytes=st.integers(1, 5000),
    max_records=st.integers(1, 10),
    on_disk=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_records_come_out_once_in_order_and_in_batches_within_bounds(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_bytes: int, max_records: int, on_disk: bool
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder if on_disk else None)
    spool.append([record(n, size) for n, size in enumerate(sizes)])
    assert spool.waiting == len(sizes)
    out = []
    while batch := spool.take(max_bytes, max_records):
        assert len(batch.records) <= max_records
        assert len(batch.records) == 1 or sum(map(len, batch.records)) <= max_bytes
        out += numbers(batch.records)
        spool.done(batch)
    assert out == list(range(len(sizes)))
    assert (spool.waiting, spool.dropped, spool.error) == (0, 0, None)
    assert list(folder.iterdir()) == []


def test_what_is_not_acknowledged_is_handed_out_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a")
    spool.append([record(n) for n in range(3)])
    first = taken(spool, 2)
    spool.undo(first)
    assert taken(spool, 2).records == first.records
    assert spool.waiting == 3


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "b")
    spool.append([record(0)])
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "b").iterdir()} == {0o600}


def test_over_its_bound_the_oldest_records_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=200_000)
    for n in range(1000):
        spool.append([record(n, 1000)])
        assert sum(path.stat().st_size for path in segments(tmp_path)) <= 200_000
    left = take_all(spool)
    assert left == list(range(1000 - len(left), 1000))
    assert len(left) > 150
    assert spool.dropped == 1000 - len(left)


def test_records_being_sent_are_not_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=100_000)
    spool.append([record(n, 1000) for n in range(50)])
    batch = taken(spool, 3)
    spool.append([record(n, 1000) for n in range(50, 300)])
    spool.done(batch)
    rest = take_all(spool)
    assert numbers(batch.records) == [0, 1, 2]
    assert rest[-1] == 299
    assert len(rest) + 3 + spool.dropped == 300


def test_a_folder_that_cannot_be_written_keeps_records_in_memory_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "spool", max_memory_bytes=10_000)
    spool.append([record(n, 1000) for n in range(20)])
    assert spool.in_memory == spool.waiting == 9
    assert spool.dropped == 11
    assert spool.error is not None
    assert take_all(spool) == list(range(11, 20))


def test_a_disk_that_fills_up_tears_no_record_and_loses_none(tmp_path: Path) -> None:
    """Half a record is written, then the limit strikes: it is kept in memory, and all come out whole and in order."""
    code = """
import json, resource, signal, sys
from pathlib import Path
from kernel.export.spool import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
spool = Spool(Path(sys.argv[1]))
spool.append([b'{"n":%d,"pad":"%s"}\\n' % (n, b"x" * 3000) for n in range(10)])
out = []
while batch := spool.take(5000, 3):
    out += [json.loads(line)["n"] for line in batch.records]
    spool.done(batch)
print(out, spool.in_memory, spool.dropped, spool.error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{list(range(10))} 0 0 spool: File too large\n"


# --- processes that end ----------------------------------------------------------------------------------------------


def test_a_living_process_keeps_its_records_and_a_dead_ones_go_to_exactly_one_other(tmp_path: Path) -> None:
    owner, second, third = Spool(tmp_path), Spool(tmp_path), Spool(tmp_path)
    owner.append([record(n) for n in range(5)])
    assert second.adopt() == 0
    owner.forget_parent()  # lets go of its locks, as the end of its process would
    assert (second.adopt(), third.adopt()) == (5, 0)
    assert take_all(second) == [0, 1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_process_sent_is_not_sent_again(tmp_path: Path) -> None:
    owner, heir = Spool(tmp_path), Spool(tmp_path)
    owner.append([record(n) for n in range(5)])
    owner.done(taken(owner, 2))
    owner.forget_parent()
    assert heir.adopt() == 3
    assert take_all(heir) == [2, 3, 4]


def test_older_records_of_others_go_before_our_own(tmp_path: Path) -> None:
    owner, heir = Spool(tmp_path), Spool(tmp_path)
    owner.append([record(0)])
    heir.append([record(1)])
    owner.forget_parent()
    heir.adopt()
    heir.append([record(2)])
    assert take_all(heir) == [0, 1, 2]


def test_a_segment_cut_at_any_byte_gives_its_whole_lines_and_counts_the_torn_one(tmp_path: Path) -> None:
    owner = Spool(tmp_path)
    owner.append([record(n, n) for n in range(4)])
    owner.forget_parent()
    (path,) = segments(tmp_path)
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / path.name).write_bytes(data[:cut])
        heir = Spool(folder)
        heir.adopt()
        whole = data[:cut].count(b"\n")
        assert take_all(heir) == list(range(whole))
        assert heir.dropped == (0 if data[:cut].endswith(b"\n") or not cut else 1)
        assert segments(folder) == []


@pytest.mark.parametrize("cursor", [b"", b"garbage", b"0000"])
def test_an_unreadable_cursor_sends_again_rather_than_nothing(tmp_path: Path, cursor: bytes) -> None:
    owner = Spool(tmp_path)
    owner.append([record(n) for n in range(2)])
    owner.forget_parent()
    (path,) = segments(tmp_path)
    path.with_name(path.name + ".sent").write_bytes(cursor)
    heir = Spool(tmp_path)
    heir.adopt()
    assert take_all(heir) == [0, 1]


def test_bytes_of_other_living_processes_count_to_the_bound(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path, max_bytes=100_000)
    first.append([record(n, 1000) for n in range(60)])
    second.adopt()
    second.append([record(n, 1000) for n in range(60)])
    assert sum(path.stat().st_size for path in segments(tmp_path)) <= 100_000
    assert second.dropped > 0


def test_a_forked_child_does_not_see_the_parents_records(tmp_path: Path) -> None:
    """In the child the parent's segments are let go without giving up the parent's lock on them."""
    code = """
import os, sys
from pathlib import Path
from kernel.export.spool import Spool
spool = Spool(Path(sys.argv[1]))
spool.append([b"1\\n"])
if os.fork() == 0:
    spool.forget_parent()
    spool.append([b"2\\n"])
    print(spool.adopt(), spool.waiting, spool.take(100, 9).records, flush=True)
    os._exit(0)
os.wait()
print(spool.waiting, spool.adopt(), spool.take(100, 1).records)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "0 1 (b'2\\n',)\n1 1 (b'1\\n',)\n"


def test_records_for_other_headers_are_found_and_left_alone(tmp_path: Path) -> None:
    Spool(tmp_path / "aaaa-1111").append([record(0)])
    (tmp_path / "aaaa-3333").mkdir()
    Spool(tmp_path / "bbbb-1111").append([record(0)])
    assert waiting_elsewhere(tmp_path / "aaaa-2222") == [tmp_path / "aaaa-1111"]
    assert Spool(tmp_path / "aaaa-2222").adopt() == 0
