"""Exchanges in the trace: one span each, whole, with what the request repeats of an earlier one stored once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import compact_json
from kernel.trace import Problem, Reader, Span, finish_span, semconv as sc
from replay.play import Recording, own_recording
from replay.readers import RawTrace, read_traces
from replay.wire.dialects import dialect_of
from replay.wire.exchange import Answer, Asked, Chunk, Exchange, bytes_of, in_order, text_of
from replay.wire.upstreams import Upstream


class Base(Struct, frozen=True, kw_only=True):
    """An earlier request that a later one repeats."""

    number: int
    body: Any


def asked_attributes(number: int, asked: Asked, base: Base | None) -> dict[str, Any]:
    """Attributes of an exchange's span at its start."""
    told: dict[str, Any] = {"upstream": asked.upstream, "method": asked.method, "target": asked.target}
    if asked.version:
        told["version"] = asked.version
    if asked.headers:
        told["headers"] = asked.headers
    if asked.raw:
        told["raw"] = text_of(asked.raw)
    elif asked.body is not None:
        told |= _folded(asked, base)
    return {sc.WIRE_EXCHANGE: number, sc.WIRE_REQUEST: compact_json(told)}


def _folded(asked: Asked, base: Base | None) -> dict[str, Any]:
    dialect = dialect_of(asked.method, asked.path)
    body = asked.body
    if base is None or dialect is None or not isinstance(body, dict) or not isinstance(base.body, dict):
        return {"body": body}
    mine, theirs = body.get(dialect.history), base.body.get(dialect.history)
    kept = 0
    if isinstance(mine, list) and isinstance(theirs, list):
        while kept < min(len(mine), len(theirs)) and _same(mine[kept], theirs[kept]):
            kept += 1
    same = [name for name in dialect.heads if name in body and name in base.body and _same(body[name], base.body[name])]
    if not kept and not same:
        return {"body": body}
    rest = {name: value for name, value in body.items() if name not in same}
    if kept and isinstance(mine, list):
        rest[dialect.history] = mine[kept:]
    return {"like": base.number, "kept": kept, "same": same, "body": rest}


def _same(one: Any, other: Any) -> bool:
    return one is other or (one == other and compact_json(one) == compact_json(other))


def finish_exchange(span: Span, asked: Asked, answer: Answer) -> None:
    """End an exchange's span: with its answer under the seal, and beside it what a viewer searches by."""
    span.end_ns = answer.at_ns
    failed = answer.end != "complete" or answer.status >= 400
    finish_span(span, _answer_attributes(answer), failed=failed)
    span.attributes[sc.HTTP_METHOD], span.attributes[sc.URL_PATH] = asked.method, asked.path
    if answer.status:
        span.attributes[sc.HTTP_STATUS] = answer.status


