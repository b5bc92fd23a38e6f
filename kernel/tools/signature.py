"""Describe a Python function as a tool: its schema from its signature, and its keyword arguments from JSON.

`schema_of` gives what a model is shown. `binder` gives the way back: validated JSON arguments become the dataclass
instances, enum members, tuples and dates that the function's hints promise.
"""

import functools
import inspect
import operator
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kernel.tools.defaults import with_default
from kernel.tools.docstring import read_docstring
from kernel.tools.hints import Decode, HintReader, converter

Function: TypeAlias = Callable[..., Any]
Binder: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
HANDED_OVER = "idempotency_key"


class ToolSignature(NamedTuple):
    """A function as a model sees it. `parameters` is a JSON Schema of type object; `returns` is plain text."""

    name: str
    description: str
    parameters: dict[str, Any]
    returns: str


def schema_of(function: Function) -> ToolSignature:
    """Read name, description, parameter schema and return text from hints, defaults and docstring.

    A text in `Annotated` describes a parameter; otherwise the docstring's entry does. A parameter with a default is
    optional. `**kwargs` allows further properties; without it none are allowed. A parameter named `idempotency_key` is
    left out: the kernel hands it over itself.

    Raises:
        TypeError: a hint has no JSON form or cannot be resolved, or the function takes positional-only or `*args`
            parameters; the text names function, parameter and remedy.
    """
    return _read(function)[0]


def binder(function: Function) -> Binder:
    """A function from validated JSON arguments to keyword arguments. Keep it: making one reads the whole signature.

    It returns the very dict it is given when nothing needs conversion, else a copy. It checks nothing: arguments that
    do not fit the schema of `schema_of` may raise, as may a dataclass that checks its own values.

    Raises:
        TypeError: as `schema_of`.
    """
    return _read(function)[1]


def bind(function: Function, args: dict[str, Any]) -> dict[str, Any]:
    """Convert validated JSON arguments into keyword arguments for `function`, with a binder made once per function.

    Raises:
        TypeError: as `schema_of`.
    """
    try:
        found = _binders.get(function)
    except TypeError:
        # An object that is callable but cannot be hashed or weakly referenced.
        return binder(function)(args)
    if found is None:
        found = _binders[function] = binder(function)
    return found(args)


_binders: "weakref.WeakKeyDictionary[Function, Binder]" = weakref.WeakKeyDictionary()


def _read(function: Function) -> tuple[ToolSignature, Binder]:
    name = _name(function)
    doc = read_docstring(inspect.getdoc(_inner(function)) or "")
    reader = HintReader()
    properties: dict[str, Any] = {}
    required: list[str] = []
    decoders: list[tuple[str, Decode]] = []
    more: bool | dict[str, Any] = False
    decode_more: Decode | None = None
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        reader.place = f"{name}(), parameter {parameter.name!r}"
        _refuse_positional(parameter, reader.place)
        if parameter.name == HANDED_OVER:
            continue
        hint = _resolved(function, parameter, reader.place)
        codec = reader.read(hint)
        if parameter.kind is parameter.VAR_KEYWORD:
            more, decode_more = codec.schema or True, codec.decode
            continue
        properties[parameter.name] = _property(
            codec.schema, hint, parameter.default, doc.parameters.get(parameter.name)
        )
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        if codec.decode is not None:
            decoders.append((parameter.name, codec.decode))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = more
    if reader.defs:
        schema["$defs"] = reader.defs
    returns = doc.returns or _return_text(function, signature.return_annotation)
    tool = ToolSignature(name=name, description=doc.description, parameters=schema, returns=returns)
    return tool, _binder(decoders, frozenset(properties), decode_more)


def _binder(decoders: list[tuple[str, Decode]], declared: frozenset[str], decode_more: Decode | None) -> Binder:
    convert = converter(decoders) or _same
    if decode_more is None:
        return convert

    def bind_all(args: dict[str, Any]) -> dict[str, Any]:
        return {name: v if name in declared else decode_more(v) for name, v in convert(args).items()}

    return bind_all


def _same(args: dict[str, Any]) -> dict[str, Any]:
    return args


def _refuse_positional(parameter: inspect.Parameter, place: str) -> None:
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise TypeError(f"{place}: a tool cannot take *{parameter.name}.\nTake one list[...] parameter instead.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{place}: a tool is called by keyword only.\nRemove the / from the signature.")


def _property(schema: dict[str, Any], hint: Any, default: Any, said: str | None) -> dict[str, Any]:
    result = dict(schema)
    # A text in Annotated comes first; the docstring's entry speaks of this parameter, a class's own text of its kind.
    annotated = typing.get_origin(hint) is typing.Annotated and any(isinstance(a, str) for a in hint.__metadata__)
    if said and not annotated:
        result["description"] = said
    return result if default is inspect.Parameter.empty else with_default(result, default)


def _inner(function: Any) -> Any:
    """The function that carries docstring, name and globals: below a partial, or the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        return type(function).__call__
    return function


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _resolved(function: Function, parameter: inspect.Parameter, place: str) -> Any:
    try:
        return _resolve(function, parameter.annotation)
    except (NameError, AttributeError, SyntaxError) as error:
        raise TypeError(
            f"{place}: the hint {parameter.annotation!r} cannot be resolved: {error}.\n"
            "Import the type at module level, outside TYPE_CHECKING, or register the tool with params={...}."
        ) from None


def _resolve(function: Function, annotation: Any) -> Any:
    """Evaluate one annotation, so that a return hint that only type checkers see does no harm."""
    if annotation is inspect.Parameter.empty:
        return annotation
    holder = types.SimpleNamespace(__annotations__={"hint": annotation})
    namespace = getattr(inspect.unwrap(_inner(function)), "__globals__", {})
    return typing.get_type_hints(holder, globalns=namespace, include_extras=True)["hint"]


def _return_text(function: Function, annotation: Any) -> str:
    if annotation in (inspect.Signature.empty, None, "None"):
        return ""
    try:
        annotation = _resolve(function, annotation)
    except (NameError, AttributeError, SyntaxError):
        return str(annotation)
    return inspect.formatannotation(_modern(annotation)).replace("typing.", "").replace("collections.abc.", "")


def _modern(annotation: Any) -> Any:
    """A type in the one way to write it: `List[str]` is `list[str]`, `Optional[str]` is `str | None`."""
    origin, arguments = typing.get_origin(annotation), tuple(_modern(one) for one in typing.get_args(annotation))
    try:
        if origin in (typing.Union, types.UnionType):
            return functools.reduce(operator.or_, arguments)
        if isinstance(origin, type) and arguments:
            return origin[arguments]  # type: ignore[index]
    except TypeError:  # a name that is not defined yet, or a type of a third party
        return annotation
    return origin if isinstance(origin, type) else annotation
