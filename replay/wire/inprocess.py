"""A recording served inside a Python process: for agents that a test runs itself."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel.errors import TracefirstError
from kernel.masking import Masker
from replay.report import View
from replay.wire.listening import listening
from replay.wire.outcome import outcome_lines
from replay.wire.player import Account, Player
from replay.wire.playing import Players
from replay.wire.stored import book_upstreams, load_book
from replay.wire.upstreams import addresses, environment
from replay.wire.varying import varying_for

_START_S = 30.0


class NotSame(TracefirstError):
    """What was served is not what was recorded. The message is the whole report; `account` holds it as data."""

    def __init__(self, message: str, account: Account) -> None:
        super().__init__(message)
        self.account = account

    def __reduce__(self) -> tuple[type[NotSame], tuple[str, Account]]:
        return type(self), (str(self), self.account)


class Server:
    """A recording that is being served.

    `url` is the base address for the client of the recording's first upstream, as that client expects it (OpenAI's with
    `/v1`); `urls` has one for each dialect; `environment` the variables that lead clients here, with keys that are none.
    """

    def __init__(self, player: Player, url: str) -> None:
        self.player = player
        upstreams = book_upstreams(player.book)
        self.urls = addresses(url, upstreams)
        self.url = self.urls[next(iter(upstreams))] if upstreams else url
        led = environment(url, upstreams, os.environ, keys=True)
        self.environment = {name: value for name, value in led.items() if os.environ.get(name) != value}

    def account(self) -> Account:
        """How it stands: of a replay that is over, its outcome."""
        return self.player.account()

    def check(self) -> None:
        """Raises `NotSame` unless all was served as recorded; drift passes where it was asked for."""
        account = self.account()
        if account.verdict == "same" or (account.verdict == "drifted" and self.player.drift):
            return
        raise NotSame("\n".join(outcome_lines(self.player.book, account, View(columns=100))), account)


@contextmanager
def serving(file: str | os.PathLike[str], *, drift: bool = False, check: bool = True) -> Iterator[Server]:
    """Serve a recording made at the wire for as long as the block runs.

        with replay.serving("fixtures/support.trace.json") as server:
            answer = my_agent("why?", OpenAI(base_url=server.url, api_key="none"))

    Args:
        drift: serve changed requests too, where their conversation tells which they are.
        check: compare at the end of the block; a block that raises is not asked.
    Raises:
        TraceError: the file cannot be read, or was not recorded at the wire.
        ConfigError: a rule for the recording cannot be understood.
        NotSame: at the end, where something else was asked than was recorded, or less.
    """
    player = Player(load_book(Path(file)), masker=Masker.default(), varying=varying_for(file), drift=drift)
    with _in_thread(player) as url:
        server = Server(player, url)
        yield server
    if check:
        server.check()


@contextmanager
def _in_thread(player: Player) -> Iterator[str]:
    """A server with an event loop in a thread of its own; gives its URL."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    found: list[str | BaseException] = []
    ready = threading.Event()

    async def run() -> None:
        try:
            async with listening(Players({"": player}).handle) as url:
                found.append(url)
                ready.set()
                await stop.wait()
        except BaseException as error:
            found.append(error)
            ready.set()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=work, name="tracefirst-serving", daemon=True)
    thread.start()
    if not ready.wait(_START_S):
        raise TracefirstError("the server did not start")
    if isinstance(found[0], BaseException):
        thread.join()
        raise found[0]
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S)
