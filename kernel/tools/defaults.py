"""Show in a schema what a parameter or field is when it is left out."""

import enum
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any


def with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """The schema with `default` in its JSON form, or as it is when the default has none.

    None is not shown where the schema takes no null: it then only marks what was left out.
    """
    try:
        encoded = _encoded(default)
    except ValueError:
        return schema
    return schema if encoded is None and not _allows_null(schema) else {**schema, "default": encoded}


def _allows_null(schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_allows_null(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return None in schema["enum"]
    return schema.get("type", "null") == "null" and "$ref" not in schema


def _encoded(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _encoded(value.value)
    if value is None or type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if type(value) in (list, tuple):
        return [_encoded(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _encoded(item) for key, item in value.items()}
    raise ValueError(f"{value!r} has no JSON form")
