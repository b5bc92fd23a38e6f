"""Where a reply stops being the model's own turn: results it invents, an answer, the next speaker."""

from __future__ import annotations

import re

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


def is_choice(between: str) -> bool:
    """Whether the words between two actions take the first back or offer the second in its place."""
    return len(between) < 400 and _CHOICE.search(between) is not None
