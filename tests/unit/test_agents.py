"""Code of the user's is loaded in one place: whatever it does on the way, a reason comes back, and stdout stays clean."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel import Agent
from replay.cli import main
from replay.play import NotLoaded, load_agents, load_object

Write = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module of its own name for each test, and gives that name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"users_{abs(hash(tmp_path))}"

    def write(source: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), "utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


LEAVING = [
    "import sys; sys.exit(0)",
    "raise SystemExit",
    "raise SystemExit('no settings')",
    "import argparse; argparse.ArgumentParser().parse_args(['--nope'])",
    "import pytest; pytest.skip('not here', allow_module_level=True)",
    "import asyncio; raise asyncio.CancelledError",
    "raise GeneratorExit",
    "1 / 0",
    "open(",
    "import no_such_package",
    "int.no_such_name",
]


@pytest.mark.parametrize("source", LEAVING)
def test_a_module_that_does_not_load_is_a_reason(module: Write, source: str) -> None:
    with pytest.raises(NotLoaded, match=r"importing|no module"):
        load_agents(f"{module(source)}:agent")


@pytest.mark.parametrize("source", LEAVING)
def test_a_factory_that_gives_nothing_is_a_reason(module: Write, source: str) -> None:
    body = f"def agent():\n    exec({source!r})\n"
    with pytest.raises(NotLoaded, match="calling it"):
        load_agents(f"{module(body)}:agent")


def test_ctrl_c_is_not_held_back(module: Write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_agents(f"{module('raise KeyboardInterrupt')}:agent")


def test_what_a_module_prints_goes_to_stderr(module: Write, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("""
        print("loading")
        from kernel import Agent
        def agent():
            print("making")
            return Agent(name="ops")
    """)
    found = load_agents(f"{name}:agent")
    assert isinstance(found, Agent) and found.name == "ops"
    assert capsys.readouterr() == ("", "loading\nmaking\n")


@pytest.mark.parametrize(
    "reference", ["nowhere", ":agent", "kernel:", "no.such.module:agent", "kernel:nobody", "kernel:Agent.x.y"]
)
def test_a_reference_that_names_nothing_is_a_reason(reference: str) -> None:
    with pytest.raises(NotLoaded):
        load_object(reference)


@pytest.mark.parametrize("source", LEAVING)
def test_the_command_says_so_and_exits_with_2(module: Write, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fixtures/order-5xx.trace.json", "--agent", f"{module(source)}:agent"])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == "" and "--agent users_" in err
