"""What of a request may vary from run to run: fields that ask something of the provider and nothing of the model, and
whatever the rules of a suite name. They apply to both sides, and a report names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from kernel.record import canonical_json, digest
from replay.play import Rules, rules_for
from replay.wire.exchange import Asked

LEFT_OUT = ("metadata", "user", "safety_identifier", "prompt_cache_key", "client_metadata")
"""Fields at the top of a request that name the caller, not what is asked."""


class Varying(Struct, frozen=True, kw_only=True):
    """The rules of one comparison: fields that are left out, and the rules of a suite, whose paths begin with `/request`."""

    left_out: tuple[str, ...] = LEFT_OUT
    rules: Rules = Rules()

    def body(self, asked: Asked) -> Any:
        """The body as it is compared."""
        body = asked.body
        if isinstance(body, dict) and any(name in body for name in self.left_out):
            body = {name: value for name, value in body.items() if name not in self.left_out}
        return self.rules.normal(("request",), body) if self.rules else body

    def key(self, asked: Asked) -> str:
        """What must be equal for a recorded answer to be served."""
        path, _, query = asked.target.partition("?")
        head = [asked.upstream, asked.method, path.rstrip("/"), sorted(parse_qsl(query, keep_blank_values=True))]
        return canonical_json([head, digest(asked.raw) if asked.raw else "", self.body(asked)])


def varying_for(recording: str | os.PathLike[str]) -> Varying:
    """What of a program's requests may vary by the rules for its recording, see `rules_for`. Raises `ConfigError`."""
    return Varying(rules=rules_for(Path(recording)))
