"""`replay rerecord`: the same tasks again, live, in place of the old recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernel.errors import ConfigError
from replay.cli import output
from replay.cli.agents import agent_for, load_agent, load_model
from replay.cli.files import expand, message_of, recordings
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.report import Paint, View, literal, to_json
from replay.suite.ci import seen_in
from replay.suite.rerecording import Rerecorded, rerecord


def rerecord_files(
    *, files: Sequence[str], agent: str, llm: str | None, allow: Sequence[str], form: str, verbose: bool
) -> int:
    """Record the tasks of each file anew; returns the exit status."""
    if variable := seen_in():
        raise click.UsageError(
            f"rerecord is refused in CI (the variable {variable} is set): record and review at a desk."
        )
    agents, model = load_agent(agent), load_model(llm) if llm is not None else None
    view = View(columns=output.columns(), paint=Paint(output.colours()), verbose=verbose)
    done: list[Rerecorded] = []
    errors: list[dict[str, str]] = []
    for name in expand(files):
        try:
            (recording,) = recordings(name)
            today = agent_for(agents, recording.agent)
            assert today is not None
            by_name = isinstance(agents, dict)
            found = rerecord(Path(name), recording, today, llm=model, allow=allow, renamed=by_name)
        except (click.ClickException, ConfigError, BrokenPipeError):
            raise
        except Exception as error:  # the file's failure is in the report and in the exit status
            errors.append({"file": name, "message": message_of(error, name)})
            output.problem(errors[-1]["message"])
            continue
        done.append(found)
        if form == "text":
            output.lines([*_lines(found, view), ""])
    if form == "json":
        document = {"files": [_document(one) for one in done], **({"errors": errors} if errors else {})}
        output.write(to_json(document))
    else:
        kept = sum(bool(one.kept) for one in done)
        output.write(f"{len(done) - kept} recorded anew, {kept} kept, {len(errors)} unusable\n")
        if len(done) > kept:
            output.write("next  git diff, then pytest --replay-update\n")
    if errors or not done:
        return UNUSABLE
    return DIFFERENT if any(one.kept for one in done) else SAME


def _lines(found: Rerecorded, view: View) -> list[str]:
    name = literal(str(found.path))
    head = f"{view.paint('strong', 'kept')} {name}: {literal(found.kept)}" if found.kept else (
        f"{view.paint('strong', 'recorded anew')} {name}"
    )  # fmt: skip
    return [head, *(f"  {line}" for line in found.lines(view))]


def _document(found: Rerecorded) -> dict[str, Any]:
    from replay.explain import diff, diff_document

    difference = None if found.old is None or found.new is None else diff_document(diff(found.old, found.new))
    return {"file": str(found.path), "replaced": not found.kept, "why_kept": found.kept or None, "diff": difference}
