"""Idempotency ledger: which side effects were begun, which ended, and with what result.

A call with side effects is begun in the ledger *before* the tool runs and finished *after* it returned. Whatever
happens in between, the key tells the next caller the truth:

    nobody began it              "new"       run it, then `finish` (or `abandon`, if it certainly did not run)
    begun and finished           "done"      do not run it; here is the first result
    begun and never finished     "started"   the outcome is unknown: its owner may still be at work, or may be dead
    begun for another call       "conflict"  do not run it; one key stands for one tool and one set of arguments

A "started" entry is never handed out as "new", whether its owner lives or not: nobody can tell that for another machine
or container. Only someone who has looked at the outside world may `finish` or `abandon` it.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from kernel.files import make_private
from kernel.record import digest

if TYPE_CHECKING:
    import sqlite3

State = Literal["new", "done", "started", "conflict"]

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    run_id BLOB NOT NULL,
    tool BLOB NOT NULL,
    args_digest BLOB NOT NULL,
    outcome BLOB,
    result BLOB
)
"""
_COLUMNS = "key, run_id, tool, args_digest, outcome, result"


class LedgerError(Exception):
    """The ledger cannot be read or written, or was asked for something that would falsify it."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger knows of one key.

    `run_id`, `tool` and `args_digest` are those of the caller who began it (so a conflict names the *other* call).
    `outcome` and `result` (JSON text) are set exactly when `state` is "done".
    """

    key: str
    state: State
    run_id: str
    tool: str
    args_digest: str
    outcome: str | None = None
    result: str | None = None


class Ledger(Protocol):
    """Where side effects are booked. Every method is atomic and may block on I/O; all raise `LedgerError`."""

    def begin(self, key: str, *, run_id: str, tool: str, args_digest: str) -> Entry:
        """Claim `key`. Of all callers exactly one gets "new", and by then its claim is durable."""
        ...

    def finish(self, key: str, outcome: str, result: str) -> None:
        """Keep the first result of a begun call. The same again is fine; a second, different result is refused."""
        ...

    def abandon(self, key: str) -> None:
        """Free a begun key whose call certainly did not run. A finished key is refused; an unknown one is free."""
        ...

    def unfinished(self) -> tuple[Entry, ...]:
        """All "started" entries, oldest first."""
        ...


def idempotency_key(run_id: str, tool: str, canonical_args: str, position: int | None) -> str:
    """Name one side effect: equal for a repeated call, different for any other.

    The key is `tf1-` and 40 hex digits of the SHA-256 of the JSON array `[run_id, tool, canonical_args, position]`: 44
    characters of plain ASCII, fit for an HTTP `Idempotency-Key` header.

    Args:
        canonical_args: The arguments as canonical JSON text, so that key order and spacing do not count.
        position: None for most tools: the same arguments in the same run are then the same effect, done once. Tools
            for which a repetition is meant (append a row, send one more message) declare so and pass the call's
            position in the run; each position is then an effect of its own, repeated only by a retry or a resumed run.
    """
    parts = json.dumps([run_id, tool, canonical_args, position], ensure_ascii=True, separators=(",", ":"))
    return "tf1-" + hashlib.sha256(parts.encode("ascii")).hexdigest()[:40]


def approval_binding(tool: str, canonical_args: str, step: int, position: int) -> str:
    """What an approval is bound to: tool, arguments, and this one call."""
    return digest(f"{tool}\x00{canonical_args}\x00{step}\x00{position}")


