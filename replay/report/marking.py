"""The differences of a replay on the very spans where they happened, as events and short tags that Jaeger can search for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.record import Run, clipped, compact_json, to_jsonable
from kernel.trace import ERROR, Event, Span, seal, semconv as sc
from replay.play import DRIFT, Divergence, ReplayResult

MAX_VALUE_CHARS = 500
"""Of each side of a difference on an event: a viewer's column, not the evidence, which the report has."""
MAX_EVENTS = 20


def mark(spans: Sequence[Span], result: ReplayResult, runs: Sequence[Run]) -> None:
    """Put the verdict on the first of `spans`, and each leading difference on the span where it happened.

    `runs` are the replayed ones with the ids of `spans`. A difference where the replay has no span of that place, since it
    went no further, stands on the nearest one above it.
    """
    by_id = {span.span_id: span for span in spans}
    root = spans[0]
    recorded = [recorded.run for recorded in result.recording.runs]
    root.attributes |= _verdict_tags(result, recorded)
    first = result.first
    leading = [d for d in result.divergences if not d.downstream]
    if first is not None:
        leading = [first, *(d for d in leading if d is not first)]
    for divergence in leading[:MAX_EVENTS]:
        span = by_id[_where(divergence, recorded, runs) or root.span_id]
        time_ns = span.start_ns if span.end_ns is None else span.end_ns
        span.events = (
            *span.events,
            Event(name=sc.DIVERGENCE_EVENT, time_ns=time_ns, attributes=_described(divergence)),
        )
        if divergence is first:
            for place in (span, root):
                place.attributes |= _tags(divergence, result.recording.trace_id)
            if divergence.kind not in DRIFT:
                span.status, span.status_message = ERROR, _headline(divergence)
    for span in spans:
        _reseal(span)


def _verdict_tags(result: ReplayResult, recorded: Sequence[Run]) -> dict[str, Any]:
    tags: dict[str, Any] = {
        sc.ORIGINAL_TRACE_ID: result.recording.trace_id,
        sc.REPLAY_VERDICT: result.verdict,
        sc.REPLAY_RAN_WITH: result.ran_with,
    }
    ends = ((sc.REPLAY_STOP_RECORDED, recorded), (sc.REPLAY_STOP_REPLAYED, result.observed))
    return tags | {tag: runs[-1].end.stop_reason for tag, runs in ends if runs and runs[-1].end is not None}


def _headline(divergence: Divergence) -> str:
    return f"step {divergence.step} {divergence.kind} {divergence.path}"[:200]


def _tags(divergence: Divergence, trace_id: str) -> dict[str, Any]:
    return {
        sc.ORIGINAL_TRACE_ID: trace_id,
        sc.REPLAY_DIVERGENCE: _headline(divergence),
        sc.REPLAY_STEP: divergence.step,
        sc.REPLAY_KIND: divergence.kind,
        sc.REPLAY_CAUSE: divergence.cause,
        sc.REPLAY_COUNTERPART: divergence.span_id,
    }


def _described(divergence: Divergence) -> dict[str, Any]:
    return {
        sc.REPLAY_STEP: divergence.step,
        sc.REPLAY_KIND: divergence.kind,
        sc.REPLAY_PATH: divergence.path,
        sc.REPLAY_CAUSE: divergence.cause,
        sc.REPLAY_COUNTERPART: divergence.span_id,
        sc.REPLAY_RECORDED: _text(divergence.recorded),
        sc.REPLAY_OBSERVED: _text(divergence.observed),
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else compact_json(to_jsonable(value))
    return clipped(text, MAX_VALUE_CHARS)


def _where(divergence: Divergence, recorded: Sequence[Run], runs: Sequence[Run]) -> str:
    """The id of the replayed span that stands where the recorded one of a difference stands; of the nearest above it where
    the replay went no further; "" where no run of that turn was replayed."""
    if not 0 < divergence.turn <= min(len(recorded), len(runs)):
        return ""
    was, now = recorded[divergence.turn - 1], runs[divergence.turn - 1]
    if divergence.step < 1 or not now.marks:
        return now.mark.span_id
    if divergence.step > len(now.marks):
        return now.marks[-1].step.span_id
    here = now.marks[divergence.step - 1]
    if divergence.step <= len(was.marks):
        there = was.marks[divergence.step - 1]
        pairs = [(there.chat, here.chat), *zip(there.calls, here.calls, strict=False)]
        for one, other in pairs:
            if one is not None and other is not None and one.span_id and one.span_id == divergence.span_id:
                return other.span_id
    return here.step.span_id


def _reseal(span: Span) -> None:
    if span.attributes.pop(sc.SEAL, None) is not None:
        span.attributes[sc.SEAL] = seal(span.attributes)
