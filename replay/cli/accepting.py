"""`replay accept` and `replay accepted`: drift that is meant, for a folder of fixtures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from kernel.errors import ConfigError, TraceError
from replay.cli import output
from replay.cli.agents import agent_for, load_agent
from replay.cli.files import expand, message_of, must_be_file, recordings
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.play import ReplayResult, replay
from replay.report import Paint, View, cut, literal, plural, to_json
from replay.suite.accepting import Accepted, Change, accept, accepted_in, changes_of, withdraw
from replay.suite.ci import seen_in

_LINES = 40


class _Review:
    """The changes by which some fixtures drift, each once, and the fixtures that differ otherwise."""

    def __init__(self) -> None:
        self.changes: dict[tuple[str, str, str], tuple[Change, list[Path]]] = {}
        self.fixtures: dict[Path, tuple[Change, ...]] = {}
        self.others: list[tuple[Path, ReplayResult]] = []

    def add(self, path: Path, result: ReplayResult) -> None:
        changes = changes_of(result)
        if result.verdict != "same" and not changes:
            self.others.append((path, result))
            return
        self.fixtures[path] = changes
        for change in changes:
            self.changes.setdefault(change.key, (change, []))[1].append(path)

    def open(self, causes: Sequence[str]) -> bool:
        """Whether some drift is not accepted yet."""
        return any(
            (not causes or change.cause in causes) and not _is_accepted(path, change)
            for change, paths in self.changes.values()
            for path in paths
        )


def _is_accepted(path: Path, change: Change) -> bool:
    return any(one.change.key == change.key and path.name in one.fixtures for one in accepted_in(path.parent))


def accept_files(
    *,
    files: Sequence[str],
    agent: str | None,
    causes: Sequence[str],
    reason: str,
    yes: bool,
    undo: bool,
    form: str,
) -> int:
    """Show by what some fixtures drift, and with `yes` accept it; returns the exit status."""
    if (yes or undo) and (variable := seen_in()):
        raise click.UsageError(
            f"accept is refused in CI (the variable {variable} is set): accept and review at a desk."
        )
    names = expand(files)
    if undo:
        return _undo(names)
    if agent is None:
        raise click.UsageError("accept needs --agent MODULE:OBJECT: it is today's agent that drifts.")
    agents, review, failed = load_agent(agent), _Review(), False
    for name in names:
        try:
            for recording in recordings(name):
                review.add(Path(name), replay(recording, agent_for(agents, recording.agent)))
        except (click.ClickException, ConfigError, BrokenPipeError):
            raise
        except Exception as error:  # the file's failure is told, and in the exit status
            output.problem(message_of(error, name))
            failed = True
    if unknown := [cause for cause in causes if cause not in {one.cause for one, _ in review.changes.values()}]:
        known = ", ".join(sorted({one.cause for one, _ in review.changes.values()})) or "none"
        raise click.UsageError(f"--cause {unknown[0]}: nothing drifts by it; causes here: {known}.")
    is_open = review.open(causes)
    if yes:
        today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
        for path, changes in review.fixtures.items():
            accept(path, changes, today=today, reason=reason, causes=causes)
    if form == "json":
        output.write(to_json(_document(review, yes)))
    else:
        output.lines(_lines(review, causes, yes, is_open))
    if failed:
        return UNUSABLE
    return DIFFERENT if review.others or review.open(()) else SAME


def _undo(names: Sequence[str]) -> int:
    """Take back what is accepted, also for a fixture that is gone."""
    taken = {name: withdraw(Path(name)) for name in names}
    output.lines(f"{literal(name)}: {plural(count, 'change')} taken back" for name, count in taken.items() if count)
    there = _there([name for name, count in taken.items() if not count])
    if not any(taken.values()):
        output.write("nothing was accepted here, so nothing was taken back\n")
    return SAME if there else UNUSABLE


def _there(names: Sequence[str]) -> bool:
    """Whether all of some files are there; what is not is told."""
    missing = False
    for name in names:
        try:
            must_be_file(Path(name), name)
        except TraceError as error:
            output.problem(error.message)
            missing = True
    return not missing


def _lines(review: _Review, causes: Sequence[str], yes: bool, is_open: bool) -> Iterator[str]:
    view = View(columns=output.columns(), paint=Paint(output.colours()))
    for change, paths in review.changes.values():
        yield from _change_lines(change, [path.name for path in paths], view)
        yield ""
    for path, result in review.others:
        yield f"{literal(str(path))}: {literal(str(result))}; only drift can be accepted"
    fixtures = sum(bool(changes) for changes in review.fixtures.values())
    yield (
        f"{plural(len(review.changes), 'change')}, {plural(fixtures, 'fixture')} drifted, "
        f"{len(review.others)} different otherwise"
    )
    if is_open:
        yield "accepted" if yes else "next  the same command with --yes accepts it; --cause NAME takes one cause alone"
    elif review.changes:
        yield "all of it was accepted before"


def _change_lines(change: Change, fixtures: Sequence[str], view: View, more: str = "") -> Iterator[str]:
    yield f"{view.paint('strong', literal(change.cause))}  {literal(change.place)}{more}"
    for line in change.lines[:_LINES]:
        yield "  " + literal(line)
    if len(change.lines) > _LINES:
        yield f"  ... {plural(len(change.lines) - _LINES, 'more line')}"
    named = ", ".join(map(literal, fixtures))
    yield cut(f"  {plural(len(fixtures), 'fixture')}: {named}", view.columns)


def _document(review: _Review, yes: bool) -> dict[str, Any]:
    return {
        "accepted": yes,
        "changes": [
            {
                "cause": change.cause,
                "place": change.place,
                "change": list(change.lines),
                "fixtures": [{"file": str(path), "accepted": _is_accepted(path, change)} for path in paths],
            }
            for change, paths in review.changes.values()
        ],
        "others": [{"file": str(path), "verdict": result.verdict} for path, result in review.others],
    }


def list_accepted(*, files: Sequence[str], form: str) -> int:
    """List what is accepted for some fixtures, and since when; returns the exit status."""
    paths = expand(files)
    status = SAME if _there(paths) else UNUSABLE
    folders = dict.fromkeys(Path(name).parent for name in paths if not Path(name).is_dir())
    names = {Path(name).name for name in paths}
    found = [(folder, one) for folder in folders for one in accepted_in(folder) if names & set(one.fixtures)]
    if form == "json":
        output.write(to_json({"accepted": [_entry(folder, one) for folder, one in found]}))
        return status
    view = View(columns=output.columns(), paint=Paint(output.colours()))
    for folder, one in found:
        reason = f": {literal(one.reason)}" if one.reason else ""
        output.lines(
            _change_lines(one.change, one.fixtures, view, f"  in {literal(str(folder))} since {one.since}{reason}")
        )
        output.write("\n")
    output.write(f"{plural(len(found), 'change')} accepted\n")
    return status


def _entry(folder: Path, one: Accepted) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "cause": one.change.cause,
        "place": one.change.place,
        "since": one.since,
        "reason": one.reason,
        "change": list(one.change.lines),
        "fixtures": list(one.fixtures),
    }
