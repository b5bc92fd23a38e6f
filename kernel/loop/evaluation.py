"""Evaluate: what a reply means. A total function of reply and tool schemas to a `Decision`; it never raises.

Structured calls come first; text is parsed where there are none, in both protocols. A reply that was cut off, filtered
or refused is a fault whatever it holds: nothing of it is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from unicodedata import category

from msgspec import Struct

from kernel.parse import ParsedCall, ParseFault, is_marked, parse, parse_arguments
from kernel.record import (
    FINISH,
    READ_RANGE,
    Call,
    Decision,
    Fault,
    Protocol,
    Reading,
    Reply,
    Texts,
    ToolCall,
    compact_json,
    parse_json,
    to_jsonable,
    valid_text,
)
from kernel.tools import ABSENT, Tool, Violation

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
_FILTERED = frozenset(
    {
        "content_filter",
        "content_filtered",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "sensitive",
    }
    | {"guardrail_intervened"}
)
"""What providers call these two ends, in lower case with underscores."""
_FAILED = re.compile(r"error|fail|malformed", re.IGNORECASE)
_FINISH_NAMES = (FINISH, "final_answer")
_FINISH_FAULTS = ("blank-finish", "finish-arguments")
_MAX_VALUE_CHARS = 200
_INVENTED = re.compile(r"^[ \t>*_#]{0,8}(?:observation|观察)[^\n:：]{0,16}[:：]", re.IGNORECASE | re.MULTILINE)


class Rules(Struct, frozen=True, kw_only=True):
    """What a reply is read against."""

    protocol: Protocol
    tools: Mapping[str, Tool]
    texts: Texts
    require_finish: bool = False


def evaluate(reply: Reply, rules: Rules, bound: str = "") -> Decision:
    """Read a reply as calls, a finish or a fault. `bound` names the limit by which it may have been cut off."""
    if reply.reading is not None:
        return _as_read(reply, reply.reading)
    say = rules.texts.say
    thought = reply.reasoning or ""
    ended = (reply.finish_reason or "").lower().replace("-", "_")
    if reply.refusal is not None and (reply.refusal.strip() or ended == "refusal"):
        return _fault("refusal", say("fault.refusal", text=reply.refusal), thought)
    if ended == "refusal":
        return _fault("refusal", say("fault.refusal", text=reply.text), thought)
    if ended in _CUT:
        return _fault("cut-off", say("fault.length", bound=f" ({bound})" if bound else ""), thought)
    if ended in _FILTERED:
        return _fault("filtered", say("fault.filter"), thought)
    if reply.tool_calls and _FAILED.search(ended):
        return _fault("provider-refused", say("fault.provider", reason=reply.finish_reason), thought)
    if reply.tool_calls:
        return _structured(reply, rules)
    if not _is_visible(reply.text):
        return _fault("blank", say("fault.blank"), thought)
    return _text(reply, rules)


def _as_read(reply: Reply, reading: Reading) -> Decision:
    """What another program did with a reply. Its arguments are not checked: they have been used."""
    thought = valid_text(reply.text.strip() or reply.reasoning or "")
    if reading.complaint is not None:
        return _fault("source", reading.complaint, thought)
    if reading.answer is not None:
        return Decision(kind="finish", answer=valid_text(reading.answer), family="source")
    return Decision(
        kind="calls", thought=thought, family="source", calls=tuple(map(_ran, reply.tool_calls or reading.calls))
    )


def _ran(call: ToolCall) -> Call:
    args: Any = None
    with suppress(ValueError):
        args = parse_json(call.arguments)
    if not isinstance(args, dict):
        return Call(name=call.name, id=call.id, raw=valid_text(call.arguments))
    args = _clean(args, call.arguments)
    raw = call.arguments if call.arguments != compact_json(args) else None
    return Call(name=call.name, args=args, id=call.id, raw=raw)


def _fault(rule: str, message: str, thought: str = "", position: int = -1) -> Decision:
    fault = Fault(rule=rule, message=valid_text(message), position=position)
    return Decision(kind="fault", thought=valid_text(thought), fault=fault)


def fault_text(fault: Fault, rules: Rules) -> str:
    """What the model is told of a reply that could not be read, with an example that it may follow to the letter: a call that
    the tool's own schema takes, or a finish where that was tried or no tool can be shown."""
    if fault.rule == "source":
        return fault.message
    finishing = fault.rule in _FINISH_FAULTS
    if rules.protocol == "tools":
        key = "fault.tools.finish" if finishing or rules.require_finish else "fault.tools"
        return rules.texts.say(key, message=fault.message)
    name, args = FINISH, {"answer": rules.texts.say("fault.example.answer")}
    if not finishing:
        name, args = next(_examples(rules), (name, args))
    return rules.texts.say("fault.text", message=fault.message, tool=name, args=compact_json(args)[1:-1])


