"""What the model is shown of a result: bounded text that says what was left out, and the store that keeps the whole.

The recorded value of an observation is never touched here. `show` makes the shown one; `ArtifactStore` keeps texts that
were too long to show, and reads ranges of them back.

Lengths and positions are counted in characters (Unicode code points), as `len` does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

Language = Literal["en", "zh"]

_NAMED_HANDLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The text for the model. `shown_chars` of the original's `full_chars` are in it; the cut mark is not counted."""

    text: str
    truncated: bool
    full_chars: int
    shown_chars: int


class CutMark(Protocol):
    """Makes the text that stands where something was left out; called again for each size that is tried."""

    def __call__(self, cut: int, total: int, handle: str | None, language: Language, *, start: int) -> str:
        """Say that `cut` of `total` characters are missing from position `start` on, and where to read them."""
        ...


def cut_mark(cut: int, total: int, handle: str | None, language: Language, *, start: int | None = None) -> str:
    """The standard cut mark, on a line of its own: how much was cut, of how much, and the call that reads it."""
    call = None
    if handle is not None:
        name = json.dumps(handle, ensure_ascii=False)
        call = f"read_range(handle={name})" if start is None else f"read_range(handle={name}, start={start})"
    if language == "zh":
        more = "" if call is None else f"继续读取：{call}"
        return f"\n[已截断：全文 {total} 字符，此处省略 {cut} 字符，已显示 {total - cut} 字符。{more}]\n"
    more = "" if call is None else f" To read on: {call}"
    return f"\n[Cut: {cut} of {total} characters are left out here, {total - cut} are shown.{more}]\n"


def show(
    text: str,
    *,
    limit: int,
    handle: str | None = None,
    language: Language = "en",
    mark: CutMark = cut_mark,
) -> Shown:
    """Bound `text` to `limit` characters, the cut mark included: head, mark, tail.

    A text that fits is shown as it is. Where the limit leaves no room for the mark, shorter ones stand in, down to a
    bare "…"; with a limit of 0 nothing is shown. A surrogate pair is never split. O(limit), deterministic.

    Raises:
        ValueError: `limit` is negative.
    """
    if limit < 0:
        raise ValueError(f"limit is {limit} characters; it must be 0 or more")
    total = len(text)
    if total <= limit:
        return Shown(text=text, truncated=False, full_chars=total, shown_chars=total)
    for form in (mark, _short_mark, _bare_mark, _dots):
        shown = _fit(text, limit, partial(form, total=total, handle=handle, language=language))
        if shown is not None:
            return shown
    return Shown(text="", truncated=True, full_chars=total, shown_chars=0)


class _SizedMark(Protocol):
    def __call__(self, cut: int, *, start: int) -> str: ...


def _fit(text: str, limit: int, mark: _SizedMark) -> Shown | None:
    """Head and tail of `text` around `mark` within `limit`, as long as can be; None where the mark is too long."""
    total = len(text)
    room = limit
    while room >= 0:
        head = (room + 1) // 2
        head -= _splits_pair(text, head)
        tail = total - room // 2
        tail += _splits_pair(text, tail)
        shown = text[:head] + mark(tail - head, start=head) + text[tail:]
        if len(shown) <= limit:
            return Shown(text=shown, truncated=True, full_chars=total, shown_chars=head + total - tail)
        room -= len(shown) - limit
    return None


def _short_mark(cut: int, total: int, handle: str | None, language: Language, *, start: int) -> str:
    where = "" if handle is None else f" {handle}"
    return f"\n[{'截断' if language == 'zh' else 'cut'} {cut}/{total}{where}]\n"


def _bare_mark(cut: int, total: int, handle: str | None, language: Language, *, start: int) -> str:
    return "[截断]" if language == "zh" else "[cut]"


def _dots(cut: int, total: int, handle: str | None, language: Language, *, start: int) -> str:
    return "…"


def _splits_pair(text: str, position: int) -> bool:
    """Whether a cut before `position` would part a surrogate pair (two code units that a bad decoder left in)."""
    return (
        0 < position < len(text)
        and "\ud800" <= text[position - 1] <= "\udbff"
        and "\udc00" <= text[position] <= "\udfff"
    )


class ArtifactError(ValueError):
    """A range was asked for that cannot be read; the message is written for the model, in the store's language."""


