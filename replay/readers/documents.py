"""Tells by its keys what a JSON document is, and hands it to the reader of that shape."""

from __future__ import annotations

import json
from typing import Any

from replay.readers import jaeger, langfuse, otlp, otlp_logs
from replay.readers.gather import Gather
from replay.readers.refusal import refuse

_SIGNALS = {
    "resourceMetrics": "metrics",
    "resource_metrics": "metrics",
    "resourceLogs": "logs",
    "resource_logs": "logs",
    "resourceProfiles": "profiles",
    "resource_profiles": "profiles",
}


def read_document(raw: Any, gather: Gather, name: str, *, line: int | None = None, ignored: list[str]) -> str:
    """Read one document and return its format, "" for one of another signal, which is then named in `ignored`.

    Raises:
        TraceError: it is no trace; the message says what it looks like.
    """
    logs = 0
    if isinstance(raw, dict) and {"resourceLogs", "resource_logs"} & raw.keys():
        logs = _counted(raw, gather, name, line)
    signal = _signal(raw)
    if signal == "logs" and logs:
        return ""
    if signal:
        ignored.append(f"OTLP {signal}, not traces" + (f" (line {line})" if line else ""))
        return ""
    if langfuse.is_export(raw):
        return _reading(langfuse.add, raw, "Langfuse export", "langfuse", gather, name, line)
    if jaeger.is_jaeger(raw):
        return _reading(jaeger.add, raw, "Jaeger JSON", "jaeger-json", gather, name, line)
    documents = otlp.unwrap(raw)
    if documents is None:
        refuse(name, f"JSON, but not a trace: {_describe(raw)}", line=line, remedy=_remedy(raw))
    for document in documents:
        _reading(otlp.add_tolerant, document, "OTLP JSON", "otlp-json", gather, name, line)
    return "otlp-json"


def _counted(raw: Any, gather: Gather, name: str, line: int | None) -> int:
    try:
        return otlp_logs.add(raw, gather)
    except ValueError as error:
        refuse(name, f"OTLP logs with a wrong field: {error}", line=line, remedy="Export them again.")


def _reading(add: Any, raw: Any, title: str, format_: str, gather: Gather, name: str, line: int | None) -> str:
    try:
        add(raw, gather)
    except ValueError as error:
        refuse(name, f"{title} with a wrong field: {error}", line=line, remedy="Export the trace again.")
    return format_


def _signal(raw: Any) -> str | None:
    if isinstance(raw, list) and raw:
        raw = raw[0]
    if isinstance(raw, dict) and not {"resourceSpans", "resource_spans"} & raw.keys():
        return next((_SIGNALS[key] for key in raw if key in _SIGNALS), None)
    return None


def _describe(raw: Any) -> str:
    if isinstance(raw, list):
        return f"an array of {len(raw)} items" + (f", the first is {_describe(raw[0])}" if raw else "")
    if isinstance(raw, dict):
        for key in ("error", "errors", "message"):
            if raw.get(key):
                return f"an answer that says {key}: {json.dumps(raw[key], ensure_ascii=False)}"
        keys = ", ".join(json.dumps(key, ensure_ascii=False) for key in list(raw)[:6])
        return f"an object with the keys {keys}" if raw else "an empty object"
    return f"a lone {type(raw).__name__}"


def _remedy(raw: Any) -> str:
    first = raw[0] if isinstance(raw, list) and raw else raw
    if isinstance(first, dict):
        if {"traceId", "id", "timestamp"} <= first.keys():
            return "This looks like Zipkin JSON: send it through a Collector with an OTLP exporter."
        if {"context", "name"} <= first.keys():
            return "This looks like the SDK's console output: use an OTLP file exporter instead."
        if not first:
            return "The answer held no trace: check the trace id and the time range."
    return "Export the trace as OTLP JSON."
