"""Tells a call from one that the text merely shows: an example, a format, a quotation in the middle of a sentence."""

from __future__ import annotations

import re

_BEFORE = re.compile(
    r"\b(?:for (?:example|instance)|e\.g\.|an? (?:\w+ )?(?:example|sample|illustration)\b(?!\.)|examples?\s*:"
    r"|(?:example|sample) (?:call|tool|usage|format|output|json|response|action|of)\b"
    r"|how (?:a|an|the|my|your|such)\b.{0,60}\b(?:looks?|works?|written|called|formatted)\b"
    r"|(?:would|could|might|should|must|may) (?:look like|be (?:written|called|formatted))\b|looks? like\b"
    r"|(?:in|has|uses?|follow\w*|expects?) (?:this|the following) (?:format|form|schema|shape|structure)"
    r"|you (?:can|could|may|might|would|should|must|need to|have to) (?:\w+ )?(?:call|use|send|write|run|invoke|emit|type)"
    r"|(?:do not|don't|never|must not|should not|shouldn't|cannot|can't) (?:\w+ )?(?:call|use|send|run|invoke|emit|execute)"
    r"|(?:would|could|might) (?:\w+ )?(?:call|use|send|run|invoke)\b|hypothetical(?:ly)?"
    r"|(?:instead of|rather than)\s*:?\s*\Z|\S.*\b(?:either|or)\s*:?\s*\Z|(?:format|form|schema|template)[\s*]{0,8}[:：]\W*\Z"
    r"|(?:ran|called|executed|said|says|shows|showed|reads|contains|returned|printed|received|logged)[\s*]{0,8}[:：]\W*\Z)"
    r"|\A[#*_ \t>-]*examples?[:*_ \t]*\Z"
    r"|例如|比如|示例|例子|格式如下|样例|(?:不要|不能|切勿)(?:调用|执行|运行)|或者\s*\Z"
    r"|(?:显示|返回|写道|内容为|内容是|执行过|调用过|运行过)了?\s*[:：]\W*\Z",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\b(?:(?:have|has|had|did|do|will|was|were|is|am)(?: not|n['’]t)|never|not) (?:\w+ ){0,2}?"
    r"(?:call(?:ed|ing)?|run|ran|running|execut(?:e|ed|ing)|invok(?:e|ed|ing))\b"
    r"|(?-i:\A(?:is|was|are|would|will|means|does|calls|has|returned|gave|failed|worked|succeeded|printed)\b)"
    r"|\b(?:shall|should|may) i (?:\w+ ){0,2}(?:proceed|go ahead|continue|run|call|execute|send)\b[^.!?\n]{0,80}\?"
    r"|\b(?:do|would) you (?:want|like) me to\b[^.!?\n]{0,120}\?|(?:是否|要不要|需要我|可以).{0,20}(?:执行|调用|运行|继续).{0,6}[?？吗]"
    r"|\bnothing (?:was|has been|is) (?:called|run|executed|invoked)"
    r"|\b(?:this|that|it|above)(?: (?:is|was)|['’]s) (?:\w+ )?an? (?:\w+ )?(?:example|illustration|sample|template)\b"
    r"|以上(?:只是|仅为|是).{0,6}(?:示例|例子)|(?:没有|未|并未)(?:调用|执行|运行)",
    re.IGNORECASE,
)
_BEFORE_WORDS = (
    "example", "instance", "e.g.", "sample", "illustration", "how ", "look like", "looks", "written", "called", "format", "form",
    "schema", "shape", "structure", "you ", "not ", "never", "n't ", "hypothe", "instead", "rather", "would ", "could ", "might ",
    "either", "or", "ran", "called", "executed", "said", "says", "show", "reads", "contains", "returned", "printed", "received",
    "logged", "template", "例", "格式", "不要", "不能", "切勿", "或者", "显示", "返回", "写道", "内容", "过",
)  # fmt: skip
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
_TAG_AFTER = re.compile(r"\s{0,20}</[^<>\n]{1,60}>")
_FENCE_BEFORE = re.compile(r"(?:```|~~~)[\w+.-]{0,30}[ \t]{0,8}(?:\n[ \t]{0,4}>)?\Z")
_FENCE_AFTER = re.compile(r"\s{0,80}(?:>[ \t]{0,4})?(?:```|~~~)")
_SENTENCE = re.compile(r"[.!?。！？][\"')]?\s+|[。！？]")
_WINDOW = 400
_QUOTING = (">", "|")
"""What a line begins with that quotes, or is a row of a table."""


def is_shown(text: str, start: int, end: int) -> bool:
    """Whether the call at `start:end` is shown rather than made. Looks at the sentence before it and the paragraph after
    it, at most a few hundred characters each way."""
    before = text[max(0, start - _WINDOW) : start]
    after = text[end : end + _WINDOW]
    if before[-1:] in (">", "\n") and (tag := _TAG_BEFORE.search(before, max(0, len(before) - 82))):
        before = before[: tag.start()]
        if closing := _TAG_AFTER.match(after):
            after = after[closing.end() :]
    tail = before[-60:].rstrip()
    fence = _FENCE_BEFORE.search(tail) if "```" in tail or "~~~" in tail else None
    if fence:
        before = before[: max(0, len(before) - 60) + fence.start()]
        if closing := _FENCE_AFTER.match(after):
            after = after[closing.end() :]
    elif before.rpartition("\n")[2].lstrip()[:1] in _QUOTING or _inside_sentence(
        before.rpartition("\n")[2], after.partition("\n")[0]
    ):
        return True
    return announces(before) or _disowns(after.lstrip().partition("\n\n")[0])


def announces(before: str) -> bool:
    """Whether the line before a call says that what follows is an example or a form."""
    line = before.rstrip().rpartition("\n")[2].lower()
    if line[-1:] in ("?", "？") and _ASKS.search(line):
        return True
    return _has(line, _BEFORE_WORDS) and _BEFORE.search(_SENTENCE.split(line)[-1]) is not None


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
