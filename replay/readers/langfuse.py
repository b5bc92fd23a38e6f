"""Langfuse trace exports `{"trace": …, "observations": […]}` into spans.

Langfuse moves input, output, model and usage out of the OpenTelemetry attributes; they come back under the names that
Langfuse itself reads from spans (`langfuse.observation.*`).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kernel.trace import ERROR, UNSET, Resource, Span, read_id
from replay.readers.gather import Gather
from replay.readers.times import rfc3339_ns

_MOVED = {
    "type": "type",
    "level": "level",
    "input": "input",
    "output": "output",
    "model": "model.name",
    "modelParameters": "model.parameters",
    "usageDetails": "usage_details",
    "costDetails": "cost_details",
    "completionStartTime": "completion_start_time",
}
_LOSSES = (
    "Langfuse keeps times to the millisecond, no events and no links; input, output, model and usage are attributes "
    "langfuse.observation.* again"
)


class _Observation(msgspec.Struct, rename="camel"):
    id: str
    start_time: str
    trace_id: str | None = None
    parent_observation_id: str | None = None
    name: str | None = None
    end_time: str | None = None
    level: str | None = None
    status_message: str | None = None
    metadata: Any = None


def is_export(raw: Any) -> bool:
    """Whether a JSON value is a Langfuse export of one trace."""
    return isinstance(raw, dict) and isinstance(raw.get("trace"), dict) and isinstance(raw.get("observations"), list)


def add(raw: dict[str, Any], gather: Gather) -> None:
    """Add the observations of one export as spans. Raises `ValueError`; the message ends in the path."""
    trace_id = read_id(str(raw["trace"].get("id") or ""), 16)
    for index, item in enumerate(raw["observations"]):
        try:
            observation = msgspec.convert(item, _Observation)
            times = rfc3339_ns(observation.start_time), observation.end_time and rfc3339_ns(observation.end_time)
        except ValueError as error:
            raise ValueError(f"{error} (in `$.observations[{index}]`)") from None
        _add_observation(observation, item, trace_id, times[0], times[1] or None, gather)


def _add_observation(
    observation: _Observation, raw: dict[str, Any], trace_id: str, start_ns: int, end_ns: int | None, gather: Gather
) -> None:
    metadata = _parsed(observation.metadata)
    attributes = _flat(metadata.get("attributes"))
    for key, name in _MOVED.items():
        if raw.get(key) not in (None, {}):
            attributes[f"langfuse.observation.{name}"] = _text(raw[key])
    for key, value in metadata.items():
        if key not in ("attributes", "resourceAttributes", "scope"):
            attributes[f"langfuse.observation.metadata.{key}"] = _text(value)
    scope = _flat(metadata.get("scope"))
    span = Span(
        trace_id=read_id(observation.trace_id, 16) or trace_id,
        span_id=read_id(observation.id, 8),
        parent_id=read_id(observation.parent_observation_id, 8) or None,
        name=observation.name or "",
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=attributes,
        status=ERROR if observation.level == "ERROR" else UNSET,
        status_message=observation.status_message or "",
    )
    resource = Resource(
        attributes=_flat(metadata.get("resourceAttributes")),
        scope_name=str(scope.get("name") or ""),
        scope_version=str(scope.get("version") or ""),
    )
    gather.add(span, resource)
    gather.note(_LOSSES, span.trace_id)


def _parsed(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _flat(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
