"""`--live-model` and `--live-tools`: one side of recorded runs live, the other from the recording."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import click

from kernel.agent import Agent
from kernel.errors import ConfigError
from replay.cli import output
from replay.cli.agents import agent_for, load_agent, load_model
from replay.cli.files import expand, message_of, recordings
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.play import Attempt, Recording
from replay.report import Paint, Tried, View, to_json, tried_document, tried_lines


def try_files(
    *,
    files: Sequence[str],
    live: str,
    agent: str | None,
    llm: str | None,
    allow: Sequence[str],
    times: int,
    form: str,
    trace_id: str | None,
    every: bool,
) -> int:
    """Run each recording some times with one side live; returns the exit status."""
    if agent is None:
        raise click.UsageError(f"--live-{live} needs --agent MODULE:OBJECT: today's agent is what runs.")
    if live == "tools" and llm is not None:
        raise click.UsageError("--live-tools answers from the recorded model: --llm is of no use with it.")
    if live == "model" and allow:
        raise click.UsageError("--live-model serves recorded results, no tool runs: --allow is of no use with it.")
    agents, model = load_agent(agent), load_model(llm) if llm is not None else None
    view = View(columns=output.columns(), paint=Paint(output.colours()))
    done: list[Tried] = []
    errors: list[dict[str, str]] = []
    for name in expand(files):
        try:
            for recording in recordings(name, trace_id=trace_id, every=every):
                today = agent_for(agents, recording.agent)
                assert today is not None
                attempts = tuple(asyncio.run(_once(recording, today, live, model, allow)) for _ in range(times))
                tried = Tried(recording=recording, live=live, attempts=attempts)
                done.append(tried)
                if form == "text":
                    output.lines([*tried_lines(tried, view), ""])
        except (click.ClickException, ConfigError, BrokenPipeError):
            raise
        except Exception as error:  # the file's failure is in the report and in the exit status
            errors.append({"file": name, "message": message_of(error, name)})
            output.problem(errors[-1]["message"])
    if form == "json":
        output.write(
            to_json({"traces": [tried_document(one) for one in done], **({"errors": errors} if errors else {})})
        )
    elif len(done) > 1:
        output.write(f"{sum(one.same for one in done)} of {len(done)} recordings ended as recorded each time\n")
    if errors or not done or not all(one.counted for one in done):
        return UNUSABLE
    return SAME if all(one.same for one in done) else DIFFERENT


def _once(
    recording: Recording, agent: Agent, live: str, model: Any, allow: Sequence[str]
) -> Coroutine[Any, Any, Attempt]:
    from replay.play import try_model, try_tools

    if live == "model":
        return try_model(recording, agent, llm=model)
    return try_tools(recording, agent, allow=allow)
