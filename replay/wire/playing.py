"""Replays: the handler that gives a player's answers. It has no client: nothing it does can reach an upstream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel.record import compact_json
from replay.wire.exchange import (
    KEPT_REQUEST_HEADERS,
    Answer,
    Asked,
    UnreadableEncoding,
    json_or_raw,
    kept,
    undone,
)
from replay.wire.listening import is_upgrade, no_websocket, passed_on, refusal
from replay.wire.outcome import account_document
from replay.wire.player import Player, Refused
from replay.wire.upstreams import route

if TYPE_CHECKING:
    from aiohttp import web

_UNREACHABLE = "the upstream cannot be reached: so it was when this was recorded"


class Players:
    """The handler for one recording, or for several, each below a path of its own (`/NAME/…`)."""

    def __init__(self, players: Mapping[str, Player]) -> None:
        self._players = players

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request from the recording that it is for."""
        from aiohttp import web

        name, target = self._chosen(request.raw_path)
        if request.method == "GET" and target.partition("?")[0] == "/verdict":
            return web.Response(body=self._verdicts(name), content_type="application/json")
        if name is None:
            known = ", ".join(f"/{one}/" for one in self._players)
            return refusal(400, f"{request.path}: no recording is served here; served are {known}", "replay_unknown")
        if is_upgrade(request.headers):
            return no_websocket()
        return await self._answer(request, self._players[name], target)

    def _chosen(self, target: str) -> tuple[str | None, str]:
        head, _, rest = target.removeprefix("/").partition("/")
        if head in self._players:
            return head, f"/{rest}"
        if "" in self._players:
            return "", target
        return None, target

    def _verdicts(self, name: str | None) -> bytes:
        chosen = self._players if name in (None, "") else {name: self._players[name or ""]}
        documents = [account_document(player.book, player.account()) for player in chosen.values()]
        return compact_json({"traces": documents}).encode()

    async def _answer(self, request: web.Request, player: Player, target: str) -> web.StreamResponse:
        raw = await request.read()
        names = list(dict.fromkeys(exchange.asked.upstream for exchange in player.book.exchanges))
        upstream, rest = route(target, [*names, *(n for n in ("openai", "anthropic", "gemini") if n not in names)])
        encoding = request.headers.get("Content-Encoding", "")
        try:
            body, left = json_or_raw(undone(raw, encoding))
        except UnreadableEncoding:
            body, left = None, raw
        headers = kept(passed_on(request.headers), KEPT_REQUEST_HEADERS)
        asked = Asked(upstream=upstream, method=request.method, target=rest, headers=headers, body=body, raw=left)
        found = player.ask(asked)
        if isinstance(found, Refused):
            return refusal(400, found.message, "replay_divergence")
        return await _play(request, found.exchange.answer)


async def _play(request: web.Request, answer: Answer) -> web.StreamResponse:
    """Give a recorded answer: its status, its chunks in order; what was cut is cut again. No waiting."""
    from aiohttp import web

    if answer.end == "unreachable":
        return refusal(502, _UNREACHABLE, "upstream_unreachable")
    if not answer.status:
        return _broken(request, web.StreamResponse())
    response = web.StreamResponse(status=answer.status, reason=answer.reason or None)
    for name, value in _headers(answer):
        response.headers[name] = value
    if answer.end == "complete" and not answer.streamed:
        response.content_length = len(answer.body)
    await response.prepare(request)
    for chunk in answer.chunks:
        await response.write(chunk.data)
    if answer.end != "complete":
        return _broken(request, response)
    await response.write_eof()
    return response


def _headers(answer: Answer) -> list[tuple[str, str]]:
    """The recorded headers; what asked a client to wait asks it not to."""
    out: list[tuple[str, str]] = []
    for name, value in answer.headers.items():
        out.append((name, "0" if name == "retry-after" else "1" if name == "retry-after-ms" else value))
    if "retry-after" in answer.headers and "retry-after-ms" not in answer.headers:
        out.append(("retry-after-ms", "1"))
    return out


def _broken(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response
