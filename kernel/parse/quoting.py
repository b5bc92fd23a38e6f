"""Tells a call from one that the text merely shows: an example, a format, a quotation in the middle of a sentence."""

from __future__ import annotations

import re

from kernel.parse.model import Found
from kernel.parse.source import Source
from kernel.parse.stops import STOP

_EXAMPLE = re.compile(
    r"\b(?:for (?:example|instance)|e\.g\.|an? (?:\w+ )?(?:example|sample|illustration)\b(?!\.)|examples?\s*:"
    r"|(?:example|sample) (?:call|tool|usage|format|output|json|response|action|of)\b"
    r"|how (?:a|an|the|my|your|such)\b.{0,60}\b(?:looks?|works?|written|called|formatted)\b"
    r"|(?:would|could|might|should|must|may) (?:look like|be (?:written|called|formatted))\b|looks? like\b"
    r"|(?:in|has|uses?|follow\w*|expects?) (?:this|the following) (?:format|form|schema|shape|structure)"
    r"|you (?:can|could|may|might|would|should|must|need to|have to) (?:\w+ )?(?:call|use|send|write|run|invoke|emit|type)"
    r"|(?:would|could|might) (?:\w+ )?(?:call|use|send|run|invoke)\b"
    r"|(?:format|form|schema|template)[\s*]{0,8}[:：]\W*\Z)"
    r"|\A[#*_ \t>-]*examples?[:*_ \t]*\Z"
    r"|例如|比如|示例|例子|格式如下|样例",
    re.IGNORECASE,
)
"""Words that show what a call looks like."""
_WITHDRAWN = re.compile(
    r"\b(?:(?:do not|don['’]t|never|must not|should not|shouldn['’]t|cannot|can['’]t) (?:\w+ )?(?:call|use|send|run|invoke|emit|execute)\b"
    r"|hypothetical(?:ly)?|if i could\b|(?:instead of|rather than)\s*:?\s*\Z|(?<=\s)(?:either|or)\s*:?\s*\Z"
    r"|(?:ran|called|executed|said|says|shows|showed|reads|contains|returned|printed|received|logged)[\s*]{0,8}[:：]\W*\Z)"
    r"|(?:不要|不能|切勿)(?:调用|执行|运行)|或者\s*\Z"
    r"|(?:显示|返回|写道|内容为|内容是|执行过|调用过|运行过)了?\s*[:：]\W*\Z",
    re.IGNORECASE,
)
"""Words that forbid a call, offer another one for it, or tell of one in the past."""
_AFTER = re.compile(
    r"\b(?:(?:have|has|had|did|do|will|was|were|is|am)(?: not|n['’]t)|never|not) (?:\w+ ){0,2}?"
    r"(?:call(?:ed|ing)?|run|ran|running|execut(?:e|ed|ing)|invok(?:e|ed|ing))\b"
    r"|(?-i:\A(?:is|was|are|would|will|means|does|calls|has|returned|gave|failed|worked|succeeded|printed)\b)"
    r"|\b(?:shall|should|may) i (?:\w+ ){0,2}(?:proceed|go ahead|continue|run|call|execute|send)\b[^.!?\n]{0,80}\?"
    r"|\b(?:do|would) you (?:want|like) me to\b[^.!?\n]{0,120}\?|(?:是否|要不要|需要我|可以).{0,20}(?:执行|调用|运行|继续).{0,6}[?？吗]"
    r"|\bnothing (?:was|has been|is) (?:called|run|executed|invoked)|\b(?:do not|don['’]t|never) (?:\w+ )?(?:do|try|repeat) (?:that|this|it|so)\b"
    r"|\b(?:this|that|it|above)(?: (?:is|was)|['’]s) (?:\w+ )?an? (?:\w+ )?(?:example|illustration|sample|template)\b"
    r"|以上(?:只是|仅为|是).{0,6}(?:示例|例子)|(?:没有|未|并未)(?:调用|执行|运行)",
    re.IGNORECASE,
)
_EXAMPLE_WORDS = (
    "example", "instance", "e.g.", "sample", "illustration", "how ", "look like", "looks", "written", "called", "format", "form",
    "schema", "shape", "structure", "you ", "would ", "could ", "might ", "template", "例", "格式", "比如",
)  # fmt: skip
_WITHDRAWING_WORDS = (
    "not ",
    "n't ",
    "n’t ",
    "never",
    "hypothe",
    "could",
    "instead",
    "rather",
    "不要",
    "不能",
    "切勿",
    "或者",
)
_WITHDRAWING_ENDS = (":", "：", "*", "了", " or", "either")
_AFTER_WORDS = (
    "not ", "n't", "n’t", "never", "Nothing", "nothing", "example", "illustration", "sample", "template", "Not ", "例", "没有", "未",
    "is ", "was ", "are ", "would ", "will ", "means ", "does ", "calls ", "has ", "returned", "gave ", "failed", "worked", "succeeded", "printed", " I ", " me to ", "执行", "调用", "运行", "继续",
)  # fmt: skip
_ASKS = re.compile(
    r"\b(?:(?:shall|should|may) i|(?:do|would) you (?:want|like) me to) (?:\w+ ){0,2}"
    r"(?:proceed|go ahead|continue|run|call|execute|send|do)\b[^.!?\n]{0,80}\?\W*\Z"
    r"|(?:是否|要不要|需要我|可以).{0,20}(?:执行|调用|运行|继续).{0,12}[?？]\W*\Z",
    re.IGNORECASE,
)
_OPENS = re.compile(
    r"(?P<open><!--|^[ \t>]{0,8}<(?:examples?|sample|quote|blockquote|tool_(?:response|result|output)s?|function_results?)>)"
    r"|-->|</(?:examples?|sample|quote|blockquote|tool_(?:response|result|output)s?|function_results?)>",
    re.IGNORECASE | re.MULTILINE,
)
_TAG_BEFORE = re.compile(r"<[^<>\n/]{1,60}>\s{0,20}\Z")
_THOUGHT = re.compile(
    r"^[ \t>*_#]{0,8}(?:thoughts?|思考|思路|想法)[ \d*_]{0,8}[:：][^\n]*\Z", re.MULTILINE | re.IGNORECASE
)
_QUOTE_MARK = re.compile(r"[ \t>|]*+")
_TAG_AFTER = re.compile(r"\A\s{0,20}</[^<>\n]{1,60}>")
_FENCE_BEFORE = re.compile(
    r"(?P<line>^[ \t>]{0,8})?(?:```|~~~)[ \t]{0,8}[\w+.-]{0,30}[ \t]{0,8}(?:\n[ \t]{0,4}>)?\Z", re.MULTILINE
)
_WRAPPED = re.compile(
    r"(?:\s|[}\]]|(?:>[ \t]{0,4})?(?:```|~~~)(?![ \t]{0,4}\w)|</?[^<>\s][^<>\n]{0,60}>|<(?:\Z|/?\w{0,20}\Z)|&lt;/?[\w:]{1,30}&gt;)*+"
)
_PLAYED = re.compile(rf"{STOP}|```|~~~|Obs\w{{0,8}}\Z", re.MULTILINE | re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?。！？][\"')]?\s+|[。！？]")
_ENDED = (".", "!", "。", "！")
_WINDOW = 400
_SENTENCE_WINDOW = 240
_QUOTING = (">", "|")
"""What a line begins with that quotes, or is a row of a table."""


