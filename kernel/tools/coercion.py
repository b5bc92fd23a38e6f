"""Bring arguments to the types their schema demands, where nothing is lost and only one reading exists.

Models write `"5"` for 5 and a JSON text for an object. Such a value is converted only where the schema does not take it
as it is; whatever is not exact stays, and is then refused by the validator with its place and value.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kernel.tools.violation import pointer

_MAX_DEPTH: Final = 100
_MAX_BRANCHES: Final = 20_000
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,999}")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,999})\.[0-9]{1,999}")
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}

_SETTLED: Final = frozenset({bool, int, float})
"""Types that no conversion starts from."""

Validity = Callable[[str, Any], bool]


def resolve(root: Mapping[str, Any], reference: str) -> tuple[Any, str] | None:
    """What a local reference leads to, and where that is, as `#/pointer`; None for any other."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    from urllib.parse import unquote  # 5 ms, and only schemas with references need it

    node: Any = root
    tokens = [unquote(t).replace("~1", "/").replace("~0", "~") for t in reference.split("/")[1:]]
    for token in tokens:
        try:
            node = node[int(token)] if isinstance(node, list) else node[token]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return node, "#" + pointer(tokens)


class Coercion:
    """One pass over one set of arguments; make a new one for each.

    Args:
        root: The whole schema; local references are looked up in it.
        fits: Says whether a value is valid at a place of the schema, given as `#/pointer`.
        follow: Whether local references may be followed; not when `$id` inside the schema changes what they mean.
        guess: Whether a lone `{"input": value}` may be taken for the one property that it can mean.
    """

    __slots__ = ("_branches", "_fits", "_follow", "_guess", "_root", "changed")

    def __init__(self, root: Mapping[str, Any], fits: Validity, *, follow: bool, guess: bool = True) -> None:
        self._root = root
        self._guess = guess
        self._fits = fits
        self._follow = follow
        self._branches = 0
        self.changed: list[str] = []

    def run(self, args: Any) -> Any:
        """The coerced arguments, or `args` itself when nothing changed; `changed` names the paths."""
        name = self._bare_name(args) if self._guess else None
        if name is not None:
            renamed = self._walk({name: args["input"]}, self._root, "#", (), 0)
            if self._fits("#", renamed):
                path = pointer((name,))
                self.changed = [path, *(p for p in self.changed if p != path)]
                return renamed
            self.changed = []
        return self._walk(args, self._root, "#", (), 0)

    def _bare_name(self, args: Any) -> str | None:
        """The property a lone `{"input": value}` must mean: the only one, or the only required one."""
        properties = self._root.get("properties", {})
        if not isinstance(args, dict) or list(args) != ["input"] or "input" in properties:
            return None
        for names in (self._root.get("required", ()), properties):
            if len(names) == 1 and next(iter(names)) in properties:
                return str(next(iter(names)))
        return None

    def _walk(self, value: Any, node: Any, at: str, path: tuple[str | int, ...], depth: int) -> Any:
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return value
        reference = node.get("$ref")
        if isinstance(reference, str) and self._follow and self._spend():
            target = resolve(self._root, reference)
            if target is not None:
                value = self._walk(value, target[0], target[1], path, depth + 1)
        value = self._convert(value, node, path)
        for index, branch in enumerate(node.get("allOf", ())):
            if self._spend():
                value = self._walk(value, branch, f"{at}/allOf/{index}", path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                value = self._choose(value, node[keyword], f"{at}/{keyword}", path, depth)
        if isinstance(value, dict):
            return self._properties(value, node, at, path, depth)
        if isinstance(value, list):
            return self._items(value, node, at, path, depth)
        return value

    def _spend(self) -> bool:
        """Bound the work: nested branches over nested references would otherwise grow exponentially."""
        self._branches += 1
        return self._branches <= _MAX_BRANCHES

    def _convert(self, value: Any, node: dict[str, Any], path: tuple[str | int, ...]) -> Any:
        types = _types(node)
        if type(value) is not str or not types or "string" in types:
            return value
        converted = _read(value, types)
        if converted is _UNREAD:
            return value
        self.changed.append(pointer(path))
        return converted

    def _choose(self, value: Any, branches: list[Any], at: str, path: tuple[str | int, ...], depth: int) -> Any:
        """Take the coerced value of the one branch that then fits; none or several leave the value as it is."""
        if any(self._fits(f"{at}/{index}", value) for index in range(len(branches))):
            return value
        before, fitting = self.changed, []
        for index, branch in enumerate(branches):
            if not self._spend():
                break
            self.changed = []
            candidate = self._walk(value, branch, f"{at}/{index}", path, depth + 1)
            if candidate is not value and self._fits(f"{at}/{index}", candidate):
                fitting.append((candidate, self.changed))
        self.changed = before
        if len(fitting) != 1:
            return value
        self.changed += fitting[0][1]
        return fitting[0][0]

    def _properties(
        self, value: dict[str, Any], node: dict[str, Any], at: str, path: tuple[str | int, ...], depth: int
    ) -> dict[str, Any]:
        declared = node.get("properties", {})
        others = None if "patternProperties" in node else node.get("additionalProperties")
        if not declared and not isinstance(others, dict):
            return value
        required = node.get("required", ())
        result = value
        for name, child in value.items():
            if type(child) in _SETTLED:
                continue
            where = f"{at}/properties{pointer((name,))}" if name in declared else f"{at}/additionalProperties"
            if child is None and name in declared and name not in required and not self._fits(where, None):
                result = dict(value) if result is value else result
                del result[name]
                self.changed.append(pointer((*path, name)))
                continue
            new = self._walk(child, declared.get(name, others), where, (*path, name), depth + 1)
            if new is not child:
                result = dict(value) if result is value else result
                result[name] = new
        return result

    def _items(
        self, value: list[Any], node: dict[str, Any], at: str, path: tuple[str | int, ...], depth: int
    ) -> list[Any]:
        prefix = node.get("prefixItems", ())
        rest = node.get("items")
        if not prefix and not isinstance(rest, dict):
            return value
        result = value
        for index, child in enumerate(value):
            if type(child) in _SETTLED:
                continue
            schema, where = (
                (prefix[index], f"{at}/prefixItems/{index}") if index < len(prefix) else (rest, f"{at}/items")
            )
            new = self._walk(child, schema, where, (*path, index), depth + 1)
            if new is not child:
                result = list(value) if result is value else result
                result[index] = new
        return result


_UNREAD: Final = object()
_JSON_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def _types(node: dict[str, Any]) -> set[str]:
    """The JSON types a node takes: by its `type`, else by its enum or const; empty when it says none."""
    named = node.get("type")
    if named is not None:
        return {named} if isinstance(named, str) else set(named)
    values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else []
    return {_JSON_TYPES[type(value)] for value in values}


def _read(text: str, types: set[str]) -> Any:
    """The one value of `types` that `text` writes exactly, else `_UNREAD`."""
    if "boolean" in types and text in _BOOLEANS:
        return _BOOLEANS[text]
    if ("integer" in types or "number" in types) and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _DECIMAL.fullmatch(text):
        from decimal import Decimal

        number = float(text)
        return number if math.isfinite(number) and Decimal(repr(number)) == Decimal(text) else _UNREAD
    if ("object" in types or "array" in types) and text.lstrip()[:1] in ("{", "["):
        decoded = _decode(text)
        if ("object" in types and isinstance(decoded, dict)) or ("array" in types and isinstance(decoded, list)):
            return decoded
    return _UNREAD


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return _UNREAD


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a property twice: one of the two values would be lost."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a property is named twice")
    return result
