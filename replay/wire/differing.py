"""Where a request first differs from the recorded one, in an order that leads with the cause, and what that cause is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kernel.record import Message
from replay.play import differences
from replay.wire.dialects import dialect_of
from replay.wire.exchange import Asked
from replay.wire.varying import Varying

_MOST = 20

CAUSES = {
    "prompt": "the system prompt is another one today",
    "task": "the task or what the user says is another one",
    "tool schema": "a tool's name, description or schema changed, or the set of tools",
    "tool result": "a tool, or the world it looks at, gave another result",
    "model": "another model is asked",
    "parameters": "the parameters of the model request changed",
    "history": "the program tells the conversation in another way: a message more, fewer, or in other words",
    "more requests": "the program asks for more than was recorded",
    "fewer requests": "the program asks for less than was recorded",
    "endpoint": "another address is asked",
    "file": "the file is not as it was recorded: something cut, masked or edited it",
}


class Difference(NamedTuple):
    """One place of a request, both values, and the likely cause."""

    path: str
    recorded: Any
    observed: Any
    cause: str


def compared(recorded: Asked, observed: Asked, varying: Varying) -> list[Difference]:
    """The differences of two requests, the leading one first; at most twenty. Empty: they are equal."""
    if (recorded.method, recorded.target, recorded.upstream) != (observed.method, observed.target, observed.upstream):
        sides = [f"{one.method} {one.upstream}: {one.target}" for one in (recorded, observed)]
        if sides[0] != sides[1]:
            return [Difference("/target", sides[0], sides[1], _target_cause(recorded, observed))]
    if recorded.raw or observed.raw:
        return [Difference("", recorded.raw, observed.raw, "parameters")] if recorded.raw != observed.raw else []
    one, other = varying.body(recorded), varying.body(observed)
    found = []
    for path, was, now in differences(one, other):
        found.append(Difference(path, was, now, cause_of(path, observed, recorded)))
        if len(found) >= _MOST:
            break
    return sorted(found, key=lambda d: _rank(d, recorded))


def _target_cause(recorded: Asked, observed: Asked) -> str:
    one, other = (dialect_of(asked.method, asked.path) for asked in (recorded, observed))
    return "model" if one is not None and one is other and one.name == "gemini" else "endpoint"


_ORDER = ("prompt", "tool schema", "model", "parameters", "task", "tool result", "history")


def _rank(difference: Difference, asked: Asked) -> tuple[int, int, str]:
    """What is settled before the conversation comes first; within the conversation, what was said first."""
    order = _ORDER.index(difference.cause) if difference.cause in _ORDER else len(_ORDER)
    return (min(order, _ORDER.index("task")), place_of(difference.path), "")


def place_of(path: str) -> int:
    """Which item of a history a path is in."""
    parts = path.split("/")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else 0


def cause_of(path: str, observed: Asked, recorded: Asked) -> str:
    """The likely cause of a difference at a place of the body."""
    dialect = dialect_of(observed.method, observed.path)
    top, _, rest = path.removeprefix("/").partition("/")
    if top in ("system", "instructions", "systemInstruction", "system_instruction"):
        return "prompt"
    if top in ("tools", "functions", "tool_choice", "toolConfig"):
        return "tool schema"
    if top == "model":
        return "model"
    if dialect is None or top != dialect.history:
        return "parameters"
    index = rest.partition("/")[0]
    was, now = (_item(asked, dialect.history, index) for asked in (recorded, observed))
    if was is None and now is None:
        return "task"
    if was is None or now is None:
        extra = was if now is None else now
        return "tool result" if _kind(extra) == "tool result" else "history"
    kinds = {_kind(was), _kind(now)}
    return kinds.pop() if len(kinds) == 1 else "history"


def _item(asked: Asked, history: str, index: str) -> dict[str, Any] | None:
    items = asked.body.get(history) if isinstance(asked.body, dict) else None
    if not isinstance(items, list) or not index.isdecimal() or int(index) >= len(items):
        return None
    item = items[int(index)]
    return item if isinstance(item, dict) else {"role": "user", "content": item}


def _kind(item: dict[str, Any] | None) -> str:
    """What an item of a history is, by the words that all dialects use."""
    if item is None:
        return "history"
    role, kind = item.get("role"), str(item.get("type", ""))
    if role in ("system", "developer"):
        return "prompt"
    if role in ("assistant", "model") or kind.endswith("_call") or kind == "reasoning":
        return "history"
    if role in ("tool", "function") or kind.endswith("_call_output") or any(map(_is_result, _parts(item))):
        return "tool result"
    return "task"


def _parts(item: dict[str, Any]) -> Iterator[Any]:
    for name in ("content", "parts"):
        value = item.get(name)
        if isinstance(value, list):
            yield from value


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and (
        part.get("type") == "tool_result" or "functionResponse" in part or "function_response" in part
    )


def nearness(recorded: tuple[Message, ...], observed: tuple[Message, ...]) -> tuple[int, int, int]:
    """How much two histories share: for choosing what to explain a miss by, never for serving."""
    shared = 0
    while shared < min(len(recorded), len(observed)) and recorded[shared] == observed[shared]:
        shared += 1
    ended = recorded[-1:] == observed[-1:]
    common = len({message.content for message in recorded} & {message.content for message in observed})
    return (common + ended, shared, -abs(len(recorded) - len(observed)))


def summary(asked: Asked) -> str:
    """A request in a few words."""
    body = asked.body if isinstance(asked.body, dict) else {}
    model = body.get("model")
    return f"{asked.method} {asked.path}" + (f" {model}" if isinstance(model, str) else "")
