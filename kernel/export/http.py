"""One OTLP/HTTP request, and where it goes: `OTEL_*` variables as the OpenTelemetry specification defines them.

The standard library's client is used, not the official exporter's: that one is not public below `export()`, and
`export()` retries for at most the timeout, then drops the batch, whole, without saying which spans it held
(`opentelemetry-exporter-otlp-proto-http`, up to 1.45). Retrying belongs to the queue here, which loses nothing.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import ssl
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from kernel.errors import ConfigError
from kernel.export.wire import CONTENT_TYPES, Protocol
from kernel.model import place, retry_after_s
from kernel.version import VERSION

Compression = Literal["gzip", "deflate", "none"]
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PATH = "/v1/traces"
_DEFAULT_TIMEOUT_S = 10.0
_ANSWER_BYTES = 65_536
_MESSAGE_CHARS = 300
_SECRET_CHARS = 8
_ZLIB_LEVEL = 4
_RETRY_HEADERS = ("retry-after-ms", "Retry-After", "Date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where and how requests are sent. `headers` are secret; `repr` and messages do not show them.

    `timeout_s` bounds a connect and each read. `content`: whether prompts, replies, arguments and results are sent.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = _DEFAULT_TIMEOUT_S
    compression: Compression = "gzip"
    protocol: Protocol = "http/protobuf"
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    content: bool = True
    note: str | None = None

    @property
    def shown(self) -> str:
        """The URL without user, password and query."""
        return place(self.url)[1:-1]

    @property
    def digest(self) -> str:
        """Names the place and, apart, the headers: what was meant for one tenant is never sent to another."""
        url, headers = (hashlib.sha256(repr(x).encode()).hexdigest() for x in (self.url, sorted(self.headers)))
        return f"{url[:16]}-{headers[:8]}"

    def hide(self, text: str) -> str:
        """`text` on one line of at most 300 printable characters, without any header's value."""
        words = {word for _, value in self.headers for word in value.split() if len(word) >= _SECRET_CHARS}
        for secret in sorted(words, key=len, reverse=True):
            text = text.replace(secret, "[secret]")
        text = "".join(char if char.isprintable() else " " for char in text)
        return " ".join(text.split())[:_MESSAGE_CHARS]

    def __repr__(self) -> str:
        return f"Destination({self.shown})"


