"""Objects of the user's own code, found by `module:object`: the one place where such code is loaded, for the command line and
for pytest.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.agent import Agent


class NotLoaded(Exception):
    """What a reference names cannot be had; the message says why, and what to write."""


def load_object(reference: str) -> Any:
    """Import `module:object`. What the module prints on the way goes to stderr, so that a report on stdout stays one.

    Raises:
        NotLoaded: there is no such module or object, or importing it failed or left the program.
    """
    module_name, colon, names = reference.partition(":")
    if not colon or not module_name or not names:
        raise NotLoaded("write MODULE:OBJECT, such as app.agents:ops")
    found = _run(f"importing {module_name}", partial(_module, module_name))
    for name in names.split("."):
        owner = found
        try:
            found = _run(f"reading {names}", partial(getattr, owner, name))
        except AttributeError:
            raise NotLoaded(f"{module_name} has no {names}. It has {_names(owner)}") from None
    return found


def load_agents(reference: str) -> Agent | dict[str, Agent]:
    """The agent, or agents by name, that `module:object` names: an `Agent`, a dict of them, or a function that gives either.

    Raises:
        NotLoaded: as `load_object`, and what is named is no agent.
    """
    found = load_object(reference)
    if callable(found) and not isinstance(found, (Agent, dict)):
        made = found
        try:
            found = _run("calling it", lambda: made())
        except AttributeError as error:
            raise _failed("calling it", error) from error
    if isinstance(found, Agent):
        return found
    if isinstance(found, dict) and found and all(isinstance(value, Agent) for value in found.values()):
        return {str(name): agent for name, agent in found.items()}
    raise NotLoaded(
        f"it is {_kind(found)}; it must be a kernel.Agent, a function without arguments that returns one, "
        "or a dict of name to Agent"
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise NotLoaded(f"there is no module {error.name} in the working directory or installed") from None
        raise
    except AttributeError as error:  # of the module's own code: no missing name of ours
        raise _failed(f"importing {name}", error) from error


def _run(doing: str, work: Callable[[], Any]) -> Any:
    """Run code of the user's. Whatever it raises but Ctrl-C and `AttributeError` becomes `NotLoaded`: a module that leaves the
    program, or skips itself as a test, has given no agent."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return work()
    except (KeyboardInterrupt, AttributeError, NotLoaded):
        raise
    except SystemExit as error:
        raise NotLoaded(
            f"{doing} ended the program (sys.exit({error.code!r})): "
            'put what a script does under if __name__ == "__main__"'
        ) from error
    except BaseException as error:
        raise _failed(doing, error) from error


def _failed(doing: str, error: BaseException) -> NotLoaded:
    return NotLoaded(f"{doing} failed: {type(error).__name__}: {error}")


def _kind(found: Any) -> str:
    return "an empty dict" if found == {} and isinstance(found, dict) else type(found).__name__


def _names(found: Any) -> str:
    public = [name for name in sorted(getattr(found, "__dict__", {})) if not name.startswith("_")]
    return ", ".join(name for name in public if isinstance(found.__dict__[name], (Agent, dict))) or "no agent"
