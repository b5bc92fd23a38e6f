"""The model servers behind a gateway, each under a name, and the variables that lead a program to the gateway.

A program asks `http://gateway/NAME/…`; NAME is taken off and the rest goes to that upstream. A request without a name goes
to the only upstream there is, else to the one whose dialect it speaks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from kernel.errors import ConfigError
from replay.wire.dialects import dialect_of


class Upstream(Struct, frozen=True, kw_only=True):
    """A model server. `base` is what stands before the path of a request; `version` is the part that clients expect to
    be told with the address (`/v1`), and is taken off `base`."""

    name: str
    base: str
    version: str = ""

    def url(self, rest: str) -> str:
        """The address of a request whose path and query are `rest`."""
        return self.base + rest


_KNOWN = {
    "openai": ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
}
_VARIABLES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "gemini": ("GOOGLE_GEMINI_BASE_URL",),
}
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
_NO_KEY = "replay-needs-no-key"
_DIALECTS = {"anthropic": "anthropic", "gemini": "gemini"}


def parse_upstreams(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, Upstream]:
    """The upstreams of a gateway: those of `--upstream [NAME=]URL`, the addresses that the environment names, the
    providers' own. A URL without a name stands for all of them.

    Raises:
        ConfigError: an address is no http(s) URL, or a name is used twice.
    """
    named: dict[str, str] = {}
    everywhere = ""
    for text in given:
        name, mark, url = text.partition("=")
        if not mark or "/" in name or ":" in name:
            name, url = "", text
        if name in named or (not name and everywhere):
            raise ConfigError(f"--upstream {text}: {f'{name} is' if name else 'the address is'} given twice")
        if name:
            named[_checked_name(name)] = url
        else:
            everywhere = url
    found = {}
    for name, (variable, address) in _KNOWN.items():
        url = named.pop(name, "") or everywhere or environ.get(variable, "") or address
        found[name] = _upstream(name, url)
    return found | {name: _upstream(name, url) for name, url in named.items()}


def _checked_name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ConfigError(f"--upstream {name}=…: the name of an upstream is letters, digits, - and _")
    return name


def _upstream(name: str, url: str) -> Upstream:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--upstream {name}: {url!r} is no http(s) address, such as https://api.openai.com/v1")
    base = url.split("?")[0].rstrip("/")
    if base.endswith("/v1"):
        return Upstream(name=name, base=base.removesuffix("/v1"), version="/v1" if name != "anthropic" else "")
    has_path = bool(urlsplit(base).path)
    return Upstream(name=name, base=base, version="/v1" if name == "openai" and not has_path else "")


def route(target: str, names: Sequence[str]) -> tuple[str, str]:
    """The upstream that a request is for, and its path and query behind that upstream's base."""
    head, slash, rest = target.removeprefix("/").partition("/")
    if slash and head in names:
        return head, f"/{rest}"
    if len(names) == 1:
        return names[0], target
    dialect = dialect_of("POST", target.partition("?")[0])
    wanted = _DIALECTS.get(dialect.name, "openai") if dialect is not None else "openai"
    return (wanted if wanted in names else names[0]), target


def environment(
    gateway: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str], *, keys: bool
) -> dict[str, str]:
    """The environment of a program behind the gateway at `gateway` (a URL without a slash at its end).

    Args:
        keys: give clients that refuse to start without a key one that is none; for replays.
    """
    out = dict(environ)
    for name, variables in _VARIABLES.items():
        version = upstreams[name].version if name in upstreams else "/v1" if name == "openai" else ""
        for variable in variables:
            out[variable] = f"{gateway}/{name}{version}"
    for name, upstream in upstreams.items():
        if name not in _VARIABLES:
            out[f"{name.upper().replace('-', '_')}_BASE_URL"] = f"{gateway}/{name}{upstream.version}"
    for variable in ("NO_PROXY", "no_proxy"):
        others = [host for host in out.get(variable, "").split(",") if host.strip()]
        out[variable] = ",".join(dict.fromkeys([*others, "127.0.0.1", "localhost"]))
    if keys:
        for variable in _KEYS:
            out.setdefault(variable, _NO_KEY)
    return out


def is_loopback(host: str) -> bool:
    """Whether a listening address can be reached from this machine alone."""
    return host in ("localhost", "::1") or host.startswith("127.")


def parse_listen(text: str) -> tuple[str, int]:
    """HOST:PORT of `--listen`. Raises `ConfigError`."""
    host, mark, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not mark or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {text}: write HOST:PORT, such as 127.0.0.1:8089; port 0 takes a free one")
    return host, int(port)


def current_environment() -> dict[str, str]:
    """The environment that a program would inherit."""
    return dict(os.environ)
