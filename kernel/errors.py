"""The errors a user of the kernel can meet.

    TracefirstError
    ├── ConfigError      a budget, policy, tool or file of settings that cannot work: raised before anything runs
    ├── ModelError       one attempt at a model call failed (raised by a `Model`, read by the retry rule)
    └── TraceError       a trace that cannot be read as one

All of them pickle, and carry their facts as attributes.
"""

from __future__ import annotations

from typing import Any


class TracefirstError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(TracefirstError):
    """Settings that cannot work; the message names the setting and the remedy."""


class ModelError(TracefirstError):
    """One attempt at a model call failed.

    Args:
        kind: `rate_limited`, `server`, `transport`, `timeout`, `bad_response`, `rejected` or `auth`.
        status: HTTP status, where there was one.
        retry_after_s: seconds the server asked to wait.
        retryable: whether the same request may succeed later.
        input_tokens: what the attempt was charged, where that is known; else it is estimated where it may have been.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "transport",
        status: int | None = None,
        retry_after_s: float | None = None,
        retryable: bool = True,
        input_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.retryable = retryable
        self.input_tokens = input_tokens

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "kind": self.kind,
            "status": self.status,
            "retry_after_s": self.retry_after_s,
            "retryable": self.retryable,
            "input_tokens": self.input_tokens,
        }
        return (_rebuild_model_error, (self.message, state))


def _rebuild_model_error(message: str, state: dict[str, Any]) -> ModelError:
    return ModelError(message, **state)


class TraceError(TracefirstError):
    """A trace that cannot be read; the message names the file, the place and the remedy."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None, span_id: str | None = None):
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.span_id = span_id

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_trace_error, (self.message, self.file, self.line, self.span_id))


def _rebuild_trace_error(message: str, file: str | None, line: int | None, span_id: str | None) -> TraceError:
    return TraceError(message, file=file, line=line, span_id=span_id)
