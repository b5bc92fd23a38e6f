"""The outcome of a replay as text for people: a function of the result alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from kernel.record import Run, RunEnd
from replay.play import DRIFT, Divergence, Recording, ReplayResult
from replay.report.contrasts import contrast
from replay.report.documents import Emitted, last_stop, layers_of, step_count
from replay.report.literals import cut, line, literal, wrap
from replay.report.render import View, step_lines, title, tree, usage_words, value_text

_DOWNSTREAM_LINES = 200
_MOST_LINES = 4
_AT_MOST = 3
_SHORT = 40

CAUSES = {
    "prompt": "the system prompt is another one today",
    "task": "the task or its rendering is another one",
    "tool schema": "a tool's name, description or schema changed",
    "tool settings": "how a tool is dispatched changed: its effect class, timeout or allowance",
    "archive": "the agent's archive gives other notes for the task",
    "finish rule": "whether a run must end with a finish call changed",
    "price": "the price of the model changed",
    "token counter": "tokens are estimated in another way",
    "agent": "the recording is of another agent",
    "parameters": "the parameters of the model request changed",
    "parser": "the reply is read in another way than when it was recorded",
    "arguments": "the call has other arguments than the recorded one",
    "guard": "the loop guard's settings or rule changed",
    "budget": "a limit changed, or what is counted towards it",
    "truncation": "what is shown of a long result changed",
    "observation": "an earlier observation is shown in another way",
    "condensing": "older steps are condensed in another way",
    "clock": "the recorded times lead to another reading of the clock",
    "texts": "what the kernel says to the model changed",
    "finish check": "the finish check decides otherwise",
    "policy": "the policy lets other calls through",
    "approval": "an approval is asked for, or answered, in another way",
    "tool": "a tool's failure is put in other words",
    "kernel": "the kernel itself failed, or code of the agent that it calls",
    "file": "the file is not as it was recorded: something cut, masked or edited it",
}

MEANINGS = {
    "same": "every request, decision, call and stop is as it was recorded",
    "drifted": "behaviour is the same, but the model was asked something else: its recorded answers may no longer be "
    "what it would say",
    "diverged": "behaviour differs from what was recorded",
    "crashed": "the replay could not go on: the kernel itself failed",
    "imported": "rebuilt as it was read; nothing of the agent ran",
    "not_checked": "nothing was compared, so nothing is known",
}


def report(
    result: ReplayResult, view: View, *, brief: bool = False, emitted: Emitted | None = None, options: str = ""
) -> Iterator[str]:
    """The report of one replay: the first difference, the run, the verdict with its evidence, the next command.

    `brief` leaves out the tree, and all but one line where the verdict is `same`: for reports on many files.
    `options` are those that choose this trace of its file, for the next command.
    """
    if brief and result.verdict == "same":
        yield _verdict_line(result, view, named=True)
        yield from _settings(result, view)
        yield from _emitted(emitted, view)
        return
    if result.first is not None and result.verdict != "not_checked":
        yield from _leading(result, view)
        if not brief:
            yield ""
    if not brief and result.verdict != "not_checked":
        yield from heading(result.recording, view)
        yield from _runs(result, view)
        yield ""
    if not brief or result.first is None or result.verdict == "not_checked":
        yield _verdict_line(result, view, named=brief)
    yield from _evidence(result, view)
    yield from _emitted(emitted, view)
    if command := next_command(result, options):
        yield view.paint("quiet", "next  ") + command


def _leading(result: ReplayResult, view: View) -> Iterator[str]:
    """The first difference: what and where, both values, the likely cause, and how much follows from it."""
    first, paint = result.first, view.paint
    assert first is not None
    style = "warn" if result.verdict == "drifted" else "bad"
    yield f"{paint(style, paint('strong', result.verdict.upper()))}  {place(first, result.recording)}"
    yield from _values(first, view)
    yield from _wrapped("cause", _cause(first, result), view, style="quiet")
    stops = [last_stop([recorded.run for recorded in result.recording.runs]), last_stop(result.observed)]
    if first.kind != "stop" and stops[0] != stops[1] and all(stops):
        yield _field("stop", f"recorded {stops[0]}, replayed {stops[1]}", view)
    rest = [d for d in result.divergences if d is not first]
    if not rest:
        return
    if view.verbose:
        for other in rest[:_DOWNSTREAM_LINES]:
            mark = "follows" if other.downstream else "also"
            yield _field(mark, place(other, None), view)
            yield from _values(other, view)
        if len(rest) > _DOWNSTREAM_LINES:
            yield _field("", f"⋮ {len(rest) - _DOWNSTREAM_LINES} more: --format json has them all", view)
        return
    follow = sum(other.downstream for other in rest)
    apart = [other for other in rest if not other.downstream]
    for other in apart[:3]:
        yield _field("also", place(other, None), view)
    words = []
    if len(apart) > 3:
        words.append(f"{len(apart) - 3} more of their own")
    if follow:
        words.append(f"{plural(follow, 'difference')} downstream")
    if words:
        yield _field("then", ", ".join(words) + " (--verbose lists them)", view)


def place(divergence: Divergence, recording: Recording | None) -> str:
    """Where a difference is, harmless: file, turn, step, seam, path, span."""
    parts = []
    if recording is not None and recording.file:
        parts.append(literal(recording.file))
    if (recording is not None and len(recording.runs) > 1) or divergence.turn > 1:
        parts.append(f"turn {divergence.turn}")
    parts.append(f"step {divergence.step}" if divergence.step else "the run")
    parts.append(f"{divergence.kind} {literal(divergence.path)}".rstrip())
    if divergence.span_id:
        parts.append(f"span {literal(divergence.span_id)}")
    return ", ".join(parts)


def _values(divergence: Divergence, view: View) -> Iterator[str]:
    room = max(20, view.columns - 12)
    if _is_words(divergence):
        recorded, observed, remark = _words(divergence.recorded, room), _words(divergence.observed, room), ""
    else:
        recorded, observed, remark = contrast(divergence.recorded, divergence.observed, room)
    yield from _wrapped("recorded", recorded, view, style="good")
    yield from _wrapped("replayed", observed, view, style="bad")
    if remark:
        yield _field("", f"({remark})", view)


def _is_words(divergence: Divergence) -> bool:
    """Whether the values are our own words rather than the trace's."""
    return divergence.kind in ("missing", "content", "crash") or (
        divergence.kind == "stop" and divergence.path != "/detail"
    )


