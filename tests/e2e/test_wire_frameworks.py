"""Real frameworks, unmodified: recorded, replayed the same, and each planted change named at its place.

The programs are in `frameworks/`; each runs where its framework is installed, and is skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.wire_provider import Provider, running_provider

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "openai_chat": ("openai",),
    "openai_responses": ("openai",),
    "anthropic_messages": ("anthropic",),
    "pydantic_ai_agent": ("pydantic_ai", "openai"),
    "langgraph_agent": ("langgraph", "langchain_openai"),
    "openai_agents": ("agents",),
    "smolagents_agent": ("smolagents", "openai"),
    "google_genai": ("google.genai",),
}
CHANGES = [
    ({"PROMPT": "Be long."}, 1, "prompt"),
    ({"DESCRIBE": "Look well."}, 1, "tool schema"),
    ({"TASK": "how?"}, 1, "task"),
    ({"MODEL": "m-2"}, 1, "model"),
    ({"PARAMETER": "1"}, 1, "parameters"),
    ({"RESULT": "nothing"}, 2, "tool result"),
]


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as made:
        yield made


def run(folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OTEL_SDK_DISABLED": "true", **variables}
    for name in ("GOOGLE_API_KEY", *(() if variables.get("OPENAI_API_KEY") else ("OPENAI_API_KEY",))):
        environ.pop(name, None)
    command = [sys.executable, "-c", "from replay.cli import main; main()", *words]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_framework_replays_the_same_and_its_changes_are_named(name: str, provider: Provider, tmp_path: Path) -> None:
    for module in PROGRAMS[name]:
        if not is_there(module):
            pytest.skip(f"{module} is not installed")
    program = (sys.executable, str(Path(__file__).parent / "frameworks" / f"{name}.py"))
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none", "GEMINI_API_KEY": "none"}
    recorded = run(tmp_path, "record", "-o", "r.trace.json", "--upstream", provider.url, "--", *program, **keys)
    assert recorded[0] == 0, recorded
    reached = provider.count
    status, out, err = run(tmp_path, "r.trace.json", "--format", "json", "--", *program)
    assert status == 0, out + err
    assert recorded[1].splitlines()[-1] in err
    wrong: list[Any] = []
    for change, exchange, cause in CHANGES:
        status, out, _ = run(tmp_path, "r.trace.json", "--format", "json", "--", *program, **change)
        [document] = json.loads(out)["traces"]
        first = document["divergences"][0]
        told = (
            {cause, "prompt"} if cause == "tool schema" and name == "smolagents_agent" else {cause}
        )  # told in its prompt
        if (status, first["exchange"]) != (1, exchange) or first["cause"] not in told:
            wrong.append((change, status, first))
    assert wrong == []
    assert provider.count == reached, "no replay reaches the upstream"
