"""One run of pytest: collects the folders, accounts for what was to run, reports unused snapshots, and sums up."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replay.suite.accounting import Account, Scope, accounted
from replay.suite.failure import failure_in, render
from replay.suite.paths import ACCEPTED, FOLDER, SUFFIX, fixtures_below, is_fixture, unused_below
from replay.suite.settings import read_settings
from replay.suite.tally import PREFIX, Tally, Written

if TYPE_CHECKING:
    from replay.suite.case import Outcome

_DRIFTED = ("replay_verdict", "drifted")
_ACCOUNT = "replay_account"
_Status = tuple[str, str, tuple[str, dict[str, bool]]]


class Suite:
    """The plugin of one run of pytest; under pytest-xdist there is one in each worker, and the controller's sums up."""

    name = "tracefirst-suite"

    def __init__(self, config: pytest.Config) -> None:
        self.settings = read_settings(config)
        self._config = config
        self._tally = Tally()
        self._account = Account()
        self._add_folders()
        self._scope = Scope(config, self.settings)

    def _add_folders(self) -> None:
        """Without arguments, at the root, pytest collects `testpaths` or all: the fixtures come on top of them."""
        config, base = self._config, self._config.invocation_params.dir
        if config.args_source is pytest.Config.ArgsSource.ARGS or base != config.rootpath:
            return
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

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if accounted(item):
            self._account.collected.add(item.nodeid)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._account.deselected.update(item.nodeid for item in items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not hasattr(self._config, "workerinput") and getattr(self._config.option, "dist", "no") != "no":
            return  # the workers collect
        self._account.close(session.items, by_user=self._scope.by_user)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._account.merge(getattr(node, "workeroutput", {}).get(_ACCOUNT, {}))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """A marker replays by itself where its test did not ask for `replayed`."""
        outcome = yield
        if item.get_closest_marker("replay") and not any(name.startswith(PREFIX) for name, _ in item.user_properties):
            from replay.suite.marked import replay_marked

            replay_marked(item)
        return outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A replay that fails in a test of the user's own tells its story too, instead of our frames."""
        report = yield
        if call.excinfo is not None and isinstance(item, pytest.Function) and report.outcome == "failed":
            failure = failure_in(call.excinfo)
            if failure is not None:
                report.longrepr = render(failure, item.nodeid.partition("::")[0])
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> _Status | None:
        """Replays that passed although they drifted are counted apart from those that passed."""
        if report.when == "call" and report.outcome == "passed" and _DRIFTED in report.user_properties:
            return "drifted", "d", ("DRIFTED", {"yellow": True})
        return None

    def note(self, item: pytest.Item, outcome: Outcome) -> None:
        """Keep an outcome; it travels in the item's report, so that it reaches the controller of pytest-xdist and JUnit."""
        item.user_properties[:] = [one for one in item.user_properties if not one[0].startswith(PREFIX)]
        item.user_properties += [
            ("replay_verdict", outcome.verdict),
            ("replay_snapshot", outcome.snapshot),
            ("replay_agent", outcome.agent),
            ("replay_key", outcome.key),
            ("replay_served", outcome.model),
            ("replay_ended", outcome.ended),
            ("replay_drift", outcome.drift),
            ("replay_accepted", outcome.accepted),
            ("replay_stale", outcome.stale),
            ("replay_failure", outcome.failure.headline if outcome.failure is not None else ""),
            ("replay_rules", [list(one) for one in outcome.rules]),
        ]
        if outcome.recorded is not None:
            self._tally.recorded.append((item.nodeid, outcome.recorded))
        if outcome.changes:
            self._tally.written.append(
                Written(node=item.nodeid, state=outcome.snapshot, ended=outcome.ended, changes=outcome.changes)
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tally.add(report)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self._config, "workerinput"):
            self._config.workeroutput[_ACCOUNT] = self._account.plain()  # type: ignore[attr-defined]
            return
        if self._config.option.collectonly:
            return
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            return
        try:
            self._look_for_unused(session)
            self._look_for_lost(session)
            self._look_for_gone()
        except OSError as error:
            self._tally.complaints.append(
                f"{error.filename} cannot be listed ({error.strerror}): what it holds did not run"
            )
        self._complain()
        tolerated = getattr(self._config.option, "warn_unused_snapshots", False)
        fails = self._tally.complaints or (self._tally.unused and not tolerated)
        if fails and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _look_for_lost(self, session: pytest.Session) -> None:
        """Account for each recording and marked test that was to run."""
        account, complaints = self._account, self._tally.complaints
        lost = [f"lost {shown}: {why}" for shown, why in self._scope.lost(account)]
        if self._config.option.replay_partial:
            account.deselected |= account.removed
            account.removed.clear()
        lost += [
            f"lost {node}: another plugin took it out; where the suite is split on purpose, say --replay-partial"
            for node in sorted(account.removed)
        ]
        stopped = session.shouldstop or session.shouldfail
        silent = set() if stopped else account.selected - self._tally.nodes
        lost += [f"lost {node}: it was selected and never ran" for node in sorted(silent)]
        complaints += lost
        ran = len(account.selected & self._tally.nodes)
        there = len(account.collected) + len(lost) - len(account.removed) - len(silent)
        if ran != there:
            self._tally.not_all = (
                f"{ran} of {there} recordings ran, {len(account.deselected)} deselected, {len(lost)} lost"
            )

    def _look_for_gone(self) -> None:
        """Accepted drift of fixtures that are not there."""
        for path in (one for folder in self.settings.folders for one in sorted(folder.rglob(ACCEPTED))):
            if path.parent.name != FOLDER or not self._scope.whole_folders:
                continue
            from kernel.errors import ConfigError
            from replay.suite.accepting import accepted_in

            folder = path.parent.parent
            try:
                names = {name for one in accepted_in(folder) for name in one.fixtures}
            except ConfigError as error:
                self._tally.complaints.append(str(error))
                continue
            gone = sorted(name for name in names if not os.path.lexists(folder / name))
            self._tally.complaints += [
                f"accepted drift of {self.settings.shown(folder / name)}, which is not there; take it back with "
                f"`replay accept {self.settings.shown(folder / name)} --undo`"
                for name in gone
            ]

    def _complain(self) -> None:
        """Say what keeps a run from being green although no test failed."""
        tally, complaints, settings = self._tally, self._tally.complaints, self.settings
        if tally.total and tally.verdicts["not_checked"] == tally.total:
            complaints.append("nothing was checked: no recording could be replayed")
        if not tally.total and self._scope.whole_folders:
            names = ", ".join(settings.shown(folder) for folder in settings.folders)
            what = "no recording was run" if self._account.collected else f"it holds no *{SUFFIX}"
            complaints.append(f"nothing was checked: {names}: {what}")
        if self._scope.whole:
            for name in sorted(name for name, matched in tally.rules.items() if not matched):
                complaints.append(
                    f"the rule {name} matches nothing in any recording: mend its path or pattern, or drop it"
                )
        known = ", ".join(sorted(filter(None, tally.agents))) or "none"
        for name in settings.from_option:
            if tally.total and name not in tally.agents:
                complaints.append(f'--replay-agent {name}=...: no recording is of agent "{name}"; there are: {known}')
        if tally.total and self._scope.whole and not self._config.option.replay_partial:
            for key, names in settings.entries.items():
                if key not in tally.keys and key not in settings.from_option:
                    complaints.append(f'agents: "{key}" = "{names}" is used by no recording; their agents are: {known}')

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
        elif self._account.deselected or self._account.removed or session.shouldstop or session.shouldfail:
            tally.kept_because = "because not all tests ran"
        else:
            for path in tally.unused:
                try:
                    path.unlink()
                except OSError as error:
                    tally.complaints.append(f"{shown(path)} cannot be deleted: {error.strerror}")
                else:
                    tally.deleted.append(path)
            tally.unused = [path for path in tally.unused if path not in tally.deleted]

    def _touched(self, folder: Path) -> bool:
        prefix = self.settings.shown(folder)
        return self._scope.whole_folders or any(Path(ran).is_relative_to(prefix) for ran in self._tally.ran)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = list(self._tally.lines(self.settings))
        if lines:
            terminalreporter.write_sep("-", "replay")
        for line, colour in lines:
            terminalreporter.write_line(line, **({colour: True} if colour else {}))
