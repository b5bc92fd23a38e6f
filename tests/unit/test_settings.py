"""What cannot work is refused where it is given: every field of every settings struct, every argument of a registration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import pytest

from kernel import (
    Agent,
    Budget,
    ConfigError,
    ContextLimits,
    Guard,
    ModelParams,
    OpenAIModel,
    Policy,
    Price,
    ScriptedModel,
    ToolRegistry,
    react,
)
from kernel.record.settings import checked_settings

STRUCTS = (Budget, Guard, ContextLimits, Policy, Price, ModelParams)


def wrongly_typed() -> Iterator[Any]:
    for kind in STRUCTS:
        for field in msgspec.structs.fields(kind):
            hint = str(get_type_hints(kind)[field.name])
            for value, fits in (
                ("2", "str" in hint or "Literal" in hint),
                (True, "bool" in hint),
                (object(), "Any" in hint),
            ):
                if not fits:
                    yield pytest.param(
                        kind, field.name, value, id=f"{kind.__name__}.{field.name}-{type(value).__name__}"
                    )


@pytest.mark.parametrize(("kind", "field", "value"), list(wrongly_typed()))
def test_a_field_of_another_type_is_named_with_its_value(kind: Any, field: str, value: Any) -> None:
    required = {"input_usd": 1.0, "output_usd": 1.0} if kind is Price else {}
    with pytest.raises(ConfigError) as refused:
        checked_settings(kind(**{**required, field: value}), kind, "settings")
    assert str(refused.value).startswith(f"settings: {field} is {value!r:.80}: expected")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": Budget(max_steps="2")}, "budget: max_steps is '2': expected int"),  # type: ignore[arg-type]
        ({"budget": {"max_steps": 2}}, "budget is dict ({'max_steps': 2}), it must be a Budget"),
        ({"guard": Guard(similarity=1.5)}, "guard: similarity is 1.5, it must be from 0 to 1"),
        ({"guard": True}, "guard is bool (True), it must be a Guard"),
        ({"context": ContextLimits(window_tokens=0)}, "context: window_tokens is 0, it must be more than 0"),
        ({"params": {"temperature": 1}}, "params is dict ({'temperature': 1}), it must be a ModelParams"),
        ({"params": ModelParams(stop="END")}, "params: stop is 'END': expected array"),  # type: ignore[arg-type]
        ({"prices": [1]}, "prices is list, it must be a dict"),
        ({"prices": {"m": 3}}, 'prices of "m" is int (3), it must be a Price'),
        ({"policy": Policy(allow="restart")}, "policy: allow is 'restart': expected array"),  # type: ignore[arg-type]
        ({"policy": 5}, "policy is int (5), it must be a mode, a Policy or the path"),
        ({"policy": "reed_only"}, "'reed_only' (from code) is unknown"),
        ({"confirm": True}, "confirm is bool (True), it must be a function"),
        ({"finish_check": "yes"}, "finish_check is str ('yes'), it must be a function"),
        ({"require_finish": "no"}, "require_finish is str ('no'), it must be True or False"),
        ({"archive": "notes"}, "archive is str ('notes'), it must be an Archive"),
        ({"ledger": "book.db"}, "ledger is str ('book.db'), it must be a Ledger"),
        ({"count_tokens": 4}, "count_tokens is int, it must be a function"),
        ({"texts": ["cut"]}, "texts is list (['cut']), it must be a dict"),
        ({"tools": [len]}, "it must be a ToolRegistry"),
        ({"name": 5}, "name is int (5), it must be text"),
        ({"language": None}, "language is NoneType (None), it must be text"),
    ],
)
def test_an_agent_is_not_made_of_what_cannot_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Agent(**settings)
    assert said in str(refused.value)


def test_settings_are_kept_as_a_trace_records_them() -> None:
    agent = Agent(policy=Policy(mode="allowlist", allow=["a"]), params=ModelParams(stop=["END"]))  # type: ignore[arg-type]
    assert agent.policy == Policy(mode="allowlist", allow=("a",)) and agent.params == ModelParams(stop=("END",))


@pytest.mark.parametrize("confirm", [True, "yes", 1])
def test_confirm_that_is_no_function_is_refused_before_anything_runs(confirm: Any) -> None:
    model = ScriptedModel(["never asked"])
    with pytest.raises(ConfigError, match=r"confirm is .* it must be a function"):
        asyncio.run(react("t", ToolRegistry(), llm=model, confirm=confirm, trace=False))
    with pytest.raises(ConfigError, match=r"confirm is .* it must be a function"):
        Agent().conversation(llm=model, confirm=confirm)
    assert model.requests == []


@pytest.mark.parametrize("name", ["finish", "Finish", "final_answer", "FINAL_ANSWER", "read_range", ""])
def test_a_name_that_the_kernel_understands_itself_is_refused(name: str) -> None:
    def tool(args: dict[str, Any]) -> None: ...

    tool.__name__ = name
    with pytest.raises(ConfigError, match="is reserved"):
        ToolRegistry().register(name=name or None, params={"type": "object"})(tool)
    with pytest.raises(ConfigError, match="is reserved"):
        ToolRegistry().register(params={"type": "object"})(tool)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": 5}, "name is int (5), it must be text"),
        ({"description": ["d"]}, "description is list (['d']), it must be text"),
        ({"params": "object"}, "params is str ('object'), it must be a JSON Schema"),
        ({"returns": 1}, "returns is int (1), it must be text"),
        ({"timeout": "15"}, "timeout is '15', it must be a number of more than 0, or None for no limit"),
        ({"timeout": 0}, "timeout is 0, it must be a number of more than 0"),
        ({"timeout": True}, "timeout is True"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"side_effect": "yes"}, "side_effect is str ('yes'), it must be True or False"),
        ({"volatile": 1}, "volatile is int (1), it must be True or False"),
        ({"isolate": None}, "isolate is NoneType (None), it must be True or False"),
        ({"idempotency": "positions"}, 'it must be "arguments" or "position"'),
        ({"max_calls": 2.5}, "max_calls is 2.5, it must be a whole number of 0 or more, or None"),
        ({"max_calls": -1}, "max_calls is -1"),
        ({"calls_per_second": 0}, "calls_per_second is 0, it must be a number of more than 0"),
        ({"memory_mb": "256"}, "memory_mb is '256', it must be a whole number of at least 1"),
        ({"cpu_s": 0}, "cpu_s is 0"),
    ],
)
def test_a_tool_is_not_registered_with_what_cannot_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ToolRegistry().register(**settings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"timeout_s": "120"}, "timeout_s is '120', it must be a number"),
        ({"connect_timeout_s": None}, "connect_timeout_s is None"),
        ({"stream": "yes"}, "stream is str ('yes'), it must be True or False"),
        ({"model": 4}, "model is int (4)"),
        ({"params": ModelParams(temperature="hot")}, "params: temperature is 'hot'"),  # type: ignore[arg-type]
    ],
)
def test_a_model_is_not_made_of_what_cannot_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        OpenAIModel("http://127.0.0.1/v1", **{"model": "m", **settings})
    assert said in str(refused.value)
