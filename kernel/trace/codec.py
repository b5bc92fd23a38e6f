"""The codec: a `Run` as spans, and spans as a `Run`. `decode_run(encode_run(run, ...)) == run`, also when cut short.

A run is one `invoke_agent` span; under it a `step` span a step; under that one `chat` and an `execute_tool` a call.
Order and identity come from `tracefirst.step.index` and `tracefirst.call.position`, never from times. A message is
stored once: what a step's reply and results added to the conversation is not written again with the next request; the
number of such messages is in `tracefirst.request.carried`. Each finished span is sealed, see `kernel.trace.sealing`.
"""

from __future__ import annotations

from kernel.trace.attributes import Problem
from kernel.trace.decode import decode_run
from kernel.trace.encode import (
    attempt_event,
    call_attributes,
    call_end_attributes,
    call_name,
    chat_attributes,
    chat_end_attributes,
    effect_begun_event,
    effects_of,
    encode_run,
    end_attributes,
    finish_span,
    head_attributes,
    span_name,
    step_attributes,
    step_end_attributes,
)
from kernel.trace.sealing import seal

__all__ = [
    "Problem",
    "attempt_event",
    "call_attributes",
    "call_end_attributes",
    "call_name",
    "chat_attributes",
    "chat_end_attributes",
    "decode_run",
    "effect_begun_event",
    "effects_of",
    "encode_run",
    "end_attributes",
    "finish_span",
    "head_attributes",
    "seal",
    "span_name",
    "step_attributes",
    "step_end_attributes",
]
