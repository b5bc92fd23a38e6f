"""What is recorded at the wire is served again strictly, and what differs is named where it differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel.errors import TraceError
from replay.wire import serving
from replay.wire.player import Account, Player
from replay.wire.stored import load_book
from tests.wirelab import Recording, Refusal, recorded, replayed, served
from tests.wireworld import DIALECTS, agent, spoken


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_same_agent_replays_the_same(dialect: str, stream: bool, tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [(dialect, agent(dialect, "why?"))], stream=stream)
    assert [exchange.step for exchange in book.exchanges] == [1, 2, 3]
    player = Player(book)
    assert replayed(player, dialect, agent(dialect, "why?"), stream=stream) == "why?: seen why? 2"
    account = player.account()
    assert (account.verdict, account.served, account.unused, account.refused) == ("same", 3, 0, 0)
    assert account.steps == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_trace_holds_the_run(dialect: str, tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [(dialect, agent(dialect, "why?", follow_up="and then?"))])
    assert book.recording is not None
    runs = [r.run for r in book.recording.runs]
    assert all(not r.problems for r in book.recording.runs)
    assert [(run.head.task, run.head.turn, len(run.steps)) for run in runs] == [("why?", 1, 3), ("and then?", 2, 3)]
    assert runs[0].head.system == "Be brief."
    assert [tool.name for tool in runs[0].head.tools] == ["look"]
    first = runs[0].steps[0]
    assert [(r.call.name, r.call.args, r.outcome) for r in first.calls] == [("look", {"q": "why?", "round": 1}, "ok")]
    assert "seen why? 1" in first.calls[0].result
    assert [(run.end.stop_reason, run.end.answer) for run in runs if run.end] == [
        ("finish", "why?: seen why? 2"),
        ("finish", "and then?: seen and then? 2"),
    ]


def changed(dialect: str, **change: Any) -> dict[str, Any]:
    return {"dialect": dialect, "task": "why?"} | change


CHANGES = [
    ({"system": "Be long."}, 1, 1, "request", "prompt"),
    ({"describe": "Look well."}, 1, 1, "request", "tool schema"),
    ({"task": "how?"}, 1, 1, "request", "task"),
    ({"look": lambda args: "nothing"}, 2, 1, "result", "tool result"),
    (
        {"look": lambda args: f"seen {args['q']} {args['round']}" if args["round"] == 1 else "x"},
        3,
        2,
        "result",
        "tool result",
    ),
    ({"top_k": 3}, 1, 1, "request", "parameters"),
    ({"model": "m-2"}, 1, 1, "request", "model"),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("change", "exchange", "step", "kind", "cause"), CHANGES)
def test_a_change_is_named_at_its_place(
    dialect: str, change: dict[str, Any], exchange: int, step: int, kind: str, cause: str, tmp_path: Path
) -> None:
    book = recorded(tmp_path / "r.trace.json", [(dialect, agent(dialect, "why?"))])
    player = Player(book)
    assert replayed(player, dialect, agent(**changed(dialect, **change))) == ""
    account = player.account()
    first = account.found[0]
    assert account.verdict == "diverged"
    assert (first.exchange, first.divergence.step, first.divergence.kind) == (exchange, step, kind)
    assert first.divergence.cause == cause
    assert first.divergence.span_id == book.exchanges[step - 1].span_id
    assert all(found.divergence.downstream for found in account.found[1:])


def test_a_result_that_is_told_as_a_user_message_is_a_result(tmp_path: Path) -> None:
    """As frameworks do that put calls and results into plain text."""

    def bodies(seen: str) -> list[dict[str, Any]]:
        said = {"role": "assistant", "content": "Calling look"}
        start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "why?"}]
        told = [*start, said, {"role": "user", "content": f"Observation: {seen}"}]
        return [{"model": "m-1", "messages": start}, {"model": "m-1", "messages": told}]

    recording = Recording(tmp_path / "r.trace.json")
    for body in bodies("red"):
        number, _ = recording.ask("chat", body)
        recording.answer(number, "chat", spoken("chat", number, "I look.", {"q": "x", "round": number}))
    player = Player(recording.close())
    first, second = bodies("blue")
    served(player, "chat", first)
    with pytest.raises(Refusal):
        served(player, "chat", second)
    found = player.account().found[0]
    assert (found.divergence.kind, found.divergence.cause, found.divergence.step) == ("result", "tool result", 1)


def test_with_drift_a_changed_prompt_is_served_and_ends_drifted(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    player = Player(book, drift=True)
    assert replayed(player, "chat", agent("chat", "why?", system="Be long.")) == "why?: seen why? 2"
    account = player.account()
    assert (account.verdict, account.served, account.refused, account.drifted) == ("drifted", 3, 0, 3)
    assert account.found[0].divergence.cause == "prompt"


def test_with_drift_a_changed_result_is_served_and_ends_diverged(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    player = Player(book, drift=True)
    replayed(player, "chat", agent("chat", "why?", look=lambda args: "else"))
    account = player.account()
    assert account.verdict == "diverged"
    assert account.found[0].divergence.kind == "result"


def test_a_served_recording_is_compared_by_the_rules_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "r.trace.json"
    recorded(path, [("chat", agent("chat", "why?", system="Today is 2026-01-01."))])
    today = agent("chat", "why?", system="Today is 2026-12-24.")
    (tmp_path / "replay-rules.toml").write_text(
        "[rules]\ndate = { path = '/request/messages/0/content', pattern = '[0-9]{4}-[0-9]{2}-[0-9]{2}' }\n"
    )
    with serving(path) as server:
        replayed(server.player, "chat", today)
    assert [(rule.name, matched) for rule, matched in server.account().rules] == [("date", 3)]


def test_a_served_recording_has_an_address_for_every_dialect(tmp_path: Path) -> None:
    recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    with serving(tmp_path / "r.trace.json", check=False) as server:
        base = server.url.removesuffix("/openai/v1")
        assert server.urls == {
            "openai": f"{base}/openai/v1",
            "anthropic": f"{base}/anthropic",
            "gemini": f"{base}/gemini",
        }


def test_one_request_more_is_refused_and_named(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    player = Player(book)
    assert replayed(player, "chat", agent("chat", "why?", follow_up="more?")) == ""
    account = player.account()
    assert (account.verdict, account.served, account.refused) == ("diverged", 3, 1)
    assert (account.found[0].divergence.kind, account.found[0].divergence.cause) == ("missing", "more requests")


def test_one_request_less_is_named(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?", follow_up="more?"))])
    player = Player(book)
    assert replayed(player, "chat", agent("chat", "why?")) != ""
    account = player.account()
    assert (account.verdict, account.unused) == ("diverged", 3)
    first = account.found[0]
    assert (first.exchange, first.divergence.turn, first.divergence.step) == (4, 2, 1)
    assert first.divergence.cause == "fewer requests"


def test_nothing_asked_is_nothing_checked(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    assert Player(book).account().verdict == "not_checked"


def test_after_the_first_difference_nothing_is_served(tmp_path: Path) -> None:
    runs = [("chat", agent("chat", "one")), ("chat", agent("chat", "two"))]
    player = Player(recorded(tmp_path / "r.trace.json", runs))
    assert replayed(player, "chat", agent("chat", "three")) == ""
    assert replayed(player, "chat", agent("chat", "two")) == ""
    account = player.account()
    assert (account.served, account.refused) == (0, 2)
    assert len([found for found in account.found if not found.divergence.downstream]) == 1


def test_one_task_under_different_prompts_gets_each_its_own_answer(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    for system in ("Be brief.", "Be long."):
        recording.run("chat", agent("chat", "why?", system=system, look=lambda args, s=system: s))
    player = Player(recording.close())
    for system in ("Be long.", "Be brief."):
        answer = replayed(player, "chat", agent("chat", "why?", system=system, look=lambda args, s=system: s))
        assert answer == f"why?: {system}"
    assert player.account().verdict == "same"


def test_an_edited_recording_is_never_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.trace.json"
    recorded(path, [("chat", agent("chat", "why?"))])
    text = path.read_text()
    assert text.count("seen why? 2") > 2
    path.write_text(text.replace("seen why? 2", "seen why? 3"))
    player = Player(load_book(path))
    look = lambda args: f"seen why? {args['round'] + (args['round'] == 2)}"  # noqa: E731
    replayed(player, "chat", agent("chat", "why?", look=look))
    account = player.account()
    assert account.verdict == "not_checked"
    assert "not as it was recorded" in account.why_not


def test_a_file_of_the_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no exchange recorded at the wire"):
        load_book(Path(__file__).parents[2] / "fixtures" / "order-5xx.trace.json")


def test_a_same_has_evidence(tmp_path: Path) -> None:
    """No account says `same` with nothing served, something unused or something refused."""
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?"))])
    accounts: list[Account] = []
    for tasks in ([], ["why?"], ["why?", "why?"], ["how?"]):
        player = Player(book)
        for task in tasks:
            replayed(player, "chat", agent("chat", task))
        accounts.append(player.account())
    assert [account.verdict for account in accounts] == ["not_checked", "same", "diverged", "diverged"]
    assert all(a.served and not a.unused and not a.refused for a in accounts if a.verdict == "same")
