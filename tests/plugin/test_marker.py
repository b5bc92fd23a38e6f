"""`@pytest.mark.replay` with `replayed` and `replay_snapshot`: replays in tests of one's own."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]


def test_a_test_asserts_on_the_result(project: Project) -> None:
    project.settings(base='[tool.pytest.ini_options]\naddopts = ["--strict-markers"]\n')
    project.record("order-5xx")
    project.write(
        "tests/test_own.py",
        "import pytest\n"
        '@pytest.mark.replay("fixtures/order-5xx.trace.json")\n'
        "def test_own(replayed):\n"
        '    assert replayed.verdict == "same" and replayed.observed[0].end.stop_reason == "finish"\n',
    )
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["replay: 1 same, 0 drifted, 0 diverged, 0 not checked; model replies served 5, live 0"]
    )


@pytest.mark.parametrize("agent", ["shop.agent", '"shop:agent"', '"incident"'])
def test_an_agent_is_named_as_itself_by_module_or_by_the_table(project: Project, agent: str) -> None:
    project.settings('\n[tool.tracefirst.agents]\nincident = "shop:agent"\n')
    project.agents("shop", ("max_steps=8", "max_steps=2"))
    project.record("order-5xx")
    project.write(
        "test_own.py",
        "import pytest, sys, os\n"
        "sys.path.insert(0, os.path.dirname(__file__))\n"
        "import shop\n"
        f'@pytest.mark.replay("fixtures/order-5xx.trace.json", agent={agent})\n'
        "def test_fails(replayed): pass\n"
        f'@pytest.mark.replay("fixtures/order-5xx.trace.json", agent={agent}, check=False)\n'
        'def test_looks(replayed): assert replayed.verdict == "diverged" and replayed.first.step == 3\n'
        '@pytest.mark.replay("fixtures/order-5xx.trace.json", agent=None)\n'
        'def test_alone(replayed): assert replayed.ran_with == "recording"\n',
    )
    result = project.run("test_own.py")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*DIVERGED *fixtures/order-5xx.trace.json, step 3, *"])


def test_drift_may_pass_in_one_test(project: Project) -> None:
    project.agents("shop", ("Read only;", "Only look;"))
    project.record("order-5xx")
    project.write(
        "test_own.py",
        "import pytest\n"
        '@pytest.mark.replay("fixtures/order-5xx.trace.json", agent="shop:agent", allow_drift=True)\n'
        'def test_drift(replayed): assert replayed.verdict == "drifted"\n'
        '@pytest.mark.replay("fixtures/order-5xx.trace.json", agent="shop:agent")\n'
        "def test_strict(replayed): pass\n",
    )
    result = project.run("test_own.py")
    assert result.parseoutcomes() == {"drifted": 1, "errors": 1}


def test_a_snapshot_of_a_result_is_syrupys_and_missing_ones_fail(project: Project) -> None:
    project.record("order-5xx")
    project.write(
        "test_own.py",
        "import pytest\n"
        '@pytest.mark.replay("fixtures/order-5xx.trace.json")\n'
        "def test_own(replayed, replay_snapshot): assert replayed == replay_snapshot\n",
    )
    project.run("test_own.py").assert_outcomes(failed=1)
    project.run("test_own.py", "--replay-update").assert_outcomes(passed=1)
    stored = project.path / "__snapshots__" / "test_own" / "test_own.replay"
    assert stored.read_text().startswith("replay snapshot 1\n")
    project.run("test_own.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("", "*`replayed` needs @pytest.mark.replay*"),
        ("@pytest.mark.replay()", "*`replayed` needs @pytest.mark.replay*"),
        (
            '@pytest.mark.replay("fixtures/order-5xx.trace.json", agnet=None)',
            "*with agent, allow_drift, check, task, trace_id*",
        ),
        ('@pytest.mark.replay("fixtures/gone.trace.json")', "*there is no *fixtures/gone.trace.json*"),
        (
            '@pytest.mark.replay("fixtures/order-5xx.trace.json", agent="ops")',
            '*no agent "ops" is configured; known: none*',
        ),
        ('@pytest.mark.replay("fixtures/order-5xx.trace.json", trace_id="ff")', "*holds no trace ff*"),
    ],
)
def test_a_marker_that_cannot_be_followed_says_what_is_wrong(project: Project, marker: str, said: str) -> None:
    project.record("order-5xx")
    project.write("test_own.py", f"import pytest\n{marker}\ndef test_own(replayed): pass\n")
    result = project.run("test_own.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])
