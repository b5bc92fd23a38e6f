"""What goes to a model and what comes back: messages, requests, replies, usage. Pure values; ids and times live elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import msgspec
from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A structured call as the provider gave it. `arguments` is the raw text, also when it is not valid JSON; `id` is the
    provider's, or made up where it gave none, or one twice in a reply."""

    name: str
    arguments: str
    id: str = ""


class Message(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One entry of the conversation with the model.

    `tool_call_id` and `name` belong to role `tool`; `tool_calls` and `reasoning` to role `assistant`.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None


class Usage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Tokens of one call in four classes. `input_tokens` includes the cached ones, `output_tokens` the reasoning ones.

    `None` means the provider did not say; it is never read as zero. `estimated` marks numbers that are ours.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class ToolSpec(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A tool as the model sees it (`name`, `description`, `parameters`, `returns`) and as dispatch treats it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    returns: str = ""
    timeout_s: float | None = None
    side_effect: bool = False
    volatile: bool = False
    isolate: bool = False
    idempotency: Literal["arguments", "position"] = "arguments"
    repeats: int = 0
    max_calls: int | None = None
    calls_per_second: float | None = None


class ModelParams(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Parameters of a request; what is `None` is not sent. `extra` goes to the provider as it is."""

    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""By what names in `extra` servers are told the bound on a reply."""


def output_bound(params: ModelParams) -> int | None:
    """The bound on one reply that the parameters hold, whatever its name; the smallest of several."""
    values = [params.max_output_tokens, *(params.extra.get(name) for name in OUTPUT_FIELDS)]
    return min((value for value in values if type(value) is int), default=None)


def bounded(params: ModelParams, limit: int | None) -> ModelParams:
    """The parameters with a bound on one reply of at most `limit`, under the name it has there already."""
    if limit is None:
        return params
    capped = {name: min(value, limit) for name in OUTPUT_FIELDS if type(value := params.extra.get(name)) is int}
    own = params.max_output_tokens
    if own is not None or not capped:
        own = limit if own is None else min(own, limit)
    return msgspec.structs.replace(params, max_output_tokens=own, extra={**params.extra, **capped})


def merged(params: ModelParams, defaults: ModelParams) -> ModelParams:
    """`params`, and `defaults` where `params` says nothing; `extra` is merged key by key."""
    return ModelParams(
        model=params.model or defaults.model,
        temperature=defaults.temperature if params.temperature is None else params.temperature,
        top_p=defaults.top_p if params.top_p is None else params.top_p,
        seed=defaults.seed if params.seed is None else params.seed,
        max_output_tokens=defaults.max_output_tokens if params.max_output_tokens is None else params.max_output_tokens,
        stop=params.stop or defaults.stop,
        extra={**defaults.extra, **params.extra},
    )


class MessageView(Sequence[Message]):
    """The first `length` messages of an append-only list, without copying it: later growth does not show."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message], length: int | None = None) -> None:
        self._messages = messages
        self._length = len(messages) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._messages[i] for i in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._messages[index]

    def __iter__(self) -> Iterator[Message]:
        for index in range(self._length):
            yield self._messages[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(other) == self._length and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MessageView({list(self)!r})"


def _same(one: object, other: object) -> bool:
    return one == other


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """One call to a model: all messages, the tools it may call (empty in the text protocol), the parameters.

    `kept` of the messages were in the previous request of the same conversation, unchanged and in the same place.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    params: ModelParams = ModelParams()
    kept: int = 0


class Reading(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What another program read a reply as, and acted on: calls that it ran, an answer that it ended with, or a complaint that
    it sent back. Exactly one of them is given. `kernel` says how the kernel reads the reply, where that is otherwise."""

    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    complaint: str | None = None
    kernel: str = ""


class Reply(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a model answered. `text` is the raw visible text; `refusal` the provider's own refusal field. `reading` is only in
    recordings of other programs: it takes the place of the kernel's own reading."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    usage: Usage = Usage()
    model: str | None = None
    response_id: str | None = None
    reading: Reading | None = None
