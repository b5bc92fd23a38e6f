"""Planted changes of an agent, as a table: what the agent was and is, what the model said, and what a replay must say.

Each change is made as a user would make it. `verdict` is what it must be, `step` and `cause` those of the first difference;
a change that nothing exercises has the verdict `same` and is named as a changed setting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Union  # noqa: UP035 - one refactoring is to drop them

from kernel import (
    Agent,
    Budget,
    ContextLimits,
    Guard,
    MemoryLedger,
    ModelError,
    ModelParams,
    Policy,
    Price,
    ScriptedModel,
    SqliteArchive,
    ToolRegistry,
    Usage,
)

Options = dict[str, Any]
Action = tuple[str, dict[str, Any]] | str | ModelError
TASK = "Why did the order service 5xx rate rise?"
SYSTEM = "You look after a shop. Name the evidence for each claim."
PRICES = {"scripted-model": Price(input_usd=1.0, output_usd=2.0)}

LOOK: Action = ("look", {"what": "rate"})
OTHER: Action = ("look", {"what": "cpu"})
RESTART: Action = ("restart", {"service": "order"})
POLL: Action = ("poll", {})
PAGE: Action = ("page", {})
DONE: Action = ("finish", {"answer": "12 %"})
BAD: Action = ("look", {"what": 7, "more": 1})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One planted change."""

    id: str
    was: Options = field(default_factory=dict)
    now: Options = field(default_factory=dict)
    said: tuple[Action, ...] = (LOOK, DONE)
    verdict: str = "drifted"
    step: int = 1
    cause: str = ""
    protocol: str = "text"


def tools(
    *,
    without: tuple[str, ...] = (),
    first: tuple[str, ...] = (),
    also: tuple[Callable[..., Any], ...] = (),
    **changes: Options,
) -> ToolRegistry:
    """The shop's tools; `changes` are keyword arguments of `register` for a tool, `first` changes the order."""
    registry = ToolRegistry()
    kinds: dict[str, tuple[Callable[..., Any], Options]] = {
        "look": (_look, {"description": "Look at a figure.", "params": WHAT, "returns": "a figure"}),
        "restart": (_restart, {"description": "Restart a service.", "params": SERVICE, "side_effect": True}),
        "poll": (_poll, {"description": "Ask for news.", "params": NONE, "volatile": True}),
        "page": (_page, {"description": "Read the runbook.", "params": NONE}),
    }
    for name in [*first, *(name for name in kinds if name not in first)]:
        function, options = kinds[name]
        if name not in without:
            registry.register(**{"name": name, **options, **changes.get(name, {})})(function)
    for function in also:
        registry.tool(function)
    return registry


def _schema(properties: Options, required: list[str]) -> Options:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


WHAT = _schema({"what": {"type": "string", "description": "the figure"}}, ["what"])
SERVICE = _schema({"service": {"type": "string"}}, ["service"])
NONE = _schema({}, [])


def _look(args: Options) -> str:
    return f"{args['what']}: 12 %"


def _restart(args: Options) -> str:
    return "restarted"


def _poll(args: Options) -> str:
    return "no news"


def _page(args: Options) -> str:
    return "Look at the last deploy first. " * 20


def extra(service: str) -> str:
    """Roll a service back."""
    return "rolled back"


def notes(text: str) -> SqliteArchive:
    archive = SqliteArchive(":memory:")
    archive.add(text, title="order 5xx")
    return archive


BEFORE = "The order service 5xx rate rose before, after a deploy."


def yes(name: str, args: Options) -> bool:
    return True


def no(name: str, args: Options) -> bool:
    return False


def accepts(answer: str, context: Any) -> None:
    return None


def refuses_once(answer: str, context: Any) -> str | None:
    return "give the hour" if context.attempt == 1 else None


def refuses_otherwise(answer: str, context: Any) -> str | None:
    return "give the day" if context.attempt == 1 else None


def half(text: str) -> int:
    return len(text) // 2


def agent(**options: Any) -> Agent:
    return Agent(**{"name": "ops", "system": SYSTEM, "tools": tools(), "prices": PRICES, **options})


