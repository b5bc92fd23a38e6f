"""A program that asks a model, written on nothing: run by tests of the wire.

    python wire_client.py DIALECT [--stream] [--tasks A,B] [--parallel] [--change NAME=VALUE]...

It knows nothing of recording: it takes its address and key from the environment, as the providers' clients do.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.wireworld import agent, drive, path_of

BASES = {
    "chat": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "responses": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}
RETRIED = (408, 409, 429, 500, 502, 503, 504)


def main() -> int:
    dialect, options = sys.argv[1], sys.argv[2:]
    stream, parallel = "--stream" in options, "--parallel" in options
    tasks = ["why?"]
    change: dict[str, Any] = {}
    for at, word in enumerate(options):
        if word == "--tasks":
            tasks = options[at + 1].split(",")
        if word == "--change":
            name, _, value = options[at + 1].partition("=")
            change[name] = value
    answers: dict[str, str] = {}

    def work(task: str) -> None:
        answers[task] = drive(made(dialect, task, change), lambda body: ask(dialect, body, stream, options))

    threads = [threading.Thread(target=work, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
        if not parallel:
            thread.join()
    for thread in threads:
        thread.join()
    for extra in filter(None, os.environ.get("ALSO", "").split(",")):
        method, _, path = extra.partition(" ")
        print(call(os.environ["OPENAI_BASE_URL"] + path, b"{}" if method == "POST" else None, {}).decode())
    print(json.dumps(answers, sort_keys=True))
    return 0 if len(answers) == len(tasks) else 1


def made(dialect: str, task: str, change: dict[str, Any]) -> Any:
    change = dict(change)
    if "look" in change:
        told = change.pop("look")
        change["look"] = lambda args: told
    return agent(dialect, change.pop("task", task), **change)


def ask(dialect: str, body: dict[str, Any], stream: bool, options: list[str]) -> dict[str, Any]:
    base, key = BASES[dialect]
    path = path_of(dialect, stream)
    if dialect in ("chat", "responses"):
        path = path.removeprefix("/v1")
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ[key]}", "cookie": "c=1"}
    if dialect == "gemini":
        path += ("&" if "?" in path else "?") + "key=" + os.environ[key]
    if stream and dialect != "gemini":
        body = {**body, "stream": True}
    data = json.dumps(body).encode()
    if "--gzip" in options:
        data, headers["content-encoding"] = gzip.compress(data), "gzip"
        headers["accept-encoding"] = "gzip, deflate"
    raw = call(os.environ[base] + path, data, headers)
    if not stream:
        return dict(json.loads(raw))
    from replay.wire.dialects import dialect_of, events_of

    spoken = dialect_of("POST", path.partition("?")[0])
    assert spoken is not None
    return spoken.assembled(events_of(raw))


def call(url: str, data: bytes | None, headers: dict[str, str], tries: int = 3) -> bytes:
    """One request, tried again as clients do."""
    opener = urllib.request.build_opener()
    for left in range(tries, 0, -1):
        try:
            with opener.open(urllib.request.Request(url, data, headers), timeout=60) as answer:
                raw: bytes = answer.read()
                return gzip.decompress(raw) if answer.headers.get("content-encoding") == "gzip" else raw
        except urllib.error.HTTPError as error:
            again = error.headers.get("x-should-retry") != "false" and error.code in RETRIED
            if not again or left == 1:
                raise
        except (OSError, EOFError, ConnectionError, __import__("http.client").client.HTTPException):
            if left == 1:
                raise
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())
