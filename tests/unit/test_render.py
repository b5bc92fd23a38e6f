"""Claims about what a person is shown: harmless, within the width, folded, invisible differences made visible."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel.record.run import (
    Budget,
    BudgetReading,
    Call,
    CallRecord,
    Decision,
    Fault,
    GuardVerdict,
    Run,
    RunHead,
    Step,
    ToolFault,
)
from replay.play.divergence import ABSENT
from replay.report.contrasts import contrast
from replay.report.detail import step_detail
from replay.report.literals import cut, line, literal, quoted, width_of, wrap
from replay.report.render import Paint, View, step_lines, tree, value_text
from replay.report.reporting import run_lines
from tests.helpers import runs

HOSTILE = "\x1b[31mred\x1b]8;;http://x\x07 \x9b2J \u202etxt\u2066 \u200b\ud800\r\n\tend"
any_text = st.text(st.characters(codec=None))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


def step_of(index: int, **more: object) -> Step:
    return Step(index=index, decision=Decision(kind="calls", thought=f"thought {index}"), **more)  # type: ignore[arg-type]


def run_of(steps: int) -> Run:
    head = RunHead(agent="ops", task="t", run_id="r", budget=Budget(max_steps=steps))
    return Run(head=head, steps=tuple(step_of(i) for i in range(1, steps + 1)))


# --- literal


@given(any_text)
def test_what_is_shown_of_any_text_is_printable_and_encodable(text: str) -> None:
    shown = literal(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_terminal_sequences_bidi_controls_surrogates_and_line_breaks_become_visible_escapes() -> None:
    assert literal(HOSTILE) == (
        "\\x1b[31mred\\x1b]8;;http://x\\x07 \\x9b2J \\u202etxt\\u2066 \\u200b\\ud800\\r\\n\\tend"
    )


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_printable_text_is_left_as_it_is(text: str) -> None:
    assert literal(text) == text


@given(any_text, any_text)
def test_two_texts_that_differ_are_quoted_differently(one: str, other: str) -> None:
    assert (quoted(one) == quoted(other)) == (one == other)


@given(any_text.map(literal), st.integers(0, 60))
def test_a_cut_text_fits_and_says_that_it_was_cut(text: str, columns: int) -> None:
    shown = cut(text, columns)
    assert width_of(shown) <= columns
    assert shown == text or columns == 0 or shown.endswith("…")


@given(any_text.map(literal), st.integers(2, 40))
def test_wrapped_text_loses_nothing_and_fits(text: str, columns: int) -> None:
    lines = wrap(text, columns, most=10_000)
    assert "".join(lines) == text
    assert all(width_of(part) <= columns for part in lines)


def test_wide_characters_count_two_columns() -> None:
    assert width_of("订单 ok") == 7
    assert cut("订单服务", 5) == "订单…"
    assert width_of(unicodedata.normalize("NFD", "é")) == 1


def test_a_line_of_a_text_of_ten_megabytes_looks_at_its_beginning_only() -> None:
    assert line("x" * 10_000_000, 10) == "x" * 9 + "…"


# --- contrast


@given(any_text, any_text)
def test_texts_that_differ_look_different(one: str, other: str) -> None:
    left, right, remark = contrast(one, other, 80)
    assert left.isprintable() and right.isprintable()
    if one != other:
        assert left != right or remark


@given(json_values, json_values)
def test_any_two_values_are_shown_harmlessly_and_within_bounds(one: object, other: object) -> None:
    for side in contrast(one, other, 60)[:2]:
        assert side.isprintable()
        assert width_of(side) <= 3 * 60 + 150


def test_equal_parts_of_long_texts_are_elided_and_the_place_is_told() -> None:
    one = "a" * 400 + "\n" + "b" * 50 + "OLD" + "c" * 500
    left, right, remark = contrast(one, one.replace("OLD", "NEW"), 80)
    assert left == "…" + "b" * 24 + "OLD" + "c" * 24 + "…"
    assert right == "…" + "b" * 24 + "NEW" + "c" * 24 + "…"
    assert remark == "they differ from character 452, line 2"


@pytest.mark.parametrize(
    ("one", "other", "shown", "remark"),
    [
        ("done", "done ", '"done\\x20"', "they differ in white space only"),
        ("a b", "a\u00a0b", '"a\\xa0b"', "they differ in white space only"),
        ("a b", "a\tb", '"a\\tb"', "they differ in white space only"),
        ("a\nb", "a\r\nb", '"a\\r\\nb"', "they differ in white space only"),
        ("ab", "a\u200bb", '"a\\u200bb"', "they differ in invisible characters only"),
        ("pay", "pаy", '"pаy"', "U+0061 LATIN SMALL LETTER A became U+0430 CYRILLIC SMALL LETTER A"),
        ("é", "e\u0301", '"e\u0301"', "U+00E9 LATIN SMALL LETTER E WITH ACUTE became "
         "U+0065 LATIN SMALL LETTER E U+0301 COMBINING ACUTE ACCENT"),
    ],
)  # fmt: skip
def test_differences_that_the_eye_may_miss_are_made_visible(one: str, other: str, shown: str, remark: str) -> None:
    assert contrast(one, other, 80)[1:] == (shown, remark)


def test_values_of_different_types_are_shown_whole_and_distinct() -> None:
    assert contrast(1, True, 80)[:2] == ("1", "true")
    assert contrast(1, 1.0, 80)[:2] == ("1", "1.0")
    assert contrast("1", 1, 80)[:2] == ('"1"', "1")
    assert contrast(ABSENT, None, 80)[:2] == (ABSENT, "null")


def test_texts_of_megabytes_are_contrasted_by_comparing_memory_not_characters() -> None:
    one = "x" * 5_000_000 + "1" + "y" * 5_000_000
    left, right, _ = contrast(one, one.replace("1", "2"), 80)
    assert "1" in left and "2" in right and len(left) < 100


# --- tree


def test_a_long_run_is_folded_to_its_ends_and_the_first_noted_step() -> None:
    lines = list(tree(run_of(100), View(), notes={50: ["     ≠ here"]}))
    text = "\n".join(lines)
    assert "   ⋮ steps 6-46 not shown (--steps 6-46 or --verbose)" in text
    assert "≠ 50 thought 50" in text and "     ≠ here" in text
    assert "thought 47" in text and "thought 53" in text and "thought 54" not in text
    assert len(lines) < 30


def test_a_run_of_forty_steps_is_not_folded_and_verbose_never_folds() -> None:
    assert not any("⋮" in line for line in tree(run_of(40), View()))
    assert not any("⋮" in line for line in tree(run_of(200), View(verbose=True)))


def test_chosen_steps_are_shown_and_the_rest_is_counted() -> None:
    text = "\n".join(tree(run_of(10), View(steps=(range(3, 5), range(9, 100)))))
    assert [i for i in range(1, 11) if f"thought {i}" in text.replace("thought 10", "thought ten")] == [3, 4, 9]
    assert "steps 1-2 not shown" in text and "steps 5-8 not shown" in text


def test_every_part_of_a_step_stays_harmless_and_within_the_width() -> None:
    """Hostile text in each field of a step reaches no terminal."""
    call = Call(name=HOSTILE, args={HOSTILE: HOSTILE, "deep": [{"k": HOSTILE}]}, coerced=(HOSTILE,))
    records = (
        CallRecord(call=call, outcome="ok", result=HOSTILE, shown=HOSTILE, key=HOSTILE, artifact=HOSTILE),
        CallRecord(call=call, outcome="ok", result={HOSTILE: [HOSTILE]}),
        CallRecord(call=call, outcome="error", error=ToolFault(type=HOSTILE, message=HOSTILE)),
        CallRecord(call=Call(name="", raw=HOSTILE), outcome="bad_args", served_by=HOSTILE),
    )
    step = Step(
        index=1,
        decision=Decision(
            kind="fault",
            thought=HOSTILE,
            fault=Fault(rule=HOSTILE, message=HOSTILE),
            intent=HOSTILE,
            ignored=(HOSTILE,),
        ),
        calls=records,
        guard=GuardVerdict(verdict="warned", rule=HOSTILE, tool=HOSTILE, seen_step=1, warnings=2, period=3),
        feedback=HOSTILE,
        refusal=HOSTILE,
        budget=BudgetReading(prompt_tokens=1234, cost_usd=0.5, elapsed_ns=2_500_000_000),
    )  # fmt: skip
    lines = list(step_lines(step, View(columns=60)))
    assert [text for text in lines if not text.isprintable() or width_of(text) > 60] == []
    assert "1,234 in 0 out · $0.5000 · 2.5 s" in lines[0]
    assert all(text.isprintable() for text in step_detail(step, None, View(columns=60, verbose=True)))


def test_colours_change_nothing_but_colours() -> None:
    calls = (
        CallRecord(call=Call(name="look", args={"at": 1}), outcome="ok", result="fine"),
        CallRecord(call=Call(name="look"), outcome="timeout", served_by="ledger"),
    )
    warned = step_of(4, calls=calls, guard=GuardVerdict(verdict="warned"), feedback="stop", refusal="no")
    run = Run(head=run_of(3).head, steps=(*run_of(3).steps, warned))
    plain = list(tree(run, View()))
    painted = "\n".join(tree(run, View(paint=Paint(True))))
    for style in ("0", "1", "2", "31", "32", "33", "36"):
        painted = painted.replace(f"\x1b[{style}m", "")
    assert painted == "\n".join(plain)


@given(json_values)
def test_any_value_is_shown_on_one_harmless_line(value: object) -> None:
    assert value_text(value).isprintable()


@given(runs())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_is_shown_harmlessly(run: Run) -> None:
    for text in run_lines(run, View(columns=60)):
        assert text.isprintable()
    for step in run.steps:
        assert all(text.isprintable() for text in step_detail(step, None, View(columns=60)))
