"""The trace as a witness beside the ledger: what it shows done is not done again, what it shows begun is unknown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kernel.record import CallRecord, Run, canonical_json, compact_json, digest
from kernel.stores import Entry, Ledger, State
from kernel.tools import DIED
from replay.play.doubles import ran


class WitnessLedger:
    """The ledger of a run that is resumed. Keys that its trace knows are answered by the trace, whatever the ledger says;
    all others by the ledger.

    A tool in `allow` may be run again though it was begun: its user has looked at the outside world.
    """

    def __init__(self, ledger: Ledger, run: Run, allow: Collection[str] = ()) -> None:
        self._ledger = ledger
        self._allow = frozenset(allow)
        self._known: dict[str, Entry] = {}
        for step in run.steps:
            for record in step.calls:
                if record.key is not None and ran(record) and record.outcome not in ("denied", "duplicate"):
                    self._known[record.key] = _entry(run.head.run_id, record)

    def begin(self, key: str, *, run_id: str, tool: str, args_digest: str) -> Entry:
        known = self._known.get(key)
        if known is None:
            return self._ledger.begin(key, run_id=run_id, tool=tool, args_digest=args_digest)
        if known.state == "done" or tool not in self._allow:
            return known
        del self._known[key]  # allowed once: from here on the ledger knows better
        entry = self._ledger.begin(key, run_id=run_id, tool=tool, args_digest=args_digest)
        if entry.state == "started":
            self._ledger.abandon(key)
            entry = self._ledger.begin(key, run_id=run_id, tool=tool, args_digest=args_digest)
        return entry

    def finish(self, key: str, outcome: str, result: str) -> None:
        self._ledger.finish(key, outcome, result)

    def abandon(self, key: str) -> None:
        self._ledger.abandon(key)

    def unfinished(self) -> tuple[Entry, ...]:
        begun = tuple(entry for entry in self._known.values() if entry.state == "started")
        known = {entry.key for entry in begun}
        return (*begun, *(entry for entry in self._ledger.unfinished() if entry.key not in known))


def _entry(run_id: str, record: CallRecord) -> Entry:
    """What the trace knows of the key of a call."""
    assert record.key is not None
    state: State = "started"
    entry = Entry(
        key=record.key,
        state=state,
        run_id=run_id,
        tool=record.call.name,
        args_digest=digest(canonical_json(record.call.args)),
    )
    if record.outcome == "ok":
        return replace(entry, state="done", outcome="ok", result=compact_json(record.result))
    if record.outcome == "error" and record.error is not None and record.error.type != DIED:
        kept = {"type": record.error.type, "message": record.error.message}
        return replace(entry, state="done", outcome="error", result=compact_json(kept))
    return entry
