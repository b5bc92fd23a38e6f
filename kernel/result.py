"""The result of a run: what a user holds in hand when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kernel.masking import Masker
from kernel.record import Run, RunEnd, RunHead, Step, StopReason, Usage
from kernel.trace import masked_run

if TYPE_CHECKING:
    from kernel.tracing import Session


class RunResult(Struct, frozen=True, kw_only=True):
    """How a run ended. `answer` is there exactly when `ok`; a stopped run never gives half an answer.

    `trace_path` is the trace file, where one was written; `warnings` say what of the telemetry was lost.
    """

    ok: bool
    answer: str | None
    stop_reason: StopReason
    detail: str
    steps: tuple[Step, ...]
    usage: Usage
    cost_usd: float | None
    trace_id: str
    trace_path: Path | None
    warnings: tuple[str, ...]
    run: Run

    def __repr__(self) -> str:
        """Short: asyncio prints the results of tasks, and a run may be large."""
        return f"RunResult(stop_reason={self.stop_reason!r}, steps={len(self.steps)}, trace_id={self.trace_id!r})"

    def to_json(self, *, masker: Masker | None = None, mask: bool = True) -> str:
        """The whole run as one JSON document, which `replay` reads too.

        Secrets are masked as in a trace file: by `masker`, else by the default rules, and not at all with `mask=False`.
        """
        run = masked_run(self.run, masker or Masker.default()) if mask else self.run
        document = {
            "tracefirst": "run",
            "version": 1,
            "trace_id": self.trace_id,
            "ok": self.ok,
            "answer": run.end.answer if run.end is not None else None,
            "stop_reason": self.stop_reason,
            "run": msgspec.to_builtins(run),
        }
        return msgspec.json.encode(document).decode()


def result_of(
    head: RunHead,
    steps: Sequence[Step],
    end: RunEnd,
    trace_id: str,
    session: Session | None,
    warnings: Sequence[str] = (),
) -> RunResult:
    """The result of a run that ended, with what its session says of the telemetry."""
    told = [*warnings, *(session.warnings() if session is not None else ())]
    if end.alive:
        told.append(f"still running after the end of the run: {', '.join(end.alive)}")
    done = tuple(steps)
    return RunResult(
        ok=end.ok,
        answer=end.answer,
        stop_reason=end.stop_reason,
        detail=end.detail,
        steps=done,
        usage=end.usage,
        cost_usd=end.cost_usd,
        trace_id=trace_id,
        trace_path=session.path if session is not None else None,
        warnings=tuple(told),
        run=Run(head=head, steps=done, end=end),
    )
