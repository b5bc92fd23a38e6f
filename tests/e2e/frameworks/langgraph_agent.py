"""LangGraph over langchain-openai."""

import os
import warnings

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

warnings.simplefilter("ignore")
from langgraph.prebuilt import create_react_agent


def look(q: str, round: int) -> str:
    return os.environ.get("RESULT", "seen")


more = {"temperature": 0.5} if os.environ.get("PARAMETER") else {}
tool = StructuredTool.from_function(look, description=os.environ.get("DESCRIBE", "Look."))
model = ChatOpenAI(model=os.environ.get("MODEL", "m-1"), **more)
graph = create_react_agent(model, [tool], prompt=os.environ.get("PROMPT", "Be brief."))
print(graph.invoke({"messages": [("user", os.environ.get("TASK", "why?"))]})["messages"][-1].content)
