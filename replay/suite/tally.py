"""What a run found: counts of verdicts and snapshots, and the lines at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from replay.suite.settings import Settings

VERDICTS = ("same", "drifted", "diverged", "not_checked")
RARE_VERDICTS = ("crashed", "imported")
NOT_EQUAL = ("missing", "stale", "changed", "unusable")
PREFIX = "replay_"

_CHANGE_LINES, _DIFFERENCE_LINES = 12, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A snapshot that was written: `state` is `written` or `updated`, `ended` how each run of the recording ended."""

    node: str
    state: str
    ended: str
    changes: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Filled from the reports of the items, so that it holds what workers did too.

    `written` and `recorded` are of this process alone: it writes in a serial run only. `keys` are the entries of the
    agents' table that decided for a recording.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    snapshots: Counter[str] = field(default_factory=Counter)
    served: int = 0
    agents: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    rules: dict[str, bool] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    drifted: list[str] = field(default_factory=list)
    accepted: int = 0
    written: list[Written] = field(default_factory=list)
    recorded: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    unused: list[Path] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    kept_because: str = ""
    not_all: str = ""
    complaints: list[str] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        return sum(self.verdicts.values())

    def add(self, report: pytest.TestReport) -> None:
        """Count a report's replay: once, when the item is done; its drift when its test passed."""
        self.nodes.add(report.nodeid)
        found = {name: value for name, value in report.user_properties if name.startswith(PREFIX)}
        if report.outcome == "failed" or (report.outcome == "skipped" and hasattr(report, "wasxfail")):
            self._told.add(report.nodeid)
        if report.when == "call" and report.outcome == "passed" and found.get("replay_drift"):
            since = found["replay_accepted"]
            how = f"passed, accepted since {since}" if since else "passed"
            self.drifted.append(f"{how}, {found['replay_drift']}: {report.nodeid}")
            self.accepted += bool(since)
        if report.when == "teardown" and found:
            self._count(report.nodeid, found)

    def _count(self, node: str, found: dict[str, Any]) -> None:
        self.ran.add(node.partition("::")[0])
        self.verdicts[str(found["replay_verdict"])] += 1
        self.snapshots[str(found["replay_snapshot"])] += 1
        self.served += int(found["replay_served"])
        self.agents.add(str(found["replay_agent"]))
        self.keys.add(str(found["replay_key"]))
        for rule, matched in found["replay_rules"]:
            self.rules[str(rule)] = self.rules.get(str(rule), False) or bool(matched)
        if found["replay_stale"]:
            self.complaints.append(
                f"accepted drift is not there any more: {node} ({found['replay_stale']}); take it back with "
                "`replay accept FILE --undo`, or accept anew"
            )
        if found["replay_failure"] and node not in self._told:
            self.complaints.append(
                f"swallowed: {node} did not fail although its replay did ({found['replay_failure']}); "
                "a test that looks at such a replay itself says check=False in its marker"
            )

    def lines(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """The lines at the end of a run, each with a colour or "": what was written, what is unused, the counts."""
        yield from ((line, "yellow") for line in self.drifted)
        yield from ((line, "") for line in self._updates(settings))
        yield from ((line, "yellow") for line in self._unused(settings))
        yield from ((f"replay: {complaint}", "red") for complaint in self.complaints)
        if self.not_all:
            yield f"replay: {self.not_all}", "red" if self.complaints else "yellow"
        if self.total:
            shown = [*VERDICTS, *(verdict for verdict in RARE_VERDICTS if self.verdicts[verdict])]
            found = ", ".join(f"{self.verdicts[verdict]} {verdict.replace('_', ' ')}" for verdict in shown)
            bad: bool = any(self.verdicts[v] for v in ("diverged", "crashed", "not_checked")) or bool(self.complaints)
            bad = bad or (self.verdicts["drifted"] > self.accepted and not settings.allow_drift)
            yield f"replay: {found}; model replies served {self.served}, live 0", "red" if bad else "green"
        if differ := [f"{self.snapshots[state]} {state}" for state in NOT_EQUAL if self.snapshots[state]]:
            yield f"replay: snapshots {', '.join(differ)}", "red"

    def _updates(self, settings: Settings) -> Iterator[str]:
        for node, differences in self.recorded:
            yield f"recorded {node}" + (":" if differences else "")
            yield from (f"  {line}" for line in differences[:_DIFFERENCE_LINES])
            if len(differences) > _DIFFERENCE_LINES:
                yield f"  ... {len(differences) - _DIFFERENCE_LINES} more lines: git diff"
        for one in self.written:
            added = sum(change.startswith("+") for change in one.changes)
            removed = sum(change.startswith("-") for change in one.changes)
            lines = f"{added} lines" if one.state == "written" else f"+{added} -{removed}"
            yield f"{one.state} {one.node}: {lines}; ended with {one.ended}"
            if one.state == "updated":
                yield from (f"  {change}" for change in one.changes[:_CHANGE_LINES])
                if len(one.changes) > _CHANGE_LINES:
                    yield f"  ... {len(one.changes) - _CHANGE_LINES} more lines"
        if len(self.written) > 1:
            ends = Counter(one.ended for one in self.written)
            yield f"{len(self.written)} snapshots: " + ", ".join(
                f"{n} ended with {end}" for end, n in ends.most_common()
            )
        if settings.update and not self.written and set(self.snapshots) - {"not_compared", "unusable"}:
            yield "no snapshot needed an update"
        if settings.not_written and self.snapshots:
            yield f"--snapshot-update does not write snapshots of replays {settings.not_written}"

    def _unused(self, settings: Settings) -> Iterator[str]:
        for path in self.deleted:
            yield f"deleted {settings.shown(path)}: no recording belonged to it"
        for path in self.unused:
            yield f"unused {settings.shown(path)}: no recording belongs to it"
        if self.unused and self.kept_because:
            yield f"unused snapshots were not deleted {self.kept_because}"
        elif self.unused:
            yield "delete unused snapshots by hand, or with: pytest --replay-update"
