"""A run's records with their secrets replaced, so that a replay of them still comes out the same.

Most of it is `Masker.mask` on the record as plain data. Three things need more:

- What the format itself defines (outcomes, kinds, ids of runs, digests) is out of reach of any rule.
- A text that was cut for the model may hold half a secret, which no format fits. What a cut left of a secret is found by
  the whole secret, seen in the whole text before.
- What the kernel derived from the real text does not follow from the masked one: keys, bindings, offsets in a reply, and
  where a text was cut. The first three are derived again; the shown text is marked as fixed, and a replay serves it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from kernel.loop import describe, estimate_tokens, message_tokens, step_line
from kernel.masking import PLACEHOLDER, SHORTEST_NAMED, Known, Masker, spellings
from kernel.parse import parse, parse_arguments
from kernel.record import (
    MAX_ATTEMPT_CHARS,
    MAX_REASON_CHARS,
    READ_RANGE,
    Attempt,
    Call,
    CallRecord,
    Chat,
    Decision,
    Message,
    Reply,
    Run,
    RunEnd,
    RunHead,
    Step,
    canonical_json,
    clipped,
    initial_messages,
    messages_after,
    result_text,
    texts_for,
)
from kernel.stores import approval_binding, idempotency_key
from kernel.tools import compiled_schema
from kernel.trace.pieces import moved, secrets_in, without_parts

T = TypeVar("T")
_FIXED_NAMES = frozenset({"run_id", "digest", "served_by", "conversation_id"})


class Scrubber:
    """Masks the records of one run, in the order in which they come. Without a masker it hands them on."""

    def __init__(self, masker: Masker | None) -> None:
        self.masker = masker
        self.known = Known()
        self._parts: dict[str, None] = {}  # secrets of texts that may be shown cut
        self._messages: dict[Message, Message] = {}  # those that differ, as a replay will make them
        self._lines: dict[str, str] = {}  # of condensed steps
        self._shortened: list[tuple[str, str]] = []
        self._effects = 0
        self._head = RunHead(agent="", task="", run_id="")

    def record(self, record: T) -> T:
        """A record with its secrets replaced; nearly always the very same object."""
        masker = self.masker
        if masker is None:
            return record
        plain = msgspec.to_builtins(record)
        masked, secrets = masker.mask_learning(plain)
        self.known.learn(secrets)
        masked = self.known.mask(masked)
        if masked is plain:
            return record
        _restore(masked, plain, type(record))
        return msgspec.convert(masked, type(record))

    def head(self, head: RunHead) -> RunHead:
        """The head of the run that begins."""
        masked = self._head = self.record(head)
        self._effects = 0
        if masked is head:
            return head
        return replace(masked, masked_tokens=self._note(initial_messages(head), initial_messages(masked)))

    def _note(self, real: Sequence[Message], masked: Sequence[Message]) -> int:
        """Remember messages that differ; by how many tokens the real ones are larger."""
        differing = [(one, other) for one, other in zip(real, masked, strict=True) if one != other]
        self._messages.update(differing)
        return sum(
            message_tokens(one, estimate_tokens) - message_tokens(other, estimate_tokens) for one, other in differing
        )

    @property
    def touched(self) -> bool:
        """Whether a message or a result of the conversation so far was changed."""
        return bool(self._messages or self._parts)

    def chat(self, chat: Chat) -> Chat:
        """The chat at its start. What steps added is masked as they were, so that it is stored once."""
        return replace(chat, new=tuple([self._messages.get(message) or self._other(message) for message in chat.new]))

    def _other(self, message: Message) -> Message:
        """A message that no step added: a task, or a summary of condensed steps, each on lines of its own."""
        lines = message.content.split("\n")
        if not self._lines or not any(line in self._lines for line in lines):
            return self.record(message)
        return replace(message, content="\n".join([self._lines.get(line) or self.record(line) for line in lines]))

    def hides(self, reply: Reply) -> Reply:
        """A reply whose text was masked, without the secrets that only show when it is read: what stands under a secret's name in the arguments of
        its calls, in whatever syntax they are written. The very same reply where there are none."""
        masker = self.masker
        if masker is None:
            return reply
        found: dict[str, str] = {}
        for args in _arguments(reply):
            found |= masker.mask_learning(args)[1]
        if not found:
            return reply
        self.known.learn(found)
        named = {secret: stand_in for secret, stand_in in found.items() if len(secret) >= SHORTEST_NAMED}
        return replace(
            reply,
            text=_replaced(reply.text, named),
            tool_calls=tuple([replace(c, arguments=_replaced(c.arguments, named)) for c in reply.tool_calls]),
        )

    def reply(self, chat: Chat) -> Chat:
        """The chat at its end."""
        masked = self.record(chat)
        if masked.reply is not None and (hidden := self.hides(masked.reply)) is not masked.reply:
            masked = replace(masked, reply=hidden)
        if not chat.attempts:
            return masked
        return replace(masked, attempts=tuple([self._attempt(attempt) for attempt in masked.attempts]))

    def attempt(self, attempt: Attempt) -> Attempt:
        """A failed attempt at a model call."""
        masked = self.record(attempt)
        return masked if masked is attempt else self._attempt(masked)

    def _attempt(self, attempt: Attempt) -> Attempt:
        return replace(attempt, message=self._short(attempt.message, MAX_ATTEMPT_CHARS))

    def _short(self, text: str, limit: int) -> str:
        """A masked text within the bound of the real one: a replay bounds it again."""
        short = clipped(text, limit)
        if short is not text:
            self._shortened.append((text, short))
        return short

    def asked(self, call: Call) -> Call:
        """A call as it was read."""
        return self._mended(call, self.record(call))

    def call(self, record: CallRecord, step: int, position: int) -> CallRecord:
        """A call with its result."""
        masked = self.record(record)
        if self._parts and record.call.name == READ_RANGE and isinstance(masked.result, str):
            masked = replace(masked, result=self._without_parts(masked.result))
        if masked is record:
            return record
        if masked.result != record.result:
            self._remember(result_text(record.result), result_text(masked.result))
        if masked.error is not None and record.error is not None:
            self._remember(record.error.message, masked.error.message)
        call = self._mended(record.call, masked.call)
        if call.fault != masked.call.fault and record.error is not None and record.call.fault is not None:
            part = call.fault.message if call.fault is not None else ""
            said = self._around(record.error.message, record.call.fault.message, part)
            masked = replace(masked, error=replace(masked.error or record.error, message=said))
        if call != record.call:
            masked = self._bound(masked, call, step, position)
        return replace(masked, call=call)

    def _remember(self, text: str, masked: str) -> None:
        self._parts.update(dict.fromkeys(secrets_in(text, masked)))

    def effect(self) -> None:
        """A side effect was called: idempotency keys may name its position among them."""
        self._effects += 1

    def _bound(self, record: CallRecord, call: Call, step: int, position: int) -> CallRecord:
        """What is bound to the real arguments, bound to the masked ones: the digest of a password would give it away."""
        if record.key is not None:
            spec = next((tool for tool in self._head.tools if tool.name == call.name), None)
            place = self._effects - 1 if spec is not None and spec.idempotency == "position" else None
            key = idempotency_key(self._head.run_id, call.name, canonical_json(call.args), place)
            record = replace(record, key=key)
        if record.approval is not None:
            binding = approval_binding(call.name, canonical_json(call.args), step, position)
            record = replace(record, approval=replace(record.approval, binding=binding))
        return record

    def _mended(self, real: Call, masked: Call) -> Call:
        """A call with its fault as the masked arguments give it: it may quote a value, cut, or name an offset."""
        if masked.fault is None:
            return masked
        if masked.fault.rule == "bad-args":
            spec = next((tool for tool in self._head.tools if tool.name == masked.name), None)
            found = (
                compiled_schema(canonical_json(spec.parameters)).check(masked.args).violations
                if spec is not None
                else ()
            )
            if not found:
                return masked
            texts = texts_for(self._head.language, self._head.texts)
            return replace(masked, fault=replace(masked.fault, message=describe(found, texts)))
        if real.raw is None or masked.raw is None:
            return masked
        return replace(masked, fault=moved(masked.fault, real.raw, masked.raw)[0])

    def step(self, step: Step, records: Sequence[CallRecord], reply: Reply | None) -> Step:
        """A step at its end, its calls as they were recorded, its reply as it was masked."""
        masked = self.record(replace(step, chat=None))
        masked = replace(masked, chat=None if step.chat is None else replace(step.chat, reply=reply))
        calls = []
        for real, other, done in zip(step.calls, masked.calls, records, strict=True):
            shown = other.shown
            if real.shown is not None:
                whole = real.shown if shown == real.shown else self._around(real.shown, *_quoted(real, done))
                shown = self._without_parts(whole)
            calls.append(
                replace(done, shown=shown, artifact=real.artifact, fixed=real.fixed or self._is_fixed(real, done))
            )
        masked = replace(masked, calls=tuple(calls))
        if masked.refusal is not None:
            masked = replace(masked, refusal=self._short(masked.refusal, MAX_REASON_CHARS))
        if step.feedback and step.refusal and masked.refusal:
            masked = replace(masked, feedback=self._around(step.feedback, step.refusal, masked.refusal))
        if masked.decision is not None and step.decision is not None:
            masked = self._decided(step, masked, step.decision, masked.decision)
        more = self._note(messages_after(step, self._head), messages_after(masked, self._head))
        masked = replace(masked, masked_tokens=more)
        if self._head.context.window_tokens is not None:
            texts = texts_for(self._head.language, self._head.texts)
            lines = (step_line(one, texts).split("\n") for one in (step, masked))
            self._lines.update(zip(*lines, strict=True))
        return masked

    def _decided(self, step: Step, masked: Step, real: Decision, decision: Decision) -> Step:
        """The decision with the calls as recorded, and its fault with offsets in the masked reply."""
        if masked.calls and len(masked.calls) == len(decision.calls):
            return replace(masked, decision=replace(decision, calls=tuple([record.call for record in masked.calls])))
        before, after = (one.chat.reply if one.chat is not None else None for one in (step, masked))
        if decision.fault is None or before is None or after is None or before.text == after.text:
            return masked
        fault, mend = moved(decision.fault, before.text, after.text)
        feedback = None if masked.feedback is None else mend(masked.feedback)
        return replace(masked, decision=replace(decision, fault=fault), feedback=feedback)

    def _is_fixed(self, real: CallRecord, masked: CallRecord) -> bool:
        """Whether what is shown may not follow from the masked record: some text of it is long enough to be cut."""
        if real.call.name == READ_RANGE and self._parts:
            return True
        if (real.result, real.error) == (masked.result, masked.error):
            return False
        limit = min(self._head.context.max_observation_chars // 2, 1000)
        return any(len(text) > limit for record in (real, masked) for text in _texts_of(record))

    def end(self, end: RunEnd) -> RunEnd:
        masked = self.record(end)
        for full, short in self._shortened:
            masked = replace(masked, detail=masked.detail.replace(full, short))
        return masked

    def _around(self, text: str, part: str, masked: str) -> str:
        """`text` with `masked` in place of `part`, as the kernel would put it there, and secrets around it replaced."""
        return masked.join([self.record(piece) for piece in text.split(part)]) if part else self.record(text)

    def _without_parts(self, text: str) -> str:
        return without_parts(text, self._parts)


_TELLING = re.compile(
    r"pass|pwd|secret|token|jwt|key|authori|cookie|credential|signature|\\u00|&#|密码|口令|密钥|令牌", re.IGNORECASE
)
"""What a reply holds that names a secret, or may spell a name so that no search of the text finds it."""


def may_name_a_secret(reply: Reply) -> bool:
    """Whether the arguments of a reply have to be read before it can be called clean."""
    return any(_TELLING.search(text) for text in (reply.text, *(call.arguments for call in reply.tool_calls)) if text)


def _arguments(reply: Reply) -> list[Any]:
    """The arguments of all calls in a reply, structured or in its text; one that cannot be read is none."""
    found: list[Any] = [parse_arguments(call.arguments)[0] for call in reply.tool_calls]
    if reply.text and _TELLING.search(reply.text):
        found += [call.args for call in parse(reply.text, finish_reason=reply.finish_reason).calls]
    return [args for args in found if args]


def _replaced(text: str, secrets: Mapping[str, str]) -> str:
    """`text` without values, in any of their spellings; the longest first, and none within a placeholder."""
    spelled = {written: stand_in for secret, stand_in in secrets.items() for written in spellings(secret)}
    pattern = "|".join([PLACEHOLDER.pattern, *(re.escape(w) for w in sorted(spelled, key=lambda w: (-len(w), w)))])
    return re.sub(pattern, lambda match: spelled.get(match[0], match[0]), text)


def masked_run(run: Run, masker: Masker) -> Run:
    """A whole run with its secrets replaced, as a recorder would have masked it."""
    scrubber = Scrubber(masker)
    head, steps = scrubber.head(run.head), []
    for step in run.steps:
        chat = step.chat
        if chat is not None:
            ended = scrubber.reply(chat)
            chat = replace(scrubber.chat(chat), reply=ended.reply, attempts=ended.attempts)
        records = []
        for position, record in enumerate(step.calls):
            if record.key is not None:
                scrubber.effect()
            records.append(scrubber.call(record, step.index, position))
        masked = scrubber.step(step, records, chat.reply if chat is not None else None)
        steps.append(replace(masked, chat=chat))
    return replace(run, head=head, steps=tuple(steps), end=None if run.end is None else scrubber.end(run.end))


def _quoted(real: CallRecord, masked: CallRecord) -> tuple[str, str]:
    """What the text for the model quotes of a call: its error or its result."""
    if real.error is not None and masked.error is not None and real.error.message in (real.shown or ""):
        return real.error.message, masked.error.message
    return result_text(real.result) if real.result is not None else "", result_text(masked.result)


def _texts_of(record: CallRecord) -> list[str]:
    texts = [record.shown or "", record.error.message if record.error is not None else ""]
    return [*texts, result_text(record.result) if record.result is not None else ""]


def _restore(masked: dict[str, Any], plain: dict[str, Any], kind: type) -> None:
    """Put back, in place, what the format defines: words of closed lists, ids and digests."""
    for name, inner in _fields(kind):
        if name not in plain:
            continue
        value = masked.get(name)
        if inner is None:
            masked[name] = plain[name]
        elif value is not plain[name]:
            if isinstance(value, dict):
                _restore(value, plain[name], inner)
            elif isinstance(value, (list, tuple)):
                for one, other in zip(value, plain[name], strict=True):
                    if one is not other:
                        _restore(one, other, inner)


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Fields that no rule may change (None), and fields that hold further structs."""
    found: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(kind).items():
        inner = [arg for arg in _flat(hint) if isinstance(arg, type) and issubclass(arg, msgspec.Struct)]
        if name in _FIXED_NAMES or any(get_origin(arg) is Literal for arg in _flat(hint)):
            found.append((name, None))
        elif inner:
            found.append((name, inner[0]))
    return tuple(found)


def _flat(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, UnionType, tuple, list):
        return [one for arg in get_args(hint) for one in _flat(arg)]
    return [hint]
