"""Records: hands each request to its upstream and the answer back, unchanged, and tells a scribe what passed."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel.errors import ConfigError
from replay.wire.exchange import KEPT_ANSWER_HEADERS, KEPT_REQUEST_HEADERS, End, kept, reads_brotli
from replay.wire.listening import is_upgrade, no_websocket, passed_on, refusal
from replay.wire.raw import Raw, RawAnswer, RawAsked
from replay.wire.upstreams import Upstream, is_loopback, route

if TYPE_CHECKING:
    from aiohttp import ClientSession, web
    from yarl import URL

MOST_KEPT_BYTES = 64 * 2**20
_CONNECT_S = 30.0


class Gateway:
    """The handler of a recording gateway.

    Args:
        tell: told what passes, in order; must come back at once, whatever the disk does.
        say: told at once what a person should know now, such as an upstream that cannot be reached.
    """

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        tell: Callable[[Raw], None],
        say: Callable[[str], None] = lambda message: None,
        now_ns: Callable[[], int] | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._tell = tell
        self._say = say
        self._numbers = 0
        self._sessions: tuple[ClientSession, ...] = ()
        self.now_ns = now_ns or self.clock()

    @staticmethod
    def clock() -> Callable[[], int]:
        """Wall time that never goes back."""
        offset = time.time_ns() - time.monotonic_ns()
        return lambda: offset + time.monotonic_ns()

    async def __aenter__(self) -> Gateway:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        self._sessions = tuple(
            ClientSession(
                timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),
                connector=TCPConnector(limit=0),
                auto_decompress=False,
                trust_env=by_proxy,
                cookie_jar=DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
            )
            for by_proxy in (False, True)
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        for session in self._sessions:
            await session.close()

    def _session_for(self, url: URL) -> ClientSession:
        """The client that obeys the proxies of the environment, but for upstreams on this machine."""
        if not self._sessions:
            raise ConfigError("the gateway is entered before it handles a request")
        return self._sessions[not is_loopback(url.host or "")]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Hand a request through."""
        if is_upgrade(request.headers):
            self._say(f"{request.path}: a WebSocket was asked for and refused; the client is to use HTTP")
            return no_websocket()
        if not request.raw_path.startswith("/"):
            return refusal(400, "this is a gateway to its own upstreams, no proxy: name a path", "not_a_path")
        raw = await request.read()
        name, target = route(request.raw_path, list(self._upstreams))
        started = self.now_ns()
        self._numbers += 1
        passage = _Passage(self._numbers, started)
        headers = passed_on(request.headers)
        self._tell(
            RawAsked(
                number=self._numbers,
                upstream=name,
                method=request.method,
                target=target,
                headers=kept(headers, KEPT_REQUEST_HEADERS),
                body=raw,
                encoding=request.headers.get("Content-Encoding", ""),
                at_ns=started,
                version=self._upstreams[name].version,
            )
        )
        try:
            return await self._pass(request, self._upstreams[name].url(target), headers, raw, passage)
        finally:
            if not passage.told:
                self._end(passage)

    def _end(self, passage: _Passage) -> None:
        passage.told = True
        self._tell(passage.ended(self.now_ns()))

    async def _pass(
        self, request: web.Request, url: str, headers: list[tuple[str, str]], raw: bytes, passage: _Passage
    ) -> web.StreamResponse:
        from aiohttp import ClientError, web
        from yarl import URL

        sent = [pair for pair in headers if pair[0].lower() not in ("host", "content-length", "accept-encoding")]
        accepted = _accepted(request.headers.get("Accept-Encoding"))
        sent += [("Accept-Encoding", accepted)] if accepted is not None else []
        body = io.BytesIO(raw) if raw or request.can_read_body or "Content-Length" in request.headers else None
        passage.end = "aborted"
        try:
            address = URL(url, encoded=True)
            upstream = await self._session_for(address).request(
                request.method, address, data=body, headers=sent, allow_redirects=False
            )
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            passage.end, passage.detail = "unreachable", f"{type(error).__name__}: {error}"[:500]
            self._say(f"the upstream {url.partition('?')[0]} cannot be reached: {passage.detail}")
            return refusal(502, f"the upstream cannot be reached: {type(error).__name__}", "upstream_unreachable")
        async with upstream:
            passage.began(upstream.status, upstream.reason or "", upstream.headers)
            answer = web.StreamResponse(status=upstream.status, reason=upstream.reason)
            for name, value in passed_on(upstream.headers):
                answer.headers.add(name, value)
            await answer.prepare(request)
            return await self._stream(request, answer, upstream.content, passage)

    async def _stream(
        self, request: web.Request, answer: web.StreamResponse, content: Any, passage: _Passage
    ) -> web.StreamResponse:
        from aiohttp import ClientError

        while True:
            try:
                data = await content.readany()
            except (ClientError, OSError, TimeoutError) as error:
                passage.end, passage.detail = "cut", f"{type(error).__name__}: {error}"[:500]
                if request.transport is not None:
                    request.transport.abort()
                return answer
            if not data:
                break
            passage.chunk(self.now_ns(), data)
            await answer.write(data)
        passage.end = "complete"
        self._end(passage)  # before the client knows that it has all: it may kill us then
        await answer.write_eof()
        return answer


def _accepted(given: str | None) -> str | None:
    """The encodings that a client accepts, less those that nothing here can undo: the recording must be readable."""
    if given is None or reads_brotli():
        return given
    left = [part.strip() for part in given.split(",") if part.split(";")[0].strip().lower() != "br"]
    return ", ".join(left) or "identity"


class _Passage:
    """One exchange while it passes: keeps what is to be told of it, within bounds."""

    def __init__(self, number: int, started_ns: int) -> None:
        self.number, self.started_ns = number, started_ns
        self._status, self._reason, self._encoding = 0, "", ""
        self._headers: dict[str, str] = {}
        self._chunks: list[tuple[int, bytes]] = []
        self._bytes = self._lost = 0
        self.end: End = "aborted"
        self.told = False
        self.detail = ""

    def began(self, status: int, reason: str, headers: Any) -> None:
        self._status, self._reason = status, reason
        self._headers = kept(headers.items(), KEPT_ANSWER_HEADERS)
        self._encoding = headers.get("Content-Encoding", "")

    def chunk(self, at_ns: int, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > MOST_KEPT_BYTES:
            self._lost += len(data)
        else:
            self._chunks.append((at_ns - self.started_ns, data))

    def ended(self, at_ns: int) -> RawAnswer:
        return RawAnswer(
            number=self.number,
            status=self._status,
            reason=self._reason,
            headers=self._headers,
            chunks=self._chunks,
            encoding=self._encoding,
            end=self.end,
            detail=self.detail,
            lost_bytes=self._lost,
            at_ns=at_ns,
        )
