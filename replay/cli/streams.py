"""The process's own streams, where they are closed or broken."""

from __future__ import annotations

import os
import sys


def has_streams() -> bool:
    """Whether there is a standard output. A stream that is closed is opened to nowhere first: else its number would go to
    the next file, and what is written there by others would end up in it."""
    there = sys.stdout is not None
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - until the end
    if not there:
        from replay.cli.output import problem

        problem("standard output is closed, so the report cannot be written: send it to a file, or to /dev/null")
    return there


def drop_output() -> None:
    """Point standard output nowhere, so that the interpreter's own flush at exit has nothing to complain about."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
