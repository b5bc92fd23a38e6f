"""Standard output and standard error: harmless in every encoding, coloured only where a person looks at a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from replay.cli.status import USAGE
from replay.report import literal

_NARROW = str.maketrans(
    {"…": "...", "→": "->", "└": "`", "├": "|", "│": "|", "⋮": ":", "·": ",", "≠": "!", "✗": "x", "↔": "-"}
)
"""Our own signs for terminals that have none of them."""

_MOST_CHARS = 2000
_LEAST_COLUMNS, _MOST_COLUMNS, _DEFAULT_COLUMNS = 40, 200, 100


def columns() -> int:
    """Width of the report: the terminal's, or `COLUMNS`, or 100."""
    found = shutil.get_terminal_size((_DEFAULT_COLUMNS, 24)).columns
    return max(_LEAST_COLUMNS, min(_MOST_COLUMNS, found))


def colours() -> bool:
    """Whether to colour the report: on a terminal, unless `NO_COLOR` is set or the terminal is dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def write(text: str) -> None:
    """Write to standard output; what its encoding lacks is spelled out."""
    _write(sys.stdout, text)


def lines(report: Iterable[str]) -> None:
    """Write a report line by line."""
    for line in report:
        _write(sys.stdout, line + "\n")


def flush() -> None:
    """Hand on what was written: somebody waits for it, or it is the end. Raises `OutputError`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error) from None


def problem(message: str) -> None:
    """One diagnostic on standard error; foreign text in it is made harmless."""
    if len(message) > _MOST_CHARS:
        message = message[:_MOST_CHARS] + "…"
    _write(sys.stderr, "replay: " + "\n".join(literal(line) for line in message.split("\n")) + "\n")


def progress(done: int, total: int) -> None:
    """How far a long job is, on one line of a terminal's standard error; nothing where the report itself is seen
    to grow, or where nobody looks."""
    if total > 1 and sys.stderr.isatty() and not sys.stdout.isatty():
        _write(sys.stderr, f"\r{done} of {total}" if done < total else "\r\x1b[K")
        sys.stderr.flush()


class OutputError(click.ClickException):
    """The report cannot be written; that says nothing about the file that was read, nor about its verdict."""

    exit_code = USAGE

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror or error}; send it elsewhere")


def _write(stream: TextIO, text: str) -> None:
    try:
        _encode(stream, text)
    except BrokenPipeError:
        if stream is sys.stdout:
            raise
    except OSError as error:  # of standard error nothing can be told
        if stream is sys.stdout:
            raise OutputError(error) from None


def _encode(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        narrow = text.translate(_NARROW)
        stream.write(narrow.encode(encoding, "backslashreplace").decode(encoding))
