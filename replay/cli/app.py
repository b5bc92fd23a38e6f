"""The verbs of `replay` and their options. A first argument that is no verb is a file: replaying is the main job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from kernel.version import VERSION
from replay.cli.options import force_option, going_on, live_side, shared, steps_option, taken_live
from replay.cli.status import USAGE
from replay.cli.streams import drop_output, has_streams
from replay.cli.suite_verbs import SUITE_VERBS
from replay.cli.wire_verbs import WIRE_VERBS, WITH_PROGRAM, against

_INTERRUPTED, _PIPE_CLOSED = 130, 141
_DEFAULT = "run"

EXIT_HELP = """\b
Exit status:
  0  same
  1  drifted or diverged
  2  wrong usage
  3  a file that is unusable, or a trace of which nothing was checked
     (with several files the worst wins: 3, then 1, then 0)"""


class _PipeClosed(Exception):
    """Nobody reads standard output any more. click would exit with 1, which means something else here."""


class Verbs(click.Group):
    """A group whose main command needs no name; its options are shown with the group's help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            args = [WITH_PROGRAM if "--" in args else _DEFAULT, *args]
        if args and args[0] == WITH_PROGRAM and "--" in args:
            at = args.index("--")
            args, ctx.obj = args[:at], args[at + 1 :]
        elif args and args[0] == _DEFAULT:
            self._refuse_of_programs(ctx, args)
        return super().parse_args(ctx, args)

    def _of_programs(self) -> list[click.Option]:
        """The options that only a replay with a program has."""
        known = {param.name for param in self.commands[_DEFAULT].params}
        return [param for param in against.params if isinstance(param, click.Option) and param.name not in known]

    def _refuse_of_programs(self, ctx: click.Context, args: Sequence[str]) -> None:
        for option in self._of_programs():
            name = option.opts[0]
            if any(arg.partition("=")[0] == name for arg in args):
                form = name if option.is_flag else f"{name} {option.metavar}"
                raise click.UsageError(
                    f"{name} is of use only with `-- COMMAND`: write `replay FILE {form} -- COMMAND`.", ctx
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            status = super().invoke(ctx)
            from replay.cli.output import flush

            flush()
        except BrokenPipeError:
            raise _PipeClosed from None
        return status

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["FILE...  |  FILE -- COMMAND  |  VERB ..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[_DEFAULT].format_options(ctx, formatter)
        with formatter.section("With FILE [--drift] [--max-age AGE] [--timeout S] -- COMMAND"):
            formatter.write_dl([record for option in self._of_programs() if (record := option.get_help_record(ctx))])
        self.format_commands(ctx, formatter)


_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Verbs, context_settings=_HELP, no_args_is_help=True, epilog=EXIT_HELP)
@click.version_option(VERSION, prog_name="replay", message="%(prog)s %(version)s")
def cli() -> None:
    """Run recorded agent runs again, strictly, and say where and why they first differ.

    \b
    replay run.trace.json                        rebuilt from the recording alone
    replay run.trace.json --agent app:agent      today's agent on yesterday's answers
    replay run.trace.json -- node agent.js       any program on yesterday's answers
    replay fixtures/ --format json               every *.trace.json of a folder
    zcat run.json.gz | replay -                  from standard input
    replay run.trace.json --agent app:agent --live-model --times 5
                                                 a live model on recorded tools: does it still do the job?
    replay show run.trace.json --step 3          one step in full
    """


@cli.command(_DEFAULT, hidden=True)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--agent",
    metavar="MODULE:OBJECT",
    help="Today's agent: an Agent, a function that returns one, or a dict of name to Agent.",
)
@shared(forms=("text", "json", "github"))
@steps_option
@click.option(
    "--otlp", metavar="URL", help="Send original and replay there (OTLP/HTTP); print the page to compare them."
)
@click.option("--ui", metavar="URL", help="Address of Jaeger's pages.  [default: the host of --otlp, port 16686]")
@click.option("--output", metavar="FILE", help="Write the trace of the replay to this new file.")
@force_option
@click.option(
    "--strict-settings",
    is_flag=True,
    help="With --agent: exit 1 also where a setting changed that the recording does not exercise.",
)
@live_side
def run(**options: Any) -> int:
    """Replay FILE..., the main job."""
    if (live := taken_live(options)) is not None:
        from replay.cli.trying import try_files

        return try_files(**live)
    from replay.cli.replaying import replay_files

    return replay_files(**options)


@cli.command(short_help="Show what a file recorded, without a replay.")
@click.argument("file")
@click.option("--step", type=click.IntRange(min=1), help="This step in full: request, reply, calls, results.")
@steps_option
@click.option("--turn", type=click.IntRange(min=1), help="This turn of a conversation.")
@click.option("--tail", is_flag=True, help="Go on showing steps as they come, until the run ends.")
@shared()
def show(**options: Any) -> int:
    """Show what FILE recorded, without a replay.

    \b
    replay show run.trace.json
    replay show run.trace.json --step 3
    replay show long.trace.json --steps 80-95
    replay show collected.jsonl --trace 5b8efff7 --format json
    replay show run.trace.journal --tail
    """
    from replay.cli.looking import show_file

    return show_file(**options)


