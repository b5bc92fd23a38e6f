"""The plugin beside other plugins and settings, and what it costs a run that replays nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.plugin.conftest import ROOT, Project

pytest_plugins = ["pytester"]

HEAVY = (
    "kernel",
    "msgspec",
    "jsonschema_rs",
    "opentelemetry",
    "aiohttp",
    "click",
    "asyncio",
    "replay.play.play",
    "tomllib",
)


def test_loading_the_plugin_loads_neither_the_kernel_nor_syrupy() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import replay.plugin, replay.suite.session\n"
        "print('\\n'.join(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not [name for name in loaded if name.startswith((*HEAVY, "syrupy"))]
    assert len(loaded) < 12


def test_a_run_without_recordings_never_loads_the_kernel(project: Project) -> None:
    project.settings(base="[tool.pytest.ini_options]\n")
    project.write(
        "test_unit.py",
        "import sys\ndef test_unit(): assert not {'kernel', 'replay.play.play', 'msgspec'} & set(sys.modules)\n",
    )
    project.run_apart("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_collecting_our_own_recordings_loads_no_room_of_the_kernel(suite: Callable[..., Project]) -> None:
    project = suite("order-5xx")
    project.write(
        "conftest.py",
        "import sys\ndef pytest_collection_finish(session):\n"
        "    print('kernel loaded:', bool({'kernel.record', 'kernel.agent', 'replay.play', 'msgspec'} & set(sys.modules)))\n",
    )
    project.run_apart("--collect-only", "-q").stdout.fnmatch_lines(["kernel loaded: False"])


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_any_import_mode_and_warnings_as_errors(suite: Callable[..., Project], mode: str) -> None:
    project = suite("order-5xx", "conversation")
    project.run_apart("-W", "error", f"--import-mode={mode}").assert_outcomes(passed=2)


def test_the_plugin_can_be_named_where_plugins_are_not_loaded_by_themselves(
    suite: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = suite("order-5xx")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.run_apart("-p", "replay.plugin").assert_outcomes(passed=1)


def test_without_syrupy_the_remedy_is_named(project: Project) -> None:
    project.record("order-5xx")
    project.write("conftest.py", "import sys\nsys.modules['syrupy'] = None\n")
    result = project.run_apart("-p", "no:syrupy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pip install 'tracefirst?pytest?'*"])


def test_the_suite_needs_no_cache_no_network_and_no_key(
    suite: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = suite("order-5xx", "parallel-with-failure")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "MODEL"):
        monkeypatch.delenv(name, raising=False)
    project.write(
        "conftest.py",
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('a replay opened a socket')\n"
        "socket.socket.connect = refuse\n",
    )
    project.run_apart("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_every_option_and_setting_carries_the_prefix() -> None:
    from replay import plugin

    class Recorder:
        def __init__(self) -> None:
            self.names: list[str] = []

        def getgroup(self, name: str, description: str) -> Recorder:
            return self

        def addoption(self, name: str, **_: object) -> None:
            self.names.append(name.removeprefix("--"))

        def addini(self, name: str, *_: object, **__: object) -> None:
            self.names.append(name)

    recorder = Recorder()
    plugin.pytest_addoption(recorder)  # type: ignore[arg-type]
    assert recorder.names and all(name.startswith("replay") for name in recorder.names)


def test_fixtures_are_the_files_that_the_recorder_names() -> None:
    from kernel.trace import SUFFIX as written
    from replay.suite.paths import SUFFIX as collected

    assert written == collected
