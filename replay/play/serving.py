"""Differences of serving: what a replay asked for that was not recorded, and what was recorded and not asked for."""

from __future__ import annotations

from functools import partial
from typing import Any

from kernel.record import Call, CallRecord, Run
from replay.play.divergence import ABSENT, Divergence, differences
from replay.play.doubles import RecordedModel, RecordedTools, ReplayMiss


def missed(recorded: Run, miss: ReplayMiss, replayed_steps: int, turn: int) -> list[Divergence]:
    """What the run asked for that no recording could serve; it was torn down there."""
    step = miss.step or replayed_steps + 1
    if miss.kind == "model":
        ended = recorded.end.stop_reason if recorded.end is not None else "the end"
        return [
            Divergence(
                step=step,
                kind="stop",
                path="/steps",
                recorded=f"{len(recorded.steps)} steps, then {ended}",
                observed="asks the model for another reply",
                span_id=recorded.mark.span_id,
                cause=_longer_cause(ended),
                turn=turn,
            )
        ]
    call: Call = miss.wanted
    asked = {"tool": call.name, "args": call.args}
    at = partial(Divergence, step=step, kind="call", span_id=span_of(recorded, step), turn=turn)
    if miss.kind == "approval":
        return [at(path="/approval", recorded="not asked", observed=asked, cause="approval")]
    was = recorded.steps[step - 1].calls if step <= len(recorded.steps) else ()
    nearest = was[miss.position] if miss.position < len(was) else None
    if nearest is None:
        return [at(path="", recorded=ABSENT, observed=asked, cause="parser")]
    if nearest.call.name != call.name:
        before = {"tool": nearest.call.name, "args": nearest.call.args}
        return [at(path="", recorded=before, observed=asked, cause=_refused_cause(nearest))]
    if places := list(differences(nearest.call.args, call.args, "/args")):
        return [at(path=path, recorded=one, observed=other, cause="arguments") for path, one, other in places]
    told = f"answered by the {nearest.served_by}" if nearest.served_by else f"{nearest.outcome}, not run"
    return [at(path="", recorded=told, observed=asked, cause=_refused_cause(nearest))]


def crashed(recorded: Run, crash: str, replayed_steps: int, turn: int) -> Divergence:
    """The step in which the kernel, or code of the agent that it calls, failed instead of going on."""
    step = replayed_steps + 1
    return Divergence(
        step=step,
        kind="crash",
        path="",
        recorded="no failure",
        observed=crash,
        span_id=span_of(recorded, step),
        cause="kernel",
        turn=turn,
    )


def left_over(recorded: Run, model: RecordedModel, tools: RecordedTools, turn: int) -> list[Divergence]:
    """Recorded replies and results that nobody asked for."""
    out: list[Divergence] = []

    def add(step: int, path: str, was: Any, cause: str) -> None:
        out.append(
            Divergence(
                step=step,
                kind="missing",
                path=path,
                recorded=was,
                observed="not asked for",
                span_id=span_of(recorded, step),
                cause=cause,
                turn=turn,
            )
        )

    if rest := model.recorded - model.served:
        add(model.served + 1, "/model", f"{rest} more model replies", "budget")
    for record in tools.unused():
        step = next((s.index for s in recorded.steps if any(record is one for one in s.calls)), 0)
        add(step, "/call", {"tool": record.call.name, "args": record.call.args}, "arguments")
    return out


def span_of(run: Run, step: int) -> str:
    """The span of a step, or of the run where the recording has no such step."""
    return run.marks[step - 1].step.span_id if 0 < step <= len(run.marks) else run.mark.span_id


def _refused_cause(nearest: CallRecord) -> str:
    if nearest.served_by == "guard":
        return "guard"
    return "tool schema" if nearest.outcome in ("bad_args", "unknown_tool") else "policy"


def _longer_cause(ended: str) -> str:
    if ended in ("max_steps", "token_budget", "cost_budget") or ended.endswith("_exhausted"):
        return "budget"
    return {"timeout": "clock", "loop_detected": "guard"}.get(ended, "parser")