@cli.command(short_help="Say whether a file can be replayed, and what is missing.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@shared()
def check(**options: Any) -> int:
    """Say whether FILE can be replayed: what is there, what is missing, what nobody recorded.

    \b
    replay check run.trace.json
    replay check from-another-framework.json --all

    \b
    Exit status: 0 replayable; 1 in part; 3 not, or the file is unusable.
    """
    from replay.cli.looking import check_files

    return check_files(**options)


@cli.command(short_help="Compare two recordings, their steps aligned first.")
@click.argument("a")
@click.argument("b")
@shared(choice=False)
@click.option("--trace-a", metavar="ID", help="Which trace of A, where it holds several.")
@click.option("--trace-b", metavar="ID", help="Which trace of B, where it holds several.")
def diff(**options: Any) -> int:
    """Compare the recordings A and B; their steps are aligned first.

    \b
    replay diff before.trace.json after.trace.json
    replay diff all.jsonl all.jsonl --trace-a 5b8e --trace-b c620

    \b
    Exit status: 0 the same; 1 different; 3 a file is unusable.
    """
    from replay.cli.looking import diff_files

    return diff_files(**options)


@cli.command(short_help="Count stop reasons, steps, tokens, cost and tools.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@shared(choice=False, verbose=False)
def stats(**options: Any) -> int:
    """Count over all traces of FILE...: stop reasons, steps, tokens, cost, tools.

    \b
    replay stats traces/
    replay stats collected.jsonl --format json
    """
    from replay.cli.looking import stats_files

    return stats_files(**options)


@cli.command(short_help="Look for secrets that were not masked.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@shared(choice=False, verbose=False)
def scan(**options: Any) -> int:
    """Look for secrets in FILE... that were not masked. None is printed.

    \b
    replay scan fixtures/
    replay scan run.trace.json notes.txt

    \b
    Exit status: 0 none found; 1 some found; 3 a file cannot be read.
    """
    from replay.cli.looking import scan_files

    return scan_files(**options)


@cli.command("import", short_help="Turn traces of another framework into recordings.")
@click.argument("file")
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="A file *.trace.json, or a folder for several traces."
)
@force_option
@click.option("--no-mask", is_flag=True, help="Keep secrets in chat messages as they are.")
@shared(formats=False, verbose=False)
def import_(**options: Any) -> int:
    """Turn FILE of another framework into recordings: chat messages (OpenAI message lists, SWE-agent trajectories) or
    spans.

    \b
    replay import chat.json -o run.trace.json
    replay import spans.jsonl --all -o traces/
    replay import chat.json -o run.trace.json --force
    """
    from replay.cli.importing import import_traces

    return import_traces(**options)


@cli.command(short_help="Play a recording up to a step, change something, go on live.")
@click.argument("file")
@click.option("--step", required=True, type=click.IntRange(min=1), help="The first step that is live.")
@going_on
@click.option("--system", metavar="TEXT", help="Another system prompt; @FILE reads it from a file.")
@click.option("--task", metavar="TEXT", help="Another task; @FILE reads it from a file.")
@click.option(
    "--result",
    "results",
    multiple=True,
    metavar="STEP[.POSITION]=JSON",
    help="Another result for a recorded call; text that is no JSON is taken as it is.",
)
def fork(**options: Any) -> int:
    """Play FILE up to a step, change something, and go on live. The original stays as it is.

    \b
    replay fork run.trace.json --step 3 --agent app:agent
    replay fork run.trace.json --step 3 --agent app:agent --result 2='"pool is fine"'
    replay fork run.trace.json --step 1 --agent app:agent --system @new-prompt.txt
    replay fork chat.trace.json --turn 2 --step 1 --agent app:agent

    \b
    Exit status: 0 the new run finished; 1 it was stopped, or a side effect was not run; 2 it cannot be forked so, and
    nothing was live; 3 FILE is unusable.
    """
    from replay.cli.going_on import fork_file

    return fork_file(**options)


@cli.command(short_help="Go on with a run that was cut short.")
@click.argument("file")
@going_on
def resume(**options: Any) -> int:
    """Go on with a run that was cut short, from where its trace or journal ends.

    What was done is not done again. A side effect that was begun and not ended is not run unless you --allow its tool.
    Approvals are asked by the agent's own confirm, else on this terminal.

    \b
    replay resume run.trace.journal --agent app:agent
    replay resume run.trace.journal --agent app:agent --allow pay

    \b
    Exit status: 0 the run finished; 1 it was stopped, or a side effect was not run; 2 it cannot be resumed, and nothing
    was live; 3 FILE is unusable.
    """
    from replay.cli.going_on import resume_file

    return resume_file(**options)


for _verb in (*SUITE_VERBS, *WIRE_VERBS):
    cli.add_command(_verb)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command and exit with its status. No bad input ends in a traceback."""
    if not has_streams():
        sys.exit(USAGE)
    try:
        status = cli.main(args=args, prog_name="replay", standalone_mode=False)
    except click.ClickException as error:
        status = _refuse(error)
        if type(error).__name__ == "OutputError":
            drop_output()
    except (click.Abort, KeyboardInterrupt):
        status = _INTERRUPTED
    except _PipeClosed:
        status = _PIPE_CLOSED
        drop_output()
    except Exception as error:
        from kernel.errors import TracefirstError

        if not isinstance(error, (TracefirstError, OSError)):
            raise
        from replay.cli.output import problem

        # What reads is guarded: an error of the system that comes this far is one of writing.
        problem(str(error) if isinstance(error, TracefirstError) else f"the output cannot be written: {error}")
        status = USAGE
        drop_output()
    sys.exit(status if isinstance(status, int) else 0)


def _refuse(error: click.ClickException) -> int:
    from replay.cli.output import problem

    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help() if error.ctx is not None else "", err=True)
        return USAGE
    where = getattr(error, "ctx", None)
    path = where.command_path if where is not None else ""
    for hidden in (_DEFAULT, WITH_PROGRAM):
        path = path.removesuffix(f" {hidden}")
    message = error.format_message().rstrip()
    problem(f"{message} See `{path} --help`." if path and message.endswith(".") else message)
    return error.exit_code
