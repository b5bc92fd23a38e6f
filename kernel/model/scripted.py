"""Models that need no network: a plain function as a model, and a scripted one for tests and demonstrations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, cast

from kernel.errors import ConfigError
from kernel.record import Reply, Request, ToolCall, Usage
from kernel.seams import Model

PromptFunction = Callable[[str], str | Awaitable[str]]


def render_prompt(request: Request) -> str:
    """A request as one prompt: each message under its role, an open `assistant:` at the end."""
    parts = [f"{m.role}: {m.content}" for m in request.messages]
    return "\n\n".join([*parts, "assistant:"])


class FunctionModel:
    """A function `prompt -> text`, sync or async, as a model of the text protocol."""

    protocol: Literal["text", "tools"] = "text"
    provider = "function"

    def __init__(self, function: PromptFunction) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__).strip("<>")

    async def complete(self, request: Request) -> Reply:
        answer = self._function(render_prompt(request))
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str):
            raise TypeError(f"the model function must return text, it returned {type(answer).__name__}")
        return Reply(text=answer)


class ScriptExhausted(Exception):
    """A scripted model was asked for more replies than it has."""


class ScriptedModel:
    """Gives the replies of a list in order, and keeps the requests it was asked.

    An item is a `Reply`, a text, a list of `(tool, arguments as JSON text)` pairs, or an exception to raise. Asked for
    more than the list holds it raises `ScriptExhausted` with both counts; `requests` holds what was asked so far.
    """

    provider = "scripted"

    def __init__(
        self,
        replies: Iterable[Reply | str | list[tuple[str, str]] | BaseException],
        *,
        protocol: Literal["text", "tools"] = "text",
        name: str = "scripted-model",
        usage: Usage | None = None,
    ) -> None:
        self.replies = tuple(replies)
        self.protocol: Literal["text", "tools"] = protocol
        self.name = name
        self.requests: list[Request] = []
        self._usage = usage or Usage()

    async def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        position = len(self.requests)
        if position > len(self.replies):
            raise ScriptExhausted(f"reply {position} was asked for, the script holds {len(self.replies)}")
        item = self.replies[position - 1]
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, Reply):
            return item
        if isinstance(item, str):
            return Reply(text=item, finish_reason="stop", usage=self._usage)
        calls = tuple(
            ToolCall(id=f"call_{position}_{i}", name=name, arguments=args) for i, (name, args) in enumerate(item)
        )
        return Reply(tool_calls=calls, finish_reason="tool_calls", usage=self._usage)


def as_model(llm: Model | PromptFunction | None) -> Model:
    """What a user passed as `llm` as a `Model`; None is `default_model()`."""
    if llm is None:
        from kernel.model.openai import default_model

        return default_model()
    if hasattr(llm, "complete"):
        return cast(Model, llm)
    if callable(llm):
        return FunctionModel(llm)
    raise ConfigError(
        f"llm is {type(llm).__name__}: pass a Model (async complete(request) -> Reply) or a function prompt -> text"
    )


def described(model: Any) -> tuple[Literal["text", "tools"], str, str]:
    """Protocol, provider and name of a model; a model that does not say speaks text."""
    protocol = getattr(model, "protocol", "text")
    if protocol not in ("text", "tools"):
        raise ConfigError(f'the model\'s protocol is {protocol!r}; it must be "text" or "tools"')
    return (
        cast("Literal['text', 'tools']", protocol),
        str(getattr(model, "provider", "custom")),
        str(getattr(model, "name", type(model).__name__)),
    )
