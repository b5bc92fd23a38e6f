"""Every recording, agents' key, marker and bad verdict of a session is accounted for: what is lost, unused or swallowed fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Project

pytest_plugins = ["pytester"]

MARKED = 'import pytest\n@pytest.mark.replay("fixtures/order-5xx.trace.json"{more})\ndef test_own({asks}): {body}\n'
SHORTER = ("budget=Budget(max_steps=8)", "budget=Budget(max_steps=2)")
TABLE = '\n[tool.tracefirst.agents]\nincident = "shop:agent"\n'


def lost(result: pytest.RunResult, *lines: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"replay: lost {line}" for line in lines])


@pytest.mark.parametrize("folder", ["build", "dist", "venv", ".nightly", "deep/node_modules"])
def test_a_recording_in_a_folder_that_pytest_leaves_out_is_lost(suite: Callable[..., Project], folder: str) -> None:
    project = suite("order-5xx")
    project.record("max-steps", to=f"{folder}/max-steps")
    result = project.run()
    lost(result, f"fixtures/{folder}/max-steps.trace.json: the folder * is left out by norecursedirs (*)*")
    result.stdout.fnmatch_lines(["replay: 1 of 2 recordings ran, 0 deselected, 1 lost"])


def test_a_link_to_nothing_is_a_lost_recording(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    (project.fixtures / "gone.trace.json").symlink_to("objects/gone")
    lost(project.run(), "fixtures/gone.trace.json: a link to objects/gone, which is not there *")


def test_a_recording_without_a_name_or_below_the_snapshots_is_lost(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.record("max-steps", to="named").rename(project.fixtures / ".trace.json")
    project.record("max-steps", to="__replays__/stray")
    lost(project.run(), "fixtures/.trace.json: *needs a name*", "fixtures/__replays__/stray.trace.json: *snapshots*")


def test_a_folder_named_as_a_recording_is_no_recording(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    (project.fixtures / "folder.trace.json").mkdir()
    assert project.run().ret == pytest.ExitCode.OK


@pytest.mark.parametrize("announced", ["", "    config.hook.pytest_deselected(items=items[1:])\n"])
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_what_another_plugin_takes_out_is_lost(suite: Callable[..., Project], announced: str, workers: str) -> None:
    project = suite("max-steps", "order-5xx")
    project.write(
        "conftest.py",
        f"def pytest_collection_modifyitems(config, items):\n{announced}    items[:] = items[:1]\n",
    )
    lost(project.run_apart("-n", workers), "fixtures/order-5xx.trace.json::replay: another plugin took it out; *")
    result = project.run_apart("-n", workers, "--replay-partial")
    assert result.ret == pytest.ExitCode.OK


def test_a_marked_test_that_another_plugin_takes_out_is_lost(project: Project) -> None:
    project.record("order-5xx")
    project.write("tests/test_own.py", MARKED.format(more="", asks="", body="pass"))
    project.write("conftest.py", "def pytest_collection_modifyitems(items):\n    items[:] = items[:0]\n")
    lost(project.run("tests", "fixtures"), "fixtures/*::replay: another*", "tests/test_own.py::test_own: another*")


def test_a_recording_that_a_plugin_keeps_from_running_is_lost(suite: Callable[..., Project]) -> None:
    project = suite("max-steps", "order-5xx")
    project.write("conftest.py", "def pytest_runtest_protocol(item): return True if 'order' in item.nodeid else None\n")
    lost(project.run(), "fixtures/order-5xx.trace.json::replay: it was selected and never ran")


def test_what_collect_ignore_leaves_out_is_lost(suite: Callable[..., Project]) -> None:
    project = suite("max-steps", "order-5xx")
    project.write("fixtures/conftest.py", "collect_ignore = ['order-5xx.trace.json']\n")
    lost(project.run(), "fixtures/order-5xx.trace.json: not collected: *")


@pytest.mark.parametrize(
    "chosen",
    [
        ["-k", "max"],
        ["--deselect", "fixtures/order-5xx.trace.json::replay"],
        ["--ignore", "fixtures/order-5xx.trace.json"],
        ["--ignore-glob", "*/order-*"],
        ["fixtures/max-steps.trace.json"],
        ["fixtures/max-steps.trace.json::replay"],
    ],
)
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_what_the_user_leaves_out_is_not_lost(suite: Callable[..., Project], chosen: list[str], workers: str) -> None:
    project = suite("max-steps", "order-5xx")
    result = project.run_apart("-n", workers, *chosen)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("replay: lost*")


def test_after_the_first_failure_nothing_is_called_lost(suite: Callable[..., Project]) -> None:
    project = suite("max-steps", "order-5xx")
    project.snapshot("max-steps").unlink()
    result = project.run("-x")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*::replay: it was selected and never ran*")


@pytest.mark.parametrize("args", [[], ["fixtures", "."]])
@pytest.mark.parametrize(
    "entry", ['incidnet = "shop:agent"', '"fixture/*.trace.json" = "shop:agent"', '"fixtures/o-*.trace.json" = ""']
)
def test_a_key_of_the_agents_table_that_no_recording_uses_fails_the_session(
    suite: Callable[..., Project], entry: str, args: list[str]
) -> None:
    project = suite("order-5xx")
    project.agents("shop")
    project.settings(f"\n[tool.tracefirst.agents]\n{entry}\n")
    result = project.run(*args)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    key, _, spec = entry.partition(" = ")
    if not key.startswith('"'):
        key = f'"{key}"'
    result.stdout.fnmatch_lines([f"replay: agents: {key} = {spec} is used by no recording; their agents are: incident"])


def test_a_key_that_a_narrower_run_does_not_need_is_no_fault(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "denied")
    project.agents("shop")
    project.settings(TABLE + 'operator = "shop:operator"\n')
    for chosen in (["fixtures/denied.trace.json"], ["-k", "denied"]):
        assert project.run(*chosen, "--replay-update").ret == pytest.ExitCode.OK
    assert project.run("--replay-update").ret == pytest.ExitCode.OK


def test_keys_are_counted_under_xdist_too(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx", "denied")
    project.settings('\n[tool.tracefirst.agents]\nnobody = "shop:agent"\n"fixtures/den*.trace.json" = ""\n')
    result = project.run_apart("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(['replay: agents: "nobody" = "shop:agent" is used by no recording; *'])
    result.stdout.no_fnmatch_line('*agents: "fixtures/den*')


def test_a_marker_replays_by_itself(project: Project) -> None:
    project.record("order-5xx")
    project.agents("shop", SHORTER)
    project.write("test_own.py", MARKED.format(more="", asks="", body="pass"))
    project.run("test_own.py").stdout.fnmatch_lines(["replay: 1 same, *", "*1 passed*"])
    project.write("test_own.py", MARKED.format(more=', agent="shop:agent"', asks="", body="pass"))
    result = project.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DIVERGED *, step 3, *"])


@pytest.mark.parametrize(
    "marker",
    [
        '("fixtures/no-such-file.trace.json")',
        '("fixtures/order-5xx.trace.json", agent="nonsense:x")',
        '("fixtures/order-5xx.trace.json", bogus=1)',
        "()",
        '("fixtures/order-5xx.trace.json")\n@pytest.mark.replay("fixtures/order-5xx.trace.json")',
    ],
)
@pytest.mark.parametrize(
    "test",
    [
        "def test_own(): pass",
        "def test_own(request):\n    try: request.getfixturevalue('replayed')\n    except BaseException: pass",
    ],
)
def test_a_marker_that_cannot_be_followed_fails_also_where_nobody_asks(
    project: Project, marker: str, test: str
) -> None:
    project.record("order-5xx")
    project.write("test_own.py", f"import pytest\n@pytest.mark.replay{marker}\n{test}\n")
    result = project.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*suite/marked.py*")


def test_a_test_that_fails_or_skips_by_itself_is_not_replayed(project: Project) -> None:
    project.record("order-5xx")
    for body, outcome in (("assert False", "failed"), ("pytest.skip('later')", "skipped")):
        project.write("test_own.py", MARKED.format(more=', agent="nonsense:x"', asks="", body=body))
        project.run("test_own.py").assert_outcomes(**{outcome: 1})


SWALLOW = """
    try: request.getfixturevalue("replayed")
    except BaseException: {then}
