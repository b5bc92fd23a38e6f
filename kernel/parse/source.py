"""The text that the families read, and what all of them ask of it: where its code blocks are, which tools are known."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from operator import itemgetter

NAMES_OF_ENDING = frozenset({"finish", "final_answer"})
"""The actions that end a run; no tool of that name is needed."""
_FENCE = re.compile(r"^[ \t>]{0,8}(?:```|~~~)[ \t]{0,8}(?P<lang>[\w+.-]{0,30})", re.MULTILINE)
_CALL_LANGUAGES = frozenset(
    {"", "json", "json5", "jsonc", "jsonl", "tool_call", "tool_calls", "tool", "tool_use", "function_call", "action"}
    | {"xml", "text", "txt", "plaintext", "plain", "tool_code", "react"}
)


class Source:
    """The text a family reads, with thinking blanked out so that every offset is an offset in the raw text."""

    __slots__ = ("_fences", "shown", "text", "tool_names")

    def __init__(self, text: str, tool_names: frozenset[str]) -> None:
        self.text = text
        self.tool_names = tool_names
        self.shown: list[tuple[int, int]] = []
        """Where calls stand that are only shown: no other family reads them again."""
        self._fences: list[re.Match[str]] | None = None

    def knows(self, name: str) -> bool:
        """Whether a call of this name can be meant: a tool's, or the one that ends the run."""
        return name in self.tool_names or (bool(self.tool_names) and name.lower() in NAMES_OF_ENDING)

    def show(self, start: int, end: int) -> None:
        """Note a call that is only shown; the spans stay ordered and apart."""
        at = bisect_right(self.shown, start, key=itemgetter(0))
        if not self.is_in_shown(start):
            self.shown.insert(at, (start, end))

    def is_in_shown(self, pos: int) -> bool:
        """Whether `pos` stands in a call that is only shown."""
        at = bisect_right(self.shown, pos, key=itemgetter(0)) if self.shown else 0
        return at > 0 and pos < self.shown[at - 1][1]

    def fence_open_at(self, pos: int) -> re.Match[str] | None:
        """The opening fence of the block that `pos` stands in."""
        fences = self._all_fences()
        at = bisect_left(fences, pos, key=re.Match[str].start)
        return fences[at - 1] if at % 2 else None

    def fence_behind(self, pos: int) -> int:
        """The offset behind the next fence at or after `pos`, or the end of the text."""
        fence = self.next_fence(pos)
        return fence.end() if fence else len(self.text)

    def next_fence(self, pos: int) -> re.Match[str] | None:
        """The first fence at or after `pos`."""
        fences = self._all_fences()
        at = bisect_left(fences, pos, key=re.Match[str].start)
        return fences[at] if at < len(fences) else None

    def is_code(self, pos: int) -> bool:
        """Whether `pos` stands in a block of a language that calls are not written in."""
        fence = self.fence_open_at(pos)
        return fence is not None and fence["lang"].lower() not in _CALL_LANGUAGES

    def _all_fences(self) -> list[re.Match[str]]:
        if self._fences is None:
            self._fences = list(_FENCE.finditer(self.text)) if "```" in self.text or "~~~" in self.text else []
        return self._fences
