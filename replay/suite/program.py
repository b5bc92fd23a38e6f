"""A case whose agent is a command: its recording is served to the real program, which runs as it is."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernel.errors import TracefirstError
from kernel.masking import Masker
from kernel.record import compact_json, digest
from replay.report import View, cut, literal
from replay.suite.failure import ReplayFailed
from replay.suite.settings import Command, Settings
from replay.wire import Account, Book, Player, load_book, outcome_lines, replay_program, reply_of, varying_for

FORMAT = "replay wire snapshot 1"
_TEXT = 120


class ProgramRun:
    """What came of one program: the account of the replay, and the text of its snapshot."""

    def __init__(self, book: Book, player: Player, account: Account, status: int | None) -> None:
        self.book, self.account, self.status = book, account, status
        self._player = player

    def headline(self) -> str:
        """The verdict with its first difference, on one line."""
        verdict = self.account.verdict.replace("_", " ")
        if not self.account.found:
            return f"{verdict}: {self.account.why_not}" if self.account.why_not else verdict
        first = self.account.found[0]
        where = f"exchange {first.exchange}: " if first.exchange else ""
        return (
            f"{verdict} at {where}{first.divergence.kind} {literal(first.divergence.path)} ({first.divergence.cause})"
        )

    def snapshot(self) -> str:
        """One line an exchange, then the verdict with its evidence; ends with a newline."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield FORMAT
        yield f"recording {book_digest(self.book)}"
        yield f"agent {literal(self.book.agent)}, ran as a program"
        for exchange in self.book.exchanges:
            seen = self._player.seen(exchange.number)
            at = f"turn {exchange.turn} step {exchange.step}" if exchange.step else "plain"
            asked, answer = exchange.asked, exchange.answer
            yield f"{exchange.number:>4} {seen[:8]:<8}  {at}: {asked.method} {literal(asked.path)} | {answer.status} {answer.end}"
            reply, _ = reply_of(asked, answer)
            for call in reply.tool_calls if reply is not None else ():
                yield f"               call {literal(call.name)} {cut(literal(call.arguments), _TEXT)}"
            if reply is not None and not reply.tool_calls:
                yield f"               answer {cut(literal(reply.text), _TEXT)}"
        account = self.account
        yield f"verdict {account.verdict}: served {account.served}, unused {account.unused}, refused {account.refused}; live 0"
        for found in [found for found in account.found if not found.divergence.downstream][:20]:
            yield f"difference at exchange {found.exchange}: {literal(found.divergence.path)} ({found.divergence.cause})"


def book_digest(book: Book) -> str:
    """Names the content of a recording, whatever the spelling of its file."""
    told = [
        [e.asked.method, e.asked.target, e.asked.body, e.answer.status, digest(e.answer.body)] for e in book.exchanges
    ]
    return digest(compact_json(told))


def run_program_case(settings: Settings, fixture: Path, trace_id: str | None, command: Command) -> ProgramRun:
    """Run the program of a case on its recording.

    Raises:
        ReplayFailed: the recording cannot be read, the program cannot be started, or its reset failed.
    """
    shown = settings.shown(fixture)
    try:
        book = load_book(fixture, trace_id)
    except (TracefirstError, OSError, ValueError) as error:
        raise ReplayFailed("unreadable", shown, "not a recording of a program", f"not checked: {error}") from None
    cwd = settings.root / command.cwd
    _reset(command, cwd, shown)
    try:
        player = Player(book, masker=Masker.default(), varying=varying_for(fixture), drift=settings.allow_drift)
        done = replay_program(command.words, player, os.environ, cwd=cwd, timeout_s=command.timeout_s)
    except TracefirstError as error:
        raise ReplayFailed("agent", shown, "the program cannot run", f"not checked: {shown}: {error}") from error
    return ProgramRun(book, player, done.account, done.status)


def _reset(command: Command, cwd: Path, shown: str) -> None:
    """Put the world of the tools back, where a command for that is given."""
    if not command.reset:
        return
    try:
        ran = subprocess.run(command.reset, cwd=cwd, timeout=command.timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReplayFailed("agent", shown, "the reset failed", f"not checked: {shown}: reset: {error}") from error
    if ran.returncode:
        story = f"not checked: {shown}: {shlex.join(command.reset)} ended with exit status {ran.returncode}"
        raise ReplayFailed("agent", shown, "the reset failed", story)


def program_failure(settings: Settings, done: ProgramRun, shown: str, command: Command) -> ReplayFailed | None:
    """The failure that a program's replay is, or None."""
    account = done.account
    if done.status is None:
        story = f"{shown}: {shlex.join(command.words)} was stopped after {command.timeout_s:g} s"
        return ReplayFailed("agent", shown, "the program did not end in time", story)
    if account.verdict == "same" or (account.verdict == "drifted" and settings.allow_drift):
        return None
    lines = [*outcome_lines(done.book, account, View(columns=100), done.status)]
    if account.verdict == "drifted" or any(found.divergence.kind == "request" for found in account.found[:1]):
        lines.append(
            "to serve changed requests and let drift pass: replay_allow_drift = true in [tool.pytest.ini_options]"
        )
    step = account.found[0].divergence.step if account.found else 0
    return ReplayFailed(account.verdict, shown, done.headline(), "\n".join(lines), step)
