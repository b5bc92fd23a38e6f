"""A message list as turns: each user message starts one, each assistant message is a round with its results.

Results are paired with calls within the group of tool messages right behind the assistant message, never across the
list: providers use ids again. By id where the ids of the group are all different, by order else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from kernel.record import Message, Reply
from replay.importers.messages import SourceMessage, refuse
from replay.importers.model import Result, Round, Turn

UNANSWERED = "reply to the last user message"
MOVED = "order of tool messages"


class Reading(Struct, kw_only=True):
    """A message list, read: system prompt, turns, the messages in the order in which a run sends them, its gaps."""

    system: str = ""
    turns: list[Turn]
    sent: list[tuple[str, Message]]
    absent: list[str]


def read_turns(messages: Sequence[SourceMessage], file: str) -> Reading:
    """Read a message list.

    Raises:
        TraceError: the list is not a dialogue with a model; the message names file, place and remedy.
    """
    read = Reading(turns=[], sent=[], absent=[])
    at = 0
    while at < len(messages) and messages[at].message.role == "system":
        at += 1
    read.system = "\n\n".join(found.message.content for found in messages[:at] if found.message.content)
    if at > 1:
        read.absent.append(f"the bounds of {at} system messages: they are sent as one")
    if read.system:
        read.sent.append((messages[0].place, msgspec.structs.replace(messages[0].message, content=read.system)))
    else:
        read.absent.append("system prompt")
    while at + 1 < len(messages) and _is_greeting(messages[at]):
        read.absent.append(f"{messages[at].place}: what the assistant said before the task")
        at += 1
    while at < len(messages):
        first = messages[at]
        if first.message.role == "assistant" and read.turns:
            read.absent.append(f"everything from {first.place} on: two answers of the assistant follow each other")
            break
        if first.message.role == "system":
            read.absent.append(f"the role of {first.place}: a system message in the middle is sent as the user's")
            first = msgspec.structs.replace(first, message=msgspec.structs.replace(first.message, role="user"))
        if first.message.role != "user":
            raise _unexpected(first, file)
        read.sent.append((first.place, first.message))
        rounds, at = _rounds(messages, at + 1, file, read)
        if rounds or at < len(messages):
            read.turns.append(Turn(task=first.message.content, rounds=rounds, place=first.place))
        else:
            read.absent.append(UNANSWERED)
    return read


def _is_greeting(found: SourceMessage) -> bool:
    return found.message.role == "assistant" and not found.message.tool_calls


def _rounds(messages: Sequence[SourceMessage], at: int, file: str, read: Reading) -> tuple[tuple[Round, ...], int]:
    """The rounds from `at` up to an answer or the next user message, and where they end."""
    rounds: list[Round] = []
    while at < len(messages) and messages[at].message.role == "assistant":
        spoken = messages[at]
        end = at + 1
        while end < len(messages) and messages[end].message.role == "tool":
            end += 1
        results, ordered, moved = _pair(spoken, messages[at + 1 : end], file, is_last=end == len(messages))
        if moved and MOVED not in read.absent:
            read.absent.append(MOVED)
        rounds.append(Round(reply=_reply(spoken), results=results, place=spoken.place))
        read.sent.append((spoken.place, spoken.message))
        read.sent.extend((m.place, m.message) for m in ordered)
        at = end
        if not spoken.message.tool_calls:
            break
    return tuple(rounds), at


def _reply(spoken: SourceMessage) -> Reply:
    message = spoken.message
    return Reply(
        text=message.content, tool_calls=message.tool_calls, reasoning=message.reasoning, refusal=spoken.refusal
    )


def _pair(
    spoken: SourceMessage, group: Sequence[SourceMessage], file: str, *, is_last: bool
) -> tuple[tuple[Result | None, ...], list[SourceMessage], bool]:
    """A result for each call, the tool messages in call order, and whether that is another order than the source's."""
    calls = spoken.message.tool_calls
    ids = [call.id for call in calls]
    given = [m.message.tool_call_id for m in group]
    for position, found in enumerate(group):
        given_id = found.message.tool_call_id
        if not calls or position >= len(calls) or (given_id and all(ids) and given_id not in ids):
            what = (
                f"the tool result{f' for call {given_id!r:.60}' if given_id else ''} answers no call of {spoken.place}"
            )
            raise refuse(file, found.place, what, "Each result must stand right behind the message that made its call")
    by_id = len(set(ids)) == len(ids) and len(set(given)) == len(given) and all(ids) and all(given)
    if by_id:
        ordered = sorted(group, key=lambda m: ids.index(m.message.tool_call_id or ""))
        found_by_id = {m.message.tool_call_id: m for m in group}
        paired = [found_by_id.get(call_id) for call_id in ids]
    else:
        ordered = list(group)
        paired = [*group, *([None] * (len(calls) - len(group)))]
    results: list[Result | None] = []
    for call, answer in zip(calls, paired, strict=True):
        if answer is None and not is_last:
            what = f"call {call.name!r:.60} ({call.id or 'without id'}) has no result"
            raise refuse(
                file, spoken.place, what, "Only the last calls of a trajectory may be without one; add its tool message"
            )
        if answer is not None and answer.message.name not in (None, "", call.name):
            what = f"the result is of {answer.message.name!r:.60}, the call of {call.name!r:.60}"
            raise refuse(
                file, answer.place, what, "Put the results in the order of the calls, or give each its tool_call_id"
            )
        results.append(None if answer is None else Result(value=answer.message.content))
    return tuple(results), ordered, ordered != list(group)


def _unexpected(found: SourceMessage, file: str) -> Exception:
    role = found.message.role
    if role == "tool":
        what, remedy = "the tool result answers no call", "Put it right behind the assistant message that made its call"
    else:
        what = "the assistant speaks before any user message"
        remedy = "A run starts with a task: remove this message or add one"
    return refuse(file, found.place, what, remedy)
