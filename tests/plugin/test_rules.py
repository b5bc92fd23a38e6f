"""Rules for text that may vary, as a suite has them: named in pyproject.toml, or in a file beside the recordings."""

from __future__ import annotations

from tests.plugin.conftest import SETTINGS, Project, project

pytest_plugins = ["pytester"]
__all__ = ["project"]

AGENTS = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\n'
RULE = """
[tool.tracefirst.rules]
claim = { path = "/request/messages/*/content", pattern = 'each claim|every claim' }
"""
EDIT = ("for each claim", "for every claim")


def test_what_a_rule_names_passes_and_the_snapshot_stays(project: Project) -> None:
    project.settings(AGENTS)
    project.record("order-5xx")
    project.agents("shop")
    project.run("--replay-update").assert_outcomes(passed=1)
    project.agents("shop", EDIT)
    project.run().assert_outcomes(failed=1)
    project.settings(AGENTS + RULE, base=SETTINGS)
    project.run().assert_outcomes(passed=1)


def test_a_rule_that_matches_nothing_fails_the_session(project: Project) -> None:
    project.settings(AGENTS + RULE.replace("each claim|every claim", "no such words"))
    project.record("order-5xx")
    project.agents("shop")
    result = project.run("--replay-update")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the rule claim matches nothing in any recording*"])
