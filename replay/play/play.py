"""Replay: run the kernel's own loop on a recording, with doubles at every seam, and compare.

Without an agent the run is rebuilt from the trace alone. With one, today's prompt, tools, budget and guard are run against
yesterday's model answers and tool results. No live client exists in a replay; nothing is approximated.
"""

from __future__ import annotations

import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from kernel.agent import Agent
from kernel.errors import ConfigError
from kernel.loop import FinishCheck, Loop, NullTracer
from kernel.record import Chat, RequestDigest, Run, RunHead, Step
from kernel.seams import Seams
from replay.play.causes import Setup, explain, settings_of, setup_of
from replay.play.comparison import compare_ends, compare_steps, content_divergences
from replay.play.divergence import DRIFT, Divergence, Verdict
from replay.play.doubles import (
    DerivedIds,
    RecordedCancel,
    RecordedClock,
    RecordedModel,
    RecordedTools,
    RecordedTranscript,
    RecordingEnded,
    ReplayMiss,
    recorded_confirm,
    recorded_finish_check,
    recorded_toolbox,
)
from replay.play.heads import Setting, kept
from replay.play.recording import Recording
from replay.play.rules import Rule, Rules
from replay.play.serving import crashed, left_over, missed

T = TypeVar("T")


class Count(Struct, frozen=True, kw_only=True):
    """Model replies and tool results."""

    model: int = 0
    tools: int = 0


class RuleUse(Struct, frozen=True, kw_only=True):
    """How often a rule matched something, and in how many places both sides are equal only by it."""

    rule: Rule
    matched: int
    settled: int


class ReplayResult(Struct, frozen=True, kw_only=True):
    """The outcome of one replay. A `same` carries its evidence: steps, what was served, and that nothing was left over.

    With an agent, `settings` are those that are others today, `unexercised` those of them that make no difference here, and
    `kept` says what was taken from the recording because it was not the agent that decided it.

    `observed` are the replayed runs, for reports and for a trace of the replay. `why_not` says why nothing was checked.
    """

    recording: Recording
    verdict: Verdict
    ran_with: Literal["recording", "agent"]
    observed: tuple[Run, ...]
    divergences: tuple[Divergence, ...]
    served: Count
    unused: Count
    complete: bool
    why_not: str = ""
    settings: tuple[Setting, ...] = ()
    unexercised: tuple[Setting, ...] = ()
    kept: tuple[str, ...] = ()
    rules: tuple[RuleUse, ...] = ()

    @property
    def first(self) -> Divergence | None:
        """The difference that leads: the first that is not downstream, behaviour before drift."""
        leading = [d for d in self.divergences if not d.downstream]
        return next((d for d in leading if d.kind not in DRIFT), leading[0] if leading else None)

    def __str__(self) -> str:
        """One line: the verdict, and where and how the run first differs."""
        first = self.first
        if self.why_not or first is None:
            return f"{self.verdict}: {self.why_not}" if self.why_not else self.verdict
        return f"{self.verdict} at step {first.step}: {first.kind} {first.path}, cause {first.cause}"


def replay(recording: Recording, agent: Agent | None = None, *, rules: Rules | None = None) -> ReplayResult:
    """Run a recording again and compare it at every seam.

    Args:
        rules: what of today's agent may vary, see `rules_for`.
    Raises:
        ConfigError: the agent's settings cannot work.
    """
    rules = Rules(rules.rules if rules is not None else ())
    if why_not := why_not_replayable(recording):
        return _not_checked(recording, "recording" if agent is None else "agent", why_not)
    if agent is None:
        try:
            return _judged(_result(recording, _replayed(recording, None), "recording"))
        except ConfigError as error:
            return _not_checked(recording, "recording", f"the recorded settings cannot work: {error}")
    today = setup_of(recording, agent, rules)
    settings = settings_of(recording, today)
    done = _replayed(recording, today)
    uses = _uses(rules)
    divergences, unexercised = explain(
        recording, today, settings, done.divergences, lambda setup: _replayed(recording, setup).divergences
    )
    result = _judged(_result(recording, msgspec.structs.replace(done, divergences=divergences), "agent"))
    told = tuple(dict.fromkeys(told for one in recording.runs for told in kept(one.run.head, agent)))
    return msgspec.structs.replace(result, settings=tuple(settings), unexercised=unexercised, kept=told, rules=uses)


def _uses(rules: Rules) -> tuple[RuleUse, ...]:
    return tuple(
        RuleUse(rule=rule, matched=rules.matched.get(rule.name, 0), settled=rules.settled.get(rule.name, 0))
        for rule in rules.rules
    )


def _judged(result: ReplayResult) -> ReplayResult:
    """A `same` that is none: nothing of an agent ran, or only a part of the run is there to be compared."""
    if result.verdict != "same":
        return result
    if result.ran_with == "recording" and result.recording.foreign:
        return msgspec.structs.replace(result, verdict="imported")
    if dropped := result.recording.dropped:
        why = f"a part of the run was not read, so the rest says nothing of it: {'; '.join(dropped)}"
        return msgspec.structs.replace(result, verdict="not_checked", why_not=why)
    return result


