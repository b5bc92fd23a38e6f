"""An OTLP/HTTP receiver on loopback that does as it is told: takes spans, refuses, hangs, asks to wait, goes away.

    with OtlpServer() as server:
        server.script(503, 503)          # the next two requests; then 200 again
        ...
        server.wait_for(lambda: len(server.span_ids) == 3)

A request is parsed with opentelemetry-proto; one that does not parse is answered with 400 and kept in `faults`.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to answer. `hang`: hold the request until the server closes; the spans are not taken."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    hang: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One accepted request."""

    request: ExportTraceServiceRequest
    headers: dict[str, str]
    size_bytes: int


class OtlpServer:
    """See above. `body_limit` answers 413 to larger bodies (uncompressed), as a Collector does; `default` is what
    requests beyond the script get."""

    def __init__(self, *, port: int = 0, body_limit: int | None = None, default: Reply | None = None) -> None:
        self.body_limit = body_limit
        self.default = default or Reply()
        self.taken: list[Taken] = []
        self.faults: list[str] = []
        self.requests = 0
        self.arrived_ns: list[int] = []  # on the steady clock
        self._script: list[Reply] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> OtlpServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def script(self, *replies: int | Reply) -> None:
        """The next answers, in order."""
        with self._changed:
            self._script += [Reply(status=r) if isinstance(r, int) else r for r in replies]

    def wait_for(self, condition: Callable[[], Any], *, timeout_s: float = 10.0) -> None:
        """Until `condition` holds; it is asked after each request."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), f"{len(self.span_ids)} spans, {self.requests} requests"

    @property
    def spans(self) -> list[Any]:
        """Accepted spans, in order of arrival, as protobuf messages."""
        return [s for t in self.taken for r in t.request.resource_spans for c in r.scope_spans for s in c.spans]

    @property
    def span_ids(self) -> Counter[str]:
        """How often each span was accepted."""
        return Counter(span.span_id.hex() for span in self.spans)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        arrived_ns = time.monotonic_ns()
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._changed:
            self.requests += 1
            self.arrived_ns.append(arrived_ns)
            reply = self._script.pop(0) if self._script else self.default
            if not reply.hang and reply.status == 200:
                reply = self._take(handler, raw, reply)
            self._changed.notify_all()
        if reply.hang:
            self._closing.wait()
            return
        handler.send_response(reply.status)
        for name, value in reply.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)

    def _take(self, handler: BaseHTTPRequestHandler, raw: bytes, reply: Reply) -> Reply:
        encoding = handler.headers.get("Content-Encoding", "")
        body = gzip.decompress(raw) if encoding == "gzip" else zlib.decompress(raw) if encoding == "deflate" else raw
        if self.body_limit is not None and len(body) > self.body_limit:
            return Reply(status=413, body=b"http: request body too large")
        try:
            request = _parse(body, handler.headers["Content-Type"])
        except Exception as error:  # what does not parse is the finding
            self.faults.append(f"{type(error).__name__}: {error}")
            return Reply(status=400)
        self.taken.append(
            Taken(request=request, headers={k.lower(): v for k, v in handler.headers.items()}, size_bytes=len(body))
        )
        return reply


def _parse(body: bytes, content_type: str) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    if content_type == "application/x-protobuf":
        request.MergeFromString(body)
        return request
    assert content_type == "application/json", content_type
    # Protobuf's JSON reader wants bytes as base64, OTLP has ids as hex: as text they survive, and are mended after.
    json_format: Any = importlib.import_module("google.protobuf.json_format")

    def mend(value: Any) -> Any:
        if isinstance(value, dict):
            ids = ("traceId", "spanId", "parentSpanId")
            return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else mend(v) for k, v in value.items()}
        return [mend(item) for item in value] if isinstance(value, list) else value

    json_format.Parse(json.dumps(mend(json.loads(body))), request)
    return request


def partial_success(rejected: int, message: str) -> Reply:
    """200, but so many spans of the request were rejected."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans, answer.partial_success.error_message = rejected, message
    return Reply(headers=(("Content-Type", "application/x-protobuf"),), body=answer.SerializeToString())