def destination(
    endpoint: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    compression: Compression | None = None,
    content: bool | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Destination | None:
    """The destination that arguments and, where they are silent, `OTEL_*` variables name; None where export is off.

    Off: `OTEL_SDK_DISABLED=true`, or `OTEL_TRACES_EXPORTER` without `otlp` in it. The endpoint for traces is used as it
    is; `/v1/traces` is added to other endpoints. A timeout of 1000 or more is read as milliseconds (the
    specification's unit), a smaller one as seconds (the unit of OpenTelemetry Python). Content goes to this machine,
    and elsewhere only with `content=True` or `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` set to `SPAN_ONLY`,
    `SPAN_AND_EVENT` or `true`; `NO_CONTENT` or `false` withholds it everywhere.

    Raises:
        ConfigError: an endpoint, header or compression that cannot work; no secret is repeated.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if exporters and "otlp" not in exporters:
        return None
    as_is = environ.get(_TRACES_ENDPOINT)
    target, source = endpoint or as_is or environ.get(_ENDPOINT) or "http://localhost:4318", "endpoint"
    if not endpoint:
        source = _TRACES_ENDPOINT if as_is else _ENDPOINT
    url, user = _url(target, source, exact=bool(as_is) and target == as_is)
    given = {**user, **_parse_headers(_variable(environ, "HEADERS") or ""), **(headers or {})}
    protocol, note = _protocol(_variable(environ, "PROTOCOL"))
    return Destination(
        url=urlunsplit(url),
        headers=_checked(given),
        timeout_s=timeout_s if timeout_s is not None else _timeout_s(_variable(environ, "TIMEOUT")),
        compression=compression or _compression(_variable(environ, "COMPRESSION")),
        protocol=protocol,
        certificate=_variable(environ, "CERTIFICATE"),
        client_certificate=_variable(environ, "CLIENT_CERTIFICATE"),
        client_key=_variable(environ, "CLIENT_KEY"),
        content=_content(content, environ.get(_CAPTURE, ""), url.hostname or ""),
        note=note,
    )


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    """The variable for traces, before the one for all signals; an empty one counts as unset."""
    return environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def _url(text: str, source: str, *, exact: bool) -> tuple[SplitResult, dict[str, str]]:
    try:
        url = urlsplit(text.strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{source}: {place(text)} is not an http or https URL; give one such as http://localhost:4318"
        )
    user = {}
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        user["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        url = url._replace(netloc=url.netloc.rpartition("@")[2])
    path = url.path if exact or url.path.rstrip("/").endswith(_PATH) else url.path.rstrip("/") + _PATH
    return url._replace(path=path or "/", fragment=""), user


def _parse_headers(text: str) -> dict[str, str]:
    """`key=value,key2=value2`, values percent-encoded (W3C Baggage, as the specification has it)."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(name.strip()).lower(): unquote(value.strip()) for name, _, value in pairs if name.strip()}


def _checked(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in headers.items():
        if not (name + value).isascii() or not (name + value).isprintable():
            raise ConfigError(f"header {name!r:.40} holds a line break or a character outside ASCII; no header can")
    return tuple((name.strip().lower(), value) for name, value in headers.items())


def _protocol(text: str | None) -> tuple[Protocol, str | None]:
    if text in (None, "http/protobuf"):
        return "http/protobuf", None
    if text == "http/json":
        return "http/json", None
    note = f"OTEL_EXPORTER_OTLP_PROTOCOL={text!r:.30} is not supported, http/protobuf is sent; use port 4318, not 4317"
    return "http/protobuf", note


def _compression(text: str | None) -> Compression:
    match (text or "gzip").strip().lower():
        case "gzip":
            return "gzip"
        case "deflate":
            return "deflate"
        case "none":
            return "none"
        case other:
            raise ConfigError(f"OTEL_EXPORTER_OTLP_COMPRESSION: {other!r:.30} is not gzip, deflate or none")


def _timeout_s(text: str | None) -> float:
    try:
        value = float(text) if text else _DEFAULT_TIMEOUT_S
    except ValueError:
        return _DEFAULT_TIMEOUT_S
    if not 0 < value < float("inf"):
        return _DEFAULT_TIMEOUT_S
    return value / 1000 if value >= 1000 else value


def _content(chosen: bool | None, capture: str, host: str) -> bool:
    if chosen is not None:
        return chosen
    if capture:
        return capture.strip().lower() in ("span_only", "span_and_event", "true")
    return _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# --- one request ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one request. `status` is None where no receiver answered; `message` is fit to be shown."""

    status: int | None
    message: str = ""
    body: bytes = b""
    content_type: str = ""
    retry_after_s: float | None = None


class Client:
    """Sends request bodies to a destination. One connection a request; redirects are not followed; never raises.

    Calls to loopback go past any proxy.
    """

    def __init__(self, target: Destination) -> None:
        self.target = target
        self._opener: urllib.request.OpenerDirector | None = None

    def post(self, body: bytes) -> Answer:
        """POST one body, compressed."""
        target = self.target
        headers = {"user-agent": f"tracefirst/{VERSION}", **dict(target.headers)}
        headers["content-type"] = CONTENT_TYPES[target.protocol]
        if target.compression != "none":
            headers["content-encoding"] = target.compression
            wbits = 31 if target.compression == "gzip" else zlib.MAX_WBITS
            packer = zlib.compressobj(_ZLIB_LEVEL, wbits=wbits)
            body = packer.compress(body) + packer.flush()
        request = urllib.request.Request(target.url, data=body, headers=headers, method="POST")
        try:
            if self._opener is None:
                self._opener = self._build()
            with _untraced(), self._opener.open(request, timeout=target.timeout_s) as reply:
                return self._answer(reply.status, reply.headers, reply.read(_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                try:
                    said = error.read(_ANSWER_BYTES)
                except Exception:  # the status is known; what else it said did not arrive
                    said = b""
                return self._answer(error.code, error.headers, said)
        except Exception as error:  # refused, reset, timed out, a bad certificate, no HTTP: told by the answer
            reason = getattr(error, "reason", error)
            return Answer(status=None, message=target.hide(f"{type(reason).__name__}: {reason}"))

    def _answer(self, status: int, headers: Message, body: bytes) -> Answer:
        kind = headers.get("Content-Type", "")
        taken = 200 <= status < 300
        if taken and kind.lower().startswith("text/html"):  # a user interface, a login page: it took nothing
            return Answer(status=None, message=f"HTTP {status} with a web page: this is no address for OTLP")
        said = "" if taken else _said(body, kind)
        return Answer(
            status=status,
            message=self.target.hide(f"HTTP {status} {said}"),
            body=body,
            content_type=kind,
            retry_after_s=retry_after_s({name: headers[name] for name in _RETRY_HEADERS if name in headers}),
        )

    def _build(self) -> urllib.request.OpenerDirector:
        target = self.target
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(urlsplit(target.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        if target.url.startswith("https:"):
            context = ssl.create_default_context(cafile=target.certificate)
            if target.client_certificate is not None:
                context.load_cert_chain(target.client_certificate, target.client_key)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the headers, and with them a key, to another place."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def _said(body: bytes, content_type: str) -> str:
    """The text of an error answer: the message of a `google.rpc.Status`, or the body itself."""
    if "protobuf" in content_type:
        from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

        with suppress(Exception):  # not a Status after all
            return str(Status.FromString(body).message)
    return body.decode("utf-8", "replace")


@contextmanager
def _untraced() -> Iterator[None]:
    """Instrumented HTTP clients make no spans of what happens inside, if OpenTelemetry is in use at all."""
    context = sys.modules.get("opentelemetry.context")
    if context is None:
        yield
        return
    quiet = context.set_value("suppress_instrumentation", True)
    keys = ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY")
    for key in (getattr(context, name, None) for name in keys):
        if key is not None:
            quiet = context.set_value(key, True, quiet)
    token = context.attach(quiet)
    try:
        yield
    finally:
        context.detach(token)
