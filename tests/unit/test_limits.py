"""Budgets: reserved before, settled after; nothing unknown is ever zero; never overrun by more than one call."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel.loop.limits import Reservation, Spending, estimate_tokens, message_tokens
from kernel.record.messages import Message, ModelParams, Reply, ToolCall, Usage, bounded, output_bound
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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(1, 300), st.none() | st.integers(0, 300), st.integers(0, 50)), max_size=30),
    st.integers(1, 2000),
)
def test_spent_never_passes_the_budget_by_more_than_one_call(
    calls: list[tuple[int, int | None, int]], most: int
) -> None:
    spending = Spending(Budget(max_prompt_tokens=most, max_cost_usd=0.004), PRICE)
    for estimate, reported, output in calls:
        if spending.exceeded() or spending.reserve(estimate, None).refused is not None:
            break
        before, cost_before = spending.prompt_tokens, spending.cost_usd or 0.0
        assert before + estimate <= most and cost_before <= 0.004
        spending.settle(Reply(text="x", usage=Usage(input_tokens=reported, output_tokens=output)), estimate)
        assert spending.prompt_tokens == before + (estimate if reported is None else reported)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 400)), max_size=60),
    st.sampled_from([1e-6, 1e-5, 0.0004, 0.004, 0.0123]),
    st.integers(20, 2000),
    st.integers(1, 400),
    st.sampled_from([PRICE, Price(input_usd=0.0375, output_usd=0.3), Price(input_usd=0.0, output_usd=1.0)]),
)
def test_a_model_that_keeps_to_its_bound_never_spends_more_than_the_budget(
    calls: list[tuple[int, int]], usd: float, output: int, bound: int, price: Price
) -> None:
    spending = Spending(Budget(max_cost_usd=usd, max_total_output_tokens=output), price)
    for prompt, wanted in calls:
        reserved = spending.reserve(prompt, bound)
        if spending.exceeded() or reserved.refused is not None:
            break
        assert reserved.bound is not None and min(16, bound) <= reserved.bound <= bound
        assert (reserved.bound < bound) == bool(reserved.by)
        reply = Reply(usage=Usage(input_tokens=prompt, output_tokens=min(wanted, reserved.bound)))
        spending.settle(reply, prompt)
    assert spending.output_tokens <= output and (spending.cost_usd or 0.0) <= usd * (1 + 1e-9)


def test_the_smaller_of_two_limits_bounds_the_reply_and_is_named() -> None:
    spending = Spending(Budget(max_cost_usd=0.001, max_total_output_tokens=70), Price(input_usd=0.0, output_usd=10.0))
    assert spending.reserve(5, 50) == Reservation(bound=50)
    assert spending.reserve(5, 80) == Reservation(bound=70, by="max_total_output_tokens=70")
    assert spending.reserve(5, 5000).by == "max_total_output_tokens=70"
    spending.settle(Reply(usage=Usage(input_tokens=5, output_tokens=30)), 5)
    assert spending.reserve(5, 50) == Reservation(bound=40, by="max_total_output_tokens=70")
    dear = Spending(Budget(max_cost_usd=0.001), Price(input_usd=0.0, output_usd=25.0))
    assert dear.reserve(5, 50) == Reservation(bound=40, by="max_cost_usd=0.001")


def test_a_reply_without_a_bound_is_given_one_only_when_little_is_left() -> None:
    assert Spending(Budget(max_total_output_tokens=5000), None).reserve(5, None) == Reservation()
    assert Spending(Budget(max_total_output_tokens=4000), None).reserve(5, None).bound == 4000


@pytest.mark.parametrize(
    ("budget", "price", "said"),
    [
        (Budget(max_prompt_tokens=10), None, "max_prompt_tokens=10: 0 are used, and the next request has about 20"),
        (Budget(max_total_output_tokens=15), None, "max_total_output_tokens=15: what is left pays for no reply"),
        (Budget(max_cost_usd=0.00001), PRICE, "max_cost_usd=1e-05: what is left pays for no reply"),
    ],
)
def test_what_does_not_fit_names_its_limit(budget: Budget, price: Price | None, said: str) -> None:
    refused = Spending(budget, price).reserve(20, 100).refused
    assert refused is not None and said in refused[1]


@pytest.mark.parametrize(
    ("params", "limit", "sent"),
    [
        (ModelParams(max_output_tokens=2000), 50, ModelParams(max_output_tokens=50)),
        (ModelParams(max_output_tokens=20), 50, ModelParams(max_output_tokens=20)),
        (ModelParams(), 50, ModelParams(max_output_tokens=50)),
        (ModelParams(max_output_tokens=20), None, ModelParams(max_output_tokens=20)),
        (ModelParams(extra={"max_tokens": 2000}), 50, ModelParams(extra={"max_tokens": 50})),
        (ModelParams(extra={"max_completion_tokens": 9}), 50, ModelParams(extra={"max_completion_tokens": 9})),
        (
            ModelParams(max_output_tokens=99, extra={"max_tokens": 2000, "n": 1}),
            50,
            ModelParams(max_output_tokens=50, extra={"max_tokens": 50, "n": 1}),
        ),
    ],
)
def test_a_bound_holds_under_whatever_name_it_is_sent(
    params: ModelParams, limit: int | None, sent: ModelParams
) -> None:
    assert bounded(params, limit) == sent
    assert output_bound(sent) is None or limit is None or (output_bound(sent) or 0) <= limit


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
