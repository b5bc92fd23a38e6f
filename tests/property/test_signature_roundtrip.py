"""For generated hints and values: what is encoded fits the schema, and binding gives the equal value back."""

import base64
import json
from dataclasses import fields, is_dataclass, make_dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Literal, TypedDict
from uuid import UUID

from hypothesis import given, strategies as st

from kernel.tools.schema import ArgumentSchema
from kernel.tools.signature import bind, schema_of


class Color(Enum):
    RED = "red"
    ONE = 1
    YES = True


class Options(TypedDict, total=False):
    when: date
    colors: list[Color]


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
Case = tuple[Any, st.SearchStrategy[Any]]

HASHABLE: list[Case] = [
    (str, TEXT),
    (int, st.integers()),
    (bool, st.booleans()),
    (float, FINITE),
    (Color, st.sampled_from(Color)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal[0, False, "x", None], st.sampled_from([0, False, "x", None])),
    (datetime, st.datetimes()),
    (date, st.dates()),
    (time, st.times()),
    (UUID, st.uuids()),
    (bytes, st.binary(max_size=9)),
]
LEAVES: list[Case] = [
    *HASHABLE,
    (None, st.none()),
    (Any, st.recursive(st.none() | TEXT | st.integers(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)),
    (Options, st.fixed_dictionaries({}, optional={"when": st.dates(), "colors": st.lists(st.sampled_from(Color))})),
]


def generic(origin: Any, *arguments: Any) -> Any:
    return origin[arguments]


def containers(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    def record(cases: list[Case]) -> Case:
        cls = make_dataclass("Record", [(f"f{index}", hint) for index, (hint, _) in enumerate(cases)])
        return cls, st.builds(cls, *(values for _, values in cases))

    return st.one_of(
        inner.map(lambda case: (generic(list, case[0]), st.lists(case[1], max_size=3))),
        inner.map(lambda case: (generic(tuple, case[0], ...), st.lists(case[1], max_size=3).map(tuple))),
        inner.map(lambda case: (generic(dict, str, case[0]), st.dictionaries(TEXT, case[1], max_size=3))),
        inner.map(lambda case: (case[0] | None if case[0] is not None else None, st.none() | case[1])),
        st.sampled_from(HASHABLE).map(lambda case: (generic(frozenset, case[0]), st.frozensets(case[1], max_size=3))),
        st.tuples(inner, inner).map(
            lambda pair: (generic(tuple, pair[0][0], pair[1][0]), st.tuples(pair[0][1], pair[1][1]))
        ),
        st.lists(inner, min_size=1, max_size=3).map(record),
    )


CASES = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=5)


def encode(value: Any) -> Any:
    """The plain JSON form of a value."""
    match value:
        case Enum():
            return value.value
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case list() | tuple() | set() | frozenset():
            return [encode(item) for item in value]
        case dict():
            return {key: encode(item) for key, item in value.items()}
        case _ if is_dataclass(value):
            return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


@given(CASES, st.data())
def test_encoded_values_fit_the_schema_and_bind_to_equal_values(case: Case, data: st.DataObject) -> None:
    hint, values = case

    def tool(x): ...  # type: ignore[no-untyped-def]

    tool.__annotations__["x"] = hint
    value = data.draw(values)
    args = json.loads(json.dumps({"x": encode(value)}))
    checked = ArgumentSchema(schema_of(tool).parameters).check(args)
    assert checked.violations == ()
    assert checked.args is args
    bound = bind(tool, args)["x"]
    assert (bound, type(bound)) == (value, type(value))
