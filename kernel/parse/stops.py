"""Where a reply stops being the model's own turn: results it invents, an answer, the next speaker."""

from __future__ import annotations

import re

from kernel.parse.model import Found, Unreadable

_RESULT = (
    r"^[ \t>*_#]{0,8}(?:observations?|观察|观察结果)[ \t]{0,4}\d{0,4}[ \t]{0,4}[*_]{0,2}[:：]"
    r"|</?tool_(?:response|result|output)s?>|<function_results?>|<result>|\[TOOL_RESULTS\]|<[|｜]tool[▁_]outputs?[▁_]begin[|｜]>"
    r"|<\|tool_response\|?>|<start_function_response>|✿RESULT✿"
)
_FINAL = r"^[ \t>*_#]{0,8}(?:final[ _]answer|最终答案|最终回答)[ \t]{0,4}[*_]{0,2}[:：]"
_TURN = (
    r"<\|im_end\|>|<\|im_start\|>(?:user|tool)|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<turn\|>|<\|end_of_text\|>"
    r"|<\|endoftext\|>|<[|｜]end▁of▁sentence[|｜]>|<\|observation\|>|<\|user\|>|<\|start_header_id\|>(?:user|tool|ipython)"
)
STOP = rf"(?P<result>{_RESULT})|(?P<final>{_FINAL})|(?P<turn>{_TURN})"

_CHOICE = re.compile(
    r"\A\W*or\b|\b(?:alternatively|or else|scratch that|on second thought|wait,|actually,|correction|no, |instead)"
    r"|或者|不对|等等，",
    re.IGNORECASE,
)


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