def _not_checked(recording: Recording, ran_with: Literal["recording", "agent"], why_not: str) -> ReplayResult:
    problems = [d for turn, run in enumerate(recording.runs, 1) for d in content_divergences(run.problems, turn)]
    return ReplayResult(
        recording=recording,
        verdict="not_checked",
        ran_with=ran_with,
        observed=(),
        divergences=_ordered(problems),
        served=Count(),
        unused=Count(),
        complete=False,
        why_not=why_not,
    )


class _Done(Struct, frozen=True, kw_only=True):
    """What came of playing all runs of a recording once."""

    observed: tuple[Run, ...]
    divergences: tuple[Divergence, ...]
    served: Count
    unused: Count


def _result(recording: Recording, done: _Done, ran_with: Literal["recording", "agent"]) -> ReplayResult:
    verdict = _verdict(done)
    return ReplayResult(
        recording=recording,
        verdict=verdict,
        ran_with=ran_with,
        observed=done.observed,
        divergences=done.divergences,
        served=done.served,
        unused=done.unused,
        complete=all(recorded.run.end is not None for recorded in recording.runs),
        why_not="no model reply was served, so nothing was compared" if verdict == "not_checked" else "",
    )


def _replayed(recording: Recording, today: Setup | None) -> _Done:
    """Play every run, with the heads and the code of `today` where it is given. Raises `ConfigError`."""
    conversations: dict[str | None, tuple[RecordedTranscript, Digests]] = {}
    observed: list[Run] = []
    found: list[Divergence] = []
    served, unused = [0, 0], [0, 0]
    for turn, recorded in enumerate(recording.runs, 1):
        head = recorded.run.head
        if head.turn <= 1 or head.conversation_id not in conversations:
            fresh = RecordedTranscript() if today is None else RecordedTranscript(today.count)
            conversations[head.conversation_id] = (fresh, Digests())
        chosen = None if today is None else (today.heads[turn - 1], today.check_of(recorded.run))
        played = play_run(recorded.run, chosen, *conversations[head.conversation_id])
        observed.append(played.run)
        found.extend(content_divergences(recorded.problems, turn))
        found.extend(compare_steps(recorded.run, played.run, turn=turn, from_recording=today is None))
        if played.missed is not None:
            found.extend(missed(recorded.run, played.missed, len(played.run.steps), turn))
        elif played.crash:
            crash = played.crash if today is None else today.masker.mask_text(played.crash)
            found.append(crashed(recorded.run, crash, len(played.run.steps), turn))
        else:
            found.extend(compare_ends(recorded.run, played.run, turn=turn))
        found.extend(left_over(recorded.run, played.model, played.tools, turn))
        served = [served[0] + played.model.served, served[1] + played.tools.served]
        unused = [
            unused[0] + played.model.recorded - played.model.served,
            unused[1] + len(played.tools.unused()),
        ]
        if played.missed is not None or played.crash:
            break
    for recorded in recording.runs[len(observed) :]:
        unused[0] += sum(step.chat is not None for step in recorded.run.steps)
    return _Done(
        observed=tuple(observed),
        divergences=_ordered(found),
        served=Count(model=served[0], tools=served[1]),
        unused=Count(model=unused[0], tools=unused[1]),
    )


def why_not_replayable(recording: Recording) -> str:
    if not recording.runs:
        return "the trace holds no run of an agent"
    for turn, recorded in enumerate(recording.runs, 1):
        head = recorded.run.head
        if "root" in head.absent:
            return (
                f"run {turn} has lost its root span, so prompt, tools and limits are not known: "
                "replay the trace file or journal written by the process itself"
            )
        indexes = [step.index for step in recorded.run.steps]
        if indexes != list(range(1, len(indexes) + 1)):
            return f"run {turn} has lost steps: it holds {indexes}"
        if "messages" in head.absent:
            return f"run {turn} lacks the messages of its model calls: record it again with its content"
    if not any(recorded.run.steps for recorded in recording.runs):
        return "the trace holds no step: every run ended before its first model call"
    return ""


class Played(Struct):
    """A run that was played, with the doubles that served it. `crash` says how the kernel itself failed, where it did."""

    run: Run
    model: RecordedModel
    tools: RecordedTools
    missed: ReplayMiss | None
    loop: Loop
    crash: str = ""


