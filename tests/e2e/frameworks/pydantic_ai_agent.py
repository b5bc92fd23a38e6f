"""pydantic-ai over OpenAI Chat Completions."""

import os

from pydantic_ai import Agent, Tool


def look(q: str, round: int) -> str:
    return os.environ.get("RESULT", "seen")


agent = Agent(
    "openai-chat:" + os.environ.get("MODEL", "m-1"),
    system_prompt=os.environ.get("PROMPT", "Be brief."),
    tools=[Tool(look, description=os.environ.get("DESCRIBE", "Look."))],
    model_settings={"temperature": 0.5} if os.environ.get("PARAMETER") else None,
)
print(agent.run_sync(os.environ.get("TASK", "why?")).output)
