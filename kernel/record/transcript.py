"""Which messages a run adds to the conversation: before its first step, and after each.

Pure functions of the record, used by the loop to build requests and by the codec to store each message once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from itertools import chain, count

import msgspec

from kernel.record.canonical import canonical_json, compact_json
from kernel.record.messages import Message, ToolCall, ToolSpec
from kernel.record.run import CallRecord, RunHead, Step
from kernel.record.texts import Texts, texts_for

FINISH = "finish"
READ_RANGE = "read_range"


def initial_messages(head: RunHead) -> tuple[Message, ...]:
    """The system prompt (first turn only, where there is one) and the task."""
    texts = texts_for(head.language, head.texts)
    task = head.task
    if head.notes:
        task += "\n\n" + texts.say("notes", notes="\n".join(f"- {note}" for note in head.notes))
    user = Message(role="user", content=task)
    if head.turn > 1:
        return (user,)
    system = system_prompt(head, texts)
    return (Message(role="system", content=system), user) if system else (user,)


def system_prompt(head: RunHead, texts: Texts) -> str:
    """The user's instructions, then what the protocol needs the model to know."""
    parts = [head.system] if head.system else []
    if head.protocol == "text":
        parts.append(texts.say("system.text", tools=render_tools(head.tools)))
    elif head.require_finish:
        parts.append(texts.say("system.tools.finish"))
    return "\n\n".join(parts)


def render_tools(tools: tuple[ToolSpec, ...]) -> str:
    """One line a tool with its schema, for models that get no structured tools."""
    lines = []
    for tool in tools:
        returns = f" Returns: {tool.returns}" if tool.returns else ""
        lines.append(f"- {tool.name}: {tool.description}{returns}\n  args: {compact_json(tool.parameters)}")
    return "\n".join(lines)


def finish_spec(texts: Texts) -> ToolSpec:
    """The tool by which a function-calling model ends the run, offered where the agent insists on it."""
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    return ToolSpec(name=FINISH, description=texts.say("finish.description"), parameters=schema)


def offered_tools(head: RunHead) -> tuple[ToolSpec, ...]:
    """The structured tools of a request: none in the text protocol."""
    if head.protocol == "text":
        return ()
    return (*head.tools, finish_spec(texts_for(head.language, head.texts))) if head.require_finish else head.tools


def identified(calls: tuple[ToolCall, ...], step: int, taken: Container[str]) -> tuple[ToolCall, ...]:
    """Structured calls with an id each: a missing one, or one used twice in the same reply, is made up from step and position.

    What is made up is none of `taken`, the ids of the conversation so far. Nearly always the very same tuple.
    """
    if len(calls) == 1 and calls[0].id:
        return calls
    given = [call.id for call in calls]
    own = set(given)
    if len(own) == len(given) and "" not in own:
        return calls
    seen: set[str] = set()
    out = []
    for position, call in enumerate(calls):
        if not call.id or call.id in seen:
            name = f"call_{step}_{position}"
            again = (f"{name}_{number}" for number in count(2))
            free = next(made for made in chain((name,), again) if made not in own and made not in taken)
            own.add(free)
            call = ToolCall(name=call.name, arguments=call.arguments, id=free)
        seen.add(call.id)
        out.append(call)
    return tuple(out)


def result_text(result: object) -> str:
    """A recorded result as text: a string as it is, anything else as compact JSON."""
    return result if isinstance(result, str) else compact_json(result)


def shown_text(record: CallRecord) -> str:
    """What the model sees of a call: the text made for it, else why it was refused, else its result."""
    if record.shown is not None:
        return record.shown
    if record.result is None and record.error is not None:
        return record.error.message
    return result_text(record.result)


def messages_after(step: Step, head: RunHead) -> tuple[Message, ...]:
    """What a finished step adds: the reply, an observation a call in call order, the kernel's feedback."""
    reply = step.chat.reply if step.chat is not None else None
    if reply is None:
        return ()
    feedback = step.feedback
    out: list[Message] = []
    if reply.tool_calls:
        out.append(Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls))
        for position, call in enumerate(reply.tool_calls):
            if position < len(step.calls):
                content = shown_text(step.calls[position])
            else:
                content, feedback = feedback or "", None
            out.append(Message(role="tool", content=content, tool_call_id=call.id, name=call.name))
    else:
        if reply.text.strip():
            end = step.decision.end if step.decision is not None else None
            out.append(Message(role="assistant", content=reply.text if end is None else reply.text[:end].rstrip()))
        if step.calls:
            texts = texts_for(head.language, head.texts)
            shown = "\n".join(shown_text(record) for record in step.calls)
            out.append(Message(role="user", content=texts.say("observation", text=shown)))
    if feedback is not None:
        out.append(Message(role="user", content=feedback))
    return tuple(out)


_encode_message = msgspec.json.Encoder().encode


class RequestDigest:
    """Rolling digest of requests: each message is hashed once, the first `kept` of the last request are not hashed again.

    chain(n) = BLAKE2b-8(chain(n-1) + message n); the digest is BLAKE2b-8(chain + tools and parameters).
    """

    __slots__ = ("_chain", "_fixed")

    def __init__(self) -> None:
        self._chain = [b""]
        self._fixed = b""

    def begin(self, head: RunHead) -> None:
        """Take the tools and parameters of the run that sends the next requests."""
        params = head.params  # a whole number that is given as int is read back as float, and is the same number
        numbers = {name: float(v) for name in _FLOATS if (v := getattr(params, name)) is not None}
        sent = msgspec.to_builtins(msgspec.structs.replace(params, **numbers))
        fixed = canonical_json([sent, [_seen(tool) for tool in offered_tools(head)]])
        self._fixed = hashlib.blake2b(fixed.encode(), digest_size=8).digest()

    def extend(self, kept: int, new: tuple[Message, ...], bound: int | None = None) -> str:
        """Digest, in hex, of the request that keeps `kept` messages and adds `new`, with its own bound on the reply if it has
        one."""
        chain = self._chain
        del chain[kept + 1 :]
        last = chain[-1]
        for message in new:
            last = hashlib.blake2b(last + _encode_message(message), digest_size=8).digest()
            chain.append(last)
        fixed = self._fixed if bound is None else self._fixed + str(bound).encode()
        return hashlib.blake2b(last + fixed, digest_size=8).hexdigest()


_FLOATS = ("temperature", "top_p")


def _seen(tool: ToolSpec) -> list[object]:
    """What a model sees of a tool; `returns` is a part of its description."""
    return [tool.name, tool.description, tool.parameters, *([tool.returns] if tool.returns else [])]
