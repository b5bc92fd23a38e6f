"""Going live from a recording is as safe as the first run: nothing done twice, no gate left open, nothing masked sent."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel import (
    Agent,
    Budget,
    ConfigError,
    Ledger,
    MemoryLedger,
    Policy,
    Reply,
    SqliteLedger,
    ToolRegistry,
    Tracing,
)
from kernel.record import CallRecord
from kernel.testing import ScriptedModel
from kernel.trace.journal import journal_of
from replay import Change, Recording, fork, load, replay, resume
from replay.cli.app import main
from replay.play.forking import stricter
from replay.play.recording import RecordedRun
from tests.helpers import act, finish

KEY = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCD"


class Shop:
    """An agent whose tools tell what they did, and whose run can be cut short at a named moment."""

    def __init__(self, folder: Path, *, ledger: Ledger | None = None, confirm: Any = None, **options: Any) -> None:
        self.done: list[str] = []
        self.asked: list[str] = []
        self.cut: str | None = None
        self.path = folder / "run.trace.json"
        self.killed = folder / "killed.trace.journal"
        tools = ToolRegistry()

        @tools.register(side_effect=True)
        def pay(order: int) -> str:
            """Pay an order."""
            self.done.append(f"pay {order}")
            self._die("pay")
            return f"paid {order}"

        @tools.register(side_effect=True)
        async def send(text: str) -> str:
            """Send a text."""
            self.done.append(f"send {text}")
            self._die("send")
            return "sent"

        @tools.tool
        def look(what: str) -> str:
            """Look."""
            self._die("look")
            return f"{what} is fine"

        self.agent = Agent(
            name="shop", tools=tools, budget=Budget(max_steps=8), ledger=ledger, confirm=confirm, **options
        )

    def confirm(self, name: str, args: dict[str, Any]) -> bool:
        self.asked.append(f"{name} {args}")
        self._die("confirm")
        return True

    def _die(self, moment: str) -> None:
        """Stands for SIGKILL: what is on disk at this moment is what there is."""
        if self.cut == moment:
            self.cut = None
            self.killed.write_bytes(journal_of(self.path).read_bytes())

    def run(
        self, replies: list[Any], *, cut: str | None = None, confirm: Any = None, protocol: Any = "text"
    ) -> Recording:
        """Run once; what was on disk at the moment `cut`, or the whole recording."""
        self.cut = cut
        model = ScriptedModel(replies, protocol=protocol)
        self.agent.run_sync("pay and tell", llm=model, confirm=confirm, trace=self.path)
        [recording] = load(self.path if cut is None else self.killed)
        return recording

    def resume(self, recording: Recording, replies: list[Any], **options: Any) -> Any:
        folder = self.path.parent
        path = folder / f"resumed{len(list(folder.iterdir()))}.trace.json"
        model = ScriptedModel(replies, protocol=recording.runs[0].run.head.protocol)
        result = asyncio.run(resume(recording, self.agent, llm=model, trace=path, **options))
        assert replay(load(path)[0]).verdict == "same"
        return result


def calls(result: Any) -> list[CallRecord]:
    return [record for step in result.steps for record in step.calls]


def outcomes(result: Any) -> list[str]:
    return [record.outcome for record in calls(result)]


LEDGERS: list[Callable[[Path], Ledger | None]] = [
    lambda folder: None,
    lambda folder: MemoryLedger(),
    lambda folder: SqliteLedger(folder / "ledger.db"),
]
PAY, SEND = act("pay", order=7), act("send", text="hi")


# ---- the trace is a witness


@pytest.mark.parametrize("ledger", LEDGERS)
@pytest.mark.parametrize("tool", ["pay", "send"])
def test_an_effect_that_had_begun_is_not_run_again(ledger: Any, tool: str, tmp_path: Path) -> None:
    """Whatever the ledger says, also one that says nothing, or that it is done."""
    shop = Shop(tmp_path, ledger=ledger(tmp_path))
    recording = shop.run([act("look", what="x"), PAY if tool == "pay" else SEND, finish("x")], cut=tool)
    before = list(shop.done)
    result = shop.resume(recording, [finish("done")])
    assert shop.done == before and outcomes(result) == ["ok", "unknown_outcome"]
    assert "it is unknown whether it took effect" in result.warnings[0]


@pytest.mark.parametrize("ledger", [LEDGERS[0], LEDGERS[2]])
def test_an_effect_that_had_begun_is_run_where_its_tool_is_allowed(ledger: Any, tmp_path: Path) -> None:
    first = Shop(tmp_path, ledger=ledger(tmp_path))
    recording = first.run([PAY, finish("x")], cut="pay")
    second = Shop(tmp_path, ledger=_begun(tmp_path, recording) if ledger is LEDGERS[2] else None)
    result = second.resume(recording, [PAY, finish("done")], allow=["pay"])
    assert second.done == ["pay 7"], "once for the call that was begun; the same again is a duplicate"
    assert outcomes(result) == ["ok", "duplicate"] and result.warnings == ()


def _begun(folder: Path, recording: Recording) -> SqliteLedger:
    """A ledger of a process that was killed inside the tool."""
    [record] = recording.runs[0].run.steps[-1].calls
    assert record.key is not None
    ledger = SqliteLedger(folder / "other.db")
    from kernel.record import canonical_json, digest

    args = digest(canonical_json(record.call.args))
    ledger.begin(record.key, run_id=recording.runs[0].run.head.run_id, tool=record.call.name, args_digest=args)
    return ledger


def test_what_the_trace_shows_done_is_done_in_a_new_process_too(tmp_path: Path) -> None:
    """The live model repeats a call of the recording; no ledger has outlived the first process."""
    first = Shop(tmp_path)
    recording = first.run([PAY, act("look", what="x"), finish("x")], cut="look")
    second = Shop(tmp_path)
    result = second.resume(recording, [PAY, finish("done")])
    assert second.done == [] and outcomes(result) == ["ok", "ok", "duplicate"]
    assert calls(result)[2].result == "paid 7"


def test_what_is_unknown_stays_unknown_over_every_further_resume(tmp_path: Path) -> None:
    first = Shop(tmp_path)
    recording = first.run([PAY, finish("x")], cut="pay")
    second = Shop(tmp_path)
    second.path = tmp_path / "second.trace.json"
    second.cut = "look"
    model = ScriptedModel([act("look", what="y"), finish("done")])
    asyncio.run(resume(recording, second.agent, llm=model, trace=second.path))
    [again] = load(second.killed)
    third = Shop(tmp_path)
    result = third.resume(again, [PAY, finish("done")])
    assert second.done == third.done == []
    assert outcomes(result) == ["unknown_outcome", "ok", "unknown_outcome"]


@pytest.mark.parametrize("how", ["resume", "fork"])
def test_a_run_that_was_cut_while_it_repeated_its_recording_does_not_go_on(how: str, tmp_path: Path) -> None:
    """Its trace does not know yet what was done before it: it is not a witness, and the recording it came from is."""
    shop = Shop(tmp_path)
    recording = shop.run(
        [act("look", what="x"), PAY, act("look", what="y"), finish("x")], cut=None if how == "fork" else "pay"
    )
    path = tmp_path / "second.trace.json"
    if how == "resume":
        asyncio.run(resume(recording, shop.agent, llm=ScriptedModel([finish("x")]), trace=path))
    else:
        asyncio.run(fork(recording, shop.agent, at_step=3, llm=ScriptedModel([finish("x")]), trace=path))
    [second] = load(path)
    run = second.runs[0].run
    cut = msgspec.structs.replace(run, steps=run.steps[:1], end=None, marks=run.marks[:1])
    early = msgspec.structs.replace(second, runs=(RecordedRun(run=cut),))
    with pytest.raises(ConfigError, match=r"1 side effects of that are not in it"):
        asyncio.run(resume(early, shop.agent, llm=ScriptedModel([PAY, finish("x")]), allow=["pay"], trace=False))


@pytest.mark.parametrize("cut", ["look", "pay"])
def test_a_journal_is_there_from_the_first_live_call_on_and_not_before(cut: str, tmp_path: Path) -> None:
    """Killed while it repeats the recording, a resume leaves nothing that knows less than the recording."""
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), PAY, act("look", what="y"), finish("x")], cut=cut)
    path = tmp_path / "second.trace.json"
    seen: list[tuple[str, bool]] = []

    class Watch:
        def started(self, span: Any) -> None:
            seen.append((span.name, journal_of(path).exists()))

        def event(self, span: Any, event: Any) -> None: ...
        def ended(self, span: Any) -> None: ...
        def close(self) -> None: ...

    def llm(prompt: str) -> str:
        seen.append(("live", journal_of(path).exists()))
        return finish("x")

    tracing = Tracing(file=path, join=False, sinks=[Watch()])
    asyncio.run(resume(recording, shop.agent, llm=llm, trace=tracing))
    assert seen[0] == ("invoke_agent shop", False) and ("live", True) in seen
    first_live = next(i for i, (_, exists) in enumerate(seen) if exists)
    repeated = [name for name, _ in seen[:first_live] if name.startswith("execute_tool")]
    assert repeated == ["execute_tool look"] if cut == "look" else ["execute_tool look", "execute_tool pay"]
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "killed.trace.journal", "run.trace.json", "second.trace.json",
    ]  # fmt: skip


def test_an_old_recording_that_does_not_say_when_effects_begin_is_taken_to_have_begun(tmp_path: Path) -> None:
    shop = Shop(tmp_path, confirm=None)
    shop.run([PAY, finish("x")], cut="pay")
    lines = shop.killed.read_text().splitlines()
    mark = ',{"key":"tracefirst.call.effect","value":{"boolValue":true}}'
    assert mark in "".join(lines)
    shop.killed.write_text("\n".join(line.replace(mark, "") for line in lines if "effect_begun" not in line) + "\n")
    [recording] = load(shop.killed)
    shop.done.clear()
    assert outcomes(shop.resume(recording, [finish("done")])) == ["unknown_outcome"] and shop.done == []


def test_an_effect_that_had_begun_is_not_run_though_its_tool_is_said_to_have_none_today(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([PAY, finish("x")], cut="pay")
    tools, ran = ToolRegistry(), []

    @tools.tool
    def pay(order: int) -> str:
        """Pay an order."""
        ran.append(order)
        return "paid"

    today = Agent(name="shop", tools=tools)
    result = asyncio.run(resume(recording, today, llm=ScriptedModel([finish("x")]), trace=False))
    assert ran == [] and outcomes(result) == ["unknown_outcome"]
    again = resume(recording, today, llm=ScriptedModel([finish("x")]), trace=False, allow=["pay"])
    assert outcomes(asyncio.run(again)) == ["ok"] and ran == [7]


def test_a_run_that_goes_on_is_not_resumed_beside_it(tmp_path: Path) -> None:
    """Two of one run would do everything twice: its journal is locked while it lives, and while it is resumed."""
    shop = Shop(tmp_path)
    refused: list[str] = []

    @shop.agent.tools.tool
    def meanwhile() -> str:
        """Somebody resumes this run while it is at work."""
        [alive] = load(journal_of(shop.path))
        with pytest.raises(ConfigError) as error:
            asyncio.run(resume(alive, shop.agent, llm=ScriptedModel([finish("x")]), trace=False))
        refused.append(str(error.value))
        return "seen"

    shop.run([act("meanwhile"), finish("x")])
    assert "its run goes on, or is being resumed, in another process" in refused[0]


# ---- approvals


def test_a_call_whose_approval_was_being_asked_never_began_and_is_asked_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([PAY, finish("x")], cut="confirm", confirm=shop.confirm)
    [record] = recording.runs[0].run.steps[0].calls
    assert (record.outcome, record.key) == ("cancelled", None)
    shop.done.clear()
    shop.asked.clear()
    result = shop.resume(recording, [finish("done")], confirm=shop.confirm)
    assert (shop.asked, shop.done, outcomes(result)) == (["pay {'order': 7}"], ["pay 7"], ["ok"])


def test_the_agents_own_confirm_is_asked_for_what_is_live_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    def own(name: str, args: dict[str, Any]) -> bool:
        asked.append(name)
        return name == "send"

    shop = Shop(tmp_path, confirm=own)
    recording = shop.run([SEND, act("look", what="x"), finish("x")], cut="look")
    asked.clear()
    shop.done.clear()
    result = shop.resume(recording, [PAY, act("send", text="more"), finish("done")])
    assert asked == ["pay", "send"] and shop.done == ["send more"]
    assert outcomes(result) == ["ok", "ok", "denied", "ok"] and result.warnings == ()


@pytest.mark.parametrize("how", ["resume", "fork"])
def test_where_approvals_were_asked_and_nobody_can_be_asked_effects_are_denied(how: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), finish("x")], cut="look", confirm=shop.confirm)
    [whole] = load(shop.path)
    for allow, expected in (([], ["ok", "denied"]), (["pay"], ["ok", "ok"])):
        shop.done.clear()
        if how == "resume":
            result = shop.resume(recording, [PAY, finish("done")], allow=allow)
        else:
            model = ScriptedModel([PAY, finish("done")])
            change = Change(allow=allow)
            result = asyncio.run(fork(whole, shop.agent, at_step=2, llm=model, change=change, trace=False))
        assert outcomes(result) == expected and shop.done == (["pay 7"] if allow else [])
        assert bool(result.warnings) == (not allow)


def test_a_recorded_approval_is_good_for_the_recorded_call_alone(tmp_path: Path) -> None:
    """The live model makes a call that was approved in the recording: it is asked about anew."""
    shop = Shop(tmp_path)
    recording = shop.run([act("send", text="hi"), act("look", what="x"), finish("x")], cut="look", confirm=shop.confirm)
    shop.asked.clear()
    result = shop.resume(recording, [act("pay", order=1), finish("done")], confirm=lambda name, args: False)
    assert outcomes(result) == ["ok", "ok", "denied"]


@pytest.mark.parametrize(
    ("recorded", "today", "allow", "expected"),
    [
        ("full", "full", [], ("full", ())),
        ("full", "read_only", ["pay"], ("read_only", ())),
        ("read_only", "full", [], ("read_only", ())),
        ("read_only", "full", ["pay"], ("allowlist", ("pay",))),
        ("dry_run", "full", [], ("dry_run", ())),
        (("allowlist", "send"), "full", [], ("allowlist", ("send",))),
        (("allowlist", "send"), "full", ["pay"], ("allowlist", ("pay", "send"))),
        (("allowlist", "send"), ("allowlist", "pay"), [], ("allowlist", ())),
        (("allowlist", "send"), "dry_run", ["pay"], ("dry_run", ())),
        ("read_only", "dry_run", ["pay"], ("read_only", ())),
    ],
)
def test_the_stricter_policy_holds_and_allow_lifts_only_the_recorded_one(
    recorded: Any, today: Any, allow: list[str], expected: Any
) -> None:
    def policy(given: Any) -> Policy:
        return Policy(mode=given) if isinstance(given, str) else Policy(mode=given[0], allow=given[1:])

    found = stricter(policy(recorded), policy(today), allow)
    assert (found.mode, found.allow) == expected


def test_a_recorded_policy_holds_when_its_run_is_resumed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, policy="read_only")
    recording = shop.run([act("look", what="x"), finish("x")], cut="look")
    shop.agent.policy = "full"
    result = shop.resume(recording, [PAY, finish("done")])
    assert shop.done == [] and outcomes(result) == ["ok", "denied"]


def test_a_fork_stays_one_when_it_is_resumed(tmp_path: Path) -> None:
    """Effects that a fork must not run are not run by going on with the fork either."""
    shop = Shop(tmp_path)
    whole = shop.run([act("look", what="x"), finish("x")])
    shop.path, shop.cut = tmp_path / "fork.trace.json", "look"
    model = ScriptedModel([act("look", what="y"), finish("x")])
    asyncio.run(fork(whole, shop.agent, at_step=2, llm=model, trace=shop.path))
    [cut] = load(shop.killed)
    shop.done.clear()
    result = shop.resume(cut, [PAY, finish("done")])
    assert shop.done == [] and outcomes(result) == ["ok", "ok", "denied"]
    result = shop.resume(cut, [PAY, finish("done")], allow=["pay"])
    assert shop.done == ["pay 7"] and outcomes(result)[-1] == "ok"


# ---- references


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"results": {(2, 0): "x"}},
            "result 2.0: only a result before the fork can be replaced; that is at step 2, it has steps 1 to 1",
        ),
        ({"results": {(99, 0): "x"}}, "result 99.0: only a result before"),
        ({"results": {(0, 0): "x"}}, "result 0.0: only a result before"),
        ({"results": {(1, 1): "x"}}, "result 1.1: the recording has no such call; step 1 has 1.0 look"),
        (
            {"allow": ["no_such_tool"]},
            'allow "no_such_tool": the agent has no such tool with side effects; it has pay, send',
        ),
        ({"allow": ["look"]}, 'allow "look": the agent has no such tool with side effects'),
    ],
)
def test_a_reference_to_nothing_is_refused_before_anything_is_live(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), act("look", what="y"), finish("x")])
    model, target = ScriptedModel([finish("x")]), tmp_path / "fork.trace.json"
    with pytest.raises(ConfigError) as refused:
        asyncio.run(fork(recording, shop.agent, at_step=2, llm=model, change=Change(**options), trace=target))
    assert message in str(refused.value)
    assert model.requests == [] and not target.exists() and not journal_of(target).exists()


def test_a_call_that_was_refused_has_no_result_to_replace(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", wat="x"), finish("x")])
    work = fork(recording, shop.agent, at_step=2, llm=ScriptedModel([]), change=Change(results={(1, 0): "x"}))
    with pytest.raises(ConfigError, match=r"result 1.0: look was not run there \(bad_args\)"):
        asyncio.run(work)


def test_a_replacement_reaches_its_own_call_and_no_live_one(tmp_path: Path) -> None:
    """At the place of the replaced call of another step the live model calls a side effect: that is denied."""
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), act("look", what="y"), finish("x")])
    model = ScriptedModel([PAY, finish("done")])
    change = Change(results={(1, 0): "nothing to see"})
    result = asyncio.run(fork(recording, shop.agent, at_step=2, llm=model, change=change, trace=False))
    assert calls(result)[0].result == "nothing to see"
    assert outcomes(result) == ["ok", "denied"] and shop.done == []


def test_steps_that_do_not_come_out_as_recorded_are_refused_before_anything_is_live(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), PAY, act("look", what="y"), finish("x")])
    stricter_today = Shop(tmp_path, policy="read_only").agent
    target = tmp_path / "fork.trace.json"
    model = ScriptedModel([finish("x")])
    with pytest.raises(
        ConfigError, match=r'step 2 .* pay\({"order":7}\) was ok, and is denied. Fork at step 2 or before'
    ):
        asyncio.run(fork(recording, stricter_today, at_step=3, llm=model, trace=target))
    shorter = Agent(name="shop", tools=shop.agent.tools, budget=Budget(max_steps=1))
    with pytest.raises(ConfigError, match=r"step 2 .* it is not reached: the run stops with max_steps"):
        asyncio.run(fork(recording, shorter, at_step=3, llm=model, trace=target))
    assert model.requests == [] and not target.exists() and not journal_of(target).exists()


def test_a_fork_behind_the_end_of_a_run_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), finish("x")])
    with pytest.raises(ConfigError, match="nothing would be live: the run ends with finish before step 3"):
        asyncio.run(fork(recording, shop.agent, at_step=3, llm=ScriptedModel([])))


def test_a_fork_that_cannot_be_kept_says_so_before_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be written, and a disk that is full."""
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what="x"), finish("x")])
    model = ScriptedModel([finish("x")])

    def refused(error: int) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(error, os.strerror(error))

        return fail

    for name, error in (("open", 30), ("write", 28)):
        with monkeypatch.context() as patch:
            patch.setattr(f"kernel.trace.journal.os.{name}", refused(error))
            with pytest.raises(
                ConfigError, match="nothing was run, because its trace could not be kept: .*" + os.strerror(error)
            ):
                asyncio.run(fork(recording, shop.agent, at_step=2, llm=model, trace=tmp_path / f"{name}.trace.json"))
    assert model.requests == []


