"""Agents, conversations and results: what a user of the kernel holds in hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kernel.act import Confirm, read_range
from kernel.canonical import to_jsonable, valid_text
from kernel.errors import ConfigError
from kernel.limits import TokenCounter, estimate_tokens
from kernel.loop import FinishCheck, Loop
from kernel.messages import ModelParams, Usage
from kernel.model import PromptFunction, as_model, described
from kernel.policy import policy_from
from kernel.read import Transcript
from kernel.run import (
    Budget,
    ContextLimits,
    Guard,
    Language,
    Policy,
    Price,
    Run,
    RunEnd,
    RunHead,
    Step,
    StopReason,
)
from kernel.seams import Clock, Ids, Model, RandomIds, Seams, SystemClock, Tools
from kernel.texts import Texts, texts_for
from kernel.tools import Tool, ToolRegistry
from kernel.transcript import READ_RANGE

if TYPE_CHECKING:
    from kernel.archive import Archive
    from kernel.ledger import Ledger
    from kernel.tracing import Session

Llm = Model | PromptFunction


class RunResult(Struct, frozen=True, kw_only=True):
    """How a run ended. `answer` is there exactly when `ok`; a stopped run never gives half an answer.

    `trace_path` is the trace file, where one was written; `warnings` say what of the telemetry was lost.
    """

    ok: bool
    answer: str | None
    stop_reason: StopReason
    detail: str
    steps: tuple[Step, ...]
    usage: Usage
    cost_usd: float | None
    trace_id: str
    trace_path: Path | None
    warnings: tuple[str, ...]
    run: Run

    def __repr__(self) -> str:
        """Short: asyncio prints the results of tasks, and a run may be large."""
        return f"RunResult(stop_reason={self.stop_reason!r}, steps={len(self.steps)}, trace_id={self.trace_id!r})"

    def to_json(self) -> str:
        """The whole run as one JSON document, which `replay` reads too."""
        document = {
            "tracefirst": "run",
            "version": 1,
            "trace_id": self.trace_id,
            "ok": self.ok,
            "answer": self.answer,
            "stop_reason": self.stop_reason,
            "run": msgspec.to_builtins(self.run),
        }
        return msgspec.json.encode(document).decode()


class Agent:
    """A named set of instructions, tools and limits.

    Args:
        name: names the spans; keep it short and the same from release to release.
        system: instructions to the model.
        tools: what the model may call.
        budget: hard and soft limits; guard: loop guard; policy: a mode, a `Policy`, or a TOML file. The environment
            variable `TRACEFIRST_POLICY` wins over both.
        finish_check: `(answer, context)` → None or True to accept, a text to send back as the reason for refusal.
        archive: long-lived notes; the best fragments for the task join the request.
        prices: price of each model by its name; a `max_cost_usd` needs one.
        texts: replacements for what the kernel says to the model, by key.
        count_tokens: estimate for text whose tokens the provider did not report.
    """

    def __init__(
        self,
        *,
        name: str = "agent",
        system: str = "",
        tools: ToolRegistry | None = None,
        budget: Budget | None = None,
        guard: Guard | None = None,
        policy: Policy | str | Path | None = None,
        context: ContextLimits | None = None,
        params: ModelParams | None = None,
        finish_check: FinishCheck | None = None,
        require_finish: bool = False,
        archive: Archive | None = None,
        prices: Mapping[str, Price] | None = None,
        language: Language = "en",
        texts: Mapping[str, str] | None = None,
        ledger: Ledger | None = None,
        confirm: Confirm | None = None,
        count_tokens: TokenCounter = estimate_tokens,
    ) -> None:
        self.name = name
        self.system = system
        self.tools = tools if tools is not None else ToolRegistry()
        self.budget = budget or Budget()
        self.guard = guard or Guard()
        self.policy = policy
        self.context = context or ContextLimits()
        self.params = params
        self.finish_check = finish_check
        self.require_finish = require_finish
        self.archive = archive
        self.prices = dict(prices or {})
        self.language: Language = language
        self.texts = dict(texts or {})
        self.ledger = ledger
        self.confirm = confirm
        self.count_tokens = count_tokens
        texts_for(language, self.texts)
        _check_limits(self.budget, self.guard, self.context)
        _check_prices(self.prices)

    async def run(
        self,
        task: str,
        *,
        llm: Llm | None = None,
        confirm: Confirm | None = None,
        trace: Any = None,
        conversation_id: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> RunResult:
        """Run one task to its end.

        Args:
            llm: a `Model` or a function `prompt -> text`; None is `default_model()`.
            confirm: `(tool name, arguments)` → bool, asked before each side effect.
            trace: a folder, a file `*.trace.json`, a `Tracing`, False for none; None takes the environment's settings.
        Raises:
            ConfigError: settings that cannot work. Nothing was run.
        """
        chat = self.conversation(
            llm=llm, confirm=confirm, trace=trace, conversation_id=conversation_id, clock=clock, ids=ids, single=True
        )
        try:
            return await chat.send(task)
        finally:
            await chat.close()

    def run_sync(self, task: str, **options: Any) -> RunResult:
        """`run` for scripts. Inside a running event loop it refuses; there use `await agent.run(...)`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(task, **options))
        raise ConfigError("run_sync was called inside a running event loop: use `await agent.run(...)` there")

    def conversation(
        self,
        *,
        llm: Llm | None = None,
        confirm: Confirm | None = None,
        trace: Any = None,
        conversation_id: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        single: bool = False,
    ) -> Conversation:
        """Several runs that share a history: `await chat.send(...)` per user turn, `await chat.close()` at the end."""
        return Conversation(
            self,
            model=as_model(llm),
            confirm=confirm or self.confirm,
            trace=trace,
            conversation_id=conversation_id,
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            single=single,
        )

    def head(
        self,
        task: str,
        model: Any,
        *,
        run_id: str,
        turn: int = 1,
        conversation_id: str | None = None,
        confirm: bool = False,
        policy: Policy | None = None,
    ) -> RunHead:
        """The head of a run of this agent: everything that decides how it goes. Raises `ConfigError`."""
        protocol, provider, name = described(model)
        params = self.params or getattr(model, "params", None) or ModelParams()
        if not params.model:
            params = msgspec.structs.replace(params, model=name)
        if self.budget.max_output_tokens is not None and params.max_output_tokens is None:
            params = msgspec.structs.replace(params, max_output_tokens=self.budget.max_output_tokens)
        if hasattr(model, "effective_params"):
            params = model.effective_params(params)
        price = self.prices.get(params.model)
        if self.budget.max_cost_usd is not None and price is None:
            raise ConfigError(
                f'max_cost_usd is set, but there is no price for the model "{params.model}": '
                "give Agent(prices={...}) one, an unknown price is not read as zero"
            )
        head = RunHead(
            agent=valid_text(self.name),
            task=valid_text(task),
            run_id=run_id,
            system=valid_text(self.system) if turn == 1 else "",
            protocol=protocol,
            language=self.language,
            provider=provider,
            params=params,
            tools=tuple(tool.spec for tool in self.toolbox().values()),
            budget=self.budget,
            guard=self.guard,
            policy=policy or policy_from(self.policy),
            context=self.context,
            price=price,
            texts=self.texts,
            notes=self._notes(task),
            require_finish=self.require_finish,
            finish_check=self.finish_check is not None,
            confirm=confirm,
            conversation_id=conversation_id,
            turn=turn,
        )
        return _valid(head)

    def toolbox(self) -> dict[str, Tool]:
        """The tools of a run by name: the agent's own, and the kernel's `read_range`."""
        tools = {tool.name: tool for tool in self.tools}
        if tools:
            tools[READ_RANGE] = read_range_tool(texts_for(self.language, self.texts))
        return tools

    def _notes(self, task: str) -> tuple[str, ...]:
        if self.archive is None:
            return ()
        return tuple(fragment.text for fragment in self.archive.fragments(task, 5, 2000))


