"""JSON text of any layout: lines, one document, several in a row; each document goes to the reader of its shape."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from replay.readers import journal, otlp
from replay.readers.documents import read_document
from replay.readers.gather import Gather
from replay.readers.refusal import refuse
from replay.readers.source import Source

_parse = msgspec.json.Decoder().decode
_lenient = json.JSONDecoder()
_MALFORMED = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)")


class NotJson(ValueError):
    """Text that is no JSON document: `at` is the byte at fault, `cut` tells whether it just ends too early."""

    def __init__(self, message: str, at: int, cut: bool):
        super().__init__(message)
        self.at = at
        self.cut = cut


def read(source: Source, gather: Gather) -> str:
    """Read all documents of a text and return their format. Raises `TraceError`."""
    _check_beginning(source)
    data = source.data
    first, newline, rest = data.partition(b"\n")
    if journal.is_header(first):
        return journal.read(source, gather)
    if newline and not rest.isspace() and rest and _is_json(first):
        return _read_lines(source, gather)
    return _read_whole(source, gather)


def _check_beginning(source: Source) -> None:
    start = source.data[:4096].lstrip()
    if start[:1] in (b"{", b"["):
        return
    if start[:1] == b"<":
        is_html = b"<html" in start.lower() or b"<!doctype html" in start.lower()
        found = "this is an HTML page, often a login or error page that was saved instead of the trace"
        remedy = "Fetch the trace again and look at the answer."
        refuse(source.name, found if is_html else "this is XML", remedy=remedy if is_html else "")
    shown = start[:40].decode("utf-8", "replace").split("\n")[0]
    refuse(source.name, f"this is text, but not JSON: it starts with {shown!r}", line=1)


def _is_json(line: bytes) -> bool:
    try:
        parse(line)
    except NotJson:
        return False
    return True


def _read_lines(source: Source, gather: Gather) -> str:
    data, at, number = source.data, 0, 0
    formats: set[str] = set()
    ignored: list[str] = []
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line, number = data[at:end], number + 1
        if otlp.add_fast(line, gather):
            formats.add("otlp-json")
        elif line.strip():
            try:
                raw = parse(line)
            except NotJson as error:
                if data[end:].strip():
                    refuse(source.name, f"not JSON: {error}", line=number, remedy="Remove or repair that line.")
                gather.note(f"the last line, {number}, is cut off or damaged and was left out")
                break
            formats.add(read_document(raw, gather, source.name, line=number, ignored=ignored))
        at = end + 1
    return _finish(formats, ignored, source, gather)


def _finish(formats: set[str], ignored: list[str], source: Source, gather: Gather) -> str:
    if ignored and not gather:
        refuse(source.name, ignored[0], remedy="Export the traces signal.")
    for text in ignored:
        gather.note(f"left out: {text}")
    formats.discard("")
    return " and ".join(sorted(formats)) or "otlp-json"


def _read_whole(source: Source, gather: Gather) -> str:
    data = source.data
    if otlp.add_fast(data, gather):
        return "otlp-json"
    ignored: list[str] = []
    try:
        formats = {read_document(parse(data), gather, source.name, ignored=ignored)}
    except NotJson as error:
        formats = _read_in_a_row(error, source, gather, ignored)
    return _finish(formats, ignored, source, gather)


def _read_in_a_row(whole: NotJson, source: Source, gather: Gather, ignored: list[str]) -> set[str]:
    """Documents one after the other, with or without blanks between. `whole` is why they are not one."""
    text = source.data.decode("utf-8", "replace")
    formats: set[str] = set()
    at, line, counted = 0, 1, 0
    while at < len(text):
        if text[at].isspace() or text[at] in ",\x1e":  # commas and record separators between documents
            at += 1
            continue
        try:
            raw, end = _lenient.raw_decode(text, at)
        except (ValueError, RecursionError):
            _stop_at(at, text, whole, source, gather, first=not formats)
            break
        line, counted = line + text.count("\n", counted, at), at
        formats.add(read_document(raw, gather, source.name, line=line, ignored=ignored))
        at = end
    return formats


def _stop_at(at: int, text: str, whole: NotJson, source: Source, gather: Gather, *, first: bool) -> None:
    """Note what is left at the end, or refuse: only the end may be damaged, and never the only document."""
    if first:
        line = source.data.count(b"\n", 0, whole.at) + 1
        if whole.cut:
            remedy = "Copy the file again, or wait until it is written."
            refuse(source.name, "the JSON document is cut off at its end", line=line, byte=whole.at, remedy=remedy)
        refuse(source.name, f"not JSON: {whole}", line=line, byte=whole.at, remedy="Repair it or export it again.")
    line = text.count("\n", 0, at) + 1
    try:
        parse(text[at:].encode("utf-8", "replace"))
    except NotJson as error:
        if text[at] in "{[" and not error.cut:
            refuse(source.name, f"not JSON: {error}", line=line, remedy="Remove or repair that document.")
    gather.note(f"what stands from line {line} to the end is cut off or no JSON and was left out")


def parse(data: bytes) -> Any:
    """Any JSON, NaN literals and lone surrogates included. Raises `NotJson`."""
    try:
        return _parse(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _parse_leniently(data, str(error))


def _parse_leniently(data: bytes, strict_error: str) -> Any:
    """Parse what the strict parser refused; else raise the error of the parser that got further."""
    cut = "truncated" in strict_error
    try:
        return _lenient.decode(data.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        if cut:
            raise NotJson("it ends too early", len(data), True) from None
        at = len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
        strict = _MALFORMED.fullmatch(strict_error)
        if strict and at <= int(strict[2]) + 1:
            raise NotJson(strict[1], int(strict[2]), False) from None
        raise NotJson(error.msg[:1].lower() + error.msg[1:], at, False) from None
    except RecursionError:
        raise NotJson("nested too deeply", 0, False) from None
    except ValueError:
        raise NotJson("it holds an integer of more than 4300 digits", 0, False) from None