def model(said: tuple[Action, ...], protocol: str) -> ScriptedModel:
    """The model that says this, in a protocol. A text is said as it is."""
    replies: list[Any] = []
    for action in said:
        if not isinstance(action, tuple):
            replies.append(action)
        elif protocol == "text":
            replies.append(json.dumps({"action": action[0], "args": action[1]}))
        elif action[0] == "finish":
            replies.append(action[1]["answer"])
        else:
            replies.append([(action[0], json.dumps(action[1]))])
    usage = Usage(input_tokens=100, output_tokens=10)
    return ScriptedModel(replies, protocol=protocol, usage=usage)  # type: ignore[arg-type]


def reaching_the_request() -> Iterator[Change]:
    """What the model is sent today and was not when it was recorded: drift, in step 1, in both protocols."""
    narrow = {**WHAT, "properties": {"what": {"type": "string", "enum": ["rate", "cpu"]}}}
    described = {**WHAT, "properties": {"what": {"type": "string", "description": "a figure or a log"}}}
    rows: list[tuple[str, Options, Options, str]] = [
        ("prompt edited", {}, {"system": SYSTEM + " Be brief."}, "prompt"),
        ("prompt: a letter", {}, {"system": SYSTEM.replace("claim", "claims")}, "prompt"),
        ("prompt: white space", {}, {"system": SYSTEM + "\n"}, "prompt"),
        ("prompt dropped", {}, {"system": ""}, "prompt"),
        ("temperature changed", {"params": ModelParams(temperature=0.0)}, {"params": ModelParams(temperature=0.7)}, "parameters"),
        ("temperature dropped", {"params": ModelParams(temperature=0.0)}, {}, "parameters"),
        ("temperature added", {}, {"params": ModelParams(temperature=0.2)}, "parameters"),
        ("seed changed", {"params": ModelParams(seed=7)}, {"params": ModelParams(seed=8)}, "parameters"),
        ("seed dropped", {"params": ModelParams(seed=7, temperature=0.0)}, {"params": ModelParams(temperature=0.0)}, "parameters"),
        ("top_p added", {}, {"params": ModelParams(top_p=0.5)}, "parameters"),
        ("stop dropped", {"params": ModelParams(stop=("END",))}, {}, "parameters"),
        ("stop changed", {"params": ModelParams(stop=("END",))}, {"params": ModelParams(stop=("STOP",))}, "parameters"),
        ("extra added", {}, {"params": ModelParams(extra={"reasoning_effort": "high"})}, "parameters"),
        ("extra: true for 1", {"params": ModelParams(extra={"n": 1})}, {"params": ModelParams(extra={"n": True})}, "parameters"),
        ("model changed", {"params": ModelParams(model="scripted-model")}, {"params": ModelParams(model="other"), "prices": {"other": PRICES["scripted-model"]}}, "parameters"),
        ("reply bound lowered", {"budget": Budget(max_output_tokens=500)}, {"budget": Budget(max_output_tokens=50)}, "budget"),
        ("reply bound dropped", {"budget": Budget(max_output_tokens=500)}, {"budget": Budget(max_output_tokens=None)}, "budget"),
        ("archive dropped", {"archive": notes(BEFORE)}, {}, "archive"),
        ("archive added", {}, {"archive": notes(BEFORE)}, "archive"),
        ("archive says another thing", {"archive": notes(BEFORE)}, {"archive": notes(BEFORE.replace("rose", "fell"))}, "archive"),
        ("tool description", {}, {"tools": tools(look={"description": "Look."})}, "tool schema"),
        ("tool returns", {}, {"tools": tools(look={"returns": "text"})}, "tool schema"),
        ("argument description", {}, {"tools": tools(look={"params": described})}, "tool schema"),
        ("enum that holds what was asked", {}, {"tools": tools(look={"params": narrow})}, "tool schema"),
        ("tool added", {}, {"tools": tools(also=(extra,))}, "tool schema"),
        ("unused tool removed", {}, {"tools": tools(without=("poll",))}, "tool schema"),
        ("order of tools", {}, {"tools": tools(first=("page",))}, "tool schema"),
        ("closing words of a tool's schema", {}, {"tools": tools(look={"params": {**WHAT, "additionalProperties": True}})}, "tool schema"),
    ]  # fmt: skip
    for protocol in ("text", "tools"):
        for id, was, now, cause in rows:
            yield Change(id=f"{id} ({protocol})", was=was, now=now, cause=cause, protocol=protocol)
    yield Change(id="language", now={"language": "zh"}, cause="texts")
    yield Change(id="finish insisted on", now={"require_finish": True}, cause="finish rule", protocol="tools",
                 said=(LOOK, "12 %"), verdict="diverged", step=2)  # fmt: skip


