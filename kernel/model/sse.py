"""Server-sent events, and a streamed chat completion put together again.

The format is that of the HTML standard, section "Server-sent events". `EventParser` turns bytes, split anywhere, into
events; `StreamedCompletion` turns events into the body the same server would have sent unstreamed, so that one reader
serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernel.model.openai_reply import Malformed, parse_body, provider_error, split_content
from kernel.record import canonical_json, compact_json, parse_json


class Event(NamedTuple):
    """One event: its type (`""` where none is given) and its data, lines joined by a line feed."""

    type: str
    data: str


class EventParser:
    """Bytes in, events out. Lines end in LF, CRLF or CR; comments and unknown fields are skipped."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of a line whose end has not come yet
        self._after_cr = False
        self._at_start = True
        self._type = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        events: list[Event] = []
        for piece in chunk.splitlines(keepends=True):  # of bytes: splits at CR, LF and CRLF only
            line = piece.rstrip(b"\r\n")
            self._partial.append(line)
            if len(line) < len(piece):
                self._end_line(events)
        return events

    def close(self) -> list[Event]:
        """The event that the end of the body completes: some servers leave out the last empty line."""
        events: list[Event] = []
        if self._partial:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _end_line(self, events: list[Event]) -> None:
        line = b"".join(self._partial).decode("utf-8", "replace")
        self._partial.clear()
        if self._at_start:
            line = line.removeprefix("\ufeff")
            self._at_start = False
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(self._type, "\n".join(self._data)))
        self._type = ""
        self._data = []


class CutStream(Exception):
    """The stream ended before the answer did."""


@dataclass(slots=True, kw_only=True)
class _Call:
    index: int | None
    id: Any = None
    name: Any = None
    pieces: list[str] = field(default_factory=list)

    def is_continued_by(self, call_id: Any, name: Any, arguments: str) -> bool:
        """Whether a delta goes on with this call. Servers give two calls one index, and may leave the ids out."""
        if call_id and self.id and call_id != self.id:
            return False
        if name and self.name and name != self.name:
            return False
        return not (arguments.lstrip().startswith("{") and self._has_whole_arguments())

    def is_repeated_by(self, call_id: Any, name: Any, arguments: str) -> bool:
        """Whether a delta says this whole call again, as gateways do at the end: an equal id means the same call.

        Raises:
            Malformed: the id is the same, and the call is another one.
        """
        if not call_id or call_id != self.id:
            return False
        if name and self.name and name != self.name:
            raise Malformed(f"the call id {call_id!r} names two calls, of {self.name!r} and of {name!r}")
        if not (arguments.lstrip().startswith("{") and self._has_whole_arguments()):
            return False
        if not _same_json(arguments, "".join(self.pieces)):
            raise Malformed(f"the call id {call_id!r} names two calls of {self.name!r}, with different arguments")
        return True

    def _has_whole_arguments(self) -> bool:
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False  # most deltas end here: the whole text is only parsed where it can be an object
        try:
            parse_json("".join(self.pieces))
        except ValueError:
            return False
        return True


def _same_json(one: str, other: str) -> bool:
    try:
        return canonical_json(parse_json(one)) == canonical_json(parse_json(other))
    except ValueError:
        return one == other


def _once(calls: list[_Call]) -> list[_Call]:
    """The calls without those that come twice, under two indexes but one id."""
    kept: list[_Call] = []
    for call in calls:
        twins = (one for one in kept if call.id and one.id == call.id and one.name == call.name)
        if not any(_same_json("".join(one.pieces), "".join(call.pieces)) for one in twins):
            kept.append(call)
    return kept


