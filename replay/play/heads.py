"""Two heads, recorded and today's: what of the settings changed, field by field, and a head in which only some of it did.

A setting is a part of the head that changes as one: a number of the budget, what the model sees of a tool, the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from kernel.agent import Agent
from kernel.errors import ConfigError, TracefirstError
from kernel.loop import POLICY_VARIABLE, policy_from
from kernel.record import READ_RANGE, RunHead, ToolSpec, compact_json
from replay.play.divergence import ABSENT, differences, token
from replay.play.doubles import RecordedModel
from replay.play.rules import Rules

R = TypeVar("R", bound=Struct)
T = TypeVar("T")
replace = msgspec.structs.replace
_plain = msgspec.to_builtins

SEEN = ("description", "parameters", "returns")
"""What a model sees of a tool beside its name; the rest says how dispatch treats it."""

IDENTITY = frozenset({"task", "run_id", "protocol", "provider", "conversation_id", "turn", "masked", "resumes", "source",
                      "absent", "masked_tokens", "dropped", "model_params", "confirm_by_run", "effects", "witnessed"})  # fmt: skip
"""Fields of a head that say which run it is, or of which model and file; a replay has them from the recording."""

WHOLE = {
    "agent": "agent",
    "system": "prompt",
    "language": "texts",
    "texts": "texts",
    "notes": "archive",
    "require_finish": "finish rule",
    "finish_check": "finish check",
    "confirm": "approval",
    "price": "price",
}
"""Fields that are one setting each, with the cause that a change of it is."""

PARTED: dict[str, Callable[[str], str]] = {
    "params": lambda name: "parameters",
    "budget": lambda name: "budget",
    "guard": lambda name: "guard",
    "context": lambda name: "truncation" if name == "max_observation_chars" else "condensing",
    "policy": lambda name: "policy",
}
"""Fields of which each field is a setting."""

_MOST_TOOLS = 16
_BOUND = ("budget", "max_output_tokens")
_WORDS = ("language", "texts")
"""Settings that also decide how `read_range`, the kernel's own tool, is described."""


class Setting(Struct, frozen=True, kw_only=True):
    """A setting that is another one today. `key` are the names on the way to it in the head."""

    key: tuple[str, ...]
    recorded: Any
    observed: Any
    cause: str

    @property
    def name(self) -> str:
        """The names on the way to the setting, with dots between them, for people."""
        return ".".join(self.key)

    @property
    def path(self) -> str:
        """The place of the setting in the head, as a JSON Pointer."""
        return "".join(f"/{token(name)}" for name in self.key)


def todays_head(recorded: RunHead, agent: Agent, model: RecordedModel) -> RunHead:
    """Today's settings for the recorded task. What is not the agent's own is the recording's, see `kept`.

    Raises:
        ConfigError: the agent's settings cannot work, or its archive fails.
    """
    by_run = recorded.confirm and recorded.confirm_by_run
    from_environment = _policy_from_environment(recorded)
    try:
        head = agent.head(
            recorded.task,
            model,
            run_id=recorded.run_id,
            turn=recorded.turn,
            conversation_id=recorded.conversation_id,
            confirm=by_run or agent.confirm is not None,
            confirm_by_run=by_run,
            policy=recorded.policy if from_environment else policy_from(agent.policy, {}),
        )
    except TracefirstError:
        raise
    except Exception as error:  # an archive is the user's own code
        raise ConfigError(f"today's agent cannot start: {type(error).__name__}: {error}") from error
    return replace(head, tools=_tools(recorded, head), source=recorded.source)


def settled(recorded: RunHead, today: RunHead, rules: Rules) -> RunHead:
    """Today's head, in which every text that the rules let vary is the recorded one."""
    if not rules:
        return today
    first, second = (("request", "messages", at, "content") for at in ("0", "1"))
    known = {tool.name: tool for tool in recorded.tools}
    in_prompt = first if recorded.protocol == "text" else None
    return replace(
        today,
        system=rules.settle(first, recorded.system, today.system),
        notes=_as_text(second, recorded.notes, today.notes, rules),
        texts=_as_text(first, recorded.texts, today.texts, rules),
        params=_settled_record(("request", "params"), recorded.params, today.params, rules),
        tools=tuple(
            _settled_record(("request", "tools", tool.name), known[tool.name], tool, rules, in_prompt)
            if tool.name in known
            else tool
            for tool in today.tools
        ),
    )


def _as_text(at: tuple[str, ...], recorded: T, today: T, rules: Rules) -> T:
    """A value that is a part of a message: rules are applied to it as to a text."""
    sides = [value if isinstance(value, str) else compact_json(value) for value in (recorded, today)]
    return recorded if rules.settle(at, *sides) == sides[0] else today


def _settled_record(
    at: tuple[str, ...], recorded: R, today: R, rules: Rules, or_at: tuple[str, ...] | None = None
) -> R:
    """A record of which each field that the rules let vary is the recorded one; `or_at` is another place of its texts."""
    new: dict[str, Any] = {}
    for name in today.__struct_fields__:
        was, now = getattr(recorded, name), getattr(today, name)
        found = rules.settle((*at, name), was, now)
        if found is now and or_at is not None and isinstance(now, (str, dict)):
            found = _as_text(or_at, was, now, rules)
        if found is not now:
            new[name] = found
    return replace(today, **new) if new else today


