"""The one place that listens: an HTTP server on loopback whose every request goes to one handler, bodies untouched."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kernel.errors import ConfigError
from kernel.record import compact_json

if TYPE_CHECKING:
    from aiohttp import web

Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]

MOST_BODY_BYTES = 512 * 2**20
_MOST_HEADER_BYTES = 64 * 1024
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@asynccontextmanager
async def listening(handler: Handler, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """A server for as long as the block runs; gives its URL. Raises `ConfigError` where it cannot listen."""
    from aiohttp import web

    app = web.Application(client_max_size=MOST_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_quiet(),
        auto_decompress=False,
        handler_cancellation=True,
        shutdown_timeout=1.0,
        max_line_size=_MOST_HEADER_BYTES,
        max_field_size=_MOST_HEADER_BYTES,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield f"http://{shown}:{bound[1]}"
    finally:
        await runner.cleanup()


def _quiet() -> logging.Logger:
    """A logger that says nothing: what a client sends is no news to whoever runs a gateway."""
    logger = logging.getLogger("tracefirst-wire")
    logger.disabled = True
    return logger


def passed_on(headers: Any) -> list[tuple[str, str]]:
    """The headers of a message that go on to the other side: all but those of this connection."""
    named = {name.strip().lower() for value in headers.getall("Connection", ()) for name in value.split(",")}
    return [(name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP | named]


def is_upgrade(headers: Any) -> bool:
    """Whether a client asks for a WebSocket."""
    return "websocket" in str(headers.get("Upgrade", "")).lower()


def refusal(status: int, message: str, code: str) -> web.Response:
    """An answer that clients do not try again, in the shape in which model servers put errors."""
    from aiohttp import web

    body = {"type": "error", "error": {"type": "invalid_request_error", "code": code, "message": message}}
    headers = {"x-should-retry": "false", "content-type": "application/json"}
    return web.Response(status=status, body=compact_json(body).encode(), headers=headers)


def no_websocket() -> web.Response:
    """The answer to a WebSocket upgrade: clients that try one first then send the request by HTTP."""
    return refusal(426, "this gateway speaks HTTP only: send the request with POST", "upgrade_not_supported")
