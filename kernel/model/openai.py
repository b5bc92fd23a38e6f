"""The client of OpenAI-compatible servers: the only module that opens sockets to models.

    complete
    ├── openai_request.encode_request   Request → JSON body
    ├── one POST, never repeated        the retry rule is the loop's
    ├── sse.StreamedCompletion          where the answer is a stream
    └── openai_reply.decode_reply       JSON body → Reply

Every failure of an attempt is a `ModelError` without cause and context, so that no header, hence no key, hangs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakKeyDictionary

from kernel.ambient import current_parent, outgoing_headers
from kernel.errors import ConfigError, ModelError
from kernel.model.endpoint import Endpoint, kind_of, place, retry_after_s
from kernel.model.openai_reply import Malformed, decode_reply, failed_generation, parse_body, provider_error
from kernel.model.openai_request import encode_request
from kernel.model.sse import CutStream, StreamedCompletion
from kernel.record import ModelParams, Reply, Request, check_kind, check_number, checked_settings, compact_json, merged

if TYPE_CHECKING:
    import aiohttp

_MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BODY_BYTES = 1024 * 1024
_OPENAI_HOST = "api.openai.com"


@dataclass(slots=True)
class _Kept:
    """The session of one event loop while the model is entered there."""

    users: int = 0
    session: aiohttp.ClientSession | None = None


class OpenAIModel:
    """A model behind `POST {base_url}/chat/completions`.

    `async with model:` keeps connections open between calls. Without it each call opens and closes its own, and nothing
    is left to close. May be shared between event loops and threads.

    Args:
        base_url: with the version path, such as `https://api.openai.com/v1`; a query is kept.
        api_key: sent as a bearer token; `None` for servers without one, or with one in `headers`.
        protocol: what the loop speaks with this model: `tools` (function calling) or `text`.
        stream: ask for server-sent events. The reply is the same.
        timeout_s: for the whole attempt, from name resolution to the last byte.
        connect_timeout_s: for the connection, TLS included.
        params: for what a request's own parameters leave open.
        max_tokens_field: the name `max_output_tokens` is sent by. By default `max_completion_tokens` to OpenAI itself,
            whose newer models take no other, and `max_tokens`, which compatible servers know, to the rest.

    Raises:
        ConfigError: a URL, key or header that cannot work.
    """

    provider: Literal["openai"] = "openai"

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key: str | None = None,
        protocol: Literal["tools", "text"] = "tools",
        stream: bool = False,
        timeout_s: float = 120.0,
        connect_timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
        params: ModelParams | None = None,
        max_tokens_field: str | None = None,
    ) -> None:
        check_kind("model", model, str, "the name of the model as text")
        if not model:
            raise ConfigError("model: empty; name the model the server should run, such as model='gpt-4.1-mini'")
        if protocol not in ("tools", "text"):
            raise ConfigError(f"protocol: {protocol!r}; use 'tools' (function calling) or 'text'")
        check_number("timeout_s", timeout_s)
        check_number("connect_timeout_s", connect_timeout_s)
        check_kind("stream", stream, bool, "True or False")
        if params is not None:
            params = checked_settings(params, ModelParams, "params")
        self.protocol: Literal["tools", "text"] = protocol
        self.name = model
        self.params = merged(ModelParams(model=model), params or ModelParams())
        self.stream = stream
        self._endpoint = Endpoint(base_url, api_key=api_key, headers=headers or {})
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        default_field = "max_completion_tokens" if self._endpoint.host == _OPENAI_HOST else "max_tokens"
        self._max_tokens_field = max_tokens_field or default_field
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIModel({self._endpoint.shown!r}, model={self.name!r}, protocol={self.protocol!r})"

    def effective_params(self, params: ModelParams) -> ModelParams:
        """What a request with `params` is sent with: its own parameters, and this model's where it has none."""
        return merged(params, self.params)

    async def complete(self, request: Request) -> Reply:
        """One attempt at one call; never repeated here.

        Raises:
            ModelError: the attempt failed; `kind`, `status`, `retry_after_s` and `retryable` say how.
        """
        data = self._encode(request)
        import aiohttp

        try:
            async with asyncio.timeout(self._timeout_s), self._session() as session:
                return await self._attempt(session, data)
        except aiohttp.ServerTimeoutError:
            failure = self._failure(
                "timeout", f"no connection within {self._connect_timeout_s:g} s (connect_timeout_s)"
            )
        except TimeoutError:
            failure = self._failure("timeout", f"no whole answer within {self._timeout_s:g} s (timeout_s)")
        except aiohttp.ClientResponseError as error:
            failure = self._failure("bad_response", f"the answer is not HTTP ({type(error).__name__}: {error.message})")
        except (aiohttp.ClientError, OSError) as error:
            failure = self._failure("transport", f"{type(error).__name__}: {error}")
        except CutStream as error:
            failure = self._failure("transport", str(error))
        raise failure  # outside of the handlers: the errors above hold the request's headers, and would be its context

    def _encode(self, request: Request) -> bytes:
        from kernel.masking.placeholder import contains_placeholder

        params = self.effective_params(request.params)
        body = encode_request(request, params, stream=self.stream, max_tokens_field=self._max_tokens_field)
        text = compact_json(body)
        if contains_placeholder(text):
            held = next((i for i, message in enumerate(body["messages"]) if contains_placeholder(message)), None)
            where = "the tools or parameters" if held is None else f"/messages/{held}"
            detail = f"not sent: {where} holds the placeholder of a masked secret; put the real value back first"
            raise self._failure("rejected", detail, retryable=False)
        return text.encode()

    async def aclose(self) -> None:
        """Close the connections kept for the running event loop. The model stays usable."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None and kept.session is not None:
            await kept.session.close()

    async def __aenter__(self) -> Self:
        self._kept.setdefault(asyncio.get_running_loop(), _Kept()).users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        kept = self._kept.get(asyncio.get_running_loop())
        if kept is None:
            return
        kept.users -= 1
        if kept.users == 0:
            await self.aclose()

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        kept = self._kept.get(asyncio.get_running_loop())
        if kept is None:
            async with self._new_session() as session:
                yield session
            return
        if kept.session is None:
            kept.session = self._new_session()
        yield kept.session

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s)
        return aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())

    async def _attempt(self, session: aiohttp.ClientSession, data: bytes) -> Reply:
        headers = {**self._endpoint.headers, **_trace_headers()}
        # A redirect is not followed: it would carry the key, and the conversation, to where nobody meant them to go.
        async with session.post(self._endpoint.url, data=data, headers=headers, allow_redirects=False) as response:
            if not 200 <= response.status < 300:
                return self._refused(response.status, response.headers, await _head(response, _MAX_ERROR_BODY_BYTES))
            content_type = response.headers.get("Content-Type", "").lower()
            events = "event-stream" in content_type
            if not events and self.stream:
                events = "json" not in content_type and "html" not in content_type
            return await (self._read_stream if events else self._read_whole)(response)

    async def _read_whole(self, response: aiohttp.ClientResponse) -> Reply:
        raw = await _head(response, _MAX_BODY_BYTES + 1)
        self._check_size(len(raw), response.status)
        try:
            body = parse_body(raw)
            error = provider_error(body)
            if error is None:
                return decode_reply(body)
        except Malformed as fault:
            reason = str(fault)
        else:
            return self._error_in_body(response.status, error, Reply())
        raise self._failure("bad_response", f"{reason}: {self._endpoint.excerpt(raw)}", status=response.status)

    async def _read_stream(self, response: aiohttp.ClientResponse) -> Reply:
        completion = StreamedCompletion()
        try:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                self._check_size(size, response.status)
                completion.feed(chunk)
                if completion.done or completion.error is not None:
                    break
            reply = decode_reply(completion.body())
        except Malformed as fault:
            reason = str(fault)
        else:
            if completion.error is None:
                return reply
            return self._error_in_body(response.status, completion.error, reply)
        raise self._failure("bad_response", reason, status=response.status)

    def _check_size(self, size_bytes: int, status: int) -> None:
        if size_bytes > _MAX_BODY_BYTES:
            raise self._failure("bad_response", f"the body is longer than {_MAX_BODY_BYTES} bytes", status=status)

    def _error_in_body(self, status: int, error: dict[str, Any], partial: Reply) -> Reply:
        reply = failed_generation(error, partial)
        if reply is not None:
            return reply
        code = error.get("status_code", error.get("code"))
        kind, retryable = kind_of(code if type(code) is int and 400 <= code < 600 else 500)
        detail = f"an error inside status {status}: {self._endpoint.excerpt(compact_json(error).encode())}"
        raise self._failure(kind, detail, status=status, retryable=retryable)

    def _refused(self, status: int, headers: Mapping[str, str], raw: bytes) -> Reply:
        """The reply in an error answer that holds the model's words; else the error is raised."""
        try:
            error = provider_error(parse_body(raw)) or {}
        except Malformed:
            error = {}
        reply = failed_generation(error, Reply())
        if reply is not None:
            return reply
        kind, retryable = kind_of(status)
        wait_s = retry_after_s(headers)
        told = "" if wait_s is None else f" (asks to wait {wait_s:g} s)"
        if error.get("code") == "tool_use_failed":  # the model's slip, and its words are not there: another try may do
            kind, retryable = "bad_response", True
        elif error.get("code") == "insufficient_quota":  # nothing but a payment helps
            retryable = False
        elif kind == "auth":
            told = " (check the API key: api_key, or OPENAI_API_KEY)"
        elif 300 <= status < 400:
            told = f" (redirects are not followed; set base_url to {place(headers.get('Location', ''))})"
        detail = f"status {status}{told}: {self._endpoint.excerpt(raw)}"
        raise self._failure(kind, detail, status=status, wait_s=wait_s, retryable=retryable)

    def _failure(
        self,
        kind: str,
        detail: str,
        *,
        status: int | None = None,
        wait_s: float | None = None,
        retryable: bool = True,
    ) -> ModelError:
        message = self._endpoint.hide(f"POST {self._endpoint.shown} (model {self.name}): {detail}")
        return ModelError(message, kind=kind, status=status, retry_after_s=wait_s, retryable=retryable)


