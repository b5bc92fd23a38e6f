"""The one form of a refusal: file, place, what was found, what helps, what is accepted; all on one line."""

from __future__ import annotations

from typing import NoReturn

from kernel.errors import TraceError

ACCEPTED = "OTLP JSON (lines too), OTLP protobuf, Jaeger JSON, tracefirst journals, Langfuse exports; plain, gz or zstd"
_MAX_FOUND = 300


def refuse(name: str, found: str, *, remedy: str = "", line: int | None = None, byte: int | None = None) -> NoReturn:
    """Raise the `TraceError` for `name`; `line` counts from 1, `byte` from 0 in the uncompressed content."""
    place = name
    if line is not None:
        place += f", line {line}"
    if byte is not None:
        place += f", byte {byte}"
    found = " ".join(found.split())
    if len(found) > _MAX_FOUND:
        found = found[:_MAX_FOUND] + "…"
    advice = f" {remedy}" if remedy else ""
    text = f"{place}: {found.rstrip('.')}.{advice} Accepted: {ACCEPTED}."
    raise TraceError(text, file=name, line=line) from None
