"""`--agent module:object`: today's agent, from the user's own code."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from kernel.agent import Agent

Agents = Agent | dict[str, Agent]


def load_agent(reference: str) -> Agents:
    """The agent, or agents by name, that a reference names; the working directory is importable.

    Raises:
        click.UsageError: there is no such module or object, or it is no agent.
    """
    return _as_agents(_named(reference, "--agent"), reference)


def load_model(reference: str) -> Any:
    """The live model that a reference names: a `Model`, or a function `prompt -> text`. Raises `click.UsageError`."""
    found = _named(reference, "--llm")
    if not callable(found) and not hasattr(found, "complete"):
        raise click.UsageError(
            f"--llm {reference} is {type(found).__name__}; it must be a Model or a function prompt -> text."
        )
    return found


def _named(reference: str, option: str) -> Any:
    module_name, colon, path = reference.partition(":")
    if not colon or not module_name or not path:
        raise click.UsageError(f"{option} {reference}: write {option} MODULE:OBJECT, such as app.agents:ops.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise click.UsageError(
                f"{option} {reference}: there is no module {error.name} in the working directory or installed."
            ) from None
        raise click.UsageError(f"{option} {reference}: importing {module_name} failed: {error}.") from None
    except Exception as error:
        raise click.UsageError(
            f"{option} {reference}: importing {module_name} failed: {type(error).__name__}: {error}."
        ) from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"{option} {reference}: {module_name} has no {path}. It has {_names(found)}.")
        found = getattr(found, name)
    return found


def agent_for(agents: Agents | None, recorded: str) -> Agent | None:
    """The agent that replays a recording of the agent `recorded`. Raises `click.UsageError`."""
    if not isinstance(agents, dict):
        return agents
    if recorded not in agents:
        known = ", ".join(agents)
        raise click.UsageError(f"--agent names {known}; the recording is of {recorded or 'an agent without a name'}.")
    return agents[recorded]


def _as_agents(found: Any, reference: str) -> Agents:
    if callable(found) and not isinstance(found, (Agent, dict)):
        try:
            found = found()
        except Exception as error:
            raise click.UsageError(
                f"--agent {reference}: calling it failed: {type(error).__name__}: {error}."
            ) from None
    if isinstance(found, Agent):
        return found
    if isinstance(found, dict) and found and all(isinstance(value, Agent) for value in found.values()):
        return {str(name): agent for name, agent in found.items()}
    raise click.UsageError(
        f"--agent {reference} is {type(found).__name__}; "
        "it must be a kernel.Agent, a function without arguments that returns one, or a dict of name to Agent."
    )


def _names(found: Any) -> str:
    names = [name for name in dir(found) if isinstance(getattr(found, name, None), (Agent, dict)) and name[0] != "_"]
    return ", ".join(names) or "no agent"
