"""The plain client of OpenAI, Responses, with the history kept by the server."""

import os

from openai import OpenAI

client = OpenAI()
look = {
    "type": "function",
    "name": "look",
    "description": os.environ.get("DESCRIBE", "Look."),
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "round": {"type": "integer"}}},
}
more = {"temperature": 0.5} if os.environ.get("PARAMETER") else {}
told, previous = [{"role": "user", "content": os.environ.get("TASK", "why?")}], None
for _ in range(2):
    answer = client.responses.create(
        model=os.environ.get("MODEL", "m-1"),
        instructions=os.environ.get("PROMPT", "Be brief."),
        input=told,
        tools=[look],
        previous_response_id=previous,
        **more,
    )
    previous = answer.id
    calls = [item for item in answer.output if item.type == "function_call"]
    told = [
        {"type": "function_call_output", "call_id": call.call_id, "output": os.environ.get("RESULT", "seen")}
        for call in calls
    ]
print(answer.output_text)
