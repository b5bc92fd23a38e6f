"""Today's agent for a recording: found by `module:object`, as the command line does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel.agent import Agent


class AgentNotFound(Exception):
    """An agent cannot be loaded; the message says which entry, and what is wrong with it."""


def load_agent(spec: str, key: str, root: Path, recorded: str) -> Agent:
    """Import `module:object`: an `Agent`, a dict of agents by name, or a function without parameters that gives one.

    Modules are found as in tests, and from the root of the project. `recorded` chooses from a dict.

    Raises:
        AgentNotFound: there is no such thing, or it is no agent.
    """
    from kernel.agent import Agent

    module_name, _, names = spec.partition(":")
    entry = f'agent "{key}" = "{spec}"'
    if str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise AgentNotFound(f"{entry}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    for name in names.split("."):
        if not hasattr(found, name):
            raise AgentNotFound(f"{entry}: {module_name} has no {names}")
        found = getattr(found, name)
    if not isinstance(found, Agent) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise AgentNotFound(f"{entry}: calling it failed: {type(error).__name__}: {error}") from error
    if isinstance(found, dict):
        if recorded not in found:
            raise AgentNotFound(f'{entry}: has no agent "{recorded}"; it has {", ".join(map(str, found)) or "none"}')
        found = found[recorded]
    if not isinstance(found, Agent):
        raise AgentNotFound(f"{entry}: is a {type(found).__name__}, not a kernel.Agent")
    return found
