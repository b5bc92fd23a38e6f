"""OTLP documents into spans: a fast typed way for the specified spelling, a tolerant one for all others."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kernel.record import valid_text
from kernel.trace import DocumentJson, Resource, ScopeJson, Span, SpanJson, to_resource, to_span
from replay.readers.gather import Gather, label

_LOGS = b'"resourceLogs"'
"""Content that may belong to spans: not read the fast way."""
_decode = msgspec.json.Decoder(DocumentJson).decode

_INTEGERS = frozenset({"intValue", "kind", "code", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"})
_RENAMED = {
    "batches": "resourceSpans",
    "instrumentationLibrarySpans": "scopeSpans",
    "instrumentationLibrary": "scope",
}
_UNDERSCORE = re.compile(r"_([a-z0-9])")


class NotOtlp(ValueError):
    """The document is no OTLP trace document; the message says where and why."""


def add_fast(data: bytes, gather: Gather) -> bool:
    """Read one `ExportTraceServiceRequest` spelled as specified; False where the tolerant way must look at it."""
    if _LOGS in data:
        return False
    try:
        document = _decode(data)
        if not _is_plain(document):
            return False
        add_document(document, gather)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _is_plain(document: DocumentJson) -> bool:
    """Whether no part of it may be hidden behind keys that are spelled in another way."""
    for group in document.resource_spans:
        if not group.scope_spans:
            return False
        for scoped in group.scope_spans:
            for span in scoped.spans or ():
                if span.trace_id is None or span.span_id is None or span.start_time_unix_nano is None:
                    return False
    return True


def add_document(document: DocumentJson, gather: Gather) -> None:
    """Add all spans of a parsed document. Raises `ValueError` for an integer that is none, before adding any."""
    ready = [
        (to_resource(group.resource, scoped.scope), scoped.scope, [(to_span(raw), raw) for raw in scoped.spans or ()])
        for group in document.resource_spans
        for scoped in group.scope_spans or ()
    ]
    for resource, scope, spans in ready:
        add_scoped(resource, scope, spans, gather)


def add_scoped(resource: Resource, scope: ScopeJson | None, spans: list[tuple[Span, SpanJson]], gather: Gather) -> None:
    """Add the spans of one scope, each beside what it was made from."""
    has_attributes = scope is not None and bool(scope.attributes)
    for span, raw in spans:
        gather.add(span, resource)
        if raw.attributes and len(raw.attributes) != len(span.attributes):
            gather.note(f"{label(span)} has an attribute key twice; the last value was kept", span.trace_id)
        if raw.trace_state or raw.links or has_attributes:
            _note_losses(span, raw, has_attributes, gather)


def _note_losses(span: Span, raw: SpanJson, scope_attributes: bool, gather: Gather) -> None:
    if raw.trace_state or any(link.trace_state for link in raw.links or ()):
        gather.note("trace state (W3C tracestate) was left out", span.trace_id)
    if scope_attributes:
        gather.note("attributes of the instrumentation scope were left out", span.trace_id)


def add_tolerant(raw: Any, gather: Gather) -> None:
    """Read an OTLP document given as plain JSON values, whatever its spelling (see `unwrap`).

    Raises:
        NotOtlp: a field has the wrong type; the message ends in its path.
    """
    changed: set[str] = set()
    try:
        document = msgspec.convert({"resourceSpans": _spelled(raw, "", changed)["resourceSpans"]}, DocumentJson)
        add_document(document, gather)
    except msgspec.ValidationError as error:
        raise NotOtlp(str(error)) from None
    except RecursionError:
        raise NotOtlp("values are nested too deeply") from None
    except ValueError as error:
        long = "digits" in str(error)  # Python refuses to read it, and speaks of a setting of its own
        found = "an integer of more than 4300 digits" if long else str(error).rpartition(": ")[2]
        raise NotOtlp(f"a number is not one: {found}") from None
    for text in sorted(changed):
        gather.note(text)


def _spelled(value: Any, key: str, changed: set[str]) -> Any:
    """JSON values with every field as the specification spells it."""
    if isinstance(value, dict):
        out = {}
        for field, inner in value.items():
            field = _RENAMED.get(name := _UNDERSCORE.sub(lambda match: match[1].upper(), field), name)
            if field == "attributes" and isinstance(inner, dict):
                inner = [{"key": name, "value": item} for name, item in inner.items()]
            out[field] = _any_value(inner) if field == "value" and not isinstance(inner, dict) else inner
            out[field] = _spelled(out[field], field, changed)
        return out
    if isinstance(value, list):
        return [_spelled(item, key, changed) for item in value]
    if isinstance(value, str):
        text = valid_text(value)
        if text is not value:
            changed.add("lone surrogates in texts were replaced by U+FFFD")
        return _integer(text, changed) if key.endswith("UnixNano") else text
    if isinstance(value, float) and (key in _INTEGERS or key.endswith("UnixNano")):
        return _integer(value, changed)
    return value


def _integer(value: str | float, changed: set[str]) -> Any:
    if isinstance(value, str) and (value.isdecimal() or not value):
        return value or "0"
    try:
        number = float(value)
        whole = int(number)
    except (ValueError, OverflowError):
        return value
    if number != whole:
        return value
    if abs(whole) > 2**53:
        changed.add("times or integers were written as floating point numbers beyond 2^53: their last digits are lost")
    return whole


def _any_value(value: Any) -> Any:
    """A bare JSON value as AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": value}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    return value


def unwrap(raw: Any) -> list[dict[str, Any]] | None:
    """The `{"resourceSpans": …}` documents in a JSON value, taken out of what answers wrap around them.

    Known are `{"result": …}` (Jaeger `/api/v3`), `{"trace": …}` and `batches` (Tempo), arrays of any of these, a lone
    ResourceSpans or ScopeSpans object, and spans without an envelope. None where it is something else.
    """
    if isinstance(raw, list):
        if raw and all(is_span(item) for item in raw):
            return [_enclosed(raw)]
        parts = [unwrap(item) for item in raw]
        return [document for part in parts if part is not None for document in part] if _all(parts) else None
    if not isinstance(raw, dict):
        return None
    for key in ("resourceSpans", "resource_spans", "batches"):
        if isinstance(raw.get(key), list):
            return [{"resourceSpans": raw[key]}]
        if key in raw and raw[key] is None:
            return [{"resourceSpans": []}]
    for key in ("result", "trace", "data"):
        if isinstance(raw.get(key), (dict, list)) and (inner := unwrap(raw[key])):
            return inner
    if _SCOPED & raw.keys():
        return [{"resourceSpans": [raw]}]
    spans = raw.get("spans")
    if isinstance(spans, list) and spans and all(is_span(item) for item in spans):
        return [{"resourceSpans": [{"scopeSpans": [raw]}]}]
    return [_enclosed([raw])] if is_span(raw) else None


_SCOPED = {"scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"}
_SPAN_ONLY = {"spanId", "span_id", "startTimeUnixNano", "start_time_unix_nano", "parentSpanId", "kind"}


def is_span(raw: Any) -> bool:
    """Whether a JSON value is an OTLP span."""
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("name"), str)
        and bool(_SPAN_ONLY & raw.keys())
        and isinstance(raw.get("attributes") or [], (list, dict))
        and not {"operationName", "duration", "timestamp", "context"} & raw.keys()
    )


def _all(parts: list[Any]) -> bool:
    return bool(parts) and all(part is not None for part in parts)


def _enclosed(spans: list[Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
