"""Today's agent for a recording: found by `module:object`, as the command line does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
    from replay.play import NotLoaded, load_agents

    entry = f'agent "{key}" = "{spec}"'
    if str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        found = load_agents(spec)
    except NotLoaded as error:
        raise AgentNotFound(f"{entry}: {error}") from error
    if not isinstance(found, dict):
        return found
    if recorded not in found:
        raise AgentNotFound(f'{entry}: has no agent "{recorded}"; it has {", ".join(found)}')
    return found[recorded]
