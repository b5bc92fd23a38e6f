"""Harmony (gpt-oss): messages with a channel and perhaps a recipient. A message to a tool is a call on any channel; the
analysis channel without a recipient is thinking; the rest is what a person sees."""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel.parse.jsonish import JsonReader
from kernel.parse.model import Found, Unreadable
from kernel.parse.shape import arguments, tool_name
from kernel.parse.source import Source
from kernel.parse.strictjson import behind_repeats
from kernel.parse.thinking import blank

_MESSAGE = re.compile(r"<\|message\|>")
_END = re.compile(r"<\|(?:end|call|return|start|channel)\|>")
_CALL_END = re.compile(r"<\|call\|>")
_RECIPIENT = re.compile(r"\bto=([^\s<|]{1,128})")
_CHANNEL = re.compile(r"<\|channel\|>\s{0,4}(\w{1,20})")
_TOOL_ROLE = re.compile(r"<\|start\|>\s{0,4}(?:functions\.|tool\b|user\b)|\bto=assistant\b")
_WITHOUT_TOKENS = re.compile(
    r"(?:commentary|analysis)\s{1,4}to=functions\.(?P<name>[A-Za-z_][\w.-]{0,127}?)\s{0,4}(?:<\|constrain\|>)?\s{0,4}(?:json|code)?\s{0,4}(?=\{)"
)


class Harmony(NamedTuple):
    """The calls, and the text with headers, analysis and everything after an invented result blanked."""

    calls: list[Found]
    text: str
    thinking: bool


def read_harmony(source: Source) -> Harmony:
    """Read the messages of a reply in order.

    Raises:
        Unreadable: the first message to a tool is cut off or holds no arguments object.
    """
    text = source.text
    if "<|message|>" not in text:
        return _without_tokens(source)
    calls: list[Found] = []
    hidden: list[tuple[int, int]] = []
    thinking = False
    head = 0
    while message := _MESSAGE.search(text, head):
        header, body = text[head : message.start()], message.end()
        if _TOOL_ROLE.search(header):
            hidden.append((head, len(text)))
            return Harmony(calls, blank(text, hidden), thinking)
        end = _END.search(text, body)
        close = end.start() if end else len(text)
        if recipient := _RECIPIENT.search(header):
            try:
                call, close = _call(source, recipient[1], body, head + max(0, header.find("<|")))
            except Unreadable:
                if calls:
                    return Harmony(calls, blank(text, hidden), thinking)
                raise
            calls.append(call)
        channel = _CHANNEL.findall(header)
        analysis = (bool(channel) and channel[-1] == "analysis") or recipient is not None
        thinking |= analysis
        start = head if "<|" in header else message.start()
        token_end = _token_end(text, close)
        hidden += [(start, token_end)] if analysis else [(start, body), (close, token_end)]
        head = token_end
    rest = _RECIPIENT.search(text, head) if _CHANNEL.search(text, head) else None
    if rest and not calls:
        raise _no_content(text, rest)
    return Harmony(calls, blank(text, hidden), thinking)


def _call(source: Source, recipient: str, body: int, start: int) -> tuple[Found, int]:
    text = source.text
    name = tool_name(recipient, source.tool_names)
    at = body + len(text[body:]) - len(text[body:].lstrip()) if text[body : body + 1].isspace() else body
    end = _END.search(text, at)
    if text[at : at + 1] not in ("{", "["):
        if end is None:
            raise Unreadable("cut-off", f"The message to {recipient!r} at offset {body} is not closed.", len(text))
        content = text[at : end.start()].strip()
        if not content:
            return Found(name, {}, "harmony", start, end.end()), end.start()
        if name != "python":
            raise Unreadable("malformed-call", f"Expected a JSON object for {name!r} at offset {at}.", at)
        return Found(name, {"code": content}, "harmony", start, end.end()), end.start()
    value, close, repaired = JsonReader(text, _CALL_END).read(at)
    args, unwrapped = arguments(value, at, text_allowed=False)
    behind = behind_repeats(text, close, value)
    close, repaired = behind, repaired or behind > close
    end = _END.search(text, close)
    stop = end.start() if end else len(text)
    if text[close:stop].strip("} \t\r\n"):
        raise Unreadable(
            "malformed-json", f"The message to {recipient!r} goes on after its arguments at offset {close}.", close
        )
    return Found(name, args, "harmony", start, end.end() if end else close, repaired or unwrapped), stop


def _no_content(text: str, recipient: re.Match[str]) -> Unreadable:
    message = f"The message to {recipient[1]!r} at offset {recipient.start()} has no content."
    return Unreadable("cut-off", message, len(text))


def _token_end(text: str, close: int) -> int:
    for token in ("<|end|>", "<|call|>", "<|return|>"):
        if text.startswith(token, close):
            return close + len(token)
    return close


def _without_tokens(source: Source) -> Harmony:
    """The same message after something stripped its control tokens."""
    found = _WITHOUT_TOKENS.search(source.text)
    if found is None:
        header = _RECIPIENT.search(source.text) if _CHANNEL.search(source.text) else None
        if header:
            raise _no_content(source.text, header)
        return Harmony([], source.text, False)
    value, end, repaired = JsonReader(source.text).read(found.end())
    args, unwrapped = arguments(value, found.end(), text_allowed=False)
    name = tool_name(found["name"], source.tool_names)
    call = Found(name, args, "harmony", found.start(), end, repaired or unwrapped)
    return Harmony([call], source.text, False)