class StreamedCompletion:
    """Collects the bytes of one streamed chat completion.

    `done` is set by the `[DONE]` mark; nothing after it counts. `error` is the error object the server sent, if it did.
    """

    def __init__(self) -> None:
        self.done = False
        self.error: dict[str, Any] | None = None
        self._parser = EventParser()
        self._chunks = 0
        self._top: dict[str, Any] = {}
        self._finish_reason: str | None = None
        self._words: dict[str, list[str]] = {"content": [], "reasoning_content": [], "reasoning": [], "refusal": []}
        self._thinking: list[str] = []
        self._calls: list[_Call] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises `Malformed` for an event that is not a chunk."""
        for event in self._parser.feed(data):
            self._add(event)

    def _add(self, event: Event) -> None:
        if self.done or self.error is not None:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        chunk = parse_body(event.data.encode("utf-8", "surrogatepass"))
        self.error = provider_error(chunk) or (chunk if event.type == "error" else None)
        if self.error is not None:
            return
        self._chunks += 1
        self._take(chunk)

    def body(self) -> dict[str, Any]:
        """The unstreamed body of all that came in; to be called at the end.

        A stream is whole once it gave a finish reason, and `[DONE]` or the usage, which was asked for and comes last.

        Raises:
            CutStream: the stream is not whole.
            Malformed: there was no chunk at all, or a call that cannot be told from the one before it.
        """
        try:
            for event in self._parser.close():
                self._add(event)
        except Malformed as error:
            raise CutStream(f"the stream ended inside a chunk: {error}") from None
        if not self._chunks and not self.error:
            raise Malformed("the stream holds no chunk of a chat completion")
        whole = self._finish_reason and (self.done or "usage" in self._top)
        if not whole and not self.error:
            missing = "[DONE]" if self._finish_reason else "a finish_reason"
            raise CutStream(f"the stream ended without {missing}, after {self._chunks} chunks")
        message: dict[str, Any] = {name: "".join(words) for name, words in self._words.items()}
        message["reasoning"] = message["reasoning"] or "".join(self._thinking)
        calls = [] if self.error else self._calls
        if all(call.index is not None for call in calls):
            calls = sorted(calls, key=lambda call: call.index or 0)
        message["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": "".join(call.pieces)}} for call in _once(calls)
        ]
        return {**self._top, "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}]}

    def _take(self, chunk: dict[str, Any]) -> None:
        groq = chunk.get("x_groq")
        usage = chunk.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None)
        for name, value in (("id", chunk.get("id")), ("model", chunk.get("model")), ("usage", usage)):
            if value:
                self._top[name] = value
        choices = chunk.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise Malformed("/choices: not a list")
        for choice in choices or ():
            if not isinstance(choice, dict):
                raise Malformed("/choices/0: not an object")
            if choice.get("index", 0) in (0, None):
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish_reason = reason
        delta = choice.get("delta")
        if delta is None:
            return
        if not isinstance(delta, dict):
            raise Malformed("/choices/0/delta: not an object")
        text, thinking, refused = split_content(delta.get("content"))
        self._words["content"].append(text)
        self._thinking.append(thinking)
        self._words["refusal"].append(refused)
        for name in ("reasoning_content", "reasoning", "refusal"):
            words = delta.get(name)
            if isinstance(words, str):
                self._words[name].append(words)
        calls = delta.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise Malformed("/choices/0/delta/tool_calls: not a list")
        for call in calls or ():
            self._take_call(call)

    def _take_call(self, delta: Any) -> None:
        function = delta.get("function", {}) if isinstance(delta, dict) else None
        if not isinstance(function, dict):
            raise Malformed("/choices/0/delta/tool_calls/0/function: not an object")
        index = delta.get("index") if type(delta.get("index")) is int else None
        call_id, name, arguments = delta.get("id"), function.get("name"), function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = compact_json(arguments)
        call = self._open_call(index, call_id)
        if call is not None and call.is_repeated_by(call_id, name, arguments):
            return
        if call is None or not call.is_continued_by(call_id, name, arguments):
            if call is not None and not name:
                raise Malformed(f"a second tool call began after the call of {call.name!r}, without a name")
            call = _Call(index=index)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)

    def _open_call(self, index: int | None, call_id: Any) -> _Call | None:
        """The call a delta belongs to, as far as index, else id, else order can tell; the newest of several."""
        for call in reversed(self._calls):
            if index is not None and call.index is not None:
                if call.index == index:
                    return call
            elif not call_id or not call.id or call.id == call_id:
                return call
        return None
