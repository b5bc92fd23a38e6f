"""Check tool arguments against the tool's JSON Schema (Draft 2020-12), and say what is wrong with them.

`ArgumentSchema.check` is total: whatever a model wrote, it answers with the arguments to use and a list of violations.
Schemas are hermetic: local references work, nothing is ever fetched.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice
from typing import Any, Final

from kernel.tools.coercion import Coercion
from kernel.tools.effort import MAX_CHECKS, Effort
from kernel.tools.filling import Filling, mentions_default
from kernel.tools.sample import sample
from kernel.tools.violation import ABSENT, ANYTHING, MAX_VIOLATIONS, Violation, explain, pointer

__all__ = ["ABSENT", "MAX_DEPTH", "MAX_VIOLATIONS", "ArgumentSchema", "Checked", "SchemaError", "Violation"]

MAX_DEPTH: Final = 200
"""Deepest nesting of arguments and schemas. The validator recurses on the machine stack, so depth must be bounded."""

_ALL_ERRORS_BELOW: Final = 2_000
"""Arguments of more values than this get only the first error: collecting all costs about 20 µs each."""


class SchemaError(ValueError):
    """A tool's parameter schema cannot be used; `path` is the place in the schema, as a JSON Pointer."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"parameter schema, at {self.path or 'its root'}: {self.problem}\n{self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a check: what to call the tool with, when `violations` is empty.

    `args` is the very object that was checked when nothing was coerced or filled in, else a copy; `coerced` names the paths
    whose type changed.
    """

    args: Any
    coerced: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


class ArgumentSchema:
    """A compiled parameter schema. Immutable, and safe to share between threads.

    Formats are enforced; `date-time`, `date` and `time` take any ISO 8601 text that Python's `fromisoformat` reads, so
    a time without an offset is valid.

    Raises:
        SchemaError: the schema is invalid, is not of type object, or refers to something outside itself.
    """

    __slots__ = ("_effort", "_follow", "_has_defaults", "_parts", "_sample", "_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs  # 50 ms, so only for those who use tools

        plain = _plain(schema, ())
        if not isinstance(plain, dict):
            raise SchemaError("", f"a schema is an object, not {type(schema).__name__}", _REMEDY_OBJECT)
        self.schema: dict[str, Any] = plain
        kind = plain.setdefault("type", "object")
        if kind not in ("object", ["object"]):
            raise SchemaError("/type", f"arguments are an object, but the type is {kind!r}", _REMEDY_OBJECT)
        try:
            self._validator = jsonschema_rs.Draft202012Validator(plain, **_OPTIONS)
        except jsonschema_rs.ValidationError as error:
            raise _schema_error(error, plain) from None
        except ValueError as error:
            raise SchemaError("", str(error), "Write the schema as valid Unicode and finite numbers.") from None
        self._effort = Effort(plain)
        self._parts: Any = None
        self._sample: dict[str, Any] | None = None
        self._has_defaults = mentions_default(plain)
        self._follow = not any(key == "$id" and tokens for tokens, key, _ in _keywords(plain))

    def is_valid(self, args: Any) -> bool:
        """Whether `args` fit as they are. Never raises."""
        flat = type(args) is dict and _only_scalars(map(type, args.values()))
        if (not flat and _exceeds_depth(args)) or self._effort.exceeds(args):
            return False
        try:
            return bool(self._validator.is_valid(args))
        except ValueError:
            # A lone surrogate, or an object that is not JSON, stood where the validator had to look at it.
            sane, refused = _sanitised(args)
            return not refused and bool(self._validator.is_valid(sane))

    def is_complete(self, args: Any) -> bool:
        """Whether `args` fit as they are and surely lack no default. Says nothing of any other. Never raises."""
        return not self._has_defaults and self.is_valid(args)

    def check(self, args: Any, *, guess: bool = True) -> Checked:
        """Fill in defaults, coerce where the schema demands it, and list what still does not fit. Never raises.

        Only exact conversions are made: numbers, booleans, objects and arrays written as strings; null for an optional
        property; a lone `{"input": value}` when just one property can be meant.

        Args:
            guess: False for a tool with side effects: a lone input that the schema does not name is then a violation.
        """
        if self._effort.exceeds(args):
            return Checked(args=args, violations=(_violation("", "(not checked)", _TOO_COSTLY),))
        if not guess and self.is_lone_input(args):
            return Checked(args=args, violations=self._unnamed(args))
        if not self._has_defaults:
            if self.is_valid(args):
                return Checked(args=args)
        elif (usable := self._usable(args)) is not None:
            return Checked(args=usable)
        if _exceeds_depth(args):
            return Checked(args=args, violations=(_too_deep(()),))
        coercion = Coercion(self.schema, self._fits, follow=self._follow)
        coerced = coercion.run(args)
        changed = tuple(dict.fromkeys(coercion.changed))
        if changed and (usable := self._usable(coerced)) is not None:
            return Checked(args=usable, coerced=changed)
        return Checked(args=coerced, coerced=changed, violations=self._violations(coerced))

    def _usable(self, args: Any) -> Any:
        """The arguments with defaults, without where these do not fit together, or None where neither fits."""
        if self._has_defaults and not _exceeds_depth(args):
            filled = Filling(self.schema, self._fits, follow=self._follow).run(args)
            if filled is not args and self.is_valid(filled):
                return filled
        return args if self.is_valid(args) else None

    def example(self) -> dict[str, Any] | None:
        """Arguments that fit, as few as must be given, or None where none could be made up."""
        if self._sample is None:
            made = sample(self.schema)
            self._sample = made if isinstance(made, dict) and self.is_valid(made) else {}
        return self._sample if self._sample or self.is_valid({}) else None

    def is_lone_input(self, args: Any) -> bool:
        """Whether the arguments are a text without a name: `{"input": value}`, of which the schema knows nothing."""
        if len(args) != 1 or "input" not in args:
            return False
        properties: Mapping[str, Any] = self.schema.get("properties") or {}
        return properties != {} and "input" not in properties

    def _unnamed(self, args: Any) -> tuple[Violation, ...]:
        names = tuple(self.schema["properties"])
        text, text_zh = "an argument with a name of its own", "带有自己名称的参数"
        unnamed = Violation(path="/input", value=args["input"], expected=text, expected_zh=text_zh, allowed=names)
        missing = tuple(v for v in self._violations(args) if v.value is ABSENT)
        return (*missing, unnamed)

    def _fits(self, place: str, value: Any) -> bool:
        if self._parts is None:
            import jsonschema_rs

            self._parts = jsonschema_rs.validator_map_for(self.schema, **_OPTIONS)
        part = self._parts.get(place)
        try:
            return part is not None and not _exceeds_depth(value) and bool(part.is_valid(value))
        except ValueError:
            return False

    def _violations(self, args: Any) -> tuple[Violation, ...]:
        if _exceeds_depth(args):
            return (_too_deep(()),)
        if self._effort.exceeds(args):
            return (_violation("", "(not checked)", _TOO_COSTLY),)
        sane, refused = _sanitised(args)
        if _size_exceeds(sane, _ALL_ERRORS_BELOW):
            errors = _first_error(self._validator, sane)
        else:
            errors = list(islice(self._validator.iter_errors(sane), _ALL_ERRORS_BELOW))
        places = {violation.path for violation in refused}
        found = [v for v in explain(errors, self.schema, sane) if v.path not in places]
        every = (*refused, *found) or (_violation("", sane, ANYTHING),)
        return tuple(sorted(every, key=lambda v: v.path) if refused else every)[:MAX_VIOLATIONS]


def _first_error(validator: Any, args: Any) -> list[Any]:
    import jsonschema_rs

    try:
        validator.validate(args)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def _reads(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def is_format(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return is_format


_OPTIONS: Final[Mapping[str, Any]] = {
    "offline": True,
    "validate_formats": True,
    "formats": {
        "date-time": _reads(datetime.fromisoformat),
        "date": _reads(date.fromisoformat),
        "time": _reads(time.fromisoformat),
    },
}
_REMEDY_OBJECT: Final = 'Write {"type": "object", "properties": {...}} with one property for each argument.'
_REMEDY_REFERENCE: Final = 'Nothing is fetched: copy the target under "$defs" and write {"$ref": "#/$defs/Name"}.'
_DATA: Final = frozenset({"const", "enum", "default", "examples"})


def _plain(value: Any, tokens: tuple[str | int, ...]) -> Any:
    """A deep copy in dicts and lists, so that later changes to the caller's schema cannot change what is checked."""
    if len(tokens) > MAX_DEPTH:
        raise SchemaError("", f"it is nested more than {MAX_DEPTH} levels deep", "Use $defs and $ref to flatten it.")
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise SchemaError(pointer(tokens), f"the key {key!r} is not a string", "Write every key as a string.")
        return {key: _plain(child, (*tokens, key)) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child, (*tokens, index)) for index, child in enumerate(value)]
    if value is None or type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    raise SchemaError(pointer(tokens), f"{value!r} is not JSON", "Use only what JSON can write.")


