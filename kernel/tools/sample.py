"""Make up arguments that a schema takes, to show a model the form of a call."""

from collections.abc import Mapping
from typing import Any, Final

from kernel.tools.coercion import resolve

_MAX_DEPTH: Final = 20
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


def sample(node: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """A small value for a schema: what must be there, and no more. It may not fit (a pattern is not followed): check it."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return "..."
    for given in ("const", "default"):
        if given in node:
            return node[given]
    for listed in ("examples", "enum"):
        if isinstance(node.get(listed), list) and node[listed]:
            return node[listed][0]
    reference = node.get("$ref")
    target = resolve(root, reference) if isinstance(reference, str) else None
    parts = [target[0]] if target is not None else []
    parts += [part for keyword in ("anyOf", "oneOf") for part in node.get(keyword, ())[:1]]
    parts += node.get("allOf", ())
    made = [sample(part, root, depth + 1) for part in parts]
    if "type" not in node and "properties" not in node and made and not all(isinstance(one, dict) for one in made):
        return made[0]
    kinds = node.get("type", "object" if "properties" in node or made else "string")
    kind = next((one for one in kinds if one != "null"), "null") if isinstance(kinds, list) else kinds
    match kind:
        case "object":
            properties = node.get("properties", {})
            own = {name: sample(properties.get(name), root, depth + 1) for name in node.get("required", ())}
            return {name: value for one in (*made, own) if isinstance(one, dict) for name, value in one.items()}
        case "array":
            return [sample(node.get("items"), root, depth + 1)] * node.get("minItems", 0)
        case "integer" | "number":
            return _number(node)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _text(node)


def _text(node: dict[str, Any]) -> str:
    text = _FORMATS.get(node.get("format", ""), "...")
    return text.ljust(node.get("minLength", 0), ".")[: node.get("maxLength", len(text) + node.get("minLength", 0))]


def _number(node: dict[str, Any]) -> Any:
    step = node.get("multipleOf", 1)
    low = node.get("minimum", node["exclusiveMinimum"] + step if "exclusiveMinimum" in node else None)
    high = node.get("maximum", node["exclusiveMaximum"] - step if "exclusiveMaximum" in node else None)
    if low is not None:
        return -(-low // step) * step
    return step if high is None or high >= step else high // step * step
