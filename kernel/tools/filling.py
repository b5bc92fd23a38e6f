"""Fill in what a schema says an argument is when it is left out: the tool then gets, and the record holds, what was meant."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kernel.tools.coercion import resolve
from kernel.tools.violation import pointer

_MAX_DEPTH: Final = 100
_MAX_NODES: Final = 20_000
_NOTHING: Final[Any] = object()

Validity = Callable[[str, Any], bool]


def mentions_default(schema: Any) -> bool:
    """Whether there can be anything to fill in. O(schema), so that it is asked once a schema."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if "default" in node:
                return True
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return False


class Filling:
    """One pass over one set of arguments. A default that does not fit its own schema is left out; so is one of which it is not
    certain that it applies (in `if`, in a branch of `anyOf` beside another that fits).

    Args:
        root, fits, follow: as of `kernel.tools.coercion.Coercion`.
    """

    __slots__ = ("_fits", "_follow", "_nodes", "_root")

    def __init__(self, root: Mapping[str, Any], fits: Validity, *, follow: bool) -> None:
        self._root = root
        self._fits = fits
        self._follow = follow
        self._nodes = 0

    def run(self, args: Any) -> Any:
        """The arguments with their defaults, or `args` itself where nothing was left out."""
        return self._fill(args, self._root, "#", 0)

    def _fill(self, value: Any, node: Any, at: str, depth: int) -> Any:
        self._nodes += 1
        if not isinstance(node, dict) or depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return value
        if not isinstance(value, (dict, list)):
            return value
        for place, part in self._applied(value, node, at):
            value = self._fill(value, part, place, depth + 1)
        if isinstance(value, dict):
            return self._properties(value, node, at, depth)
        items = node.get("items")
        if not isinstance(items, dict):
            return value
        filled = [self._fill(item, items, f"{at}/items", depth + 1) for item in value]
        return filled if any(new is not old for new, old in zip(filled, value, strict=True)) else value

    def _applied(self, value: Any, node: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
        """The subschemas that hold for the same value."""
        if (target := self._target(node)) is not None:
            yield target[1], target[0]
        for index, branch in enumerate(node.get("allOf", ())):
            yield f"{at}/allOf/{index}", branch
        for keyword in ("anyOf", "oneOf"):
            branches = node.get(keyword, ())
            fitting = [i for i in range(len(branches)) if self._fits(f"{at}/{keyword}/{i}", value)]
            if len(fitting) == 1:
                yield f"{at}/{keyword}/{fitting[0]}", branches[fitting[0]]

    def _properties(self, value: dict[str, Any], node: dict[str, Any], at: str, depth: int) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for name, part in node.get("properties", {}).items():
            place = f"{at}/properties{pointer((name,))}"
            if name in value:
                filled = self._fill(value[name], part, place, depth + 1)
                if filled is not value[name]:
                    changed[name] = filled
            elif (default := self._default(part)) is not _NOTHING and self._fits(place, default):
                changed[name] = copy.deepcopy(default)
        return {**value, **changed} if changed else value

    def _default(self, node: Any) -> Any:
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, dict):
                break
            if "default" in node:
                return node["default"]
            target = self._target(node)
            node = None if target is None else target[0]
        return _NOTHING

    def _target(self, node: dict[str, Any]) -> tuple[Any, str] | None:
        reference = node.get("$ref")
        return resolve(self._root, reference) if isinstance(reference, str) and self._follow else None