"""


@pytest.mark.parametrize("then", ["pass", "pytest.skip('no matter')"])
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_bad_verdict_that_a_test_swallows_fails_the_session(project: Project, then: str, workers: str) -> None:
    project.record("order-5xx")
    project.agents("shop", SHORTER)
    body = SWALLOW.format(then=then)
    project.write("test_own.py", MARKED.format(more=', agent="shop:agent"', asks="request", body=body))
    result = project.run_apart("test_own.py", "-n", workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["replay: swallowed: test_own.py::test_own * (diverged at step 3: *)*check=False*"])


def test_a_bad_verdict_that_a_hook_turns_into_a_pass_fails_the_session(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.snapshot("order-5xx").unlink()
    project.write(
        "conftest.py",
        "import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n"
        "    report = yield\n    report.outcome = 'passed'\n    return report\n",
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["replay: swallowed: fixtures/order-5xx.trace.json::replay * (snapshot missing: *)*"])


@pytest.mark.parametrize("expects", ["check=False", "xfail"])
def test_a_bad_verdict_that_is_expected_passes(project: Project, expects: str) -> None:
    project.record("order-5xx")
    project.agents("shop", SHORTER)
    text = MARKED.format(more=', agent="shop:agent"', asks="replayed", body="pass")
    if expects == "xfail":
        text = text.replace("def test", "@pytest.mark.xfail\ndef test")
    else:
        text = text.replace('"shop:agent"', '"shop:agent", check=False')
    project.write("test_own.py", text)
    assert project.run("test_own.py").ret == pytest.ExitCode.OK


def test_what_a_replay_found_stands_in_the_junit_file(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.run("--junitxml=out.xml")
    xml = (project.path / "out.xml").read_text()
    for name, value in (("verdict", "same"), ("ended", "finish"), ("served", "5"), ("agent", "incident")):
        assert f'<property name="replay_{name}" value="{value}" />' in xml


def test_a_marker_whose_agent_is_a_program_is_not_replayed_without_it(project: Project) -> None:
    project.record("order-5xx")
    project.settings('\n[tool.tracefirst.agents]\nincident = { command = ["false"] }\n')
    project.write("test_own.py", MARKED.format(more="", asks="", body="pass"))
    result = project.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its agent is a program (false)*agent=None*"])
    project.write("test_own.py", MARKED.format(more=", agent=None", asks="", body="pass"))
    project.run("test_own.py").assert_outcomes(passed=1)


def test_a_program_of_the_agents_table_that_no_recording_uses_fails_the_session(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.settings('\n[tool.tracefirst.agents]\nnobody = { command = ["node", "agent.js"] }\n')
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(['replay: agents: "nobody" = "node agent.js" is used by no recording; *'])
