"""The plain client of OpenAI, Chat Completions, streamed."""

import os

from openai import OpenAI

client = OpenAI()
model, task = os.environ.get("MODEL", "m-1"), os.environ.get("TASK", "why?")
look = {
    "name": "look",
    "description": os.environ.get("DESCRIBE", "Look."),
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "round": {"type": "integer"}}},
}
messages = [{"role": "system", "content": os.environ.get("PROMPT", "Be brief.")}, {"role": "user", "content": task}]
while True:
    more = {"temperature": 0.5} if os.environ.get("PARAMETER") else {}
    with client.chat.completions.stream(
        model=model, messages=messages, tools=[{"type": "function", "function": look}], **more
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    if not message.tool_calls:
        print(message.content)
        break
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in message.tool_calls
    ]
    messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
    messages += [
        {"role": "tool", "tool_call_id": call["id"], "content": os.environ.get("RESULT", "seen")} for call in calls
    ]
