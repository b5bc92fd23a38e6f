"""Tools and their registry: what a model may call, and how dispatch is to treat it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar

from kernel.errors import ConfigError
from kernel.record import ToolSpec, canonical_json, check_kind, check_number, parse_json, to_jsonable, valid_text
from kernel.tools.schema import ArgumentSchema, SchemaError
from kernel.tools.signature import Binder, binder, schema_of

F = TypeVar("F", bound=Callable[..., Any])
RESERVED = ("finish", "final_answer", "read_range")
"""What the kernel itself understands, in any case: by the first two a model ends the run."""


@lru_cache(maxsize=512)
def compiled_schema(parameters: str) -> ArgumentSchema:
    """Compiling a schema costs more than a replayed step; the same schema is compiled once."""
    return ArgumentSchema(parse_json(parameters))


class Tool:
    """A function with its spec. `bind` turns validated arguments into keywords; None means the function takes one dict."""

    __slots__ = ("_is_async", "_wants_key", "bind", "function", "limits", "schema", "spec")

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[..., Any],
        *,
        bind: Binder | None = None,
        limits: Mapping[str, int] = {},
    ) -> None:
        try:
            self.schema = compiled_schema(canonical_json(spec.parameters))
        except SchemaError as error:
            raise ConfigError(f'tool "{spec.name}": {error}') from None
        self.spec = spec
        self.function = function
        self.bind = bind
        self.limits = dict(limits)
        self._is_async: bool | None = None
        self._wants_key: bool | None = None

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        if self._is_async is None:
            called = getattr(self.function, "__call__", None)  # noqa: B004 - an object with an async __call__
            self._is_async = inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)
        return self._is_async

    @property
    def wants_key(self) -> bool:
        """Whether the function takes the idempotency key."""
        if self._wants_key is None:
            self._wants_key = _takes(self.function, "idempotency_key")
        return self._wants_key

    @property
    def name(self) -> str:
        return self.spec.name


class ToolRegistry:
    """The tools of an agent, in the order of their registration."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def register(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        params: Mapping[str, Any] | None = None,
        returns: str | None = None,
        timeout: float | None = 60.0,
        side_effect: bool = False,
        volatile: bool = False,
        repeats: int = 0,
        isolate: bool = False,
        idempotency: Literal["arguments", "position"] = "arguments",
        max_calls: int | None = None,
        calls_per_second: float | None = None,
        memory_mb: int | None = None,
        cpu_s: int | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a tool.

        With `params` (a JSON Schema) the function takes the arguments as one dict; without, the schema is read from its
        signature and it takes keywords.

        Args:
            timeout: seconds until a call is given up; None waits for ever (the run's own clock still counts).
            side_effect: the tool changes something: never repeated, confirmed first, held back by stricter policies.
            volatile: the same call may give another result: the loop guard lets it run again.
            repeats: how often the same call may give the same result before the loop guard warns: for polls, and for what is
                meant to be done again.
            isolate: run in a process of its own, with `memory_mb` and `cpu_s` as limits.
            idempotency: `position` lets the same arguments take effect once per call instead of once per run.
            max_calls: calls in one run; calls_per_second: pace of calls in one run.
        Raises:
            ConfigError: the name is taken or reserved, or a setting or the schema cannot be used.
        """
        shown = f'tool "{name}": ' if name else "tool: "
        for setting, text in (("name", name), ("description", description), ("returns", returns)):
            if text is not None:
                check_kind(f"{shown}{setting}", text, str, "text")
        for setting, flag in (("side_effect", side_effect), ("volatile", volatile), ("isolate", isolate)):
            check_kind(f"{shown}{setting}", flag, bool, "True or False")
        if params is not None:
            check_kind(f"{shown}params", params, Mapping, "a JSON Schema")
        if idempotency not in ("arguments", "position"):
            raise ConfigError(f'{shown}idempotency is {idempotency!r:.80}, it must be "arguments" or "position"')
        check_number(f"{shown}timeout", timeout, none="for no limit")
        check_number(f"{shown}repeats", repeats, least=0, whole=True)
        check_number(f"{shown}max_calls", max_calls, least=0, whole=True, none="for no limit")
        check_number(f"{shown}calls_per_second", calls_per_second, none="for no limit")
        check_number(f"{shown}memory_mb", memory_mb, least=1, whole=True, none="for no limit")
        check_number(f"{shown}cpu_s", cpu_s, least=1, whole=True, none="for no limit")

        def add(function: F) -> F:
            bind: Binder | None = None
            schema: Mapping[str, Any]
            if params is None:
                try:
                    signature = schema_of(function)
                except (TypeError, ValueError) as error:
                    raise ConfigError(str(error)) from None
                read_name, read_description, schema, read_returns = signature
                bind = binder(function)
            else:
                read_name = getattr(function, "__name__", type(function).__name__)
                read_description = inspect.getdoc(function) or ""
                schema, read_returns = params, ""
            spec = ToolSpec(
                name=name or read_name,
                description=valid_text(read_description if description is None else description),
                parameters=to_jsonable(schema),
                returns=read_returns if returns is None else returns,
                timeout_s=None if timeout is None else float(timeout),
                side_effect=side_effect,
                volatile=volatile,
                repeats=repeats,
                isolate=isolate,
                idempotency=idempotency,
                max_calls=max_calls,
                calls_per_second=calls_per_second,
            )
            limits = {"memory_mb": memory_mb, "cpu_s": cpu_s}
            self.add(Tool(spec, function, bind=bind, limits={k: v for k, v in limits.items() if v is not None}))
            return function

        return add

    def tool(self, function: F) -> F:
        """Register a function by its signature and docstring: `@tools.tool`."""
        return self.register()(function)

    def add(self, tool: Tool) -> None:
        """Add a tool built by hand."""
        if not tool.name or tool.name.lower() in RESERVED:
            raise ConfigError(f'the tool name "{tool.name}" is reserved; choose another with register(name=...)')
        if tool.name in self._tools:
            raise ConfigError(f'a tool named "{tool.name}" is registered already; choose another name')
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def _takes(function: Callable[..., Any], keyword: str) -> bool:
    try:
        return keyword in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
