"""One run of pytest: collects the folders, counts outcomes, reports unused snapshots, and sums up."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replay.suite.failure import failure_in, render
from replay.suite.paths import FOLDER, fixtures_below, is_fixture, unused_below
from replay.suite.settings import SUFFIX, read_settings
from replay.suite.tally import Tally

if TYPE_CHECKING:
    from replay.suite.case import Outcome

_DRIFTED = ("replay_verdict", "drifted")
_Status = tuple[str, str, tuple[str, dict[str, bool]]]


class Suite:
    """The plugin of one run of pytest; under pytest-xdist there is one in each worker, and the controller's sums up."""

    name = "tracefirst-suite"

    def __init__(self, config: pytest.Config) -> None:
        self.settings = read_settings(config)
        self._config = config
        self._tally = Tally()
        self._deselected = False
        self._all_folders = self._collect_folders()

    def _collect_folders(self) -> bool:
        """Without arguments, at the root, pytest collects `testpaths` or all: the fixtures come on top of them."""
        config, base = self._config, self._config.invocation_params.dir
        if config.args_source is pytest.Config.ArgsSource.ARGS or base != config.rootpath:
            return False
        given = [(base / arg).resolve() for arg in config.args]
        for folder in self.settings.folders:
            if not any(folder.resolve().is_relative_to(one) for one in given):
                config.args.append(str(folder))
        return bool(self.settings.folders)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if not file_path.name.endswith(SUFFIX) or not is_fixture(file_path):
            return None
        below = any(file_path.is_relative_to(folder) for folder in self.settings.folders)
        if not below and not parent.session.isinitpath(file_path):
            return None
        from replay.suite.items import TraceFile

        return TraceFile.of(self, file_path, parent)

    def pytest_collection(self) -> None:
        """Say once, instead of in each case, that syrupy is not there. Raises `pytest.UsageError`."""
        from importlib.util import find_spec

        if self.settings.folders and find_spec("syrupy") is None:
            raise pytest.UsageError(
                "replay_fixtures is set, and replays are compared with syrupy snapshots: "
                "pip install 'tracefirst[pytest]'"
            )

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.name == FOLDER else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A replay that fails in a test of the user's own tells its story too, instead of our frames."""
        report = yield
        if call.excinfo is not None and isinstance(item, pytest.Function):
            failure = failure_in(call.excinfo)
            if failure is not None:
                report.longrepr = render(failure, item.nodeid.partition("::")[0])
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> _Status | None:
        """Replays that passed although they drifted are counted apart from those that passed."""
        if report.when == "call" and report.outcome == "passed" and _DRIFTED in report.user_properties:
            return "drifted", "d", ("DRIFTED", {"yellow": True})
        return None

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected = self._deselected or bool(items)

    def note(self, item: pytest.Item, outcome: Outcome) -> None:
        """Keep an outcome; it travels in the item's report, so that it reaches the controller of pytest-xdist."""
        item.user_properties += [
            ("replay_verdict", outcome.verdict),
            ("replay_snapshot", outcome.snapshot),
            ("replay_agent", outcome.agent),
            ("replay_served", outcome.model),
            ("replay_drift", outcome.drift),
        ]
        if outcome.changes:
            self._tally.written.append((item.nodeid, outcome.snapshot, outcome.changes))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tally.add(report)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self._config, "workerinput") or self._config.option.collectonly:
            return
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            return
        self._look_for_unused(session)
        self._complain()
        tolerated = getattr(self._config.option, "warn_unused_snapshots", False)
        fails = self._tally.complaints or (self._tally.unused and not tolerated)
        if fails and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _complain(self) -> None:
        """Say what keeps a run from being green although no test failed."""
        tally, complaints = self._tally, self._tally.complaints
        if tally.total and tally.verdicts["not_checked"] == tally.total:
            complaints.append("nothing was checked: no recording could be replayed")
        if not tally.total and self._whole():
            names = ", ".join(self.settings.shown(folder) for folder in self.settings.folders)
            there = sum(1 for _ in fixtures_below(self.settings.folders))
            what = f"none of the {there} recordings was collected" if there else f"it holds no *{SUFFIX}"
            complaints.append(f"nothing was checked: {names}: {what}")
        known = ", ".join(sorted(filter(None, tally.agents))) or "none"
        for name in self.settings.from_option:
            if tally.total and name not in tally.agents:
                complaints.append(f'--replay-agent {name}=...: no recording is of agent "{name}"; there are: {known}')

    def _whole(self) -> bool:
        """Whether all that is configured was to run."""
        narrowing = ("keyword", "markexpr", "lf", "ignore", "ignore_glob", "deselect")
        narrowed = self._deselected or any(getattr(self._config.option, name, None) for name in narrowing)
        return self._all_folders and not narrowed

    def _look_for_unused(self, session: pytest.Session) -> None:
        """Unused snapshots of the folders that ran as a whole. Only a whole, green, serial update deletes them."""
        tally, shown = self._tally, self.settings.shown
        folders = [
            folder
            for folder in self.settings.folders
            if all(shown(fixture) in tally.ran for fixture in fixtures_below([folder])) and self._touched(folder)
        ]
        tally.unused = unused_below(folders)
        if not self.settings.update or not tally.unused:
            return
        if session.testsfailed:
            tally.kept_because = "because tests failed"
        elif self._deselected or session.shouldstop or session.shouldfail:
            tally.kept_because = "because not all tests ran"
        else:
            for path in tally.unused:
                path.unlink()
                tally.deleted.append(path)
            tally.unused = []

    def _touched(self, folder: Path) -> bool:
        prefix = self.settings.shown(folder)
        return self._whole() or any(Path(ran).is_relative_to(prefix) for ran in self._tally.ran)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = list(self._tally.lines(self.settings))
        if lines:
            terminalreporter.write_sep("-", "replay")
        for line, colour in lines:
            terminalreporter.write_line(line, **({colour: True} if colour else {}))
