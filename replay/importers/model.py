"""What an importer finds in a foreign source, before it is a recording: a dialogue of turns, each of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kernel.record import Attempt, Mark, Message, ModelParams, Protocol, Reply, ToolSpec


class Result(Struct, frozen=True, kw_only=True):
    """What a tool gave back, as the source has it; `error` is the type of a failure the source names as one, and
    `value` then what the model was shown of it."""

    value: Any
    error: str = ""


class Round(Struct, frozen=True, kw_only=True):
    """One reply of the model and a result for each of its calls, in call order; None where the source has none. `attempts`
    failed before it.

    `place` is where the reply stands in the source; `mark` and `call_marks` are ids and times there, where it has them. What
    the source did with the reply is in `reply.reading`, where that does not follow from its structured calls.
    """

    reply: Reply | None
    attempts: tuple[Attempt, ...] = ()
    results: tuple[Result | None, ...] = ()
    place: str = ""
    mark: Mark | None = None
    call_marks: tuple[Mark | None, ...] = ()


class Turn(Struct, frozen=True, kw_only=True):
    """One user message and the rounds that follow it; none where the next user message came before any reply."""

    task: str
    rounds: tuple[Round, ...]
    place: str = ""


class Dialogue(Struct, frozen=True, kw_only=True):
    """A whole source: what is known of the agent, the turns, and the messages as the source spells them.

    `sent` are all messages in order, each with its place; an empty field of a message is one that the source lacks.
    `tools` is None where the source does not list its tools. `absent` names what else it lacks.
    """

    agent: str
    source: str
    turns: tuple[Turn, ...]
    sent: Sequence[tuple[str, Message]] = ()
    system: str = ""
    protocol: Protocol = "tools"
    provider: str = "custom"
    params: ModelParams = ModelParams()
    tools: tuple[ToolSpec, ...] | None = None
    absent: tuple[str, ...] = ()
    texts: dict[str, str] = {}
