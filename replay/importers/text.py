"""Trajectories whose actions stand in the text of the replies: SWE-agent without function calling, and mini-swe-agent.

The kernel reads each reply as it would read its own. The user message behind a reply is then the observation, or the
complaint about its form. System prompt, observation and complaint become texts of the run, so that its requests are the
source's, character for character.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kernel.parse import parse
from kernel.record import Message, Reply, ToolSpec, Usage
from replay.importers.messages import SourceMessage, refuse
from replay.importers.model import Dialogue, Result, Round, Turn

_SHELL = ("bash",)
_MARK = "```mswea_bash_command"


def is_text_protocol(document: dict[str, Any], listed: Sequence[Any], messages: Sequence[SourceMessage]) -> bool:
    """Whether a trajectory is one of those: by its own marks, never by what a reply looks like."""
    if any(found.message.role == "tool" or found.message.tool_calls for found in messages):
        return False
    if str(document.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    spoken = [found.message.content for found in messages if found.message.role == "assistant"]
    return any(isinstance(m, dict) and isinstance(m.get("action"), str) for m in listed) or (
        bool(spoken) and _MARK in spoken[0]
    )


def read_text(dialogue: Dialogue, listed: Sequence[Any], messages: Sequence[SourceMessage], file: str) -> Dialogue:
    """`dialogue` with the turns of a text-protocol trajectory.

    Raises:
        TraceError: the messages do not alternate, or no reply holds an action that can be read.
    """
    at = 1 if messages and messages[0].message.role == "system" else 0
    system = messages[0].message.content if at else ""
    turns: list[Turn] = []
    while at < len(messages) and messages[at].message.role == "user":
        asked = messages[at]
        rounds: list[Round] = []
        at += 1
        while at < len(messages) and messages[at].message.role == "assistant":
            behind = messages[at + 1] if at + 1 < len(messages) else None
            if behind is not None and behind.message.role != "user":
                raise refuse(file, behind.place, "no observation stands behind the reply", "Put a user message there")
            rounds.append(_round(messages[at], listed[at], behind))
            at += 2
        turns.append(Turn(task=asked.message.content, rounds=tuple(rounds), place=asked.place))
    if at < len(messages):
        found = messages[at]
        raise refuse(
            file, found.place, f"role {found.message.role!r} has no place here", "A task, then replies and observations"
        )
    names = [name for name in dict.fromkeys(_names(turns)) if name]
    if not names:
        raise refuse(
            file, messages[0].place, "no reply holds an action that can be read", "Only text with actions is imported"
        )
    complaint = next((r.complaint for turn in turns for r in turn.rounds if r.complaint is not None), None)
    texts = {"system.text": _literal(system), "observation": "{text}"}
    if complaint is not None:
        texts["fault.text"] = _literal(complaint)
    return msgspec.structs.replace(
        dialogue,
        protocol="text",
        turns=tuple(turns),
        system="",
        sent=[(found.place, found.message) for found in messages if found.message != Message(role="system")],
        tools=tuple(ToolSpec(name=name, parameters={"type": "object"}) for name in names),
        texts=texts,
        absent=tuple(name for name in dialogue.absent if name not in _told(turns)) + _untold(system),
    )


def _told(turns: Sequence[Turn]) -> set[str]:
    """What the provider's answers tell beside the text."""
    replies = [round.reply for turn in turns for round in turn.rounds if round.reply is not None]
    told = {"usage"} if any(reply.usage.input_tokens is not None for reply in replies) else set()
    return told | ({"finish reasons"} if any(reply.finish_reason is not None for reply in replies) else set())


def _untold(system: str) -> tuple[str, ...]:
    return ("tool schemas",) if system else ("tool schemas", "system prompt")


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _round(spoken: SourceMessage, data: Any, behind: SourceMessage | None) -> Round:
    """A reply and what the source said to it: an observation where it holds an action, else a complaint."""
    reply = msgspec.structs.replace(_reply(data), text=spoken.message.content, refusal=spoken.refusal)
    parsed = parse(reply.text, finish_reason=reply.finish_reason, tool_names=_SHELL)
    answer = behind.message.content if behind is not None else None
    if not parsed.calls:
        return Round(reply=reply, place=spoken.place, complaint=answer)
    ran = data.get("action") if isinstance(data, dict) else None
    if isinstance(ran, str) and ran.strip() not in [str(value).strip() for value in parsed.calls[0].args.values()]:
        return Round(reply=reply, place=spoken.place)
    return Round(reply=reply, results=(None if answer is None else Result(value=answer),), place=spoken.place)


def _reply(data: Any) -> Reply:
    """What mini-swe-agent keeps of the provider's answer beside the text."""
    extra = data.get("extra") if isinstance(data, dict) else None
    response = extra.get("response") if isinstance(extra, dict) else None
    if not isinstance(response, dict):
        return Reply()
    usage = response.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    reason, model, response_id = choice.get("finish_reason"), response.get("model"), response.get("id")
    return Reply(
        finish_reason=reason if isinstance(reason, str) else None,
        usage=Usage(
            input_tokens=_count(counts.get("prompt_tokens")), output_tokens=_count(counts.get("completion_tokens"))
        ),
        model=model if isinstance(model, str) else None,
        response_id=response_id if isinstance(response_id, str) else None,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _names(turns: Sequence[Turn]) -> list[str]:
    replies = [round.reply.text for turn in turns for round in turn.rounds if round.reply is not None and round.results]
    return [parse(text, tool_names=_SHELL).calls[0].name for text in replies]