def default_model(environ: Mapping[str, str] | None = None) -> OpenAIModel:
    """The model named by `MODEL`, at `OPENAI_BASE_URL` (default: OpenAI), with `OPENAI_API_KEY`. Opens no connection.

    Args:
        environ: where to read the three; by default the process's environment.
    Raises:
        ConfigError: `MODEL` is missing, or one of them cannot work.
    """
    variables = os.environ if environ is None else environ
    model = variables.get("MODEL", "").strip()
    if not model:
        raise ConfigError(
            "MODEL is not set: export MODEL=<name of a model>, or pass llm=OpenAIModel(base_url, model=…)"
        )
    return OpenAIModel(
        variables.get("OPENAI_BASE_URL", "").strip() or f"https://{_OPENAI_HOST}/v1",
        api_key=variables.get("OPENAI_API_KEY", "").strip() or None,
        model=model,
    )


async def _head(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """At most `limit_bytes` of the start of the body."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size >= limit_bytes:
            break
    return b"".join(parts)[:limit_bytes]


def _trace_headers() -> Mapping[str, str]:
    """The headers the tracer set around this call; outside of a run, those that make the caller's span its parent."""
    given = {name.lower(): value for name, value in outgoing_headers.get().items()}
    caller = None if "traceparent" in given else current_parent()
    if caller is not None:
        given["traceparent"] = f"00-{caller.trace_id}-{caller.span_id}-01"
    return given
