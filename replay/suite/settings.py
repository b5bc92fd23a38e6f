"""What the user configured: folders, agents, drift, and whether snapshots may be written."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from replay.suite.ci import seen_in
from replay.suite.paths import SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An agent that is a program: its words, where it runs (relative to the root), how long it may, and what puts the world
    of its tools back before it runs."""

    words: tuple[str, ...]
    cwd: str = "."
    timeout_s: float = 60.0
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The plugin's settings for one run of pytest.

    `agents` maps a recording's agent name, or a pattern of fixture paths (anything with a `/` or ending in
    `.trace.json`), to `module:object`; "" means the recording alone. `from_option` are the names given on the command
    line. `not_written` says why `--snapshot-update` does not write snapshots of replays. `record` says what is recorded live:
    `missing`, `drifted`, `all` or nothing; with `llm`, where the tools in `allow` may have side effects.
    """

    root: Path
    folders: tuple[Path, ...]
    agents: dict[str, str]
    from_option: tuple[str, ...]
    allow_drift: bool
    update: bool
    not_written: str = ""
    strict_settings: bool = False
    commands: dict[str, Command] = field(default_factory=dict)
    record: str = ""
    llm: str = ""
    allow: tuple[str, ...] = ()

    @property
    def entries(self) -> dict[str, str]:
        """All keys of the agents' table with what they name, as users see it."""
        return {**self.agents, **{key: shlex.join(command.words) for key, command in self.commands.items()}}

    def key_for(self, name: str, fixture: str) -> str | None:
        """The key of the agents' table that decides for a recording: the command line first, then paths, then names."""
        if name in self.from_option:
            return name
        keys = (*self.agents, *self.commands)
        matching = (key for key in keys if _is_path(key) and fnmatchcase(fixture, key))
        return next(matching, name if name in keys else None)

    def alone(self, name: str, fixture: str) -> bool:
        """Whether the settings say "" for a recording: that it is to be replayed from itself alone."""
        paths = [spec for key, spec in self.agents.items() if _is_path(key) and fnmatchcase(fixture, key)]
        return not paths[0] if paths else self.agents.get(name) == ""

    def shown(self, path: Path) -> str:
        """A path as users write it: relative to the root, with forward slashes."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return path.as_posix()


def read_settings(config: pytest.Config) -> Settings:
    """Read options, ini and `[tool.tracefirst.agents]`.

    Raises:
        pytest.UsageError: an entry cannot be understood, a folder is not there, or an update is refused.
    """
    folders = tuple(dict.fromkeys(Path(folder) for folder in config.getini("replay_fixtures")))
    for folder in folders:
        if not folder.is_dir():
            raise pytest.UsageError(f"replay_fixtures names {folder}, which is no folder")
    option: list[str] = config.getoption("replay_agent")
    chosen = dict(_entry(text, "--replay-agent") for text in option)
    table, commands = _table(config)
    agents = {
        **table,
        **dict(_entry(text, "replay_agents") for text in config.getini("replay_agents")),
        **chosen,
    }
    wanted, by_syrupy = bool(config.getoption("replay_update")), bool(getattr(config.option, "update_snapshots", False))
    why_not = _update_refused(config) if wanted or by_syrupy else ""
    if wanted and why_not:
        raise pytest.UsageError(f"--replay-update is refused {why_not}")
    record: str = config.getoption("replay_record") or ""
    if record and (refused := _update_refused(config)):
        raise pytest.UsageError(f"--replay-record is refused {refused}")
    llm, allow = config.getoption("replay_llm") or "", tuple(config.getoption("replay_allow"))
    if (llm or allow) and not record:
        raise pytest.UsageError("--replay-llm and --replay-allow are of use only with --replay-record")
    if llm and not llm.partition(":")[2]:
        raise pytest.UsageError(f'--replay-llm: "{llm}" is not module:object, such as shop.models:live')
    return Settings(
        root=config.rootpath,
        folders=folders,
        agents=agents,
        from_option=tuple(chosen),
        allow_drift=bool(config.getini("replay_allow_drift")),
        update=(wanted or by_syrupy) and not why_not,
        not_written=why_not,
        commands=commands,
        record=record,
        llm=llm,
        allow=allow,
        strict_settings=bool(config.getini("replay_strict_settings")),
    )


def _is_path(key: str) -> bool:
    return "/" in key or key.endswith(SUFFIX)


def _entry(text: str, where: str) -> tuple[str, str]:
    name, found, spec = text.partition("=")
    name, spec = name.strip(), spec.strip()
    if not (found and name and (":" in spec or (not spec and _is_path(name)))):
        raise pytest.UsageError(f'{where}: "{text}" is not NAME=module:object, such as incident=shop.agents:incident')
    return name, spec


def _table(config: pytest.Config) -> tuple[dict[str, str], dict[str, Command]]:
    """`[tool.tracefirst.agents]` of the project's pyproject.toml: agents of Python, and programs."""
    inipath = config.inipath
    path = inipath if inipath is not None and inipath.name == "pyproject.toml" else config.rootpath / "pyproject.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}, {}
    if "tracefirst" not in text:
        return {}, {}
    import tomllib

    try:
        table: Any = tomllib.loads(text).get("tool", {}).get("tracefirst", {}).get("agents", {})
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    if not isinstance(table, dict) or not all(isinstance(spec, (str, dict)) for spec in table.values()):
        raise pytest.UsageError(
            f'{path}: [tool.tracefirst.agents] holds lines such as incident = "shop.agents:incident"'
        )
    where = f"{path}: [tool.tracefirst.agents]"
    named = {name: spec for name, spec in table.items() if isinstance(spec, str)}
    programs = {name: _command(name, spec, where) for name, spec in table.items() if isinstance(spec, dict)}
    return dict(_entry(f"{name}={spec}", where) for name, spec in named.items()), programs


def _command(name: str, spec: dict[str, Any], where: str) -> Command:
    """An agent that is a program. Raises `pytest.UsageError`."""
    words, cwd, timeout_s, reset = (spec.get(key) for key in ("command", "cwd", "timeout_s", "reset"))
    unknown = sorted(spec.keys() - {"command", "cwd", "timeout_s", "reset"})
    fits = (
        _are_words(words)
        and isinstance(cwd, (str, type(None)))
        and (timeout_s is None or (isinstance(timeout_s, (int, float)) and timeout_s > 0))
        and (reset is None or _are_words(reset))
    )
    if unknown or not fits:
        wrong = f"{', '.join(unknown)} is unknown" if unknown else "a value has another type"
        raise pytest.UsageError(
            f'{where}: {name}: {wrong}; write {{command = ["node", "agent.js"], cwd = ".", timeout_s = 60}}'
        )
    return Command(words=tuple(words or ()), cwd=cwd or ".", timeout_s=timeout_s or 60.0, reset=tuple(reset or ()))


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _update_refused(config: pytest.Config) -> str:
    """Why snapshots must not be written in this run, or ""."""
    if variable := seen_in():
        return f"in CI (the variable {variable} is set): a snapshot is written and reviewed where the change is made"
    distributed = hasattr(config, "workerinput") or getattr(config.option, "dist", "no") != "no"
    if distributed or getattr(config.option, "numprocesses", None):
        return "under pytest-xdist: run it with -n 0"
    return ""
