"""One case: replay a recording, with today's agent where one is named, and compare it with its snapshot."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from kernel.agent import Agent
from kernel.errors import ConfigError, TracefirstError
from replay.loading import load
from replay.play import Recording, ReplayResult, replay, rules_for
from replay.suite.accepting import Acceptance, acceptance
from replay.suite.agents import AgentNotFound, load_agent
from replay.suite.extension import ReplaySnapshotExtension, cannot, diff, write_snapshot
from replay.suite.failure import ReplayFailed, headline_of, of_settings, of_verdict
from replay.suite.paths import snapshot_path
from replay.suite.settings import Command, Settings
from replay.suite.snapshot import header, snapshot_text

SnapshotState = Literal["equal", "written", "updated", "missing", "stale", "changed", "unusable", "not_compared"]

_DIFF_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one case. `failure` None: it passed. `key` is the entry of the agents' table that decided, `ended` how
    each run of the recording ended, `recorded` what differs in a recording that was made anew."""

    verdict: str
    snapshot: SnapshotState
    agent: str = ""
    key: str = ""
    ended: str = ""
    model: int = 0
    drift: str = ""
    rules: tuple[tuple[str, bool], ...] = ()
    failure: ReplayFailed | None = None
    changes: tuple[str, ...] = ()
    accepted: str = ""
    stale: str = ""
    recorded: tuple[str, ...] | None = None


def outcome_of(
    result: ReplayResult, key: str | None, failure: ReplayFailed | None = None, said: Acceptance = Acceptance()
) -> Outcome:
    """The outcome of a replay so far. `drift` says where it drifted, and since when that is accepted."""
    return Outcome(
        accepted=said.since,
        stale=", ".join(said.stale),
        verdict=result.verdict,
        snapshot="not_compared",
        failure=failure,
        agent=result.recording.agent,
        key=key or "",
        ended=ended(result.recording),
        model=result.served.model,
        drift=headline_of(result) if result.verdict == "drifted" else "",
        rules=tuple((use.rule.name, use.matched > 0) for use in result.rules),
    )


def ended(recording: Recording) -> str:
    """How each run of a recording ended."""
    return ", ".join("no end" if one.run.end is None else one.run.end.stop_reason for one in recording.runs)


def run_case(settings: Settings, fixture: Path, trace_id: str | None, node: str) -> Outcome:
    """Run one case and, where snapshots are updated, write its snapshot: only of a replay that is as recorded."""
    shown = settings.shown(fixture)
    outcome = Outcome(verdict="not_checked", snapshot="not_compared")
    try:
        recording = only_recording(settings, fixture, trace_id)
        key = settings.key_for(recording.agent, shown)
        outcome = replace(outcome, agent=recording.agent, key=key or "", ended=ended(recording))
        if key is not None and (command := settings.commands.get(key)) is not None:
            return _run_program(settings, fixture, trace_id, node, command, outcome)
        agent = agent_today(settings, recording, shown)
        result, recorded = replay_or_record(settings, fixture, recording, agent, shown)
        said = accepted_drift(fixture, result, shown)
    except ReplayFailed as error:
        return replace(outcome, failure=error)
    failure = verdict_failure(settings, result, shown, allow_drift=settings.allow_drift or bool(said.since))
    outcome = replace(outcome_of(result, key, failure, said), recorded=recorded)
    if failure is not None:
        return outcome
    updates = replace(settings, update=settings.update or recorded is not None)
    text, path = snapshot_text(result, accepted=bool(said.since)), snapshot_path(fixture, trace_id)
    state, changes, failure = _snapshot(updates, text, result.verdict, path, shown, node)
    return replace(outcome, failure=failure, snapshot=state, changes=changes)


def accepted_drift(fixture: Path, result: ReplayResult, shown: str) -> Acceptance:
    """What is accepted of a replay's drift. Raises `ReplayFailed` where that cannot be read."""
    try:
        return acceptance(fixture, result)
    except ConfigError as error:
        raise ReplayFailed("unreadable", shown, "what is accepted cannot be read", f"not checked: {error}") from None


