"""What became of each recording and each marked test of a session: selected, deselected by the user, or lost on the way."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from replay.suite.paths import FOLDER, SUFFIX, fixtures_below, is_fixture
from replay.suite.settings import Settings

DESELECTING = ("keyword", "markexpr", "deselect", "lf", "stepwise")
"""Options of pytest by which a user deselects tests that were collected."""

NARROWING = (*DESELECTING, "ignore", "ignore_glob")


@dataclass(slots=True)
class Account:
    """Node ids of the recordings and marked tests that were collected, and of those that were taken out again.

    `removed` were taken out by a plugin, without an option of pytest by which a user does that.
    """

    collected: set[str] = field(default_factory=set)
    deselected: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def close(self, left: Iterable[pytest.Item], *, by_user: bool) -> None:
        """Settle what was taken out between collecting and running."""
        taken = self.collected - {item.nodeid for item in left}
        self.removed = taken - self.deselected if by_user else taken
        self.deselected = taken - self.removed

    def plain(self) -> dict[str, list[str]]:
        """The account as a worker of pytest-xdist sends it."""
        return {name: sorted(getattr(self, name)) for name in self.__slots__}

    def merge(self, sent: dict[str, list[str]]) -> None:
        """Add what a worker sent: all of them collect the same."""
        for name, nodes in sent.items():
            getattr(self, name).update(nodes)

    @property
    def selected(self) -> set[str]:
        return self.collected - self.deselected - self.removed


class Scope:
    """What a run was asked to cover: the paths of its arguments, without what options narrow it to."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        base = config.invocation_params.dir
        self._config = config
        self._settings = settings
        self._args = [(base / arg.partition("::")[0]).resolve() for arg in config.args]

    def _covers(self, path: Path) -> bool:
        """Whether a path lies below an argument, as it is written or as links lead."""
        absolute, real = Path(os.path.abspath(path)), path.resolve()
        return any(one.is_relative_to(arg) for arg in self._args for one in (absolute, real))

    @property
    def narrowed(self) -> bool:
        """Whether an option of pytest keeps tests from running."""
        return any(getattr(self._config.option, name, None) for name in NARROWING)

    @property
    def by_user(self) -> bool:
        """Whether what pytest reports as deselected was deselected by an option of its own."""
        option = self._config.option
        return any(getattr(option, name, None) for name in DESELECTING)

    @property
    def whole_folders(self) -> bool:
        """Whether all recordings of all configured folders were to run."""
        folders = self._settings.folders
        return bool(folders) and not self.narrowed and all(map(self._covers, folders))

    @property
    def whole(self) -> bool:
        """Whether all tests were to run too, those with a marker among them."""
        tests = [self._config.rootpath / path for path in self._config.getini("testpaths")] or [self._config.rootpath]
        return not self.narrowed and (self._by_itself() or all(map(self._covers, tests)))

    def _by_itself(self) -> bool:
        config = self._config
        here = config.invocation_params.dir == config.rootpath
        return here and config.args_source is not pytest.Config.ArgsSource.ARGS

    def lost(self, account: Account) -> Iterator[tuple[str, str]]:
        """Recordings that were to run and were not collected, each with the reason."""
        collected = {node.partition("::")[0] for node in account.collected}
        for path in fixtures_below(self._settings.folders):
            shown = self._settings.shown(path)
            if shown not in collected and self._covers(path) and not self._left_out(path):
                yield shown, self._why(path)

    def _left_out(self, path: Path) -> bool:
        """Whether the user's own options keep a file from being collected."""
        option = self._config.option
        base = self._config.invocation_params.dir
        if any(path.is_relative_to(os.path.abspath(base / ignored)) for ignored in option.ignore or ()):
            return True
        globs = [os.path.abspath(base / pattern) for pattern in option.ignore_glob or ()]
        if any(fnmatch(str(one), pattern) for one in (path, *path.parents) for pattern in globs):
            return True
        return bool(getattr(option, "lf", False))

    def _why(self, path: Path) -> str:
        if not is_fixture(path):
            return "a recording needs a name before its ending"
        if path.is_symlink() and not path.exists():
            return f"a link to {os.readlink(path)}, which is not there (fetch it: git annex get, git lfs pull)"
        if not path.is_file():
            return "no regular file"
        folder = next(one for one in self._settings.folders if path.is_relative_to(one))
        parts = path.relative_to(folder).parts[:-1]
        if FOLDER in parts:
            return f"{FOLDER} holds snapshots, no recordings"
        for pattern in self._config.getini("norecursedirs"):
            if named := next((part for part in parts if fnmatch(part, pattern)), None):
                return f'the folder {named} is left out by norecursedirs ("{pattern}"): give it another name'
        return "not collected: by collect_ignore, or because another plugin left it out"


def accounted(node: Any) -> bool:
    """Whether an item is a recording or a test with a marker."""
    return (node.name.startswith("replay") and node.path.name.endswith(SUFFIX)) or bool(
        node.get_closest_marker("replay")
    )
