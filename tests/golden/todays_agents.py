"""Agents for `--agent` in the golden tests: the one that was recorded, and what may become of it."""

from __future__ import annotations

from kernel import Agent, Budget, ToolRegistry
from tests.helpers import act

SYSTEM = "You find root causes.\nName the evidence. " + "Be brief. " * 20
BUDGET = Budget(max_steps=8)


def _tools(services: list[str], description: str = "Values of a metric.") -> ToolRegistry:
    tools = ToolRegistry()
    schema = {
        "type": "object",
        "properties": {"service": {"type": "string", "enum": services}},
        "required": ["service"],
    }

    @tools.register(name="query_metrics", description=description, params=schema)
    async def query_metrics(args: dict[str, str]) -> str:
        return {"order": "5xx 12 %\nlatency 5 s"}.get(args["service"], "5xx 0 %")

    @tools.tool
    def search_logs(service: str, limit: int = 20) -> list[str]:
        """Search the logs."""
        if limit > 100:
            raise ValueError("limit is at most 100")
        return [f"{service} OOM \x1b[31mred\x1b[0m"] * min(limit, 2)

    return tools


recorded = Agent(name="ops", system=SYSTEM, tools=_tools(["order", "gateway"]), budget=BUDGET)
prompt = Agent(name="ops", system=SYSTEM.replace("evidence. ", "evidence.\u00a0"), tools=recorded.tools, budget=BUDGET)
described = Agent(name="ops", system=SYSTEM, tools=_tools(["order", "gateway"], "Metrics."), budget=BUDGET)
narrowed = Agent(name="ops", system=SYSTEM, tools=_tools(["gateway"]), budget=BUDGET)
hurried = Agent(name="ops", system=SYSTEM, tools=recorded.tools, budget=Budget(max_steps=2))
by_name = {"ops": recorded}
number = 5


def made() -> Agent:
    return recorded


def broken() -> Agent:
    raise RuntimeError("no settings")


def finishing(prompt: str) -> str:
    """A live model that ends the run with what it was shown last."""
    last = prompt.rsplit("Observation: ", 1)[-1].split("\n\nassistant:")[0]
    return act("finish", answer=f"seen: {last}")
