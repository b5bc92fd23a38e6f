"""The gateway hands everything through as it comes, whatever client, upstream or disk do, and it stays up."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from fixtures.record import CountingIds
from kernel import Masker, Tracing
from replay.wire.background import Background
from replay.wire.exchange import Answer, Asked
from replay.wire.gateway import Gateway
from replay.wire.listening import listening
from replay.wire.player import Player
from replay.wire.playing import Players
from replay.wire.raw import Raw, deliver, size_of
from replay.wire.scribe import Scribe
from replay.wire.stored import Book, load_book
from replay.wire.upstreams import parse_upstreams
from tests.wirelab import recorded
from tests.wireworld import agent, brain, heard, spoken, streamed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY: dict[str, Any] = {"model": "m-1", "messages": [{"role": "user", "content": "why?"}]}


class Lab:
    """A gateway before an upstream, and what it recorded when it is over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = self.base = ""
        self.said: list[str] = []

    @property
    def book(self) -> Book:
        return load_book(self.path)


@asynccontextmanager
async def gateway(path: Path, upstream: Handler | str, witness: Any = None) -> AsyncIterator[Lab]:
    """Run a gateway before an upstream: a handler, or an address."""
    lab, background = Lab(path), Background()
    scribe = None
    if witness is None:
        tracing = Tracing(file=path, masker=Masker.default())
        witness = scribe = Scribe(tracing, CountingIds("gateway"), "lab", Gateway.clock())
    async with _listening(upstream) as address:

        def tell(raw: Raw) -> None:
            background.put(lambda: deliver(raw, witness), size_of(raw))

        one = Gateway(parse_upstreams([address], {}), tell, lab.said.append)
        async with one, listening(one.handle) as url:
            lab.url, lab.base = url, f"{url}/openai/v1"
            yield lab
    if scribe is not None:
        background.put(scribe.close)
    assert await asyncio.to_thread(background.close, 60)
    lab.said += background.told()


@asynccontextmanager
async def _listening(upstream: Handler | str) -> AsyncIterator[str]:
    if isinstance(upstream, str):
        yield upstream
        return
    async with listening(upstream) as url:
        yield url