def gates() -> Iterator[Change]:
    """What decides whether an action may run, and how: behaviour, at the step where the action was."""
    effect = (LOOK, RESTART, DONE)

    def gate(
        id: str, was: Options, now: Options, cause: str, said: tuple[Action, ...] = effect, step: int = 2
    ) -> Change:
        return Change(id=id, was=was, now=now, cause=cause, said=said, verdict="diverged", step=step)

    for mode in ("read_only", "dry_run"):
        yield gate(f"policy full to {mode}", {}, {"policy": mode}, "policy")
        yield gate(f"policy {mode} to full", {"policy": mode}, {}, "policy")
    yield gate("allowlist without the tool", {}, {"policy": Policy(mode="allowlist", allow=("look",))}, "policy")
    yield gate(
        "tool taken off the allowlist",
        {"policy": Policy(mode="allowlist", allow=("restart",))},
        {"policy": Policy(mode="allowlist", allow=())},
        "policy",
    )
    yield gate("confirm dropped", {"confirm": yes}, {}, "approval")
    yield gate("confirm that refused dropped", {"confirm": no}, {}, "approval")
    yield gate("confirm added", {}, {"confirm": yes}, "approval")
    no_effect = {"tools": tools(restart={"side_effect": False})}
    yield gate("effect flag dropped, asked before", {"confirm": yes}, {"confirm": yes, **no_effect}, "tool settings")
    yield gate(
        "effect flag dropped, read-only", {"policy": "read_only"}, {"policy": "read_only", **no_effect}, "tool settings"
    )
    yield gate("effect flag added", {**no_effect, "policy": "read_only"}, {"policy": "read_only"}, "tool settings")
    yield gate("effect flag dropped, booked before", {}, no_effect, "tool settings")
    once = {"tools": tools(look={"max_calls": 1})}
    yield gate("allowance lowered", {}, once, "tool settings", (LOOK, OTHER, DONE))
    yield gate("allowance raised", once, {}, "tool settings", (LOOK, OTHER, DONE))
    yield gate("tool renamed", {}, {"tools": tools(look={"name": "see"})}, "tool schema", (LOOK, DONE), 1)
    yield gate("tool removed", {}, {"tools": tools(without=("restart",))}, "tool schema")
    numbers = {**WHAT, "properties": {"what": {"type": "integer"}}}
    yield gate("type of an argument", {}, {"tools": tools(look={"params": numbers})}, "tool schema", (LOOK, DONE), 1)
    enum = {**WHAT, "properties": {"what": {"enum": ["cpu"]}}}
    yield gate("enum narrowed", {}, {"tools": tools(look={"params": enum})}, "tool schema", (LOOK, DONE), 1)
    more = _schema({**WHAT["properties"], "since": {"type": "string"}}, ["what", "since"])
    yield gate("required argument added", {}, {"tools": tools(look={"params": more})}, "tool schema", (LOOK, DONE), 1)
    wide = {"type": "object", "properties": {}}
    yield gate("schema opened", {}, {"tools": tools(look={"params": wide})}, "tool schema", (BAD, DONE), 1)
    yield gate("key by position", {}, {"tools": tools(restart={"idempotency": "position"})}, "tool settings")
    # the guard
    again = (LOOK, LOOK, DONE)
    yield gate("guard off", {}, {"guard": Guard(enabled=False)}, "guard", again)
    yield gate("guard on", {"guard": Guard(enabled=False)}, {}, "guard", again)
    back = (LOOK, OTHER, LOOK, OTHER, LOOK, DONE)
    yield gate("guard window", {}, {"guard": Guard(window=1)}, "guard", back, 3)
    yield gate("guard warnings lowered", {}, {"guard": Guard(max_warnings=1)}, "guard", back, 3)
    polls = (POLL, POLL, POLL, DONE)
    yield gate("volatile dropped", {}, {"tools": tools(poll={"volatile": False})}, "tool settings", polls)
    # limits
    yield gate("fewer steps", {}, {"budget": Budget(max_steps=2)}, "budget", effect, 3)
    yield gate("more steps", {"budget": Budget(max_steps=2)}, {"budget": Budget(max_steps=9)}, "budget", effect, 3)
    yield gate("fewer prompt tokens", {}, {"budget": Budget(max_prompt_tokens=150)}, "budget", effect, 1)
    yield gate("less money", {}, {"budget": Budget(max_cost_usd=0.00021)}, "budget", effect, 1)
    yield gate(
        "price changed", {}, {"prices": {"scripted-model": Price(input_usd=9.0, output_usd=2.0)}}, "price", effect, 1
    )
    yield gate("price dropped", {}, {"prices": {}}, "price", effect, 1)
    yield gate("fewer errors", {}, {"budget": Budget(max_errors=1)}, "budget", (BAD, LOOK, DONE), 2)
    failing = (ModelError("reset", retry_after_s=0.001), LOOK, DONE)
    yield gate("retries cut", {}, {"budget": Budget(model_retries=0)}, "budget", failing, 1)
    yield gate("time", {"budget": Budget(timeout_s=60)}, {"budget": Budget(timeout_s=1e-9)}, "budget", effect, 2)
    # what is shown
    short = {"context": ContextLimits(max_observation_chars=200)}
    yield gate("observation cut", {}, short, "truncation", (PAGE, DONE), 1)
    yield gate("observation whole", short, {}, "truncation", (PAGE, DONE), 1)
    yield gate(
        "observation cut elsewhere",
        short,
        {"context": ContextLimits(max_observation_chars=300)},
        "truncation",
        (PAGE, DONE),
        1,
    )
    # the finish
    refused = (DONE, DONE)
    yield gate("finish check dropped", {"finish_check": refuses_once}, {}, "finish check", refused, 1)
    yield gate("finish check added", {}, {"finish_check": refuses_once}, "finish check", effect, 3)
    yield gate(
        "finish check says otherwise",
        {"finish_check": refuses_once},
        {"finish_check": refuses_otherwise},
        "finish check",
        refused,
        1,
    )
    yield gate(
        "fewer refusals",
        {"finish_check": refuses_once},
        {"finish_check": refuses_once, "budget": Budget(max_finish_refusals=1)},
        "budget",
        refused,
        2,
    )


