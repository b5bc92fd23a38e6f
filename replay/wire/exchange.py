"""One request and its answer, as they passed on the wire."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol

from msgspec import Struct

from kernel.record import parse_json

End = Literal["complete", "cut", "aborted", "unreachable", "open"]
"""`complete`; `cut`: the upstream broke off; `aborted`: the client hung up; `unreachable`: the upstream gave no answer;
`open`: the recording ends before the answer does."""


class Asked(Struct, frozen=True, kw_only=True):
    """A request. `target` is path and query behind the upstream's own base; `body` is JSON where the bytes are, else
    None and `raw` holds them. `headers` are those that are kept, names in lower case. `version` is the part of `target` that
    the program was told as part of the address."""

    upstream: str
    method: str
    target: str
    headers: dict[str, str] = {}
    body: Any = None
    raw: bytes = b""
    at_ns: int = 0
    version: str = ""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer's body, without content encoding, `after_ns` the request came in."""

    after_ns: int
    data: bytes


class Answer(Struct, frozen=True, kw_only=True):
    """What came back. `lost_bytes` counts what was handed through and is not kept."""

    status: int = 0
    reason: str = ""
    headers: dict[str, str] = {}
    chunks: tuple[Chunk, ...] = ()
    end: End = "open"
    detail: str = ""
    lost_bytes: int = 0
    at_ns: int = 0

    @property
    def body(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def streamed(self) -> bool:
        return "event-stream" in self.headers.get("content-type", "")


class Exchange(Struct, frozen=True, kw_only=True):
    """A request with its answer; `number` counts the exchanges of a recording from 1, in the order they came in.
    `step`, `turn` and `span_id` say where it is in the recording's runs, 0 and "" where it belongs to none."""

    number: int
    asked: Asked
    answer: Answer = Answer()
    step: int = 0
    turn: int = 1
    span_id: str = ""


KEPT_REQUEST_HEADERS = ("content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta", "user-agent")
"""All other headers of a request are handed through and never written: they hold keys, cookies and what a client is."""

KEPT_ANSWER_HEADERS = (
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "request-id",
    "openai-processing-ms",
    "openai-version",
)


def kept(headers: Iterable[tuple[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """The headers that may be written, by lower-case name."""
    return {name.lower(): value for name, value in headers if name.lower() in names}


def json_or_raw(data: bytes) -> tuple[Any, bytes]:
    """A body as JSON value and no bytes, or None and the bytes."""
    if not data:
        return None, b""
    try:
        return parse_json(data), b""
    except ValueError:
        return None, data


class Undone(Protocol):
    def feed(self, data: bytes) -> bytes: ...
    def close(self) -> bytes: ...


class UnreadableEncoding(ValueError):
    """A content encoding that cannot be undone here, or bytes that are not in it."""


class _Plain:
    def feed(self, data: bytes) -> bytes:
        return data

    def close(self) -> bytes:
        return b""


class _Zlib:
    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(31 if encoding == "gzip" else 15)
        self._raw_allowed = encoding == "deflate"

    def feed(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data)
        except zlib.error as error:
            if not self._raw_allowed:
                raise UnreadableEncoding(str(error)) from None
        self._raw_allowed = False
        self._inflate = zlib.decompressobj(-15)  # servers do send deflate without the zlib wrapper
        return self.feed(data)

    def close(self) -> bytes:
        return self._inflate.flush()


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._inflate = zstandard.ZstdDecompressor().decompressobj()

    def feed(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data)
        except self._error as error:
            raise UnreadableEncoding(str(error)) from None

    def close(self) -> bytes:
        return b""


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._error = brotli.error
        self._inflate = brotli.Decompressor()

    def feed(self, data: bytes) -> bytes:
        try:
            return bytes(self._inflate.process(data))
        except self._error as error:
            raise UnreadableEncoding(str(error)) from None

    def close(self) -> bytes:
        return b""


def undo(encoding: str) -> Undone:
    """What undoes a `content-encoding` piece by piece. Raises `UnreadableEncoding` where nothing here can."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip", "deflate"):
        return _Zlib("gzip" if "gzip" in name else "deflate")
    if name == "zstd":
        return _Zstd()
    if name == "br" and reads_brotli():
        return _Brotli()
    raise UnreadableEncoding(f"content-encoding {name!r:.40} cannot be undone here")


def reads_brotli() -> bool:
    """Whether the optional package `brotli` is there."""
    from importlib.util import find_spec

    return find_spec("brotli") is not None


def undone(data: bytes, encoding: str) -> bytes:
    """A whole body without its content encoding. Raises `UnreadableEncoding`."""
    inflate = undo(encoding)
    return inflate.feed(data) + inflate.close()


def text_of(data: bytes) -> Any:
    """Bytes as JSON can hold them, exactly: text where they are UTF-8, else base64 in an object."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: Any) -> bytes:
    """The inverse of `text_of`. Raises `ValueError`."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from None
    raise ValueError(f"neither text nor base64: {value!r:.60}")


def in_order(exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
    """By number, which is the order in which the requests came in."""
    yield from sorted(exchanges, key=lambda exchange: exchange.number)
