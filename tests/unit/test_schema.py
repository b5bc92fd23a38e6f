"""Tool arguments are coerced only where the schema demands it, and every misfit is named with its place."""

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

from kernel.tools.schema import ABSENT, MAX_DEPTH, MAX_VIOLATIONS, ArgumentSchema, SchemaError, Violation

ORDER = ArgumentSchema(
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 20},
            "ratio": {"type": "number"},
            "note": {"type": "string", "maxLength": 5},
            "level": {"enum": ["low", "high"]},
            "urgent": {"type": "boolean"},
            "when": {"type": "string", "format": "date-time"},
            "anything": {},
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"qty": {"type": "integer"}, "ok": {"type": "boolean"}},
                    "required": ["qty"],
                    "additionalProperties": False,
                },
            },
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
            "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
            "target": {"anyOf": [{"type": "integer"}, {"type": "null"}, {"$ref": "#/$defs/node"}]},
            "loose": {"type": ["string", "integer"]},
        },
        "required": ["count"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "kind": {"const": "node"},
                    "size": {"type": "integer"},
                    "next": {"$ref": "#/$defs/node"},
                },
                "required": ["kind"],
            }
        },
    }
)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def misfit(schema: dict[str, Any], value: Any) -> Violation:
    """The only violation of `value` as a property `x` of the given schema."""
    (violation,) = ArgumentSchema({"properties": {"x": schema}}).check({"x": value}).violations
    return violation


def test_fitting_arguments_come_back_as_the_same_object() -> None:
    args = {"count": 3, "note": "hi", "items": [{"qty": 1}]}
    checked = ORDER.check(args)
    assert checked.args is args
    assert (checked.coerced, checked.violations) == ((), ())
    assert ORDER.is_valid(args)


@pytest.mark.parametrize(
    ("given", "expected", "paths"),
    [
        ({"count": "5"}, {"count": 5}, ("/count",)),
        ({"count": 1, "ratio": "-0.25"}, {"count": 1, "ratio": -0.25}, ("/ratio",)),
        ({"count": 1, "ratio": "7"}, {"count": 1, "ratio": 7}, ("/ratio",)),
        ({"count": 1, "urgent": "true"}, {"count": 1, "urgent": True}, ("/urgent",)),
        (
            {"count": 1, "items": '[{"qty": "2", "ok": "false"}]'},
            {"count": 1, "items": [{"qty": 2, "ok": False}]},
            ("/items", "/items/0/qty", "/items/0/ok"),
        ),
        ({"count": 1, "pair": ["1", "true"]}, {"count": 1, "pair": [1, True]}, ("/pair/0", "/pair/1")),
        ({"count": 1, "labels": {"a/b": "1"}}, {"count": 1, "labels": {"a/b": 1}}, ("/labels/a~1b",)),
        ({"count": 1, "target": "7"}, {"count": 1, "target": 7}, ("/target",)),
        (
            {"count": 1, "target": {"kind": "node", "next": {"kind": "node", "size": "3"}}},
            {"count": 1, "target": {"kind": "node", "next": {"kind": "node", "size": 3}}},
            ("/target/next/size",),
        ),
        ({"count": 1, "note": None}, {"count": 1}, ("/note",)),
        ({"input": "4"}, {"count": 4}, ("/count",)),
        ('{"count": 2}', {"count": 2}, ("",)),
    ],
)
def test_exact_conversions_are_made_and_named(given: Any, expected: dict[str, Any], paths: tuple[str, ...]) -> None:
    before = json.dumps(given)
    checked = ORDER.check(given)
    assert checked.violations == ()
    assert json.dumps(checked.args) == json.dumps(expected)
    assert checked.coerced == paths
    assert json.dumps(given) == before, "the caller's arguments are left alone"


@pytest.mark.parametrize(
    "given",
    [
        {"count": "5.0"},
        {"count": "05"},
        {"count": " 5"},
        {"count": "5e0"},
        {"count": "1" * 5000},
        {"count": 1, "ratio": "0.1000000000000000055511151231257827"},
        {"count": 1, "ratio": "NaN"},
        {"count": 1, "urgent": "True"},
        {"count": 1, "urgent": 1},
        {"count": 1, "note": 5},
        {"count": 1, "items": {"qty": 1}},
        {"count": 1, "items": '[{"qty": 1, "qty": 2}]'},
        {"count": 1, "items": '[{"qty": 1}'},
        {"count": 1, "items": "[" * 100_000},
        {"count": None},
        {"input": "many"},
    ],
)
def test_a_conversion_that_loses_or_guesses_is_not_made(given: dict[str, Any]) -> None:
    checked = ORDER.check(given)
    assert checked.args is given
    assert checked.coerced == ()
    assert checked.violations