def _answer_attributes(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = {"status": answer.status, "end": answer.end}
    for name in ("reason", "headers", "detail", "lost_bytes"):
        if value := getattr(answer, name):
            told[name] = value
    told["chunks"] = [[chunk.after_ns, text_of(chunk.data)] for chunk in answer.chunks]
    out: dict[str, Any] = {sc.WIRE_ANSWER: compact_json(told)}
    if answer.end != "complete" or answer.status >= 400:
        out[sc.ERROR_TYPE] = str(answer.status) if answer.end == "complete" else answer.end
        out[sc.FLAGGED] = True
    return out


class Book(Struct, frozen=True, kw_only=True):
    """A recording at the wire: all exchanges in order, and the runs that were made of them. `problems` say what of the
    file is not as it was recorded."""

    file: str
    trace_id: str
    exchanges: tuple[Exchange, ...]
    recording: Recording | None
    problems: tuple[Problem, ...] = ()

    @property
    def agent(self) -> str:
        return self.recording.agent if self.recording is not None else ""

    @property
    def recorded_ns(self) -> int:
        return min((exchange.asked.at_ns for exchange in self.exchanges), default=0)


def book_upstreams(book: Book) -> dict[str, Upstream]:
    """The upstreams that a recording's program asked, with the part of their addresses that the program was told."""
    asked = {exchange.asked.upstream: exchange.asked for exchange in reversed(book.exchanges)}
    return {name: Upstream(name=name, base="", version=one.version) for name, one in asked.items()}


def load_book(path: Path | str, trace_id: str | None = None) -> Book:
    """Read a recording that was made at the wire, or the journal of one.

    Raises:
        TraceError: the file is no trace, holds several and none was chosen, or was not recorded at the wire.
    """
    file = str(path)
    traces = [t for t in read_traces(Path(path)).traces if trace_id is None or t.trace_id.startswith(trace_id.lower())]
    wired = [trace for trace in traces if any(sc.WIRE_EXCHANGE in span.attributes for span in trace.spans)]
    if not wired:
        remedy = "Record the program with `replay record -o FILE -- COMMAND`, or replay the file without a command."
        raise TraceError(f"{file}: holds no exchange recorded at the wire. {remedy}", file=file)
    if len(wired) > 1:
        ids = ", ".join(trace.trace_id for trace in wired[:5])
        raise TraceError(f"{file}: holds {len(wired)} recordings; choose one with --trace ID: {ids}", file=file)
    return _book(wired[0], file)


def _book(trace: RawTrace, file: str) -> Book:
    problems: list[Problem] = []
    spans = {span.span_id: span for span in trace.spans}
    turns = _turns(trace.spans)
    bodies: dict[int, Any] = {}
    found: list[Exchange] = []
    for span in sorted((s for s in trace.spans if sc.WIRE_EXCHANGE in s.attributes), key=_number):
        read = Reader(problems, span, 0)
        if span.end_ns is not None:
            read.sealed()
        exchange = _exchange(span, read, bodies)
        found.append(_placed(exchange, span, spans, turns))
    recording = own_recording(trace, file) if turns else None
    return Book(
        file=file,
        trace_id=trace.trace_id,
        exchanges=tuple(in_order(found)),
        recording=recording,
        problems=tuple(problems),
    )


def _number(span: Span) -> int:
    number = span.attributes[sc.WIRE_EXCHANGE]
    return number if isinstance(number, int) else 0


def _turns(spans: Sequence[Span]) -> dict[str, int]:
    """The number of each run, by the id of its span, in the order in which a recording has them."""
    roots = [span for span in spans if span.attributes.get(sc.RUN_ID) is not None]
    roots.sort(key=lambda span: (_turn(span), span.start_ns, span.span_id))
    return {span.span_id: number for number, span in enumerate(roots, 1)}


def _turn(span: Span) -> int:
    turn = span.attributes.get(sc.TURN)
    return turn if isinstance(turn, int) else 1


def _placed(exchange: Exchange, span: Span, spans: Mapping[str, Span], turns: Mapping[str, int]) -> Exchange:
    chat = spans.get(span.parent_id or "")
    if chat is None or not isinstance(step := chat.attributes.get(sc.STEP_INDEX), int):
        return msgspec.structs.replace(exchange, span_id=span.span_id)
    above: Span | None = chat
    for _ in range(len(spans)):
        if above is None or above.span_id in turns:
            break
        above = spans.get(above.parent_id or "")
    turn = turns.get(above.span_id, 1) if above is not None else 1
    return msgspec.structs.replace(exchange, step=step, turn=turn, span_id=chat.span_id)


def _exchange(span: Span, read: Reader, bodies: dict[int, Any]) -> Exchange:
    number = _number(span)
    told: dict[str, Any] = read.json(sc.WIRE_REQUEST, None, {}, _object)
    body = bodies[number] = _unfolded(told, number, bodies, read)
    try:
        asked = _asked(told, body, span.start_ns)
    except (ValueError, TypeError, AttributeError) as error:
        read.problem("unreadable", sc.WIRE_REQUEST, f"cannot be read: {error}")
        asked = Asked(upstream="", method="", target="")
    if span.end_ns is None or sc.WIRE_ANSWER not in span.attributes:
        return Exchange(number=number, asked=asked)
    return Exchange(number=number, asked=asked, answer=read.json(sc.WIRE_ANSWER, None, Answer(), _answer))


def _asked(told: dict[str, Any], body: Any, at_ns: int) -> Asked:
    return Asked(
        upstream=str(told.get("upstream", "")),
        method=str(told.get("method", "")),
        target=str(told.get("target", "")),
        headers={str(name): str(value) for name, value in (told.get("headers") or {}).items()},
        body=body,
        raw=bytes_of(told["raw"]) if "raw" in told else b"",
        at_ns=at_ns,
        version=str(told.get("version", "")),
    )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _answer(value: Any) -> Answer:
    told = dict(value)
    chunks = tuple([Chunk(after_ns=int(after), data=bytes_of(data)) for after, data in told.pop("chunks", ())])
    return msgspec.structs.replace(msgspec.convert(told, Answer), chunks=chunks)


def _unfolded(told: dict[str, Any], number: int, bodies: Mapping[int, Any], read: Reader) -> Any:
    body = told.get("body")
    if "like" not in told:
        return body
    like, kept, same = told["like"], told.get("kept", 0), told.get("same", [])
    base = bodies.get(like) if isinstance(like, int) else None
    dialect = dialect_of(str(told.get("method")), str(told.get("target")).partition("?")[0])
    if not isinstance(base, dict) or dialect is None or not isinstance(body, dict) or not isinstance(same, list):
        message = f"exchange {number} repeats exchange {like}, which is not here"
        read.problem("missing", sc.WIRE_REQUEST, message)
        return body
    whole = {name: base[name] for name in same if isinstance(name, str) and name in base} | body
    if isinstance(kept, int) and kept:
        parts = [one.get(dialect.history) for one in (base, body)]
        before, new = (part if isinstance(part, list) else [] for part in parts)
        whole[dialect.history] = [*before[:kept], *new]
    return whole
