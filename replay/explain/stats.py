"""Figures over many recordings: how they stopped, how long they were, what they used, which tools they called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median_low
from typing import Any, TypeVar

from msgspec import Struct

from kernel.record import Run, Usage
from replay.play import Recording
from replay.report import View, cut, line, literal, width_of

_UNSAID = "not recorded"
"""What is counted for a foreign call that gave a result, where its source does not say whether it failed."""


class ToolStats(Struct, kw_only=True):
    """Calls of one tool by outcome."""

    calls: int = 0
    outcomes: Counter[str]


class AgentStats(Struct, kw_only=True):
    """Figures of one agent's runs. Tokens and cost sum what is known, None where nothing is.

    `unmetered` counts the runs without tokens, `in_part` those of which some steps have none, `estimated` those whose tokens
    are in part our estimate, `unpriced` those without a price.
    """

    agent: str
    runs: int = 0
    stops: Counter[str]
    steps: list[int]
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    unpriced: int = 0
    unmetered: int = 0
    in_part: int = 0
    estimated: int = 0
    guarded: int = 0
    tools: dict[str, ToolStats]


class Stats:
    """Adds recordings up, one at a time; keeps none of them."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentStats] = {}
        self.recordings = 0

    def add(self, recording: Recording) -> None:
        self.recordings += 1
        for recorded in recording.runs:
            name = recorded.run.head.agent
            agent = self.agents.get(name)
            if agent is None:
                agent = self.agents[name] = AgentStats(agent=name, stops=Counter(), steps=[], tools={})
            _add(agent, recorded.run)

    def document(self) -> dict[str, Any]:
        """The figures as JSON, agents and tools in order of name."""
        return {
            "recordings": self.recordings,
            "agents": [_document(self.agents[name]) for name in sorted(self.agents)],
        }


def _add(agent: AgentStats, run: Run) -> None:
    agent.runs += 1
    agent.steps.append(len(run.steps))
    agent.stops["cut short" if run.end is None else run.end.stop_reason] += 1
    agent.guarded += sum(step.guard.verdict != "ok" for step in run.steps)
    used = _used(run)
    agent.input_tokens = _plus(agent.input_tokens, used.input_tokens)
    agent.output_tokens = _plus(agent.output_tokens, used.output_tokens)
    agent.cost_usd = _plus(agent.cost_usd, used.cost_usd)
    agent.unmetered += used.input_tokens is None and used.output_tokens is None
    agent.in_part += used.in_part
    agent.estimated += used.estimated
    agent.unpriced += used.cost_usd is None
    said = "tool outcomes" not in run.head.absent
    for step in run.steps:
        for record in step.calls:
            tool = agent.tools.setdefault(record.call.name, ToolStats(outcomes=Counter()))
            tool.calls += 1
            tool.outcomes[record.outcome if said or record.outcome != "ok" else _UNSAID] += 1