def test_text_stays_text_where_the_schema_takes_text() -> None:
    args = {"count": 1, "loose": "5", "note": "true", "anything": "[1]"}
    assert ORDER.check(args).args is args


def test_a_union_is_coerced_only_when_exactly_one_branch_fits() -> None:
    both = ArgumentSchema({"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "number"}]}}})
    assert both.check({"x": "5"}).coerced == ()
    one = ArgumentSchema({"properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}}})
    assert one.check({"x": "5"}).args == {"x": 5}


def test_branches_that_refer_to_themselves_end() -> None:
    endless = {"type": "integer", "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    schema = ArgumentSchema({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": endless}})
    assert schema.check({"x": "5"}).args == {"x": 5}
    assert [v.path for v in schema.check({"x": "word"}).violations] == ["/x"]


INNER = {"type": "object", "properties": {"mode": {"type": "string", "default": "fast"}, "n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "given", "used"),
    [
        ({"x": {"type": "integer", "default": 3}}, {}, {"x": 3}),
        ({"x": {"type": "integer", "default": 3}}, {"x": 5}, {"x": 5}),
        ({"x": {"type": ["integer", "null"], "default": 3}}, {"x": None}, {"x": None}),
        ({"x": {"type": "integer", "default": 3}, "y": {"type": "integer"}}, {"y": "7"}, {"y": 7, "x": 3}),
        ({"x": {"type": "integer", "default": "many"}}, {}, {}),
        ({"x": {"$ref": "#/$defs/inner/properties/mode"}}, {}, {"x": "fast"}),
        ({"x": INNER}, {"x": {}}, {"x": {"mode": "fast"}}),
        ({"x": INNER}, {}, {}),
        (
            {"x": {"type": "array", "items": INNER}},
            {"x": [{}, {"mode": "slow"}]},
            {"x": [{"mode": "fast"}, {"mode": "slow"}]},
        ),
        (
            {"x": {"anyOf": [{"$ref": "#/$defs/inner"}, {"type": "null"}]}},
            {"x": {"n": 1}},
            {"x": {"n": 1, "mode": "fast"}},
        ),
        ({"x": {"anyOf": [INNER, {"type": "object"}]}}, {"x": {}}, {"x": {}}),
        ({"x": {"allOf": [INNER]}}, {"x": {}}, {"x": {"mode": "fast"}}),
        ({"x": INNER}, {"x": '{"n": 2}'}, {"x": {"n": 2, "mode": "fast"}}),
        ({"a/b": {"type": "string", "default": "~"}}, {}, {"a/b": "~"}),
    ],
)
def test_defaults_are_filled_in_where_they_apply(schema: Any, given: Any, used: Any) -> None:
    checked = ArgumentSchema({"properties": schema, "$defs": {"inner": INNER}}).check(given)
    assert (checked.args, checked.violations) == (used, ())


def test_a_default_satisfies_what_is_required_and_never_makes_valid_arguments_invalid() -> None:
    required = ArgumentSchema({"properties": {"x": {"default": 3}}, "required": ["x"]})
    assert required.check({}).args == {"x": 3} and not required.check({}).violations
    crowded = ArgumentSchema({"properties": {"x": {"default": 3}, "y": {}}, "maxProperties": 1})
    assert crowded.check({"y": 1}).args == {"y": 1} and not crowded.check({"y": 1}).violations


def test_what_is_filled_in_is_not_shared_with_the_schema() -> None:
    schema = ArgumentSchema({"properties": {"x": {"default": []}}})
    schema.check({}).args["x"].append(1)
    assert schema.check({}).args == {"x": []}


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"q": {"type": "string", "minLength": 9}}, "required": ["q"]},
        {"properties": {"q": {"type": "string", "maxLength": 1}}, "required": ["q"]},
        {"properties": {"n": {"type": "integer", "minimum": 10, "multipleOf": 4}}, "required": ["n"]},
        {"properties": {"n": {"type": "number", "exclusiveMaximum": -2}}, "required": ["n"]},
        {"properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"]},
        {"properties": {"l": {"type": "array", "items": {"type": "boolean"}, "minItems": 2}}, "required": ["l"]},
        {"properties": {"o": {"$ref": "#/$defs/o"}}, "required": ["o"], "$defs": {"o": {**INNER, "required": ["n"]}}},
        {"properties": {"o": {"allOf": [{**INNER, "required": ["n"]}]}}, "required": ["o"]},
        {"properties": {"u": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, "required": ["u"]},
        {"properties": {"e": {"enum": ["a", "b"]}, "c": {"const": 7}}, "required": ["e", "c"]},
    ],
)
def test_an_example_can_be_made_up_for_usual_schemas(parameters: Any) -> None:
    schema = ArgumentSchema(parameters)
    assert schema.is_valid(schema.example())


