"""The client of Gemini, which calls functions by itself."""

import os

from google import genai
from google.genai import types

client = genai.Client(http_options=types.HttpOptions(base_url=os.environ["GOOGLE_GEMINI_BASE_URL"]))


def look(q: str, round: int) -> str:
    return os.environ.get("RESULT", "seen")


look.__doc__ = os.environ.get("DESCRIBE", "Look.")
config = types.GenerateContentConfig(
    tools=[look],
    system_instruction=os.environ.get("PROMPT", "Be brief."),
    temperature=0.5 if os.environ.get("PARAMETER") else None,
)
answer = client.models.generate_content(
    model=os.environ.get("MODEL", "m-1"), contents=os.environ.get("TASK", "why?"), config=config
)
print(answer.text)