def _words(value: Any, room: int) -> str:
    return line(value, 4 * room) if isinstance(value, str) else cut(value_text(value), 4 * room)


def _cause(divergence: Divergence, result: ReplayResult) -> str:
    """The cause in words; where it is a changed setting, its name and both values."""
    words = CAUSES.get(divergence.cause)
    text = f"{divergence.cause}: {words}" if words else literal(divergence.cause)
    setting = next((one for one in result.settings if one.path == divergence.setting), None)
    if setting is None:
        return text
    sides = [value_text(setting.recorded), value_text(setting.observed)]
    values = f": {sides[0]} → {sides[1]}" if max(map(len, sides)) <= _SHORT else ""
    return f"{text} ({literal(setting.name)}{values})"


def _field(label: str, text: str, view: View, *, style: str = "quiet") -> str:
    return f"  {view.paint(style, f'{label:<9}')} {text}".rstrip()


def _wrapped(label: str, text: str, view: View, *, style: str) -> Iterator[str]:
    for at, part in enumerate(wrap(text, max(20, view.columns - 12), _MOST_LINES)):
        yield _field("" if at else label, part, view, style=style)


def heading(recording: Recording, view: View) -> Iterator[str]:
    """Agent, trace and file of a recording, and what is to be known about where it comes from."""
    yield title(recording, view)
    if recording.foreign:
        yield _field("from", literal(recording.foreign), view)
    for note in recording.notes:
        yield _field("note", line(note, 4 * view.columns), view)


