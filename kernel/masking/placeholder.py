"""The placeholder that stands for a masked secret.

Form: `~masked.KIND.DIGEST~`, for example `~masked.openai-key.1a2b3c4d~`. It is made only of characters that JSON,
URLs, HTML, terminals, rich markup and the tool-call syntaxes of models leave alone, so one placeholder reads the
same in a parsed argument, in JSON text inside JSON text, in a URL and in a report, and a masked model reply still
parses.

The digest has no salt: the same secret gets the same placeholder in every process, which is what lets a replay
match. That also lets anybody who holds a trace test a guess. A guess at a random API key is hopeless, so keys carry
8 hex digits. For what people choose themselves (passwords, cookies, values found by their name only, personal data,
kinds a user adds) the digest is cut to 4 hex digits: of a list of a million guesses about fifteen fit, so none is
proved. The price is that two different weak secrets share a placeholder once in 65,536 pairs. A `key` makes the
digest a keyed one; guesses then need the key.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

PLACEHOLDER: Final = re.compile(r"~masked\.[a-z0-9]+(?:-[a-z0-9]+)*\.(?:[0-9a-f]{8}|[0-9a-f]{4})~")
MARK: Final = "~masked."
_KIND: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PERSON: Final = b"tracefirst.mask"
_LINE_ENDS: Final = re.compile(r"\\+[nrt]|\s+")


def check_kind(kind: str) -> str:
    """Return `kind`. Raises ValueError unless it is lower-case words joined by hyphens."""
    if not _KIND.fullmatch(kind):
        raise ValueError(
            f"mask kind {kind!r}: use lower-case letters, digits and single hyphens, such as 'customer-pin'"
        )
    return kind


def placeholder(kind: str, secret: str, *, strong: bool = False, key: bytes = b"") -> str:
    """The text that replaces `secret`; equal secrets of one kind get equal text.

    Args:
        strong: The secret is random and long, so that 8 digest digits give nothing away; otherwise 4 are shown.
        key: Up to 64 bytes; the same key must be used wherever placeholders are to match.
    """
    if kind == "private-key":  # one key, whether its line ends are real, escaped, or escaped twice
        secret = _LINE_ENDS.sub("", secret)
    data = secret.encode("utf-8", "surrogatepass")
    digest = blake2b(data, digest_size=4, person=_PERSON, key=key).hexdigest()
    return f"{MARK}{kind}.{digest if strong else digest[:4]}~"


def contains_placeholder(value: Any) -> bool:
    """Whether any string or dict key of JSON-like `value` holds one; it must then not reach a live model or tool."""
    return any(MARK in text and PLACEHOLDER.search(text) for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
