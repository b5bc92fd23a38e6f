"""`--format github`: what is not as recorded, as workflow commands that GitHub shows beside the changed files."""

from __future__ import annotations

import os

from replay.play import ReplayResult
from replay.report import literal

_TITLES = {"drifted": "warning"}


def annotation(result: ReplayResult) -> str | None:
    """The annotation of one replay, None where it is as recorded."""
    if result.verdict == "same":
        return None
    recording = result.recording
    message = f"{result}; next: replay show {recording.file}"
    title = f"{result.verdict.replace('_', ' ')}: {recording.agent or 'agent'}"
    return _command(_TITLES.get(result.verdict, "error"), recording.file, title, message)


def error_annotation(file: str, message: str) -> str:
    """The annotation of a file that cannot be used."""
    return _command("error", file, "unusable", message)


def _command(level: str, file: str, title: str, message: str) -> str:
    return f"::{level} file={_property(os.path.normpath(file))},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    lines = [literal(line) for line in text.split("\n")]
    return "\n".join(lines).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
