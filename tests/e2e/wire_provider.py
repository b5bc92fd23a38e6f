"""A model server for tests at the wire: every dialect, streamed or not, and every way in which an upstream can be bad."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests.wireworld import brain, heard, spoken, streamed


class Provider:
    """Counts what reaches it. `plan` holds what to do with the next requests, by number from 1: `429`, `500`, `cut`,
    `slow`, `gzip`, `garbage`."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.plan: dict[int, str] = {}
        self.rounds = 2
        self.url = ""

    @property
    def count(self) -> int:
        return len(self.requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.requests.append(
            {"method": request.method, "target": request.raw_path, "headers": dict(request.headers), "raw": raw}
        )
        number = len(self.requests)
        how = self.plan.get(number, "")
        if how == "429":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "7"})
        if how == "500":
            return web.json_response({"error": {"message": "broken"}}, status=500)
        if how == "garbage":
            return web.Response(body=b"\xff\xfenot json", content_type="application/json")
        if how == "hang up":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": f"m-{number}"}]})
        if request.path.endswith("/embeddings"):
            return web.json_response({"object": "list", "data": [{"embedding": [0.5, number]}]})
        dialect, stream = self._dialect(request.path)
        if request.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        body = json.loads(raw)
        reply = spoken(dialect, number, *brain(*heard(dialect, body), rounds=self.rounds))
        if stream or body.get("stream"):
            return await self._stream(request, streamed(dialect, reply), how)
        data = json.dumps(reply).encode()
        if how == "gzip":
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            return web.Response(body=gzip.compress(data), headers=headers)
        return web.Response(body=data, content_type="application/json")

    def _dialect(self, path: str) -> tuple[str, bool]:
        if path.endswith("/chat/completions"):
            return "chat", False
        if path.endswith("/responses"):
            return "responses", False
        if path.endswith("/messages"):
            return "anthropic", False
        return "gemini", path.endswith(":streamGenerateContent")

    async def _stream(self, request: web.Request, events: list[bytes], how: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for at, event in enumerate(events):
            if how == "cut" and at == len(events) // 2:
                assert request.transport is not None
                request.transport.close()
                return answer
            await answer.write(event)
        await answer.write_eof()
        return answer


@contextlib.contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider in a thread of its own, on a free port of loopback."""
    provider, started, loop = Provider(), threading.Event(), asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", provider.handle)
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(20), "the provider did not start"
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