def _examples(rules: Rules) -> Iterator[tuple[str, dict[str, Any]]]:
    """A call of each tool that one can be made up for, those that only read first."""
    for tool in sorted(rules.tools.values(), key=lambda tool: tool.spec.side_effect):
        if tool.name != READ_RANGE and (args := tool.schema.example()) is not None:
            yield tool.name, args


def _is_visible(text: str) -> bool:
    """Whether a text holds anything to see: zero-width and control characters alone are as blank as spaces."""
    return any(not (c.isspace() or category(c) in ("Cc", "Cf")) for c in text)


def _structured(reply: Reply, rules: Rules) -> Decision:
    thought = reply.text.strip() or reply.reasoning or ""
    calls = reply.tool_calls
    if len(calls) == 1 and calls[0].name == FINISH and FINISH not in rules.tools:
        args, _, fault = parse_arguments(calls[0].arguments)
        if fault is not None or args is None:
            message = _said(fault, rules) if fault is not None else rules.texts.say("fault.blank_finish")
            return _fault("finish-arguments", message, thought)
        return _finish(args, thought, "structured", rules)
    return Decision(
        kind="calls", thought=thought, family="structured", calls=tuple([_read_call(call, rules) for call in calls])
    )


def _read_call(call: ToolCall, rules: Rules) -> Call:
    if call.name == FINISH and FINISH not in rules.tools:
        alone = Fault(rule="finish-not-alone", message=rules.texts.say("fault.finish_alone"))
        return Call(name=call.name, id=call.id, raw=valid_text(call.arguments), fault=alone)
    args: Any = None
    repaired, fault, compact = False, None, ""
    with suppress(ValueError):
        args = parse_json(call.arguments)
    if not isinstance(args, dict):
        args, repaired, fault = parse_arguments(call.arguments)
    elif (compact := compact_json(args)) == call.arguments and "\\u" not in compact:
        return checked(call.name, args, rules, id=call.id, raw=None, repaired=False)
    elif call.arguments.count(":") != compact.count(":") or "\\u" in call.arguments:
        args, repaired, fault = parse_arguments(call.arguments)  # a key may have been given twice
        compact = ""
    if fault is not None or args is None:
        message = _said(fault, rules) if fault is not None else ""
        position = fault.position if fault is not None else -1
        found = Fault(rule=fault.rule if fault is not None else "not-an-object", message=message, position=position)
        return Call(name=call.name, id=call.id, raw=valid_text(call.arguments), fault=found)
    args = _clean(args, call.arguments)
    raw = call.arguments if call.arguments != (compact or compact_json(args)) else None
    return checked(call.name, args, rules, id=call.id, raw=raw, repaired=repaired)


def checked(name: str, args: dict[str, Any], rules: Rules, *, id: str, raw: str | None, repaired: bool) -> Call:
    """A call with its arguments completed, coerced and validated; what does not fit becomes its fault."""
    tool = rules.tools.get(name)
    if tool is None:
        return Call(name=name, args=args, id=id, raw=raw, repaired=repaired)
    if not repaired and tool.schema.is_complete(args):
        return Call(name=name, args=args, id=id, raw=raw)
    result = tool.schema.check(args, guess=not tool.spec.side_effect)
    fault = None
    if result.violations:
        fault = Fault(rule="bad-args", message=describe(result.violations, rules.texts))
    elif repaired and tool.spec.side_effect:
        fault = Fault(rule="repaired", message=rules.texts.say("tool.repaired", name=name))
    used = result.args if isinstance(result.args, dict) else args
    if raw is None and used is not args:
        raw = compact_json(args)
    return Call(name=name, args=used, id=id, raw=raw, repaired=repaired, coerced=result.coerced, fault=fault)


def _said(fault: ParseFault, rules: Rules) -> str:
    """The parser's finding in the language of the run."""
    return rules.texts.say(f"fault.parse.{fault.rule}", message=fault.message)