def _runs(result: ReplayResult, view: View) -> Iterator[str]:
    runs = [recorded.run for recorded in result.recording.runs]
    for turn, run in enumerate(runs, 1):
        observed = result.observed[turn - 1] if turn <= len(result.observed) else None
        notes = _notes(result, turn, run, observed, view)
        yield from run_lines(run, view, turn=turn if len(runs) > 1 else 0, notes=notes)
        if observed is not None and len(observed.steps) > len(run.steps):
            more = observed.steps[len(run.steps) :]
            yield view.paint("bad", f"≠ {plural(len(more), 'more step')} in the replay")
            for step in more[:_AT_MOST]:
                yield from step_lines(step, view, marked=True)


def _notes(result: ReplayResult, turn: int, run: Run, observed: Run | None, view: View) -> dict[int, list[str]]:
    """Lines to show under the steps of a run: what differs there, and for the first one what the replay did instead."""
    notes: dict[int, list[str]] = {}
    first = result.first
    for divergence in sorted(result.divergences, key=lambda divergence: divergence is not first):
        if divergence.turn == turn and divergence.step and not divergence.downstream:
            lines = notes.setdefault(divergence.step, [])
            if len(lines) < _AT_MOST:
                text = cut(f"≠ {divergence.kind} {literal(divergence.path)}".rstrip(), view.columns - 5)
                lines.append(_indented(view.paint("bad", text)))
    if first is None or first.turn != turn or not first.step or first.kind in DRIFT:
        return notes
    replayed = next((s for s in observed.steps if s.index == first.step), None) if observed is not None else None
    if replayed is not None and first.step <= len(run.steps):
        instead = list(step_lines(replayed, view))[1:]
        if instead != list(step_lines(run.steps[first.step - 1], view))[1:]:
            notes[first.step] += [_indented(view.paint("bad", "replayed as")), *instead]
    elif replayed is None and observed is not None:
        notes[first.step].append(_indented(view.paint("bad", "not replayed, nor what follows")))
    return notes


def _indented(text: str) -> str:
    return " " * 5 + text


def run_lines(run: Run, view: View, *, turn: int = 0, notes: dict[int, list[str]] | None = None) -> Iterator[str]:
    """One run of a recording: its task, its steps, its end."""
    label = f"turn {turn}" if turn else "task"
    yield f"{view.paint('quiet', f'{label:<6}')} {line(run.head.task, view.columns - 8)}"
    yield from tree(run, view, notes=notes)
    yield from end_lines(run.end, view)


def end_lines(end: RunEnd | None, view: View) -> Iterator[str]:
    """Stop reason, answer, usage."""
    if end is None:
        yield f"{view.paint('quiet', 'stop  ')} {view.paint('warn', 'cut short: the recording has no end')}"
        return
    detail = f": {line(end.detail, view.columns - 30)}" if end.detail else ""
    yield f"{view.paint('quiet', 'stop  ')} {view.paint('good' if end.ok else 'bad', end.stop_reason)}{detail}"
    if end.answer is not None:
        yield f"{view.paint('quiet', 'answer')} {line(end.answer, 4 * view.columns)}"
    used = usage_words(end.usage.input_tokens, end.usage.output_tokens, end.cost_usd, None)
    counts = f"{plural(end.model_calls, 'model call')}, {plural(end.tool_calls, 'tool call')}"
    yield f"{view.paint('quiet', 'used  ')} {counts}{', ' + used if used else ''}"
    if end.alive:
        yield f"{view.paint('quiet', 'alive ')} {line(', '.join(end.alive), view.columns - 8)}"


def _verdict_line(result: ReplayResult, view: View, *, named: bool) -> str:
    styles = {"same": "good", "drifted": "warn", "imported": "warn"}
    word = view.paint(styles.get(result.verdict, "bad"), f"{result.verdict.upper():<8}")
    if result.verdict == "not_checked":
        text = line(result.why_not, 4 * view.columns) or MEANINGS["not_checked"]
        file = literal(result.recording.file)
        return f"{word}  {file}: {text}" if file else f"{word}  {text}"
    if named:
        file, recorded = literal(result.recording.file), [recorded.run for recorded in result.recording.runs]
        steps, stop = plural(step_count(recorded), "step"), last_stop(recorded) or "cut short"
        agent, trace = literal(result.recording.agent), literal(result.recording.trace_id[:8])
        told = f": {MEANINGS['imported']}" if result.verdict == "imported" else ""
        return f"{word}  {file}  {agent}  trace {trace}  {steps}, {stop}; {_served(result)}{told}"
    return f"{word}  {MEANINGS[result.verdict]}"


