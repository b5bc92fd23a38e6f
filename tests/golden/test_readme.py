"""The README's blocks are run: its agent against a real model server, its commands for their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ..e2e.model_server import running_model_server

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
REPLAY = (sys.executable, "-c", "from replay.cli import main; main()")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


def run(*command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_agent_of_the_readme_runs_and_its_trace_replays(tmp_path: Path) -> None:
    """The first block runs as printed against an OpenAI-compatible server; the trace it leaves replays as `same`."""
    (tmp_path / "agent.py").write_text(blocks("python")[0], "utf-8")
    script = [
        {"tool_calls": [{"id": "1", "name": "query_metrics", "arguments": '{"service":"order"}'}]},
        {"tool_calls": [{"id": "2", "name": "search_logs", "arguments": '{"service":"order","since":"10:00"}'}]},
        {"text": "The connection pool is exhausted."},
    ]
    for _ in range(2):  # a program is run more than once
        with running_model_server(script) as server:
            done = run(
                sys.executable,
                "agent.py",
                folder=tmp_path,
                OPENAI_BASE_URL=server.base_url,
                OPENAI_API_KEY="none",
                MODEL="demo",
            )
        assert done.stdout == "finish The connection pool is exhausted.\n", done.stderr
        again = run(*REPLAY, "incident.trace.json", folder=tmp_path)
        assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize("block", [b for b in blocks("console") if len(b.splitlines()) > 1])
def test_a_console_block_prints_what_it_says(block: str) -> None:
    """Output lines follow the command; `…` alone on a line stands for the rest."""
    command, *expected = block.splitlines()
    program, *arguments = command.removeprefix("$ ").split()
    assert program == "replay"
    done = run(*REPLAY, *arguments, folder=ROOT)
    wanted = expected[: expected.index("…")] if "…" in expected else expected
    assert done.stdout.splitlines()[: len(wanted)] == wanted, done.stderr


def test_the_settings_of_the_readme_are_those_of_the_project() -> None:
    """The TOML block stands in pyproject.toml as it is printed."""
    shown = tomllib.loads(blocks("toml")[0])
    real = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert real["pytest"]["ini_options"]["replay_fixtures"] == shown["tool"]["pytest"]["ini_options"]["replay_fixtures"]
    assert real["tracefirst"]["agents"].items() >= shown["tool"]["tracefirst"]["agents"].items()


def test_the_test_command_is_the_one_ci_runs() -> None:
    """`.ci/run` calls the README's own command."""
    command = next(b for b in blocks("sh") if "pytest" in b).strip()
    assert command in (ROOT / ".ci" / "run").read_text("utf-8")