def describe(violations: tuple[Violation, ...], texts: Texts) -> str:
    """One line a violation: path, value, what was expected, the allowed values."""
    lines = []
    for violation in violations:
        expected = violation.expected_zh if texts.language == "zh" else violation.expected
        allowed = ""
        if violation.allowed:
            allowed = texts.say("tool.allowed", values=_short(list(violation.allowed)))
        key = "tool.missing" if violation.value is ABSENT else "tool.problem"
        lines.append(
            texts.say(
                key, path=violation.path or "/", value=_short(violation.value), expected=expected, allowed=allowed
            )
        )
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = compact_json(to_jsonable(value))
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


def _text(reply: Reply, rules: Rules) -> Decision:
    parsed = parse(reply.text, finish_reason=reply.finish_reason, tool_names=rules.tools)
    calls = parsed.calls
    if rules.protocol == "tools":
        # A plain answer may quote code or JSON: only what names a real tool, or insists on being a call, is one.
        if calls and not _insists(calls[0], rules):
            calls = ()
        if not calls and _FAILED.search(reply.finish_reason or ""):
            return _fault(
                "provider-refused", rules.texts.say("fault.provider", reason=reply.finish_reason), parsed.thought
            )
        if not calls and (parsed.fault is None or not _is_attempt(reply.text, parsed.fault, rules)):
            return _plain_answer(parsed.visible, rules)
    if not calls:
        fault = parsed.fault
        if fault is None or fault.rule == "no-action":
            return _fault("no-action", rules.texts.say("fault.no_action"), parsed.thought)
        return _fault(fault.rule, _said(fault, rules), parsed.thought, fault.position)
    first = calls[0]
    ignored = tuple(valid_text(call.name) for call in calls[1:])
    if first.name.lower() in _FINISH_NAMES and first.name not in rules.tools:
        return _finish(first.args, first.thought, first.family, rules, ignored)
    args = _clean(first.args, reply.text)
    call = checked(valid_text(first.name), args, rules, id="", raw=None, repaired=first.repaired)
    invented = _INVENTED.search(reply.text, first.end)
    return Decision(
        kind="calls",
        thought=valid_text(first.thought),
        calls=(call,),
        ignored=ignored,
        end=invented.start() if invented is not None else None,
        family=first.family,
        intent=None if first.intent is None else valid_text(first.intent),
        estimated_cost=first.estimated_cost,
    )


def _insists(call: ParsedCall, rules: Rules) -> bool:
    """Whether a reading is a call that was made, not part of an answer: a code block never is, and a form that answers have
    too only where it names a real tool."""
    if call.family == "codeblock":
        return False
    known = call.name in rules.tools or call.name.lower() in _FINISH_NAMES
    return known or call.family not in ("json", "react", "pythonic")


def _is_attempt(text: str, fault: ParseFault, rules: Rules) -> bool:
    """Whether a text that could not be read as calls was meant as one, rather than as an answer that shows code or JSON:
    it holds a model's own call marks, or a tool's name as calls write it."""
    if fault.rule in ("no-action", "several-blocks"):
        return False
    if (
        fault.rule in ("thinking-only", "cut-off")
        or (fault.rule == "missing-arguments" and rules.tools)
        or is_marked(text)
    ):
        return True
    return any(
        f"{before}{name}{after}" in text
        for name in (*rules.tools, *_FINISH_NAMES)
        for before, after in (('"', '"'), ("'", "'"), ("“", "”"), ("", "("), ("", "["), ("Action: ", ""))
    )


def _plain_answer(visible: str, rules: Rules) -> Decision:
    answer = visible.strip()
    if not _is_visible(answer):
        return _fault("blank", rules.texts.say("fault.blank"))
    if rules.require_finish:
        return _fault("no-action", rules.texts.say("fault.no_action"), answer)
    return Decision(kind="finish", answer=answer, family="plain")


def _finish(args: dict[str, Any], thought: str, family: str, rules: Rules, ignored: tuple[str, ...] = ()) -> Decision:
    values = list(args.values())
    value = args.get("answer", values[0] if len(values) == 1 else (args or ""))
    value = "" if value is None else value
    answer = value.strip() if isinstance(value, str) else compact_json(to_jsonable(value))
    if not _is_visible(answer):
        return _fault("blank-finish", rules.texts.say("fault.blank_finish"), thought)
    return Decision(
        kind="finish", thought=valid_text(thought), answer=valid_text(answer), family=family, ignored=ignored
    )


def _clean(args: dict[str, Any], source: str) -> dict[str, Any]:
    """Arguments as valid Unicode. The source is that already, so only an escape can have made a lone surrogate."""
    return dict(to_jsonable(args)) if "\\u" in source else args