def _run_program(
    settings: Settings, fixture: Path, trace_id: str | None, node: str, command: Command, outcome: Outcome
) -> Outcome:
    """Run a case whose agent is a program. Raises `ReplayFailed` where it cannot run."""
    from replay.suite.program import program_failure, run_program_case

    shown = settings.shown(fixture)
    if settings.record == "all":
        why = f"{shlex.join(command.words)} is a program: record it with `replay record -o FILE -- COMMAND`"
        raise ReplayFailed("not_recorded", shown, f"not recorded: {why}", f"not recorded: {shown}: {why}")
    done = run_program_case(settings, fixture, trace_id, command)
    account = done.account
    drift = done.headline() if account.verdict == "drifted" else ""
    rules = tuple((rule.name, matched > 0) for rule, matched in account.rules)
    outcome = replace(
        outcome, verdict=account.verdict, agent=done.book.agent, model=account.served, drift=drift, rules=rules
    )
    failure = program_failure(settings, done, shown, command)
    if failure is not None:
        return replace(outcome, failure=failure)
    path = snapshot_path(fixture, trace_id)
    state, changes, failure = _snapshot(settings, done.snapshot(), account.verdict, path, shown, node)
    return replace(outcome, snapshot=state, failure=failure, changes=changes)


def only_recording(settings: Settings, fixture: Path, trace_id: str | None) -> Recording:
    """The one recording of a file, or the one named.

    Raises:
        ReplayFailed: the file cannot be read, or holds none or several.
    """
    shown = settings.shown(fixture)
    try:
        found = load(fixture, trace_id=trace_id)
    except (TracefirstError, OSError) as error:
        raise ReplayFailed("unreadable", shown, "not a recording", f"not checked: {error}") from None
    if trace_id is not None:
        found = [recording for recording in found if recording.trace_id == trace_id] or found
    if len(found) != 1:
        ids = ", ".join(recording.trace_id for recording in found) or "none"
        story = f"not checked: {shown} must hold one trace, or trace_id= must name it; it holds {ids}"
        raise ReplayFailed("unreadable", shown, f"holds {len(found)} traces", story)
    return msgspec.structs.replace(found[0], file=shown)


def agent_today(settings: Settings, recording: Recording, shown: str) -> Agent | None:
    """The agent that the settings name for a recording, None where the recording alone is replayed.

    Raises:
        ReplayFailed: the agent cannot be loaded.
    """
    key = settings.key_for(recording.agent, shown)
    if key is None:
        return None
    if (command := settings.commands.get(key)) is not None:
        why = f"its agent is a program ({shlex.join(command.words)}); with agent=None a marker replays the recording alone"
        raise ReplayFailed("agent", shown, why, f"not checked: {shown}: {why}")
    spec = settings.agents[key]
    return load_named(settings, key, spec, recording.agent, shown) if spec else None


def replay_or_record(
    settings: Settings, fixture: Path, recording: Recording, agent: Agent | None, shown: str
) -> tuple[ReplayResult, tuple[str, ...] | None]:
    """Replay a recording, after it was made anew where the settings say so; with what then differs from the old one.

    Raises:
        ReplayFailed: the agent cannot run, or what was to be recorded was not.
    """
    if not settings.record:
        return replay_with(settings, agent, recording, shown), None
    from replay.suite.recording import Recorder

    recorder = Recorder(settings=settings)
    result = None if recorder.wants(None) else replay_with(settings, agent, recording, shown)
    if result is not None and not recorder.wants(result):
        return result, None
    changes = recorder.anew(fixture, recording, agent, shown)
    return replay_with(settings, agent, only_recording(settings, fixture, None), shown), changes


def load_named(settings: Settings, key: str, spec: str, recorded: str, shown: str) -> Agent:
    """The agent of an entry of the settings. Raises `ReplayFailed`."""
    try:
        return load_agent(spec, key, settings.root, recorded)
    except AgentNotFound as error:
        raise ReplayFailed("agent", shown, "the agent cannot be loaded", f"not checked: {error}") from error


def replay_with(settings: Settings, agent: Agent | None, recording: Recording, shown: str) -> ReplayResult:
    """Replay with an agent by the rules of the suite, or with the recording alone. Raises `ReplayFailed` where its settings cannot work."""
    try:
        return replay(recording, agent, rules=rules_for(settings.root / shown))
    except TracefirstError as error:
        raise ReplayFailed("agent", shown, "the agent cannot run", f"not checked: {shown}: {error}") from error


