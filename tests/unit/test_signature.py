"""A function's signature is its tool schema, and JSON arguments become the values its hints promise."""

from __future__ import annotations  # the hints of this file are text, as in most code that has tools

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, TypedDict
from uuid import UUID

import pytest

from kernel.tools.schema import ArgumentSchema
from kernel.tools.signature import bind, binder, schema_of


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Point:
    """A place on the map."""

    x: int
    y: int = 0


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Left:
    right: Right | None = None


@dataclass
class Right:
    left: Left


class Filter(TypedDict, total=False):
    field: Required[str]
    since: Annotated[datetime, "earliest"]
    colors: list[Color]


class Strict(TypedDict):
    a: int
    b: NotRequired[int]


UserId = NewType("UserId", str)


def properties(function: Any) -> Any:
    return schema_of(function).parameters["properties"]


def test_a_plain_function_is_described_by_hints_defaults_and_docstring() -> None:
    def search_logs(service: str, since: str, limit: int = 20) -> list[str]:
        """Search the logs
        of one service.

        Slow on Mondays.

        Args:
            service: Name of the service.
            since (str): Earliest time,
                in UTC.

        Returns:
            Matching lines.
        """
        return []

    tool = schema_of(search_logs)
    assert tool.name == "search_logs"
    assert tool.description == "Search the logs of one service."
    assert tool.returns == "Matching lines."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "service": {"type": "string", "description": "Name of the service."},
            "since": {"type": "string", "description": "Earliest time, in UTC."},
            "limit": {"type": "integer", "default": 20},
        },
        "required": ["service", "since"],
        "additionalProperties": False,
    }


def test_numpy_and_sphinx_docstrings_are_read_too() -> None:
    def numpy(a: int, b: str) -> int:
        """Do it.

        Parameters
        ----------
        a : int
            The first.
        b
            The second,
            continued.

        Returns
        -------
        int
            How many.
        """
        return 0

    def sphinx(a: int, b: str) -> int:
        """Do it.

        :param int a: The first.
        :param b: The second,
            continued.
        :returns: How many.
        """
        return 0

    for function in (numpy, sphinx):
        tool = schema_of(function)
        assert (tool.description, tool.returns) == ("Do it.", "How many.")
        assert tool.parameters["properties"]["a"]["description"] == "The first."
        assert tool.parameters["properties"]["b"]["description"] == "The second, continued."


def test_without_a_docstring_the_return_hint_speaks() -> None:
    def count(a: int) -> Sequence[int]:
        return [a]

    def nothing() -> None: ...

    assert schema_of(count)[::3] == ("count", "Sequence[int]")
    assert schema_of(nothing) == (
        "nothing",
        "",
        {"type": "object", "properties": {}, "additionalProperties": False},
        "",
    )


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Any, {}),
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (UserId, {"type": "string"}),
        (list, {"type": "array"}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
            },
        ),
        (dict, {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (
            Point,
            {
                "description": "A place on the map.",
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Strict,
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_each_hint_has_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    def tool(x): ...  # type: ignore[no-untyped-def]

    tool.__annotations__["x"] = hint
    assert properties(tool)["x"] == schema
    ArgumentSchema(schema_of(tool).parameters)


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (int, 5.0, 5),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Literal[1, True, "a"], True, True),
        (Literal[Color.RED], "red", Color.RED),
        (Point, {"x": 1}, Point(1)),
        (Point | None, None, None),
        (Point | None, {"x": 1, "y": 2}, Point(1, 2)),
        (Point | Tree, {"name": "a"}, Tree("a")),
        (list[int] | set[str], ["a"], {"a"}),
        (list[Point], [{"x": 1}], [Point(1)]),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (tuple[int, Color], [1, "blue"], (1, Color.BLUE)),
        (tuple[Color, ...], ["blue"], (Color.BLUE,)),
        (tuple[()], [], ()),
        (frozenset[int], [1, 2], frozenset({1, 2})),
        (datetime, "2024-05-01T12:30:00+02:00", datetime.fromisoformat("2024-05-01T12:30:00+02:00")),
        (datetime | str, "tomorrow", "tomorrow"),
        (date, "2024-05-01", date(2024, 5, 1)),
        (time, "12:30:00", time(12, 30)),
        (UUID, "123e4567-e89b-12d3-a456-426614174000", UUID("123e4567-e89b-12d3-a456-426614174000")),
        (Path, "a/b", Path("a/b")),
        (bytes, "AP8=", b"\x00\xff"),
        (
            Filter,
            {"field": "a", "since": "2024-05-01T00:00:00", "colors": ["red"]},
            {"field": "a", "since": datetime(2024, 5, 1), "colors": [Color.RED]},
        ),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Left, {"right": {"left": {"right": None}}}, Left(Right(Left()))),
    ],
)
def test_json_becomes_the_value_the_hint_promises(hint: Any, given: Any, value: Any) -> None:
    def tool(x): ...  # type: ignore[no-untyped-def]

    tool.__annotations__["x"] = hint
    args = {"x": given}
    assert ArgumentSchema(schema_of(tool).parameters).is_valid(args)
    result = bind(tool, args)["x"]
    assert (result, type(result)) == (value, type(value))
    assert args == {"x": given}, "the arguments themselves are left alone"


