"""Code agents' replies: exactly one block of Python or shell, as a fence or a tag.

A Python block is the tool `python` with `code`, a shell block the tool `bash` with `command`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel.parse.model import Found, Unreadable
from kernel.parse.quoting import is_shown
from kernel.parse.source import Source
from kernel.parse.stops import STOP

_PYTHON = frozenset({"python", "py", "python3", "ipython"})
_SHELL = frozenset({"bash", "sh", "shell", "zsh", "mswea_bash_command", "console"})
_FENCE = re.compile(r"^[ \t]{0,8}(?P<ticks>```|~~~)[ \t]{0,8}(?P<lang>[\w+.-]{0,30})[ \t]*\r?$\n?", re.MULTILINE)
_CLOSE = {
    ticks: re.compile(rf"^[ \t]{{0,8}}{ticks}(?P<opens>[A-Za-z][\w+.-]{{0,29}}[ \t]*$)?", re.MULTILINE)
    for ticks in ("```", "~~~")
}
_STOP = re.compile(STOP, re.MULTILINE | re.IGNORECASE)
_HEREDOC = re.compile(r"(?<![<\w(])<<-?[ \t]*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w{0,63})(?P=quote)")
_NESTING = re.compile(r"<[A-Za-z][^<>\n]{0,60}>\s*\Z")
_TAGS = {
    "command": "bash", "bash": "bash", "execute_bash": "bash", "shell": "bash",
    "code": "python", "python": "python", "execute_ipython": "python", "execute_python": "python",
}  # fmt: skip
_TAG = re.compile(rf"^[ \t]{{0,8}}<(?P<tag>{'|'.join(_TAGS)})>(?P<newline>[ \t]*\r?\n)?", re.MULTILINE)
_LABEL = re.compile(
    r"(?:^|\n)[ \t>*_#]{0,8}(?:code|action|command|代码|行动|动作)[ \t]{0,4}[*_]{0,2}[:：][*_]{0,2}\s{0,8}\Z",
    re.IGNORECASE,
)


class _Block(NamedTuple):
    tool: str
    code: str
    start: int
    end: int
    tagged: bool
    labelled: bool
    broken: bool

    def found(self) -> Found:
        args = {"code" if self.tool == "python" else "command": self.code}
        return Found(self.tool, args, "codeblock", self.start, self.end)


def read_codeblocks(source: Source) -> list[Found]:
    """Find the one block to run; empty where none is meant for `python` or `bash`, or where neither is a known tool.

    A block behind a label such as `Code:` outranks the others, and one that names its language those that do not. A block
    without a language counts only at the end of the text.

    Raises:
        Unreadable: `several-blocks` of equal rank, or a block that is not closed.
    """
    blocks = [block for block in _own(source.text, _blocks(source.text)) if not is_shown(source, block.found())]
    if source.tool_names:
        blocks = [block for block in blocks if block.tool in source.tool_names]
    end = len(source.text.rstrip())
    last = [block for block in blocks if block.end >= end]
    chosen = (
        [b for b in blocks if b.labelled] or [b for b in blocks if b.tagged] or (last if len(blocks) == 1 else blocks)
    )
    if len(chosen) > 1:
        message = (
            f"There are {len(chosen)} code blocks, the second at offset {chosen[1].start}; exactly one can be run."
        )
        raise Unreadable("several-blocks", message, chosen[1].start)
    if chosen and chosen[0].broken:
        message = f"Where the code block at offset {chosen[0].start} ends cannot be told: a fence stands inside it."
        raise Unreadable("ambiguous", message, chosen[0].start)
    return [block.found() for block in chosen if block.code.strip()]


def _blocks(text: str) -> list[_Block]:
    return sorted(_fences(text) + _tagged(text), key=lambda block: block.start)


def _own(text: str, blocks: list[_Block]) -> list[_Block]:
    """The blocks before a final answer, another turn, or a result that the model invented for a block before it."""
    pos = 0
    for i, block in enumerate(blocks):
        for stop in _STOP.finditer(text, pos, block.start):
            if i or stop["result"] is None:
                return blocks[:i]
        pos = block.end
    return blocks


def _fences(text: str) -> list[_Block]:
    blocks = []
    pos, last = 0, max(text.rfind("```"), text.rfind("~~~"))
    while fence := _FENCE.search(text, pos):
        lang = fence["lang"].lower()
        close = _CLOSE[fence["ticks"]].search(text, fence.end())
        if close is None:
            if lang in _PYTHON or lang in _SHELL:
                raise Unreadable("cut-off", f"The code block at offset {fence.start()} is never closed.", len(text))
            break
        pos = close.start() if close["opens"] else close.end()
        if lang in _PYTHON or not lang or (lang in _SHELL and not _is_session(text[fence.end() : close.start()])):
            labelled = _LABEL.search(text, max(0, fence.start() - 80), fence.start()) is not None
            code = text[fence.end() : close.start()].strip("\r\n")
            broken = close["opens"] is not None or (pos <= last and _goes_on(code))
            tool = "python" if lang in _PYTHON else "bash"
            end = pos + 10 if text.startswith("<end_code>", pos) else pos
            blocks.append(_Block(tool, code, fence.start(), end, bool(lang), labelled, broken))
    return blocks


def _tagged(text: str) -> list[_Block]:
    blocks = []
    pos = 0
    while opening := _TAG.search(text, pos):
        tag, pos = opening["tag"], opening.end()
        close = text.find(f"</{tag}>", pos)
        if close < 0:
            if opening["newline"]:
                raise Unreadable("cut-off", f"The tag <{tag}> at offset {opening.start()} is never closed.", len(text))
            break
        pos = close + len(tag) + 3
        if _NESTING.search(text, max(0, opening.start() - 80), opening.start()):
            continue  # a parameter of some other call
        if tag != "code" or opening["newline"]:  # <code> on one line is text
            code = text[opening.end() : close].strip("\r\n")
            blocks.append(_Block(_TAGS[tag], code, opening.start(), pos, True, True, False))
    return blocks


def _is_session(code: str) -> bool:
    """Whether a block shows commands behind a prompt with what they printed."""
    lines = [line for line in code.splitlines() if line.strip()]
    prompted = sum(line.startswith("$ ") for line in lines)
    return 0 < prompted < len(lines)


def _goes_on(code: str) -> bool:
    """Whether the code stops within a here-document or a long string: a fence that follows shows that it held one itself."""
    lines = {line.strip() for line in code.splitlines()} if "<<" in code else set()
    return (
        code.count('"""') % 2 == 1
        or code.count("'''") % 2 == 1
        or any(heredoc["word"] not in lines for heredoc in _HEREDOC.finditer(code))
    )
