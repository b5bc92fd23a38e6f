"""Invariants of argument checking, over generated arguments."""

import json
from typing import Any

from hypothesis import given, strategies as st

from kernel.tools.schema import MAX_VIOLATIONS, ArgumentSchema

SCHEMA = ArgumentSchema(
    {
        "properties": {
            "n": {"type": "integer", "maximum": 2**70},
            "f": {"type": "number"},
            "b": {"type": "boolean"},
            "s": {"type": "string", "maxLength": 9},
            "e": {"enum": [1, "a", None]},
            "l": {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True},
            "m": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
            "u": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"$ref": "#"}]},
        },
        "additionalProperties": False,
    }
)
NAMES = st.sampled_from(list("nfbslemuz"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=12)
    | st.sampled_from(["5", "-1.5", "true", "null", "[]", "{}", '{"n": "5"}', "[[1]]", "\ud83d\ude00", 2**64, 10**4000])
    | st.binary(max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=6)


@given(ARGUMENTS | VALUES)
def test_check_is_total_and_agrees_with_is_valid(args: Any) -> None:
    checked = SCHEMA.check(args)
    assert (checked.violations == ()) == SCHEMA.is_valid(checked.args)
    assert (checked.args is args) == (checked.coerced == ())
    assert SCHEMA.check(checked.args).args is checked.args, "what was coerced once is not coerced again"
    assert len(checked.violations) <= MAX_VIOLATIONS
    for violation in checked.violations:
        assert violation.expected and violation.expected_zh
        json.dumps([violation.path, violation.value, violation.allowed], allow_nan=False).encode()


@given(ARGUMENTS)
def test_the_same_arguments_give_the_same_answer(args: Any) -> None:
    first, second = SCHEMA.check(args), SCHEMA.check(args)
    assert first.coerced == second.coerced
    assert first.violations == second.violations


@given(st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_what_is_coerced_writes_back_as_the_same_text(integer: int, number: float, flag: bool) -> None:
    schema = ArgumentSchema(
        {"properties": {"n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"}}}
    )
    texts = {"n": str(integer), "f": repr(number), "b": "true" if flag else "false"}
    checked = schema.check(texts)
    assert checked.args["n"] == integer
    assert checked.args["b"] is flag
    assert repr(checked.args["f"]) in (repr(number), repr(repr(number)))