def further_requests() -> Iterator[Change]:
    """What changes a later request alone."""
    long = (LOOK, PAGE, OTHER, PAGE, LOOK, DONE)
    limits = Guard(enabled=False)
    yield Change(id="window added", was={"guard": limits}, said=long, cause="condensing", step=5,
                 now={"guard": limits, "context": ContextLimits(window_tokens=700, keep_steps=1)})  # fmt: skip
    yield Change(id="words of the kernel", now={"texts": {"observation": "Seen: {text}"}}, cause="texts", step=2)
    yield Change(id="words of a fault", now={"texts": {"fault.text": "No: {message} ({tool}{args})"}}, cause="texts",
                 said=("no action here", LOOK, DONE), verdict="diverged", step=1)  # fmt: skip


def unexercised() -> Iterator[Change]:
    """What nothing of the recorded run depends on: the verdict is `same`, and the setting is named."""
    rows: list[tuple[str, Options, Options, str]] = [
        ("policy", {}, {"policy": "read_only"}, "policy"),
        ("confirm", {"confirm": yes}, {}, "approval"),
        ("confirm added", {}, {"confirm": no}, "approval"),
        ("steps", {}, {"budget": Budget(max_steps=99)}, "budget"),
        ("time", {"budget": Budget(timeout_s=60)}, {"budget": Budget(timeout_s=90)}, "budget"),
        ("errors", {}, {"budget": Budget(max_errors=9)}, "budget"),
        ("retries", {}, {"budget": Budget(model_retries=0)}, "budget"),
        ("refusals", {}, {"budget": Budget(max_finish_refusals=1)}, "budget"),
        ("guard", {}, {"guard": Guard(enabled=False)}, "guard"),
        ("guard window", {}, {"guard": Guard(window=2)}, "guard"),
        ("similarity", {}, {"guard": Guard(similarity=0.9)}, "guard"),
        ("observation", {}, {"context": ContextLimits(max_observation_chars=9000)}, "truncation"),
        ("window", {}, {"context": ContextLimits(window_tokens=90_000)}, "condensing"),
        ("finish check", {"finish_check": accepts}, {}, "finish check"),
        ("effect flag", {}, {"tools": tools(restart={"side_effect": False})}, "tool settings"),
        ("timeout of a tool", {}, {"tools": tools(look={"timeout": 3})}, "tool settings"),
        ("isolation", {}, {"tools": tools(page={"volatile": True})}, "tool settings"),
        ("allowance", {}, {"tools": tools(look={"max_calls": 5})}, "tool settings"),
        ("words", {}, {"texts": {"guard.warned.again": "Again {name} {step}."}}, "texts"),
        ("name", {}, {"name": "operator"}, "agent"),
    ]
    for id, was, now, cause in rows:
        yield Change(id=f"unexercised: {id}", was=was, now=now, cause=cause, verdict="same", step=0)


