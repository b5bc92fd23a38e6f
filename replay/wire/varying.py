"""What of a request may vary from run to run: fields that ask something of the provider and nothing of the model, and
whatever the rules of a suite name. They apply to both sides, and a report names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from kernel.record import canonical_json, digest
from replay.wire.exchange import Asked

LEFT_OUT = ("metadata", "user", "safety_identifier", "prompt_cache_key", "client_metadata")
"""Fields at the top of a request that name the caller, not what is asked."""

Rule = Callable[[Any], Any]
"""Takes a body and gives it with what may vary put in one form. The same body must give the same value."""


class Varying(Struct, frozen=True, kw_only=True):
    """The rules of one comparison. `told` says in words what `rule` lets vary."""

    left_out: tuple[str, ...] = LEFT_OUT
    rule: Rule | None = None
    told: tuple[str, ...] = ()

    def body(self, asked: Asked) -> Any:
        """The body as it is compared."""
        body = asked.body
        if isinstance(body, dict) and any(name in body for name in self.left_out):
            body = {name: value for name, value in body.items() if name not in self.left_out}
        return body if self.rule is None else self.rule(body)

    def key(self, asked: Asked) -> str:
        """What must be equal for a recorded answer to be served."""
        path, _, query = asked.target.partition("?")
        head = [asked.upstream, asked.method, path.rstrip("/"), sorted(parse_qsl(query, keep_blank_values=True))]
        return canonical_json([head, digest(asked.raw) if asked.raw else "", self.body(asked)])
