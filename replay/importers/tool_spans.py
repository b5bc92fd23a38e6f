"""Tool calls as spans of other frameworks tell them, and which call of a reply each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kernel.record import ToolCall
from kernel.trace import Span
from replay.importers.link import canonical_arguments
from replay.importers.model import Result
from replay.importers.shapes import decoded, result_text
from replay.importers.spans import failure_of, first_text

_ARGS = (
    "gen_ai.tool.call.arguments", "tool_arguments", "ai.toolCall.args", "gcp.vertex.agent.tool_call_args",
    "input.value", "traceloop.entity.input", "gen_ai.prompt", "langfuse.observation.input",
)  # fmt: skip
_RESULTS = (
    "gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "gcp.vertex.agent.tool_response", "output.value",
    "traceloop.entity.output", "gen_ai.completion", "langfuse.observation.output",
)  # fmt: skip
_ENCODED_RESULTS = ("ai.toolCall.result", "traceloop.entity.output", "gen_ai.completion")


class ToolCallSpan(Struct, kw_only=True):
    """One tool call as a span tells it; `has_result` tells a missing result from an empty one; `error` and
    `message` are type and text of a failure."""

    span: Span
    name: str
    args: Any
    call_id: str
    result: Any
    has_result: bool
    error: str
    message: str


def read_tool_call(span: Span) -> ToolCallSpan:
    """What a span tells of a tool call."""
    attributes = span.attributes
    name = first_text(span, "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name") or span.name
    args = decoded(next((attributes[key] for key in _ARGS if attributes.get(key) is not None), None))
    key = next((key for key in _RESULTS if attributes.get(key) is not None), None)
    result = attributes[key] if key is not None else None
    if key in _ENCODED_RESULTS:
        result = decoded(result, 1)
        while isinstance(result, dict) and set(result) & {"output", "content"} and not isinstance(result, str):
            result = result.get("output", result.get("content"))
    failure = failure_of(span)
    return ToolCallSpan(
        span=span,
        name=name,
        args=args,
        call_id=first_text(span, "gen_ai.tool.call.id", "ai.toolCall.id"),
        result=result,
        has_result=key is not None,
        error=failure[0] if failure is not None else "",
        message=failure[1] if failure is not None else "",
    )


def result_of(tool: ToolCallSpan) -> Result | None:
    """The result that a tool span tells, or None."""
    if tool.error:
        return Result(value=result_text(tool.result) or tool.message, error=tool.error)
    return Result(value=result_text(tool.result)) if tool.has_result else None


class ToolSpans:
    """The tool calls of a trace, each taken once: by call id, else the first of that tool with equal arguments, else the
    only one of that tool that is left: some tracers wrap the arguments in their own objects."""

    def __init__(self, calls: Sequence[ToolCallSpan]) -> None:
        self._left = sorted(calls, key=lambda call: call.span.start_ns)

    def take(self, call: ToolCall, after_ns: int) -> ToolCallSpan | None:
        args = canonical_arguments(call.arguments)
        fitting = [t for t in self._left if t.name == call.name and t.span.start_ns >= after_ns]
        by_id = [t for t in fitting if t.call_id and t.call_id == call.id]
        by_args = [t for t in fitting if not t.call_id and (t.args is None or canonical_arguments(t.args) == args)]
        only = fitting if len(fitting) == 1 and not fitting[0].call_id else []
        found = next(iter([*by_id, *by_args, *only]), None)
        if found is not None:
            self._left.remove(found)
        return found

    def between(self, start_ns: int, until_ns: int | None) -> list[ToolCallSpan]:
        """The calls left that began in a time, taken."""
        found = [
            t for t in self._left if start_ns <= t.span.start_ns and (until_ns is None or t.span.start_ns < until_ns)
        ]
        self._left = [t for t in self._left if t not in found]
        return found
