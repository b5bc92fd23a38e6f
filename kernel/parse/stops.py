"""Where a reply stops being the model's own turn: results it invents, an answer, the next speaker."""

from __future__ import annotations

import re

from kernel.parse.model import Found, Unreadable

_RESULT = (
    r"^[ \t>*_#]{0,8}(?:observations?|观察|观察结果|(?:tool|function|action)[ _](?:output|result|response)s?|工具(?:输出|结果|返回))[ \t]{0,4}\d{0,4}[ \t]{0,4}[*_]{0,2}[:：]"
    r"|</?tool_(?:response|result|output)s?>|<function_results?>|<result>|\[TOOL_RESULTS\]|<[|｜]tool[▁_]outputs?[▁_]begin[|｜]>"
    r"|<\|tool_response\|?>|<start_function_response>|✿RESULT✿"
)
_FINAL = r"^[ \t>*_#]{0,8}(?:final[ _]answer|最终答案|最终回答)[ \t]{0,4}[*_]{0,2}[:：]"
_TURN = (
    r"<\|im_end\|>|<\|im_start\|>(?:user|tool)|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<turn\|>|<\|end_of_text\|>"
    r"|<\|endoftext\|>|<[|｜]end▁of▁sentence[|｜]>|<\|observation\|>|<\|user\|>|<\|start_header_id\|>(?:user|tool|ipython)"
)
_SPEAKER = r"|^(?:human|user|用户)[ \t]{0,4}[:：]"
TURN_AT_END = re.compile(rf"(?:{_TURN})[ \t]*(?=\n|\Z|<\|)", re.IGNORECASE)
_TURN += _SPEAKER
TURN = re.compile(_TURN, re.MULTILINE | re.IGNORECASE)
"""What somebody else speaks behind; `TURN_AT_END` only the tokens, with nothing more on their line."""
STOP = rf"(?P<result>{_RESULT})|(?P<final>{_FINAL})|(?P<turn>{_TURN})"

_JSON_AHEAD = re.compile(r"\s{0,80}(?:[{\[<]|```|~~~)")
_CHOICE = re.compile(
    r"\A\W*or\b|\b(?:alternatively|or else|scratch that|on second thought|wait,|actually,|correction|no, |instead)"
    r"|\b(?:option|alternative|variant|choice)[ \t]{1,4}(?:[b-z]|[2-9]|two|three)\b|或者|不对|等等，|方案|选项",
    re.IGNORECASE,
)


def behind_result(text: str, start: int, end: int) -> int:
    """Where an invented result with its mark at `start:end` is over: nothing in it is a call.

    A tag's result goes to the closing tag, one behind a label to the end of its line, or of its paragraph where it is JSON
    or a block.
    """
    mark = text[start:end]
    name = re.search(r"[A-Za-z_▁]+", mark)
    if mark[:1] in "<[" and name and "/" not in mark:
        word = name[0].removesuffix("begin")
        close = re.compile(rf"(?:[</\[|｜]|\A){{1,2}}{re.escape(word)}(?:end)?[|｜]?[>\]]").search(text, end)
        return close.end() if close else len(text)
    if mark[-1:] not in (":", "："):
        return end
    stop = text.find("\n\n" if _JSON_AHEAD.match(text, end) else "\n", end)
    return stop if stop >= 0 else len(text)


def refuse_choice(text: str, calls: list[Found], found: list[Found], start: int) -> None:
    """Refuse a call at `start` that the words before it put in the place of the one read last.

    Raises:
        Unreadable: `ambiguous`; the two calls differ, and the words between them take the first back or offer a choice.
    """
    if not calls or (found[0].name, found[0].args) == (calls[-1].name, calls[-1].args):
        return
    between = text[calls[-1].end : start]
    if len(between) < 400 and _CHOICE.search(between):
        message = f"The text takes back, or offers a choice between, the calls at {calls[-1].start} and {start}."
        raise Unreadable("ambiguous", message, start)
