"""Why a replay with today's agent differs: each changed setting is tried alone, and one that alone makes a difference is its
cause. What changed and makes none was not exercised by the recording.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kernel.agent import Agent
from kernel.loop import FinishCheck, FinishContext, TokenCounter, estimate_tokens
from kernel.masking import Masker
from kernel.record import Run, RunHead
from replay.play.divergence import Divergence
from replay.play.doubles import RecordedModel
from replay.play.heads import Setting, changed_settings, settled, todays_head, with_settings
from replay.play.masking import masked_check, masked_head, masker_for
from replay.play.recording import Recording
from replay.play.rules import Rules

Place = tuple[int, int, str, str]
_CHECK = Setting(key=("finish_check",), recorded="the recorded answers", observed="today's check", cause="finish check")
_COUNT = Setting(key=("count_tokens",), recorded="the default", observed="today's counter", cause="token counter")


class Setup(Struct, frozen=True, kw_only=True):
    """What of today's agent a replay runs with: a head for each run, and its own code. `check` is asked in place of the
    recorded answers where it is there."""

    heads: tuple[RunHead, ...]
    check: FinishCheck | None = None
    masker: Masker = Masker.default()
    count: TokenCounter = estimate_tokens
    rules: Rules = Rules()

    def check_of(self, recorded: Run) -> FinishCheck | None:
        """The agent's own check; a reason that differs only in what the rules let vary is the recorded one."""
        own, rules = self.check, self.rules
        if own is None or not rules:
            return own

        def in_one_form(verdict: Any, step: int) -> Any:
            was = recorded.steps[step - 1].refusal if step <= len(recorded.steps) else None
            if was is None or not isinstance(verdict, str):
                return verdict
            return rules.settle(("feedback", "refusal"), was, verdict)

        async def awaited(verdict: Awaitable[Any], step: int) -> Any:
            return in_one_form(await verdict, step)

        def check(answer: str, context: FinishContext) -> Any:
            verdict = own(answer, context)
            return (awaited if inspect.isawaitable(verdict) else in_one_form)(verdict, context.step)

        return check


def setup_of(recording: Recording, agent: Agent, rules: Rules) -> Setup:
    """All of today's agent. Raises `ConfigError`."""
    masker = masker_for(recording)
    heads = []
    for one in recording.runs:
        was = one.run.head
        heads.append(settled(was, masked_head(todays_head(was, agent, RecordedModel(one.run)), was, masker), rules))
    return Setup(
        heads=tuple(heads),
        check=masked_check(agent.finish_check, masker),
        count=agent.count_tokens,
        masker=masker,
        rules=rules,
    )


def settings_of(recording: Recording, today: Setup) -> list[Setting]:
    """The settings that changed in any run, each once."""
    found: dict[tuple[str, ...], Setting] = {}
    for recorded, head in zip(recording.runs, today.heads, strict=True):
        for setting in changed_settings(recorded.run.head, head):
            found.setdefault(setting.key, setting)
    return list(found.values())


def explain(
    recording: Recording,
    today: Setup,
    settings: Sequence[Setting],
    divergences: Sequence[Divergence],
    play: Callable[[Setup], Sequence[Divergence]],
) -> tuple[tuple[Divergence, ...], tuple[Setting, ...]]:
    """The divergences with their causes, and the settings that make none. One replay for each setting, where any differs.

    What the recording alone shows too comes from no setting; what no setting makes alone keeps the cause of its symptom.
    """
    if not any(divergence.cause != "file" for divergence in divergences):
        return tuple(divergences), tuple(settings)
    without = _places(play(_only(recording, today, ())))
    tried = [(setting, _places(play(_only(recording, today, (setting,)))) - without) for setting in settings]
    unexercised = tuple(setting for setting, places in tried if not places)
    for code, there in ((_CHECK, today.check is not None), (_COUNT, today.count is not estimate_tokens)):
        if there and all(setting.key != code.key for setting in settings):
            tried.append((code, _places(play(_only(recording, today, (code,)))) - without))
    return tuple(_with_cause(divergence, tried, without) for divergence in divergences), unexercised


def _only(recording: Recording, today: Setup, settings: Sequence[Setting]) -> Setup:
    """The recording with these settings, and no others, as they are today."""
    keys = {setting.key for setting in settings}
    of_head = [setting for setting in settings if setting not in (_CHECK, _COUNT)]
    heads = zip(recording.runs, today.heads, strict=True)
    return Setup(
        heads=tuple(with_settings(recorded.run.head, head, of_head) for recorded, head in heads),
        check=today.check if _CHECK.key in keys else None,
        count=today.count if _COUNT.key in keys else estimate_tokens,
        rules=today.rules,
    )


def _places(divergences: Sequence[Divergence]) -> set[Place]:
    return {(d.turn, d.step, d.kind, d.path) for d in divergences if d.cause != "file"}


def _with_cause(divergence: Divergence, tried: Sequence[tuple[Setting, set[Place]]], without: set[Place]) -> Divergence:
    place = (divergence.turn, divergence.step, divergence.kind, divergence.path)
    if divergence.cause == "file" or place in without:
        return divergence
    found = next((setting for setting, places in tried if place in places), None)
    if found is None:
        seam = place[:3]
        found = next((setting for setting, places in tried if any(seam == other[:3] for other in places)), None)
    if found is None:
        return divergence
    return msgspec.structs.replace(divergence, cause=found.cause, setting=found.path)
