"""The verbs that look at recordings without running anything: show, check, diff, stats, scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from kernel.errors import TraceError
from replay.cli import output
from replay.cli.files import expand, message_of, must_be_file, one_recording, recordings
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.play import RecordedRun, Recording
from replay.report import Paint, View, heading, literal, run_lines, step_detail, to_json


def _view(verbose: bool = False, steps: tuple[range, ...] | None = None) -> View:
    return View(columns=output.columns(), paint=Paint(output.colours()), verbose=verbose, steps=steps)


def _guarded(name: str, work: Callable[[], None]) -> str | None:
    """Do something with a file; what goes wrong is told and returned."""
    try:
        work()
    except (click.ClickException, BrokenPipeError):
        raise
    except Exception as error:  # the file's failure is in the report and in the exit status
        message = message_of(error, name)
        output.problem(message)
        return message
    return None


def show_file(
    *,
    file: str,
    step: int | None,
    steps: tuple[range, ...] | None,
    turn: int | None,
    form: str,
    trace_id: str | None,
    every: bool,
    verbose: bool,
    tail: bool,
) -> int:
    """`replay show`."""
    view = _view(verbose, steps)
    if tail:
        from replay.cli.tailing import tail as follow

        if form != "text" or every or step or steps or turn:
            raise click.UsageError("--tail shows one run as text, step by step: no other choice goes with it.")
        return follow(file, view, trace_id=trace_id)
    shown: list[dict[str, Any]] = []

    def work() -> None:
        for count, recording in enumerate(recordings(file, trace_id=trace_id, every=every)):
            turns = _turns(recording, turn)
            _must_have(step, recording, turns)
            if form == "json":
                runs = [msgspec.to_builtins(recorded.run) for _, recorded in turns]
                shown.append({"trace_id": recording.trace_id, "agent": recording.agent, "file": file, "runs": runs})
                continue
            if count:
                output.write("\n")
            output.lines(_shown(recording, turns, step, view))

    message = _guarded(file, work)
    if form == "json":
        document: dict[str, Any] = {"traces": shown}
        if message is not None:
            document["errors"] = [{"file": file, "message": message}]
        output.write(to_json(document))
    return UNUSABLE if message is not None else SAME


def _turns(recording: Recording, turn: int | None) -> list[tuple[int, RecordedRun]]:
    turns = list(enumerate(recording.runs, 1))
    if turn is None:
        return turns
    if turn > len(turns):
        has = "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
        raise click.UsageError(f"{recording.file} has {has}, there is no turn {turn}.")
    return [turns[turn - 1]]


def _must_have(step: int | None, recording: Recording, turns: Sequence[tuple[int, RecordedRun]]) -> None:
    indexes = [one.index for _, recorded in turns for one in recorded.run.steps]
    if step is not None and step not in indexes:
        has = f"steps {min(indexes)} to {max(indexes)}" if indexes else "no steps"
        raise click.UsageError(f"{recording.file} has {has}, there is no step {step}.")


def _shown(
    recording: Recording, turns: Sequence[tuple[int, RecordedRun]], step: int | None, view: View
) -> Iterator[str]:
    yield from heading(recording, view)
    for number, recorded in turns:
        run = recorded.run
        if step is None:
            yield from run_lines(run, view, turn=number if len(recording.runs) > 1 else 0)
            continue
        for at, one in enumerate(run.steps):
            if one.index == step:
                yield from step_detail(one, run.marks[at] if at < len(run.marks) else None, view)


def check_files(*, files: Sequence[str], form: str, trace_id: str | None, every: bool, verbose: bool) -> int:
    """`replay check`."""
    from replay.explain import Check, check, check_document, check_lines, summary_document, summary_lines

    view = _view(verbose)
    documents: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    states: set[str] = set()
    found_all: list[Check] = []
    for name in expand(files):

        def work(name: str = name) -> None:
            for recording in recordings(name, trace_id=trace_id, every=every):
                found = check(recording)
                if form == "json":
                    documents.append(check_document(found))
                else:
                    output.lines([""] * bool(states))
                    output.lines(check_lines(found, view))
                states.add(found.replayable)
                found_all.append(found)

        if (message := _guarded(name, work)) is not None:
            errors.append({"file": name, "message": message})
    if form == "json":
        summary = summary_document(found_all)
        output.write(to_json({"traces": documents, "summary": summary, **({"errors": errors} if errors else {})}))
    elif len(found_all) + len(errors) > 1:
        output.lines(["", *summary_lines(found_all, len(errors), view)])
    if errors or "no" in states or not states:
        return UNUSABLE
    return DIFFERENT if "part" in states else SAME


def diff_files(*, a: str, b: str, form: str, verbose: bool, trace_a: str | None, trace_b: str | None) -> int:
    """`replay diff`."""
    from replay.explain import diff, diff_document, diff_lines

    sides: list[Recording] = []
    for name, trace_id in ((a, trace_a), (b, trace_b)):
        if _guarded(name, lambda name=name, trace_id=trace_id: sides.append(one_recording(name, trace_id))):  # type: ignore[misc]
            return UNUSABLE
    found = diff(*sides)
    if form == "json":
        output.write(to_json(diff_document(found)))
    else:
        output.lines(diff_lines(found, _view(verbose)))
    return SAME if found.same else DIFFERENT


def stats_files(*, files: Sequence[str], form: str) -> int:
    """`replay stats`."""
    from replay.explain import Stats, stats_lines

    stats = Stats()
    errors: list[dict[str, str]] = []
    names = expand(files)
    for done, name in enumerate(names):
        output.progress(done, len(names))

        def work(name: str = name) -> None:
            for recording in recordings(name, every=True):
                stats.add(recording)

        if (message := _guarded(name, work)) is not None:
            errors.append({"file": name, "message": message})
    output.progress(len(names), len(names))
    if form == "json":
        output.write(to_json({**stats.document(), **({"errors": errors} if errors else {})}))
    else:
        output.lines(stats_lines(stats, _view()))
    return UNUSABLE if errors or not stats.recordings else SAME


def scan_files(*, files: Sequence[str], form: str) -> int:
    """`replay scan`."""
    from replay.explain import Finding, scan_file

    findings: list[Finding] = []
    errors: list[dict[str, str]] = []
    names = expand(files)
    for done, name in enumerate(names):
        output.progress(done, len(names))

        def work(name: str = name) -> None:
            must_be_file(Path(name), name)
            try:
                found = scan_file(name)
            except ValueError as error:
                raise TraceError(str(error), file=name) from None
            findings.extend(found)
            if form == "text":
                output.lines(literal(str(finding)) for finding in found)

        if (message := _guarded(name, work)) is not None:
            errors.append({"file": name, "message": message})
    output.progress(len(names), len(names))
    if form == "json":
        fields = ("file", "line", "column", "kind", "preview")
        plain = [{field: getattr(finding, field) for field in fields} for finding in findings]
        output.write(to_json({"findings": plain, **({"errors": errors} if errors else {})}))
    else:
        read = len(names) - len(errors)
        output.write(f"{len(findings)} findings in {read} of {len(names)} files\n")
    if errors:
        return UNUSABLE
    return DIFFERENT if findings else SAME
