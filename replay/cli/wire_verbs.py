"""Verbs for programs that are not written on the kernel: record them at the wire, run them again, serve what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

WITH_PROGRAM = "against"
"""The verb behind `replay FILE -- COMMAND`; nobody has to write it."""

_PASSED_ON = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.command(WITH_PROGRAM, hidden=True)
@click.argument("files", nargs=-1, required=True, metavar="FILE")
@click.option(
    "--drift", is_flag=True, help="Serve changed requests too, where their conversation tells which they are."
)
@click.option("--max-age", metavar="AGE", help="Refuse a recording that is older, such as 30d or 12h.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop the program after S seconds."
)
@click.option("--trace", "trace_id", metavar="ID", help="The trace with this id, where FILE holds several.")
@click.option("-v", "--verbose", is_flag=True, help="Show every difference.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the report.")
@click.pass_obj
def against(command: Sequence[str] | None, /, files: Sequence[str], **options: Any) -> int:
    """Run COMMAND again on the answers recorded in FILE: `replay FILE -- COMMAND...`.

    No model server is reached, and no key is needed. The verdict is the gateway's: a program that swallows errors can end with 0.

    \b
    replay run.trace.json -- python agent.py "Why is the sky blue?"
    replay run.trace.json --drift --format json -- node agent.js
    """
    if not command:
        raise click.UsageError("no command behind --: write `replay FILE -- COMMAND`.")
    if len(files) > 1:
        raise click.UsageError(f"one FILE goes with a command, and {len(files)} are before --: {', '.join(files)}.")
    from replay.cli.wiring import replay_with_program

    return replay_with_program(file=files[0], command=command, **options)


@click.command(short_help="Run any program and record what it asks of its models.", context_settings=_PASSED_ON)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-o", "--output", "target", required=True, metavar="FILE", help="Where the trace goes: *.trace.json.")
@click.option(
    "--upstream",
    multiple=True,
    metavar="[NAME=]URL",
    help="The model server, or one by name (openai, anthropic, gemini).  [default: what the environment names, else the "
    "provider's own address]",
)
@click.option("--name", default="", metavar="NAME", help="What to call the agent.  [default: the program's name]")
@click.option("--otlp", metavar="URL", help="Send the spans there as well (OTLP/HTTP).")
def record(**options: Any) -> int:
    """Run COMMAND with its model requests led through a gateway on loopback, and write them as one trace.

    Every byte goes through unchanged. OPENAI_BASE_URL, OPENAI_API_BASE, ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL lead the
    program to the gateway; keys go through and are never written.

    \b
    replay record -o run.trace.json -- python agent.py
    replay record -o run.trace.json --upstream http://localhost:8000/v1 -- node agent.js
    replay record -o run.trace.json --upstream openai=https://llm.example/v1 -- ./agent

    \b
    Exit status: the program's own.
    """
    from replay.cli.wiring import record as record_command

    return record_command(**options)


@click.command(short_help="Record the traffic of services, a trace for each conversation.")
@click.option("--listen", default="127.0.0.1:8089", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option(
    "--upstream",
    multiple=True,
    metavar="[NAME=]URL",
    help="The model server, or one by name (openai, anthropic, gemini).  [default: what the environment names, else the "
    "provider's own address]",
)
@click.option(
    "--traces", default="traces", show_default=True, metavar="FOLDER", help="Where the traces go, a folder a day."
)
@click.option("--otlp", metavar="URL", help="Send the spans there as well (OTLP/HTTP).")
@click.option("--name", default="gateway", show_default=True, metavar="NAME", help="What to call the agent.")
@click.option(
    "--idle",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds after which a quiet conversation's trace is closed.",
)
@click.option("--keep-days", type=click.FloatRange(min=0), help="Remove traces that are older.")
@click.option("--keep-bytes", type=click.IntRange(min=0), help="Remove the oldest traces beyond so many bytes.")
def gateway(**options: Any) -> int:
    """Stand between services and their model servers, and record what passes until an interrupt.

    Services ask `http://HOST:PORT/openai/v1`, `/anthropic` or `/gemini`. Every byte goes through unchanged; trouble with the disk or
    the collector delays no call. Secrets are masked before anything is written or sent.

    \b
    replay gateway --upstream openai=https://llm.example/v1 --traces /var/lib/traces
    replay gateway --listen 0.0.0.0:8089 --otlp http://collector:4318 --keep-days 14

    \b
    Exit status: 0 all was recorded; 1 something was not, and was said; 2 it could not start.
    """
    from replay.cli.wiring import gateway as gateway_command

    return gateway_command(**options)


@click.command(short_help="Serve recordings to programs in containers, or to many tests.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option(
    "--drift", is_flag=True, help="Serve changed requests too, where their conversation tells which they are."
)
def serve(**options: Any) -> int:
    """Serve the answers recorded in FILE... until an interrupt; GET /verdict tells how it stands.

    Several files are served side by side, each below its name: `http://host:port/NAME/openai/v1`.

    \b
    replay serve run.trace.json --listen 0.0.0.0:8089
    replay serve fixtures/a.trace.json fixtures/b.trace.json

    \b
    Exit status: that of the worst verdict.
    """
    from replay.cli.wiring import serve_files

    return serve_files(**options)


WIRE_VERBS = (against, record, gateway, serve)
