"""Start and stop the real Collector and the real Jaeger on free loopback ports.

    with running_jaeger(folder=tmp_path / "jaeger") as jaeger:
        with running_collector("agent", folder=tmp_path / "agent", upstream=jaeger.otlp_http) as agent:
            post_json(agent.otlp_http + "/v1/traces", request)
            wait_until(lambda: jaeger.spans(trace_id), what="the trace in Jaeger")

The programs come from `collector-config/build.sh`; `servers_available` says whether they are there. Both context
managers return when the server reports itself healthy, keep its output in `folder`, and show the end of it when
something fails.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")

CONFIG_FOLDER = Path(__file__).resolve().parents[2] / "collector-config"
_BUILD = CONFIG_FOLDER / "build.sh"

# Each file reads its addresses from variables of its own, so that all can run on one machine.
_PREFIXES = {"agent": "TRACEFIRST_", "gateway": "TRACEFIRST_GATEWAY_", "balancer": "TRACEFIRST_BALANCER_"}
_UPSTREAM = {"agent": "TRACEFIRST_UPSTREAM", "gateway": "TRACEFIRST_JAEGER", "balancer": "TRACEFIRST_GATEWAYS"}

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_LOG_LINES_SHOWN = 40
_BIND_ATTEMPTS = 3

# Loopback never goes through a proxy, whatever the environment says.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(RuntimeError):
    """A server did not start or stop as asked; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Paths of the two servers."""

    collector: Path
    jaeger: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorServer:
    """A running Collector. URLs have no trailing slash; `otlp_grpc` is host:port."""

    otlp_http: str
    otlp_grpc: str
    health: str
    metrics: str
    data: Path
    log: Path

    @property
    def fixtures(self) -> Path:
        """The file that agent.yaml writes spans to."""
        return self.data / "fixtures" / "traces.jsonl"

    def metric(self, name: str, **labels: str) -> float:
        """Sum of all series of `name` that have these labels; 0 while there is none."""
        with _opener.open(self.metrics, timeout=5) as reply:
            lines = reply.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [line for line in lines if line.split("{")[0].split(" ")[0] in (name, name + "_total")]
        return sum(float(row.rsplit(" ", 1)[1]) for row in rows if all(label in row for label in wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class JaegerServer:
    """A running Jaeger. URLs have no trailing slash; `otlp_grpc` is host:port."""

    otlp_http: str
    otlp_grpc: str
    ui: str
    health: str
    log: Path

    def otlp(self, trace_id: str) -> list[dict[str, Any]]:
        """The trace from `/api/v3`, as OTLP resourceSpans; empty while Jaeger does not know it."""
        reply = get_json(f"{self.ui}/api/v3/traces/{trace_id}?rawTraces=true")
        return [] if reply is None else list(reply["result"]["resourceSpans"])

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Every OTLP span of the trace, in the order Jaeger gives them."""
        return [s for r in self.otlp(trace_id) for scope in r["scopeSpans"] for s in scope["spans"]]

    def legacy(self, trace_id: str) -> list[dict[str, Any]]:
        """The trace from `/api/traces`, as Jaeger JSON spans; empty while Jaeger does not know it."""
        reply = get_json(f"{self.ui}/api/traces/{trace_id}")
        return [] if reply is None else [span for trace in reply["data"] for span in trace["spans"]]


