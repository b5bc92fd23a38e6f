"""Cold data: long-lived notes that stay outside the prompt and are searched when a run needs them.

The embedded default keeps notes in SQLite and finds them by full-text search (FTS5, BM25). FTS5's own tokenizers take a
stretch of Chinese for one word, so text is cut into terms here, for notes and queries alike: words of letters and
digits, and for Chinese, Japanese and Korean each character and each pair of neighbours. English words are stemmed.
"""

from __future__ import annotations

import json
import os
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from kernel.files import make_private
from kernel.record import canonical_json, digest

if TYPE_CHECKING:
    import sqlite3

_SCHEMA_VERSION = 1
_NO_FILE = ("", ":memory:")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL, tags TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS passages (
    id INTEGER PRIMARY KEY, note INTEGER NOT NULL REFERENCES notes (id), first INTEGER NOT NULL, stop INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS passages_by_note ON passages (note);
CREATE VIRTUAL TABLE IF NOT EXISTS terms USING fts5 (title, tags, text, tokenize = 'porter ascii');
"""
# A hit in the title weighs four times, in the tags twice what it does in the text.
_HITS = """
WITH hits AS MATERIALIZED (
    SELECT rowid AS passage, -bm25(terms, 4.0, 2.0, 1.0) AS score FROM terms WHERE terms MATCH ?
)
"""
_SEARCH = f"""{_HITS}
SELECT key, title, text, tags, max(score) AS best
FROM hits JOIN passages ON passages.id = passage JOIN notes ON notes.id = note
GROUP BY notes.id ORDER BY best DESC, key LIMIT ?
"""
_FRAGMENTS = f"""{_HITS}
SELECT key, title, text, first, stop, score
FROM hits JOIN passages ON passages.id = passage JOIN notes ON notes.id = note
ORDER BY score DESC, key, first LIMIT ?
"""

_PASSAGE_CHARS = 480
_QUERY_TERMS = 200
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")
_SENTENCE = re.compile(r".+?(?:\n+|[。！？；]+|[.!?;](?=\s)|\Z)", re.DOTALL)
_STOP_TEXT = (
    "a an and are as at be by do does for from had has have how i in is it its of on or that the this to was were what "
    "when where which who why will with you"
)
_STOP_WORDS = frozenset(_STOP_TEXT.split())


class ArchiveError(Exception):
    """The archive cannot be opened, read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note; `score` says how well it answers the query that found it (higher is better, 0.0 for one just added)."""

    key: str
    title: str
    text: str
    tags: tuple[str, ...] = ()
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A passage of the note `key`, short enough to join a request."""

    key: str
    title: str
    text: str
    score: float


class Archive(Protocol):
    """Where a run's long-lived notes are kept and found. Searching never raises on what a query says."""

    def add(self, text: str, *, title: str = "", tags: Iterable[str] = (), key: str | None = None) -> Note:
        """Keep a note, in place of the one with the same key."""
        ...

    def search(self, query: str, limit: int) -> tuple[Note, ...]:
        """The `limit` best notes for the query, best first; the order is the same for the same notes and query."""
        ...

    def fragments(self, query: str, limit: int, max_chars: int) -> tuple[Fragment, ...]:
        """The best passages: at most `limit`, and at most `max_chars` characters of titles and texts together."""
        ...


class SqliteArchive:
    """Notes in one SQLite file, or in memory. Safe with threads, and with several processes that each open their own.

    Args:
        path: The file, created if absent and readable by its owner only, or ":memory:". It holds the notes in clear.
        busy_timeout_s: How long an operation waits for other writers before it raises.
    Raises:
        ArchiveError: the file cannot be opened, is no archive, or was written by a newer version. Every other method
            raises it too, when the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 30.0) -> None:
        import sqlite3

        self.path = os.fspath(path)
        self._lock = threading.Lock()
        if self.path not in _NO_FILE:
            with suppress(
                OSError, ValueError
            ):  # SQLite says what is wrong with the path, and makes its side files as private
                make_private(self.path)
        with self._errors():
            self._connection = sqlite3.connect(
                self.path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def add(self, text: str, *, title: str = "", tags: Iterable[str] = (), key: str | None = None) -> Note:
        """Keep a note, in place of the one with the same key.

        Without a key the content names it (`note-` and a digest), so adding the same note twice keeps one. Lone
        surrogates, which no file can hold, become U+FFFD.
        """
        title, text, names = _valid(title), _valid(text), tuple(_valid(tag) for tag in tags)
        if key is None:
            key = "note-" + digest(canonical_json([title, text, list(names)]))
        note = Note(key=_valid(key), title=title, text=text, tags=names)
        with self._transaction() as connection:
            _remove(connection, note.key)
            _insert(connection, note)
        return note

    def get(self, key: str) -> Note | None:
        """The note with this key, if there is one."""
        with self._transaction("DEFERRED") as connection:
            sql = "SELECT key, title, text, tags, 0.0 FROM notes WHERE key = ?"
            row = connection.execute(sql, (_valid(key),)).fetchone()
        return None if row is None else _note(row)

    def remove(self, key: str) -> bool:
        """Forget a note; False where there was none."""
        with self._transaction() as connection:
            return _remove(connection, _valid(key))

    def search(self, query: str, limit: int) -> tuple[Note, ...]:
        """The `limit` best notes for the query, best first, then by key; a note is as good as its best passage.

        Any word of the query may match. Punctuation and operators mean nothing; a query without words finds nothing.
        """
        return tuple(_note(row) for row in self._rows(_SEARCH, query, limit))

    def fragments(self, query: str, limit: int, max_chars: int) -> tuple[Fragment, ...]:
        """The best passages: at most `limit`, and at most `max_chars` characters of titles and texts together.

        Passages are whole sentences of up to 480 characters. One that no longer fits gives way to the next best that
        does; where none fits whole, the best one is cut short and ends in "…".
        """
        ranked = [
            Fragment(key=key, title=title, text=text[first:stop].strip(), score=score)
            for key, title, text, first, stop, score in self._rows(_FRAGMENTS, query, limit)
        ]
        chosen, left = [], max_chars
        for fragment in ranked:
            size = len(fragment.title) + len(fragment.text)
            if size <= left:
                chosen.append(fragment)
                left -= size
        if not chosen and ranked:
            room = max_chars - len(ranked[0].title) - 1
            chosen = [replace(ranked[0], text=ranked[0].text[:room] + "…")] if room > 0 else []
        return tuple(chosen)

    def close(self) -> None:
        """Close the file. Closing twice is fine; using a closed archive raises."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        with self._errors():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > _SCHEMA_VERSION:
                raise ArchiveError(
                    f"{self.path}: archive format {version} is newer than {_SCHEMA_VERSION}, the newest known here.\n"
                    "Upgrade tracefirst, or open another file."
                )
            self._use_wal()
            self._connection.execute("PRAGMA synchronous = NORMAL")
        if version < _SCHEMA_VERSION:
            with self._transaction() as connection:
                for statement in _SCHEMA.strip().split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _use_wal(self) -> None:
        """Let readers and a writer work side by side.

        The switch can be refused, at once and whatever the timeout, while another process writes. The next to open the
        file makes it; until then the archive works all the same, with more waiting.
        """
        import sqlite3

        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise

    def _rows(self, sql: str, query: str, limit: int) -> list[tuple[Any, ...]]:
        match = _match(query)
        if not match or limit < 1:
            return []
        with self._transaction("DEFERRED") as connection:
            return connection.execute(sql, (match, limit)).fetchall()

    @contextmanager
    def _transaction(self, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise ArchiveError(
                f"{self.path}: the archive cannot be used: {error}.\n"
                "Check that it is open, is an archive, is writable with its folder, and is not held by another process."
            ) from error


def _words(text: str) -> Iterator[str]:
    """Words of letters and digits, and unbroken stretches of Chinese, Japanese or Korean; case and width folded."""
    return iter(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def _pairs(word: str) -> Iterator[str]:
    return (word[i : i + 2] for i in range(len(word) - 1))


def _terms(text: str) -> str:
    """All terms a text is found by, for the index."""
    found: list[str] = []
    for word in _words(text):
        if _IS_CJK.match(word):
            found.extend(word)
            found.extend(_pairs(word))
        else:
            found.append(word)
    return " ".join(found)


def _match(query: str) -> str:
    """The FTS5 expression for a query: any of its terms, each quoted, so that none is read as syntax.

    Of a stretch of Chinese only the pairs are looked for, single characters say too little; English stop words count
    only where there is nothing else. Of a very long query the first 200 different terms are used.
    """
    wanted: dict[str, None] = {}
    for word in _words(query):
        wanted.update(dict.fromkeys(_pairs(word) if _IS_CJK.match(word) and len(word) > 1 else [word]))
    chosen = [term for term in wanted if term not in _STOP_WORDS] or list(wanted)
    return " OR ".join(f'"{term}"' for term in chosen[:_QUERY_TERMS])


def _passages(text: str) -> Iterator[tuple[int, int]]:
    """Cut a text into stretches of at most 480 characters, between sentences or lines where possible; at least one."""
    first = stop = 0
    for sentence in _SENTENCE.finditer(text):
        if sentence.end() - first > _PASSAGE_CHARS and stop > first:
            yield first, stop
            first = stop
        stop = sentence.end()
        while stop - first > _PASSAGE_CHARS:
            space = text.rfind(" ", first, first + _PASSAGE_CHARS)
            cut = space + 1 if space > first else first + _PASSAGE_CHARS
            yield first, cut
            first = cut
    if stop > first or not text:
        yield first, stop


def _insert(connection: sqlite3.Connection, note: Note) -> None:
    row = (note.key, note.title, note.text, canonical_json(list(note.tags)))
    note_id = connection.execute("INSERT INTO notes (key, title, text, tags) VALUES (?, ?, ?, ?)", row).lastrowid
    title, tags = _terms(note.title), _terms(" ".join(note.tags))
    for first, stop in _passages(note.text):
        sql = "INSERT INTO passages (note, first, stop) VALUES (?, ?, ?)"
        passage = connection.execute(sql, (note_id, first, stop)).lastrowid
        # One character beyond the cut, so that a Chinese pair that lies across it is found.
        beyond = stop + 1 if _IS_CJK.match(note.text, stop) else stop
        sql = "INSERT INTO terms (rowid, title, tags, text) VALUES (?, ?, ?, ?)"
        connection.execute(sql, (passage, title, tags, _terms(note.text[first:beyond])))


def _remove(connection: sqlite3.Connection, key: str) -> bool:
    row = connection.execute("SELECT id FROM notes WHERE key = ?", (key,)).fetchone()
    if row is None:
        return False
    connection.execute("DELETE FROM terms WHERE rowid IN (SELECT id FROM passages WHERE note = ?)", row)
    connection.execute("DELETE FROM passages WHERE note = ?", row)
    connection.execute("DELETE FROM notes WHERE id = ?", row)
    return True


def _note(row: tuple[Any, ...]) -> Note:
    key, title, text, tags, score = row
    return Note(key=key, title=title, text=text, tags=tuple(json.loads(tags)), score=score)


def _valid(text: str) -> str:
    """The text as valid Unicode: surrogate pairs joined, lone surrogates replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
