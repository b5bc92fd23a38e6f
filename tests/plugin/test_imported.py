"""A recording made from another program's trace: rebuilding it checks nothing of an agent, so it does not pass by itself."""

from __future__ import annotations

import json

import pytest

from replay import import_file
from replay.importers import save
from tests.plugin.conftest import Project, project

pytest_plugins = ["pytester"]
__all__ = ["project"]

MESSAGES = [
    {"role": "user", "content": "How bad is it?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"what": "rate"}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "12 %"},
    {"role": "assistant", "content": "It is 12 %."},
]


@pytest.fixture
def imported(project: Project) -> Project:
    source = project.write("chat.json", json.dumps({"messages": MESSAGES}))
    (recording,) = import_file(source)
    save(recording, project.fixtures / "chat.trace.json")
    return project


def test_an_import_without_an_agent_fails_and_the_failure_says_how_to_go_on(imported: Project) -> None:
    imported.settings()
    result = imported.run("--replay-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*IMPORTED*nothing of the agent ran*", '*"fixtures/chat.trace.json" = ""*'])


def test_an_import_passes_where_the_table_says_that_it_has_no_agent(imported: Project) -> None:
    imported.settings('\n[tool.tracefirst.agents]\n"fixtures/chat.trace.json" = ""\n')
    imported.run("--replay-update").assert_outcomes(passed=1)
    result = imported.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*1 imported*"])
    (snapshot,) = imported.path.rglob("*.replay.txt")
    assert "verdict imported: rebuilt as it was read; nothing of the agent ran" in snapshot.read_text()
