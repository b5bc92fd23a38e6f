"""The loop guard: notices that an agent goes round in circles, from pairs (canonical call, canonical result).

A pair that is new in the window is progress, wherever its call was seen before. An equal pair is none, unless a side effect
came in between: a test that is run again after an edit is no repetition. Cycles are the shortest run of pairs that stands twice
at the end. Warnings are counted for each pair, so that progress elsewhere does not hide a call that leads nowhere; a cycle has
those of its pairs. `max_warnings` of them stop the run; twice as many, where the call succeeded and there was progress in
between: agents do run a test again after an edit that no tool declares.

    ok        a new pair, or one that a side effect, or the tool's `repeats`, explains
    answered  the same call right after itself: not run, once; asked again it is run, for it may give something else
    warned    again (an equal pair), or a cycle
    loop      the last warning
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct

from kernel.record import GUARD_OK, Call, CallRecord, Guard, GuardVerdict, canonical_json, digest, result_text

_COMPARED_CHARS = 1000
Pair = tuple[str, str]


class Seen(Struct, frozen=True, gc=False):
    """A call of the last steps and what it gave. `epoch` counts the side effects before it."""

    step: int
    call: str
    result: str
    record: CallRecord
    epoch: int = 0


class LoopGuard:
    """Guard of one run. Each method costs O(window), whatever the length of the run.

    Args:
        repeats: by tool, how often the same call may give the same result before it is warned of.
    """

    def __init__(self, settings: Guard, repeats: Mapping[str, int] | None = None) -> None:
        self._settings = settings
        self._repeats = repeats or {}
        self._window: deque[Seen] = deque(maxlen=max(settings.window, 1))
        self._warnings: dict[Pair, int] = {}
        self._streak: dict[Pair, int] = {}  # those since the last progress
        self._repeated: dict[Pair, int] = {}
        self._changing: set[str] = set()
        self._answered: str | None = None
        self._epoch = 0
        self._asked: tuple[Call, str] | None = None

    def repeats_last(self, call: Call, *, side_effect: bool = False) -> Seen | None:
        """The previous call, if this one is the same again; dispatch then answers without running it.

        A call without side effects is answered so once: asked again, it may be one that gives something else each time.
        """
        if not self._settings.enabled or not self._window:
            return None
        last, key = self._window[-1], call_key(call)
        self._asked = call, key
        if last.call != key or last.record.outcome != "ok" or self._repeats.get(call.name):
            return None
        if not side_effect and (key in self._changing or self._answered == key):
            return None
        return last

    def note(self, step: int, records: tuple[CallRecord, ...]) -> GuardVerdict:
        """Take a finished step's calls in and judge it by the one that was warned of most."""
        if not self._settings.enabled or not records:
            return GUARD_OK
        worst, stop = GUARD_OK, False
        for record in records:
            verdict, last = self._note_one(step, record)
            if verdict is not None and (last, verdict.warnings) >= (stop, worst.warnings):
                worst, stop = verdict, last
        if not stop:
            return worst
        return GuardVerdict(
            verdict="loop",
            rule=worst.rule,
            tool=worst.tool,
            seen_step=worst.seen_step,
            period=worst.period,
            cycle=worst.cycle,
            warnings=worst.warnings,
        )

    def _note_one(self, step: int, record: CallRecord) -> tuple[GuardVerdict | None, bool]:
        """What there is to say of one call, and whether that was the last warning."""
        asked, result = self._asked, result_key(record)
        key = asked[1] if asked is not None and asked[0] is record.call else call_key(record.call)
        name = record.call.name
        if record.served_by == "guard" and self._window:
            last, self._answered = self._window[-1], key
            return self._warned("answered", "repeat", name, [(last.call, last.result)])
        self._answered = None
        pair = key, result
        earlier, changed = self._earlier(key, result)
        if earlier is None:
            self._progress(pair, record, changed)
        self._window.append(Seen(step, key, result, record, self._epoch))
        if earlier is None or self._is_allowed(pair, name):
            return None, False
        period = self._period()
        if period > 1:
            return self._warned("warned", "cycle", name, [pair], list(self._window)[-period:])
        if earlier.epoch != self._epoch:
            return None, False
        return self._warned("warned", "again", name, [(earlier.call, result)])

    def _warned(
        self, verdict: Any, rule: str, tool: str, pairs: list[Pair], cycle: list[Seen] | None = None
    ) -> tuple[GuardVerdict, bool]:
        """Count a warning of a pair, the last of `cycle` where it closes one; and whether that was the last warning."""
        for pair in pairs:
            self._warnings[pair] = self._warnings.get(pair, 0) + 1
            self._streak[pair] = self._streak.get(pair, 0) + 1
        if cycle:
            pairs = list({(one.call, one.result) for one in cycle})
            seen_step = self._window[len(self._window) - 2 * len(cycle)].step
        else:
            seen_step = self._first_step(pairs[0])
        warnings = sum(self._warnings.get(pair, 0) for pair in pairs)
        streak = sum(self._streak.get(pair, 0) for pair in pairs)
        failed = not any(result.startswith("ok ") for _, result in pairs)
        most = self._settings.max_warnings
        found = GuardVerdict(
            verdict=verdict,
            rule=rule,
            tool=tool,
            seen_step=seen_step,
            period=len(cycle) if cycle else 0,
            cycle=tuple([f"{one.record.call.name} (step {one.step})" for one in cycle]) if cycle else (),
            warnings=warnings,
        )
        return found, streak >= most or warnings >= (most if failed else 2 * most)

    def _first_step(self, pair: Pair) -> int:
        equal = (seen for seen in self._window if (seen.call, seen.result) == pair)
        return next(seen.step for seen in equal if seen.epoch == self._epoch)

    def _progress(self, pair: Pair, record: CallRecord, changed: bool) -> None:
        """A new pair: nothing is held against its call any more, and after a side effect against none."""
        if changed:
            self._changing.add(pair[0])
        if self._warnings:
            self._streak.clear()
            for stale in [one for one in self._warnings if one[0] == pair[0]]:
                del self._warnings[stale]
        self._repeated.pop(pair, None)
        if has_effect(record):
            self._epoch += 1
            self._warnings.clear()

    def _is_allowed(self, pair: Pair, tool: str) -> bool:
        """Whether the tool's allowance explains another repetition of a pair."""
        used = self._repeated.get(pair, 0)
        if used >= self._repeats.get(tool, 0):
            return False
        self._repeated[pair] = used + 1
        return True

    def _earlier(self, key: str, result: str) -> tuple[Seen | None, bool]:
        """The newest equal pair in the window; and whether the same call gave something else since the last side effect."""
        similarity, changed = self._settings.similarity, False
        for seen in reversed(self._window):
            if seen.call == key:
                if seen.result == result:
                    return seen, changed
                changed = changed or seen.epoch == self._epoch
            elif similarity and seen.result == result and _alike(seen.call, key) >= similarity:
                return seen, changed
        return None, changed

    def _period(self) -> int:
        """Length of the shortest run of pairs that stands twice at the end of the window, or 0."""
        pairs = [(seen.call, seen.result) for seen in self._window]
        for period in range(1, len(pairs) // 2 + 1):
            if pairs[-period:] == pairs[-2 * period : -period]:
                return period
        return 0


def has_effect(record: CallRecord) -> bool:
    """Whether a call changed something, or may have: only a call that reached a tool with side effects has a key."""
    return record.key is not None and record.outcome not in ("duplicate", "denied", "bad_args")


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
