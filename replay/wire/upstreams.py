"""The model servers behind a gateway, each under a name, and the variables that lead a program to the gateway.

A program asks `http://gateway/NAME/…`; NAME is taken off and the rest goes to that upstream. A request without a name goes
to the only upstream there is, else to the one whose dialect it speaks.
"""

from __future__ import annotations

import difflib
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
        ConfigError: an address is no http(s) URL, a name is none of the known ones, or is used twice.
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
            named[_known(name, text)] = _address(url, f"--upstream {text}")
        else:
            everywhere = _address(url, f"--upstream {text}")
    found = {}
    for name, (variable, address) in _KNOWN.items():
        url = named.get(name) or everywhere or _address(environ.get(variable) or address, variable)
        found[name] = _upstream(name, url)
    return found


def _known(name: str, text: str) -> str:
    if name in _KNOWN:
        return name
    near = difflib.get_close_matches(name.lower(), _KNOWN, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"--upstream {text}: {name!r} is none of {', '.join(_KNOWN)}{meant}")


def _address(url: str, source: str) -> str:
    """The address, where it is one. Raises `ConfigError`, which names its `source`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{source}: {url!r} is no http(s) address, such as https://api.openai.com/v1")
    return url


def _upstream(name: str, url: str) -> Upstream:
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


def addresses(gateway: str, upstreams: Mapping[str, Upstream]) -> dict[str, str]:
    """The base address that clients of each dialect are told, and of each further upstream."""
    versions = {"openai": "/v1", "anthropic": "", "gemini": ""} | {n: one.version for n, one in upstreams.items()}
    return {name: f"{gateway}/{name}{version}" for name, version in versions.items()}


def environment(
    gateway: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str], *, keys: bool
) -> dict[str, str]:
    """The environment of a program behind the gateway at `gateway` (a URL without a slash at its end).

    Args:
        keys: give clients that refuse to start without a key one that is none; for replays.
    """
    out = dict(environ)
    urls = addresses(gateway, upstreams)
    for name, variables in _VARIABLES.items():
        for variable in variables:
            out[variable] = urls[name]
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