_READ_RANGE_SCHEMA = {
    "type": "object",
    "properties": {
        "handle": {"type": "string"},
        "start": {"type": "integer", "minimum": 0},
        "length": {"type": "integer", "minimum": 1},
    },
    "required": ["handle"],
    "additionalProperties": False,
}
_range_tools: dict[str, Tool] = {}


def read_range_tool(texts: Texts) -> Tool:
    """The built-in tool that reads the rest of a cut observation."""
    description = texts.say("read_range.description")
    if description not in _range_tools:
        from kernel.messages import ToolSpec

        spec = ToolSpec(name=READ_RANGE, description=description, parameters=_READ_RANGE_SCHEMA)
        _range_tools[description] = Tool(spec, read_range)
    return _range_tools[description]


class Conversation:
    """A history shared by several runs, in one trace. Use it from one task at a time."""

    def __init__(
        self,
        agent: Agent,
        *,
        model: Model,
        confirm: Confirm | None,
        trace: Any,
        conversation_id: str | None,
        clock: Clock,
        ids: Ids,
        single: bool,
    ) -> None:
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
        self._session: Session | None = None
        self._trace = trace
        self._trace_id: str | None = None

    async def send(self, task: str) -> RunResult:
        """One user turn: a run that continues the history. Raises `ConfigError` before anything runs."""
        if self._busy:
            raise ConfigError("this conversation is in the middle of a run: await it before you send the next turn")
        self._busy = True
        try:
            return await self._send(task)
        finally:
            self._busy = False

    async def _send(self, task: str) -> RunResult:
        from kernel.execute import LiveTools

        self._turn += 1
        agent = self._agent
        run_id = self._ids.span_id() + self._ids.span_id()
        head = agent.head(
            task,
            self._model,
            run_id=run_id,
            turn=self._turn,
            conversation_id=self._conversation_id,
            confirm=self._confirm is not None,
        )
        session = self._open_session(head)
        recorder = session.recorder(self._clock, self._ids) if session is not None else None
        port: Tools = LiveTools(agent.ledger, run_id=run_id, clock=self._clock)
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
            async with _entered(self._model):
                end = await loop.run()
        finally:
            if recorder is not None and session is not None and self._single:
                session.close()
        return self._result(head, loop, end, session, recorder)

    def _result(self, head: RunHead, loop: Loop, end: RunEnd, session: Session | None, recorder: Any) -> RunResult:
        steps = tuple(loop.steps)
        run = Run(head=head, steps=steps, end=end)
        warnings = list(session.warnings()) if session is not None else []
        if end.alive:
            warnings.append(f"still running after the end of the run: {', '.join(end.alive)}")
        return RunResult(
            ok=end.ok,
            answer=end.answer,
            stop_reason=end.stop_reason,
            detail=end.detail,
            steps=steps,
            usage=end.usage,
            cost_usd=end.cost_usd,
            trace_id=self._trace_id or "",
            trace_path=session.path if session is not None else None,
            warnings=tuple(warnings),
            run=run,
        )

    def _open_session(self, head: RunHead) -> Session | None:
        if self._trace_id is None:
            from kernel.tracing import tracing_from

            tracing = tracing_from(self._trace)
            parent = tracing.parent() if tracing is not None else None
            self._trace_id = parent.trace_id if parent is not None else self._ids.trace_id()
            if tracing is not None:
                self._session = tracing.open(
                    head, trace_id=self._trace_id, parent=parent, clock=self._clock, ids=self._ids, single=self._single
                )
        return self._session

    async def close(self) -> None:
        """End the conversation: its trace gets its final form. A closed conversation stays readable."""
        if self._session is not None and not self._single:
            self._session.close()

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def react(
    task: str,
    tools: ToolRegistry | None = None,
    *,
    llm: Llm | None = None,
    budget: Budget | None = None,
    confirm: Confirm | None = None,
    trace: Any = None,
    **options: Any,
) -> RunResult:
    """Run one task with a ReAct agent made on the spot; `options` are those of `Agent`."""
    agent = Agent(tools=tools, budget=budget, **options)
    return await agent.run(task, llm=llm, confirm=confirm, trace=trace)


