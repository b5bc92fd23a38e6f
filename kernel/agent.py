"""Agents, conversations and results: what a user of the kernel holds in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.conversation import Conversation
from kernel.errors import ConfigError
from kernel.loop import Confirm, FinishCheck, TokenCounter, estimate_tokens, policy_from
from kernel.model import PromptFunction, as_model, described
from kernel.record import (
    DEFAULT_MAX_COST_USD,
    READ_RANGE,
    Budget,
    ContextLimits,
    Guard,
    Language,
    ModelParams,
    Policy,
    Price,
    RunHead,
    bounded,
    check_function,
    check_kind,
    checked_prices,
    checked_settings,
    merged,
    texts_for,
    to_jsonable,
    valid_text,
)
from kernel.result import RunResult
from kernel.seams import Clock, Ids, Model, RandomIds, SystemClock
from kernel.tools import Tool, ToolRegistry, read_range_tool

if TYPE_CHECKING:
    from kernel.stores import Archive, Ledger

Llm = Model | PromptFunction


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
        ledger: where side effects are booked, so that a repeated call gets the first result; None keeps a book for each
            run alone, a `SqliteLedger` also survives the process.
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
        self.budget = Budget() if budget is None else checked_settings(budget, Budget, "budget")
        self.guard = Guard() if guard is None else checked_settings(guard, Guard, "guard")
        self.policy = policy
        self.context = ContextLimits() if context is None else checked_settings(context, ContextLimits, "context")
        self.params = None if params is None else checked_settings(params, ModelParams, "params")
        self.finish_check = finish_check
        self.require_finish = require_finish
        self.archive = archive
        self.prices = {} if prices is None else checked_prices(prices)
        self.language: Language = language
        self.texts = {} if texts is None else _mapping("texts", texts)
        self.ledger = ledger
        self.confirm = confirm
        self.count_tokens = count_tokens
        _check_types(self)
        texts_for(language, self.texts)
        if isinstance(policy, Policy):
            self.policy = checked_settings(policy, Policy, "policy")

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
        confirm_by_run: bool = False,
        policy: Policy | None = None,
    ) -> RunHead:
        """The head of a run of this agent: everything that decides how it goes. Raises `ConfigError`."""
        if not isinstance(task, str):
            raise ConfigError(f"the task is {type(task).__name__}, it must be text")
        protocol, provider, name = described(model)
        silent, params = (_sent(own, model, name) for own in (ModelParams(), self.params or ModelParams()))
        params = bounded(params, self.budget.max_output_tokens)
        price, budget = self.prices.get(params.model), self.budget
        if budget.max_cost_usd is msgspec.UNSET:
            budget = msgspec.structs.replace(budget, max_cost_usd=None if price is None else DEFAULT_MAX_COST_USD)
        if budget.max_cost_usd is not None and price is None:
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
            budget=budget,
            guard=self.guard,
            policy=policy or policy_from(self.policy),
            context=self.context,
            price=price,
            texts=self.texts,
            notes=self._notes(task),
            require_finish=self.require_finish,
            finish_check=self.finish_check is not None,
            confirm=confirm,
            confirm_by_run=confirm and confirm_by_run,
            conversation_id=conversation_id,
            turn=turn,
            model_params=None if silent == params else silent,
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


def _sent(own: ModelParams, model: Any, name: str) -> ModelParams:
    """What a request is sent with: an agent's own parameters, and the model's wherever it sets none."""
    params = merged(own, getattr(model, "params", None) or ModelParams())
    if not params.model:
        params = msgspec.structs.replace(params, model=name)
    if hasattr(model, "effective_params"):
        effective: ModelParams = model.effective_params(params)
        return effective
    return params


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


def _check_types(agent: Agent) -> None:
    """What no type checker saw: each wrong setting is named, with what it should be."""
    for name, kind, words in (
        ("name", str, "text"),
        ("system", str, "text"),
        ("require_finish", bool, "True or False"),
        ("language", str, "text"),
        ("tools", ToolRegistry, "a ToolRegistry: make one, and add each function with registry.tool(function)"),
    ):
        check_kind(name, getattr(agent, name), kind, words)
    if agent.policy is not None:
        check_kind("policy", agent.policy, (str, Path, Policy), "a mode, a Policy or the path of a TOML file")
        if not isinstance(agent.policy, Path):
            policy_from(agent.policy, {})
    for name, method in (("archive", "fragments"), ("ledger", "begin")):
        value = getattr(agent, name)
        if value is not None and not callable(getattr(value, method, None)):
            raise ConfigError(
                f"{name} is {type(value).__name__} ({value!r:.80}), it must be {'an Archive' if name == 'archive' else 'a Ledger'}"
            )
    check_function("confirm", agent.confirm)
    check_function("finish_check", agent.finish_check)
    if not callable(agent.count_tokens):
        raise ConfigError(f"count_tokens is {type(agent.count_tokens).__name__}, it must be a function of a text")


def _mapping(name: str, given: Any) -> dict[str, Any]:
    check_kind(name, given, Mapping, "a dict")
    return dict(given)


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
