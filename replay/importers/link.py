"""Model calls of one trace as conversations: a call goes on from the one whose request and reply begin its own.

Ids and the spelling of arguments do not count: instrumentations write them differently in a reply and in the next
request. A request may also hold only what is new, where the server keeps the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from kernel.errors import TraceError
from kernel.record import Message, canonical_json
from kernel.trace import Span
from replay.importers.messages import SourceMessage, read_message
from replay.importers.shapes import Chat, decoded
from replay.importers.spans import ModelCall

_PREVIOUS = (
    "gen_ai.conversation.id",
    "gen_ai.openai.request.previous_response_id",
    "gen_ai.request.previous_response_id",
)


class Heard(Struct, kw_only=True):
    """A model call with its messages read. `lost` says why its content is not whole, or is "". `failed` are calls with the same
    request that failed before it: attempts at the same call."""

    call: ModelCall
    request: list[SourceMessage | None]
    reply: SourceMessage | None
    lost: str = ""
    failed: tuple[ModelCall, ...] = ()


class Chain(Struct, kw_only=True):
    """Calls that share a history. `messages` are all up to the last reply; `at` has the place of each call's reply.
    `kept_by_server` tells that some request held only what was new, `from_history` that a reply was only in the next request."""

    calls: list[Heard]
    messages: list[SourceMessage]
    at: list[int]
    kept_by_server: bool = False
    from_history: bool = False


def without_nested(
    calls: Sequence[ModelCall], spans: Mapping[str, Span], roles: Mapping[str, str], notes: list[str]
) -> list[ModelCall]:
    """One call for each that was traced twice, by a framework and the client below it: the one that tells more, else
    the one nearer to the wire. A call below a tool or an agent of another is a call of its own.
    What was counted once is said in `notes`."""
    by_id = {call.span.span_id: call for call in calls}
    groups: dict[str, list[ModelCall]] = {}
    first_of: dict[str, str] = {}
    alike: dict[str, ModelCall] = {}
    doubled = 0
    for call in calls:
        top, parent, seen = call.span.span_id, call.span.parent_id, {call.span.span_id}
        while (
            parent is not None and parent in spans and parent not in seen and roles.get(parent) not in ("tool", "agent")
        ):
            seen.add(parent)
            top = parent if parent in by_id else top
            parent = spans[parent].parent_id
        if (
            call.messages and call.reply is not None and not call.response_id
        ):  # two tracers at the same call, side by side
            other = alike.setdefault(canonical_json([call.messages, call.reply]), call)
            if other is not call and call.span.start_ns < (other.span.end_ns or 0):
                top = other.span.span_id
                doubled += 1
        if call.response_id:  # the same response is the same call, wherever its spans stand
            top = first_of.setdefault(call.response_id, top)
        groups.setdefault(top, []).append(call)
    if doubled:
        notes.append(f"{doubled} model calls equal another that went on at the same time: each is counted once")
    kept = [_best(by_id[top], group) for top, group in groups.items()]
    order = {call.span.span_id: index for index, call in enumerate(calls)}
    return sorted(kept, key=lambda call: (call.span.start_ns, order[call.span.span_id]))


def _best(top: ModelCall, group: Sequence[ModelCall]) -> ModelCall:
    """`group` is in the order of the file; of equally good ones the last to start is the innermost."""
    whole = [call for call in group if call.messages and call.reply is not None and not call.lost]
    if top in whole and len(whole) > 2:
        return top
    untold = [top] if top in group else group  # where spans are their own ancestors, no top is among its own
    return max(whole or untold, key=lambda call: call.span.start_ns)


def hear(calls: Sequence[ModelCall], file: str) -> list[Heard]:
    """Read the messages of calls; what cannot be read makes one without content, and says why.

    Each request repeats the one before it: a message that is equal to the one in its place there is not read again.
    """
    out: list[Heard] = []
    before: dict[int, tuple[Chat, SourceMessage]] = {}
    for call in calls:
        place = f"span {call.span.span_id}"
        request: list[SourceMessage | None] = []
        try:
            for index, data in enumerate(call.messages or ()):
                known = before.get(index)
                if data is None:
                    request.append(None)
                elif known is not None and known[0] == data:
                    request.append(known[1])
                else:
                    read = read_message(data, file, f"{place}, message {index}")
                    before[index] = (data, read)
                    request.append(read)
            reply = None if call.reply is None else read_message(call.reply, file, f"{place}, reply")
        except TraceError as error:
            out.append(Heard(call=call, request=[], reply=None, lost=str(error).removeprefix(f"{file}: ")))
            continue
        lost = call.lost or ("" if request else _why_empty(call))
        out.append(Heard(call=call, request=request, reply=reply, lost=f"{place}: {lost}" if lost else ""))
    return out


def _why_empty(call: ModelCall) -> str:
    if call.failure is None:
        return "the span holds no messages"
    return f"the call failed with {call.failure[0]}: {call.failure[1]}; its span holds no messages"


def _in_order(calls: Sequence[Heard]) -> list[Heard]:
    """Calls in the order of their histories: of those that begin with the same message, one with a shorter request comes
    first, whatever the clocks of two hosts say. Where requests say nothing, by time, as they came."""
    groups: dict[tuple[str, str], list[int]] = {}
    for at, call in enumerate(calls):
        first = call.request[0] if call.request else None
        if first is not None and not call.lost:
            groups.setdefault((first.message.role, first.message.content), []).append(at)
    out = list(calls)
    for places in groups.values():
        for at, call in zip(places, sorted((calls[at] for at in places), key=lambda c: len(c.request)), strict=True):
            out[at] = call
    return out


def link(calls: Sequence[Heard]) -> tuple[list[Chain], list[Heard]]:
    """Chains in the order of their first call, and the calls whose content is not whole."""
    chains: list[Chain] = []
    lost: list[Heard] = []
    for call in _in_order(calls):
        if call.lost:
            lost.append(call)
            continue
        again = next((chain for chain in reversed(chains) if _is_retry(chain, call)), None)
        if again is not None:
            last = again.calls.pop()
            again.at.pop()
            call = msgspec.structs.replace(call, failed=(*last.failed, last.call))
            _append(again, call, [])
            continue
        before = next((chain for chain in reversed(chains) if _begins_with(chain, call)), None)
        before = before or next((chain for chain in reversed(chains) if _goes_on(chain, call)), None)
        if before is None:
            if None in call.request:
                lost.append(msgspec.structs.replace(call, lost=_hole(call)))
                continue
            before = Chain(calls=[], messages=[], at=[])
            chains.append(before)
        rest = call.request[len(before.messages) :]
        if before.calls and not _begins_with(before, call):
            before.kept_by_server, rest = True, _news(before, call)
        if None in rest:
            lost.append(msgspec.structs.replace(call, lost=_hole(call)))
            continue
        _append(before, call, _with_ids_of(before, call, [message for message in rest if message is not None]))
    return chains, lost


def _append(chain: Chain, call: Heard, news: Sequence[SourceMessage]) -> None:
    chain.messages.extend(news)
    chain.calls.append(call)
    chain.at.append(len(chain.messages))
    if call.reply is not None:
        chain.messages.append(call.reply)


def _is_retry(chain: Chain, call: Heard) -> bool:
    """Whether the last call of a chain failed, and this one asks the same again."""
    last, known = chain.calls[-1], chain.messages
    if last.reply is not None or last.call.failure is None or len(call.request) != len(known):
        return False
    pairs = zip(known, call.request, strict=True)
    return all(other is not None and _alike(one.message, other.message) for one, other in pairs)


def _hole(call: Heard) -> str:
    return f"span {call.call.span.span_id}: message {call.request.index(None)} of the request is missing"


def _goes_on(chain: Chain, call: Heard) -> bool:
    """Whether a request is only what is new after a chain: it answers its calls, or names its last response."""
    last, news = chain.calls[-1], _news(chain, call)
    first = news[0] if news else None
    if last.reply is None or first is None or first.message.role == "system":
        return False
    if first.message.role == "tool":
        return first.message.tool_call_id in [c.id for c in last.reply.message.tool_calls if c.id]
    names = [call.call.span.attributes.get(key) for key in _PREVIOUS]
    return last.call.response_id is not None and last.call.response_id in names


def _news(chain: Chain, call: Heard) -> list[SourceMessage | None]:
    """A request without the system prompt that its chain begins with."""
    first, known = call.request[0], chain.messages[0].message
    is_known = first is not None and known.role == "system" and first.message == known
    return call.request[1:] if is_known else call.request


def _begins_with(chain: Chain, call: Heard) -> bool:
    """Whether a request begins with all messages of a chain, and holds more."""
    known = chain.messages
    if len(call.request) <= len(known):
        return False
    untold = chain.calls[-1].reply is None
    said = call.request[len(known)]
    if untold and (chain.calls[-1].call.failure is not None or said is None or said.message.role != "assistant"):
        return False
    same = all(
        _alike(one.message, None if other is None else other.message)
        for one, other in zip(known, call.request, strict=False)
    )
    if same and untold and said is not None:  # the reply that its own span does not have
        chain.calls[-1].reply = said
        chain.messages.append(said)
        chain.from_history = True
    return same


def _alike(known: Message, given: Message | None) -> bool:
    """Whether a message of a request is the known one. A missing one can only be a reply, which its span tells."""
    if given is None:
        return known.role == "assistant"
    if known == given:
        return True
    if known.role != given.role or known.content.strip() != given.content.strip():
        return False
    return len(known.tool_calls) == len(given.tool_calls) and all(
        one.name == other.name and canonical_arguments(one.arguments) == canonical_arguments(other.arguments)
        for one, other in zip(known.tool_calls, given.tool_calls, strict=True)
    )


def canonical_arguments(arguments: object) -> str:
    """Arguments as canonical JSON, whether they came as text or as an object."""
    return _canonical_text(arguments) if isinstance(arguments, str) else canonical_json(decoded(arguments))


@lru_cache(maxsize=4096)
def _canonical_text(arguments: str) -> str:
    return canonical_json(decoded(arguments) if arguments.strip() else {})


def _with_ids_of(chain: Chain, call: Heard, messages: list[SourceMessage]) -> list[SourceMessage]:
    """The messages behind a known reply, their call ids as that reply has them; an id of no call is left out."""
    if not chain.calls:
        return messages
    reply = chain.messages[-1].message
    again = call.request[len(chain.messages) - 1] if len(call.request) >= len(chain.messages) else None
    theirs = [] if again is None else [c.id for c in again.message.tool_calls]
    ours = [c.id for c in reply.tool_calls]
    names = dict(zip(theirs, ours, strict=False)) if len(set(theirs)) == len(theirs) else {}
    out: list[SourceMessage] = []
    behind = True
    for found in messages:
        message = found.message
        behind = behind and message.role == "tool"
        if behind and message.tool_call_id is not None and message.tool_call_id not in ours:
            known = names.get(message.tool_call_id)
            found = msgspec.structs.replace(found, message=msgspec.structs.replace(message, tool_call_id=known))
        out.append(found)
    return out
