"""What a run found: counts of verdicts and snapshots, and the lines at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from replay.suite.settings import Settings

VERDICTS = ("same", "drifted", "diverged", "not_checked")
RARE_VERDICTS = ("crashed", "imported")
NOT_EQUAL = ("missing", "stale", "changed")

_CHANGE_LINES = 12


@dataclass(slots=True)
class Tally:
    """Filled from the reports of the items, so that it holds what workers did too.

    `written` are the snapshots of this process alone: they are written in a serial run only.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    snapshots: Counter[str] = field(default_factory=Counter)
    served: int = 0
    agents: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    drifted: list[str] = field(default_factory=list)
    written: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    unused: list[Path] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    kept_because: str = ""
    complaints: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.verdicts.values())

    def add(self, report: pytest.TestReport) -> None:
        """Count a report's replay: once, when the item is done; its drift when its test passed."""
        if report.when == "call" and report.outcome == "passed":
            drifts = [value for name, value in report.user_properties if name == "replay_drift" and value]
            self.drifted += [f"passed, {drift}: {report.nodeid}" for drift in drifts]
        if report.when != "teardown":
            return
        found = [(name, value) for name, value in report.user_properties if name.startswith("replay_")]
        for name, value in found:
            if name == "replay_verdict":
                self.verdicts[str(value)] += 1
            elif name == "replay_snapshot":
                self.snapshots[str(value)] += 1
            elif name == "replay_agent":
                self.agents.add(str(value))
            elif isinstance(value, int):
                self.served += value
        if found:
            self.ran.add(report.nodeid.partition("::")[0])

    def lines(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """The lines at the end of a run, each with a colour or "": what was written, what is unused, the counts."""
        yield from ((line, "yellow") for line in self.drifted)
        yield from ((line, "") for line in self._updates(settings))
        yield from ((line, "yellow") for line in self._unused(settings))
        yield from ((f"replay: {complaint}", "red") for complaint in self.complaints)
        if self.total:
            shown = [*VERDICTS, *(verdict for verdict in RARE_VERDICTS if self.verdicts[verdict])]
            found = ", ".join(f"{self.verdicts[verdict]} {verdict.replace('_', ' ')}" for verdict in shown)
            bad: bool = any(self.verdicts[v] for v in ("diverged", "crashed", "not_checked")) or bool(self.complaints)
            bad = bad or (self.verdicts["drifted"] > 0 and not settings.allow_drift)
            yield f"replay: {found}; model replies served {self.served}, live 0", "red" if bad else "green"
        if differ := [f"{self.snapshots[state]} {state}" for state in NOT_EQUAL if self.snapshots[state]]:
            yield f"replay: snapshots {', '.join(differ)}", "red"

    def _updates(self, settings: Settings) -> Iterator[str]:
        for node, state, changes in self.written:
            added = sum(change.startswith("+") for change in changes)
            removed = sum(change.startswith("-") for change in changes)
            yield f"{state} {node}: " + (f"{added} lines" if state == "written" else f"+{added} -{removed}")
            if state == "updated":
                yield from (f"  {change}" for change in changes[:_CHANGE_LINES])
                if len(changes) > _CHANGE_LINES:
                    yield f"  ... {len(changes) - _CHANGE_LINES} more lines"
        if settings.update and not self.written and set(self.snapshots) - {"not_compared"}:
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