def kept(recorded: RunHead, agent: Agent) -> Iterator[str]:
    """What a replay with an agent takes from the recording, because it was not the agent that decided it."""
    if recorded.confirm and recorded.confirm_by_run:
        yield "confirm was given for the run: its recorded answers are served"
    if _policy_from_environment(recorded):
        yield f"the policy {recorded.policy.mode} was set by the {recorded.policy.source}: it holds here too"


def _policy_from_environment(recorded: RunHead) -> bool:
    return recorded.policy.source == f"environment {POLICY_VARIABLE}"


def _tools(recorded: RunHead, today: RunHead) -> tuple[ToolSpec, ...]:
    """Today's tools. One that differs from the recorded only in what has no order, such as the keys of its schema, is
    written as it was; a foreign recording has no `read_range` of ours."""
    known = {tool.name: tool for tool in recorded.tools}
    tools = [
        known[tool.name] if tool.name in known and _alike(tool, known[tool.name]) else tool for tool in today.tools
    ]
    if recorded.source is not None and READ_RANGE not in known:
        tools = [tool for tool in tools if tool.name != READ_RANGE]
    return tuple(tools)


def _alike(one: ToolSpec, other: ToolSpec) -> bool:
    return one == other or _plain(replace(one, parameters=_unordered(one.parameters))) == _plain(
        replace(other, parameters=_unordered(other.parameters))
    )


def _unordered(schema: Any) -> Any:
    """A schema with the names of `required` in order; the order of keys never counts between dicts."""
    if isinstance(schema, dict):
        return {
            key: sorted(value)
            if key == "required" and isinstance(value, list) and all(isinstance(name, str) for name in value)
            else _unordered(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_unordered(item) for item in schema]
    return schema


def changed_settings(recorded: RunHead, today: RunHead) -> list[Setting]:
    """The settings that differ. O(fields), nothing where the heads are equal."""
    found: list[Setting] = []
    for name, cause in WHOLE.items():
        _add(found, (name,), getattr(recorded, name), getattr(today, name), cause)
    reworded = any(setting.key[0] in _WORDS for setting in found)
    _add_tools(
        found, recorded.tools, _with_tool(today.tools, recorded.tools, [READ_RANGE]) if reworded else today.tools
    )
    for name, cause_of in PARTED.items():
        one, other = getattr(recorded, name), getattr(today, name)
        if one != other or name == "params":
            for field in one.__struct_fields__:
                if (name, field) != ("policy", "source"):
                    _add(found, (name, field), getattr(one, field), getattr(other, field), cause_of(field))
    if any(setting.key == _BOUND for setting in found):  # it is sent as a parameter: one change, not two
        found = [setting for setting in found if setting.key != ("params", _BOUND[1])]
    return found


def _add(found: list[Setting], key: tuple[str, ...], was: Any, now: Any, cause: str) -> None:
    if was != now or (isinstance(was, dict) and next(differences(was, now), None) is not None):
        found.append(Setting(key=key, recorded=_plain(was), observed=_plain(now), cause=cause))


def _add_tools(found: list[Setting], recorded: tuple[ToolSpec, ...], today: tuple[ToolSpec, ...]) -> None:
    was, now = ({tool.name: tool for tool in tools} for tools in (recorded, today))
    differing = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
    if len(differing) > _MOST_TOOLS or (not differing and list(was) != list(now)):
        found.append(Setting(key=("tools",), recorded=list(was), observed=list(now), cause="tool schema"))
        return
    for name in differing:
        one, other = was.get(name), now.get(name)
        left, right = (ABSENT if tool is None else _seen(tool) for tool in (one, other))
        _add(found, ("tools", name), left, right, "tool schema")
        if one is not None and other is not None:
            for field in one.__struct_fields__:
                if field not in SEEN:
                    _add(found, ("tools", name, field), getattr(one, field), getattr(other, field), "tool settings")


def _seen(tool: ToolSpec) -> dict[str, Any]:
    return {name: getattr(tool, name) for name in SEEN}


def with_settings(recorded: RunHead, today: RunHead, settings: Iterable[Setting]) -> RunHead:
    """The recorded head in which these settings, and no others, are today's."""
    changes: dict[str, Any] = {}
    for setting in settings:
        name, *rest = setting.key
        if name == "tools":
            changes["tools"] = _with_tool(changes.get("tools", recorded.tools), today.tools, rest)
        elif not rest:
            changes[name] = getattr(today, name)
        else:
            part = changes.get(name, getattr(recorded, name))
            changes[name] = replace(part, **{rest[0]: getattr(getattr(today, name), rest[0])})
        if name in _WORDS:
            changes["tools"] = _with_tool(changes.get("tools", recorded.tools), today.tools, [READ_RANGE])
        if setting.key == _BOUND:
            limit = today.params.max_output_tokens
            changes["params"] = replace(changes.get("params", recorded.params), max_output_tokens=limit)
    return replace(recorded, **changes)


def _with_tool(tools: tuple[ToolSpec, ...], today: tuple[ToolSpec, ...], rest: list[str]) -> tuple[ToolSpec, ...]:
    """`tools` with one of today's, or with one field of it; all of today's where none is named."""
    if not rest:
        return today
    name, *fields = rest
    now = next((tool for tool in today if tool.name == name), None)
    if now is None:
        return tuple(tool for tool in tools if tool.name != name)
    if all(tool.name != name for tool in tools):
        return (*tools, now)
    new = {field: getattr(now, field) for field in fields or SEEN}
    return tuple(replace(tool, **new) if tool.name == name else tool for tool in tools)
