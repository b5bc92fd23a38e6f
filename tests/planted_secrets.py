"""Forty credentials of the common formats, and a run that holds one of them wherever a run can hold a text.

Built at run time from parts, so that no scanner of repositories takes this file for a leak.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import string
from collections.abc import Mapping
from typing import Any

from fixtures.record import CountingClock, CountingIds
from kernel import (
    Agent,
    Budget,
    ContextLimits,
    FinishContext,
    ModelError,
    Reply,
    RunResult,
    ScriptedModel,
    ToolRegistry,
    Usage,
)
from kernel.record.canonical import compact_json
from tests.helpers import act

_random = random.Random(40)
_WORD = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + "234567"
_HEX = "0123456789abcdef"


def _chars(count: int, alphabet: str = _WORD) -> str:
    """So many characters, the last ones a letter and a digit."""
    return "".join(_random.choices(alphabet, k=count - 2)) + "A7"


def _base64(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def _jwt() -> str:
    return f"{_base64({'alg': 'RS256', 'kid': '1'})}.{_base64({'sub': 'ops', 'iat': 1700000000})}.{_chars(86)}"


def _pem(label: str) -> str:
    lines = "\n".join(_chars(64) for _ in range(4))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----"


def _basic() -> str:
    return base64.b64encode(f"deploy:{_chars(14)}".encode()).decode().rstrip("=")


KEYS: dict[str, str] = {
    "openai": "sk-" + _chars(48),
    "openai project": "sk-" + "proj-" + _chars(80),
    "openai admin": "sk-" + "admin-" + _chars(60),
    "openai service": "sk-" + "svcacct-" + _chars(60),
    "anthropic": "sk-" + "ant-api03-" + _chars(90),
    "anthropic admin": "sk-" + "ant-admin01-" + _chars(90),
    "aws": "AK" + "IA" + "".join(_random.choices(_UPPER, k=16)),
    "aws session": "AS" + "IA" + "".join(_random.choices(_UPPER, k=16)),
    "github": "gh" + "p_" + _chars(36),
    "github oauth": "gh" + "o_" + _chars(36),
    "github user": "gh" + "u_" + _chars(36),
    "github server": "gh" + "s_" + _chars(36),
    "github refresh": "gh" + "r_" + _chars(60),
    "github fine-grained": "github" + "_pat_" + _chars(22) + "_" + _chars(59),
    "slack bot": "xo" + "xb-" + "2048123456-" + _chars(24),
    "slack user": "xo" + "xp-" + "2048123456-" + _chars(24),
    "slack app": "xa" + "pp-1-A0" + _chars(9) + "-1234567890-" + _chars(40),
    "google": "AI" + "za" + _chars(35),
    "google token": "ya" + "29.a0" + _chars(80),
    "google client": "GOC" + "SPX-" + _chars(28),
    "jwt": _jwt(),
    "stripe": "sk" + "_live_" + _chars(24),
    "gitlab": "gl" + "pat-" + _chars(20),
    "npm": "np" + "m_" + _chars(36),
    "hugging face": "h" + "f_" + _chars(34),
    "sendgrid": "S" + "G." + _chars(22) + "." + _chars(43),
}
"""Credentials that are known by their own form, wherever they stand."""

IN_CONTEXT: dict[str, tuple[str, str]] = {
    "bearer": ("Authorization: " + "Bearer {}", _chars(40)),
    "bearer lower-case": ("authorization: " + "bearer {}", _chars(40)),
    "basic": ("Authorization: " + "Basic {}", _basic()),
    "x-api-key": ("X-Api-Key: {}", _chars(32)),
    "cookie": ("Cookie: session={}", _chars(32)),
    "postgres": ("postgres" + "://app:{}@db.internal:5432/orders", _chars(18)),
    "https": ("https" + "://robot:{}@git.example.com/repo.git", _chars(24)),
    "redis": ("redis" + "://:{}@cache:6379/0", _chars(20)),
    "slack webhook": (
        "https://hooks.slack" + ".com/services/{}",
        "T0" + _chars(8) + "/B0" + _chars(8) + "/" + _chars(24),
    ),
    "aws secret": ("AWS_SECRET" + "_ACCESS_KEY={}", _chars(40)),
    ".env password": ("DB_PASS" + "WORD={}", _chars(16)),
    ".env quoted": ("export STRIPE_SEC" + "RET='{}'", _chars(28)),
    "private key": ("{}", _pem("RSA PRIVATE " + "KEY")),
    "private key, openssh": ("{}", _pem("OPENSSH PRIVATE " + "KEY")),
}
"""Credentials that their surroundings give away: a text with a place for them."""

PLANTED: dict[str, tuple[str, str]] = {**{name: ("the key is {}", key) for name, key in KEYS.items()}, **IN_CONTEXT}
assert len(PLANTED) == 40


def needles(secret: str) -> list[str]:
    """Pieces by which a secret is looked for: all of it, its halves, its lines, and how JSON spells it."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    pieces = lines if len(lines) > 1 else [secret, secret[: len(secret) // 2 + 6], secret[-(len(secret) // 2) :]]
    return [piece for piece in pieces if len(piece) >= 8]