@asynccontextmanager
async def _entered(model: Any) -> AsyncIterator[None]:
    """The model as a context manager for one run, if it is one: a client keeps its connections that long."""
    if hasattr(model, "__aenter__"):
        async with model:
            yield
    else:
        yield


def _valid(head: RunHead) -> RunHead:
    """The head with valid Unicode everywhere, so that it can be recorded: nearly always the very same object."""
    try:
        msgspec.json.encode((head.tools, head.params, head.policy, head.texts, head.notes, head.provider))
        (head.conversation_id or "").encode()
    except UnicodeEncodeError:
        return msgspec.convert(to_jsonable(msgspec.to_builtins(head)), RunHead)
    except (TypeError, ValueError):  # not JSON: the codec writes such values in its own way
        return head
    return head


def _check_limits(budget: Budget, guard: Guard, context: ContextLimits) -> None:
    for name, least in (("max_steps", 1), ("max_errors", 1), ("max_finish_refusals", 1), ("model_retries", 0)):
        if getattr(budget, name) < least:
            raise ConfigError(f"budget: {name} is {getattr(budget, name)}, it must be at least {least}")
    for name in ("max_prompt_tokens", "max_cost_usd", "timeout_s", "max_output_tokens"):
        value = getattr(budget, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"budget: {name} is {value}, it must be more than 0, or None for no limit")
    for name, value, least in (
        ("guard: window", guard.window, 1),
        ("guard: max_warnings", guard.max_warnings, 1),
        ("context: max_observation_chars", context.max_observation_chars, 100),
        ("context: keep_steps", context.keep_steps, 1),
    ):
        if value < least:
            raise ConfigError(f"{name} is {value}, it must be at least {least}")


def _check_prices(prices: Mapping[str, Price]) -> None:
    for model, price in prices.items():
        for name in price.__struct_fields__:
            value = getattr(price, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f'prices: {name} of "{model}" is {value}, it must be 0 or more US dollars')