async def model(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    reply = spoken("chat", 1, *brain(*heard("chat", body), rounds=0))
    if not body.get("stream"):
        return web.json_response(reply)
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    for event in streamed("chat", reply):
        await answer.write(event)
    await answer.write_eof()
    return answer


async def post(url: str, body: Any = BODY, **more: Any) -> tuple[int, bytes]:
    async with ClientSession() as session, session.post(url, json=body, **more) as answer:
        return answer.status, await answer.read()


async def raw(url: str, data: bytes, *, half: bool = False) -> bytes:
    """Send bytes as they are; what came back, or b"" where nothing did."""
    host, port = url.removeprefix("http://").split("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        await writer.drain()
        if half:
            return b""
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_chunk_is_there_before_the_next_one_is_sent(tmp_path: Path) -> None:
    """The upstream sends its next event only when the client has the one before: a gateway that waits would hang here."""

    async def main() -> None:
        seen = asyncio.Semaphore(0)
        events = streamed("chat", spoken("chat", 1, "one two three", None))

        async def upstream(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await answer.prepare(request)
            for event in events:
                await answer.write(event)
                await asyncio.wait_for(seen.acquire(), 20)
            await answer.write_eof()
            return answer

        async with gateway(tmp_path / "r.trace.json", upstream) as lab:
            async with ClientSession() as session, session.post(f"{lab.base}/chat/completions", json=BODY) as answer:
                got = []
                async for data, _ in answer.content.iter_chunks():
                    got += [data] if data else []
                    seen.release()
            assert got == events
        assert [chunk.data for chunk in lab.book.exchanges[0].answer.chunks] == events

    asyncio.run(main())


def test_a_witness_that_never_comes_back_delays_no_call(tmp_path: Path) -> None:
    released = threading.Event()
    told: list[int] = []

    class Stuck:
        def asked(self, number: int, asked: Asked) -> None:
            released.wait(60)
            told.append(number)

        def answered(self, number: int, answer: Answer) -> None: ...

    async def main() -> None:
        async with gateway(tmp_path / "r.trace.json", model, Stuck()) as lab:
            for _ in range(5):
                assert (await post(f"{lab.base}/chat/completions"))[0] == 200
            assert told == []
            released.set()

    asyncio.run(main())
    assert told == [1, 2, 3, 4, 5]


def test_a_witness_that_fails_fails_no_call_and_is_told(tmp_path: Path) -> None:
    class Broken:
        def asked(self, number: int, asked: Asked) -> None:
            raise OSError(28, "No space left on device")

        def answered(self, number: int, answer: Answer) -> None: ...

    async def main() -> list[str]:
        async with gateway(tmp_path / "r.trace.json", model, Broken()) as lab:
            assert (await post(f"{lab.base}/chat/completions"))[0] == 200
        return lab.said

    assert "No space left on device" in asyncio.run(main())[-1]


def test_what_waits_is_bounded() -> None:
    background = Background(most_bytes=10)
    hold = threading.Event()
    assert background.put(lambda: hold.wait(60) and None, 8)
    assert not background.put(lambda: None, 8)
    hold.set()
    assert background.close(60)
    assert "1 requests or answers were handed through and not recorded" in background.told()[0]


def test_hostile_clients_leave_the_gateway_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path / "r.trace.json", model) as lab:
            for data in (
                b"\x00\xff\xfe garbage\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 300_000 + b"\r\n\r\n",
                b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            ):
                assert not (await raw(lab.url, data)).startswith(b"HTTP/1.1 200")
            await raw(lab.url, b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", half=True)
            for _ in range(20):
                head = b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
                await raw(lab.url, head, half=True)
            assert (await post(f"{lab.base}/chat/completions"))[0] == 200
        assert [e.answer.status for e in lab.book.exchanges if e.answer.status][-1] == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "end"),
    [
        (b"this is no HTTP\r\n\r\n", "unreachable"),
        (b"", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "unreachable"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 300_000 + b"\r\n\r\n", "unreachable"),
    ],
)
def test_hostile_upstreams_leave_the_gateway_up_and_come_again(sent: bytes, end: str, tmp_path: Path) -> None:
    """What a bad upstream does reaches the client, and a replay does the same to it."""

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def outcome(url: str) -> str:
        try:
            status, body = await post(url)
        except Exception as error:
            return type(error).__name__
        return f"{status} {len(body)}"

    async def main() -> None:
        server = await asyncio.start_server(bad, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, gateway(tmp_path / "r.trace.json", address) as lab:
            first = await outcome(f"{lab.base}/chat/completions")
            assert not first.startswith("200")
        book = lab.book
        assert [e.answer.end for e in book.exchanges] == [end]
        async with listening(Players({"": Player(book)}).handle) as url:
            again = await outcome(f"{url}/openai/v1/chat/completions")
        assert again.split()[0] == first.split()[0]

    asyncio.run(main())


def test_a_client_that_hangs_up_ends_the_upstream_too(tmp_path: Path) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def endless(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await answer.prepare(request)
            try:
                while True:
                    await answer.write(b"data: {}\n\n")
                    await asyncio.sleep(0)
            finally:
                gone.set()

        async with gateway(tmp_path / "r.trace.json", endless) as lab:
            async with ClientSession() as session:
                answer = await session.post(f"{lab.base}/chat/completions", json=BODY)
                assert await answer.content.readany()
                answer.close()
            await asyncio.wait_for(gone.wait(), 20)
        assert [e.answer.end for e in lab.book.exchanges] == ["aborted"]

    asyncio.run(main())


def test_eight_megabytes_pass_both_ways_unchanged(tmp_path: Path) -> None:
    async def main() -> None:
        big = "x" * 8_000_000
        sizes: list[int] = []

        async def echo(request: web.Request) -> web.StreamResponse:
            data = await request.read()
            sizes.append(len(data))
            return web.Response(body=data, content_type="application/json")

        async with gateway(tmp_path / "r.trace.json", echo) as lab:
            data = json.dumps({"model": "m-1", "input": big}).encode()
            async with (
                ClientSession() as session,
                session.post(f"{lab.base}/embeddings", data=io.BytesIO(data)) as answer,
            ):
                assert await answer.read() == data
        assert sizes == [len(data)]
        book = lab.book
        assert book.exchanges[0].asked.body["input"] == big
        assert book.exchanges[0].answer.body == data

    asyncio.run(main())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_answer_passes_as_it_is_and_is_read(encoding: str, tmp_path: Path) -> None:
    import zlib

    import zstandard

    reply = json.dumps(spoken("chat", 1, "words", None)).encode()
    packers = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.ZstdCompressor().compress}
    packed = packers[encoding](reply)

    async def main() -> None:
        accepted: list[str] = []

        async def upstream(request: web.Request) -> web.StreamResponse:
            accepted.append(request.headers["Accept-Encoding"])
            headers = {"content-encoding": encoding, "content-type": "application/json"}
            return web.Response(body=packed, headers=headers)

        async with (
            gateway(tmp_path / "r.trace.json", upstream) as lab,
            ClientSession(auto_decompress=False) as session,
            session.post(f"{lab.base}/chat/completions", json=BODY, headers={"accept-encoding": encoding}) as answer,
        ):
            assert answer.headers["content-encoding"] == encoding
            assert await answer.read() == packed
        assert accepted == [encoding]
        book = lab.book
        assert book.exchanges[0].answer.body == reply
        assert book.recording is not None
        assert book.recording.runs[0].run.end is not None
        assert book.recording.runs[0].run.end.answer == "words"

    asyncio.run(main())


def test_an_answer_that_lies_about_its_encoding_passes_and_is_said_to_be_unreadable(tmp_path: Path) -> None:
    async def main() -> None:
        async def upstream(request: web.Request) -> web.StreamResponse:
            return web.Response(body=b"no gzip at all", headers={"content-encoding": "gzip"})

        async with (
            gateway(tmp_path / "r.trace.json", upstream) as lab,
            ClientSession(auto_decompress=False) as session,
            session.post(f"{lab.base}/chat/completions", json=BODY) as answer,
        ):
            assert await answer.read() == b"no gzip at all"
        assert "cannot be read" in lab.book.exchanges[0].answer.detail

    asyncio.run(main())


def test_a_websocket_is_answered_so_that_the_client_falls_back(tmp_path: Path) -> None:
    head = (
        b"GET /openai/v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )

    async def main() -> None:
        async with gateway(tmp_path / "r.trace.json", model) as lab:
            assert (await raw(lab.url, head)).startswith(b"HTTP/1.1 426 ")
            await post(f"{lab.base}/chat/completions")
        assert len(lab.book.exchanges) == 1
        async with listening(Players({"": Player(lab.book)}).handle) as url:
            assert (await raw(url, head)).startswith(b"HTTP/1.1 426 ")

    asyncio.run(main())


SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def test_a_secret_is_in_nothing_that_is_written(tmp_path: Path) -> None:
    """In headers, query, body and a reply that spells it out over many events; and the recording still replays."""

    async def main() -> None:
        async def leaks(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"content-type": "text/event-stream", "set-cookie": f"s={SECRET}"})
            await answer.prepare(request)
            for event in streamed("chat", spoken("chat", 1, f"The key is {SECRET}, keep it.", None)):
                await answer.write(event)
            await answer.write_eof()
            return answer

        body = {"model": "m-1", "stream": True, "messages": [{"role": "user", "content": f"key {SECRET}"}]}
        headers = {"authorization": f"Bearer {SECRET}", "x-api-key": SECRET, "user-agent": f"agent {SECRET}"}
        async with gateway(tmp_path / "r.trace.json", leaks) as lab:
            path = f"chat/completions?key={SECRET}&api-version=3"
            status, got = await post(f"{lab.base}/{path}", body, headers=headers)
            assert status == 200
        text = lab.path.read_text()
        assert SECRET not in text
        assert SECRET[8:20] not in text
        book = lab.book
        assert book.recording is not None
        end = book.recording.runs[0].run.end
        assert end is not None
        assert (end.answer or "").startswith("The key is ")
        assert (end.answer or "").endswith(", keep it.")
        assert b"".join(chunk.data for chunk in book.exchanges[0].answer.chunks).count(b"data: ") == got.count(
            b"data: "
        )
        player = Player(book, masker=Masker.default())
        async with listening(Players({"": player}).handle) as url:
            assert (await post(f"{url}/openai/v1/{path}", body))[0] == 200
        assert player.account().verdict == "same"

    asyncio.run(main())


def test_refusals_are_not_tried_again_and_the_verdict_is_served(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])

    async def main() -> None:
        async with listening(Players({"": Player(book)}).handle) as url, ClientSession() as session:
            async with session.post(f"{url}/openai/v1/chat/completions", json=BODY) as answer:
                assert (answer.status, answer.headers["x-should-retry"]) == (400, "false")
                assert "replay diverged" in (await answer.json())["error"]["message"]
            async with session.get(f"{url}/verdict") as answer:
                [document] = (await answer.json())["traces"]
        assert (document["verdict"], document["refused"]) == ("diverged", 1)

    asyncio.run(main())


def test_several_recordings_are_served_side_by_side(tmp_path: Path) -> None:
    books = {
        name: recorded(tmp_path / f"{name}.trace.json", [("chat", agent("chat", name))]) for name in ("one", "two")
    }

    async def main() -> None:
        players = {name: Player(book) for name, book in books.items()}
        async with listening(Players(players).handle) as url, ClientSession() as session:
            for name, book in books.items():
                body = book.exchanges[0].asked.body
                assert (await post(f"{url}/{name}/openai/v1/chat/completions", body))[0] == 200
            assert (await post(f"{url}/openai/v1/chat/completions", body))[0] == 400
            async with session.get(f"{url}/two/verdict") as answer:
                assert [one["served"]["model"] for one in (await answer.json())["traces"]] == [1]
            async with session.get(f"{url}/verdict") as answer:
                assert len((await answer.json())["traces"]) == 2

    asyncio.run(main())