def leaks(secret: str, places: Mapping[str, str | bytes]) -> list[str]:
    """The places in which a piece of a secret stands."""
    found = []
    for place, held in places.items():
        text = held.decode("utf-8", "replace") if isinstance(held, bytes) else held
        if any(piece in text for piece in needles(secret)):
            found.append(place)
    return found


class LeakyRun:
    """One run with a secret in its prompt, tool descriptions, arguments, results, errors, replies and refusals."""

    def __init__(self, text: str, *, protocol: str = "text", limit: int = 8000, usage: bool = True) -> None:
        self.text = text
        self.protocol: Any = protocol
        self.limit = limit
        self.usage = Usage(input_tokens=100, output_tokens=10) if usage else None

    def agent(self) -> Agent:
        tools, secret = ToolRegistry(), self.text

        @tools.register(name="fetch", description=f"Fetch a page. Example: fetch with {secret}", returns=secret)
        async def fetch(where: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
            return {"where": where, "seen": [secret, {"headers": headers, "note": f"<{secret}>"}], "status": 200}

        @tools.register(name="read", description="Read a file.")
        def read(path: str) -> str:
            rest = "\n".join(f"{number} a line of the log that is long enough" for number in range(400))
            return f"# {path}\n{secret}\n{rest}\n{secret}" if path == "long" else f"# {path}\n{secret}\n"

        @tools.register(name="fail", description="Fail.")
        def fail(why: str) -> str:
            raise ConnectionError(f"{why}: could not connect with {secret}; retried 3 times")

        @tools.register(name="deploy", description="Deploy.", side_effect=True)
        def deploy(environment: str, password: str = "") -> str:
            return f"deployed with {environment}"

        @tools.register(name="send", description="Send.", side_effect=True, idempotency="position")
        def send(text: str) -> str:
            return "sent"

        return Agent(
            name="leaky",
            system=f"You are an operator. {secret}",
            tools=tools,
            budget=Budget(max_steps=20, model_retries=2, max_errors=6),
            context=ContextLimits(max_observation_chars=self.limit),
            finish_check=self._refused_once,
        )

    def _refused_once(self, answer: str, context: FinishContext) -> str | None:
        return f"do not repeat it: {self.text}" if context.attempt == 1 else None

    def script(self) -> list[Any]:
        secret = self.text
        calls: list[tuple[str, dict[str, Any]]] = [
            ("fetch", {"where": f"https://api.example.com/v1?q={secret}", "headers": {"x-note": secret}}),
            ("read", {"path": "short"}),
            ("read", {"path": "short"}),
            ("read", {"path": "long"}),
            ("read_range", {"handle": "artifact-1", "start": 0, "length": 60}),
            ("fail", {"why": secret}),
            ("deploy", {"environment": secret, "password": secret.split()[-1][:40]}),
            ("deploy", {"environment": secret, "password": secret.split()[-1][:40]}),
            ("send", {"text": secret}),
            ("missing", {"text": secret}),
            ("fetch", {"wehre": secret}),
        ]
        script: list[Any] = [ModelError(f"503 from a server that echoes {secret}", kind="server", status=503)]
        for name, args in calls:
            if self.protocol == "tools":
                script.append(
                    Reply(
                        text=f"I try {secret}",
                        reasoning=f"because of {secret}",
                        tool_calls=_calls(name, args),
                        finish_reason="tool_calls",
                        usage=self.usage or Usage(),
                    )
                )
            else:
                script.append(f"Thought: I try {secret}\n{compact_json({'action': name, 'args': args})}")
        if self.protocol == "text":
            script.append(f'I think {secret}\n{{"action": "read", "args": {{"path": ')
        script += [self._finish(f"It was {secret}"), self._finish(f"It was {secret}, I am sure")]
        return script

    def _finish(self, answer: str) -> Any:
        return act("finish", answer=answer) if self.protocol == "text" else answer

    def run(self, trace: Any, *, ids_of: str = "leaky") -> RunResult:
        model = ScriptedModel(self.script(), protocol=self.protocol, usage=self.usage)
        clock, ids = CountingClock(), CountingIds(ids_of)
        work = self.agent().run(
            f"find {self.text}",
            llm=model,
            trace=trace,
            confirm=lambda name, args: True,
            clock=clock,
            ids=ids,
        )
        return asyncio.run(work)


def _calls(name: str, args: dict[str, Any]) -> Any:
    from kernel import ToolCall

    return (ToolCall(id="c1", name=name, arguments=compact_json(args)),)
