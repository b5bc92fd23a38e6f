"""Figures over many recordings: how they stopped, how long they were, what they used, which tools they called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median_low
from typing import Any

from msgspec import Struct

from kernel.record import Run
from replay.play import Recording
from replay.report import View, cut, line, literal, width_of


class ToolStats(Struct, kw_only=True):
    """Calls of one tool by outcome."""

    calls: int = 0
    outcomes: Counter[str]


class AgentStats(Struct, kw_only=True):
    """Figures of one agent's runs. `cost_usd` sums what is known, `unpriced` counts the runs without a price;
    `unmetered` counts those whose provider did not report tokens."""

    agent: str
    runs: int = 0
    stops: Counter[str]
    steps: list[int]
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    unmetered: int = 0
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
    usage = run.end.usage if run.end is not None else None
    if usage is None or usage.input_tokens is None:
        agent.unmetered += 1
    if usage is not None:
        agent.input_tokens += usage.input_tokens or 0
        agent.output_tokens += usage.output_tokens or 0
    if run.end is None or run.end.cost_usd is None:
        agent.unpriced += 1
    else:
        agent.cost_usd += run.end.cost_usd
    for step in run.steps:
        for record in step.calls:
            tool = agent.tools.setdefault(record.call.name, ToolStats(outcomes=Counter()))
            tool.calls += 1
            tool.outcomes[record.outcome] += 1


def _document(agent: AgentStats) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "runs": agent.runs,
        "stop_reasons": _ranked(agent.stops),
        "steps": {"total": sum(agent.steps), "median": median_low(agent.steps), "max": max(agent.steps)},
        "input_tokens": agent.input_tokens,
        "output_tokens": agent.output_tokens,
        "cost_usd": round(agent.cost_usd, 9),
        "runs_without_tokens": agent.unmetered,
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
        unmetered, unpriced = entry["runs_without_tokens"], entry["runs_without_price"]
        tokens = f"{entry['input_tokens']:,} in, {entry['output_tokens']:,} out"
        yield f"  tokens  {tokens}" + (f" (not reported by {unmetered} of {runs} runs)" if unmetered else "")
        priced = f"${entry['cost_usd']:.4f}" + (f" (no price for {unpriced} of {runs} runs)" if unpriced else "")
        yield f"  cost    {priced if unpriced < runs else 'not known: no price'}"
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


def _table(head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]], view: View) -> Iterator[str]:
    shown = [(line(first, 40), second, cut(third, view.columns)) for first, second, third in rows]
    wide = max(width_of(first) for first, _, _ in [head, *shown])
    number = max(len(second) for _, second, _ in [head, *shown])
    yield ""
    for row, (first, second, third) in enumerate([head, *shown]):
        text = f"  {first}{' ' * (wide - width_of(first))}  {second:>{number}}  {third}".rstrip()
        yield view.paint("quiet", text) if row == 0 else text
