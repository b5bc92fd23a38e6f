"""Projects that use the plugin: a folder of recordings, settings, agents; pytest runs in them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kernel.tracing  # noqa: F401
import replay.suite.case  # noqa: F401 - once, so that the runs within this process do not load the kernel each time
from replay.suite.ci import VARIABLES

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """
[tool.pytest.ini_options]
replay_fixtures = ["fixtures"]
addopts = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
filterwarnings = ["error"]
"""


class Project:
    """A project in a folder of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path
        self.fixtures = self.path / "fixtures"
        self.fixtures.mkdir()

    def settings(self, more: str = "", *, base: str = SETTINGS) -> None:
        """Write pyproject.toml."""
        (self.path / "pyproject.toml").write_text(base + more, encoding="utf-8")

    def record(self, name: str, to: str | None = None) -> Path:
        """Drop a recording of this repository into the fixtures folder."""
        target = self.fixtures / f"{to or name}.trace.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "fixtures" / f"{name}.trace.json", target)
        return target

    def agents(self, module: str, *edits: tuple[str, str], more: str = "") -> None:
        """Write the incident agents as a module of the project, with edits as a user would make them."""
        text = (ROOT / "fixtures" / "incident.py").read_text(encoding="utf-8")
        for old, new in edits:
            assert old in text, f"{old} is not in fixtures/incident.py"
            text = text.replace(old, new)
        (self.path / f"{module}.py").write_text(text + more, encoding="utf-8")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest in the project, in this process."""
        return self._pytester.runpytest_inprocess(*args)

    def run_apart(self, *args: str) -> pytest.RunResult:
        """Run pytest in the project, in a process of its own."""
        return self._pytester.runpytest_subprocess(*args)

    def snapshot(self, name: str) -> Path:
        """Where the snapshot of a fixture lies."""
        return self.fixtures / "__replays__" / f"{name}.replay.txt"

    def files(self) -> dict[str, bytes]:
        """All recordings and snapshots by name."""
        return {
            path.relative_to(self.path).as_posix(): path.read_bytes()
            for path in sorted(self.fixtures.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project whose settings name a fixtures folder. It is at a desk: neither in CI nor in a worker."""
    for name in (*VARIABLES, "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second must not meet the old bytecode
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    made = Project(pytester)
    made.settings()
    return made


@pytest.fixture
def suite(project: Project) -> Callable[..., Project]:
    """A project with recordings whose snapshots are written."""

    def build(*names: str) -> Project:
        for name in names:
            project.record(name)
        project.run("--replay-update").assert_outcomes(passed=len(names))
        return project

    return build