class ArtifactStore:
    """The long texts of one run, in memory. Handles count up in order of `put`, so a replay gets the same ones.

    Args:
        limit: The most characters one read returns, its first line included. Give the limit of `show`, so that what was
            read is not cut again.
        language: Of the first line and of errors.
    Raises:
        ValueError: `limit` is less than 2 (a surrogate pair).
    """

    def __init__(self, *, limit: int = 8000, language: Language = "en") -> None:
        if limit < 2:
            raise ValueError(f"limit is {limit} characters; one read must be able to return at least 2")
        self._limit = limit
        self._language: Language = language
        self._texts: dict[str, str] = {}
        self._handles: dict[str, str] = {}

    def put(self, text: str) -> str:
        """Keep `text` and return its handle: `artifact-1`, `artifact-2`, …. An equal text keeps its first handle."""
        handle = self._handles.get(text)
        if handle is None:
            handle = f"artifact-{len(self._texts) + 1}"
            self._handles[text] = handle
            self._texts[handle] = text
        return handle

    def handles(self) -> tuple[str, ...]:
        """The known handles, oldest first."""
        return tuple(self._texts)

    def get(self, handle: str) -> str:
        """The whole text. Raises `ArtifactError`, which names the known handles."""
        if handle not in self._texts:
            raise ArtifactError(_unknown_handle(handle, self.handles(), self._language))
        return self._texts[handle]

    def read_range(self, handle: str, start: int = 0, *, end: int | None = None, length: int | None = None) -> str:
        """Characters from `start` (counted from 0) up to but without `end`, under a line that says which they are.

        Without `end` and `length`, as much as one read returns. A range that reaches outside the text, or is longer
        than one read returns, is cut down to what there is; the line then says what was asked for, and where to read
        on. A read from inside the text always returns some of it: for a tiny limit the line is shortened or left out.

        Raises:
            ArtifactError: the handle is unknown (the message names the known ones), or `end` and `length` both given.
        """
        text = self.get(handle)
        if end is not None and length is not None:
            raise ArtifactError(_both_given(handle, start, length, self._language))
        if end is None:
            end = len(text) if length is None else start + length
        first = min(max(start, 0), len(text))
        last = max(min(end, len(text)), first)
        first -= _splits_pair(text, first)
        last += _splits_pair(text, last)
        for line in (_range_line, _short_range_line):
            heading = partial(line, handle=handle, total=len(text), asked=(start, end), language=self._language)
            found = _fit_range(text, first, last, self._limit, heading)
            if found is not None:
                return found
        stop = min(last, first + self._limit)
        return text[first : stop - _splits_pair(text, stop)]


class _Heading(Protocol):
    def __call__(self, first: int, stop: int) -> str: ...


def _fit_range(text: str, first: int, last: int, limit: int, heading: _Heading) -> str | None:
    """Heading and as much of the range as fits `limit`; None where the heading leaves no room for any of it."""
    room = min(last - first, limit)
    while room >= 0:
        stop = first + room
        stop -= _splits_pair(text, stop)
        if stop == first < last:
            return None
        found = heading(first, stop) + text[first:stop]
        if len(found) <= limit:
            return found
        room -= len(found) - limit
    return None


def _range_line(first: int, stop: int, *, handle: str, total: int, asked: tuple[int, int], language: Language) -> str:
    differs = asked != (first, stop)
    if language == "zh":
        note = f"；请求的是 {asked[0]} 到 {asked[1]}" if differs else ""
        more = f"；继续读取：start={stop}" if stop < total else ""
        return f"[{handle}：第 {first} 到 {stop} 字符，全文 {total} 字符{note}{more}]\n"
    note = f"; asked for {asked[0]} to {asked[1]}" if differs else ""
    more = f"; to read on: start={stop}" if stop < total else ""
    return f"[{handle}: characters {first} to {stop} of {total}{note}{more}]\n"


def _short_range_line(
    first: int, stop: int, *, handle: str, total: int, asked: tuple[int, int], language: Language
) -> str:
    return f"[{first}-{stop}/{total}]\n"


def _unknown_handle(handle: str, known: tuple[str, ...], language: Language) -> str:
    names = ", ".join(known[-_NAMED_HANDLES:])
    if len(known) > _NAMED_HANDLES:
        names = f"…, {names}"
    if language == "zh":
        remedy = f"可用的名称：{names}。" if known else "本次运行还没有保存任何长文本。"
        return f"没有名为 {handle!r} 的文本。{remedy}"
    remedy = f"Known: {names}." if known else "This run has kept no long text yet."
    return f"There is no artifact {handle!r}. {remedy}"


def _both_given(handle: str, start: int, length: int, language: Language) -> str:
    call = f"read_range(handle={json.dumps(handle)}, start={start}, length={length})"
    if language == "zh":
        return f"end 和 length 只能给出一个，例如 {call}。"
    return f"Give either end or length, not both; for example {call}."
