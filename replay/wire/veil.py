"""Masking of exchanges, before they are written and before they are compared: both sides by the same rules.

A secret that a stream spells out over several events is found in what they say together. The placeholder then stands in
the first of these events, and the others lose their part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from kernel.masking import PLACEHOLDER, Masker
from kernel.record import compact_json, parse_json
from replay.wire.exchange import Answer, Asked, Chunk

_KEYS = frozenset({"key", "api_key", "api-key", "apikey", "access_token", "token", "sig", "signature"})
_TELLING = ("index", "output_index", "content_index", "summary_index", "item_id", "type")


def target_without_keys(target: str) -> str:
    """Path and query without the parameters that hold keys."""
    path, mark, query = target.partition("?")
    if not mark:
        return target
    left = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name.lower() not in _KEYS]
    return f"{path}?{urlencode(left)}" if left else path


def veiled(asked: Asked, masker: Masker | None) -> Asked:
    """A request without its secrets."""
    asked = msgspec.structs.replace(asked, target=target_without_keys(asked.target))
    if masker is None:
        return asked
    return msgspec.structs.replace(
        asked,
        target=masker.mask_text(asked.target),
        headers=masker.mask(asked.headers),
        body=masker.mask(asked.body),
        raw=_veiled_bytes(asked.raw, masker),
    )


def _veiled_bytes(data: bytes, masker: Masker) -> bytes:
    if not data:
        return data
    text = data.decode("utf-8", "surrogateescape")
    return masker.mask_text(text).encode("utf-8", "surrogateescape")


def veiled_answer(answer: Answer, masker: Masker | None) -> Answer:
    """An answer without its secrets. One that holds none keeps its chunks as they came."""
    if masker is None:
        return answer
    answer = msgspec.structs.replace(
        answer, headers=masker.mask(answer.headers), detail=masker.mask_text(answer.detail)
    )
    data = answer.body
    chunks = (_veiled_stream if answer.streamed else _veiled_whole)(answer, data, masker)
    return answer if chunks is None else msgspec.structs.replace(answer, chunks=chunks)


def _veiled_whole(answer: Answer, data: bytes, masker: Masker) -> tuple[Chunk, ...] | None:
    try:
        value = parse_json(data)
    except ValueError:
        masked_bytes = _veiled_bytes(data, masker)
    else:
        masked = masker.mask(value)
        masked_bytes = data if masked is value else compact_json(masked).encode()
    if masked_bytes == data:
        return None
    return (Chunk(after_ns=answer.chunks[-1].after_ns, data=masked_bytes),)


def _veiled_stream(answer: Answer, data: bytes, masker: Masker) -> tuple[Chunk, ...] | None:
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    values = [_value(line) for line in lines]
    masked: list[Any] = [None if value is None else masker.mask(value) for value in values]
    touched = any(one is not other for one, other in zip(masked, values, strict=True))
    for group in _groups(masked):
        whole = "".join(holder[key] for holder, key in group)
        hidden = masker.mask_text(whole)
        if hidden != whole:
            touched = True
            _share(group, whole, hidden)
    out = [_line(line, value, masker) for line, value in zip(lines, masked, strict=True)]
    if not touched and out == lines:
        return None
    return tuple(_rechunked(answer, lines, out))


def _value(line: str) -> Any:
    """The JSON object of a `data:` line, a copy that may be changed; None for any other line."""
    if not line.startswith("data:"):
        return None
    try:
        value = parse_json(line[5:].strip())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _line(line: str, value: Any, masker: Masker) -> str:
    if value is None:
        return masker.mask_text(line)
    if parse_json(line[5:].strip()) == value:
        return line
    return f"data: {compact_json(value)}{line[len(line.rstrip(chr(13) + chr(10))) :]}"


def _groups(values: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """The texts that events give piece by piece: those at the same place of events that tell the same of themselves."""
    groups: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for value in values:
        if value is not None:
            for place, holder, key in _texts(value):
                groups.setdefault(place, []).append((holder, key))
    yield from (group for group in groups.values() if len(group) > 1)


def _texts(value: Any) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        place, holder = stack.pop()
        if isinstance(holder, dict):
            told = tuple(str(holder.get(name)) for name in _TELLING)
            entries: list[tuple[Any, Any]] = [(key, inner) for key, inner in holder.items() if key not in _TELLING]
        else:
            told, entries = (), list(enumerate(holder))
        for key, inner in entries:
            at = (*place, told, key)
            if isinstance(inner, str):
                yield at, holder, key
            elif isinstance(inner, (dict, list)):
                stack.append((at, inner))


def _share(group: list[tuple[Any, Any]], whole: str, hidden: str) -> None:
    """Spread `hidden` over the pieces that `whole` came in: a placeholder goes to the first piece of its secret."""
    segments = _segments(whole, hidden)
    position = 0
    for number, (holder, key) in enumerate(group):
        end = position + len(holder[key])
        if segments is None:  # what cannot be spread stands in the first piece
            holder[key] = hidden if not number else ""
        else:
            holder[key] = "".join([_part(segment, position, end, whole) for segment in segments])
        position = end


def _segments(whole: str, hidden: str) -> list[tuple[int, int, str | None]] | None:
    """`whole` in segments: where each begins and ends, and the placeholder that stands for it. None if they do not fit."""
    segments: list[tuple[int, int, str | None]] = []
    at, last = 0, 0
    marks = list(PLACEHOLDER.finditer(hidden))
    for number, mark in enumerate(marks):
        plain = hidden[last : mark.start()]
        if not whole.startswith(plain, at):
            return None
        start, last = at + len(plain), mark.end()
        segments.append((at, start, None))
        following = hidden[last : marks[number + 1].start() if number + 1 < len(marks) else len(hidden)]
        at = whole.find(following, start) if following else len(whole)
        if at < 0:
            return None
        segments.append((start, at, mark[0]))
    return [*segments, (at, len(whole), None)] if whole[at:] == hidden[last:] else None


def _part(segment: tuple[int, int, str | None], start: int, end: int, whole: str) -> str:
    begins, ends, stand_in = segment
    if stand_in is not None:
        return stand_in if start <= begins < end else ""
    return whole[max(begins, start) : min(ends, end)]


def _rechunked(answer: Answer, lines: list[str], out: list[str]) -> Iterator[Chunk]:
    """The lines as chunks, each at the time of the chunk in which it ended."""
    ends: list[tuple[int, int]] = []
    at = 0
    for chunk in answer.chunks:
        at += len(chunk.data)
        ends.append((at, chunk.after_ns))
    position, number = 0, 0
    waiting: list[str] = []
    for line, changed in zip(lines, out, strict=True):
        position += len(line.encode("utf-8", "surrogateescape"))
        waiting.append(changed)
        while number < len(ends) - 1 and ends[number][0] < position:
            number += 1
        if not line.strip():
            yield Chunk(after_ns=ends[number][1], data="".join(waiting).encode("utf-8", "surrogateescape"))
            waiting = []
    if waiting:
        yield Chunk(after_ns=ends[-1][1], data="".join(waiting).encode("utf-8", "surrogateescape"))
