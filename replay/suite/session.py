"""One run of pytest: collects the folders, counts outcomes, reports unused snapshots, and sums up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replay.suite.failure import failure_in, render
from replay.suite.paths import FOLDER, fixtures_below, is_fixture, unused_below
from replay.suite.settings import SUFFIX, read_settings

if TYPE_CHECKING:
    from replay.suite.case import Outcome

_VERDICTS = ("same", "drifted", "diverged", "not_checked")
_SNAPSHOTS = ("missing", "stale", "changed")
_CHANGE_LINES = 12
_DRIFTED = ("replay_verdict", "drifted")
_Status = tuple[str, str, tuple[str, dict[str, bool]]]


class Suite:
    """The plugin of one run of pytest; under pytest-xdist there is one in each worker, and the controller's sums up."""

    name = "tracefirst-suite"

    def __init__(self, config: pytest.Config) -> None:
        self.settings = read_settings(config)
        self._config = config
        self._verdicts: Counter[str] = Counter()
        self._snapshots: Counter[str] = Counter()
        self._served = 0
        self._agents: set[str] = set()
        self._ran: set[str] = set()
        self._deselected = False
        self._drifted: list[str] = []
        self._written: list[tuple[str, str, tuple[str, ...]]] = []
        self._unused: list[Path] = []
        self._deleted: list[Path] = []
        self._kept_because = ""
        self._complaints: list[str] = []
        self._collect_folders()

    def _collect_folders(self) -> None:
        """Without arguments pytest collects `testpaths` or the current folder: the fixtures come on top of them."""
        config = self._config
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            return
        base = config.invocation_params.dir
        given = [(base / arg).resolve() for arg in config.args]
        for folder in self.settings.folders:
            if not any(folder.resolve().is_relative_to(one) for one in given):
                config.args.append(str(folder))

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
            self._written.append((item.nodeid, outcome.snapshot, outcome.changes))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.outcome == "passed":
            drifts = [value for name, value in report.user_properties if name == "replay_drift" and value]
            self._drifted += [f"passed, {drift}: {report.nodeid}" for drift in drifts]
        if report.when != "teardown":
            return
        found = [(name, value) for name, value in report.user_properties if name.startswith("replay_")]
        for name, value in found:
            if name == "replay_verdict":
                self._verdicts[str(value)] += 1
            elif name == "replay_snapshot":
                self._snapshots[str(value)] += 1
            elif name == "replay_agent":
                self._agents.add(str(value))
            elif isinstance(value, int):
                self._served += value
        if found:
            self._ran.add(report.nodeid.partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self._config, "workerinput") or self._config.option.collectonly:
            return
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            return
        self._look_for_unused(session)
        total = sum(self._verdicts.values())
        if total and self._verdicts["not_checked"] == total:
            self._complaints.append("nothing was checked: no recording could be replayed")
        if not total and self._whole():
            names = ", ".join(self.settings.shown(folder) for folder in self.settings.folders)
            there = sum(1 for _ in fixtures_below(self.settings.folders))
            what = f"none of the {there} recordings was collected" if there else f"it holds no *{SUFFIX}"
            self._complaints.append(f"nothing was checked: {names}: {what}")
        for name in self.settings.from_option:
            if total and name not in self._agents:
                known = ", ".join(sorted(filter(None, self._agents))) or "none"
                self._complaints.append(
                    f'--replay-agent {name}=...: no recording is of agent "{name}"; there are: {known}'
                )
        fails = self._complaints or (self._unused and not getattr(self._config.option, "warn_unused_snapshots", False))
        if fails and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _whole(self) -> bool:
        """Whether all that is configured was to run."""
        option = self._config.option
        chosen = self._deselected or any(
            getattr(option, name, None) for name in ("keyword", "markexpr", "lf", "ignore", "ignore_glob", "deselect")
        )
        return (
            bool(self.settings.folders)
            and not chosen
            and (self._config.args_source is not pytest.Config.ArgsSource.ARGS)
        )

    def _look_for_unused(self, session: pytest.Session) -> None:
        """Unused snapshots of the folders that ran as a whole. Only a whole, green, serial update deletes them."""
        shown = self.settings.shown
        folders = [
            folder
            for folder in self.settings.folders
            if all(shown(fixture) in self._ran for fixture in fixtures_below([folder])) and self._touched(folder)
        ]
        self._unused = unused_below(folders)
        if not self.settings.update or not self._unused:
            return
        if session.testsfailed:
            self._kept_because = "because tests failed"
        elif self._deselected or session.shouldstop or session.shouldfail:
            self._kept_because = "because not all tests ran"
        else:
            for path in self._unused:
                path.unlink()
                self._deleted.append(path)
            self._unused = []

    def _touched(self, folder: Path) -> bool:
        prefix = self.settings.shown(folder)
        return self._whole() or any(Path(ran).is_relative_to(prefix) for ran in self._ran)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [*self._drifted, *self._update_lines(), *self._unused_lines()]
        counts = self._counts()
        if not (lines or counts or self._complaints):
            return
        terminalreporter.write_sep("-", "replay")
        for line in lines:
            terminalreporter.write_line(line)
        for complaint in self._complaints:
            terminalreporter.write_line(f"replay: {complaint}", red=True)
        for line, good in counts:
            terminalreporter.write_line(line, green=good, red=not good)

    def _counts(self) -> list[tuple[str, bool]]:
        if not self._verdicts:
            return []
        found = ", ".join(f"{self._verdicts[verdict]} {verdict.replace('_', ' ')}" for verdict in _VERDICTS)
        good = not (self._verdicts["diverged"] or self._verdicts["not_checked"] or self._complaints)
        good = good and (self.settings.allow_drift or not self._verdicts["drifted"])
        lines = [(f"replay: {found}; model replies served {self._served}, live 0", good)]
        bad = [f"{self._snapshots[state]} {state}" for state in _SNAPSHOTS if self._snapshots[state]]
        if bad:
            lines.append((f"replay: snapshots {', '.join(bad)}", False))
        return lines

    def _update_lines(self) -> list[str]:
        lines: list[str] = []
        for node, state, changes in self._written:
            added = sum(change.startswith("+") for change in changes)
            removed = sum(change.startswith("-") for change in changes)
            lines.append(
                f"{state} {node}: {added} lines" if state == "written" else f"{state} {node}: +{added} -{removed}"
            )
            if state == "updated":
                lines += [f"  {change}" for change in changes[:_CHANGE_LINES]]
                if len(changes) > _CHANGE_LINES:
                    lines.append(f"  ... {len(changes) - _CHANGE_LINES} more lines")
        if self.settings.update and not lines and set(self._snapshots) - {"not_compared"}:
            lines.append("no snapshot needed an update")
        if self.settings.not_written and self._snapshots:
            lines.append(f"--snapshot-update does not write snapshots of replays {self.settings.not_written}")
        return lines

    def _unused_lines(self) -> list[str]:
        shown = self.settings.shown
        lines = [f"deleted {shown(path)}: no recording belonged to it" for path in self._deleted]
        lines += [f"unused {shown(path)}: no recording belongs to it" for path in self._unused]
        if self._unused:
            lines.append(
                f"unused snapshots were not deleted {self._kept_because}"
                if self._kept_because
                else "delete unused snapshots by hand, or with: pytest --replay-update"
            )
        return lines
