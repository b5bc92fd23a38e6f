"""smolagents over OpenAI Chat Completions: it tells calls and results again as plain text."""

import os

from smolagents import OpenAIServerModel, Tool, ToolCallingAgent


class Look(Tool):
    name = "look"
    description = os.environ.get("DESCRIBE", "Look.")
    inputs = {"q": {"type": "string", "description": "what"}, "round": {"type": "integer", "description": "which"}}
    output_type = "string"

    def forward(self, q: str, round: int) -> str:
        return os.environ.get("RESULT", "seen")


more = {"temperature": 0.5} if os.environ.get("PARAMETER") else {}
model = OpenAIServerModel(
    model_id=os.environ.get("MODEL", "m-1"),
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    **more,
)
agent = ToolCallingAgent(
    tools=[Look()], model=model, max_steps=2, instructions=os.environ.get("PROMPT", "Be brief."), verbosity_level=0
)
print(agent.run(os.environ.get("TASK", "why?")))
