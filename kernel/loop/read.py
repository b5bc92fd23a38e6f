"""Read: builds the next request. The conversation is an append-only list, so that a provider's prompt cache works and the
trace stores only what is new. Near the window, older steps are condensed by a rule that is visible in the trace.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kernel.loop.limits import TokenCounter, estimate_tokens, message_tokens
from kernel.record import (
    Message,
    MessageView,
    Reply,
    Request,
    RunHead,
    Step,
    Texts,
    bounded,
    compact_json,
    identified,
    initial_messages,
    messages_after,
    offered_tools,
    shown_text,
)

_LINE_CHARS = 160
_TASK_MARK = "> "
_HEADING_TOKENS = 60
"""What the words around the lines of condensed steps may need."""


class Prompt(Struct, frozen=True, kw_only=True, gc=False):
    """A request with what the trace says of it, and its estimated size. `bounded_by` names the limit that made the bound on the
    reply smaller than that of the parameters."""

    request: Request
    new: tuple[Message, ...]
    condensed: int
    estimated_tokens: int
    bounded_by: str = ""

    def bounded(self, limit: int | None, by: str) -> Prompt:
        """The prompt with a smaller bound on the reply."""
        params = bounded(self.request.params, limit)
        return msgspec.structs.replace(
            self, request=msgspec.structs.replace(self.request, params=params), bounded_by=by
        )


class _Part(Struct, frozen=True):
    """Where the messages of a step, or a later user turn, start, and the line that stands for it when it is condensed."""

    start: int
    line: str
    is_step: bool = True


class Transcript:
    """The messages of a conversation so far, shared by its runs.

    Counting and hashing are incremental: a step costs what it adds, whatever came before.
    """

    def __init__(self, count: TokenCounter = estimate_tokens) -> None:
        self._messages: list[Message] = []
        self._kept = 0
        self._sizes = [0]
        self._count = count
        self._fixed = 0
        self._task: int | None = None
        self._parts: list[_Part] = []
        self._condensed = 0
        self._summary: list[str] = []
        self._call_ids: set[str] = set()

    def begin(self, head: RunHead) -> None:
        """Start a run of the conversation: its system prompt and task."""
        start = len(self._messages)
        self._append(initial_messages(head))
        if not self._fixed:
            self._fixed = len(self._messages)
        else:
            self._task = start
            if head.context.window_tokens is not None:
                self._parts.append(_Part(start, f"{_TASK_MARK}{_in_line(head.task)}", False))

    def add(self, step: Step, head: RunHead, texts: Texts) -> None:
        """Append what a finished step adds."""
        start = len(self._messages)
        self._append(messages_after(step, head))
        if head.context.window_tokens is not None:
            self._parts.append(_Part(start, step_line(step, texts)))

    def adjust(self, tokens: int) -> None:
        """Count the newest message as so many tokens more, as it was when secrets in it were not masked."""
        self._sizes[-1] += tokens

    def prompt(self, head: RunHead, texts: Texts) -> Prompt:
        """The next request. What it adds to the previous one is `new`, after `request.kept` messages."""
        window = head.context.window_tokens
        if window is not None and self._sizes[-1] > window:
            self._condense(window, head.context.keep_steps, texts)
        messages, kept = self._messages, self._kept
        new = tuple(messages[kept:])
        request = Request(messages=MessageView(messages), tools=offered_tools(head), params=head.params, kept=kept)
        self._kept = len(messages)
        return Prompt(
            request=request,
            new=new,
            condensed=self._condensed,
            estimated_tokens=self._sizes[-1],
        )

    def identified(self, reply: Reply, step: int) -> Reply:
        """The reply with an id for each of its calls, by which their results are told apart. Nearly always the same object."""
        calls = identified(reply.tool_calls, step, self._call_ids)
        return reply if calls is reply.tool_calls else msgspec.structs.replace(reply, tool_calls=calls)

    def _append(self, messages: tuple[Message, ...]) -> None:
        sizes = self._sizes
        for message in messages:
            self._messages.append(message)
            for call in message.tool_calls:
                self._call_ids.add(call.id)
            sizes.append(sizes[-1] + message_tokens(message, self._count))

    def _condense(self, window: int, keep: int, texts: Texts) -> None:
        """Replace the oldest steps by one message of a line each, so that what is left fills half the window at most.

        The newest `keep` steps stay whole unless they alone pass the window, and the newest whatever its size; so does the
        task of the present turn. Half, not all of the window: else every further step would condense again.
        """
        parts, sizes, messages = self._parts, self._sizes, self._messages
        most = len(parts) - max(keep, 1)
        if most < 1 and sizes[-1] - sizes[self._fixed] <= window // 2:
            return
        total, fixed = sizes[-1], sizes[self._fixed]
        cut = next((i for i in range(1, most) if total - sizes[parts[i].start] <= window // 2), max(most, 0))
        task_size = 0 if self._task is None else sizes[self._task + 1] - sizes[self._task]
        least = fixed + task_size + _HEADING_TOKENS
        while cut < len(parts) - 1 and least + total - sizes[parts[cut].start] > window:
            cut += 1
        if cut < 1:
            return
        start = parts[cut].start
        task = self._task if self._task is not None and self._task < start else None
        self._condensed += sum(part.is_step for part in parts[:cut])
        room = min(window // 4, window - least - (total - sizes[start]))
        lines = self._bounded([part.line for part in parts[:cut]], room)
        left_out = self._condensed - sum(not line.startswith(_TASK_MARK) for line in lines)
        listed = [texts.say("condensed.left_out", count=left_out), *lines] if left_out > 0 else lines
        text = texts.say("condensed", count=self._condensed, lines="\n".join(listed))
        rest = messages[start:]
        self._messages, self._sizes = messages[: self._fixed], sizes[: self._fixed + 1]
        self._append((Message(role="user", content=text),))
        if task is not None:
            self._task = len(self._messages)
            self._messages.append(messages[task])
            self._sizes.append(self._sizes[-1] + task_size)
        shift = start - len(self._messages)
        self._messages += rest
        moved = self._sizes[-1] - sizes[start]
        self._sizes += [size + moved for size in sizes[start + 1 :]]
        if self._task is not None and task is None:
            self._task -= shift
        self._kept = min(self._kept, self._fixed)
        self._parts = [_Part(part.start - shift, part.line, part.is_step) for part in parts[cut:]]
        self._summary = lines

    def _bounded(self, lines: list[str], tokens: int) -> list[str]:
        """The lines of all condensed steps so far, the oldest left out where they pass `tokens`."""
        every = [*self._summary, *lines]
        size = 0
        for index in range(len(every) - 1, -1, -1):
            size += self._count(every[index]) + 1
            if size > tokens:
                return every[index + 1 :]
        return every


def step_line(step: Step, texts: Texts) -> str:
    """One step in one line, as condensing shows it."""
    if not step.calls:
        what = step.decision.kind if step.decision is not None else "-"
        answer = step.decision.answer if step.decision is not None else None
        return f"{step.index}. {what}" + (f": {_in_line(answer)}" if answer else "")
    parts = []
    for record in step.calls:
        call = f"{record.call.name}({compact_json(record.call.args)[:_LINE_CHARS]})"
        result = _in_line(shown_text(record))
        parts.append(texts.say("condensed.line", step=step.index, call=call, outcome=record.outcome, result=result))
    return "\n".join(parts)


def _in_line(text: str) -> str:
    return " ".join(text.split())[:_LINE_CHARS]
