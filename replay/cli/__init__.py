"""The command `replay`. Nothing heavy is imported before a verb needs it."""

from replay.cli.app import main

__all__ = ["main"]
