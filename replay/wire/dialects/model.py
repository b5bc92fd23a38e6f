"""What all dialects are read as, and the small reading tools that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from kernel.record import Message, ModelParams, Reply, ToolCall, ToolSpec, Usage, compact_json, parse_json, valid_text


class Question(Struct, frozen=True, kw_only=True):
    """A model request, read. `messages` hold the system prompt where there is one; `previous` is the id of the response
    whose history the server keeps."""

    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    params: ModelParams = ModelParams()
    previous: str | None = None


class Dialect(Struct, frozen=True, kw_only=True):
    """How one kind of model server speaks. `history` names the field of a request that holds its messages, `heads` those
    that hold what stands before them; `read` and `reply` raise `Strange` on another shape.

    `assembled` makes of a stream's events the body that the same server would have sent unstreamed; it raises `Strange`
    where the stream is not whole.
    """

    name: str
    provider: str
    history: str
    heads: tuple[str, ...]
    read: Callable[[dict[str, Any], str], Question]
    reply: Callable[[dict[str, Any]], Reply]
    assembled: Callable[[list[dict[str, Any]]], dict[str, Any]]


class Strange(ValueError):
    """JSON that is not of the dialect's shape."""


def obj(value: Any) -> dict[str, Any]:
    """`value` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """`value` where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """`value` where it is text, else ""."""
    return valid_text(value) if isinstance(value, str) else ""


def joined(content: Any) -> str:
    """The text of a content that is text, null or a list of parts; a part that is no text stands as its JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return valid_text(content)
    if not isinstance(content, list):
        return compact_json(content)
    return "\n".join([part if isinstance(part, str) else part_text(part) for part in content])


def part_text(part: Any) -> str:
    """One part of a content as text."""
    words = obj(part).get("text")
    return valid_text(words) if isinstance(words, str) else compact_json(part)


def arguments(value: Any) -> str:
    """Arguments of a call as text: the raw text where there is one."""
    return valid_text(value) if isinstance(value, str) else compact_json(value if value is not None else {})


def call(name: Any, args: Any, call_id: Any = "") -> ToolCall:
    return ToolCall(name=text(name), arguments=arguments(args), id=text(call_id))


def params(body: dict[str, Any], names: dict[str, str], apart: Iterable[str]) -> ModelParams:
    """The parameters of a request: `names` maps the dialect's fields to ours, `apart` are no parameters."""
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in body.items():
        field = names.get(key)
        if field is not None and (fitting := _fitting(field, value)) is not None:
            found[field] = fitting
        elif key not in apart:
            extra[key] = value
    return ModelParams(**found, extra=extra)


def _fitting(field: str, value: Any) -> Any:
    if field == "stop":
        if isinstance(value, str):
            return (value,)
        return tuple(value) if isinstance(value, list) and all(isinstance(word, str) for word in value) else None
    if field == "model":
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if field in ("seed", "max_output_tokens"):
        return value if isinstance(value, int) and abs(value) < 2**63 else None
    return float(value)


def tool(name: Any, description: Any, schema: Any) -> ToolSpec:
    return ToolSpec(name=text(name), description=text(description), parameters=obj(schema))


def count(value: Any) -> int | None:
    """A number of tokens, None where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def usage(**counts: Any) -> Usage:
    return msgspec.structs.replace(Usage(), **{name: count(value) for name, value in counts.items()})


def fields_of(arguments_text: str) -> dict[str, Any] | None:
    """The arguments of a call as an object, None where the text holds none."""
    try:
        value = parse_json(arguments_text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