# ---- masked values


class Custom:
    """A model of the user's own."""

    protocol, provider, name, params = "text", "own", "m", None

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: Any) -> Reply:
        self.asked += 1
        return Reply(text=finish("x"))


@pytest.mark.parametrize("kind", ["function", "model"])
def test_a_masked_value_reaches_no_model_of_any_kind(kind: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    recording = shop.run([act("look", what=KEY), finish("x")])
    model, asked = Custom(), []
    llm: Any = model if kind == "model" else lambda prompt: asked.append(prompt) or finish("x")
    with pytest.raises(
        ConfigError, match=r"not sent: /messages/2 .assistant. holds the placeholder of a masked secret"
    ):
        asyncio.run(fork(recording, shop.agent, at_step=2, llm=llm, trace=False))
    assert model.asked == 0 and asked == []
    before = asyncio.run(fork(recording, shop.agent, at_step=1, llm=llm, trace=False))
    assert before.ok, "before the secret there is nothing to keep back"


def test_a_masked_value_reaches_no_live_tool(tmp_path: Path) -> None:
    """Neither where its call was cut short in its middle and would be run again, nor where a live model came by it."""
    shop = Shop(tmp_path)
    seen: list[str] = []

    @shop.agent.tools.tool
    def query(key: str) -> str:
        """Ask a database."""
        seen.append(key)
        shop._die("query")
        return "rows"

    recording = shop.run([act("query", key=KEY), finish("x")], cut="query")
    model = ScriptedModel([finish("done")])
    with pytest.raises(ConfigError, match="holds the placeholder of a masked secret"):
        asyncio.run(resume(recording, shop.agent, llm=model, trace=False))
    [masked] = [record.call.args["key"] for step in recording.runs[0].run.steps for record in step.calls]
    live = ScriptedModel([act("query", key=masked), finish("done")])
    result = asyncio.run(fork(recording, shop.agent, at_step=1, llm=live, trace=tmp_path / "live.trace.json"))
    assert seen == [KEY] and outcomes(result) == ["denied"] and "masked secret" in result.warnings[0]
    assert replay(load(tmp_path / "live.trace.json")[0]).verdict == "same"


# ---- the command


def command(capsys: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *args: str) -> tuple[int, str, str]:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(SystemExit) as left:
        main(list(args))
    told = capsys.readouterr()
    return int(str(left.value.code)), told.out, told.err


APP = '''
from kernel import Agent, ScriptedModel, ToolRegistry
tools = ToolRegistry()
done = []
@tools.register(side_effect=True)
def pay(order: int) -> str:
    """Pay an order."""
    done.append(order)
    return "paid"
@tools.tool
def look(what: str) -> str:
    """Look."""
    return what
agent = Agent(name="shop", tools=tools)
def llm():
    return ScriptedModel([[("pay", '{"order": 7}')], "done"], protocol="tools")
live = llm()
'''


@pytest.mark.parametrize(
    ("more", "status", "paid"), [((), 1, []), (("--allow", "pay"), 0, [7]), (("--allow", "no_such"), 2, [])]
)
def test_resume_on_the_command_line_asks_nobody_and_says_what_it_did_not_run(
    more: tuple[str, ...], status: int, paid: list[int], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"app_{status}_{len(more)}"
    (tmp_path / f"{name}.py").write_text(APP)
    shop = Shop(tmp_path)
    call = [("look", json.dumps({"what": "x"}))]
    shop.run([call, "x"], cut="look", confirm=shop.confirm, protocol="tools")
    args = ["resume", str(shop.killed), "--agent", f"{name}:agent", "--llm", f"{name}:live", "--format", "json", *more]
    code, out, err = command(capsys, monkeypatch, tmp_path, *args)
    assert code == status
    assert sys.modules[name].done == paid
    if status == 1:
        [withheld] = json.loads(out)["withheld"]
        assert 'pay({"order":7}) was not run' in withheld and withheld in err
    if status == 2:
        assert "no such tool with side effects; it has pay" in err and out == ""


class Terminal(io.StringIO):
    """Somebody sits at it, and types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "status", "paid"), [("y\n", 0, [7]), ("n\n", 0, []), ("", 130, [])])
def test_an_approval_is_asked_on_the_terminal_where_the_agent_has_no_confirm(
    typed: str, status: int, paid: list[int], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is an answer, so all is well; the end of the input ends the run."""
    name = f"asked_{len(typed)}_{status}_{len(paid)}"
    (tmp_path / f"{name}.py").write_text(APP)
    shop = Shop(tmp_path)
    shop.run([[("look", '{"what": "x"}')], "x"], cut="look", confirm=shop.confirm, protocol="tools")
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    args = ["resume", str(shop.killed), "--agent", f"{name}:agent", "--llm", f"{name}:live", "--format", "json"]
    code, out, err = command(capsys, monkeypatch, tmp_path, *args)
    assert (code, sys.modules[name].done) == (status, paid)
    assert 'run pay({"order":7})? [y/N]' in err
    if status == 0:
        assert json.loads(out)["withheld"] == []
