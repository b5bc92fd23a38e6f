"""`replay record`, `replay FILE -- COMMAND`, `replay serve`: programs behind a gateway."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import click

from kernel.errors import TraceError
from kernel.masking import Masker
from kernel.tracing import SUFFIX
from replay.cli import output
from replay.cli.files import message_of, must_be_file
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.report import Paint, View, literal, plural, to_json
from replay.wire import (
    Book,
    Player,
    Setting,
    Summary,
    account_document,
    is_loopback,
    load_book,
    outcome_lines,
    parse_listen,
    parse_upstreams,
    record_program,
    record_traffic,
    replay_program,
    serve,
    varying_for,
)

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)\Z")
_SECONDS = {"": 86400, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def record(*, command: Sequence[str], target: str, upstream: Sequence[str], name: str, otlp: str | None) -> int:
    """Run a program and record it; returns the program's exit status."""
    setting = Setting(name=name, file=_trace_name(target), otlp=otlp)
    upstreams = parse_upstreams(upstream, os.environ)
    done = record_program(command, setting, upstreams, os.environ, say=output.problem)
    _tell(done.summary, done.summary.path)
    if not done.summary.exchanges:
        output.problem(
            "no model request passed: does the program take its address from OPENAI_BASE_URL, ANTHROPIC_BASE_URL or "
            "GOOGLE_GEMINI_BASE_URL?"
        )
    return done.status


def _tell(summary: Summary, where: str | None) -> None:
    for warning in summary.warnings:
        output.problem(warning)
    if where is not None:
        told = f"{plural(summary.exchanges, 'exchange')} in {plural(summary.conversations, 'conversation')}"
        output.problem(f"recorded {told}: {literal(where)}")


def gateway(
    *,
    listen: str,
    upstream: Sequence[str],
    traces: str,
    otlp: str | None,
    name: str,
    idle: float,
    keep_days: float | None,
    keep_bytes: int | None,
) -> int:
    """Record what passes until an interrupt; returns the exit status."""
    host, port = parse_listen(listen)
    setting = Setting(name=name, directory=traces, otlp=otlp, keep_days=keep_days, keep_bytes=keep_bytes, idle_s=idle)
    upstreams = parse_upstreams(upstream, os.environ)

    def started(url: str) -> None:
        for one in upstreams.values():
            output.write(f"{url}/{one.name}{one.version}  {literal(one.base)}\n")
        output.flush()

    if not is_loopback(host):
        output.problem(f"listening on {host}: everybody who reaches it can use these upstreams")
    summary = record_traffic(setting, upstreams, host, port, started=started, say=output.problem)
    _tell(summary, traces)
    return SAME if summary.whole else DIFFERENT


def _trace_name(target: str) -> str:
    return target if target.endswith(".json") else target + SUFFIX


def replay_with_program(
    *,
    file: str,
    command: Sequence[str],
    form: str,
    verbose: bool,
    drift: bool,
    max_age: str | None,
    timeout: float | None,
    trace_id: str | None,
) -> int:
    """Run a program on the answers of a recording; returns the exit status of the verdict."""
    book = _book(file, trace_id)
    if book is None or not _fresh(book, max_age):
        return UNUSABLE
    player = Player(book, masker=Masker.default(), varying=varying_for(file), drift=drift)
    stream = 2 if form == "json" else None  # standard output is the document
    done = replay_program(command, player, os.environ, timeout_s=timeout, output=stream)
    if done.status is None:
        output.problem(f"the program was stopped after {timeout:g} s")
    if form == "json":
        output.write(to_json({"traces": [account_document(book, done.account, done.status)]}))
    else:
        view = View(columns=output.columns(), paint=Paint(output.colours()), verbose=verbose)
        output.lines(outcome_lines(book, done.account, view, done.status))
    return _status(done.account.verdict)


def _status(verdict: str) -> int:
    return SAME if verdict == "same" else UNUSABLE if verdict == "not_checked" else DIFFERENT


def _book(file: str, trace_id: str | None = None) -> Book | None:
    try:
        must_be_file(Path(file), file)
        return load_book(file, trace_id)
    except (TraceError, OSError, ValueError) as error:
        output.problem(message_of(error, file))
        return None


def _fresh(book: Book, max_age: str | None) -> bool:
    """Whether a recording is as young as was asked. It is never recorded anew by itself."""
    if max_age is None:
        return True
    found = _AGE.match(max_age.strip().lower())
    if found is None:
        raise click.UsageError(f"--max-age {max_age}: write a number and s, m, h, d or w, such as 30d")
    age_s = time.time() - book.recorded_ns / 1e9
    if age_s <= float(found[1]) * _SECONDS[found[2]]:
        return True
    output.problem(f"{book.file}: was recorded {age_s / 86400:.1f} days ago, --max-age is {max_age}: record it anew")
    return False


def serve_files(*, files: Sequence[str], listen: str, drift: bool) -> int:
    """Serve recordings until an interrupt; returns the exit status of the worst verdict."""
    host, port = parse_listen(listen)
    books = [_book(file) for file in files]
    read = [book for book in books if book is not None]
    if len(read) < len(books):
        return UNUSABLE
    named = {"" if len(read) == 1 else _served_name(book.file): book for book in read}
    if len(named) < len(read):
        raise click.UsageError("two of the files have one name: each is served below its name")
    players = {
        name: Player(book, masker=Masker.default(), varying=varying_for(book.file), drift=drift)
        for name, book in named.items()
    }

    def started(url: str) -> None:
        for name, player in players.items():
            at = f"{url}/{name}" if name else url
            output.write(f"{literal(player.book.file)}  {at}/openai/v1  {at}/anthropic  {at}/gemini  {at}/verdict\n")
        output.flush()

    if not is_loopback(host):
        output.problem(f"listening on {host}: everybody who reaches it can read these recordings")
    serve(players, host, port, started)
    verdicts = [player.account().verdict for player in players.values()]
    for name, player in players.items():
        output.problem(f"{name or player.book.file}: {player.account().verdict}")
    statuses = [_status(verdict) for verdict in verdicts]
    return max(statuses, key=lambda status: (status == UNUSABLE, status), default=SAME)


def _served_name(file: str) -> str:
    return Path(file).name.removesuffix(SUFFIX)
