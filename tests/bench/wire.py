"""What the recording gateway costs beside a bare aiohttp pass-through, in one run. By hand: `python -m tests.bench.wire`.

Three processes stand before one upstream in turn: none, a pass-through of a few lines, the gateway. Each round asks for streams
of a chat at a steady 200 requests a second and takes the time to the first byte; then as fast as 32 clients can. Rounds are
interleaved; medians are printed, and the difference and ratio to the pass-through.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector, web

from replay.wire.listening import listening, passed_on
from tests.wireworld import spoken, streamed

ROOT = Path(__file__).parents[2]
BODY = {"model": "m-1", "stream": True, "messages": [{"role": "user", "content": "word " * 100}]}
EVENTS = streamed("chat", spoken("chat", 1, "some words of an answer " * 4, None))
ROUNDS, SECONDS, RATE, CLIENTS = 3, 3.0, 200, 32


async def upstream(request: web.Request) -> web.StreamResponse:
    await request.read()
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    for event in EVENTS:
        await answer.write(event)
    await answer.write_eof()
    return answer


class PassThrough:
    """The floor: aiohttp on both sides and nothing in between."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session: ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.session is None:
            self.session = ClientSession(auto_decompress=False, connector=TCPConnector(limit=0))
        data = await request.read()
        headers = [pair for pair in passed_on(request.headers) if pair[0].lower() not in ("host", "content-length")]
        async with self.session.request(request.method, self.base + request.raw_path, data=data, headers=headers) as up:
            answer = web.StreamResponse(status=up.status)
            for name, value in passed_on(up.headers):
                answer.headers.add(name, value)
            await answer.prepare(request)
            while chunk := await up.content.readany():
                await answer.write(chunk)
            await answer.write_eof()
            return answer


async def serve(kind: str, base: str) -> None:
    async with listening(upstream if kind == "upstream" else PassThrough(base).handle) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


@contextlib.contextmanager
def process(*words: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; its first line of output is its address."""
    ran = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert ran.stdout is not None
    address = ran.stdout.readline().split()[0]
    try:
        yield address, ran.pid
    finally:
        ran.send_signal(signal.SIGTERM)
        ran.wait(120)


async def ask(session: ClientSession, url: str) -> float:
    began = time.perf_counter()
    async with session.post(url, json=BODY) as answer:
        await answer.content.readany()
        first = time.perf_counter() - began
        async for _ in answer.content.iter_any():
            pass
    return first * 1000


async def paced(url: str) -> list[float]:
    """First bytes in milliseconds, at a steady rate."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        tasks = []
        began = time.perf_counter()
        for number in range(int(RATE * SECONDS)):
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(session, url)))
        return list(await asyncio.gather(*tasks))


async def flat_out(url: str) -> float:
    """Requests a second of many clients."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        ends, count = time.perf_counter() + SECONDS, 0

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < ends:
                await ask(session, url)
                count += 1

        await asyncio.gather(*[work() for _ in range(CLIENTS)])
    return count / SECONDS


def memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    me = ("-m", "tests.bench.wire")
    with contextlib.ExitStack() as stack:
        base, _ = stack.enter_context(process(*me, "upstream", ""))
        bare, _ = stack.enter_context(process(*me, "bare", base))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = "import sys; from replay.cli import main; main(sys.argv[1:])"
        words = ("-c", command, "gateway", "--listen", "127.0.0.1:0", "--upstream", base, "--traces", folder)
        gateway, pid = stack.enter_context(process(*words, "--idle", "1"))
        gateway = gateway.removesuffix("/openai/v1")
        roads = {"direct": base, "pass-through": bare, "gateway": f"{gateway}/openai"}
        firsts: dict[str, list[float]] = {name: [] for name in roads}
        rates: dict[str, list[float]] = {name: [] for name in roads}
        for _ in range(ROUNDS):
            for name, road in roads.items():
                firsts[name] += asyncio.run(paced(f"{road}/v1/chat/completions"))
                rates[name].append(asyncio.run(flat_out(f"{road}/v1/chat/completions")))
        print(f"{'':14}{'p50 ms':>8}{'p99 ms':>8}{'req/s':>8}")
        for name in roads:
            cuts = statistics.quantiles(firsts[name], n=100)
            print(f"{name:14}{cuts[49]:8.2f}{cuts[98]:8.2f}{statistics.median(rates[name]):8.0f}")
        one, other = (statistics.quantiles(firsts[name], n=100) for name in ("gateway", "pass-through"))
        ratio = statistics.median(rates["gateway"]) / statistics.median(rates["pass-through"])
        print(
            f"beside the pass-through: p50 {one[49] - other[49]:+.2f} ms, p99 {one[98] - other[98]:+.2f} ms, {ratio:.2f} x"
        )
        print(f"memory of the gateway after all: {memory_mb(pid):.0f} MB")
        if "--memory" in sys.argv:
            asyncio.run(many(f"{roads['gateway']}/v1/chat/completions", pid))


async def many(url: str, pid: int) -> None:
    """100,000 requests, and what the gateway holds on the way."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        for part in range(10):
            waiting = asyncio.Semaphore(CLIENTS)

            async def work(waiting: asyncio.Semaphore = waiting) -> None:
                async with waiting:
                    await ask(session, url)

            await asyncio.gather(*[work() for _ in range(10_000)])
            print(f"{(part + 1) * 10_000:,} requests: {memory_mb(pid):.0f} MB", flush=True)


if __name__ == "__main__":
    kinds: dict[str, Any] = {"upstream": serve, "bare": serve}
    if len(sys.argv) > 2 and sys.argv[1] in kinds:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(sys.argv[1], sys.argv[2]))
    else:
        os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        print(json.dumps({"rounds": ROUNDS, "seconds": SECONDS, "rate": RATE, "clients": CLIENTS}))
        main()
