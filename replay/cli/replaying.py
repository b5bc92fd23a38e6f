"""The main job: replay files and report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from kernel.errors import ConfigError
from replay.cli import output
from replay.cli.agents import Agents, agent_for, load_agent
from replay.cli.annotations import annotation, error_annotation
from replay.cli.files import expand, keep_files, message_of, recordings
from replay.cli.status import DIFFERENT, SAME, UNUSABLE, USAGE
from replay.play import UNCHECKED, ReplayResult, Verdict, replay, rules_for
from replay.report import Emitted, Paint, View, document, report, to_json


def replay_files(
    *,
    files: Sequence[str],
    agent: str | None,
    form: str,
    trace_id: str | None,
    every: bool,
    steps: tuple[range, ...] | None,
    verbose: bool,
    otlp: str | None,
    ui: str | None,
    output: str | None,
    force: bool,
    strict_settings: bool = False,
) -> int:
    """Replay every recording that was asked for; returns the exit status."""
    _check_addresses(otlp, ui)
    agents = load_agent(agent) if agent is not None else None
    names = expand(files)
    keep_files(output, names, force=force)
    job = _Job(
        agents,
        form,
        _view(verbose, steps),
        otlp,
        ui,
        output,
        force=force,
        brief=len(names) > 1 or every,
        options=trace_id,
    )
    job.strict_settings = strict_settings
    for done, name in enumerate(names):
        _progress(done, len(names))
        job.file(name, trace_id, every)
    _progress(len(names), len(names))
    return job.end()


def _check_addresses(otlp: str | None, ui: str | None) -> None:
    if otlp is not None:
        from replay.report import traces_url

        traces_url(otlp)
    elif ui is not None:
        raise click.UsageError("--ui says where Jaeger's pages are, which is only of use with --otlp.")


def _view(verbose: bool, steps: tuple[range, ...] | None = None) -> View:
    return View(columns=output.columns(), paint=Paint(output.colours()), verbose=verbose, steps=steps)


_progress = output.progress


class _Job:
    """The state of one invocation: text reports are written as they come, JSON at the end."""

    def __init__(
        self,
        agents: Agents | None,
        form: str,
        view: View,
        otlp: str | None,
        ui: str | None,
        target: str | None,
        *,
        force: bool,
        brief: bool,
        options: str | None,
    ) -> None:
        self._agents = agents
        self._form = form
        self._view = view
        self._otlp = otlp
        self._ui = ui
        self._target = target
        self._force = force
        self._brief = brief
        self._options = f" --trace {options}" if options else ""
        self._results: list[tuple[ReplayResult, Emitted | None]] = []
        self._errors: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}
        self._last = ""
        self._failed = self._unexercised = False
        self.strict_settings = False

    def file(self, name: str, trace_id: str | None, every: bool) -> None:
        """Replay what a file holds; a file that fails is reported and counted, and does not end the others."""
        try:
            for recording in recordings(name, trace_id=trace_id, every=every):
                result = replay(recording, agent_for(self._agents, recording.agent), rules=rules_for(name))
                self._report(result, f" --trace {recording.trace_id}" if every else self._options)
        except (click.ClickException, ConfigError, BrokenPipeError):
            raise
        except Exception as error:  # the file's failure is in the report and in the exit status
            message = message_of(error, name)
            self._errors.append((name, message))
            if self._form == "github":
                output.write(error_annotation(name, message) + "\n")
            output.problem(message)

    def _report(self, result: ReplayResult, options: str) -> None:
        self._counts[result.verdict] = self._counts.get(result.verdict, 0) + 1
        self._unexercised = self._unexercised or bool(result.unexercised)
        emitted = self._emit(result)
        if self._form == "json":
            self._results.append((result, emitted))
            return
        if self._form == "github":
            output.lines(filter(None, [annotation(result)]))
            return
        if self._brief and self._last and (result.verdict != "same" or self._last != "same"):
            output.write("\n")
        self._last = result.verdict
        output.lines(report(result, self._view, brief=self._brief, emitted=emitted, options=options))

    def _emit(self, result: ReplayResult) -> Emitted | None:
        if not result.observed or (self._otlp is None and self._target is None):
            return None
        from replay.report import emit

        link = path = ""
        if self._target is not None:
            if sum(self._counts.values()) > 1:
                raise click.UsageError("--output takes one replay: give one file, and one of its traces.")
            path = self._target
            resource = emit.resource_of(result.recording)
            emit.write(Path(path), emit.replay_spans(result), resource, replace=self._force)
        if self._otlp is not None:
            try:
                link = emit.send_both(result, self._otlp, now_ns=time.time_ns(), ui=self._ui)
            except ConfigError as error:  # what was found still has to be reported
                self._failed = True
                output.problem(str(error))
                if not path:
                    return None
        return Emitted(trace_id=emit.replay_trace_id(result), link=link, path=path)

    def end(self) -> int:
        """Write what is left, and give the exit status."""
        if self._form == "json":
            output.write(to_json(document(self._results, self._errors)))
        elif self._form == "github":
            output.write(self._summary() + "\n")
        elif self._brief:
            output.lines(["", self._summary()])
        if self._failed:
            return USAGE
        if self._errors or not self._counts or any(self._counts.get(verdict) for verdict in UNCHECKED):
            return UNUSABLE
        untouched = self.strict_settings and self._unexercised
        return SAME if set(self._counts) == {"same"} and not untouched else DIFFERENT

    def _summary(self) -> str:
        words = [f"{self._counts[v]} {v.replace('_', ' ')}" for v in get_args(Verdict) if v in self._counts]
        if self._errors:
            words.append(f"{len(self._errors)} unusable")
        return ", ".join(words)
