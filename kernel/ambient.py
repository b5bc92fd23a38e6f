"""The caller's trace, and ours as the ambient one around user code. Costs nothing where OpenTelemetry is not in use.

Only the API is touched, and only if the process has imported it: without it there can be no caller's trace to join.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar, Token as VarToken
from types import MappingProxyType
from typing import Any, NamedTuple

outgoing_headers: ContextVar[Mapping[str, str]] = ContextVar(
    "tracefirst_outgoing_headers", default=MappingProxyType({})
)
"""Headers that a model client adds to its requests: `traceparent` of the span that waits for the answer."""


class Token(NamedTuple):
    """What `detach` needs to undo an `attach`."""

    headers: VarToken[Mapping[str, str]]
    context: Any


class Parent(NamedTuple):
    """The span that was current where a run started. `sampled` and `state` are handed on with the trace."""

    trace_id: str
    span_id: str
    sampled: bool = True
    state: Any = None


def current_parent() -> Parent | None:
    """The span that is current: of OpenTelemetry, where it is in use, else of a run that this code was called in."""
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace is not None else None
    if context is None or not context.is_valid:
        ours = outgoing_headers.get().get("traceparent")
        return Parent(ours[3:35], ours[36:52], ours.endswith("1")) if ours is not None else None
    sampled = bool(context.trace_flags & 1)
    return Parent(f"{context.trace_id:032x}", f"{context.span_id:016x}", sampled, context.trace_state)


def attach(trace_id: str, span_id: str, parent: Parent | None = None) -> Token:
    """Make our span current in this task or thread; user code runs next. Undo with `detach` in the same frame.

    `parent` is the caller's span: its sampling decision and trace state hold below ours as well.
    """
    sampled = parent is None or parent.sampled
    headers = outgoing_headers.set({"traceparent": f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"})
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return Token(headers, None)
    from opentelemetry import context as otel_context

    flags, state = trace.TraceFlags(sampled), None if parent is None else parent.state
    ours = trace.SpanContext(int(trace_id, 16), int(span_id, 16), False, flags, state)
    current = trace.set_span_in_context(trace.NonRecordingSpan(ours))
    return Token(headers, otel_context.attach(current))


def detach(token: Token) -> None:
    """Undo `attach`."""
    try:
        outgoing_headers.reset(token.headers)
    except ValueError:  # the frame ends in another context than it began in: that one is gone with what was set in it
        return
    if token.context is not None:
        from opentelemetry import context as otel_context

        otel_context.detach(token.context)
