"""Plants changes in a trace file: one leaf of one attribute at a time, with or without mending the seal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kernel.trace import semconv as sc
from kernel.trace.otlp import encode_document
from kernel.trace.sealing import seal
from kernel.trace.span import Resource, Span
from replay.readers import read_traces


class Place(NamedTuple):
    """Where a change is planted: a span, its attribute, a leaf within its JSON."""

    span: int
    attribute: str
    path: tuple[Any, ...]
    step: int


def places(file: Path) -> Iterator[Place]:
    """Every leaf of every attribute of every finished span, but the seals."""
    for number, span in enumerate(read_traces(file).traces[0].spans):
        for name, value in span.attributes.items():
            if name in (sc.SEAL, sc.FORMAT):
                continue
            step = span.attributes.get(sc.STEP_INDEX, 0)
            for path in _leaves(_parsed(name, value)):
                yield Place(number, name, path, step)


def planted(file: Path, place: Place, target: Path, *, resealed: bool = False) -> str:
    """Write the trace with one changed leaf; the step's span id comes back."""
    trace = read_traces(file).traces[0]
    spans = [_copy(span) for span in trace.spans]
    span = spans[place.span]
    parsed = _parsed(place.attribute, span.attributes[place.attribute])
    new = _with(parsed, place.path)
    if isinstance(span.attributes[place.attribute], str) and not isinstance(parsed, str):
        new = json.dumps(new, ensure_ascii=False, separators=(",", ":"))
    span.attributes[place.attribute] = new
    if resealed:
        span.attributes.pop(sc.SEAL, None)
        span.attributes[sc.SEAL] = seal({k: v for k, v in span.attributes.items() if k.startswith(sc.SEALED)})
    target.write_bytes(encode_document(spans, Resource(attributes={"service.name": "planted"})))
    return span.span_id


def _copy(span: Span) -> Span:
    fields = {name: getattr(span, name) for name in span.__struct_fields__}
    return Span(**{**fields, "attributes": dict(span.attributes)})


def _parsed(name: str, value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "[") and name != sc.TOOL_RESULT:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, (list, tuple)) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


def _with(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _changed(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(copy[path[0]], path[1:])
    return copy


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    return "planted"
