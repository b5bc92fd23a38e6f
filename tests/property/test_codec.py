"""The codec loses nothing: every run comes back from its spans as it was, and every change to them is named."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from kernel.record.run import Run
from kernel.trace import semconv as sc
from kernel.trace.codec import Problem, decode_run, encode_run, seal
from kernel.trace.otlp import encode_document
from kernel.trace.span import Resource, Span
from replay.loading import load
from replay.play.divergence import differences
from tests.helpers import runs

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("*.trace.json"))
ODD: list[Any] = [
    None,
    True,
    2**70,
    -1,
    0.5,
    b"\xff",
    [],
    {},
    "",
    "7",
    "[]",
    "{}",
    "null",
    "[{}]",
    "[[1]]",
    "[1",
    '{"texts":{"no":""}}',
]
thorough = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def assert_same(found: tuple[Run, tuple[Problem, ...]], wanted: tuple[Run, tuple[Problem, ...]]) -> None:
    """Equality with a message of a line: pytest's own difference of two runs takes minutes."""
    if found != wanted:
        places = [*differences(msgspec.to_builtins(wanted[0]), msgspec.to_builtins(found[0]), "")]
        raise AssertionError(f"{places[:3]} {found[1][:3]}")


def spans_of(run: Run) -> list[Span]:
    return encode_run(run, trace_id=TRACE_ID)


def decoded(spans: Sequence[Span]) -> tuple[Run, tuple[Problem, ...]]:
    root = next((span for span in spans if span.attributes.get(sc.OPERATION) == sc.INVOKE_AGENT), None)
    return decode_run(root, [span for span in spans if span is not root])


@thorough
@given(runs(), st.randoms(use_true_random=False))
def test_a_run_comes_back_from_its_spans_in_any_order(run: Run, shuffle: random.Random) -> None:
    spans = spans_of(run)
    shuffle.shuffle(spans)
    assert_same(decoded(spans), (run, ()))


@thorough
@given(runs(), st.randoms(use_true_random=False))
def test_a_run_comes_back_from_its_trace_file(run: Run, shuffle: random.Random) -> None:
    spans = spans_of(run)
    shuffle.shuffle(spans)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.trace.json")
        path.write_bytes(encode_document(spans, Resource(attributes={"service.name": "codec"})))
        [recording] = load(path)
    [recorded] = recording.runs
    assert_same((recorded.run, recorded.problems), (run, ()))


@given(runs(), st.randoms(use_true_random=False))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_encoding_does_not_change_the_run_and_is_the_same_each_time(run: Run, shuffle: random.Random) -> None:
    before = msgspec.json.encode(run)
    assert spans_of(run) == spans_of(run)
    assert msgspec.json.encode(run) == before


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name.removesuffix(".trace.json"))
def test_the_recorder_and_encode_run_write_the_same_attributes(path: Path) -> None:
    """Two ways lead to spans, the recorder's and `encode_run`'s: what one wrote, the other writes again."""
    from replay.readers import read_traces

    [recording] = load(path)
    [raw] = read_traces(path).traces
    written = {span.span_id: span for span in raw.spans}
    for recorded in recording.runs:
        assert recorded.problems == ()
        for span in encode_run(recorded.run, trace_id=raw.trace_id):
            was = written[span.span_id]
            assert (span.name, span.kind, span.status) == (was.name, was.kind, was.status)
            assert list(span.attributes.items()) == list(was.attributes.items())