CHANGES = [*reaching_the_request(), *gates(), *further_requests(), *unexercised()]


def _typed_lists(names: list[str], limits: dict[str, int], since: str | None = None) -> list[str]:
    """Look up names."""
    return names


def _typing_lists(names: List[str], limits: Dict[str, int], since: Optional[str] = None) -> List[str]:  # noqa: UP006, UP045
    """Look up names."""
    return [*names]


def _union(value: int | str, flag: Literal["a", "b"] = "a") -> str:
    """Take a value."""
    return str(value)


def _typing_union(value: Union[int, str], flag: Literal["a", "b"] = "a") -> str:  # noqa: UP007
    """Take a value."""
    return f"{value}"


async def _async_union(value: int | str, flag: Literal["a", "b"] = "a") -> str:
    """
    Take a value.
    """
    return str(value)


def _indented(value: int | str, flag: Literal["a", "b"] = "a") -> str:
    """Take a value."""
    return str(value)


def _only(*functions: Callable[..., Any], name: str = "do") -> ToolRegistry:
    registry = ToolRegistry()
    for function in functions:
        registry.register(name=name)(function)
    return registry


class _Named(Agent):
    """An agent as a class of the user's own."""


def _turned(value: Any) -> Any:
    """A JSON value with the keys of each object the other way round."""
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(item) for item in value] if isinstance(value, list) else value