def verdict_failure(settings: Settings, result: ReplayResult, shown: str, *, allow_drift: bool) -> ReplayFailed | None:
    """The failure that a verdict is, or None. With an agent, says whether the recording alone still replays."""
    if result.verdict == "same" or (result.verdict == "drifted" and allow_drift):
        return of_settings(result, shown) if settings.strict_settings and result.unexercised else None
    if result.verdict == "imported" and settings.alone(result.recording.agent, shown):
        return None
    lines: list[str] = []
    if result.verdict == "imported":
        lines.append(f'name its agent in [tool.tracefirst.agents], or say that there is none: "{shown}" = ""')
    if result.ran_with == "agent":
        alone = replay(result.recording).verdict
        lines.append(
            "the recording alone replays the same: the difference comes from the agent"
            if alone in ("same", "imported")
            else f"the recording alone is {alone.replace('_', ' ')} too: it is not, or not only, the agent"
        )
    if result.verdict == "drifted":
        lines.append(
            "if it is meant: replay accept, which shows the change once, or pytest --replay-record=drifted, which asks the "
            "model again; to let all drift pass: replay_allow_drift = true in [tool.pytest.ini_options]"
        )
    if settings.update and result.verdict != "not_checked":
        lines.append("its snapshot was not written: only a replay that is as recorded may become one")
    return of_verdict(result, shown, *lines)


def _snapshot(
    settings: Settings, text: str, verdict: str, path: Path, shown: str, node: str
) -> tuple[SnapshotState, tuple[str, ...], ReplayFailed | None]:
    extension = ReplaySnapshotExtension()
    try:
        stored = extension.read_snapshot_data_from_location(snapshot_location=str(path))
    except (OSError, UnicodeDecodeError) as error:
        return _unusable(settings, path, shown, verdict, "read", error)
    if stored == text:
        return "equal", (), None
    changes = tuple(diff(stored or "", text))
    if settings.update:
        try:
            write_snapshot(path, text)
        except OSError as error:
            return _unusable(settings, path, shown, verdict, "written", error)
        return ("written" if stored is None else "updated"), changes, None
    where = settings.shown(path)
    state, headline, told = _compared(stored, text, where)
    command = f"pytest {shlex.quote(node)} --replay-update"
    body = text.splitlines() if stored is None else list(changes)
    cut = [] if len(body) <= _DIFF_LINES else [f"  ... {len(body) - _DIFF_LINES} more lines"]
    refused = [f"--snapshot-update does not write it {settings.not_written}"] if settings.not_written else []
    story = [
        f"{shown}: {told}",
        *(f"  {line}" for line in body[:_DIFF_LINES]),
        *cut,
        f"the replay itself is {verdict}",
        *refused,
        f"next: {command}",
    ]
    return state, (), ReplayFailed(state, shown, f"{headline}: {command}", "\n".join(story))


def _unusable(
    settings: Settings, path: Path, shown: str, verdict: str, be: str, error: OSError | UnicodeDecodeError
) -> tuple[SnapshotState, tuple[str, ...], ReplayFailed]:
    story = f"{shown}: {cannot(be, Path(settings.shown(path)), error)}\nthe replay itself is {verdict}"
    return "unusable", (), ReplayFailed("unusable", shown, f"snapshot cannot be {be}", story)


def _compared(stored: str | None, text: str, where: str) -> tuple[Literal["missing", "stale", "changed"], str, str]:
    """Which of the three ways a snapshot is not equal, in a few words and in a sentence."""
    if stored is None:
        return "missing", "snapshot missing", f"its snapshot is missing: {where} would hold"
    (was_format, was), (now_format, now) = header(stored), header(text)
    if was_format != now_format:
        return "stale", "snapshot stale", f"its snapshot is stale: {where} is not of this format ({now_format})"
    if was != now:
        return "stale", "snapshot stale", f"its snapshot is stale: {where} is of another recording ({was}, now {now})"
    return "changed", "snapshot changed", f"its snapshot changed: {where} holds (-), the replay gives (+)"
