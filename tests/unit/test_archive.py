"""Notes in Chinese and English are found by any query, in a fixed order, from several processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from kernel.stores.archive import ArchiveError, Note, SqliteArchive

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def archive() -> Iterator[SqliteArchive]:
    with SqliteArchive(":memory:") as opened:
        yield opened


def keys(archive: SqliteArchive, query: str, limit: int = 10) -> list[str]:
    return [note.key for note in archive.search(query, limit)]


@pytest.fixture
def runbooks(archive: SqliteArchive) -> SqliteArchive:
    archive.add(
        "The gateway timed out after the deployment of order-service v2.3.1. Roll back first.",
        title="Gateway timeouts",
        tags=["on-call"],
        key="gateway",
    )
    archive.add("订单服务超时时，先检查数据库连接池，再回滚最近一次发布。", title="订单超时处理", key="orders")
    archive.add("数据仓库每晚两点备份，由 Airflow 调度。", key="warehouse")
    return archive


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("gateway", ["gateway"]),
        ("GATEWAY Deployments?", ["gateway"]),
        ("ｇａｔｅｗａｙ", ["gateway"]),
        ("order-service v2.3.1", ["gateway"]),
        ("on-call", ["gateway"]),
        ("连接池", ["orders"]),
        ("请问数据库的连接池怎么检查？", ["orders", "warehouse"]),
        ("库", ["warehouse", "orders"]),
        ("airflow调度", ["warehouse"]),
        ("how do I roll back 订单服务", ["gateway", "orders"]),
        ("what is the kubernetes namespace of it", []),
        ("网关", []),
        ("", []),
        ("。，！？", []),
    ],
)
def test_notes_are_found_by_word_tag_and_chinese_phrase(runbooks: SqliteArchive, query: str, found: list[str]) -> None:
    assert sorted(keys(runbooks, query)) == sorted(found)


def test_the_best_note_comes_first_and_a_title_weighs_more_than_a_text(archive: SqliteArchive) -> None:
    for n in range(8):
        archive.add("Something else entirely.", key=f"other-{n}")
    archive.add("A note of the gateway.", key="text")
    archive.add("A note of something.", title="gateway", key="title")
    archive.add("A note of the gateway and its latency.", key="both")
    assert keys(archive, "gateway latency") == ["both", "title", "text"]
    scores = [note.score for note in archive.search("gateway latency", 10)]
    assert scores == sorted(scores, reverse=True) and min(scores) > 0
    assert keys(archive, "gateway latency", 1) == ["both"]
    assert keys(archive, "gateway", 0) == keys(archive, "gateway", -1) == []


def test_the_order_does_not_depend_on_the_order_of_adding_and_ties_go_by_key() -> None:
    notes = {"c": "same text 缓存", "a": "same text 缓存", "b": "same text 缓存 and more of it"}
    orders = set()
    for order in permutations(notes):
        with SqliteArchive(":memory:") as archive:
            for key in order:
                archive.add(notes[key], key=key)
            orders.add(tuple((note.key, note.score) for note in archive.search("text 缓存", 10)))
    (only,) = orders
    assert [key for key, _ in only] == ["a", "c", "b"]


@settings(deadline=None)
@given(st.text(st.characters(codec=None)) | st.text("\"'*^:(){}-+ANDORNTE 中文\x00\ud800", max_size=30))
@example('"')
@example("NEAR(a b, 2) AND NOT title : x*")
@example(" ".join(f"w{n}" for n in range(5000)))
@example("错误" * 5000)
def test_no_query_is_a_syntax_error(query: str) -> None:
    with SqliteArchive(":memory:") as archive:
        archive.add(query, key="itself")
        assert keys(archive, query) in ([], ["itself"])
        assert all(fragment.key == "itself" for fragment in archive.fragments(query, 3, 100))


prose = st.text("数据库连接池超时 ab1.。，\n", max_size=1500)


@settings(deadline=None, max_examples=40)
@given(prose, st.data())
def test_every_pair_of_chinese_characters_and_every_short_word_is_found(text: str, data: st.DataObject) -> None:
    """Wherever a long note is cut into passages."""
    words = "".join(" " if c in ".。，\n" else c for c in text).split()
    with SqliteArchive(":memory:") as archive:
        archive.add(text, key="k")
        if words:
            word = data.draw(st.sampled_from(words))
            at = data.draw(st.integers(0, len(word) - 1))
            pair = word[at : at + 2]
            if not any(c in "ab1" for c in pair):
                assert keys(archive, pair) == ["k"]
            if word.isascii():
                assert keys(archive, word) == ["k"]


def test_a_chinese_pair_across_a_hard_cut_is_found(archive: SqliteArchive) -> None:
    archive.add("甲" * 479 + "网关" + "乙" * 900, key="k")
    assert keys(archive, "网关") == ["k"]


@settings(deadline=None, max_examples=50)
@given(st.lists(prose, max_size=3), st.integers(-5, 2000), st.integers(-1, 5))
def test_fragments_stay_within_their_bound_and_are_stretches_of_their_note(
    texts: list[str], max_chars: int, limit: int
) -> None:
    with SqliteArchive(":memory:") as archive:
        for n, text in enumerate(texts):
            archive.add(text, title="标题 ab", key=str(n))
        fragments = archive.fragments("数据库 ab", limit, max_chars)
        assert len(fragments) <= max(limit, 0)
        assert sum(len(fragment.title) + len(fragment.text) for fragment in fragments) <= max(max_chars, 0)
        for fragment in fragments:
            assert fragment.text.removesuffix("…") in texts[int(fragment.key)]


def test_the_fragment_is_the_passage_that_answers(archive: SqliteArchive) -> None:
    filler = "Nothing of interest is said in this sentence about the weather. " * 20
    archive.add(filler + "The root password is rotated by vault every night. " + filler, title="Long", key="long")
    archive.add(filler, key="filler")
    (fragment,) = archive.fragments("vault rotation password", 5, 1000)
    assert fragment.key == "long" and "rotated by vault" in fragment.text and len(fragment.text) <= 480
    (short,) = archive.fragments("vault", 5, 100)
    assert short.text.endswith("…") and len(short.title) + len(short.text) == 100
    assert archive.fragments("vault", 5, 4) == ()


def test_a_note_with_the_same_key_replaces_and_the_same_content_is_one_note(archive: SqliteArchive) -> None:
    first = archive.add("old words", key="k", title="t", tags=("x",))
    assert first == archive.get("k") == Note(key="k", title="t", text="old words", tags=("x",))
    archive.add("new words", key="k")
    assert keys(archive, "old x t") == [] and keys(archive, "new") == ["k"]
    unnamed = archive.add("by content")
    assert archive.add("by content") == unnamed and keys(archive, "content") == [unnamed.key]
    assert archive.add("by content", title="t").key != unnamed.key


def test_a_removed_note_is_gone(archive: SqliteArchive) -> None:
    archive.add("word " * 500, key="k")
    assert archive.remove("k") and not archive.remove("k")
    assert archive.get("k") is None and keys(archive, "word") == []


def test_text_that_no_file_can_hold_is_made_valid(archive: SqliteArchive) -> None:
    note = archive.add("a\ud83d\ude00b \ud800 \x00 c", title="\udfff", key="\ud800")
    assert (note.text, note.title, note.key) == ("a\U0001f600b \ufffd \x00 c", "\ufffd", "\ufffd")
    assert archive.get("\ud800") == note


def test_notes_outlive_the_archive_that_wrote_them(tmp_path: Path) -> None:
    with SqliteArchive(tmp_path / "notes.sqlite") as archive:
        archive.add("kept 保存", key="k")
    with SqliteArchive(str(tmp_path / "notes.sqlite")) as archive:
        assert keys(archive, "保存") == ["k"]


def test_threads_share_one_archive(archive: SqliteArchive) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (archive.add(f"note {n}", key=str(n)), archive.search("note", 3)), range(40)))
    assert len(archive.search("note", 100)) == 40


WRITER = """
import sys
from kernel.stores.archive import SqliteArchive
with SqliteArchive(sys.argv[1]) as archive:
    for n in range(15):
        archive.add(f"shared {n % 5} from {sys.argv[2]} 共享", key=f"{sys.argv[2]}-{n}")
        archive.add(f"the same for all {n}", key=f"common-{n}")
        assert archive.search("共享", 100)