class Digests(NullTracer):
    """Computes the digests of requests, as the recorder does."""

    __slots__ = ("_digest", "_head", "chat")

    def __init__(self) -> None:
        self._digest: RequestDigest | None = None
        self.chat: Chat | None = None

    def run_started(self, head: RunHead) -> None:
        self.chat = None
        if self._digest is None:
            self._digest = RequestDigest()
        self._digest.begin(head)

    def chat_started(self, step: int, chat: Chat) -> str:
        assert self._digest is not None
        digest = self._digest.extend(chat.kept, chat.new, chat.max_output_tokens)
        self.chat = msgspec.structs.replace(chat, digest=digest)
        return digest

    def chat_ended(self, step: int, chat: Chat) -> None:
        self.chat = chat


def play_run(
    recorded: Run, today: tuple[RunHead, FinishCheck | None] | None, transcript: RecordedTranscript, tracer: Digests
) -> Played:
    """Run the loop once with doubles; a run that is cut short keeps the steps it made, the open one too.

    `today` is the head to run with, and the finish check to ask in place of the recorded answers where there is one.
    """
    model, tools = RecordedModel(recorded), RecordedTools(recorded)
    transcript.recorded = recorded
    seams = Seams(
        model=model, tools=tools, clock=RecordedClock(recorded, tears=True), ids=DerivedIds(recorded.head.run_id)
    )
    head, own = (recorded.head, None) if today is None else today
    check = (own or recorded_finish_check(recorded)) if head.finish_check else None
    loop = Loop(
        head,
        recorded_toolbox(head),
        seams,
        transcript,
        confirm=recorded_confirm(recorded) if head.confirm else None,
        finish_check=check,
        tracer=tracer,
    )
    missed: ReplayMiss | None = None
    ended, crash = False, ""
    try:
        drive(loop.run(), allow_loop=own is not None and head.finish_check)
    except ReplayMiss as miss:
        missed = miss
    except (RecordingEnded, RecordedCancel):
        ended = True
    except ConfigError:
        raise
    except Exception as error:  # what fails here is the kernel or the agent's own code: it is the replay's outcome
        crash = _told(error)
    steps = tuple(loop.steps)
    if missed is not None or ended or crash:
        steps = _with_open_step(steps, recorded, tracer)
    torn = missed is not None or bool(crash) or recorded.end is None
    run = Run(head=head, steps=steps, end=None if torn else loop.end)
    return Played(run=run, model=model, tools=tools, missed=missed, loop=loop, crash=crash)


def _told(error: Exception) -> str:
    """An exception with the place it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _with_open_step(steps: tuple[Step, ...], recorded: Run, tracer: Digests) -> tuple[Step, ...]:
    """The step in which a replay was torn down, as far as it came: its request can still be compared."""
    index = len(steps) + 1
    if tracer.chat is None or index > len(recorded.steps):
        return steps
    was = recorded.steps[index - 1]
    if was.decision is not None or was.chat is None:
        return steps
    chat = msgspec.structs.replace(tracer.chat, reply=was.chat.reply)  # as it was served, before it was counted
    return (*steps, Step(index=index, chat=chat, calls=was.calls))


def drive(work: Coroutine[Any, Any, T], *, allow_loop: bool = False) -> T:
    """Run a coroutine that waits for nothing, without an event loop: a replay that awaits anything live cannot go on.

    With `allow_loop` an event loop is there for the user's own awaits (an async `finish_check`).

    Raises:
        ConfigError: the run awaited something that is not served from the recording.
    """
    if allow_loop:
        return _in_a_loop(work)
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise ConfigError("a replay awaited something live; only the recording may answer")


def _in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run in an event loop of its own, in another thread where this one has a loop already."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _ordered(found: list[Divergence]) -> tuple[Divergence, ...]:
    """In order of turn and step, each marked downstream if it follows from an earlier one.

    Damage to the file explains whatever differs after it. Drift has its own first: a prompt edit does not explain a
    changed decision, since the recorded answer was served.
    """
    ranked = sorted(found, key=lambda d: (d.turn, d.step))
    out: list[Divergence] = []
    damage_seen = drift_seen = behaviour_seen = False
    for divergence in ranked:
        damage, drift = divergence.cause == "file", divergence.kind in DRIFT
        downstream = not damage and (damage_seen or behaviour_seen or (drift and drift_seen))
        damage_seen, drift_seen = damage_seen or damage, drift_seen or drift
        behaviour_seen = behaviour_seen or not (damage or drift)
        out.append(msgspec.structs.replace(divergence, downstream=downstream) if downstream else divergence)
    return tuple(out)


def _verdict(done: _Done) -> Verdict:
    """The verdict. A replay that differs has run and was compared, whatever was served; only a `same` needs more."""
    divergences, left = done.divergences, done.unused.model or done.unused.tools
    if any(d.kind == "crash" for d in divergences):
        return "crashed"
    if not done.served.model and (
        any(d.cause == "file" for d in divergences) or all(d.kind in DRIFT for d in divergences)
    ):
        return "not_checked"
    if not divergences and not left:
        return "same"
    if divergences and all(d.kind in DRIFT for d in divergences) and not left:
        return "drifted"
    return "diverged"