DEEP = _schema(
    {"filter": _schema({"from": {"type": "string"}, "to": {"type": "string"}}, ["from", "to"]),
     "any": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null", "title": "none"}]}},
    ["filter", "any"],
)  # fmt: skip


def _reordered(schema: Options) -> Options:
    """The schema with the names of each `required` in another order."""
    out = {key: _reordered(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if "required" in out:
        out["required"] = list(reversed(out["required"]))
    return out


def _notes_twice() -> SqliteArchive:
    archive = SqliteArchive(":memory:")
    archive.add("Bananas ripen beside apples.", title="fruit")
    archive.add(BEFORE, title="order 5xx")
    return archive


def _checks(answer: str, context: Any) -> bool:
    return "" in answer


def refactorings() -> Iterator[tuple[str, Options, Options, tuple[Action, ...]]]:
    """Changes that change nothing: neither a verdict nor a setting may tell of one."""
    said, effect = (LOOK, DONE), (LOOK, RESTART, DONE)

    def one(
        id: str, was: Options, now: Options, said: tuple[Action, ...] = said
    ) -> tuple[str, Options, Options, tuple[Action, ...]]:
        return id, was, now, said

    yield one("nothing", {}, {})
    yield one("key order of a schema", {}, {"tools": tools(look={"params": _turned(WHAT)})})
    yield one(
        "key order of every schema",
        {},
        {
            "tools": tools(
                **{n: {"params": _turned(p)} for n, p in (("look", WHAT), ("restart", SERVICE), ("page", NONE))}
            )
        },
        effect,
    )
    yield one(
        "key order of a deep schema",
        {"tools": tools(page={"params": DEEP})},
        {"tools": tools(page={"params": _turned(DEEP)})},
    )
    yield one(
        "order of required",
        {"tools": tools(page={"params": DEEP})},
        {"tools": tools(page={"params": _reordered(DEEP)})},
    )
    yield one("key order and a fault", {}, {"tools": tools(look={"params": _turned(WHAT)})}, (BAD, DONE))
    yield one(
        "List, Dict and Optional of typing", {"tools": _only(_typed_lists)}, {"tools": _only(_typing_lists)}, (DONE,)
    )
    yield one(
        "Union of typing", {"tools": _only(_union)}, {"tools": _only(_typing_union)}, (("do", {"value": 1}), DONE)
    )
    yield one("async tool", {"tools": _only(_union)}, {"tools": _only(_async_union)}, (("do", {"value": "x"}), DONE))
    yield one(
        "white space of a docstring",
        {"tools": _only(_union)},
        {"tools": _only(_indented)},
        (("do", {"value": 1}), DONE),
    )
    yield one("another function of the same name", {"tools": tools()}, {"tools": tools(look={"params": dict(WHAT)})})
    yield one("the registry made anew", {"tools": tools()}, {"tools": tools()}, effect)
    yield one("timeout as float", {"tools": tools(look={"timeout": 3})}, {"tools": tools(look={"timeout": 3.0})})
    yield one("budget spelled out", {}, {"budget": Budget()})
    yield one(
        "defaults spelled out", {}, {"budget": Budget(max_steps=Budget().max_steps, max_errors=Budget().max_errors)}
    )
    yield one("wall clock as float", {"budget": Budget(timeout_s=60)}, {"budget": Budget(timeout_s=60.0)})
    yield one("guard spelled out", {}, {"guard": Guard()})
    yield one("context spelled out", {}, {"context": ContextLimits()})
    yield one("parameters spelled out", {}, {"params": ModelParams()})
    yield one("temperature as float", {"params": ModelParams(temperature=0)}, {"params": ModelParams(temperature=0.0)})
    yield one("the model's own name", {}, {"params": ModelParams(model="scripted-model")})
    yield one(
        "key order of extra",
        {"params": ModelParams(extra={"a": 1, "b": {"c": 1, "d": 2}})},
        {"params": ModelParams(extra={"b": {"d": 2, "c": 1}, "a": 1})},
    )
    yield one("policy spelled out", {}, {"policy": "full"})
    yield one("policy as an object", {"policy": "read_only"}, {"policy": Policy(mode="read_only")}, effect)
    yield one(
        "policy with another source",
        {"policy": Policy(mode="dry_run")},
        {"policy": Policy(mode="dry_run", source="here")},
        effect,
    )
    yield one(
        "allowlist as an object",
        {"policy": Policy(mode="allowlist", allow=("restart",))},
        {"policy": Policy(mode="allowlist", allow=("restart",))},
        effect,
    )
    yield one("confirm as another function", {"confirm": yes}, {"confirm": lambda name, args: True}, effect)
    yield one("confirm as another function that would refuse", {"confirm": yes}, {"confirm": no}, effect)
    yield one("finish check as a lambda", {"finish_check": accepts}, {"finish_check": lambda answer, context: True})
    yield one("finish check written anew", {"finish_check": accepts}, {"finish_check": _checks})
    yield one(
        "finish check that refuses alike",
        {"finish_check": refuses_once},
        {"finish_check": lambda a, c: refuses_once(a, c)},
        (DONE, DONE),
    )
    yield one("archive filled in another order", {"archive": notes(BEFORE)}, {"archive": notes(BEFORE)})
    yield one("archive with a note of something else", {"archive": notes(BEFORE)}, {"archive": _notes_twice()})
    yield one("empty archive", {}, {"archive": SqliteArchive(":memory:")})
    yield one("prices of further models", {}, {"prices": {**PRICES, "other": Price(input_usd=3.0, output_usd=4.0)}})
    yield one("price as int", {}, {"prices": {"scripted-model": Price(input_usd=1, output_usd=2)}})
    yield one("ledger", {}, {"ledger": MemoryLedger()}, effect)
    yield one("language spelled out", {}, {"language": "en"})
    yield one("no texts", {}, {"texts": {}})
    yield one("token counter alike", {}, {"count_tokens": lambda text: len(text) // 4 + 1})
    yield one("prompt put together", {}, {"system": " ".join(SYSTEM.split(" "))})
    yield one("finish not insisted on", {}, {"require_finish": False})