@pytest.mark.parametrize(
    ("hint", "wrong"),
    [(bytes, "no base64!"), (datetime, "soon"), (set[int], [1, 1]), (Point, {"x": 1, "z": 2}), (Strict, {"b": 1})],
)
def test_what_could_not_be_converted_is_refused_by_the_schema(hint: Any, wrong: Any) -> None:
    def tool(x): ...  # type: ignore[no-untyped-def]

    tool.__annotations__["x"] = hint
    assert not ArgumentSchema(schema_of(tool).parameters).is_valid({"x": wrong})


def test_arguments_that_need_no_conversion_are_passed_on_as_they_are() -> None:
    def tool(a: str, b: list[str], c: dict[str, float], **more: Any) -> None: ...

    args = {"a": "x", "b": ["y"], "c": {"z": 1.0}, "d": 4}
    assert bind(tool, args) is args


def test_a_recursive_class_is_defined_once_and_referred_to() -> None:
    def tool(tree: Tree, other: Tree | None = None) -> None: ...

    schema = schema_of(tool).parameters
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert not ArgumentSchema(schema).is_valid({"tree": {"name": "a", "children": [{"nam": "b"}]}})


def test_defaults_that_json_can_write_are_shown() -> None:
    def tool(
        a: Color = Color.RED,
        b: tuple[int, ...] = (1, 2),
        c: Point = Point(1),
        d: int | None = None,
        e: datetime = datetime(2024, 5, 1),
        f: float = float("inf"),
        g: int = None,  # type: ignore[assignment] # noqa: RUF013
    ) -> None: ...

    shown = {name: schema["default"] for name, schema in properties(tool).items() if "default" in schema}
    assert shown == {"a": "red", "b": [1, 2], "d": None, "e": "2024-05-01T00:00:00"}
    assert "required" not in schema_of(tool).parameters


def test_keyword_arguments_allow_further_properties() -> None:
    def any_value(a: int, **more): ...  # type: ignore[no-untyped-def]

    def dates(a: int, **more: date) -> None: ...

    assert schema_of(any_value).parameters["additionalProperties"] is True
    assert schema_of(dates).parameters["additionalProperties"] == {"type": "string", "format": "date"}
    assert bind(dates, {"a": 1.0, "b": "2024-05-01"}) == {"a": 1, "b": date(2024, 5, 1)}


def test_annotated_text_comes_before_the_docstring() -> None:
    def tool(a: Annotated[int, "from the hint"], b: Point) -> None:
        """Do it.

        Args:
            a: from the docstring
            b: where it is
        """

    assert properties(tool)["a"]["description"] == "from the hint"
    assert properties(tool)["b"]["description"] == "where it is"


def test_methods_partials_and_callable_objects_are_tools() -> None:
    class Shop:
        def buy(self, item: Color) -> None:
            """Buy it."""

        def __call__(self, item: Color) -> None:
            """Call it."""

        __hash__ = None  # type: ignore[assignment]

    shop = Shop()
    assert schema_of(shop.buy)[:2] == ("buy", "Buy it.")
    assert schema_of(shop)[:2] == ("Shop", "Call it.")
    assert schema_of(functools.partial(shop.buy))[:2] == ("buy", "Buy it.")
    for function in (shop.buy, shop, functools.partial(shop.buy)):
        assert bind(function, {"item": "red"}) == {"item": Color.RED}


def test_a_return_hint_that_cannot_be_resolved_does_no_harm() -> None:
    def tool(a: int) -> DataFrame:  # type: ignore[name-defined] # noqa: F821
        return None

    assert schema_of(tool).returns == "DataFrame"


def test_a_coroutine_function_is_a_tool() -> None:
    async def tool(a: Color) -> str:
        return a.value

    assert schema_of(tool).returns == "str"
    assert bind(tool, {"a": "blue"}) == {"a": Color.BLUE}


def positional(a: int, /) -> None: ...
def variadic(*names: str) -> None: ...
def complicated(a: complex) -> None: ...
def int_keys(a: dict[int, str]) -> None: ...
def unresolved(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


@dataclass
class Wrong:
    handle: object
    inner: list[complex]


def nested_wrong(a: Wrong | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "place", "remedy"),
    [
        (positional, "positional(), parameter 'a'", "Remove the /"),
        (variadic, "variadic(), parameter 'names'", "list[...]"),
        (complicated, "complicated(), parameter 'a': the type complex", "params={...}"),
        (int_keys, "int_keys(), parameter 'a': the type dict[int, str]", "params={...}"),
        (unresolved, "unresolved(), parameter 'a': the hint 'Nowhere'", "module level"),
        (nested_wrong, "nested_wrong(), parameter 'a', field Wrong.inner: the type complex", "params={...}"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_its_place_and_a_remedy(function: Any, place: str, remedy: str) -> None:
    for call in (schema_of, binder):
        with pytest.raises(TypeError) as caught:
            call(function)
        first, last = str(caught.value).split("\n")
        assert first.startswith(place)
        assert remedy in last
