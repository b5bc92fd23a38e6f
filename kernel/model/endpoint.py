"""Where a model is: the URL and headers of its calls, what messages may say of them, and how its statuses are read."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit, urlunsplit

from kernel.errors import ConfigError

_SHOWN_BODY_CHARS = 300
_SECRET_CHARS = 8  # a shorter header value is no key, and hiding it would blot out ordinary words


class Endpoint:
    """The chat completions endpoint under `base_url`, whose query is kept.

    `url` is for the client, `shown` for messages; `headers` hold the key.

    Raises:
        ConfigError: a URL, key or header that cannot work; the message does not repeat a secret.
    """

    __slots__ = ("_secrets", "headers", "host", "shown", "url")

    def __init__(self, base_url: str, *, api_key: str | None, headers: Mapping[str, str]) -> None:
        url = _split(base_url)
        path = url.path.rstrip("/")
        path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
        self.url = urlunsplit(url._replace(path=path, fragment=""))
        self.shown = f"{url.scheme}://{url.netloc}{path}"
        self.host = url.hostname or ""
        key = (api_key or "").strip()
        self.headers = _headers(key, headers)
        words = {word for value in headers.values() for word in value.split() if len(word) >= _SECRET_CHARS}
        self._secrets = tuple(sorted(words | ({key} if key else set()), key=len, reverse=True))

    def hide(self, text: str) -> str:
        """`text` without the key, and without the values of the headers a user gave; a short one only as a word."""
        for secret in self._secrets:
            if len(secret) >= _SECRET_CHARS:
                text = text.replace(secret, "[secret]")
            else:
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[secret]", text)
        return text

    def excerpt(self, body: bytes) -> str:
        """The start of a body, on one line of at most 300 printable characters.

        Secrets are hidden before the cut, which could otherwise leave half of one.
        """
        text = " ".join(self.hide(body.decode("utf-8", "replace")).split())
        text = "".join(char if char.isprintable() else "\ufffd" for char in text[: _SHOWN_BODY_CHARS + 1])
        return text if len(text) <= _SHOWN_BODY_CHARS else text[: _SHOWN_BODY_CHARS - 1] + "…"


def kind_of(status: int) -> tuple[str, bool]:
    """The `ModelError` kind of a status, and whether trying again may help."""
    if status == 429:
        return "rate_limited", True
    if status in (401, 403):
        return "auth", False
    if status in (408, 409, 425) or status >= 500:
        return "server", True
    return "rejected", False


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds a server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date (RFC 9110, 10.2.3).

    A date is taken relative to the answer's own `Date`, so neither clock matters. `None` where nothing readable is.

    Args:
        headers: looked up as `retry-after-ms`, `Retry-After` and `Date`; a case-blind mapping is expected.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("Retry-After", 1.0)):
        with contextlib.suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit_s
            if math.isfinite(seconds):
                return max(0.0, seconds)
    try:
        until = parsedate_to_datetime(headers.get("Retry-After", ""))
        answered = parsedate_to_datetime(headers.get("Date", ""))
        return max(0.0, (until - answered).total_seconds())
    except (ValueError, TypeError, OverflowError):  # TypeError: only one of the two has a time zone
        return None


def place(url: str) -> str:
    """A URL, quoted, without what may be secret in it: user, query and fragment."""
    bare = url.split("?")[0].split("#")[0].strip()
    scheme, separator, rest = bare.rpartition("://")
    host, slash, path = rest.partition("/")
    return repr(f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}")


def _split(base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url.strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"base_url: {place(base_url)} is not an http or https URL; give one such as https://api.openai.com/v1"
        )
    if url.username is not None or url.password is not None:
        raise ConfigError(f"base_url: {place(base_url)} comes with a user or password; use api_key, or headers")
    return url


def _headers(key: str, own: Mapping[str, str]) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    given = {name.strip().lower(): value.strip() for name, value in own.items()}
    headers.update(given)
    for name, value in headers.items():
        if not (name + value).isascii() or not (name + value).isprintable():
            source = f"headers[{name!r}]" if name in given else "api_key"
            raise ConfigError(f"{source}: holds a line break or a character outside ASCII; no HTTP header can")
    return headers