"""


def test_several_processes_create_fill_and_search_one_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)], cwd=ROOT) for n in range(4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    with SqliteArchive(path) as archive:
        assert len(archive.search("共享", 1000)) == 60
        assert len(archive.search("same", 1000)) == 15


def test_a_file_is_opened_and_searched_while_somebody_writes_to_it_in_rollback_mode(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with SqliteArchive(path) as archive:
        archive.add("kept", key="k")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = DELETE")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("PRAGMA user_version = 1")
    with SqliteArchive(path, busy_timeout_s=0) as archive:
        assert keys(archive, "kept") == ["k"]
        with pytest.raises(ArchiveError, match="database is locked"):
            archive.add("refused")
        writer.execute("COMMIT")
        writer.close()
        archive.add("kept too", key="k2")
        assert keys(archive, "kept") == ["k", "k2"]


def write_text(path: Path) -> None:
    path.write_text("These are not the pages of a database. " * 100, encoding="utf-8")


def write_newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_text, "file is not a database"),
        (write_newer, "format 99 is newer than 1"),
        (Path.mkdir, "unable to open"),
    ],
)
def test_a_file_that_is_no_archive_is_refused_by_name(
    tmp_path: Path, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "notes.sqlite"
    write(path)
    with pytest.raises(ArchiveError, match=message) as caught:
        SqliteArchive(path)
    assert str(caught.value).startswith(str(path))


def test_a_closed_archive_says_so(archive: SqliteArchive) -> None:
    archive.close()
    archive.close()
    with pytest.raises(ArchiveError, match="closed database"):
        archive.search("word", 1)