def is_shown(source: Source, call: Found, end: int = 0) -> bool:
    """Whether a call is shown rather than made; the one rule for all families.

    A call that stands in a sentence, a quoted line or a table is shown, and so is a block of its own that prose follows,
    and one that the words next to it forbid, take back, or tell of. Else the call of a known tool that ends the reply is
    made, whatever words come before it; any other may still be announced as an example. Looks at the sentence before the
    call and the paragraph after it, at most a few hundred characters each way.
    """
    end = end or call.end
    shown = _is_shown(source, call, end)
    if shown:
        source.show(call.start, end)
    return shown


def _is_shown(source: Source, call: Found, end: int) -> bool:
    text = source.text
    left, fence_at, is_block = _before(source, call)
    after = _TAG_AFTER.sub("", text[end : end + _WINDOW], count=1)
    behind = _behind(source, end, is_block and call.family != "codeblock")
    if fence_at is None and _is_inline(left, after) and not (call.family == "react" and not behind):
        return True
    known = source.knows(call.name)
    if call.family == "react" and not is_block:  # its labels announce it, and a thought before it speaks of much
        return (behind != "" and _disowns(behind)) or (not is_thought(left) and is_withdrawn(left, known))
    if is_withdrawn(left, known) or (behind and _disowns(behind)):
        return True
    if behind and is_block and call.family != "codeblock":
        return True
    return not (known and not behind) and announces(left)


