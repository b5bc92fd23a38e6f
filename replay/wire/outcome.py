"""The outcome of a replay at the wire: as the document of `--format json`, and as text for people."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator
from typing import Any

from replay.play import Divergence
from replay.report import View, contrast, line, literal
from replay.wire.differing import CAUSES
from replay.wire.player import Account, Found
from replay.wire.stored import Book

COMPARED = ("requests", "results")
UNSEEN = "model traffic only: what else the program does, and the results of its last calls, are not seen here"
_MEANINGS = {
    "same": "the program asked for what was recorded, and for nothing else",
    "drifted": "the model was asked something else, and calls and results are as they were recorded",
    "diverged": "the program did not do what was recorded",
    "not_checked": "nothing was compared, so nothing is known",
}
_STYLES = {"same": "good", "drifted": "warn", "diverged": "bad", "not_checked": "bad"}
_AT_MOST = 3


def account_document(book: Book, account: Account, program_exit: int | None = None) -> dict[str, Any]:
    """One replay as JSON: the keys of a kernel's replay, then those of the wire."""
    runs = [recorded.run for recorded in book.recording.runs] if book.recording is not None else []
    last = runs[-1].end if runs else None
    stop = last.stop_reason if last is not None else None
    return {
        "trace_id": book.trace_id,
        "agent": book.agent,
        "verdict": account.verdict,
        "ran_with": "program",
        "stop_reason": {"recorded": stop, "replayed": stop if account.verdict == "same" else None},
        "steps": {"recorded": sum(len(run.steps) for run in runs), "replayed": account.steps},
        "served": {"model": account.served, "tools": 0},
        "unused": {"model": account.unused, "tools": 0},
        "live": 0,
        "divergences": [_divergence(found) for found in account.found],
        "replay_trace_id": None,
        "file": book.file,
        "turns": len(runs),
        "why_not": account.why_not or None,
        "compared": list(COMPARED) if account.verdict != "not_checked" else [],
        "exchanges": len(book.exchanges),
        "refused": account.refused,
        "ambiguous": account.ambiguous,
        "program_exit": program_exit,
        "recorded_at": _when(book.recorded_ns),
        "notes": [UNSEEN],
        "rules": [
            {"name": rule.name, "path": rule.path, "pattern": rule.pattern, "matched": matched}
            for rule, matched in account.rules
        ],
    }


def _divergence(found: Found) -> dict[str, Any]:
    plain: dict[str, Any] = {name: getattr(found.divergence, name) for name in Divergence.__struct_fields__}
    return plain | {"exchange": found.exchange}


def _when(at_ns: int) -> str:
    return dt.datetime.fromtimestamp(at_ns / 1e9, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ns else ""


def outcome_lines(book: Book, account: Account, view: View, program_exit: int | None = None) -> Iterator[str]:
    """The report of one replay: the first difference, the verdict with its evidence, the next command."""
    if account.found and account.verdict != "not_checked":
        yield from _leading(book, account, view)
        yield ""
    word = view.paint(_STYLES[account.verdict], f"{account.verdict.upper():<8}")
    meaning = line(account.why_not, 4 * view.columns) or _MEANINGS[account.verdict]
    yield f"{word}  {literal(book.file)}: {meaning}"
    counts = f"{account.served} of {len(book.exchanges)} recorded exchanges served, {account.unused} unused"
    yield _field("served", f"{counts}; {account.refused} refused; live 0", view)
    if account.ambiguous:
        told = f"{account.ambiguous} requests equal others with another answer; served in the order of the recording"
        yield _field("ambiguous", told, view)
    yield _field("compared", ", ".join(COMPARED), view)
    for rule, matched in account.rules:
        yield _field("rule", line(f"{rule} (matches in the recording: {matched})", 4 * view.columns), view)
    yield _field("not seen", UNSEEN, view)
    if program_exit:
        yield _field("program", f"ended with exit status {program_exit}", view)
    yield _field("recorded", _when(book.recorded_ns), view)
    if account.found:
        yield view.paint("quiet", "next  ") + _next(book, account)


def _leading(book: Book, account: Account, view: View) -> Iterator[str]:
    first = account.found[0]
    style = "warn" if account.verdict == "drifted" else "bad"
    head = view.paint(style, view.paint("strong", account.verdict.upper()))
    yield f"{head}  {literal(book.file)}, {_place(first)}"
    recorded, observed, remark = contrast(
        first.divergence.recorded, first.divergence.observed, max(20, view.columns - 12)
    )
    yield _field("recorded", recorded, view, style="good")
    yield _field("replayed", observed, view, style="bad")
    if remark:
        yield _field("", f"({remark})", view)
    yield _field("cause", f"{first.divergence.cause}: {CAUSES.get(first.divergence.cause, '')}".rstrip(": "), view)
    rest = account.found[1:]
    apart = [found for found in rest if not found.divergence.downstream]
    for other in rest if view.verbose else apart[:_AT_MOST]:
        yield _field("also" if not other.divergence.downstream else "follows", _place(other), view)
    if follow := sum(found.divergence.downstream for found in rest):
        yield _field("then", f"{follow} further differences follow (--verbose lists them)", view)


def _place(found: Found) -> str:
    at = found.divergence
    parts = [f"exchange {found.exchange}"] if found.exchange else []
    if at.step:
        parts.append(f"turn {at.turn}, step {at.step}" if at.turn > 1 else f"step {at.step}")
    parts.append(f"{at.kind} {literal(at.path)}")
    return ", ".join(parts) + (f", span {at.span_id}" if at.span_id else "")


def _field(label: str, text: str, view: View, *, style: str = "quiet") -> str:
    return f"  {view.paint(style, f'{label:<9}')} {text}".rstrip()


def _next(book: Book, account: Account) -> str:
    first = account.found[0].divergence
    several = book.recording is not None and len(book.recording.runs) > 1
    turn = f" --turn {first.turn}" if several and first.step else ""
    return f"replay show {literal(shlex.quote(book.file))}{turn}" + (f" --step {first.step}" if first.step else "")
