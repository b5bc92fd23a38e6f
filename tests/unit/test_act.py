"""Dispatch is the only way to a tool: one pipeline, and one result for each call whatever happens in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, ContextLimits, MemoryLedger, Policy, Price, ScriptedModel, ToolRegistry
from kernel.record.run import CallRecord
from kernel.record.transcript import shown_text
from tests.helpers import Played, act, calls, finish, play


def toolbox() -> tuple[ToolRegistry, list[str]]:
    tools, ran = ToolRegistry(), []

    @tools.tool
    def read(n: int = 0) -> str:
        ran.append(f"read {n}")
        return f"value {n}"

    @tools.register(side_effect=True)
    def write(n: int, idempotency_key: str = "") -> str:
        ran.append(f"write {n} {idempotency_key}")
        return f"wrote {n}"

    @tools.register(side_effect=True, idempotency="position")
    def page(n: int = 0) -> str:
        ran.append(f"page {n}")
        return "paged"

    return tools, ran


def records(played: Played) -> list[CallRecord]:
    return [record for step in played.result.steps for record in step.calls]


said = shown_text


@pytest.mark.parametrize(
    ("policy", "outcome", "kind", "text"),
    [
        ("read_only", "denied", "read_only", "this run is read-only"),
        ("dry_run", "denied", "dry_run", "nothing has changed: this is a dry run"),
        (Policy(mode="allowlist", allow=("page",)), "denied", "allowlist", "Allowed: page"),
        (Policy(mode="allowlist", allow=("write",)), "ok", None, None),
        ("full", "ok", None, None),
    ],
)
def test_a_policy_holds_side_effects_back_and_says_what_to_do(policy: Any, outcome: str, kind: Any, text: Any) -> None:
    tools, ran = toolbox()
    played = play([act("write", n=1), act("read"), finish("x")], tools, policy=policy)
    write, read = records(played)
    assert (write.outcome, write.error.type if write.error else None) == (outcome, kind)
    assert text is None or text in said(write)
    assert read.outcome == "ok" and (len(ran) == 2) == (outcome == "ok")


def test_the_policy_in_the_environment_wins_and_the_head_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEFIRST_POLICY", "allowlist:page, other")
    tools, ran = toolbox()
    played = play([act("write", n=1), act("page"), finish("x")], tools, policy="full")
    assert [record.outcome for record in records(played)] == ["denied", "ok"] and ran == ["page 0"]
    assert played.result.run.head.policy == Policy(
        mode="allowlist", allow=("page", "other"), source="environment TRACEFIRST_POLICY"
    )


def test_the_policy_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[policy]\nmode = "allowlist"\nallow = ["write"]\n')
    played = play([act("write", n=1), finish("x")], toolbox()[0], policy=file)
    assert records(played)[0].outcome == "ok" and played.result.run.head.policy.source == "policy.toml"


@pytest.mark.parametrize("as_coroutine", [False, True])
def test_confirm_is_asked_before_each_side_effect_and_only_there(as_coroutine: bool) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def confirm(name: str, args: dict[str, Any]) -> Any:
        asked.append((name, args))
        answer = name == "page"
        return asyncio.sleep(0, answer) if as_coroutine else answer

    tools, ran = toolbox()
    played = play([act("read"), act("write", n=1), act("page", n=2), finish("x")], tools, confirm=confirm)
    assert asked == [("write", {"n": 1}), ("page", {"n": 2})] and ran == ["read 0", "page 2"]
    read, write, page = records(played)
    assert read.approval is None
    assert write.outcome == "denied" and write.approval is not None and not write.approval.approved
    assert page.approval is not None and page.approval.approved and page.approval.binding != write.approval.binding


def test_the_costly_call_is_confirmed_whatever_it_does() -> None:
    text = json.dumps({"action": "read", "args": {"n": 1}, "estimated_cost": 3.5})
    prices = {"scripted-model": Price(input_usd=1.0, output_usd=1.0)}
    options: dict[str, Any] = {"budget": Budget(max_cost_usd=1.0), "prices": prices}
    for confirm, outcome in ((None, "denied"), (lambda name, args: False, "denied"), (lambda name, args: True, "ok")):
        [record] = records(play([text, finish("x")], toolbox()[0], confirm=confirm, **options))
        assert record.outcome == outcome and record.approval is not None and record.approval.reason == "cost"
        assert outcome == "ok" or "estimated cost of 3.5" in said(record)


def test_a_repeated_side_effect_is_answered_from_the_ledger_with_its_first_result() -> None:
    tools, ran = toolbox()
    script = [
        act("write", n=1),
        act("read", n=1),
        act("write", n=1),
        act("page"),
        act("read", n=2),
        act("page"),
        finish("x"),
    ]
    played = play(script, tools, ledger=MemoryLedger())
    first, _, again, one, _, two = records(played)
    assert (again.outcome, again.result, again.served_by, again.key) == ("duplicate", "wrote 1", "ledger", first.key)
    assert "already ran with these arguments" in said(again) and "wrote 1" in said(again)
    assert (one.outcome, two.outcome) == ("ok", "ok") and one.key != two.key
    assert [entry for entry in ran if entry.startswith("write")] == [f"write 1 {first.key}"]


def test_another_run_has_keys_of_its_own() -> None:
    ledger = MemoryLedger()
    for _ in range(2):
        [record] = records(play([act("write", n=1), finish("x")], toolbox()[0], ledger=ledger))
        assert record.outcome == "ok"


def test_a_batch_with_a_side_effect_runs_one_by_one_in_order() -> None:
    tools, ran = toolbox()
    batch = calls(("read", {"n": 1}), ("write", {"n": 2}), ("read", {"n": 3}))
    play([batch, "done"], tools, protocol="tools")
    assert [entry.split()[:2] for entry in ran] == [["read", "1"], ["write", "2"], ["read", "3"]]


def test_a_batch_without_one_runs_together() -> None:
    tools = ToolRegistry()
    here, all_here = [], asyncio.Event()

    @tools.register(timeout=5)
    async def meet(n: int) -> int:
        here.append(n)
        if len(here) == 3:
            all_here.set()
        await all_here.wait()
        return n

    played = play([calls(*(("meet", {"n": n}) for n in range(3))), "done"], tools, protocol="tools")
    assert [record.result for record in records(played)] == [0, 1, 2]


def test_the_tool_gets_its_own_copy_of_the_arguments() -> None:
    tools = ToolRegistry()

    @tools.tool
    def spoil(items: list[int]) -> str:
        items.clear()
        return "spoilt"

    [record] = records(play([act("spoil", items=[1, 2]), finish("x")], tools))
    assert record.call.args == {"items": [1, 2]}


def test_what_is_cut_can_be_read_on_by_its_handle() -> None:
    tools = ToolRegistry()
    whole = "".join(f"{n:04d} " for n in range(400))
    tools.register(name="dump")(lambda: whole)
    script = [
        act("dump"),
        act("read_range", handle="artifact-1", start=1000, length=50),
        act("read_range", handle="artifact-9"),
        finish("x"),
    ]
    cut, rest, wrong = records(play(script, tools, context=ContextLimits(max_observation_chars=300)))
    assert cut.result == whole and len(said(cut)) <= 300 and cut.artifact == "artifact-1"
    assert isinstance(rest.result, str) and whole[1000:1050] in rest.result
    assert wrong.outcome == "error" and "artifact-1" in said(wrong)


def test_a_user_may_not_shadow_the_built_in_tools() -> None:
    from kernel import ConfigError

    for name in ("finish", "read_range"):
        with pytest.raises(ConfigError, match="is reserved"):
            ToolRegistry().register(name=name)(lambda: None)


def test_every_refusal_is_said_in_the_language_of_the_run() -> None:
    tools, _ = toolbox()
    script = [act("serch"), act("write", n="x"), act("write", n=1), finish("x")]
    spoken = [said(record) for record in records(play(script, tools, language="zh", policy="read_only"))]
    assert ["没有名为" in spoken[0], "参数不符合要求" in spoken[1], "只读" in spoken[2]] == [True, True, True]


def test_the_time_left_of_the_run_is_a_deadline_for_tools() -> None:
    tools = ToolRegistry()

    @tools.register(timeout=None)
    async def hang() -> None:
        await asyncio.Event().wait()

    agent = Agent(tools=tools, budget=Budget(timeout_s=0.05))
    result = agent.run_sync("x", llm=ScriptedModel([act("hang")]), trace=False)
    assert result.stop_reason == "timeout" and result.steps[0].calls[0].outcome == "timeout"
