"""A scripted chat completions server, as a process of its own on loopback.

    python tests/e2e/model_server.py --script script.json --log requests.jsonl [--port 8080]

or, from a test, `with running_model_server([{"text": "hello"}]) as server:`, which has `base_url` and `requests()`.

The script is a JSON list; request number n gets behaviour number n, and one past the end gets status 410. A behaviour
is an object, of whose keys the first found here decides:

    hang        true: no answer, until the client goes away
    drop        true: the connection is closed before any answer
    raw         bytes of a whole HTTP answer, as text
    status      an answer with this status, `headers` and `body` (text, or an object that becomes JSON)
    body        the same with status 200
    otherwise   a chat completion of `text`, `tool_calls` ([{"name", "arguments", "id"}]), `reasoning`, `refusal`,
                `usage`, `finish_reason`, `model`, `id`; streamed, in pieces of `piece_chars`, if so asked

and these change how it is sent:

    cut         number of bytes of the body after which the connection is closed
    drip_s      seconds between pieces of 16 bytes
    hold        true: the body is sent, and not ended until the client goes away
    done        false: a stream without its `[DONE]`
    times       this behaviour serves so many requests (default 1)

The log has a line of JSON for every request (`event`, `n`, `path`, `headers`, `body`), and one with the `event`
`client_gone` where a client left a request without waiting for its answer.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Behaviour = dict[str, Any]


def completion(behaviour: Behaviour) -> dict[str, Any]:
    """The unstreamed body of a behaviour."""
    calls = [
        {
            "id": call.get("id", ""),
            "type": "function",
            "function": {k: call[k] for k in ("name", "arguments") if k in call},
        }
        for call in behaviour.get("tool_calls", ())
    ]
    message: dict[str, Any] = {"role": "assistant", "content": behaviour.get("text")}
    if calls:
        message["tool_calls"] = calls
    for name, field in (("reasoning", "reasoning_content"), ("refusal", "refusal")):
        if name in behaviour:
            message[field] = behaviour[name]
    body: dict[str, Any] = {
        "id": behaviour.get("id", "chatcmpl-scripted"),
        "object": "chat.completion",
        "model": behaviour.get("model", "scripted-1"),
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": behaviour.get("finish_reason", "tool_calls" if calls else "stop"),
            }
        ],
    }
    if "usage" in behaviour:
        body["usage"] = behaviour["usage"]
    return body


def chunks(body: dict[str, Any], piece_chars: int = 5) -> Iterator[dict[str, Any]]:
    """A chat completion as the chunks of a stream, texts in pieces of `piece_chars` characters."""
    top = {"id": body["id"], "model": body["model"], "object": "chat.completion.chunk"}
    choice = body["choices"][0]

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**top, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content", "refusal"):
        yield from (chunk({name: piece}) for piece in _pieces(choice["message"].get(name) or "", piece_chars))
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        first = {"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **first}]})
        for piece in _pieces(call["function"].get("arguments", ""), piece_chars):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if "usage" in body:
        yield {**top, "choices": [], "usage": body["usage"]}


def event_stream(body: dict[str, Any], *, piece_chars: int = 5, done: bool = True) -> bytes:
    """The server-sent events of a chat completion."""
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(body, piece_chars)]
    return "".join([*events, "data: [DONE]\n\n" if done else ""]).encode()


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


class _Script:
    """The behaviours still to come, and the log. Shared by the threads that serve."""

    def __init__(self, behaviours: Sequence[Behaviour], log: Path) -> None:
        self._log = log
        self._changed = threading.Condition()
        self.play(behaviours)

    def play(self, behaviours: Sequence[Behaviour]) -> None:
        """Start over with another script and an empty log."""
        with self._changed:
            self._behaviours = [one for one in behaviours for _ in range(one.get("times", 1))]
            self._requests = 0
            self._lines = 0
            self._log.write_bytes(b"")

    def take(self, path: str, headers: dict[str, str], body: Any) -> tuple[int, Behaviour]:
        with self._changed:
            self._requests += 1
            n = self._requests
            self._write({"event": "request", "n": n, "path": path, "headers": headers, "body": body})
        if n > len(self._behaviours):
            message = f"the script has {len(self._behaviours)} behaviours, this is request {n}"
            return n, {"status": 410, "body": {"error": {"message": message}}}
        return n, self._behaviours[n - 1]

    def client_gone(self, n: int) -> None:
        with self._changed:
            self._write({"event": "client_gone", "n": n})

    def wait_for(self, lines: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._lines >= lines, timeout_s)

    def _write(self, entry: dict[str, Any]) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._lines += 1
        self._changed.notify_all()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: _Script

    def log_message(self, format: str, *args: Any) -> None:
        """Keep standard error for failures; the log file has the requests."""

    def do_GET(self) -> None:
        """`/log?lines=N` answers once the log has N lines: what a test waits on instead of sleeping."""
        there = self.script.wait_for(int(self.path.partition("lines=")[2] or 0), timeout_s=5)
        self._send(200 if there else 504, {}, b"")

    def do_PUT(self) -> None:
        """`/script` takes the script to go on with."""
        self.script.play(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._send(200, {}, b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            asked = json.loads(raw)
        except ValueError:
            asked = raw.decode("latin-1")
        n, behaviour = self.script.take(self.path, headers, asked)
        try:
            self._answer(behaviour, asked, n)
            if behaviour.get("hold"):
                self._wait_for_client_to_go(n)
        except (BrokenPipeError, ConnectionResetError):
            self.script.client_gone(n)
            self.close_connection = True

    def _answer(self, behaviour: Behaviour, asked: Any, n: int) -> None:
        if behaviour.get("hang"):
            self._wait_for_client_to_go(n)
        elif behaviour.get("drop"):
            self.close_connection = True
        elif "raw" in behaviour:
            self.wfile.write(behaviour["raw"].encode("latin-1"))
            self.close_connection = True
        elif "status" in behaviour or "body" in behaviour:
            body = behaviour.get("body", "")
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            kind = "text/plain" if isinstance(body, str) else "application/json"
            headers = {"Content-Type": kind, **behaviour.get("headers", {})}
            self._send(behaviour.get("status", 200), headers, data, behaviour)
        elif isinstance(asked, dict) and asked.get("stream"):
            pieces, done = behaviour.get("piece_chars", 5), behaviour.get("done", True)
            data = event_stream(completion(behaviour), piece_chars=pieces, done=done)
            self._send(200, {"Content-Type": "text/event-stream"}, data, behaviour)
        else:
            self._send(200, {"Content-Type": "application/json"}, json.dumps(completion(behaviour)).encode(), behaviour)

    def _send(self, status: int, headers: dict[str, str], data: bytes, how: Behaviour | None = None) -> None:
        how = how or {}
        length = str(len(data) + (1 if how.get("hold") else 0))
        self.send_response_only(status)
        for name, value in {"Date": self.date_time_string(), "Content-Length": length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if "cut" in how:
            data = data[: how["cut"]]
            self.close_connection = True
        if "drip_s" not in how:
            self.wfile.write(data)
            return
        for start in range(0, len(data), 16):
            self.wfile.write(data[start : start + 16])
            time.sleep(how["drip_s"])

    def _wait_for_client_to_go(self, n: int) -> None:
        select.select([self.connection], [], [])
        with contextlib.suppress(ConnectionResetError):
            self.connection.recv(1)
        self.script.client_gone(n)
        self.close_connection = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """A running server: its base URL for a client, and its log."""

    base_url: str
    log: Path

    def play(self, script: Sequence[Behaviour]) -> None:
        """Start over with another script and an empty log: cheaper than another process."""
        data = json.dumps(list(script)).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.base_url}/script", data, method="PUT"), timeout=10):
            pass

    def wait_for(self, lines: int) -> None:
        """Return once the log has so many lines. Raises `urllib.error.HTTPError` after 5 s."""
        with urllib.request.urlopen(f"{self.base_url}/log?lines={lines}", timeout=10):
            pass

    def events(self) -> list[dict[str, Any]]:
        """All of the log."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def requests(self) -> list[dict[str, Any]]:
        """The requests that came in, in order; `n` counts from 1."""
        return [event for event in self.events() if event["event"] == "request"]


