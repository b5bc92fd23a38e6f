"""The OpenAI Agents SDK, over Responses."""

import os

from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)


@function_tool(description_override=os.environ.get("DESCRIBE", "Look."))
def look(q: str, round: int) -> str:
    return os.environ.get("RESULT", "seen")


agent = Agent(
    name="agent",
    instructions=os.environ.get("PROMPT", "Be brief."),
    model=os.environ.get("MODEL", "m-1"),
    tools=[look],
    model_settings=ModelSettings(temperature=0.5) if os.environ.get("PARAMETER") else ModelSettings(),
)
print(Runner.run_sync(agent, os.environ.get("TASK", "why?")).final_output)