def changes(value: Any) -> st.SearchStrategy[Any]:
    """Other values that something downstream could leave in the place of this one."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, (int, float)):
        return st.sampled_from([-value - 1, str(value), None])
    if isinstance(value, str):
        cut = st.integers(0, max(len(value) - 1, 0)).map(lambda n: value[:n])
        return st.one_of(cut, st.just(value + "…"), st.just("****"), st.just(None), st.just([value]))
    return st.just([*value, "more"])


@thorough
@given(runs(cut=False), st.data())
def test_a_changed_attribute_is_named_with_its_span(run: Run, data: st.DataObject) -> None:
    spans = spans_of(run)
    span = data.draw(st.sampled_from(spans))
    key = data.draw(st.sampled_from(sorted(span.attributes.keys() - {sc.SEAL})))
    was = dict(span.attributes)
    span.attributes[key] = data.draw(changes(was[key]))
    assume(seal({key: span.attributes[key]}) != seal({key: was[key]}))  # what OTLP writes alike is no change
    _, problems = decode_run(spans[0], spans[1:])
    named = {problem.attribute for problem in problems if problem.span_id == span.span_id}
    collides = seal({key: was[key]}).partition(".")[2] == seal({key: span.attributes[key]}).partition(".")[2]
    assert (sc.SEAL if collides else key) in named


@thorough
@given(runs(cut=False), st.data())
def test_a_dropped_attribute_is_a_problem_of_its_span(run: Run, data: st.DataObject) -> None:
    spans = spans_of(run)
    span = data.draw(st.sampled_from(spans))
    del span.attributes[data.draw(st.sampled_from(sorted(span.attributes)))]
    _, problems = decode_run(spans[0], spans[1:])
    assert span.span_id in {problem.span_id for problem in problems}


@given(runs(cut=False), st.sampled_from(["", "****", "00000000.", None, 7, [1], "00000000"]))
@settings(parent=thorough, max_examples=30)
def test_a_damaged_seal_is_named_and_no_attribute_is_blamed_for_it(run: Run, damaged: Any) -> None:
    spans = spans_of(run)
    spans[0].attributes[sc.SEAL] = damaged
    _, problems = decode_run(spans[0], spans[1:])
    assert [(p.attribute, p.span_id) for p in problems] == [(sc.SEAL, run.mark.span_id)]


@thorough
@given(runs(cut=False), st.data())
def test_a_dropped_or_doubled_span_is_a_problem(run: Run, data: st.DataObject) -> None:
    spans = spans_of(run)
    assume(len(spans) > 1)
    span = data.draw(st.sampled_from(spans[1:]))
    others = [other for other in spans[1:] if other is not span]
    assert decode_run(spans[0], others)[1] != ()
    assert decode_run(spans[0], [*spans[1:], msgspec.structs.replace(span, span_id="f" * 16)])[1] != ()


@thorough
@given(runs(cut=False), st.data())
def test_attributes_added_downstream_by_others_are_no_problem(run: Run, data: st.DataObject) -> None:
    spans = spans_of(run)
    for span in spans:
        span.attributes["k8s.pod.name"] = data.draw(st.text(max_size=3))
    assert decode_run(spans[0], spans[1:]) == (run, ())


@thorough
@given(runs(), st.data())
def test_decoding_never_raises_whatever_was_done_to_the_spans(run: Run, data: st.DataObject) -> None:
    spans = spans_of(run)
    for _ in range(data.draw(st.integers(1, 3))):
        span = data.draw(st.sampled_from(spans))
        key = data.draw(st.sampled_from([*sorted(span.attributes), sc.STEP_INDEX, sc.OPERATION, sc.CONFIG]))
        span.attributes[key] = data.draw(st.sampled_from(ODD))
    lost = data.draw(st.booleans())
    decode_run(None if lost else spans[0], spans[1:])


def test_the_runs_drawn_here_use_every_field_of_every_record() -> None:
    """Else a new field could be lost by the codec, and no test would know."""
    used: set[tuple[type, str]] = set()
    kinds: set[type] = set()

    def look(value: Any) -> None:
        if isinstance(value, msgspec.Struct):
            kinds.add(type(value))
            for field in msgspec.structs.fields(value):
                item = getattr(value, field.name)
                if field.required or item != (
                    field.default_factory() if field.default is msgspec.NODEFAULT else field.default
                ):
                    used.add((type(value), field.name))
                look(item)
        elif isinstance(value, tuple):
            for item in value:
                look(item)

    @given(runs())
    @settings(parent=thorough, max_examples=500, derandomize=True, database=None)
    def draw(run: Run) -> None:
        look(run)

    draw()
    every = {(kind, field.name) for kind in kinds for field in msgspec.structs.fields(kind)}
    assert {f"{kind.__name__}.{name}" for kind, name in every - used} == set()