@contextlib.contextmanager
def running_model_server(script: Sequence[Behaviour]) -> Iterator[ModelServer]:
    """A server process that follows `script`; it has ended when the block is left, and dies with this process."""
    with tempfile.TemporaryDirectory(prefix="model-server-") as folder:
        script_file, log = Path(folder, "script.json"), Path(folder, "log.jsonl")
        script_file.write_text(json.dumps(list(script)), encoding="utf-8")
        command = [
            sys.executable,
            "-I",
            "-S",
            __file__,
            "--script",
            str(script_file),
            "--log",
            str(log),
            "--while-stdin",
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                base_url = process.stdout.readline().strip()
                if not base_url:
                    raise RuntimeError(f"the model server did not start; exit status {process.wait(timeout=10)}")
                yield ModelServer(base_url=base_url, log=log)
            finally:
                process.stdin.close()
                process.wait(timeout=10)


def main() -> None:
    """Serve a script until interrupted; the base URL is the first line of standard output."""
    parser = argparse.ArgumentParser(description="Serve a script of chat completions on 127.0.0.1.")
    parser.add_argument("--script", type=Path, required=True, help="JSON list of behaviours")
    parser.add_argument("--log", type=Path, required=True, help="file the requests are appended to, one JSON line each")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--while-stdin", action="store_true", help="end when standard input does")
    options = parser.parse_args()
    _Handler.script = _Script(json.loads(options.script.read_text(encoding="utf-8")), options.log)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), _Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    if options.while_stdin:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        sys.stdin.read()
        return
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
