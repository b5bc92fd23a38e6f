"""Where a run's policy comes from: code, a TOML file, or the environment, which wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from kernel.errors import ConfigError
from kernel.record import Policy, PolicyMode

POLICY_VARIABLE = "TRACEFIRST_POLICY"
_MODES: tuple[str, ...] = get_args(PolicyMode)


def policy_from(given: Policy | str | Path | None, environment: Mapping[str, str] = os.environ) -> Policy:
    """The policy in force; its `source` says where it came from.

    `given` is a `Policy`, a mode, or a TOML file with a table `[policy]` that holds `mode` and `allow`. The environment
    variable `TRACEFIRST_POLICY` wins: a mode, or `allowlist:tool,tool`.

    Raises:
        ConfigError: an unknown mode or an unreadable file; the message names it and the known modes.
    """
    value = environment.get(POLICY_VARIABLE)
    if value:
        mode, _, names = value.partition(":")
        return _policy(mode.strip(), _names(names), f"environment {POLICY_VARIABLE}")
    if given is None:
        return Policy()
    if isinstance(given, Policy):
        return Policy(mode=_mode(given.mode, "code"), allow=given.allow, source="code")
    if isinstance(given, str) and not given.endswith(".toml"):
        return _policy(given, (), "code")
    return _from_file(Path(given))


def _from_file(path: Path) -> Policy:
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("policy")
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"policy file {path.name} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f'policy file {path.name} has no table [policy]; write [policy] with mode = "read_only"')
    allow = table.get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(name, str) for name in allow):
        raise ConfigError(f"policy file {path.name}: allow must be a list of tool names")
    return _policy(str(table.get("mode", "")), tuple(allow), path.name)


def _policy(mode: str, allow: tuple[str, ...], source: str) -> Policy:
    return Policy(mode=_mode(mode, source), allow=allow, source=source)


def _mode(mode: str, source: str) -> PolicyMode:
    if mode not in _MODES:
        raise ConfigError(f"policy mode {mode!r} (from {source}) is unknown; choose one of {', '.join(_MODES)}")
    return mode  # type: ignore[return-value]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
