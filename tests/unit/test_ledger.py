"""A side effect is claimed once, its first result stays, and an unfinished one is never run again unasked."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel.stores.ledger import Entry, Ledger, LedgerError, MemoryLedger, SqliteLedger, idempotency_key


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    return MemoryLedger() if request.param == "memory" else SqliteLedger(tmp_path / "ledger.sqlite")


def begin(ledger: Ledger, key: str = "k", *, run_id: str = "run-1", tool: str = "send", args: str = "a1") -> Entry:
    return ledger.begin(key, run_id=run_id, tool=tool, args_digest=args)


def test_the_first_caller_may_run_and_later_ones_get_the_first_result(ledger: Ledger) -> None:
    assert begin(ledger) == Entry(key="k", state="new", run_id="run-1", tool="send", args_digest="a1")
    ledger.finish("k", "ok", '"sent"')
    again = begin(ledger, run_id="run-2")
    assert again == Entry(
        key="k", state="done", run_id="run-1", tool="send", args_digest="a1", outcome="ok", result='"sent"'
    )


def test_a_call_that_never_finished_is_not_handed_out_again(ledger: Ledger) -> None:
    begin(ledger)
    for run_id in ("run-1", "run-2"):
        entry = begin(ledger, run_id=run_id)
        assert (entry.state, entry.run_id, entry.outcome, entry.result) == ("started", "run-1", None, None)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("other", [{"tool": "delete"}, {"args": "a2"}])
def test_a_key_used_for_another_call_is_a_conflict_that_names_the_first(
    ledger: Ledger, finished: bool, other: dict[str, str]
) -> None:
    begin(ledger)
    if finished:
        ledger.finish("k", "ok", "1")
    entry = begin(ledger, **other)
    assert entry == Entry(key="k", state="conflict", run_id="run-1", tool="send", args_digest="a1")


def test_an_abandoned_call_may_run_again(ledger: Ledger) -> None:
    begin(ledger)
    ledger.abandon("k")
    ledger.abandon("k")
    assert begin(ledger, args="a2").state == "new"


def test_a_finished_call_cannot_be_abandoned(ledger: Ledger) -> None:
    begin(ledger)
    ledger.finish("k", "ok", "1")
    with pytest.raises(LedgerError, match="it did run") as caught:
        ledger.abandon("k")
    assert caught.value.key == "k"
    assert begin(ledger).state == "done"


def test_the_first_result_stays_and_the_same_again_is_fine(ledger: Ledger) -> None:
    begin(ledger)
    ledger.finish("k", "ok", "1")
    ledger.finish("k", "ok", "1")
    with pytest.raises(LedgerError, match="already finished with outcome 'ok'; outcome 'error' came later"):
        ledger.finish("k", "error", "2")
    assert begin(ledger).result == "1"


def test_what_was_never_begun_cannot_be_finished(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="never begun"):
        ledger.finish("k", "ok", "1")


def test_unfinished_calls_are_listed_in_the_order_they_were_begun(ledger: Ledger) -> None:
    for key in ("b", "c", "a", "d"):
        begin(ledger, key)
    ledger.finish("c", "ok", "1")
    ledger.abandon("d")
    assert [(entry.key, entry.state) for entry in ledger.unfinished()] == [("b", "started"), ("a", "started")]


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "\udc00\ud800", "订单 'ok\"; --", "\U0001f600" * 1000])
def test_every_string_comes_back_as_it_was(ledger: Ledger, text: str) -> None:
    begin(ledger, text, run_id=text, tool=text, args=text)
    ledger.finish(text, text, text)
    entry = begin(ledger, text, run_id="other", tool=text, args=text)
    assert (entry.key, entry.run_id, entry.outcome, entry.result) == (text, text, text, text)


def test_of_many_threads_one_may_run(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda n: (n % 5, begin(ledger, f"k{n % 5}").state), range(40)))
    assert sorted(key for key, state in states if state == "new") == [0, 1, 2, 3, 4]
    assert {state for _, state in states} == {"new", "started"}


def test_a_second_ledger_on_the_file_sees_what_the_first_wrote(tmp_path: Path) -> None:
    begin(SqliteLedger(tmp_path / "ledger.sqlite"))
    assert begin(SqliteLedger(str(tmp_path / "ledger.sqlite"))).state == "started"


def test_a_ledger_that_was_deleted_does_not_come_back_empty(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    begin(ledger)
    ledger.path.unlink()
    with pytest.raises(LedgerError, match=r"ledger\.sqlite: the ledger cannot be used"):
        begin(ledger)
    assert not ledger.path.exists()


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
def test_a_file_that_is_no_ledger_is_refused_by_name(
    tmp_path: Path, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    write(path)
    with pytest.raises(LedgerError, match=message) as caught:
        SqliteLedger(path)
    assert str(caught.value).startswith(str(path))


def test_errors_pickle() -> None:
    error = pickle.loads(pickle.dumps(LedgerError("text", "k")))
    assert (str(error), error.key) == ("text", "k")


def test_keys_are_equal_for_a_repeated_call_and_differ_in_each_part() -> None:
    base = idempotency_key("run", "send", '{"to":"a"}', None)
    assert base == idempotency_key("run", "send", '{"to":"a"}', None) == "tf1-" + base[4:]
    assert len(base) == 44 and base.isascii()
    others = {
        idempotency_key("run2", "send", '{"to":"a"}', None),
        idempotency_key("run", "send2", '{"to":"a"}', None),
        idempotency_key("run", "send", '{"to":"b"}', None),
        idempotency_key("run", "send", '{"to":"a"}', 0),
        idempotency_key("run", "send", '{"to":"a"}', 1),
        idempotency_key("runs", "end", '{"to":"a"}', None),
        idempotency_key("run", 'send","x', '{"to":"a"}', None),
        idempotency_key("\ud800", "send", '{"to":"a"}', None),
    }
    assert len(others | {base}) == 9
