"""Make up arguments that a schema takes, to show a model the form of a call."""

from collections.abc import Mapping
from typing import Any, Final

from kernel.tools.coercion import resolve

_MAX_DEPTH: Final = 20
_MAX_NODES: Final = 1_000
_MAX_LENGTH: Final = 1_000
_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Any) -> Any:
    """A small value for a schema: what must be there, and no more. It may not fit (a pattern is not followed): check it."""
    return _Sampling(schema).value(schema, 0)


class _Sampling:
    """One pass through one schema, which may come from a trace: bounded in depth, in nodes, and in what it makes."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MAX_NODES

    def value(self, node: Any, depth: int) -> Any:
        self._left -= 1
        if not isinstance(node, dict) or depth > _MAX_DEPTH or self._left < 0:
            return "..."
        for given in ("const", "default"):
            if given in node:
                return node[given]
        for listed in ("examples", "enum"):
            if isinstance(node.get(listed), list) and node[listed]:
                return node[listed][0]
        made = [self.value(part, depth + 1) for part in self._parts(node)]
        if "type" not in node and "properties" not in node and made and not all(isinstance(one, dict) for one in made):
            return made[0]
        kinds = node.get("type", "object" if "properties" in node or made else "string")
        kind = next((one for one in kinds if one != "null"), "null") if isinstance(kinds, list) else kinds
        match kind:
            case "object":
                properties = node.get("properties", {})
                own = {name: self.value(properties.get(name), depth + 1) for name in node.get("required", ())}
                return {name: value for one in (*made, own) if isinstance(one, dict) for name, value in one.items()}
            case "array":
                return [self.value(node.get("items"), depth + 1)] * min(node.get("minItems", 0), _MAX_LENGTH)
            case "integer" | "number":
                return _number(node)
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return _text(node)

    def _parts(self, node: dict[str, Any]) -> list[Any]:
        reference = node.get("$ref")
        target = resolve(self._root, reference) if isinstance(reference, str) else None
        parts = [target[0]] if target is not None else []
        parts += [part for keyword in ("anyOf", "oneOf") for part in node.get(keyword, ())[:1]]
        return [*parts, *node.get("allOf", ())]


def _text(node: dict[str, Any]) -> str:
    text = _FORMATS.get(node.get("format", ""), "...")
    least = min(node.get("minLength", 0), _MAX_LENGTH)
    return text.ljust(least, ".")[: node.get("maxLength", len(text) + least)]


def _number(node: dict[str, Any]) -> Any:
    step = node.get("multipleOf", 1)
    low = node.get("minimum", node["exclusiveMinimum"] + step if "exclusiveMinimum" in node else None)
    high = node.get("maximum", node["exclusiveMaximum"] - step if "exclusiveMaximum" in node else None)
    if low is not None:
        return -(-low // step) * step
    return step if high is None or high >= step else high // step * step
