"""`diff` tells which model answered: two recordings of one alias are not of one model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel import Agent, ModelParams, Reply, Tracing, Usage
from kernel.testing import ScriptedModel
from replay import diff, load
from replay.explain import Diff, diff_document, diff_lines
from replay.report import View

DONE = '{"action": "finish", "args": {"answer": "done"}}'


def compared(folder: Path, asked: str, *answered: str | None) -> Diff:
    found = []
    for number, model in enumerate(answered):
        file = folder / f"{number}.trace.json"
        reply = Reply(text=DONE, model=model, usage=Usage(input_tokens=9, output_tokens=9))
        agent = Agent(name="ops", params=ModelParams(model=asked))
        asyncio.run(agent.run("t", llm=ScriptedModel([reply]), trace=Tracing(file=file, join=False)))
        found.append(load(file)[0])
    return diff(*found)


@pytest.mark.parametrize(
    ("asked", "a", "b", "same", "pinned", "said"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-11-20", False, False, "≠ model A asked for gpt-4o, answered by gpt-4o-2024-08-06; "
         "B asked for gpt-4o, answered by gpt-4o-2024-11-20: not pinned"),
        ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-08-06", True, False, "= model A asked for gpt-4o, answered by gpt-4o-2024-08-06; "
         "B asked for gpt-4o, answered by gpt-4o-2024-08-06: not pinned"),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-08-06", "gpt-4o-2024-08-06", True, True, ""),
        ("gpt-4o", None, None, True, True, ""),
        ("gpt-4o", "gpt-4o-2024-08-06", None, True, False, "= model A asked for gpt-4o, answered by gpt-4o-2024-08-06; "
         "B asked for gpt-4o, answered by (not said): not pinned"),
    ],
)  # fmt: skip
def test_the_model_that_answered_is_compared(
    tmp_path: Path, asked: str, a: str | None, b: str | None, same: bool, pinned: bool, said: str
) -> None:
    found = compared(tmp_path, asked, a, b)
    assert found.same is same
    (told,) = diff_document(found)["models"]
    assert (told["pinned"], told["asked"]) == (pinned, {"a": asked, "b": asked})
    lines = [line for line in diff_lines(found, View(columns=100)) if "model" in line and "asked" in line]
    assert lines == ([said] if said else [])
