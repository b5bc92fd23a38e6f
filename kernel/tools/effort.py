"""How much work a schema makes of a value: a few hundred bytes of schema can ask for 10⁹ checks, and may come from a trace.

The validator cannot be interrupted, so the work is counted before it is begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

MAX_CHECKS: Final = 1_000_000
"""Subschemas applied to values in one check of arguments. What tools ask for in earnest is a few hundred."""

_SMALL: Final = 2_000
"""A schema without recursion that unfolds to fewer subschemas is never counted again: its work is linear in the value."""

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else", "$ref", "$dynamicRef", "unevaluatedItems", "unevaluatedProperties")


_Pair = tuple[int, int]
"""A subschema and a part of the value, by identity."""


@dataclass(slots=True)
class _Node:
    """One subschema, and those that it applies: to the same value, to parts of an object, to items of an array."""

    same: list[_Node]
    named: dict[str, _Node]
    dependent: dict[str, _Node]
    each: list[_Node]
    names: list[_Node]
    prefix: list[_Node]
    items: list[_Node]

    def all(self) -> Iterator[_Node]:
        for part in (self.same, self.each, self.names, self.prefix, self.items):
            yield from part
        yield from self.named.values()
        yield from self.dependent.values()

    def applied(self, value: Any) -> Iterator[tuple[_Node, Any]]:
        """(subschema, value or part of it) of all that is checked next."""
        for node in self.same:
            yield node, value
        if isinstance(value, dict):
            yield from ((node, value[key]) for key, node in self.named.items() if key in value)
            yield from ((node, value) for key, node in self.dependent.items() if key in value)
            yield from ((node, part) for node in self.each for part in value.values())
            yield from ((node, key) for node in self.names for key in value)
        elif isinstance(value, list):
            yield from ((node, part) for node in self.items for part in value)
            yield from zip(self.prefix, value, strict=False)


class Effort:
    """The work of one schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._addresses = dict(_addresses(schema))
        self._nodes: dict[int, _Node] = {}
        self._root = self._compile(schema)
        self._small = self._unfolds_to_little()

    def exceeds(self, value: Any) -> bool:
        """Whether a check of `value` takes more than `MAX_CHECKS` steps, or may go round in a circle on one value.

        A definition that applies itself to its own value ends there, as it does in the validator. Each pair of a subschema and a part is counted once and then known, so that counting is cheap where checking is
        not. Nothing at all for usual schemas.
        """
        if self._small:
            return False
        counts: dict[_Pair, int] = {}
        begun: dict[_Pair, _Pair | None] = {}  # and what each was begun for
        stack: list[tuple[_Node, Any, _Pair | None]] = [(self._root, value, None)]
        while stack:
            node, part, cause = stack[-1]
            key = id(node), id(part)
            if key in counts:
                stack.pop()
                continue
            applied = [(child, inner, (id(child), id(inner))) for child, inner in node.applied(part)]
            if key in begun:
                counts[key] = 1 + sum(counts.get(known, 1) for _, _, known in applied)
                if max(counts[key], len(counts)) > MAX_CHECKS:
                    return True
                del begun[key]
                stack.pop()
                continue
            begun[key] = cause
            for child, inner, known in applied:
                if known not in counts and known not in (key, cause):
                    if known in begun:
                        return True
                    stack.append((child, inner, key))
        return False

    def _unfolds_to_little(self) -> bool:
        """Whether all ways through the schema together are few, and none leads back to where it was."""
        count = 0
        stack: list[tuple[_Node, frozenset[int]]] = [(self._root, frozenset())]
        while stack:
            node, above = stack.pop()
            count += 1
            if count > _SMALL or id(node) in above:
                return False
            inner = above | {id(node)}
            stack.extend((child, inner) for child in node.all())
        return True

    # ---- from the schema to nodes

    def _compile(self, schema: dict[str, Any]) -> _Node:
        root, stack = self._node(schema), [(schema, "")]
        seen: set[int] = set()
        while stack:
            raw, base = stack.pop()
            if id(raw) in seen or not isinstance(raw, dict):
                continue
            seen.add(id(raw))
            base = _base(raw, base)
            stack.extend([(child, base) for child in self._fill(self._node(raw), raw, base)])
        return root

    def _node(self, raw: Any) -> _Node:
        if id(raw) not in self._nodes:
            self._nodes[id(raw)] = _Node([], {}, {}, [], [], [], [])
        return self._nodes[id(raw)]

    def _fill(self, node: _Node, raw: dict[str, Any], base: str) -> Iterator[Any]:
        """Tie a node to those below it; the subschemas behind these."""
        mapped = {"properties": node.named, "dependentSchemas": node.dependent}
        for key, table in mapped.items():
            for name, child in _object(raw.get(key)).items():
                table[name] = self._node(child)
                yield child
        same = [child for key in _LISTS for child in _array(raw.get(key))]
        same += [child for key in _SINGLE if (child := self._target(key, raw.get(key), base)) is not None]
        tied = (
            (node.same, same),
            (node.each, [*_object(raw.get("patternProperties")).values(), raw.get("additionalProperties")]),
            (node.names, [raw.get("propertyNames")]),
            (node.items, [raw.get("items"), raw.get("contains")]),
            (node.prefix, _array(raw.get("prefixItems"))),
        )
        for nodes, children in tied:
            for child in children:
                if isinstance(child, dict):
                    nodes.append(self._node(child))
                    yield child

    def _target(self, key: str, value: Any, base: str) -> Any:
        if key not in ("$ref", "$dynamicRef"):
            return value
        return self._referred(urljoin(base, value)) if isinstance(value, str) else None

    def _referred(self, address: str) -> Any:
        """What a reference leads to: a name, or a JSON pointer; None where it leads out of the schema."""
        document, fragment = urldefrag(address)
        if not fragment.startswith("/"):
            return self._addresses.get(address if fragment else document)
        found: Any = self._addresses.get(document)
        for token in unquote(fragment).split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(token)
            elif isinstance(found, list) and token.isdecimal() and len(token) < 7 and int(token) < len(found):
                found = found[int(token)]
            else:
                return None
        return found


def _addresses(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(address, subschema) of the root and of all that have an `$id` or an anchor."""
    yield "", schema
    stack: list[tuple[Any, str]] = [(schema, "")]
    while stack:
        node, base = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$id"), str):
                base = _base(node, base)
                yield urldefrag(base)[0], node
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(key), str):
                    yield f"{urldefrag(base)[0]}#{node[key]}", node
            stack.extend((child, base) for child in node.values())
        elif isinstance(node, list):
            stack.extend((child, base) for child in node)


def _base(raw: dict[str, Any], base: str) -> str:
    own = raw.get("$id")
    return urljoin(base, own) if isinstance(own, str) else base


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
