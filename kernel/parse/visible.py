"""What a person sees of a reply: without control tokens at its edges, and without labels around a thought."""

from __future__ import annotations

import re

_TOKEN = (
    r"<\|(?:im_start|im_end|eot_id|eom_id|end|return|call|start|channel|message|endoftext|end_of_text|begin_of_text"
    r"|assistant|user|observation|tool_calls?|tool_call_start|tool_call_end|python_tag|start_header_id|end_header_id"
    r"|tool_calls_section_begin|tool_calls_section_end|START_RESPONSE|END_RESPONSE|START_ACTION)\|>"
    r"|</?s>|<eos>|<bos>|<end_of_turn>|<start_of_turn>(?:model)?|<turn\|>|<[|｜][\w▁]{1,40}[|｜]>|\[/?TOOL_CALLS\]"
)
_LEFT = re.compile(rf"\A(?:\s|{_TOKEN}|assistant\s{{0,4}}\n)*+", re.IGNORECASE)
_WRAPPER = re.compile(
    rf"(?:{_TOKEN}|</?(?:\w{{1,12}}:)?\w{{0,20}}(?:tool_?calls?|function_?calls?|function|DSML)[^<>\n]{{0,40}}>|(?:```|~~~)[ \t]{{0,8}}\w{{0,20}})\Z",
    re.IGNORECASE,
)
_RIGHT_TOKEN = re.compile(rf"(?:{_TOKEN})\Z", re.IGNORECASE)
_THOUGHT = re.compile(
    r"\A[*_#]{0,4}(?:thoughts?|思考|思路|想法)[ \t]{0,4}\d{0,4}[ \t]{0,4}[*_]{0,3}[:：][*_]{0,3}\s*+", re.IGNORECASE
)
_EDGE = 100
_LEFT_CHARS = frozenset(" \t\r\n\f\v<[aA")


def visible_of(text: str) -> str:
    """The text without control tokens and white space at its edges."""
    start = _left(text)
    return text[start : _right(text, _RIGHT_TOKEN, start)]


def thought_of(before: str) -> str:
    """The text before a call, without the label in front of it and the opening tag or fence of the call behind it."""
    start = _left(before)
    thought = before[start : _right(before, _WRAPPER, start)]
    return _THOUGHT.sub("", thought, count=1) if ":" in thought[:40] or "：" in thought[:40] else thought


def _left(text: str) -> int:
    if text[:1] not in _LEFT_CHARS:
        return 0
    match = _LEFT.match(text)
    return match.end() if match else 0


def _right(text: str, token: re.Pattern[str], start: int) -> int:
    """Where the text ends without the tokens behind it. The text is not copied, so that many tokens cost no more each."""
    end = len(text)
    while True:
        while end > start and text[end - 1].isspace():
            end -= 1
        if end <= start or not (text[end - 1] in ">]`~" or text.find("```", max(start, end - 24), end) >= 0):
            return max(end, start)
        match = token.search(text, max(start, end - _EDGE), end)
        if match is None:
            return end
        end = match.start()
