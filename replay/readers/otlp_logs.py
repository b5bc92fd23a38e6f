"""OTLP log records beside spans: where instrumentations put the content of model calls, each with the id of its span."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.trace import EventJson, read_id, to_event
from replay.readers.gather import Gather

BODY = "gen_ai.event.content"
"""The attribute that holds a record's body once the record is an event of its span."""


def add(raw: dict[str, Any], gather: Gather) -> int:
    """Add the named records of a document as events of their spans; returns how many there were.

    Raises:
        ValueError: a record has a field of a wrong type.
    """
    found = 0
    for group in _list(raw, "resourceLogs", "resource_logs"):
        for scoped in _list(group, "scopeLogs", "scope_logs"):
            for record in _list(scoped, "logRecords", "log_records"):
                found += _add_record(record, gather)
    return found


def _add_record(record: Any, gather: Gather) -> int:
    if not isinstance(record, dict):
        return 0
    attributes = _list(record, "attributes")
    named = [item for item in attributes if isinstance(item, dict) and item.get("key") == "event.name"]
    told: Any = named[0].get("value") if named else None
    name = (
        record.get("eventName")
        or record.get("event_name")
        or (told.get("stringValue") if isinstance(told, dict) else "")
    )
    trace_id, span_id = (record.get(a) or record.get(b) for a, b in (("traceId", "trace_id"), ("spanId", "span_id")))
    if not (isinstance(name, str) and name and trace_id and span_id):
        return 0
    if isinstance(record.get("body"), dict):
        attributes = [*attributes, {"key": BODY, "value": record["body"]}]
    time = record.get("timeUnixNano") or record.get("observedTimeUnixNano")
    try:
        event = to_event(msgspec.convert({"name": name, "timeUnixNano": time, "attributes": attributes}, EventJson))
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    gather.add_event(read_id(trace_id, 16), read_id(span_id, 8), event)
    return 1


def _list(value: Any, *names: str) -> list[Any]:
    found = next((value[name] for name in names if isinstance(value, dict) and name in value), None)
    return found if isinstance(found, list) else []
