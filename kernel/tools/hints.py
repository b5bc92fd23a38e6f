"""What a type hint means in JSON: the schema of its values, and the way from a JSON value to a Python one."""

import base64
import collections.abc as abc
import dataclasses
import enum
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias

from kernel.tools.defaults import with_default
from kernel.tools.docstring import read_docstring

Decode: TypeAlias = Callable[[Any], Any]

_MISSING: Final = dataclasses.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """The JSON side of one hint. `decode` is None where the JSON value already is the Python value."""

    schema: dict[str, Any]
    decode: Decode | None = None


class HintReader:
    """Reads the hints of one function; recursive classes end up in `defs`, to be placed under `$defs`.

    Args:
        place: How an error names the function and parameter that is being read; set it before each hint.
    """

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self.place = ""
        self._names: dict[type, str] = {}
        self._open: dict[type, list[Codec]] = {}
        self._recursive: dict[type, Codec] = {}

    def read(self, hint: Any) -> Codec:
        """The codec of a resolved hint.

        Raises:
            TypeError: JSON has no form for the hint; the text names the place and the remedy.
        """
        if hint in (Any, object, inspect.Parameter.empty):
            return Codec(schema={})
        if hint in (None, types.NoneType):
            return Codec(schema={"type": "null"})
        if isinstance(hint, type) and hint in _LEAVES:
            return _LEAVES[hint]
        if isinstance(hint, type) and hint.__name__ in _BY_NAME:
            # Known by name: whoever writes the hint has imported the module, and nobody else should pay for it.
            module, schema = _BY_NAME[hint.__name__]
            if hint.__module__.split(".")[0] == module:
                return Codec(schema=schema, decode=hint)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return _described(self.read(arguments[0]), next((a for a in arguments[1:] if isinstance(a, str)), None))
        if origin is typing.Literal:
            return self._members(hint, [(a.value if isinstance(a, enum.Enum) else a, a) for a in arguments])
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        container = origin or hint
        if container is tuple:
            return self._tuple(hint, arguments)
        if container in _SEQUENCES:
            return self._array(arguments, _SEQUENCES[container])
        if container in _MAPPINGS:
            return self._mapping(hint, arguments)
        if isinstance(hint, typing.NewType):
            return self.read(hint.__supertype__)
        if type(hint).__name__ == "TypeAliasType":
            return self.read(hint.__value__)
        if isinstance(hint, type):
            if issubclass(hint, enum.Enum):
                return self._members(hint, [(member.value, member) for member in hint])
            if typing.is_typeddict(hint) or dataclasses.is_dataclass(hint):
                return self._class(hint)
        raise self.refusal(hint)

    def refusal(self, hint: Any) -> TypeError:
        """The error for a hint that JSON has no form for."""
        return TypeError(
            f"{self.place}: the type {inspect.formatannotation(hint)} has no JSON form.\n"
            "Use str, int, float, bool, list, dict, Literal, an Enum, a dataclass or a TypedDict, "
            "or register the tool with params={...}."
        )

    def _members(self, hint: Any, pairs: list[tuple[Any, Any]]) -> Codec:
        kinds = [_SCALARS.get(type(value)) for value, _ in pairs]
        if not pairs or None in kinds or any(isinstance(v, float) and not math.isfinite(v) for v, _ in pairs):
            raise self.refusal(hint)
        schema: dict[str, Any] = {"enum": [value for value, _ in pairs]}
        if len(set(kinds)) == 1:
            schema = {"type": kinds[0], **schema}
        if all(type(member) is str for _, member in pairs):
            return Codec(schema=schema)
        # JSON tells true from 1, but not 1 from 1.0; a dict key of Python tells neither.
        table = {(isinstance(value, bool), value): member for value, member in pairs}
        return Codec(schema=schema, decode=lambda value: table[isinstance(value, bool), value])

    def _union(self, hints: tuple[Any, ...]) -> Codec:
        codecs = [self.read(hint) for hint in hints]
        schema = {"anyOf": [codec.schema for codec in codecs]}
        if all(codec.decode is None for codec in codecs):
            return Codec(schema=schema)
        others = [codec for codec in codecs if codec.schema != {"type": "null"}]
        if len(others) == 1:
            return Codec(schema=schema, decode=_optional(others[0].decode))
        return Codec(schema=schema, decode=_first_that_fits(codecs, self.defs))

    def _array(self, arguments: tuple[Any, ...], make: Callable[[Any], Any] | None) -> Codec:
        item = self.read(arguments[0]) if arguments else Codec(schema={})
        schema: dict[str, Any] = {"type": "array"}
        if item.schema:
            schema["items"] = item.schema
        if make in (set, frozenset):
            schema["uniqueItems"] = True
        decode = item.decode
        if decode is None:
            return Codec(schema=schema, decode=make)
        if make is None:
            return Codec(schema=schema, decode=lambda values: [decode(value) for value in values])
        return Codec(schema=schema, decode=lambda values: make(decode(value) for value in values))

    def _tuple(self, hint: Any, arguments: tuple[Any, ...]) -> Codec:
        if hint is tuple or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return self._array(arguments[:1], tuple)
        codecs = [self.read(argument) for argument in arguments]
        size = len(codecs)
        schema: dict[str, Any] = {"type": "array", "minItems": size, "maxItems": size}
        if codecs:
            schema["prefixItems"] = [codec.schema for codec in codecs]
        decoders = [codec.decode or _same for codec in codecs]
        return Codec(
            schema=schema, decode=lambda values: tuple(d(value) for d, value in zip(decoders, values, strict=True))
        )

    def _mapping(self, hint: Any, arguments: tuple[Any, ...]) -> Codec:
        schema: dict[str, Any] = {"type": "object"}
        if not arguments:
            return Codec(schema=schema)
        key, value = self.read(arguments[0]), self.read(arguments[1])
        if key.schema and key.schema.get("type") != "string":
            raise self.refusal(hint)
        if key.schema and key.schema != {"type": "string"}:
            schema["propertyNames"] = key.schema
        if value.schema:
            schema["additionalProperties"] = value.schema
        if key.decode is None and value.decode is None:
            return Codec(schema=schema)
        on_key, on_value = key.decode or _same, value.decode or _same
        return Codec(schema=schema, decode=lambda items: {on_key(k): on_value(v) for k, v in items.items()})

    def _class(self, cls: type) -> Codec:
        """Inline a class that does not contain itself; refer to one that does."""
        if cls in self._recursive:
            return self._recursive[cls]
        name = self._names.setdefault(cls, self._free_name(cls))
        if cls in self._open:
            cell = self._open[cls]
            self._recursive[cls] = Codec(
                schema={"$ref": f"#/$defs/{name}"}, decode=lambda value: (cell[0].decode or _same)(value)
            )
            return self._recursive[cls]
        self._open[cls] = cell = []
        outer = self.place
        codec = self._object(cls)
        self.place = outer
        cell.append(codec)
        del self._open[cls]
        if cls not in self._recursive:
            return codec
        self.defs[name] = codec.schema
        return self._recursive[cls]

    def _free_name(self, cls: type) -> str:
        taken = set(self._names.values())
        names = (cls.__name__ if n == 1 else f"{cls.__name__}{n}" for n in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)

    def _object(self, cls: type) -> Codec:
        doc = read_docstring("" if _is_generated(cls) else cls.__doc__ or "")
        properties: dict[str, Any] = {}
        required: list[str] = []
        decoders: list[tuple[str, Decode]] = []
        outer = self.place
        for name, hint, is_required, default in self._fields(cls):
            self.place = f"{outer}, field {cls.__name__}.{name}"
            codec = self.read(hint)
            described = _described(codec, None, fallback=doc.parameters.get(name)).schema
            properties[name] = described if default is _MISSING else with_default(described, default)
            if is_required:
                required.append(name)
            if codec.decode is not None:
                decoders.append((name, codec.decode))
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if doc.description:
            schema = {"description": doc.description, **schema}
        convert = converter(decoders)
        if typing.is_typeddict(cls):
            return Codec(schema=schema, decode=convert)
        if convert is None:
            return Codec(schema=schema, decode=lambda values: cls(**values))
        return Codec(schema=schema, decode=lambda values: cls(**convert(values)))

    def _fields(self, cls: type) -> Iterator[tuple[str, Any, bool, Any]]:
        """Name, hint, whether it is required, and the default or `_MISSING`, of each field."""
        try:
            hints = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"{self.place}: a field of {cls.__name__} names an unknown type: {error}.\n"
                "Define the type at module level, where its name can be resolved."
            ) from None
        if dataclasses.is_dataclass(cls):
            for field in dataclasses.fields(cls):
                if field.init:
                    required = field.default is _MISSING and field.default_factory is _MISSING
                    yield field.name, hints[field.name], required, field.default
            return
        declared: frozenset[str] = cls.__required_keys__  # type: ignore[attr-defined]
        for name, hint in hints.items():
            # With postponed annotations the class itself cannot see these wrappers, so they are read here.
            marks = {typing.Required: True, typing.NotRequired: False}
            origin = typing.get_origin(hint)
            if origin in marks:
                yield name, typing.get_args(hint)[0], marks[origin], _MISSING
            else:
                yield name, hint, name in declared, _MISSING


