"""Jaeger tags back into attributes, and out of them what OTLP keeps in fields of its own: kind, status, scope."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from kernel.trace import CLIENT, CONSUMER, ERROR, INTERNAL, OK, PRODUCER, SERVER, UNSET, read_base64

_KINDS = {"internal": INTERNAL, "server": SERVER, "client": CLIENT, "producer": PRODUCER, "consumer": CONSUMER}
_LISTS_OF_TEXT = frozenset({"gen_ai.response.finish_reasons", "gen_ai.request.stop_sequences"})
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_JAEGERS_OWN = "internal.span.format"


class Tag(Struct):
    """A typed key and value; `v…` are the fields of Jaeger's protobuf model."""

    key: str = ""
    type: str | None = None
    value: Any = None
    v_type: str | int | None = msgspec.field(name="vType", default=None)
    v_str: str = msgspec.field(name="vStr", default="")
    v_bool: bool = msgspec.field(name="vBool", default=False)
    v_int: int | str = msgspec.field(name="vInt64", default=0)
    v_float: float | str = msgspec.field(name="vFloat64", default=0.0)
    v_binary: str = msgspec.field(name="vBinary", default="")


class TagReader:
    """Reads the tags of one span; `notes` collects what could not be restored surely."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def read(self, tags: Iterable[Tag] | None) -> dict[str, Any]:
        """Tags as attributes. Raises `ValueError` for a value that is not of its type; the message names the key."""
        attributes = {}
        for tag in tags or ():
            if tag.key != _JAEGERS_OWN:
                try:
                    attributes[tag.key] = self._value(tag)
                except (ValueError, TypeError):
                    value = json.dumps(tag.value)
                    raise ValueError(f"tag {tag.key!r} has type {tag.type} and the value {value}") from None
        return attributes

    def _value(self, tag: Tag) -> Any:
        if tag.value is None and tag.type is None:
            return _model_value(tag)
        kind = (tag.type or "").lower()
        if kind == "int64":
            return int(tag.value)
        if kind == "float64":
            return float(tag.value)
        if kind == "bool":
            return tag.value if isinstance(tag.value, bool) else _bool(tag.value)
        if kind == "binary":
            return self._binary(tag)
        if kind == "string" and tag.key in _LISTS_OF_TEXT:
            return self._list_of_text(tag.key, tag.value)
        return tag.value

    def _binary(self, tag: Tag) -> bytes:
        text = str(tag.value)
        if _HEX.fullmatch(text):
            if len(text) % 4:
                return bytes.fromhex(text)
            self.notes[
                f"the binary tag {tag.key!r} may be base64 or, from Elasticsearch, hex; it was read as base64"
            ] = None
        return read_base64(text)

    def _list_of_text(self, key: str, text: Any) -> Any:
        try:
            items = json.loads(text)
        except (ValueError, TypeError):
            return text
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            return text
        self.notes[f"{key} was a JSON text and is a list again"] = None
        return items


def _model_value(tag: Tag) -> Any:
    match str(tag.v_type):
        case "BOOL" | "1":
            return tag.v_bool
        case "INT64" | "2":
            return int(tag.v_int)
        case "FLOAT64" | "3":
            return float(tag.v_float)
        case "BINARY" | "4":
            return read_base64(tag.v_binary)
        case "None":
            return None
        case _:
            return tag.v_str


def _bool(value: Any) -> bool:
    match str(value).lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("not a truth value")


def take_kind(attributes: dict[str, Any]) -> int:
    """The span kind, taken out of `attributes`; a value that is no kind stays there."""
    kind = attributes.get("span.kind")
    if isinstance(kind, str) and kind in _KINDS:
        del attributes["span.kind"]
        return _KINDS[kind]
    return 0


def take_status(attributes: dict[str, Any]) -> tuple[int, str]:
    """Status and its message, taken out of `attributes`. Elasticsearch keeps only `error=true` of an error."""
    status = UNSET
    code = attributes.get("otel.status_code")
    if code in ("OK", "ERROR"):
        del attributes["otel.status_code"]
        status = OK if code == "OK" else ERROR
    if attributes.get("error") is True and status != OK:
        del attributes["error"]
        status = ERROR
    message = attributes.get("otel.status_description")
    if isinstance(message, str):
        del attributes["otel.status_description"]
        return status, message
    return status, ""


def take_scope(attributes: dict[str, Any]) -> tuple[str, str]:
    """Name and version of the instrumentation scope, taken out of `attributes`."""
    found = []
    for part in ("name", "version"):
        values = [attributes.pop(f"otel.{owner}.{part}", None) for owner in ("scope", "library")]
        found.append(next((str(value) for value in values if value is not None), ""))
    return found[0], found[1]
