"""OTLP/JSON keeps every span whole, and takes any Python value without raising."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings, strategies as st

from kernel.trace.otlp import decode_span, encode_document, encode_line, encode_span
from kernel.trace.span import Event, Link, Resource, Span

_text = st.text(max_size=20)
_uint64 = st.integers(0, 2**64 - 1)
_leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | _text
    | st.binary(max_size=20)
)
_value = st.recursive(_leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4))
_attributes = st.dictionaries(_text, _value, max_size=6)


def _hex(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


_events = st.builds(Event, name=_text, time_ns=_uint64, attributes=_attributes)
_links = st.builds(Link, trace_id=_hex(32), span_id=_hex(16), attributes=_attributes)
_spans = st.builds(
    Span,
    trace_id=_hex(32),
    span_id=_hex(16),
    parent_id=st.none() | _hex(16),
    name=_text,
    kind=st.integers(0, 5),
    start_ns=_uint64,
    end_ns=st.none() | st.integers(1, 2**64 - 1),
    attributes=_attributes,
    events=st.lists(_events, max_size=2).map(tuple),
    links=st.lists(_links, max_size=2).map(tuple),
    status=st.integers(0, 2),
    status_message=_text,
    dropped=st.integers(0, 2**32 - 1),
)


def _typed(value: Any) -> Any:
    """Equality that tells 1 from 1.0 and from True, and 0.0 from -0.0."""
    if isinstance(value, dict):
        return [(key, _typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return (type(value).__name__, repr(value))


@settings(deadline=None)
@given(_spans)
def test_a_span_comes_back_as_it_was(span: Span) -> None:
    back = decode_span(encode_span(span))
    assert back == span
    assert _typed(back.attributes) == _typed(span.attributes)


@settings(deadline=None)
@given(st.lists(_spans, max_size=3), st.builds(Resource, attributes=_attributes, scope_name=_text, scope_version=_text))
def test_the_review_layout_and_the_line_hold_the_same_json(spans: list[Span], resource: Resource) -> None:
    document, line = encode_document(spans, resource), encode_line(spans, resource)
    assert json.loads(document) == json.loads(line)
    assert document.endswith(b"\n")
    assert line.count(b"\n") == 1
    inner = json.loads(document)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [decode_span(json.dumps(item)) for item in inner] == spans


_anything = st.recursive(
    _leaf
    | st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010), max_size=3)
    | st.integers()
    | st.builds(lambda: 2**20000)
    | st.just(math.nan)
    | st.just({1, 2})
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.integers() | st.builds(lambda: 2**20000) | st.none() | st.text(max_size=2), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(_anything)
def test_any_python_value_gives_valid_json_and_keeps_the_span(value: Any) -> None:
    span = Span(trace_id="ab" * 16, span_id="cd" * 8, name="x", attributes={"before": 1, "value": value, "after": 2})
    back = decode_span(encode_span(span))
    assert list(back.attributes) == ["before", "value", "after"]
    assert decode_span(encode_span(back)).attributes.keys() == back.attributes.keys()
