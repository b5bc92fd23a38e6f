"""Trajectories whose actions stand in the text of the replies: SWE-agent without function calling, and mini-swe-agent.

What ran comes from each format's own rule: SWE-agent's `action` field, mini-swe-agent's one block of shell code. The user
message behind a reply is then the observation, or the complaint about its form. The kernel's reading is made beside it; where
they differ, the source's stands and the difference is named. System prompt and observation become texts of the run, so that its
requests are the source's, character for character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kernel.parse import ParsedCall, parse
from kernel.record import Message, Reading, Reply, ToolCall, ToolSpec, Usage, compact_json, to_jsonable
from replay.importers.messages import SourceMessage, refuse
from replay.importers.model import Dialogue, Result, Round, Turn

_SHELL = ("bash",)
_MARK = "```mswea_bash_command"
_BLOCKS = (
    re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL),
    re.compile(r"```mswea_bash_command\s*\n(.*?)\n```", re.DOTALL),
)
"""mini-swe-agent runs the one block of shell code of a reply; none and several are refused."""


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
    texts = {"system.text": _literal(system), "observation": "{text}"}
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
    """A reply, what the source ran of it, and what it said then: an observation, or a complaint."""
    reply = msgspec.structs.replace(_reply(data), text=spoken.message.content, refusal=spoken.refusal)
    answer = behind.message.content if behind is not None else None
    command = _command(data, reply.text)
    parsed = parse(reply.text, finish_reason=reply.finish_reason, tool_names=_SHELL)
    kernel = _kernel_would(parsed.calls)
    if command is None:
        if answer is None:
            return Round(reply=reply, place=spoken.place)
        reading = Reading(complaint=answer, kernel=kernel if parsed.calls else "")
        return Round(reply=msgspec.structs.replace(reply, reading=reading), place=spoken.place)
    alike = len(parsed.calls) == 1 and command.strip() in [str(v).strip() for v in parsed.calls[0].args.values()]
    name, args = (parsed.calls[0].name, parsed.calls[0].args) if alike else (_SHELL[0], {"command": command})
    call = ToolCall(name=name, arguments=compact_json(to_jsonable(args)))
    reading = Reading(calls=(call,), kernel="" if alike else kernel)
    results = (None if answer is None else Result(value=answer),)
    return Round(reply=msgspec.structs.replace(reply, reading=reading), results=results, place=spoken.place)


def _command(data: Any, text: str) -> str | None:
    """The command that the source ran, by its own rule; None where it took the reply for malformed."""
    if isinstance(data, dict) and isinstance(data.get("action"), str):
        return data["action"] if data["action"].strip() else None
    blocks = [block for pattern in _BLOCKS for block in pattern.findall(text)]
    return blocks[0] if len(blocks) == 1 else None


def _kernel_would(calls: Sequence[ParsedCall]) -> str:
    """What the kernel would have done with the reply, in a few words."""
    if not calls:
        return "refuse it: it reads no action"
    return "run " + ", ".join(f"{call.name}({compact_json(to_jsonable(call.args))})" for call in calls)


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
    readings = [round.reply.reading for turn in turns for round in turn.rounds if round.reply is not None]
    return [call.name for reading in readings if reading is not None for call in reading.calls]