class _Used(Struct, kw_only=True):
    """What one run used, as far as it is known."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    in_part: bool = False
    estimated: bool = False


def _used(run: Run) -> _Used:
    """The total at the end of a run where it is there, else what its steps add up to."""
    end = run.end
    cost = end.cost_usd if end is not None else None
    if cost is None:
        cost = next((s.budget.cost_usd for s in reversed(run.steps) if s.budget is not None), None)
    if end is not None and end.usage.input_tokens is not None and end.usage.output_tokens is not None:
        usage = end.usage
        return _Used(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=cost,
            estimated=usage.estimated,
        )
    found = _Used(cost_usd=cost)
    for step in run.steps:
        if step.chat is None:
            continue
        reply = step.chat.reply
        usage = reply.usage if reply is not None else Usage()
        found.in_part |= usage.input_tokens is None or usage.output_tokens is None
        found.estimated |= usage.estimated
        found.input_tokens = _plus(found.input_tokens, usage.input_tokens)
        found.output_tokens = _plus(found.output_tokens, usage.output_tokens)
    if found.input_tokens is None and found.output_tokens is None:
        found.in_part = False
    return found


Number = TypeVar("Number", int, float)


def _plus(total: Number | None, more: Number | None) -> Number | None:
    """A sum of what is known."""
    if more is None:
        return total
    return more if total is None else total + more


def _document(agent: AgentStats) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "runs": agent.runs,
        "stop_reasons": _ranked(agent.stops),
        "steps": {"total": sum(agent.steps), "median": median_low(agent.steps), "max": max(agent.steps)},
        "input_tokens": agent.input_tokens,
        "output_tokens": agent.output_tokens,
        "cost_usd": None if agent.cost_usd is None else round(agent.cost_usd, 9),
        "runs_without_tokens": agent.unmetered,
        "runs_with_tokens_in_part": agent.in_part,
        "runs_with_estimated_tokens": agent.estimated,
        "runs_without_price": agent.unpriced,
        "guard_verdicts": agent.guarded,
        "tools": {
            name: {"calls": agent.tools[name].calls, "outcomes": _ranked(agent.tools[name].outcomes)}
            for name in sorted(agent.tools)
        },
    }


def _ranked(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def stats_lines(stats: Stats, view: View) -> Iterator[str]:
    """The figures as tables."""
    for at, entry in enumerate(stats.document()["agents"]):
        if at:
            yield ""
        runs, steps = entry["runs"], entry["steps"]
        name = literal(entry["agent"]) or "agent"
        yield f"{view.paint('strong', name)}  {runs} {'run' if runs == 1 else 'runs'}"
        yield f"  steps   {steps['total']:,} in all, median {steps['median']}, most {steps['max']}"
        yield f"  tokens  {_tokens(entry)}"
        yield f"  cost    {_cost(entry)}"
        if entry["guard_verdicts"]:
            yield f"  guard   {entry['guard_verdicts']} verdicts"
        yield from _table(
            ("stop reason", "runs", ""), [(k, f"{v:,}", "") for k, v in entry["stop_reasons"].items()], view
        )
        tools = [
            (tool, f"{figures['calls']:,}", ", ".join(f"{k} {v:,}" for k, v in figures["outcomes"].items()))
            for tool, figures in entry["tools"].items()
        ]
        if tools:
            yield from _table(("tool", "calls", "outcomes"), tools, view)


def _tokens(entry: dict[str, Any]) -> str:
    runs, found = entry["runs"], [entry["input_tokens"], entry["output_tokens"]]
    if found == [None, None]:
        return "not known: not reported"
    remarks = [
        f"{what} {entry[key]} of {runs} runs"
        for what, key in (
            ("not reported by", "runs_without_tokens"),
            ("reported in part by", "runs_with_tokens_in_part"),
            ("estimated in", "runs_with_estimated_tokens"),
        )
        if entry[key]
    ]
    shown = ", ".join(
        f"{'not known' if tokens is None else format(tokens, ',')} {way}"
        for tokens, way in zip(found, ("in", "out"), strict=True)
    )
    about = "about " if entry["runs_with_estimated_tokens"] else ""
    return f"{about}{shown}" + (f" ({'; '.join(remarks)})" if remarks else "")


def _cost(entry: dict[str, Any]) -> str:
    if entry["cost_usd"] is None:
        return "not known: no price"
    unpriced = entry["runs_without_price"]
    about = "about " if entry["runs_with_estimated_tokens"] else ""
    return f"{about}${entry['cost_usd']:.4f}" + (
        f" (no price for {unpriced} of {entry['runs']} runs)" if unpriced else ""
    )


def _table(head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]], view: View) -> Iterator[str]:
    shown = [(line(first, 40), second, cut(third, view.columns)) for first, second, third in rows]
    wide = max(width_of(first) for first, _, _ in [head, *shown])
    number = max(len(second) for _, second, _ in [head, *shown])
    yield ""
    for row, (first, second, third) in enumerate([head, *shown]):
        text = f"  {first}{' ' * (wide - width_of(first))}  {second:>{number}}  {third}".rstrip()
        yield view.paint("quiet", text) if row == 0 else text