def test_there_is_no_example_where_none_fits() -> None:
    assert ArgumentSchema({"properties": {"q": {"pattern": "^[A-Z]{9}$"}}, "required": ["q"]}).example() is None
    assert ArgumentSchema({}).example() == {}


def test_what_still_misfits_after_coercion_is_reported_with_the_coerced_value() -> None:
    checked = ORDER.check({"count": "50"})
    assert checked.coerced == ("/count",)
    assert checked.violations == (Violation(path="/count", value=50, expected="at most 20", expected_zh="不大于 20"),)


def test_an_unknown_property_is_answered_with_the_known_names() -> None:
    (violation,) = ORDER.check({"count": 1, "cuont": 2}).violations
    assert (violation.path, violation.value, violation.expected) == ("/cuont", 2, "a known property")
    assert violation.allowed[:3] == ("count", "ratio", "note")


def test_a_missing_property_is_named_with_its_type_and_an_absent_value() -> None:
    (violation,) = ORDER.check({}).violations
    assert violation.path == "/count"
    assert violation.value is ABSENT
    assert violation.expected == "an integer; this property is required"
    assert violation.expected_zh == "整数；此属性必填"


def test_a_missing_property_inside_a_referenced_definition_is_named() -> None:
    schema = ArgumentSchema(
        {
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"type": "object", "properties": {"k": {"enum": [1, 2]}}, "required": ["k"]}},
        }
    )
    (violation,) = schema.check({"x": {}}).violations
    assert (violation.path, violation.allowed) == ("/x/k", (1, 2))


@pytest.mark.parametrize(
    ("schema", "value", "expected", "allowed"),
    [
        ({"enum": ["a", "b"]}, "c", "one of the allowed values", ("a", "b")),
        ({"type": "string", "enum": ["a"]}, 1, "one of the allowed values", ("a",)),
        ({"const": 7}, 8, "exactly the allowed value", (7,)),
        ({"type": ["integer", "null"]}, [], "an integer or null", ()),
        ({"type": "integer", "multipleOf": 5}, 7, "a multiple of 5", ()),
        ({"minLength": 2}, "a", "at least 2 characters", ()),
        ({"maxItems": 1}, [1, 2], "at most 1 item", ()),
        ({"pattern": "^a"}, "b", "text that matches the pattern ^a", ()),
        ({"format": "date"}, "today", "text in the format date, such as 2024-05-01", ()),
        ({"uniqueItems": True}, [1, 1], "items that are all different", ()),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "property names that are at most 1 character", ()),
        ({"not": {"type": "string"}}, "a", "a value the schema does not exclude", ()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "an integer or null", ()),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, "x", "one of the allowed values", ("a", None)),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "a value that fits exactly one of the allowed forms", ()),
    ],
)
def test_each_kind_of_misfit_says_what_was_expected(
    schema: dict[str, Any], value: Any, expected: str, allowed: tuple[Any, ...]
) -> None:
    violation = misfit(schema, value)
    assert (violation.path, violation.value) == ("/x", value)
    assert (violation.expected, violation.allowed) == (expected, allowed)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in violation.expected_zh)


def test_a_union_speaks_about_the_branch_that_was_meant() -> None:
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}, "tricks": {"type": "integer"}}}
    schema = ArgumentSchema({"properties": {"pet": {"anyOf": [cat, dog, {"type": "null"}]}}})
    (violation,) = schema.check({"pet": {"kind": "cat", "lives": [9]}}).violations
    assert (violation.path, violation.expected) == ("/pet/lives", "an integer")


def test_violations_are_ordered_by_path_and_bounded() -> None:
    schema = ArgumentSchema({"properties": {"x": {"items": {"type": "integer"}}}})
    violations = schema.check({"x": ["no"] * 30}).violations
    assert [v.path for v in violations] == [f"/x/{index}" for index in range(MAX_VIOLATIONS)]


def test_large_arguments_are_refused_with_the_first_error() -> None:
    schema = ArgumentSchema({"properties": {"x": {"items": {"type": "integer"}}}})
    assert [v.path for v in schema.check({"x": ["no"] * 10_000}).violations] == ["/x/0"]


