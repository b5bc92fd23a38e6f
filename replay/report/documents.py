"""The outcome of replays as one JSON document: a function of the results alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kernel.record import Run, to_jsonable
from replay.play import Divergence, Recording, ReplayResult, Setting

LAYERS = ("requests", "decisions", "calls", "results", "observations", "guard", "feedback", "budget", "stop")
"""What a replay compares where it was recorded."""


class Emitted(Struct, frozen=True, kw_only=True):
    """Where a replay's own trace went: its id, the page that compares both, the file."""

    trace_id: str
    link: str = ""
    path: str = ""


def document(
    results: Sequence[tuple[ReplayResult, Emitted | None]], errors: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The document of `--format json`. `errors` are pairs of file and message."""
    out: dict[str, Any] = {"traces": [trace_document(result, emitted) for result, emitted in results]}
    if errors:
        out["errors"] = [{"file": file, "message": message} for file, message in errors]
    return out


def trace_document(result: ReplayResult, emitted: Emitted | None = None) -> dict[str, Any]:
    """One replay. The keys up to `replay_trace_id` are the contract, in this order."""
    recording = result.recording
    runs = [recorded.run for recorded in recording.runs]
    layers, unrecorded = layers_of(recording)
    return {
        "trace_id": recording.trace_id,
        "agent": recording.agent,
        "verdict": result.verdict,
        "ran_with": result.ran_with,
        "stop_reason": {"recorded": last_stop(runs), "replayed": last_stop(result.observed)},
        "steps": {"recorded": step_count(runs), "replayed": step_count(result.observed)},
        "served": msgspec.to_builtins(result.served),
        "unused": msgspec.to_builtins(result.unused),
        "live": 0,
        "divergences": [_divergence(divergence) for divergence in result.divergences],
        "replay_trace_id": emitted.trace_id if emitted is not None else None,
        "file": recording.file,
        "turns": len(runs),
        "complete": result.complete,
        "why_not": result.why_not or None,
        "compared": list(layers) if result.verdict != "not_checked" else [],
        "not_recorded": list(unrecorded),
        "notes": list(recording.notes),
        "compare": emitted.link or None if emitted is not None else None,
        "settings": [_setting(setting, result) for setting in result.settings],
        "kept": list(result.kept),
        "dropped": list(recording.dropped),
        "rules": [
            {
                "name": use.rule.name,
                "path": use.rule.path,
                "pattern": use.rule.pattern,
                "matched": use.matched,
                "settled": use.settled,
            }
            for use in result.rules
        ],
    }


def to_json(value: Any) -> str:
    """Indented ASCII JSON with its final newline, so that no foreign text can act on a terminal."""
    try:
        return json.dumps(value, indent=2, allow_nan=False) + "\n"
    except (ValueError, TypeError, RecursionError):
        return json.dumps(to_jsonable(value), indent=2, allow_nan=False) + "\n"


def _divergence(divergence: Divergence) -> dict[str, Any]:
    plain: dict[str, Any] = {name: getattr(divergence, name) for name in Divergence.__struct_fields__}
    return plain


def _setting(setting: Setting, result: ReplayResult) -> dict[str, Any]:
    return {
        "path": setting.path,
        "recorded": setting.recorded,
        "observed": setting.observed,
        "cause": setting.cause,
        "exercised": setting not in result.unexercised,
    }


def last_stop(runs: Sequence[Run]) -> str | None:
    """The stop reason of the last run, None where it was cut short."""
    end = runs[-1].end if runs else None
    return end.stop_reason if end is not None else None


def step_count(runs: Sequence[Run]) -> int:
    """Steps of all runs."""
    return sum(len(run.steps) for run in runs)


def layers_of(recording: Recording) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which layers the recording holds, and what else it says nobody recorded."""
    absent = tuple(dict.fromkeys(name for recorded in recording.runs for name in recorded.run.head.absent))
    return tuple(layer for layer in LAYERS if layer not in absent), absent