class MemoryLedger:
    """A ledger for one process; safe with threads, gone with the process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def begin(self, key: str, *, run_id: str, tool: str, args_digest: str) -> Entry:
        with self._lock:
            stored = self._entries.get(key)
            if stored is not None:
                return _answer(stored, tool, args_digest)
            begun = Entry(key=key, state="started", run_id=run_id, tool=tool, args_digest=args_digest)
            self._entries[key] = begun
            return replace(begun, state="new")

    def finish(self, key: str, outcome: str, result: str) -> None:
        with self._lock:
            if _must_write(self._entries.get(key), key, outcome, result):
                self._entries[key] = replace(self._entries[key], state="done", outcome=outcome, result=result)

    def abandon(self, key: str) -> None:
        with self._lock:
            _check_abandon(self._entries.get(key), key)
            self._entries.pop(key, None)

    def unfinished(self) -> tuple[Entry, ...]:
        with self._lock:
            return tuple(entry for entry in self._entries.values() if entry.state == "started")


class SqliteLedger:
    """A ledger in one SQLite file; safe with threads, forks and several processes, and after `kill -9` at any point.

    Each operation opens its own connection and is one transaction under `BEGIN IMMEDIATE`, so nothing is shared between
    threads or inherited by a child. Commits use a rollback journal with `synchronous=EXTRA`: they outlive a power cut.

    Args:
        path: The file; created if absent, readable by its owner only. Its folder must exist. It holds the results of
            side effects in clear, as a repeated call gets the first one; of arguments it holds a digest.
        busy_timeout_s: How long an operation waits for other writers before it raises.
    Raises:
        LedgerError: the file cannot be opened, is no ledger, or was written by a newer version.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 30.0) -> None:
        self.path = Path(path).absolute()
        self._busy_timeout_s = busy_timeout_s
        with suppress(
            OSError, ValueError
        ):  # SQLite says what is wrong with the path, and makes its side files as private
            make_private(self.path)
        with self._transaction(mode="rwc") as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > _SCHEMA_VERSION:
                raise LedgerError(
                    f"{self.path}: ledger format {version} is newer than {_SCHEMA_VERSION}, the newest known here.\n"
                    "Upgrade tracefirst, or point the ledger at another file."
                )
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def begin(self, key: str, *, run_id: str, tool: str, args_digest: str) -> Entry:
        values = [_blob(text) for text in (key, run_id, tool, args_digest)]
        with self._transaction() as connection:
            inserted = connection.execute(
                "INSERT INTO entries (key, run_id, tool, args_digest) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
                values,
            ).rowcount
            stored = _select(connection, key)
        if stored is None:
            raise LedgerError(f"{self.path}: the entry for key {key!r} vanished while it was being begun.", key)
        return replace(stored, state="new") if inserted else _answer(stored, tool, args_digest)

    def finish(self, key: str, outcome: str, result: str) -> None:
        with self._transaction() as connection:
            if _must_write(_select(connection, key), key, outcome, result):
                connection.execute(
                    "UPDATE entries SET outcome = ?, result = ? WHERE key = ?",
                    (_blob(outcome), _blob(result), _blob(key)),
                )

    def abandon(self, key: str) -> None:
        with self._transaction() as connection:
            _check_abandon(_select(connection, key), key)
            connection.execute("DELETE FROM entries WHERE key = ?", (_blob(key),))

    def unfinished(self) -> tuple[Entry, ...]:
        with self._transaction() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM entries WHERE outcome IS NULL ORDER BY seq").fetchall()
        return tuple(_entry(row) for row in rows)

    @contextmanager
    def _transaction(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """One write transaction on a fresh connection; committed on a clean exit, rolled back on any other.

        Mode `rw` fails on a missing file: a ledger that was deleted must not come back empty and call everything new.
        """
        import sqlite3

        try:
            uri = f"{self.path.as_uri()}?mode={mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=self._busy_timeout_s, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.path}: the ledger cannot be used: {error}.\n"
                "Check that the file exists, is writable and is a ledger; a call that was begun stays begun."
            ) from error


def _answer(stored: Entry, tool: str, args_digest: str) -> Entry:
    """What a caller is told about a key that somebody already began."""
    if (stored.tool, stored.args_digest) != (tool, args_digest):
        return replace(stored, state="conflict", outcome=None, result=None)
    return stored


def _must_write(stored: Entry | None, key: str, outcome: str, result: str) -> bool:
    """Whether finishing changes the entry; raises where it would overwrite or invent one."""
    if stored is None:
        raise LedgerError(f"key {key!r} was never begun, or was abandoned.\nCall begin before the tool runs.", key)
    if stored.state == "started":
        return True
    if (stored.outcome, stored.result) != (outcome, result):
        raise LedgerError(
            f"key {key!r} (tool {stored.tool!r}) is already finished with outcome {stored.outcome!r}; "
            f"outcome {outcome!r} came later.\nThe first result stays; record the late one as an event.",
            key,
        )
    return False


def _check_abandon(stored: Entry | None, key: str) -> None:
    if stored is not None and stored.state == "done":
        raise LedgerError(
            f"key {key!r} (tool {stored.tool!r}) is finished with outcome {stored.outcome!r}: it did run.\n"
            "Use another key to run it again.",
            key,
        )


def _select(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM entries WHERE key = ?", (_blob(key),)).fetchone()
    return None if row is None else _entry(row)


def _entry(row: tuple[bytes, bytes, bytes, bytes, bytes | None, bytes | None]) -> Entry:
    key, run_id, tool, args_digest, outcome, result = row
    return Entry(
        key=_text(key),
        state="started" if outcome is None else "done",
        run_id=_text(run_id),
        tool=_text(tool),
        args_digest=_text(args_digest),
        outcome=None if outcome is None else _text(outcome),
        result=None if result is None else _text(result),
    )


def _blob(text: str) -> bytes:
    """Texts are stored as bytes, so that every Python string comes back as it was: lone surrogates and NUL too."""
    return text.encode("utf-8", "surrogatepass")


def _text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogatepass")