@pytest.mark.parametrize(
    ("args", "path", "expected"),
    [
        ({"count": float("nan")}, "/count", "a finite number"),
        ({"count": 1, "ratio": float("-inf")}, "/ratio", "a finite number"),
        ({"count": 1, "ratio": 10**6000}, "/ratio", "a finite number"),
        ({"count": 1, "note": b"x"}, "/note", "a JSON value"),
        ({"count": 1, "note": {1}}, "/note", "a JSON value"),
        ({"count": 1, "level": "\ud800"}, "/level", "one of the allowed values"),
        ({"count": 2**70}, "/count", "at most 20"),
        ({"count": 1, "\ud800": 1}, "/\ufffd", "a known property"),
        ({"count": 1, 2: 1}, "/(int)", "a known property"),
        ({"count": 1, "anything": nested(100_000)}, "", f"at most {MAX_DEPTH} levels of nesting"),
        (nested(100_000), "", f"at most {MAX_DEPTH} levels of nesting"),
        (None, "", "an object"),
        ([], "", "an object"),
    ],
)
def test_what_is_not_json_is_a_violation_and_never_an_error(args: Any, path: str, expected: str) -> None:
    (violation,) = ORDER.check(args).violations
    assert (violation.path, violation.expected) == (path, expected)
    json.dumps(violation.value, allow_nan=False).encode()
    assert not ORDER.is_valid(args)


def test_a_lone_surrogate_is_text_like_any_other() -> None:
    args = {"count": 1, "note": "a\ud800b"}
    assert ORDER.check(args).args is args
    assert ORDER.check({"count": 1, "note": "a\ud800bcdef"}).violations[0].value == "a\ufffdbcdef"


def test_nesting_is_bounded_for_recursive_schemas_too() -> None:
    schema = ArgumentSchema({"properties": {"x": {"$ref": "#"}}})
    args: dict[str, Any] = {}
    for _ in range(50_000):
        args = {"x": args}
    assert not schema.is_valid(args)
    assert schema.check(args).violations


def test_a_time_without_an_offset_is_a_date_time() -> None:
    assert ORDER.is_valid({"count": 1, "when": "2024-05-01T12:30:00"})
    assert ORDER.is_valid({"count": 1, "when": "2024-05-01T12:30:00Z"})
    assert not ORDER.is_valid({"count": 1, "when": "tomorrow"})


def test_a_schema_without_type_is_of_type_object_and_the_callers_is_left_alone() -> None:
    given: dict[str, Any] = {"properties": {"x": {"type": "integer"}}}
    schema = ArgumentSchema(given)
    assert schema.schema == {"type": "object", **given}
    given["properties"]["x"]["type"] = "string"
    assert "type" not in given
    assert not schema.is_valid({"x": "text"})


@pytest.mark.parametrize(
    ("schema", "path", "word"),
    [
        ({"type": "string"}, "/type", "object"),
        ({"properties": {"a": {"type": "text"}}}, "/properties/a/type", "text"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "/properties/a/$ref", "https://example.com/a"),
        ({"$ref": "file:///etc/hostname"}, "/$ref", "file:///etc/hostname"),
        ({"properties": {"a": {"items": {"$ref": "#/$defs/b"}}}}, "/properties/a/items/$ref", "#/$defs/b"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a/pattern", "regex"),
        ({"properties": {"a": {"items": [{}]}}}, "/properties/a/items", "boolean"),
        ({"properties": {"a": {"minimum": float("nan")}}}, "/properties/a/minimum", "nan"),
        ({"properties": {1: {}}}, "/properties", "not a string"),
        ({"description": "\ud800"}, "", "surrogates"),
        ([], "", "list"),
    ],
)
def test_a_bad_schema_is_refused_with_its_place_and_a_remedy(schema: Any, path: str, word: str) -> None:
    with pytest.raises(SchemaError) as caught:
        ArgumentSchema(schema)
    assert caught.value.path == path
    first, last = str(caught.value).split("\n")
    assert word in first
    assert last.endswith(".")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path) == (str(caught.value), path)


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"properties": {"x": schema}}
    with pytest.raises(SchemaError, match="nested"):
        ArgumentSchema(schema)


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = ArgumentSchema({"properties": {"$ref": {"type": "integer"}, "$id": {"type": "string"}}})
    assert schema.check({"$ref": "5"}).args == {"$ref": 5}


def test_importing_the_module_does_not_load_the_validator() -> None:
    code = "import sys, kernel.tools.schema; print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
