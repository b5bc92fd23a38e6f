"""Drift that was accepted on purpose: which change of the agent, for which fixtures, since when, and why.

Kept beside the fixtures, in `__replays__/accepted.json`, each change once with its text, so that a review reads the change and
not a digest for each step. A fixture whose replay drifts by accepted changes alone passes, and its snapshot stays as it is. Any
other change, also a further one of the same setting, is drift again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel.errors import ConfigError
from kernel.masking import Masker
from kernel.record import canonical_json, digest, to_jsonable
from replay.play import ReplayResult
from replay.suite.paths import ACCEPTED, FOLDER

FORMAT = "accepted drift 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the agent that reaches the model: its cause, the setting, both values by digest, and as a diff."""

    cause: str
    place: str
    was: str
    now: str
    lines: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.place, self.was, self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A change that was accepted for some fixtures, by their names in the folder."""

    change: Change
    since: str
    reason: str
    fixtures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What the accepted changes say of one replay: `since` when all of its drift is accepted, "" where it is not; `stale`
    are accepted changes that the fixture does not show."""

    since: str = ""
    stale: tuple[str, ...] = ()


def changes_of(result: ReplayResult) -> tuple[Change, ...]:
    """The changes by which a replay drifted; none where it did something else than drift, or its file was changed."""
    if result.verdict != "drifted" or any(one.kind != "request" for one in result.divergences):
        return ()
    exercised = [one for one in result.settings if one not in result.unexercised]
    found = [_change(one.cause, one.path, one.recorded, one.observed) for one in exercised]
    rest = [one for one in result.divergences if not one.setting and one.path != "/digest"]
    if not found and not rest:
        rest = list(result.divergences)
    found += [
        _change(one.cause, f"turn {one.turn} step {one.step} {one.path}", one.recorded, one.observed) for one in rest
    ]
    return tuple({change.key: change for change in found}.values())


def _change(cause: str, place: str, recorded: Any, observed: Any) -> Change:
    one, other = (Masker.default().mask(to_jsonable(value)) for value in (recorded, observed))
    was, now = (value.splitlines() if isinstance(value, str) else _lines(value) for value in (one, other))
    lines = tuple(unified_diff(was, now, lineterm="", n=1))[2:]
    return Change(cause=cause, place=place, was=_digest(one), now=_digest(other), lines=lines)


def _lines(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, default=str).splitlines()


def _digest(value: Any) -> str:
    return digest(canonical_json(value))[:16]


def accepted_in(folder: Path) -> tuple[Accepted, ...]:
    """What is accepted for the fixtures of a folder.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = folder / FOLDER / ACCEPTED
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: cannot be read as {FORMAT}: {type(error).__name__}: {error}") from None


@lru_cache(maxsize=64)
def _read(path: Path, _changed_ns: int) -> tuple[Accepted, ...]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}")
    return tuple(
        Accepted(
            change=Change(
                cause=str(one["cause"]),
                place=str(one["place"]),
                was=str(one["was"]),
                now=str(one["now"]),
                lines=tuple(map(str, one["change"])),
            ),
            since=str(one["since"]),
            reason=str(one["reason"]),
            fixtures=tuple(map(str, one["fixtures"])),
        )
        for one in document["accepted"]
    )


def write(folder: Path, accepted: Iterable[Accepted]) -> None:
    """Replace what is accepted for a folder; nothing accepted is no file. Raises `OSError`."""
    path = folder / FOLDER / ACCEPTED
    kept = sorted((one for one in accepted if one.fixtures), key=lambda one: (one.since, one.change.key))
    _read.cache_clear()
    if not kept:
        path.unlink(missing_ok=True)
        return
    entries = [
        {
            "cause": one.change.cause,
            "place": one.change.place,
            "since": one.since,
            "reason": one.reason,
            "change": list(one.change.lines),
            "was": one.change.was,
            "now": one.change.now,
            "fixtures": sorted(one.fixtures),
        }
        for one in kept
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}.tmp")
    try:
        text = json.dumps({"format": FORMAT, "accepted": entries}, ensure_ascii=False, indent=1)
        beside.write_text(text + "\n", encoding="utf-8", newline="\n")
        os.replace(beside, path)
        _read.cache_clear()
    finally:
        beside.unlink(missing_ok=True)


def accept(
    fixture: Path, changes: Sequence[Change], *, today: str, reason: str = "", causes: Collection[str] = ()
) -> tuple[Change, ...]:
    """Accept the changes of one fixture, or those of some causes; what it does not show any more is taken back.

    Returns what was not accepted before. Raises `ConfigError` and `OSError`.
    """
    folder, name = fixture.parent, fixture.name
    chosen = {one.key: one for one in changes if not causes or one.cause in causes}
    shown = {one.key for one in changes}
    kept: dict[tuple[str, str, str], Accepted] = {}
    new = dict(chosen)
    for one in accepted_in(folder):
        if name in one.fixtures and one.change.key in shown:
            new.pop(one.change.key, None)
        elif one.change.key in chosen:
            one = replace(one, fixtures=(*one.fixtures, name))
        else:
            one = replace(one, fixtures=tuple(fixture for fixture in one.fixtures if fixture != name))
        kept[one.change.key] = one
    for key, change in chosen.items():
        if key not in kept:
            kept[key] = Accepted(change=change, since=today, reason=reason, fixtures=(name,))
    write(folder, kept.values())
    return tuple(new.values())


def withdraw(fixture: Path) -> int:
    """Take back all that is accepted for a fixture; how many changes that were."""
    folder, name = fixture.parent, fixture.name
    before = accepted_in(folder)
    there = sum(name in one.fixtures for one in before)
    if there:
        write(folder, [replace(one, fixtures=tuple(f for f in one.fixtures if f != name)) for one in before])
    return there


def acceptance(fixture: Path, result: ReplayResult) -> Acceptance:
    """What is accepted of a replay's drift. Raises `ConfigError` where the file cannot be read."""
    there = [one for one in accepted_in(fixture.parent) if fixture.name in one.fixtures]
    if not there:
        return Acceptance()
    changes = {one.key for one in changes_of(result)}
    known = {one.change.key for one in there}
    stale = tuple(f"{one.change.cause} {one.change.place}" for one in there if one.change.key not in changes)
    since = max(one.since for one in there if one.change.key in changes) if changes and changes <= known else ""
    return Acceptance(since=since, stale=stale)
