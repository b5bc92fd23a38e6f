"""Secrets that were found once, by their name, their form or a rule: wherever their value stands later, it is masked too.

A value alone is only looked for where it cannot be an ordinary word: short ones and plain words stay where no name announces
them. Its spellings in JSON, URLs and XML count.
"""

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final
from urllib.parse import quote

from kernel.masking.placeholder import PLACEHOLDER
from kernel.masking.walk import rewrite

_SHORTEST: Final = 6  # characters; a shorter value is looked for nowhere else
_PART_OF_A_WORD: Final = 10  # characters; a shorter value is looked for as a whole word only
_LONG: Final = 20  # characters; no ordinary word is longer
_EDGES: Final = re.compile(r"^\W+|\W+$")
SHORTEST_NAMED: Final = 3  # characters; within the reply that names it, a shorter value is too short to be replaced


def is_distinct(secret: str) -> bool:
    """Whether a value is that secret wherever it stands: long, or of letters with digits or signs; never a number."""
    core = _EDGES.sub("", secret)
    if len(core) < _SHORTEST or PLACEHOLDER.search(secret):
        return False
    letters = sum(char.isalpha() for char in core)
    return letters > 0 and (len(core) >= _LONG or letters < len(core.replace(" ", "")))


def spellings(secret: str) -> list[str]:
    """How a value may be written, the longest first."""
    found = {secret, quote(secret, safe=""), escape(secret), escape(secret, quote=False)}
    found |= {json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    return sorted(found, key=lambda text: (-len(text), text))


class Known:
    """The secrets of one run, each with its placeholder."""

    def __init__(self) -> None:
        self._stand_ins: dict[str, str] = {}  # spellings, longest first
        self._pattern: re.Pattern[str] | None = None

    def learn(self, secrets: dict[str, str]) -> None:
        """Remember secrets, given with their placeholders, that can be told by their value."""
        new = {s: stand_in for secret, stand_in in secrets.items() if is_distinct(secret) for s in spellings(secret)}
        if new.keys() <= self._stand_ins.keys():
            return
        both = {**new, **self._stand_ins}
        self._stand_ins = {text: both[text] for text in sorted(both, key=lambda text: (-len(text), text))}
        self._pattern = re.compile("|".join(map(_searched, self._stand_ins)))

    def mask_text(self, text: str) -> str:
        """`text` without known values; `text` itself where it holds none."""
        if self._pattern is None or self._pattern.search(text) is None:
            return text
        return self._pattern.sub(lambda match: self._stand_ins[match[0]], text)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where known values stand in `text`."""
        return iter(()) if self._pattern is None else (match.span() for match in self._pattern.finditer(text))

    def mask(self, value: Any) -> Any:
        """JSON-like `value` without known values in its strings; `value` itself where it holds none."""
        return (
            value if self._pattern is None else rewrite(value, lambda text, _, __: self.mask_text(text), self.mask_text)
        )


def _searched(spelling: str) -> str:
    text = re.escape(spelling)
    return text if len(spelling) >= _PART_OF_A_WORD else rf"(?<!\w){text}(?!\w)"
