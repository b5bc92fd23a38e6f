"""Change the string leaves of JSON-like data: iterative, and the same object comes back when nothing changed."""

from collections.abc import Callable
from typing import Any, Final

Leaf = Callable[[str, Any, str | None], str]
"""(text, state, name) -> text. `state` is what `Step` made of the way to the leaf, `name` the key it stands under."""
Step = Callable[[Any, str | int], Any]
"""(state, key or index) -> state of the child."""

_NAME_KEYS: Final = ("name", "key")
_VALUE_KEYS: Final = frozenset(("value", "stringValue", "string_value"))
_PLAIN_KEYS: Final = frozenset(("raw", "plain", "text", "string", "data", "content", "default"))
"""Keys that say nothing of their own: what stands under one is named by the key above."""
_SHORTEST_KEY: Final = 16  # characters; no credential form is shorter


class _Node:
    """A container on the way to a changed leaf; its copy is made when the first change below it is found."""

    __slots__ = ("copy", "key", "parent", "renamed", "source")

    def __init__(self, source: Any, parent: "_Node | None", key: Any) -> None:
        self.source, self.parent, self.key = source, parent, key
        self.copy: Any = None
        self.renamed: dict[str, str] | None = None


def rewrite(value: Any, leaf: Leaf, rename: Callable[[str], str], step: Step | None = None, state: Any = None) -> Any:
    """`value` with `leaf` applied to each string leaf and `rename` to each string key.

    Only changed containers are copied, as plain dict, list or tuple; numbers, booleans, None and all other objects
    stay as they are. Strings in a list are named by the key of the list. In `{"name": N, "value": V}` (and `key`), the
    shape of headers and of OTLP attributes, V is named by N, and so is what stands under `raw`, `text` or the like in an object. O(size), no recursion.
    """
    if isinstance(value, str):
        return leaf(value, state, None)
    if not isinstance(value, dict | list | tuple):
        return value
    touched: list[_Node] = []
    stack: list[tuple[_Node, Any, str | None]] = [(_Node(value, None, None), state, None)]
    while stack:
        node, at, name = stack.pop()
        source = node.source
        is_dict = isinstance(source, dict)
        pair = _pair_name(source) if is_dict else None
        for key, item in source.items() if is_dict else enumerate(source):
            if is_dict and isinstance(key, str) and len(key) >= _SHORTEST_KEY and (new_key := rename(key)) != key:
                _touch(node, touched)
                node.renamed = {**(node.renamed or {}), key: new_key}
            of_pair = is_dict and key in _VALUE_KEYS
            told = name is not None and is_dict and key in _PLAIN_KEYS
            label: Any = (pair or name or key) if of_pair else name if told else key if is_dict else name
            if isinstance(item, str):
                new = leaf(item, at if step is None else step(at, key), label)
                if new is not item and new != item:
                    _touch(node, touched)
                    node.copy[key] = new
            elif isinstance(item, dict | list | tuple):
                stack.append((_Node(item, node, key), at if step is None else step(at, key), label))
    return _finished(touched) if touched else value


def _pair_name(source: dict[Any, Any]) -> str | None:
    if "value" not in source:
        return None
    for key in _NAME_KEYS:
        if isinstance(source.get(key), str):
            return str(source[key])
    return None


def _touch(node: _Node, touched: list[_Node]) -> None:
    """Copy `node` and every container above it that has no copy yet; parents enter `touched` before children."""
    fresh: list[_Node] = []
    above: _Node | None = node
    while above is not None and above.copy is None:
        above.copy = dict(above.source) if isinstance(above.source, dict) else list(above.source)
        fresh.append(above)
        above = above.parent
    touched.extend(reversed(fresh))


def _finished(touched: list[_Node]) -> Any:
    result: Any = None
    for node in reversed(touched):  # children first
        result = node.copy
        if isinstance(node.source, tuple):
            result = tuple(result)
        elif node.renamed:
            result = {node.renamed.get(key, key): item for key, item in result.items()}
        if node.parent is not None:
            node.parent.copy[node.key] = result
    return result
