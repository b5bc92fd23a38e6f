"""The plain client of Anthropic, streamed."""

import os

from anthropic import Anthropic

client = Anthropic()
look = {
    "name": "look",
    "description": os.environ.get("DESCRIBE", "Look."),
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}, "round": {"type": "integer"}}},
}
messages = [{"role": "user", "content": os.environ.get("TASK", "why?")}]
while True:
    with client.messages.stream(
        model=os.environ.get("MODEL", "m-1"),
        max_tokens=200 if os.environ.get("PARAMETER") else 100,
        system=os.environ.get("PROMPT", "Be brief."),
        messages=messages,
        tools=[look],
    ) as stream:
        message = stream.get_final_message()
    messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]})
    uses = [block for block in message.content if block.type == "tool_use"]
    if not uses:
        print(message.content[0].text)
        break
    results = [
        {"type": "tool_result", "tool_use_id": use.id, "content": os.environ.get("RESULT", "seen")} for use in uses
    ]
    messages.append({"role": "user", "content": results})
