"""Verbs for people who keep a folder of fixtures: record them anew, accept drift on purpose, list what is accepted."""

from __future__ import annotations

from typing import Any

import click

from replay.cli.options import shared


@click.command(short_help="Record the same tasks anew, live, in place of the old recordings.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--agent", required=True, metavar="MODULE:OBJECT", help="Today's agent, or agents by name.")
@click.option(
    "--llm", metavar="MODULE:OBJECT", help="The live model.  [default: OPENAI_BASE_URL, OPENAI_API_KEY, MODEL]"
)
@click.option("--allow", multiple=True, metavar="TOOL", help="Let this tool with side effects run; others are denied.")
@shared(choice=False)
def rerecord(**options: Any) -> int:
    """Run the tasks of FILE... again with today's agent on a live model, and put the new recordings in place of the old.

    Tools with side effects are denied unless they are allowed by name. A file is only replaced when its new run ended and
    replays as itself; the difference is printed. Refused in CI.

    \b
    replay rerecord fixtures/order.trace.json --agent app:agent
    replay rerecord fixtures/ --agent app:agent --llm app:model --allow restart

    \b
    Exit status: 0 all were replaced; 1 some were kept; 2 wrong usage; 3 a file is unusable.
    """
    from replay.cli.rerecording import rerecord_files

    return rerecord_files(**options)


@click.command("accept", short_help="Accept on purpose that fixtures drift, by what was changed.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--agent", metavar="MODULE:OBJECT", help="Today's agent, or agents by name.")
@click.option(
    "--cause", "causes", multiple=True, metavar="NAME", help="Only what drifts by this cause, such as prompt."
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for the review.")
@click.option("--yes", is_flag=True, help="Accept what is shown. Refused in CI.")
@click.option("--undo", is_flag=True, help="Take back what is accepted for these fixtures.")
@shared(choice=False, verbose=False)
def accept_(**options: Any) -> int:
    """Show by which changes of the agent FILE... drift, each change once with its text; with --yes, accept them.

    What is accepted is kept beside the fixtures in __replays__/accepted.json, for each fixture and cause. pytest then lets
    just that drift pass; any further change is drift again.

    \b
    replay accept fixtures/ --agent app:agent                  the review
    replay accept fixtures/ --agent app:agent --yes --reason "shorter prompt"
    replay accept fixtures/order.trace.json --undo

    \b
    Exit status: 0 all is as recorded or accepted; 1 not all is; 2 wrong usage; 3 a file is unusable.
    """
    from replay.cli.accepting import accept_files

    return accept_files(**options)


@click.command("accepted", short_help="List what drift is accepted, and since when.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@shared(choice=False, verbose=False)
def accepted_(**options: Any) -> int:
    """List the drift that is accepted for FILE..., since when and why.

    \b
    replay accepted fixtures/
    """
    from replay.cli.accepting import list_accepted

    return list_accepted(**options)


SUITE_VERBS = (rerecord, accept_, accepted_)
