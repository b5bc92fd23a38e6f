"""Budgets: reserved before, settled after; nothing unknown is ever zero; never overrun by more than one call."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kernel.loop.limits import Spending, estimate_tokens, message_tokens
from kernel.record.messages import Message, Reply, ToolCall, Usage
from kernel.record.run import Budget, Price

PRICE = Price(input_usd=2.0, output_usd=8.0, cache_read_usd=0.2, cache_write_usd=2.5)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("中文", 2), ("中文ab", 3), ("한국", 2), ("é" * 4, 1)],
)
def test_text_is_estimated_by_its_script(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_calls_in_a_message_count() -> None:
    plain = Message(role="assistant", content="x" * 8)
    calling = Message(role="assistant", content="x" * 8, tool_calls=(ToolCall(name="look", arguments='{"q":1}'),))
    assert message_tokens(calling, estimate_tokens) > message_tokens(plain, estimate_tokens) >= 2


@given(
    st.lists(st.tuples(st.integers(1, 300), st.none() | st.integers(0, 300), st.integers(0, 50)), max_size=30),
    st.integers(1, 2000),
)
def test_spent_never_passes_the_budget_by_more_than_one_call(
    calls: list[tuple[int, int | None, int]], most: int
) -> None:
    spending = Spending(Budget(max_prompt_tokens=most, max_cost_usd=0.004), PRICE)
    for estimate, reported, output in calls:
        if spending.exceeded() or spending.reserve(estimate) is not None:
            break
        before, cost_before = spending.prompt_tokens, spending.cost_usd or 0.0
        assert before + estimate <= most and cost_before <= 0.004
        spending.settle(Reply(text="x", usage=Usage(input_tokens=reported, output_tokens=output)), estimate)
        assert spending.prompt_tokens == before + (estimate if reported is None else reported)


@given(st.integers(0, 9000), st.none() | st.integers(0, 9000), st.text(max_size=40))
def test_what_is_estimated_is_the_same_whether_it_is_read_from_the_reply_or_counted(
    prompt: int, reported: int | None, text: str
) -> None:
    reply = Reply(text=text, usage=Usage(input_tokens=reported, cache_read_tokens=3))
    counted, direct, replayed = (Spending(Budget(), PRICE) for _ in range(3))
    known = counted.counted(reply, prompt)
    assert known.usage.estimated and known.usage.output_tokens == estimate_tokens(text)
    direct.settle(reply, prompt)
    replayed.settle(known, prompt + 77)
    assert direct.reading(0) == replayed.reading(0)


def test_a_reply_with_all_counts_is_left_as_it_is() -> None:
    reply = Reply(text="x", usage=Usage(input_tokens=0, output_tokens=0))
    assert Spending(Budget(), None).counted(reply, 5) is reply


def test_four_classes_are_priced_each_by_its_own_price() -> None:
    spending = Spending(Budget(max_cost_usd=1.0), PRICE)
    usage = Usage(
        input_tokens=1000, output_tokens=10, cache_read_tokens=600, cache_write_tokens=300, reasoning_tokens=4
    )
    spending.settle(Reply(usage=usage), 0)
    assert spending.cost_usd == pytest.approx((100 * 2 + 600 * 0.2 + 300 * 2.5 + 10 * 8) / 1e6)
    assert spending.left_usd() == pytest.approx(1.0 - (spending.cost_usd or 0))
    assert spending.usage() == usage


def test_a_cache_class_without_a_price_costs_what_input_costs() -> None:
    spending = Spending(Budget(), Price(input_usd=2.0, output_usd=0.0))
    spending.settle(Reply(usage=Usage(input_tokens=1000, output_tokens=0, cache_read_tokens=900)), 0)
    assert spending.cost_usd == pytest.approx(1000 * 2 / 1e6)


def test_without_a_price_cost_is_unknown_not_zero() -> None:
    spending = Spending(Budget(), None)
    spending.settle(Reply(usage=Usage(input_tokens=9, output_tokens=9)), 9)
    assert spending.cost_usd is None and spending.reading(0).cost_usd is None and spending.left_usd() is None


def test_a_failed_attempt_that_may_have_been_charged_is_booked_as_an_estimate() -> None:
    spending = Spending(Budget(), None)
    spending.settle(None, 40)
    assert (spending.prompt_tokens, spending.output_tokens, spending.estimated) == (40, 0, True)
