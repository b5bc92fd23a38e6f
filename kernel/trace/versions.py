"""Whether this version can read a recording at all: its format, the features it requires, the settings it names.

What decides how a run goes and is not known here is refused, never guessed; what is merely damaged is read, and named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kernel.record import FORMAT_VERSION, Budget, ContextLimits, Guard, ModelParams, Policy, Price, parse_json
from kernel.trace import semconv as sc
from kernel.trace.encode import CONFIG_FIELDS
from kernel.trace.genai import DISPATCH_FIELDS

FEATURES: frozenset[str] = frozenset()
"""What a recording may require of its reader (`tracefirst.requires`); there is none so far."""

_SETTINGS: dict[str, type[Struct]] = {sc.BUDGET: Budget, sc.GUARD: Guard, sc.POLICY: Policy, sc.CONTEXT: ContextLimits}
_PARTS: dict[str, type[Struct]] = {"price": Price, "model_params": ModelParams}


def why_unreadable(attributes: Mapping[str, Any]) -> str:
    """Why a span that names its format cannot be read by this version, with the remedy, or ""."""
    written = attributes.get(sc.FORMAT)
    if written is None:
        return ""
    number = int(written) if isinstance(written, str) and written.isdecimal() and len(written) < 20 else written
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        return f"{sc.FORMAT} is {written!r:.60}, which is no format: known are 1 to {FORMAT_VERSION}"
    if number > FORMAT_VERSION:
        return (
            f"it is of format {number}, and this version reads formats up to {FORMAT_VERSION}: "
            "a newer version wrote it, upgrade with pip install -U tracefirst"
        )
    if unknown := [name for name in _names(attributes.get(sc.REQUIRES)) if name not in FEATURES]:
        return f"it requires {', '.join(unknown)}, which this version does not know: upgrade with pip install -U tracefirst"
    if unknown := _unknown_settings(attributes):
        return (
            f"this version does not know the setting {', '.join(unknown)}, so that the run cannot be rebuilt: "
            "a newer version wrote it (pip install -U tracefirst), or somebody edited it"
        )
    return ""


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        parsed = _parsed(value)
        value = parsed if isinstance(parsed, list) else [value]
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


def _unknown_settings(attributes: Mapping[str, Any]) -> list[str]:
    """Paths of settings that are not known, such as `tracefirst.budget/max_teleports`."""
    found: list[str] = []
    for name, kind in _SETTINGS.items():
        found += _unknown(name, _parsed(attributes.get(name)), kind.__struct_fields__)
    config = _parsed(attributes.get(sc.CONFIG))
    found += _unknown(sc.CONFIG, config, CONFIG_FIELDS)
    for field, kind in _PARTS.items():
        found += _unknown(
            f"{sc.CONFIG}/{field}", config.get(field) if isinstance(config, dict) else None, kind.__struct_fields__
        )
    tools = _parsed(attributes.get(sc.TOOL_DEFINITIONS))
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            found += _unknown(f"{sc.TOOL_DEFINITIONS}/{tool.get('name')}", tool.get("tracefirst"), DISPATCH_FIELDS)
    return found


def _unknown(path: str, value: Any, known: tuple[str, ...]) -> list[str]:
    return [f"{path}/{key}"[:200] for key in value if key not in known] if isinstance(value, dict) else []


def _parsed(value: Any) -> Any:
    try:
        return parse_json(value) if isinstance(value, str) else value
    except ValueError:
        return None
