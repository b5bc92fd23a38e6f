"""Planted regressions: each is made as a user would make it, and the suite turns red and names the step.

A project has recordings, their snapshots, and its agents; then one thing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import SETTINGS, Project, project, suite

pytest_plugins = ["pytester"]
__all__ = ["project", "suite"]

TABLE = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\noperator = "shop:operator"\n'
Edit = tuple[str, str]

GUARD = 'agent = Agent(name="incident", system=SYSTEM, tools=tools, budget=Budget(max_steps=8)'
OPERATOR = 'operator = Agent(name="operator", system=SYSTEM, tools=_more, budget=Budget(max_steps=12)'
IMPORT = ("from kernel import Agent,", "from kernel import ContextLimits, Guard, Agent,")
NARROW = (GUARD, GUARD + ", guard=Guard(window=2, max_warnings=2)")
BOUNDED = (OPERATOR, OPERATOR + ", context=ContextLimits(max_observation_chars=600)")


def planted(fixture: str, before: tuple[Edit, ...], after: tuple[Edit, ...], said: str, *, id: str) -> object:
    return pytest.param(fixture, before, after, said, id=id)


@pytest.mark.parametrize(
    ("fixture", "before", "after", "said"),
    [
        planted(
            "order-5xx",
            (),
            (("Name the evidence for each claim.", "Name the evidence."),),
            "FAILED *order-5xx*drifted at step 1: request /messages/0/content (prompt)",
            id="prompt",
        ),
        planted(
            "order-5xx",
            (),
            (("def search_logs(", "def find_logs("),),
            "FAILED *order-5xx*diverged at step 3: *",
            id="tool-renamed",
        ),
        planted(
            "order-5xx",
            (),
            (("Search the log of a service.", "Look into the log of a service."),),
            "FAILED *order-5xx*drifted at step 1: request /tools/search_logs/description (tool schema)",
            id="tool-description",
        ),
        planted(
            "order-5xx",
            (),
            (('"enum": ["order", "payment", "gateway"]', '"enum": ["payment", "gateway"]'),),
            "FAILED *order-5xx*diverged at step 1: *",
            id="enum-narrowed",
        ),
        planted(
            "order-5xx",
            (),
            (('"required": ["service", "metric"]', '"required": ["service", "metric", "minutes"]'),),
            "FAILED *order-5xx*diverged at step 1: *",
            id="required-added",
        ),
        planted(
            "loop-guard-narrow",
            (IMPORT, NARROW),
            (IMPORT,),
            "FAILED *loop-guard-narrow*diverged at step 4: guard *(guard)",
            id="guard-wider",
        ),
        planted(
            "loop-cycle",
            (),
            (IMPORT, (GUARD, GUARD + ", guard=Guard(max_warnings=1)")),
            "FAILED *loop-cycle*diverged at step 3: *(guard)",
            id="guard-narrower",
        ),
        planted(
            "order-5xx",
            (),
            (("budget=Budget(max_steps=8)", "budget=Budget(max_steps=3)"),),
            "FAILED *order-5xx*diverged at step 4: * (budget)",
            id="fewer-steps",
        ),
        planted(
            "order-5xx",
            (),
            (("budget=Budget(max_steps=8)", "budget=Budget(max_steps=8, max_prompt_tokens=2000)"),),
            "FAILED *order-5xx*diverged at step 3: * (budget)",
            id="fewer-tokens",
        ),
        planted(
            "truncated",
            (IMPORT, BOUNDED),
            (IMPORT, (BOUNDED[0], BOUNDED[1].replace("600", "500"))),
            "FAILED *truncated*diverged at step 1: observation /shown (truncation)",
            id="truncation",
        ),
    ],
)
def test_a_change_of_the_agent_turns_the_suite_red_and_names_the_step(
    project: Project, fixture: str, before: tuple[Edit, ...], after: tuple[Edit, ...], said: str
) -> None:
    project.settings(TABLE)
    project.record(fixture)
    project.agents("shop", *before)
    project.run("--replay-update").assert_outcomes(passed=1)
    project.agents("shop", *after)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


FRAMEWORK = {
    "the parser loses the thought of a reply": (
        """
import kernel.loop.loop
import msgspec
from kernel.loop.evaluation import evaluate

def changed(*args, **kwargs):
    return msgspec.structs.replace(evaluate(*args, **kwargs), thought="")

kernel.loop.loop.evaluate = changed
""",
        "FAILED *order-5xx*diverged at step 1: decision /thought (parser)",
    ),
    "the parser no longer reads a format": (
        """
import kernel.loop.loop
from kernel.loop.evaluation import evaluate
from kernel.record.run import Decision, Fault

def changed(*args, **kwargs):
    decision = evaluate(*args, **kwargs)
    if decision.calls and decision.calls[0].name == "search_logs":
        return Decision(kind="fault", fault=Fault(rule="no-action", message="the reply holds no action"))
    return decision

kernel.loop.loop.evaluate = changed
""",
        "FAILED *order-5xx*diverged at step 3: * (parser)",
    ),
}


@pytest.mark.parametrize("change", FRAMEWORK)
def test_a_change_of_the_framework_is_found_with_the_recording_alone(
    suite: Callable[..., Project], change: str
) -> None:
    """The project's conftest stands in for another release of the kernel."""
    project = suite("order-5xx")
    conftest, said = FRAMEWORK[change]
    project.write("conftest.py", conftest)
    result = project.run_apart()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


def test_no_change_stays_green(project: Project) -> None:
    project.settings(TABLE, base=SETTINGS)
    project.agents("shop")
    for name in ("order-5xx", "loop-cycle", "loop-recovers", "denied", "side-effects"):
        project.record(name)
    project.run("--replay-update").assert_outcomes(passed=5)
    project.agents("shop", ("TASK = (", "# a comment\nTASK = ("))
    project.run().assert_outcomes(passed=5)
