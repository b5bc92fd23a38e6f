"""The work of a schema is counted before it is begun: a small schema may ask for 10⁹ checks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kernel.tools.effort import MAX_CHECKS, Effort
from kernel.tools.schema import ArgumentSchema


def chain(keyword: str, width: int, length: int) -> dict[str, Any]:
    """`width` times the next of `length` definitions."""
    defs: dict[str, Any] = {}
    for i in range(length):
        reference = {"$ref": f"#/$defs/a{i + 1}"}
        defs[f"a{i}"] = {keyword: [reference] * width}
    defs[f"a{length}"] = {"type": "object"}
    return {"type": "object", "$defs": defs, "$ref": "#/$defs/a0"}


def through_properties(width: int, depth: int) -> dict[str, Any]:
    """Recursion with a choice at each level of the value: width ** depth checks."""
    child = {"properties": {"x": {"$ref": "#/$defs/n"}}}
    return {"type": "object", "$defs": {"n": {"anyOf": [child] * width}}, "$ref": "#/$defs/n"}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


BOMBS = {
    "allOf": (chain("allOf", 10, 9), {"x": 1}),
    "anyOf": (chain("anyOf", 10, 9), {"x": 1}),
    "oneOf": (chain("oneOf", 2, 60), {"x": 1}),
    "recursion": (through_properties(2, 40), nested(40)),
    "names": (
        {
            "type": "object",
            "$defs": {f"a{i}": {"allOf": [{"$ref": f"#n{i + 1}"}] * 10, "$anchor": f"n{i}"} for i in range(9)}
            | {"end": {"$anchor": "n9"}},
            "$ref": "#n0",
        },
        {},
    ),
    "if": (
        {
            "type": "object",
            "$defs": {
                f"a{i}": {k: {"$ref": f"#/$defs/a{i + 1}"} for k in ("if", "then", "else", "not")} for i in range(20)
            }
            | {"a20": {}},
            "$ref": "#/$defs/a0",
        },
        {},
    ),
    "circle": (
        {
            "type": "object",
            "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{j}"} for j in range(14)]} for i in range(14)},
            "$ref": "#/$defs/a0",
        },
        {"x": 1},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_arguments_that_would_take_for_ever_to_check_are_refused_and_the_limit_is_named(name: str) -> None:
    schema, args = BOMBS[name]
    assert Effort(schema).exceeds(args)
    compiled = ArgumentSchema(schema)
    assert not compiled.is_valid(args)
    (violation,) = compiled.check(args).violations
    assert str(MAX_CHECKS) in violation.expected and violation.value == "(not checked)"
    compiled.example()
    with_default = ArgumentSchema({**schema, "properties": {"y": {"default": 1}, **schema.get("properties", {})}})
    assert with_default.check(args).violations == (violation,)


@pytest.mark.parametrize(
    "part", [{"type": "string", "minLength": 10**12}, {"type": "array", "minItems": 10**12, "items": {}}]
)
def test_an_example_is_no_longer_than_a_model_may_read(part: dict[str, Any]) -> None:
    assert ArgumentSchema({"type": "object", "properties": {"x": part}, "required": ["x"]}).example() is None


TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}


def test_a_recursive_schema_in_earnest_is_checked() -> None:
    leaf = {"name": "leaf"}
    value: dict[str, Any] = {"name": "root", "children": [{"name": "n", "children": [leaf] * 50}] * 50}
    assert ArgumentSchema(TREE).is_valid(value)
    value["children"][0]["children"][0] = {"name": 1}
    assert not ArgumentSchema(TREE).is_valid(value)


def test_a_wide_value_is_no_work_to_speak_of() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert ArgumentSchema(schema).is_valid({str(n): n for n in range(100_000)})


schemas = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"$ref": "#"}, {"$ref": "#/$defs/d"}, {"const": 1}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "propertyNames": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        },
    ),
    max_leaves=8,
)
values = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


def checks(schema: Any, root: dict[str, Any], value: Any, budget: list[int]) -> None:
    """The same count by plain recursion, one step for each subschema that is applied."""
    budget[0] -= 1
    if budget[0] < 0 or not isinstance(schema, dict):
        return
    reference = {"#": root, "#/$defs/d": root["$defs"]["d"]}.get(schema.get("$ref", ""))
    same = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
    same += [schema["not"]] if "not" in schema else []
    same += [reference] if reference is not None else []
    inner: list[tuple[Any, Any]] = [(child, value) for child in same]
    if isinstance(value, dict):
        inner += [(child, value[key]) for key, child in schema.get("properties", {}).items() if key in value]
        inner += [(child, value) for key, child in schema.get("dependentSchemas", {}).items() if key in value]
        if "additionalProperties" in schema:
            inner += [(schema["additionalProperties"], part) for part in value.values()]
        if "propertyNames" in schema:
            inner += [(schema["propertyNames"], key) for key in value]
    elif isinstance(value, list):
        inner += [(schema["items"], part) for part in value] if "items" in schema else []
        inner += list(zip(schema.get("prefixItems", ()), value, strict=False))
    for child, part in inner:
        checks(child, root, part, budget)


@given(schemas, schemas, values)
def test_counting_agrees_with_plain_recursion(schema: dict[str, Any], definition: dict[str, Any], value: Any) -> None:
    root = {**schema, "$defs": {"d": definition}}
    budget = [3_000]
    try:
        checks(root, root, value, budget)
    except RecursionError:
        budget = [-1]
    if budget[0] >= 0:
        assert not Effort(root).exceeds(value)
