"""The built-in tool `read_range`: how a model reads the rest of an observation that was cut."""

from __future__ import annotations

from kernel.record import READ_RANGE, Texts, ToolSpec
from kernel.tools.registry import Tool

_READ_RANGE_SCHEMA = {
    "type": "object",
    "properties": {
        "handle": {"type": "string"},
        "start": {"type": "integer", "minimum": 0},
        "length": {"type": "integer", "minimum": 1},
    },
    "required": ["handle"],
    "additionalProperties": False,
}
_range_tools: dict[str, Tool] = {}


def read_range_tool(texts: Texts) -> Tool:
    """The built-in tool that reads the rest of a cut observation."""
    description = texts.say("read_range.description")
    if description not in _range_tools:
        spec = ToolSpec(name=READ_RANGE, description=description, parameters=_READ_RANGE_SCHEMA)
        _range_tools[description] = Tool(spec, read_range)
    return _range_tools[description]


def read_range(handle: str, start: int = 0, length: int | None = None) -> str:
    """Stands for the built-in tool in a registry; dispatch reads the run's own artifacts."""
    raise RuntimeError("read_range is answered by dispatch")