def programs() -> Programs:
    """Paths of the built servers.

    Raises:
        ServerError: not built, or the script cannot run here; the message names the command that builds them.
    """
    try:
        done = subprocess.run([_BUILD, "--check"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise ServerError(f"cannot run {_BUILD.name}: {error}") from error
    if done.returncode != 0:
        raise ServerError("Collector and Jaeger are not built; run collector-config/build.sh")
    paths = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return Programs(collector=Path(paths["collector"]), jaeger=Path(paths["jaeger"]))


def servers_available() -> str | None:
    """None when both servers are built, otherwise the reason to skip a test."""
    try:
        programs()
    except ServerError as error:
        return str(error)
    return None


def wait_until(condition: Callable[[], T], *, what: str, timeout_s: float = 20.0) -> T:
    """Ask `condition` until it is true, and return what it then said.

    Raises:
        AssertionError: not true within `timeout_s`; the message has `what` and the last answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {value!r}")
        time.sleep(_POLL_S)


def get_json(url: str) -> Any:
    """The JSON at `url`; None for 404."""
    try:
        with _opener.open(url, timeout=30) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def post_json(url: str, body: Any) -> Any:
    """POST `body` as gzipped JSON, as OTLP/HTTP senders do, and return the decoded reply."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    data = gzip.compress(json.dumps(body).encode(), compresslevel=1)
    with _opener.open(urllib.request.Request(url, data=data, headers=headers), timeout=60) as reply:
        return json.loads(reply.read() or b"null")


@contextlib.contextmanager
def running_collector(
    config: str, *, folder: Path, upstream: str | None = None, env: Mapping[str, str] | None = None
) -> Iterator[CollectorServer]:
    """Run the Collector with `collector-config/<config>.yaml` until the block ends.

    Args:
        config: "agent", "gateway" or "balancer".
        folder: for its data and its log. Started again with the same folder, it finds what is left in the queue.
        upstream: what it sends to: a base URL; for "balancer" a YAML list of host:port.
        env: further variables of the configuration.
    Raises:
        ServerError: it did not become healthy.
    """
    prefix = _PREFIXES[config]
    folder.mkdir(parents=True, exist_ok=True)
    variables = {prefix + "DATA": str(folder), **({_UPSTREAM[config]: upstream} if upstream else {}), **(env or {})}
    command: list[Path | str] = [programs().collector, "--config", CONFIG_FOLDER / f"{config}.yaml"]
    log = folder / "server.log"

    def start() -> tuple[subprocess.Popen[bytes], CollectorServer]:
        grpc, http, health, metrics = _free_ports(4)
        ports = {"OTLP_GRPC": f"127.0.0.1:{grpc}", "OTLP_HTTP": f"127.0.0.1:{http}", "HEALTH": f"127.0.0.1:{health}"}
        addresses = {prefix + name: value for name, value in ports.items()} | {prefix + "METRICS_PORT": str(metrics)}
        server = CollectorServer(
            otlp_http=f"http://127.0.0.1:{http}",
            otlp_grpc=f"127.0.0.1:{grpc}",
            health=f"http://127.0.0.1:{health}/",
            metrics=f"http://127.0.0.1:{metrics}/metrics",
            data=folder,
            log=log,
        )
        return _launch(command, env=variables | addresses, health=server.health, log=log), server

    process, server = _with_free_ports(start)
    with _stopping(process, log, gently=True):
        yield server


@contextlib.contextmanager
def running_jaeger(
    *, folder: Path, otlp_http_port: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[JaegerServer]:
    """Run Jaeger with `collector-config/jaeger.yaml` until the block ends.

    Args:
        folder: for its log.
        otlp_http_port: where it takes spans in; for tests in which it comes back to where it was.
        env: further variables of the configuration.
    Raises:
        ServerError: it did not become healthy.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command: list[Path | str] = [programs().jaeger, "--config", CONFIG_FOLDER / "jaeger.yaml"]
    log = folder / "server.log"

    def start() -> tuple[subprocess.Popen[bytes], JaegerServer]:
        grpc, free_http, ui, query_grpc, health = _free_ports(5)
        http = otlp_http_port or free_http
        addresses = {
            "TRACEFIRST_JAEGER_OTLP_GRPC": f"127.0.0.1:{grpc}",
            "TRACEFIRST_JAEGER_OTLP_HTTP": f"127.0.0.1:{http}",
            "TRACEFIRST_JAEGER_UI": f"127.0.0.1:{ui}",
            "TRACEFIRST_JAEGER_QUERY_GRPC": f"127.0.0.1:{query_grpc}",
            "TRACEFIRST_JAEGER_HEALTH": f"127.0.0.1:{health}",
            "TRACEFIRST_JAEGER_UI_CONFIG": str(CONFIG_FOLDER / "jaeger-ui.json"),
        }
        server = JaegerServer(
            otlp_http=f"http://127.0.0.1:{http}",
            otlp_grpc=f"127.0.0.1:{grpc}",
            ui=f"http://127.0.0.1:{ui}",
            health=f"http://127.0.0.1:{health}/status",
            log=log,
        )
        return _launch(command, env=dict(env or {}) | addresses, health=server.health, log=log), server

    process, server = _with_free_ports(start)
    # Asked to stop, Jaeger takes 12 s and holds its ports meanwhile. It has nothing to save here.
    with _stopping(process, log, gently=False):
        yield server


def free_port() -> int:
    """A loopback port nobody listens on at the moment."""
    return _free_ports(1)[0]


def _free_ports(count: int) -> list[int]:
    """Distinct ports: all are held before the first is given back."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _with_free_ports(start: Callable[[], tuple[subprocess.Popen[bytes], S]]) -> tuple[subprocess.Popen[bytes], S]:
    """Start again on other ports when another process took one between the choice and the bind."""
    for attempt in range(1, _BIND_ATTEMPTS + 1):
        try:
            return start()
        except ServerError as error:
            if attempt == _BIND_ATTEMPTS or "address already in use" not in str(error):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _launch(command: list[Path | str], *, env: Mapping[str, str], health: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `command` and return once `health` answers 200."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEFIRST_", "OTEL_"))}
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=inherited | dict(env), stdout=output, stderr=subprocess.STDOUT)

    def up_or_ended() -> bool:
        return process.poll() is not None or _healthy(health)

    try:
        wait_until(up_or_ended, what=f"{health} to answer", timeout_s=_START_TIMEOUT_S)
        if process.poll() is not None:
            raise ServerError(f"{command[0]} ended with status {process.returncode}\n{_tail(log)}")
    except BaseException as error:
        process.kill()
        process.wait()
        if isinstance(error, AssertionError):
            raise ServerError(f"{command[0]}: {error}\n{_tail(log)}") from error
        raise
    return process


def _healthy(url: str) -> bool:
    try:
        with _opener.open(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:  # refused, reset, or 503 while it starts
        return False


@contextlib.contextmanager
def _stopping(process: subprocess.Popen[bytes], log: Path, *, gently: bool) -> Iterator[None]:
    """End `process` with the block; if the block failed, show what the server said."""
    try:
        yield
    except BaseException:
        print(f"--- end of {log} ---\n{_tail(log)}", file=sys.stderr)
        raise
    finally:
        if gently:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
        process.kill()  # does nothing to a process that has ended
        process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])
