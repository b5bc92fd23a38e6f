"""The loop guard: notices that an agent goes round in circles, from pairs (canonical call, canonical result).

An equal pair anywhere in the window is no progress; a new result is progress, wherever the call was seen before.
Cycles are the shortest run of pairs that stands twice at the end. Each step without progress is a warning; progress
clears them; `max_warnings` in a row stop the run.
"""

from __future__ import annotations

from collections import deque
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct

from kernel.record import GUARD_OK, Call, CallRecord, Guard, GuardVerdict, canonical_json, digest, result_text

_COMPARED_CHARS = 1000


class Seen(Struct, frozen=True):
    """A call of the last steps and what it gave."""

    step: int
    call: str
    result: str
    record: CallRecord


class LoopGuard:
    """Guard of one run. Each method costs O(window), whatever the length of the run."""

    def __init__(self, settings: Guard) -> None:
        self._settings = settings
        self._window: deque[Seen] = deque(maxlen=max(settings.window, 1))
        self._warnings = 0
        self._asked: tuple[Call, str] | None = None

    def repeats_last(self, call: Call) -> Seen | None:
        """The previous call, if this one is the same again; dispatch then answers without running it."""
        if not self._settings.enabled or not self._window:
            return None
        last, key = self._window[-1], call_key(call)
        self._asked = call, key
        return last if last.call == key and last.record.outcome == "ok" else None

    def note(self, step: int, records: tuple[CallRecord, ...]) -> GuardVerdict:
        """Take a finished step's calls in and judge it by its last call that made no progress, if none made any."""
        if not self._settings.enabled or not records:
            return GUARD_OK
        found: GuardVerdict | None = None
        progress = False
        for record in records:
            verdict = self._note_one(step, record)
            if verdict is None:
                progress = True
            else:
                found = verdict
        if progress or found is None:
            self._warnings = 0
            return GUARD_OK
        self._warnings += 1
        stop = self._warnings >= self._settings.max_warnings
        return GuardVerdict(
            verdict="loop" if stop else found.verdict,
            rule=found.rule,
            tool=found.tool,
            seen_step=found.seen_step,
            period=found.period,
            warnings=self._warnings,
        )

    def _note_one(self, step: int, record: CallRecord) -> GuardVerdict | None:
        asked, result = self._asked, result_key(record)
        key = asked[1] if asked is not None and asked[0] is record.call else call_key(record.call)
        name = record.call.name
        earlier = self._earlier(key, result)
        answered = record.served_by == "guard"
        if answered and self._window:
            last = self._window[-1]
            return GuardVerdict(verdict="answered", rule="repeat", tool=name, seen_step=last.step)
        self._window.append(Seen(step, key, result, record))
        if earlier is None:
            return None
        period = self._period()
        if period > 1:
            start = self._window[len(self._window) - 2 * period].step
            return GuardVerdict(verdict="warned", rule="cycle", tool=name, seen_step=start, period=period)
        return GuardVerdict(verdict="warned", rule="again", tool=name, seen_step=earlier.step)

    def _earlier(self, key: str, result: str) -> Seen | None:
        similarity = self._settings.similarity
        for seen in reversed(self._window):
            if seen.result == result and (seen.call == key or (similarity and _alike(seen.call, key) >= similarity)):
                return seen
        return None

    def _period(self) -> int:
        """Length of the shortest run of pairs that stands twice at the end of the window, or 0."""
        pairs = [(seen.call, seen.result) for seen in self._window]
        for period in range(1, len(pairs) // 2 + 1):
            if pairs[-period:] == pairs[-2 * period : -period]:
                return period
        return 0


def _alike(one: str, other: str) -> float:
    """How alike two calls of the same tool are, from 0 to 1; calls of different tools are not alike."""
    if one.partition(" ")[0] != other.partition(" ")[0]:
        return 0.0
    return SequenceMatcher(None, one[:_COMPARED_CHARS], other[:_COMPARED_CHARS], autojunk=False).ratio()


def call_key(call: Call) -> str:
    """A call's identity for the guard: tool and canonical arguments; ids, key order and spacing do not count."""
    return f"{call.name} {canonical_json(call.args)}"


def result_key(record: CallRecord) -> str:
    """A result's identity: outcome, value and error."""
    error: Any = None if record.error is None else [record.error.type, record.error.message]
    text = result_text(record.result)
    if len(text) > 256:
        text = digest(text)
    return f"{record.outcome} {text} {error}"
