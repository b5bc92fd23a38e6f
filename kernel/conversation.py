"""Runs that share a history. A single run is a conversation of one turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kernel.errors import ConfigError
from kernel.loop import Confirm, FinishCheck, Loop, TokenCounter, Transcript
from kernel.record import RunHead, check_function, check_kind
from kernel.result import RunResult, result_of
from kernel.seams import Clock, Ids, Model, Seams, Tools
from kernel.stores import MemoryLedger

_log = logging.getLogger("tracefirst")

if TYPE_CHECKING:
    from kernel.stores import Ledger
    from kernel.tools import Tool
    from kernel.tracing import Session


class Speaker(Protocol):
    """What a conversation needs of its agent."""

    @property
    def confirm(self) -> Confirm | None: ...
    @property
    def finish_check(self) -> FinishCheck | None: ...
    @property
    def count_tokens(self) -> TokenCounter: ...
    @property
    def ledger(self) -> Ledger | None: ...
    def toolbox(self) -> dict[str, Tool]: ...
    def head(self, *args: Any, **settings: Any) -> RunHead: ...


class Conversation:
    """A history shared by several runs, in one trace. Use it from one task at a time."""

    def __init__(
        self,
        agent: Speaker,
        *,
        model: Model,
        confirm: Confirm | None,
        trace: Any,
        conversation_id: str | None,
        clock: Clock,
        ids: Ids,
        single: bool,
    ) -> None:
        check_function("confirm", confirm)
        if conversation_id is not None:
            check_kind("conversation_id", conversation_id, str, "text")
        self._agent = agent
        self._model = model
        self._confirm = confirm
        self._clock = clock
        self._ids = ids
        self._conversation_id = conversation_id
        self._single = single
        self._transcript = Transcript(agent.count_tokens)
        self._turn = 0
        self._busy = False
        self._closed = False
        self._session: Session | None = None
        self._trace = trace
        self._trace_id: str | None = None

    async def send(self, task: str) -> RunResult:
        """One user turn: a run that continues the history. Raises `ConfigError` before anything runs."""
        if self._closed:
            raise ConfigError("this conversation is closed: what is sent now would be in no trace; open another")
        if self._busy:
            raise ConfigError("this conversation is in the middle of a run: await it before you send the next turn")
        self._busy = True
        try:
            return await self._send(task)
        finally:
            self._busy = False
            if self._closed:
                self._finish()

    async def _send(self, task: str) -> RunResult:
        from kernel.tools import LiveTools

        agent = self._agent
        run_id = self._ids.span_id() + self._ids.span_id()
        head = agent.head(
            task,
            self._model,
            run_id=run_id,
            turn=self._turn + 1,
            conversation_id=self._conversation_id,
            confirm=self._confirm is not None,
            confirm_by_run=self._confirm is not agent.confirm,
        )
        session = self._open_session(head)
        self._turn += 1  # not before: a turn that was refused has not been
        recorder = session.recorder(self._clock, self._ids) if session is not None else None
        port: Tools = LiveTools(
            agent.ledger or MemoryLedger(),
            run_id=run_id,
            clock=self._clock,
            on_effect=recorder.effect_begun if recorder is not None else None,
        )
        loop = Loop(
            head,
            agent.toolbox(),
            Seams(model=self._model, tools=port, clock=self._clock, ids=self._ids),
            self._transcript,
            confirm=self._confirm,
            finish_check=agent.finish_check,
            tracer=recorder,
            count=agent.count_tokens,
        )
        try:
            async with _awake():
                end = await loop.run()
        finally:
            if recorder is not None and session is not None and self._single:
                session.close()
        return result_of(head, loop.steps, end, self._trace_id or "", session, loop.warnings)

    def _open_session(self, head: RunHead) -> Session | None:
        if self._trace_id is None:
            from kernel.tracing import tracing_from

            tracing = tracing_from(self._trace)
            parent = tracing.parent() if tracing is not None else None
            trace_id = parent.trace_id if parent is not None else self._ids.trace_id()
            if tracing is not None:
                self._session = tracing.open(
                    head, trace_id=trace_id, parent=parent, clock=self._clock, ids=self._ids, single=self._single
                )
            self._trace_id = trace_id  # not before: a trace that was refused is asked for again
        return self._session

    async def close(self) -> None:
        """End the conversation: its trace gets its final form, and no further turn can be sent.

        Raises:
            ConfigError: a run is under way, whose end would be in no trace.
        """
        if self._busy:
            raise ConfigError("this conversation is in the middle of a run: await or cancel it before you close")
        self._closed = True
        self._finish()

    def _finish(self) -> None:
        """Give the trace its final form, once."""
        session, self._session = self._session, None
        if session is not None and not self._single:
            told = len(session.warnings())
            session.close()
            for lost in session.warnings()[told:]:  # no further result could say it
                _log.warning("%s", lost)

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; where a run is under way in another task, no further turn can be sent, and the end of the run closes."""
        self._closed = True
        if not self._busy:
            self._finish()


_BEAT_S = 1.0


@asynccontextmanager
async def _awake() -> AsyncIterator[None]:
    """Wake the event loop once a second. `asyncio.run` sets no wake-up descriptor, so that a Ctrl-C which comes just before
    the loop goes to sleep would wait there as long as the loop does: for a tool that hangs, for ever."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def beat() -> None:
        timers[:] = [loop.call_later(_BEAT_S, beat)]

    beat()
    try:
        yield
    finally:
        timers[0].cancel()
