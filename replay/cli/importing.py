"""`replay import`: traces of other frameworks as recordings of ours."""

from __future__ import annotations

from pathlib import Path

import click

from kernel.errors import ConfigError, TracefirstError
from kernel.files import name_part
from kernel.trace import SUFFIX
from replay.cli import output
from replay.cli.files import keep_files, message_of, must_be_file
from replay.cli.status import SAME, UNUSABLE
from replay.play import Recording


def import_traces(*, file: str, output: str, force: bool, trace_id: str | None, every: bool, no_mask: bool) -> int:
    """Read a foreign file and write each of its traces as a recording; returns the exit status."""
    try:
        must_be_file(Path(file), file)
        found = _chosen(file, trace_id, every, mask=not no_mask)
    except click.ClickException:
        raise
    except Exception as error:  # told below, and in the exit status
        _tell(message_of(error, file) if not isinstance(error, TracefirstError) else str(error))
        return UNUSABLE
    paths = _targets(output, found)
    for path in paths:
        keep_files(str(path), [file], force=force)
    for recording, path in zip(found, paths, strict=True):
        _save(recording, path, replace=force)
        steps = sum(len(recorded.run.steps) for recorded in recording.runs)
        _say(f"{path}  {recording.agent}  {steps} {'step' if steps == 1 else 'steps'}")
    _say(f"next  replay check {paths[0] if len(found) == 1 else f'{Path(output)}/'}")
    return SAME


def _save(recording: Recording, path: Path, *, replace: bool) -> None:
    from replay.importers import save
    from replay.report import unwritable

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(recording, path, replace=replace)
    except OSError as error:
        raise ConfigError(unwritable(path, error)) from None


def _chosen(file: str, trace_id: str | None, every: bool, *, mask: bool) -> list[Recording]:
    from kernel.masking import Masker
    from replay.loading import import_file

    found = [
        r
        for r in import_file(Path(file), masker=Masker.default() if mask else None)
        if trace_id is None or r.trace_id.startswith(trace_id.lower())
    ]
    if not found:
        raise TracefirstError(f"{file}: holds no trace{f' {trace_id}' if trace_id else ''} that can be imported")
    if len(found) > 1 and not every:
        ids = "".join(f"\n  {recording.trace_id}" for recording in found[:10])
        raise click.UsageError(
            f"{file} holds {len(found)} traces; choose one with --trace ID, or take them with --all:{ids}"
        )
    return found


def _targets(name: str, found: list[Recording]) -> list[Path]:
    """A file for each recording; where a file system takes two names for one, they are told apart by a number."""
    taken: set[str] = set()
    paths: list[Path] = []
    for recording in found:
        path = first = _target(name, recording, several=len(found) > 1)
        while str(path).casefold() in taken:
            path = first.with_name(f"{first.name.removesuffix(SUFFIX)}-{len(taken) + 1}{SUFFIX}")
        taken.add(str(path).casefold())
        paths.append(path)
    return paths


def _target(name: str, recording: Recording, *, several: bool) -> Path:
    path = Path(name)
    if not several and name.endswith(".json"):
        return path
    if several and name.endswith(".json"):
        raise click.UsageError(f"-o {name}: there are several traces; name a folder.")
    agent = name_part(recording.agent, "agent", distinct=False)
    return path / f"{agent}-{name_part(recording.trace_id, 'run')}{SUFFIX}"


def _say(text: str) -> None:
    from replay.report import literal

    output.write(literal(text) + "\n")


_tell = output.problem
