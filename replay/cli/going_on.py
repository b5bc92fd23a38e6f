"""The verbs that go on live from a recording: fork and resume."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import click

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.loop import Confirm
from kernel.record import canonical_json, parse_json
from kernel.result import RunResult
from kernel.trace import JOURNAL_SUFFIX, SUFFIX
from replay.cli import output
from replay.cli.agents import agent_for, load_agent, load_model
from replay.cli.files import message_of, one_recording
from replay.cli.status import DIFFERENT, SAME, UNUSABLE
from replay.play import Recording, withheld
from replay.report import Paint, View, literal, run_lines, to_json

GoOn = Callable[[Recording, Agent, Any, str, Confirm | None], Coroutine[Any, Any, RunResult]]


def fork_file(
    *,
    file: str,
    step: int,
    turn: int | None,
    agent: str,
    llm: str | None,
    output: str | None,
    trace_id: str | None,
    form: str,
    system: str | None,
    task: str | None,
    results: Sequence[str],
    allow: Sequence[str],
) -> int:
    """`replay fork`."""
    from replay.play import Change, fork

    change = Change(
        system=_text(system, "--system"), task=_text(task, "--task"), results=_results(results), allow=tuple(allow)
    )

    def go_on(
        recording: Recording, today: Agent, model: Any, trace: str, confirm: Confirm | None
    ) -> Coroutine[Any, Any, RunResult]:
        return fork(recording, today, at_step=step, turn=turn, llm=model, change=change, confirm=confirm, trace=trace)

    return _run(
        file,
        agent,
        llm,
        output or _beside(file, f"fork{step}" if turn is None else f"fork{turn}.{step}"),
        trace_id,
        form,
        go_on,
    )


def resume_file(
    *,
    file: str,
    agent: str,
    llm: str | None,
    output: str | None,
    trace_id: str | None,
    form: str,
    allow: Sequence[str],
    turn: int | None,
) -> int:
    """`replay resume`."""
    from replay.play import resume

    def go_on(
        recording: Recording, today: Agent, model: Any, trace: str, confirm: Confirm | None
    ) -> Coroutine[Any, Any, RunResult]:
        return resume(recording, today, llm=model, allow=allow, confirm=confirm, turn=turn, trace=trace)

    return _run(file, agent, llm, output or _beside(file, "resumed"), trace_id, form, go_on)


def _run(file: str, agent: str, llm: str | None, target: str, trace_id: str | None, form: str, go_on: GoOn) -> int:
    agents, model = load_agent(agent), load_model(llm) if llm is not None else None
    try:
        recording = one_recording(file, trace_id)
    except click.ClickException:
        raise
    except Exception as error:  # told, and in the exit status
        output.problem(message_of(error, file))
        return UNUSABLE
    today = agent_for(agents, recording.agent)
    assert today is not None
    if not target.endswith(SUFFIX):
        raise click.UsageError(f"-o {target}: a trace file's name ends in {SUFFIX}.")
    if Path(target).exists():
        raise click.UsageError(f"{target} exists already; name another file with -o OUT.")
    result = asyncio.run(go_on(recording, today, model, target, _asked_here(recording, today)))
    _report(result, recording, file, form)
    return SAME if result.ok and not withheld(result.steps) else DIFFERENT


def _asked_here(recording: Recording, agent: Agent) -> Confirm | None:
    """Asks on the terminal, where approvals were asked in the recording and the agent has no `confirm` of its own."""
    recorded = any(run.run.head.confirm for run in recording.runs)
    if agent.confirm is not None or not recorded or not sys.stdin.isatty():
        return None

    def confirm(name: str, args: dict[str, Any]) -> bool:
        try:
            return click.confirm(f"run {literal(name)}({literal(canonical_json(args))})?", default=False, err=True)
        except click.Abort:  # Ctrl-C, or the end of the input: no answer to this one call, but the end of the run
            raise KeyboardInterrupt from None

    return confirm


def _report(result: RunResult, recording: Recording, file: str, form: str) -> None:
    for warning in result.warnings:
        output.problem(warning)
    path = str(result.trace_path or "")
    if form == "json":
        document = {
            "trace_id": result.trace_id,
            "original_trace_id": recording.trace_id,
            "ok": result.ok,
            "stop_reason": result.stop_reason,
            "answer": result.answer,
            "steps": len(result.steps),
            "file": path,
            "withheld": withheld(result.steps),
        }
        output.write(to_json(document))
        return
    view = View(columns=output.columns(), paint=Paint(output.colours()))
    output.lines(run_lines(result.run, view))
    output.lines([f"{view.paint('quiet', 'trace ')} {literal(path)}"])
    output.lines([f"{view.paint('quiet', 'next  ')} replay diff {literal(file)} {literal(path)}"])


def _beside(file: str, what: str) -> str:
    path = Path(file)
    stem = path.name.removesuffix(".gz").removesuffix(SUFFIX).removesuffix(JOURNAL_SUFFIX).removesuffix(".json")
    return str(path.with_name(f"{stem}.{what}{SUFFIX}"))


def _text(value: str | None, option: str) -> str | None:
    if value is None or not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option} {value}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _results(given: Sequence[str]) -> dict[tuple[int, int], Any]:
    results: dict[tuple[int, int], Any] = {}
    for one in given:
        place, equals, text = one.partition("=")
        step, _, position = place.partition(".")
        if not equals or not step.isdecimal() or not (position or "0").isdecimal():
            raise click.UsageError(f"--result {one}: write STEP=JSON, or STEP.POSITION=JSON for one of several calls.")
        if (int(step), int(position or 0)) in results:
            raise click.UsageError(f"--result {one}: this call is given another result already.")
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        results[int(step), int(position or 0)] = value
    return results