def _served(result: ReplayResult) -> str:
    return "served " + _replies_and_results(result.served.model, result.served.tools)


def _replies_and_results(model: int, tools: int) -> str:
    replies = "1 model reply" if model == 1 else f"{model} model replies"
    return f"{replies}, {plural(tools, 'tool result')}"


def _evidence(result: ReplayResult, view: View) -> Iterator[str]:
    if result.verdict == "not_checked":
        changed = [divergence for divergence in result.divergences if divergence.cause == "file"]
        for divergence in changed[:_AT_MOST]:
            yield _field("file", f"{place(divergence, None)}: {line(str(divergence.observed), 4 * view.columns)}", view)
        return
    recorded = step_count([r.run for r in result.recording.runs])
    replayed = step_count(result.observed)
    unused = result.unused
    left = _replies_and_results(unused.model, unused.tools) if unused.model or unused.tools else "0"
    yield _field("steps", f"{recorded} recorded, {replayed} replayed; {_served(result)}; unused {left}; live 0", view)
    layers, absent = layers_of(result.recording)
    yield _field("compared", ", ".join(layers), view)
    if absent:
        yield _field("missing", f"nobody recorded: {line(', '.join(absent), 4 * view.columns)}", view)
    ran = "the prompt, tools and limits of the recording" if result.ran_with == "recording" else "today's agent"
    yield _field("ran with", ran, view)
    yield from _settings(result, view)
    for what in result.recording.dropped:
        yield _field("dropped", line(what, 4 * view.columns), view)
    if not result.complete:
        yield _field("note", "the recording was cut short; it was compared as far as it goes", view)


def _settings(result: ReplayResult, view: View) -> Iterator[str]:
    """Whether it is the same agent, which of its changed settings made no difference, and what was not its own."""
    for setting in result.settings:
        if setting.key == ("agent",):
            names = f"{value_text(setting.recorded)}, today's is {value_text(setting.observed)}"
            yield _field("agent", cut(f"the recording is of another agent: {names}", 4 * view.columns), view)
    if untouched := [setting.name for setting in result.unexercised if setting.key != ("agent",)]:
        names = ", ".join(literal(name) for name in untouched)
        yield _field("changed", cut(f"changed, not exercised here: {names}", 4 * view.columns), view)
    for use in result.rules:
        if use.settled:
            told = f"{use.rule} (equal by this rule alone: {plural(use.settled, 'text')})"
            yield _field("rule", line(told, 4 * view.columns), view)
    for told in result.kept:
        yield _field("kept", line(told, 4 * view.columns), view)


def _emitted(emitted: Emitted | None, view: View) -> Iterator[str]:
    if emitted is None:
        return
    if emitted.path:
        yield _field("written", literal(emitted.path), view)
    if emitted.link:
        yield _field("compare", literal(emitted.link), view)


def next_command(result: ReplayResult, options: str = "") -> str:
    """The command that helps most now, or ""."""
    if result.verdict == "same":
        return ""
    recording = result.recording
    file = literal(shlex.quote(recording.file or "FILE")) + literal(options)
    if result.verdict == "not_checked":
        return f"replay check {file}"
    if result.verdict == "imported":
        return f"replay {file} -- COMMAND" if recording.foreign == "wire" else f"replay {file} --agent MODULE:OBJECT"
    first = result.first
    runs = [recorded.run for recorded in recording.runs]
    step = min(first.step, len(runs[first.turn - 1].steps)) if first is not None else 0
    if first is not None and first.cause == "file":
        return f"replay check {file}"
    turn = f" --turn {first.turn}" if first is not None and len(recording.runs) > 1 else ""
    return f"replay show {file}{turn}" + (f" --step {step}" if step else "")


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 step`, `2 steps`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
