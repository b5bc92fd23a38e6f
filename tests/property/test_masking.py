"""Invariants of masking over generated texts and values."""

import json
from typing import Any

from hypothesis import given, strategies as st

from kernel.masking import Masker, contains_placeholder

MASKER = Masker.default()
WIDE = Masker.default(personal=True)

# Pieces that rules start with, end with, or stumble over, glued together at random.
PIECES = [
    "sk" + "-",
    "sk" + "-ant-",
    "gh" + "p_",
    "AK" + "IA",
    "ey" + "J",
    "password",
    "api_key",
    "token",
    "Bearer ",
    "Basic ",
    "Cookie: ",
    "=",
    ":",
    ": ",
    '"',
    "'",
    "\\",
    '\\"',
    "\\n",
    "\n",
    " ",
    ".",
    "-",
    "_",
    "~",
    "@",
    "://",
    "/",
    "&",
    ",",
    "(",
    ")",
    "{",
    "}",
    "-----BEGIN PRIVATE " + "KEY-----",
    "-----END PRIVATE " + "KEY-----",
    "a1B2c3D4e5F6g7H8",
    "ABCDEFGH23456789",
    "hunter2",
    "word",
    "name",
    "value",
    "\\u002d",
    "\\u0022",
    "~masked.password.12ab~",
    "é",
    "4111111111111111",
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=24).map("".join)
keys = st.sampled_from(["password", "api_key", "n", "id", "name", "value", "token"]) | texts
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(texts)
def test_masking_a_text_twice_is_masking_it_once(text: str) -> None:
    for masker in (MASKER, WIDE):
        once = masker.mask_text(text)
        assert masker.mask_text(once) == once


@given(values)
def test_masking_a_value_twice_is_masking_it_once_and_numbers_stay(value: Any) -> None:
    once, count = WIDE.mask_counted(value)
    assert WIDE.mask(once) == once
    assert (once is value) == (not count)
    assert _shape(once) == _shape(value)


@given(values)
def test_json_text_stays_json_text_of_the_same_shape(value: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        nested = json.dumps({"arguments": text}, ensure_ascii=ascii_only)
        assert _shape(json.loads(MASKER.mask_text(text))) == _shape(json.loads(text))
        assert _shape(json.loads(json.loads(MASKER.mask_text(nested))["arguments"])) == _shape(json.loads(text))


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=4, max_size=30), st.integers(0, 3))
def test_a_password_is_masked_alike_in_data_and_in_json_text_at_any_depth(secret: str, depth: int) -> None:
    parsed = MASKER.mask({"password": secret})["password"]
    text = json.dumps({"password": secret})
    for _ in range(depth):
        text = json.dumps({"t": text})
    masked = MASKER.mask_text(text)
    for _ in range(depth):
        masked = json.loads(masked)["t"]
    assert json.loads(masked)["password"] == parsed


@given(values)
def test_a_changed_value_is_seen_to_hold_a_placeholder(value: Any) -> None:
    masked, count = MASKER.mask_counted(value)
    if count:
        assert contains_placeholder(masked)


def _shape(value: Any) -> Any:
    """`value` with strings blanked: numbers, types and order are what masking must keep."""
    if isinstance(value, str):
        return ""
    if isinstance(value, list):
        return [_shape(item) for item in value]
    if isinstance(value, dict):
        return [_shape(item) for item in value.values()]
    return (type(value), value)
