"""`--agent module:object`: today's agent, from the user's own code."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernel.agent import Agent
from replay.play import NotLoaded, load_agents, load_object

Agents = Agent | dict[str, Agent]


def load_agent(reference: str) -> Agents:
    """The agent, or agents by name, that a reference names; the working directory is importable.

    Raises:
        click.UsageError: there is no such module or object, or it is no agent.
    """
    _look_here()
    try:
        return load_agents(reference)
    except NotLoaded as error:
        raise click.UsageError(f"--agent {reference}: {error}.") from None


def load_model(reference: str) -> Any:
    """The live model that a reference names: a `Model`, or a function `prompt -> text`. Raises `click.UsageError`."""
    _look_here()
    try:
        found = load_object(reference)
    except NotLoaded as error:
        raise click.UsageError(f"--llm {reference}: {error}.") from None
    if not callable(found) and not hasattr(found, "complete"):
        raise click.UsageError(
            f"--llm {reference} is {type(found).__name__}; it must be a Model or a function prompt -> text."
        )
    return found


def agent_for(agents: Agents | None, recorded: str) -> Agent | None:
    """The agent that replays a recording of the agent `recorded`. Raises `click.UsageError`."""
    if not isinstance(agents, dict):
        return agents
    if recorded not in agents:
        known = ", ".join(agents)
        raise click.UsageError(f"--agent names {known}; the recording is of {recorded or 'an agent without a name'}.")
    return agents[recorded]


def _look_here() -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")