def converter(decoders: list[tuple[str, Decode]]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """A function that decodes the named entries of a dict into a copy; None when there is nothing to decode."""
    if not decoders:
        return None

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        result = dict(values)
        for name, decode in decoders:
            if name in result:
                result[name] = decode(result[name])
        return result

    return convert


def _described(codec: Codec, text: str | None, *, fallback: str | None = None) -> Codec:
    if text is None and (fallback is None or "description" in codec.schema):
        return codec
    return Codec(schema={**codec.schema, "description": text or fallback}, decode=codec.decode)


def _is_generated(cls: type) -> bool:
    """Whether the docstring is the signature that `dataclass` writes where the author wrote none, or `dict`'s own."""
    doc = cls.__doc__ or ""
    return doc.startswith(f"{cls.__name__}(") or doc == dict.__doc__


def _same(value: Any) -> Any:
    return value


def _optional(decode: Decode | None) -> Decode:
    inner = decode or _same
    return lambda value: None if value is None else inner(value)


def _first_that_fits(codecs: list[Codec], defs: dict[str, Any]) -> Decode:
    """Decode by the first branch, in the order written, whose schema takes the value."""
    compiled: list[tuple[Any, Decode]] = []

    def decode(value: Any) -> Any:
        if not compiled:
            from kernel.tools.schema import ArgumentSchema

            # `defs` is complete only after the whole signature was read, so compile on first use.
            for codec in codecs:
                wrapped = {"properties": {"value": codec.schema}, "required": ["value"], "$defs": defs}
                compiled.append((ArgumentSchema(wrapped), codec.decode or _same))
        for schema, inner in compiled:
            if schema.is_valid({"value": value}):
                return inner(value)
        raise ValueError("the value fits no type of the union; check the arguments against the schema first")

    return decode


def _integer(value: Any) -> Any:
    return int(value) if type(value) is float else value


_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_LEAVES: Final[dict[type, Codec]] = {
    str: Codec(schema={"type": "string"}),
    bool: Codec(schema={"type": "boolean"}),
    int: Codec(schema={"type": "integer"}, decode=_integer),
    float: Codec(schema={"type": "number"}),
    datetime: Codec(schema={"type": "string", "format": "date-time"}, decode=datetime.fromisoformat),
    date: Codec(schema={"type": "string", "format": "date"}, decode=date.fromisoformat),
    time: Codec(schema={"type": "string", "format": "time"}, decode=time.fromisoformat),
    bytes: Codec(
        schema={"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
        decode=base64.b64decode,
    ),
}
_BY_NAME: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "UUID": ("uuid", {"type": "string", "format": "uuid"}),
    "Path": ("pathlib", {"type": "string"}),
}
_SCALARS: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    types.NoneType: "null",
}
_SEQUENCES: Final[dict[Any, Callable[[Any], Any] | None]] = {
    list: None,
    abc.Sequence: None,
    abc.MutableSequence: None,
    abc.Collection: None,
    abc.Iterable: None,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)
