"""Which conversation a model request belongs to: told by what it repeats, never by when it came.

A request that begins with an earlier request and its reply goes on from there. So does one that begins with an earlier
request and tells the reply in other words. Where a program has rewritten what stands before, the last reply that it repeats
says so, if no other conversation has that reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from kernel.record import Message, Reply, canonical_json
from replay.wire.dialects import Question, fields_of

_START = b""


class Place(Struct, frozen=True, kw_only=True):
    """Where a request belongs. `parent` is the exchange it goes on from, None for the first of a conversation; `messages`
    is the whole history, also what only the server has; `said_at` is the index behind the parent's reply in it. `exact`:
    all before that is as it was; `key` names the whole request."""

    parent: int | None
    messages: tuple[Message, ...]
    said_at: int = 0
    exact: bool = True
    key: bytes = b""


class _Told(NamedTuple):
    """What is known of a reply: the names of the history with it, of itself, and of the request; and that history."""

    end: bytes
    mark: bytes
    request: bytes
    response_id: str
    messages: tuple[Message, ...]


class Lineage:
    """The replies given so far and what led to them. O(messages) for each request."""

    def __init__(self) -> None:
        self._ends: dict[bytes, list[int]] = {}
        self._requests: dict[bytes, list[int]] = {}
        self._replies: dict[bytes, list[int]] = {}
        self._ids: dict[str, int] = {}
        self._extended: set[int] = set()
        self._told: dict[int, _Told] = {}

    def place(self, question: Question) -> Place:
        """Where a request belongs, as far as the replies given so far tell."""
        before: tuple[Message, ...] = ()
        parent = self._ids.get(question.previous) if question.previous else None
        start = _START
        if parent is not None:
            start, before = self._told[parent].end, self._told[parent].messages
        messages = (*before, *question.messages)
        chain = _chain(question.messages, start)
        if parent is not None:
            return Place(parent=parent, messages=messages, said_at=len(before), key=chain[-1])
        for at in range(len(chain) - 1, 0, -1):
            if (known := self._ends.get(chain[at])) is not None:
                return Place(parent=self._freshest(known), messages=messages, said_at=at, key=chain[-1])
        for at in range(len(messages) - 1, 0, -1):
            if messages[at].role == "assistant" and (known := self._requests.get(chain[at])) is not None:
                return Place(
                    parent=self._freshest(known), messages=messages, said_at=at + 1, exact=False, key=chain[-1]
                )
        return self._by_reply(messages, chain[-1])

    def _by_reply(self, messages: tuple[Message, ...], key: bytes) -> Place:
        for at in range(len(messages) - 1, -1, -1):
            if messages[at].role != "assistant":
                continue
            known = self._replies.get(_mark(messages[at]), [])
            waiting = [number for number in known if number not in self._extended]
            if len(waiting) == 1 or len(known) == 1:
                return Place(parent=(waiting or known)[0], messages=messages, said_at=at + 1, exact=False, key=key)
            break
        return Place(parent=None, messages=messages, key=key)

    def _freshest(self, known: Sequence[int]) -> int:
        return next((number for number in known if number not in self._extended), known[0])

    def is_extended(self, number: int) -> bool:
        """Whether a request goes on from this exchange already."""
        return number in self._extended

    def extend(self, place: Place) -> None:
        """Take note that a request goes on from its parent."""
        if place.parent is not None:
            self._extended.add(place.parent)

    def answered(self, number: int, place: Place, reply: Reply) -> None:
        """Take note of a reply."""
        said = Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls)
        mark = _mark(said)
        end = hashlib.blake2b(place.key + mark, digest_size=16).digest()
        self._ends.setdefault(end, []).append(number)
        self._replies.setdefault(mark, []).append(number)
        self._requests.setdefault(place.key, []).append(number)
        if reply.response_id:
            self._ids[reply.response_id] = number
        self._told[number] = _Told(end, mark, place.key, reply.response_id or "", (*place.messages, said))

    def forget(self, number: int) -> None:
        """Drop an exchange of a conversation that is over."""
        told = self._told.pop(number, None)
        self._extended.discard(number)
        if told is None:
            return
        for table, key in ((self._ends, told.end), (self._replies, told.mark), (self._requests, told.request)):
            left = [one for one in table.get(key, ()) if one != number]
            if left:
                table[key] = left
            else:
                table.pop(key, None)
        if self._ids.get(told.response_id) == number:
            del self._ids[told.response_id]


def _mark(message: Message) -> bytes:
    """What of a message tells it from others. Ids of calls do not: frameworks make up their own."""
    calls = [[call.name, _arguments(call.arguments)] for call in message.tool_calls]
    told = canonical_json([message.role, message.content.strip(), calls])
    return hashlib.blake2b(told.encode(), digest_size=16).digest()


def _arguments(text: str) -> object:
    found = fields_of(text)
    return text if found is None else found


def _chain(messages: Sequence[Message], start: bytes) -> list[bytes]:
    """The name of each beginning of a history."""
    chain = [start]
    for message in messages:
        chain.append(hashlib.blake2b(chain[-1] + _mark(message), digest_size=16).digest())
    return chain


def same_message(one: Message, other: Message) -> bool:
    """Whether two messages say the same."""
    return _mark(one) == _mark(other)
