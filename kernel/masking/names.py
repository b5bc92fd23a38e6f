"""Which names announce a secret, and which values under such a name are one.

Dict keys, HTTP header names, `.env` names and `name = value` in text are all judged by the two functions here, so
that a secret is masked alike in parsed arguments and in the raw text they were parsed from.
"""

import re
from functools import lru_cache
from typing import Final

from kernel.masking.placeholder import PLACEHOLDER

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PASSWORDS: Final = ("password", "passwd", "passphrase", "passcode")
_SECRETS: Final = (
    "secret",
    "apikey",
    "secretkey",
    "accesskey",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "bearertoken",
)
_KEY_OF: Final = frozenset(
    {
        "api", "secret", "private", "access", "signing", "encryption", "master", "account", "shared",
        "subscription", "auth", "service", "ssh", "deploy", "webhook"
    }
)  # fmt: skip
_PLAIN_KEY_OF: Final = frozenset(
    {
        "public", "primary", "foreign", "cache", "idempotency", "sort", "partition", "map", "dict", "row",
        "index"
    }
)  # fmt: skip
# A token that is a piece of text or a place in a list, not a credential; `*_tokens` are counts and never match.
_PLAIN_TOKEN_OF: Final = frozenset(
    {
        "next", "page", "continuation", "sync", "resume", "cancel", "cancellation", "eos", "bos", "pad",
        "unk", "stop", "special", "first", "last", "start", "end", "sep", "cls", "mask", "image", "audio",
        "video", "text", "per", "max", "min", "prompt", "completion", "input", "output", "current",
        "previous", "client", "idempotency", "count"
    }
)  # fmt: skip
_NOT_A_VALUE: Final = frozenset(
    {
        "none", "null", "nil", "undefined", "true", "false", "yes", "no", "on", "off", "string", "str",
        "text", "bytes", "int", "number", "bool", "boolean", "any", "object", "array", "optional", "required",
        "redacted", "masked", "hidden", "removed", "filtered", "password", "passwd", "secret", "token",
        "api_key", "apikey", "include", "omit", "same-origin", "invalid", "incorrect", "wrong", "missing",
        "empty", "unset", "bearer", "basic"
    }
)  # fmt: skip
_REFERENCE: Final = re.compile(
    r"\$[A-Z_][A-Z0-9_]*$|\$?\{[^{}]*\}$|\$?\{\{.*\}\}$|\$\(|<[^>]*>$|%[A-Z0-9_]+%$|\[[A-Za-z ]+\]$"
    r"|(?:env|vault|ssm|op):|os\.(?:environ|getenv)|process\.env\."
)
_BLANKED: Final = re.compile(r"[*xX.•…#_-]+")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|apikey|api-key|key|aws4-hmac-sha256)[ \t]+(?=\S)", re.I)
MAX_NAME: Final = 80


@lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str | None:
    """The kind of secret that `name` announces, or None: counts, ids, page tokens and public keys are no secrets."""
    name = name.rpartition(".")[2]
    words = _words(name)
    if not words:
        return None
    last, before, joined = words[-1], words[-2] if len(words) > 1 else "", "".join(words)
    if joined.endswith(_PASSWORDS) or last == "pwd":
        return "password"
    if last == "authorization":
        return "authorization"
    if last in ("cookie", "cookies"):
        return "cookie"
    if joined.endswith("privatekey"):
        return "private-key"
    if last == "token" and before in _PLAIN_TOKEN_OF:
        return None
    if joined.endswith(_SECRETS) or last in ("token", "jwt", "secrets", "credential", "credentials"):
        return "secret"
    if last == "signature" and before in ("amz", "goog"):
        return "secret"
    if last == "key" and (before in _KEY_OF or (name.isupper() and before and before not in _PLAIN_KEY_OF)):
        return "secret"
    return None


def secret_in(name: str, kind: str, value: str) -> int | None:
    """Where the secret begins in the whole `value` found under `name`, or None; it ends where the value ends.

    An authentication scheme stays readable. Blanks, variables, templates, type words and placeholders are no secrets.
    """
    scheme = _SCHEME.match(value)
    start = scheme.end() if scheme and kind != "password" else 0
    secret = value[start:].strip()
    if secret.lower() in _NOT_A_VALUE or len(secret) < 2 or _REFERENCE.match(secret) or _BLANKED.fullmatch(secret):
        return None
    if PLACEHOLDER.fullmatch(secret):
        return None
    words = _words(name)
    # A lone `token` is also what tokenizers and log-probabilities call a piece of text; `FOO_KEY` may be any key.
    if words in (["token"], ["jwt"]) or (words[-1:] == ["key"] and not _KEY_OF.intersection(words[-2:-1])):
        # What a placeholder is part of was judged before it came there, when it may not have looked random.
        return start if looks_random(secret) and not PLACEHOLDER.search(secret) else None
    if words[-1:] == ["pwd"] and secret[0] in "/~.\\":  # the working directory
        return None
    return start


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name[-MAX_NAME:])]


def looks_random(value: str) -> bool:
    """Whether `value` is one word of letters with digits, or a very long word: what generated credentials look like."""
    if any(c.isspace() for c in value):
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (len(value) >= 8 and mixed) or len(value) >= 24
