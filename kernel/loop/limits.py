"""Budgets of a run: reserved before each model call, settled after. Unknown usage or price is never read as zero."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Struct

from kernel.record import Budget, BudgetReading, Message, Price, Reply, StopReason, Usage

TokenCounter = Callable[[str], int]
_MESSAGE_OVERHEAD = 4
_ROUNDING = 1e-6  # so that what is left of a sum of floats is not one token short
FREE_REPLY_TOKENS = 4096
LEAST_REPLY_TOKENS = 16
"""A reply that may not even have these is not worth the price of its prompt."""


def estimate_tokens(text: str) -> int:
    """A rough count: one token a CJK character, else one for each four characters, rounded up."""
    if text.isascii():
        return (len(text) + 3) // 4
    wide = sum(1 for c in text if "\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" or "\uf900" <= c <= "\ufaff")
    return wide + (len(text) - wide + 3) // 4


def message_tokens(message: Message, count: TokenCounter) -> int:
    """Estimated tokens of a message with its calls."""
    total = _MESSAGE_OVERHEAD + count(message.content)
    for call in message.tool_calls:
        total += count(call.name) + count(call.arguments)
    return total


class Reservation(Struct, frozen=True, kw_only=True, gc=False):
    """What a model call may use: a bound on its reply, lowered by the limit `by` where that is set; or why it is `refused`."""

    refused: tuple[StopReason, str] | None = None
    bound: int | None = None
    by: str = ""


class Spending:
    """What a run has used, against what it may use."""

    def __init__(self, budget: Budget, price: Price | None, count: TokenCounter = estimate_tokens) -> None:
        self.budget = budget
        self.price = price
        self.max_cost_usd = None if budget.max_cost_usd is UNSET else budget.max_cost_usd
        self._count = count
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.cache_read_tokens = 0
        self.cache_write_tokens = 0
        self.reasoning_tokens = 0
        self.cost_usd: float | None = 0.0 if price is not None else None
        self.estimated = False
        self.chats = 0

    def reserve(self, prompt_tokens: int, bound: int | None) -> Reservation:
        """What a call of this estimated size, and with this bound on its reply, may use; or why it may not be made.

        The bound is lowered to what is left. Where there is none, a reply of `FREE_REPLY_TOKENS` is taken for granted, and a
        bound is set only below that: models refuse one that is larger than they can write.
        """
        most = self.budget.max_prompt_tokens
        if most is not None and self.prompt_tokens + prompt_tokens > most:
            used = f"max_prompt_tokens={most}: {self.prompt_tokens} are used"
            return Reservation(refused=("token_budget", f"{used}, and the next request has about {prompt_tokens}"))
        by = ""
        wanted = FREE_REPLY_TOKENS if bound is None else bound
        least = min(LEAST_REPLY_TOKENS, wanted)
        total = self.budget.max_total_output_tokens
        if total is not None and total - self.output_tokens < wanted:
            wanted, by = total - self.output_tokens, f"max_total_output_tokens={total}"
        if (left := self._left_usd()) is not None:
            left -= self._cost(prompt_tokens, 0, 0, 0)
            if left < self._cost(0, wanted, 0, 0):
                wanted, by = self._payable(left, least), f"max_cost_usd={self.max_cost_usd:g}"
        if not by:
            return Reservation(bound=bound)
        if wanted >= least:
            return Reservation(bound=wanted, by=by)
        detail = f"{by}: what is left pays for no reply to the next request of about {prompt_tokens} tokens"
        return Reservation(refused=("cost_budget" if by.startswith("max_cost") else "token_budget", detail))

    def _payable(self, usd: float, least: int) -> int:
        """How many tokens of a reply the money pays for."""
        price = self.price
        assert price is not None
        if usd < 0:
            return least - 1
        return int(usd / price.output_usd * 1_000_000 + _ROUNDING)

    def counted(self, reply: Reply, prompt_tokens: int) -> Reply:
        """The reply with estimates, marked as such, for what the provider did not count: the record then holds what was
        booked, also where a replay would count other text, because secrets in it were masked. Nearly always the same object.
        """
        usage = reply.usage
        if usage.input_tokens is not None and usage.output_tokens is not None:
            return reply
        known = msgspec.structs.replace(
            usage,
            input_tokens=prompt_tokens if usage.input_tokens is None else usage.input_tokens,
            output_tokens=self._reply_tokens(reply) if usage.output_tokens is None else usage.output_tokens,
            estimated=True,
        )
        return msgspec.structs.replace(reply, usage=known)

    def settle(self, reply: Reply | None, prompt_tokens: int) -> None:
        """Book a call: by the provider's numbers, and by estimates where it gave none."""
        usage = reply.usage if reply is not None else Usage()
        estimated = usage.input_tokens is None or usage.output_tokens is None
        input_tokens = prompt_tokens if usage.input_tokens is None else usage.input_tokens
        output_tokens = usage.output_tokens
        if output_tokens is None:
            output_tokens = 0 if reply is None else self._reply_tokens(reply)
        self.estimated = self.estimated or estimated or usage.estimated
        self.prompt_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cache_read_tokens += usage.cache_read_tokens or 0
        self.cache_write_tokens += usage.cache_write_tokens or 0
        self.reasoning_tokens += usage.reasoning_tokens or 0
        if self.cost_usd is not None:
            read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
            self.cost_usd += self._cost(input_tokens, output_tokens, read, write)

    def exceeded(self) -> tuple[StopReason, str] | None:
        """A budget that is used up by now, and which limit that is."""
        most = self.budget.max_prompt_tokens
        if most is not None and self.prompt_tokens >= most:
            return "token_budget", f"max_prompt_tokens={most} used up: {self.prompt_tokens} tokens"
        most = self.budget.max_total_output_tokens
        if most is not None and self.output_tokens >= most:
            return "token_budget", f"max_total_output_tokens={most} used up: {self.output_tokens} tokens"
        left = self._left_usd()
        if left is not None and left <= 0:
            return "cost_budget", f"max_cost_usd={self.max_cost_usd:g} used up: {self.cost_usd:.6g} US dollars"
        return None

    def left_usd(self) -> float | None:
        """Dollars left, or None where there is no cost limit or no price."""
        left = self._left_usd()
        return None if left is None else max(left, 0.0)

    def _left_usd(self) -> float | None:
        if self.max_cost_usd is None or self.cost_usd is None:
            return None
        return self.max_cost_usd - self.cost_usd

    def reading(self, elapsed_ns: int) -> BudgetReading:
        return BudgetReading(
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
            elapsed_ns=elapsed_ns,
            estimated=self.estimated,
        )

    def usage(self) -> Usage:
        """Totals of the run."""
        return Usage(
            input_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cache_read_tokens=self.cache_read_tokens or None,
            cache_write_tokens=self.cache_write_tokens or None,
            reasoning_tokens=self.reasoning_tokens or None,
            estimated=self.estimated,
        )

    def _reply_tokens(self, reply: Reply) -> int:
        text = self._count(reply.text) + (self._count(reply.reasoning) if reply.reasoning else 0)
        return text + sum(self._count(c.name) + self._count(c.arguments) for c in reply.tool_calls)

    def _cost(self, input_tokens: int, output_tokens: int, read: int, write: int) -> float:
        """US dollars of so many tokens; `read` from and `write` to a cache are part of the input."""
        price = self.price
        assert price is not None
        total = output_tokens * price.output_usd
        if read or write:
            total += read * (price.input_usd if price.cache_read_usd is None else price.cache_read_usd)
            total += write * (price.input_usd if price.cache_write_usd is None else price.cache_write_usd)
            input_tokens = max(input_tokens - read - write, 0)
        return (total + input_tokens * price.input_usd) / 1_000_000