def _before(source: Source, call: Found) -> tuple[str, int | None, bool]:
    """The text before a call without the tag and the fence around it; where that fence is, and whether it is a line's own."""
    text, start = source.text, call.start
    if call.family == "react" and (quoted := _QUOTE_MARK.match(text, start)):
        start = quoted.end()  # a label's own line may begin with what quotes it
    before = text[max(0, start - _WINDOW) : start]
    if before[-1:] in (">", "\n") and (tag := _TAG_BEFORE.search(before, max(0, len(before) - 82))):
        before = before[: tag.start()]
    tail = before[-60:].rstrip()
    fence = _FENCE_BEFORE.search(tail) if "```" in tail or "~~~" in tail else None
    if fence:
        before = before[: max(0, len(before) - 60) + fence.start()]
        return before, start, fence["line"] is not None
    if call.family != "codeblock" and (opening := source.fence_open_at(start)):
        return text[max(0, opening.start() - _WINDOW) : opening.start()], opening.start(), True
    return before, None, False


def _behind(source: Source, end: int, is_block: bool) -> str:
    """The paragraph of prose behind a call, without what closes the call, and up to what the model plays for others."""
    text = source.text
    if is_block:
        end = source.fence_behind(end)
    wrapped = _WRAPPED.match(text, end, end + _WINDOW)
    start = wrapped.end() if wrapped else end
    played = _PLAYED.search(text, start, start + _WINDOW)
    return text[start : min(start + _WINDOW, played.start() if played else len(text))].strip()


def _is_inline(left: str, after: str) -> bool:
    line = left.rpartition("\n")[2]
    return line.lstrip()[:1] in _QUOTING or _inside_sentence(line, after.partition("\n")[0])


def is_thought(left: str) -> bool:
    """Whether the text before a call ends in a line that is labelled as a thought."""
    return _THOUGHT.search(left.rstrip()[-_SENTENCE_WINDOW:]) is not None


def is_withdrawn(before: str, known: bool) -> bool:
    """Whether the line before a call forbids it, asks for leave, or tells of another one. A sentence that has ended does
    not speak of the call of a known tool."""
    line = _last_line(before)
    if line[-1:] in ("?", "？") and _ASKS.search(line):
        return True
    if known and line.endswith(_ENDED):
        return False
    sentence = _last_sentence(line)
    hinted = sentence.endswith(_WITHDRAWING_ENDS) or _has(sentence, _WITHDRAWING_WORDS)
    return hinted and _WITHDRAWN.search(sentence) is not None


def announces(before: str) -> bool:
    """Whether the line before a call says that what follows is an example or a form."""
    sentence = _last_sentence(_last_line(before))
    return _has(sentence, _EXAMPLE_WORDS) and _EXAMPLE.search(sentence) is not None


def _last_line(before: str) -> str:
    before = before[-_WINDOW:].rstrip()
    return before[max(before.rfind("\n") + 1, len(before) - _SENTENCE_WINDOW) :].lower()


def _last_sentence(line: str) -> str:
    return _SENTENCE.split(line)[-1]


def is_inline_code(text: str, pos: int) -> bool:
    """Whether `pos` stands between backticks within its line, which close there too."""
    line = text[max(text.rfind("\n", 0, pos), pos - _WINDOW) + 1 : pos]
    return line.count("`") % 2 == 1 and "```" not in line and "`" in text[pos : pos + _WINDOW].partition("\n")[0]


def is_enclosed(text: str, behind: int, start: int) -> bool:
    """Whether a comment, an example or an invented result that opens behind `behind` is still open at `start`."""
    opened = False
    for mark in _OPENS.finditer(text, behind, start):
        opened = mark["open"] is not None
    return opened or text[start - 2 : start] == "~~"


def _disowns(after: str) -> bool:
    return after != "" and _has(after, _AFTER_WORDS) and _AFTER.search(after) is not None


def _has(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of the words is in the text: much cheaper than a search, and nearly always the answer is no."""
    for word in words:  # noqa: SIM110 - a generator would double the time
        if word in text:
            return True
    return False


def _inside_sentence(left: str, right: str) -> bool:
    left, right = left.strip(), right.strip()
    if not left or not right:
        return False
    if left[-1] == "`" and right[0] == "`":
        return len(left) > 1 or len(right) > 1
    return left[-1] not in ".:;!?。：；！？>|`，" and (right[0].islower() or right[0] in ",;)，。")
