"""Exchanges as a gateway sees them, not read yet: what it hands to whoever records, in this process or beside it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from replay.wire.exchange import Answer, Asked, Chunk, End, UnreadableEncoding, json_or_raw, undo, undone


class RawAsked(Struct, frozen=True, kw_only=True, tag="asked"):
    """A request: the kept headers, and the body as it was sent."""

    number: int
    upstream: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    encoding: str
    at_ns: int
    version: str = ""


class RawAnswer(Struct, frozen=True, kw_only=True, tag="answered"):
    """How a request ended: the kept headers, and the pieces of the body as they came, each with its time."""

    number: int
    status: int
    reason: str
    headers: dict[str, str]
    chunks: list[tuple[int, bytes]]
    encoding: str
    end: End
    detail: str
    lost_bytes: int
    at_ns: int


Raw = RawAsked | RawAnswer


class Tick(Struct, frozen=True, kw_only=True, tag="tick"):
    """Nothing passed; time did."""

    at_ns: int


class Witness(Protocol):
    """Who is told what passed. Called from one thread, in order."""

    def asked(self, number: int, asked: Asked) -> None: ...
    def answered(self, number: int, answer: Answer) -> None: ...


def size_of(raw: Raw) -> int:
    """About how much memory it holds."""
    if isinstance(raw, RawAsked):
        return len(raw.body) + 1000
    return sum(len(data) + 100 for _, data in raw.chunks) + 1000


def deliver(raw: Raw, witness: Witness) -> None:
    """Read what passed and tell a witness."""
    if isinstance(raw, RawAsked):
        witness.asked(raw.number, _asked(raw))
    else:
        witness.answered(raw.number, _answer(raw))


def _asked(raw: RawAsked) -> Asked:
    try:
        body, rest = json_or_raw(undone(raw.body, raw.encoding))
    except UnreadableEncoding:
        body, rest = None, raw.body
    return Asked(
        upstream=raw.upstream,
        method=raw.method,
        target=raw.target,
        headers=raw.headers,
        body=body,
        raw=rest,
        at_ns=raw.at_ns,
        version=raw.version,
    )


def _answer(raw: RawAnswer) -> Answer:
    chunks, problem = _plain(raw.chunks, raw.encoding)
    return Answer(
        status=raw.status,
        reason=raw.reason,
        headers=raw.headers,
        chunks=chunks,
        end=raw.end,
        detail=raw.detail or problem,
        lost_bytes=raw.lost_bytes,
        at_ns=raw.at_ns,
    )


def _plain(chunks: list[tuple[int, bytes]], encoding: str) -> tuple[tuple[Chunk, ...], str]:
    """The chunks without their content encoding, and what was wrong with it."""
    try:
        inflate = undo(encoding)
        out = [Chunk(after_ns=after, data=inflate.feed(data)) for after, data in chunks]
        if out and (rest := inflate.close()):
            out.append(Chunk(after_ns=out[-1].after_ns, data=rest))
    except UnreadableEncoding as error:
        return (), f"the answer cannot be read: {error}"
    return tuple([chunk for chunk in out if chunk.data]), ""
