"""Today's side of a replay passes the masker that the recorded side has passed, before anything of it is compared or shown.

What enters a replay beside the recording is today's agent: its head, the reasons of its finish check, the errors of its own
code. All else is made from these and from the recording, whose secrets are placeholders already.
"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from kernel.errors import ConfigError
from kernel.loop import FinishCheck, FinishContext
from kernel.masking import Masker
from kernel.record import RunHead, describe
from kernel.trace import Scrubber
from replay.play.agents import NotLoaded, load_object
from replay.play.recording import Recording
from replay.play.rules import project_file

SETTING = "[tool.tracefirst] masker"


def masker_for(recording: Recording) -> Masker:
    """The masker that `[tool.tracefirst] masker = "module:object"` names in the nearest pyproject.toml above a recording, else
    the one with the built-in rules.

    Raises:
        ConfigError: the setting names none.
    """
    project = project_file(Path(recording.file).resolve().parent)
    if project is None:
        return Masker.default()
    try:
        text = project.read_text("utf-8")
        table: Any = tomllib.loads(text).get("tool", {}).get("tracefirst", {}) if "tracefirst" in text else {}
    except (OSError, ValueError):  # said by those whose settings it holds
        return Masker.default()
    reference = table.get("masker") if isinstance(table, dict) else None
    if reference is None:
        return Masker.default()
    try:
        found = load_object(reference) if isinstance(reference, str) else None
    except NotLoaded as error:
        raise ConfigError(f"{project}: {SETTING} = {reference!r}: {error}") from None
    if not isinstance(found, Masker):
        raise ConfigError(f'{project}: {SETTING} names a kernel.Masker, such as masker = "shop.tracing:masker"')
    return found


def masked_head(today: RunHead, recorded: RunHead, masker: Masker) -> RunHead:
    """Today's head as it would be recorded. A field in which a recording that was not masked is equal stays as it is."""
    masked = Scrubber(masker).head(today)
    if masked is today:
        return today
    alike = {name: getattr(today, name) for name in _TEXTS if getattr(today, name) == getattr(recorded, name)}
    return msgspec.structs.replace(masked, **alike)


_TEXTS = ("system", "task", "tools", "texts", "notes", "params", "agent")


def masked_check(check: FinishCheck | None, masker: Masker) -> FinishCheck | None:
    """A finish check whose reasons and errors are masked."""
    if check is None:
        return None

    async def masked(answer: str, context: FinishContext) -> Any:
        try:
            verdict = check(answer, context)
            return masker.mask(await verdict if inspect.isawaitable(verdict) else verdict)
        except Exception as error:  # the loop takes the failure of a check for its reason, and so does this
            return masker.mask_text(": ".join(describe(error)))

    return masked