def _keywords(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Keywords with a text value, wherever a subschema can stand: (path of the subschema, keyword, value)."""
    stack: list[tuple[tuple[str | int, ...], Any, bool]] = [((), schema, False)]
    while stack:
        tokens, node, names = stack.pop()
        items = enumerate(node) if isinstance(node, list) else node.items()
        for key, child in items:
            if isinstance(child, str) and isinstance(key, str) and not names:
                yield tokens, key, child
            elif isinstance(child, dict | list) and (names or key not in _DATA):
                maps = not names and key in ("properties", "patternProperties", "$defs", "definitions")
                stack.append(((*tokens, key), child, maps))


def _schema_error(error: Any, schema: dict[str, Any]) -> SchemaError:
    if error.kind.name == "referencing" or "registry" in error.message or "Pointer" in error.message:
        references = [(tokens, key, text) for tokens, key, text in _keywords(schema) if key in ("$ref", "$dynamicRef")]
        named = [r for r in references if r[2] in error.message or r[2].lstrip("#") in error.message]
        remote = [r for r in references if not r[2].startswith("#")]
        for tokens, key, text in named or remote or references:
            problem = f"the reference {text!r} cannot be resolved inside the schema"
            return SchemaError(pointer((*tokens, key)), problem, _REMEDY_REFERENCE)
        return SchemaError("", error.message, _REMEDY_REFERENCE)
    tokens = tuple(error.instance_path)
    path = pointer(tokens)
    if error.kind.name == "pattern" or (tokens and tokens[-1] == "pattern"):
        remedy = "Write a valid regular expression."
    else:
        keyword = tokens[-1] if tokens else "the schema"
        remedy = f"Correct {keyword!r} as JSON Schema Draft 2020-12 defines it."
    return SchemaError(path, error.message, remedy)


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_only_scalars = _SCALARS.issuperset


def _exceeds_depth(value: Any) -> bool:
    """Whether containers nest deeper than `MAX_DEPTH`; each is visited once a level, so shared parts cost nothing."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: dict[int, Any] = {}
        for node in level:
            children = node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ()
            if not _only_scalars(map(type, children)):
                inner.update((id(child), child) for child in children if type(child) not in _SCALARS)
        if not inner:
            return False
        level = list(inner.values())
    return True


def _size_exceeds(value: Any, limit: int) -> bool:
    stack, seen = [value], 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen + len(stack) > limit:
            return True
        stack.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return False


def _violation(path: str, value: Any, text: tuple[str, str]) -> Violation:
    return Violation(path=path, value=value, expected=text[0], expected_zh=text[1])


def _too_deep(tokens: tuple[str | int, ...]) -> Violation:
    text = (f"at most {MAX_DEPTH} levels of nesting", f"至多 {MAX_DEPTH} 层嵌套")
    return _violation(pointer(tokens), "(nested too deep)", text)


_TOO_COSTLY: Final = (
    f"arguments that can be checked in {MAX_CHECKS} steps: the tool's schema asks for more",
    f"可在 {MAX_CHECKS} 步内检查的参数：该工具的 schema 需要更多步",
)
_FINITE: Final = ("a finite number", "有限的数字")
_JSON: Final = ("a JSON value", "JSON 值")
_HUGE_BITS: Final = 14_000
"""Integers wider than this (about 4,200 digits) cannot be written as text: Python refuses beyond 4,300 digits."""


def _sanitised(value: Any) -> tuple[Any, list[Violation]]:
    """A copy the validator can read, and a violation for every value that JSON has no form for.

    Lone surrogates become U+FFFD, which keeps lengths; a value without a JSON form becomes a text that names it.
    The depth of `value` is bounded by the caller.
    """
    refused: list[Violation] = []

    def copy(node: Any, tokens: tuple[str | int, ...]) -> Any:
        if isinstance(node, dict):
            return {_key(key): copy(child, (*tokens, _key(key))) for key, child in node.items()}
        if isinstance(node, list | tuple):
            return [copy(child, (*tokens, index)) for index, child in enumerate(node)]
        if isinstance(node, str):
            return _text(node)
        if node is None or isinstance(node, bool):
            return node
        if isinstance(node, int) and node.bit_length() <= _HUGE_BITS:
            return int(node)
        if isinstance(node, float) and math.isfinite(node):
            return float(node)
        number = isinstance(node, int | float)
        shown = repr(node) if isinstance(node, float) else f"({type(node).__name__})"
        refused.append(_violation(pointer(tokens), shown, _FINITE if number else _JSON))
        return shown

    return copy(value, ()), refused


def _text(text: str) -> str:
    return str(text) if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _key(key: Any) -> str:
    return _text(key) if isinstance(key, str) else f"({type(key).__name__})"
