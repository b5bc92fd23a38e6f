"""The trace of a replay: whose id it has, when it was, and where it is marked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fixtures.incident import agent, hasty
from kernel import Agent, Budget
from kernel.record import STOP_REASONS
from kernel.trace import ERROR, Span, semconv as sc
from replay import Recording, load, replay
from replay.report.emit import replay_spans, replay_trace_id
from replay.report.marking import MAX_VALUE_CHARS

FIXTURES = Path(__file__).parents[2] / "fixtures"
DAY_NS = 86_400 * 10**9


@pytest.fixture(name="recording")
def recorded() -> Recording:
    [recording] = load(FIXTURES / "order-5xx.trace.json")
    return recording


def marked(spans: list[Span]) -> list[Span]:
    return [span for span in spans[1:] if sc.REPLAY_STEP in span.attributes]


def test_the_same_replay_is_the_same_trace_and_another_one_another(recording: Recording) -> None:
    """Jaeger merges traces of one id: what differs in head or outcome must not share it."""
    reworded = Agent(name=agent.name, system="Be brief.", tools=agent.tools, budget=agent.budget)
    results = [replay(recording), replay(recording, agent), replay(recording, reworded), replay(recording, hasty)]
    ids = [replay_trace_id(result) for result in results]
    assert ids == [replay_trace_id(replay(recording, a)) for a in (None, agent, reworded, hasty)]
    assert len({*ids, recording.trace_id}) == 5
    spans = [{span.span_id for span in replay_spans(result)} for result in results]
    assert not set.intersection(*spans)


def test_what_is_sent_starts_now_with_the_recorded_durations(recording: Recording) -> None:
    as_recorded = replay_spans(replay(recording))
    now = as_recorded[0].start_ns + 300 * DAY_NS
    moved = replay_spans(replay(recording), start_ns=now)
    assert moved[0].start_ns == now
    assert moved[0].attributes[sc.REPLAY_STARTED] == as_recorded[0].start_ns == recording.runs[0].run.mark.start_ns
    for one, other in zip(as_recorded, moved, strict=True):
        assert other.start_ns - one.start_ns == (other.end_ns or 0) - (one.end_ns or 0) == 300 * DAY_NS
        assert [event.time_ns - 300 * DAY_NS for event in other.events] == [event.time_ns for event in one.events]


def with_other_coercion(recording: Recording, step: int) -> Recording:
    """The recording as if another kernel had coerced an argument of a step's first call."""
    [recorded] = recording.runs
    change = msgspec.structs.replace
    old = recorded.run.steps[step - 1]
    record = change(old.calls[0], call=change(old.calls[0].call, coerced=("/limit",)))
    steps = list(recorded.run.steps)
    steps[step - 1] = change(old, calls=(record, *old.calls[1:]))
    return change(recording, runs=(change(recorded, run=change(recorded.run, steps=tuple(steps))),))


def test_a_changed_call_is_marked_on_its_own_call_beside_the_recorded_one(recording: Recording) -> None:
    """The span of the call has both values, an error status, and the id of its counterpart; the root has the same tags."""
    steps = recording.runs[0].run.steps
    step = next(s.index for s in steps if s.calls and s.calls[0].call.name == "search_logs")
    result = replay(with_other_coercion(recording, step))
    spans = replay_spans(result)
    [span] = marked(spans)
    assert span.name == "execute_tool search_logs" and span.status == ERROR
    counterpart = recording.runs[0].run.marks[step - 1].calls[0].span_id
    assert span.attributes[sc.REPLAY_COUNTERPART] == counterpart
    assert span.attributes[sc.ORIGINAL_TRACE_ID] == recording.trace_id
    [event] = [event for event in span.events if event.name == sc.DIVERGENCE_EVENT]
    described = {key: event.attributes[key] for key in (sc.REPLAY_STEP, sc.REPLAY_PATH, sc.REPLAY_RECORDED)}
    assert described == {sc.REPLAY_STEP: step, sc.REPLAY_PATH: "/coerced/0", sc.REPLAY_RECORDED: "/limit"}
    assert event.attributes[sc.REPLAY_OBSERVED] == "(absent)"
    assert spans[0].attributes[sc.REPLAY_CAUSE] == span.attributes[sc.REPLAY_CAUSE] == "tool schema"


def test_a_run_that_stops_earlier_is_marked_where_it_stopped(recording: Recording) -> None:
    result = replay(recording, hasty)
    spans = replay_spans(result)
    assert result.first is not None
    [span] = marked(spans)
    assert span.name == "step" and span.attributes[sc.STEP_INDEX] == 3
    assert span.status == ERROR and str(result.first.step) in span.status_message
    root = spans[0].attributes
    assert (root[sc.REPLAY_STOP_RECORDED], root[sc.REPLAY_STOP_REPLAYED]) == ("finish", "max_steps")
    assert {root[sc.REPLAY_STOP_RECORDED], root[sc.REPLAY_STOP_REPLAYED]} <= set(STOP_REASONS)


def test_drift_is_marked_on_the_chat_without_an_error(recording: Recording) -> None:
    """A request that differs is no failure of the run: searches for errors do not find it, searches for drift do."""
    reworded = Agent(name=agent.name, system="x" * 5_000, tools=agent.tools, budget=Budget(max_steps=8))
    result = replay(recording, reworded)
    spans = replay_spans(result)
    assert result.verdict == "drifted"
    [span] = marked(spans)
    assert span.name.startswith("chat") and span.status != ERROR
    [event] = [event for event in span.events if event.name == sc.DIVERGENCE_EVENT][:1]
    assert len(str(event.attributes[sc.REPLAY_OBSERVED])) <= MAX_VALUE_CHARS
    assert spans[0].attributes[sc.REPLAY_VERDICT] == "drifted"


def test_a_replay_that_is_the_same_has_no_mark(recording: Recording) -> None:
    spans = replay_spans(replay(recording, agent))
    assert not marked(spans) and sc.REPLAY_CAUSE not in spans[0].attributes
    assert all(event.name != sc.DIVERGENCE_EVENT for span in spans for event in span.events)


def test_marked_spans_still_fit_their_seals(recording: Recording, tmp_path: Path) -> None:
    from replay.report.emit import resource_of, write

    path = tmp_path / "replay.trace.json"
    write(path, replay_spans(replay(recording, hasty)), resource_of(recording))
    [back] = load(path)
    assert back.runs[0].problems == ()


def test_no_span_of_a_replay_ends_before_it_starts(recording: Recording) -> None:
    """A call that was open when its process was killed has a start and no end."""
    [recorded] = recording.runs
    change = msgspec.structs.replace
    marks = list(recorded.run.marks)
    opened = change(marks[0].calls[0], start_ns=marks[0].calls[0].start_ns + DAY_NS, end_ns=None)
    marks[0] = change(marks[0], calls=(opened, *marks[0].calls[1:]))
    killed = change(recording, runs=(change(recorded, run=change(recorded.run, marks=tuple(marks))),))
    assert all(span.end_ns is None or span.end_ns >= span.start_ns for span in replay_spans(replay(killed)))
