"""Options that several verbs share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def shared(
    *, formats: bool = True, choice: bool = True, verbose: bool = True, forms: Sequence[str] = ("text", "json")
) -> Callable[[F], F]:
    """Options that many verbs have."""

    def add(function: F) -> F:
        if verbose:
            function = click.option("-v", "--verbose", is_flag=True, help="Show everything, cut nothing.")(function)
        if formats:
            function = click.option(
                "--format",
                "form",
                type=click.Choice(forms),
                default="text",
                show_default=True,
                help="Form of the report on standard output.",
            )(function)
        if choice:
            function = click.option("--all", "every", is_flag=True, help="All traces of a file that holds several.")(
                function
            )
            function = click.option(
                "--trace", "trace_id", metavar="ID", help="The trace with this id, or with an id that begins so."
            )(function)
        return function

    return add


def force_option(function: F) -> F:
    """`--force`: replace the file that is to be written where there is one."""
    return click.option("--force", is_flag=True, help="Replace files that are there already.")(function)


def steps_option(function: F) -> F:
    """`--steps`: which steps of a tree are shown."""
    return click.option(
        "--steps", metavar="N-M", callback=_step_ranges, help="Show these steps, such as 3-9, 12- or 1,4-6."
    )(function)


def _step_ranges(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[range, ...] | None:
    if value is None:
        return None
    ranges = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            start = int(first) if first else 1
            stop = int(last) if last else (sys.maxsize - 1 if dash else start)
        except ValueError:
            raise click.BadParameter(f"{part!r} is no step or range; write 3, 3-9, 12- or 1,4-6") from None
        if start < 1 or stop < start:
            raise click.BadParameter(f"{part!r} holds no step; steps count from 1")
        ranges.append(range(start, stop + 1))
    return tuple(ranges)


def going_on(function: F) -> F:
    """Options of the verbs that go on live."""
    for option in (
        click.option("--turn", type=click.IntRange(min=1), help="The turn of a conversation that goes on."),
        click.option("--trace", "trace_id", metavar="ID", help="The trace with this id, where FILE holds several."),
        click.option(
            "--allow",
            multiple=True,
            metavar="TOOL",
            help="Let this tool with side effects run: in a fork, without an approval, or though it was begun before.",
        ),
        click.option("-o", "--output", metavar="OUT", help="Where the new trace goes.  [default: beside FILE]"),
        click.option(
            "--llm", metavar="MODULE:OBJECT", help="The live model.  [default: OPENAI_BASE_URL, OPENAI_API_KEY, MODEL]"
        ),
        click.option("--agent", required=True, metavar="MODULE:OBJECT", help="The agent that goes on."),
        click.option(
            "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the report."
        ),
    ):
        function = option(function)
    return function


def live_side(function: F) -> F:
    """Options that run one side of a recording live."""
    for option in (
        click.option("--times", type=click.IntRange(min=1), help="Run it so many times live, and count the outcomes."),
        click.option("--allow", multiple=True, metavar="TOOL", help="With --live-tools, let this side effect run."),
        click.option(
            "--llm",
            metavar="MODULE:OBJECT",
            help="The model of --live-model.  [default: OPENAI_BASE_URL, OPENAI_API_KEY, MODEL]",
        ),
        click.option("--live-tools", is_flag=True, help="Recorded model replies, live tools without side effects."),
        click.option("--live-model", is_flag=True, help="A live model, recorded tool results; no tool runs."),
    ):
        function = option(function)
    return function


def taken_live(options: dict[str, Any]) -> dict[str, Any] | None:
    """Take the options of `live_side` out; what they ask for, or None where nothing is to be live.

    Raises:
        click.UsageError: options that do not go together.
    """
    model, tools = options.pop("live_model"), options.pop("live_tools")
    chosen = {name: options.pop(name) for name in ("llm", "allow", "times")}
    if model and tools:
        raise click.UsageError("--live-model with --live-tools is a new run: use `replay rerecord`, or `replay fork`.")
    if not (model or tools):
        if given := next((name for name, value in chosen.items() if value), None):
            raise click.UsageError(f"--{given} is of use only with --live-model or --live-tools.")
        return None
    if given := next((name for name in ("otlp", "ui", "output", "steps") if options[name]), None):
        raise click.UsageError(f"--{given} is of a replay, and --live-{'model' if model else 'tools'} is none.")
    if options["form"] == "github":
        raise click.UsageError("--format github is of a replay; a live run gives text or json.")
    common = {name: options[name] for name in ("files", "agent", "form", "trace_id", "every")}
    return {**common, **chosen, "times": chosen["times"] or 1, "live": "model" if model else "tools"}
