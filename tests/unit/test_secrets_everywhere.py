"""Forty planted secrets are in no file, span, log, snapshot or terminal output, and the masked run still replays as same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fixtures.record import CountingClock
from kernel import Agent, Budget, ContextLimits, ModelError, ScriptedModel, ToolRegistry, Tracing, Usage
from kernel.export.sink import Limits, OtlpSink
from kernel.masking import PLACEHOLDER, Masker, by_regex, contains_placeholder
from kernel.record.canonical import compact_json
from kernel.trace.journal import journal_of
from kernel.trace.pieces import secrets_in, without_parts
from kernel.trace.span import Event, Span
from replay.cli import main
from replay.loading import load
from replay.play.play import replay
from replay.play.recording import Recording
from replay.suite.snapshot import snapshot_text
from tests.e2e.otlp_server import OtlpServer, Reply
from tests.helpers import act, finish, play, registry
from tests.planted_secrets import KEYS, PLANTED, LeakyRun, leaks

Command = Callable[..., str]


class Watch:
    """A sink that keeps the journal as it stands after each span."""

    def __init__(self, final: Path) -> None:
        self._journal = journal_of(final)
        self.seen = b""

    def started(self, span: Span) -> None:
        self.seen += self._journal.read_bytes()

    def event(self, span: Span, event: Event) -> None:
        self.started(span)

    def ended(self, span: Span) -> None:
        self.started(span)

    def close(self) -> None:
        """Nothing is held open."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command; gives all it printed."""

    def run(*args: str | Path) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([str(arg) for arg in args])
        return "".join(capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpServer]:
    """Refuses the first request of each run with an answer that repeats the header it was sent."""
    with OtlpServer() as server:
        yield server


def same(path: Path) -> Recording:
    """The recording in a file, which must replay as same."""
    (recording,) = load(path)
    result = replay(recording)
    assert (result.verdict, result.divergences, result.why_not) == ("same", (), "")
    assert result.served.model > 1
    assert (result.unused.model, result.unused.tools) == (0, 0)
    return recording


@pytest.mark.parametrize("protocol", ["text", "tools"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_secret_is_nowhere_and_its_run_replays_as_same(
    name: str,
    protocol: str,
    tmp_path: Path,
    command: Command,
    collector: OtlpServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    template, secret = PLANTED[name]
    text, path = template.format(secret), tmp_path / "run.trace.json"
    caplog.set_level(logging.DEBUG)
    watch, exporter, provider = Watch(path), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    header = " ".join(secret.split())
    collector.script(Reply(status=503, body=header.encode()))
    otlp = OtlpSink(
        collector.url, headers={"x-note": header}, spool=tmp_path / "spool", limits=Limits(retry_initial_s=0.01)
    )
    before = len(collector.spans)
    tracing = Tracing(
        file=path, sinks=[watch, otlp], provider=provider, attributes={"deployment.note": text}, join=False
    )
    result = LeakyRun(text, protocol=protocol, limit=700, usage=False).run(tracing)
    others = [warning for warning in result.warnings if "spans wait" not in warning]  # the server says 503 soon or late
    assert (result.stop_reason, others) == ("finish", [])
    spooled = b"".join(file.read_bytes() for file in (tmp_path / "spool").rglob("*") if file.is_file())
    assert otlp.flush(120).waiting == 0

    recording = same(path)
    places: dict[str, str | bytes] = {
        "journal while running": watch.seen,
        "trace file": path.read_bytes(),
        "spool": spooled,
        "OTLP": "".join(str(span) for span in collector.spans[before:]),
        "SDK": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "snapshot": snapshot_text(replay(recording)),
        "logs": caplog.text,
        "replay": command(path),
        "replay --format json": command(path, "--format", "json"),
        "show": command("show", path),
        "check": command("check", path),
        "stats": command("stats", path),
        "diff": command("diff", path, path),
    }
    assert [place for place, held in places.items() if not held and place not in ("logs", "spool")] == []
    assert leaks(secret, places) == []
    assert "~masked." in places["show"]  # type: ignore[operator]


@pytest.mark.parametrize("usage", [True, False], ids=["usage known", "usage unknown"])
@pytest.mark.parametrize("limit", [300, 900, 2000, 8000])
@pytest.mark.parametrize("name", ["github", "postgres", "private key", "cookie", "jwt"])
def test_wherever_a_text_with_a_secret_is_cut_its_run_replays_as_same(
    name: str, limit: int, usage: bool, tmp_path: Path
) -> None:
    template, secret = PLANTED[name]
    path = tmp_path / "run.trace.json"
    LeakyRun(template.format(secret), limit=limit, usage=usage).run(Tracing(file=path, join=False))
    same(path)
    assert leaks(secret, {"trace file": path.read_bytes()}) == []


@pytest.mark.parametrize("offset", range(0, 60, 3))
def test_a_cut_through_a_secret_leaves_no_piece_of_it(offset: int, tmp_path: Path) -> None:
    """The secret moves across the place where the head of the shown text ends, and across that where its tail begins."""
    secret = KEYS["github"]
    filler = "word " * 400
    text = f"{filler[: 100 + offset]} {secret} {filler} {secret} {filler[: 100 + offset]}"
    path = tmp_path / "run.trace.json"

    def look() -> str:
        """Look."""
        return text

    script = [act("look"), act("read_range", handle="artifact-1", start=120 + offset, length=200), finish("done")]
    context = ContextLimits(max_observation_chars=400)
    play(script, registry(look), context=context, trace=Tracing(file=path, join=False))
    shown = same(path).runs[0].run.steps[0].calls[0].shown or ""
    assert "cut here" in shown
    held = path.read_text()
    pieces = [secret[at : at + 8] for at in range(len(secret) - 7)]
    assert [piece for piece in pieces if piece in held] == []


def test_a_budget_by_estimates_stops_the_replay_where_it_stopped_the_run(tmp_path: Path) -> None:
    """A prompt with masked secrets is estimated smaller than the real one was; the difference is on record."""
    secret = KEYS["jwt"]
    stopped = set()
    for limit in range(300, 2400, 150):
        path = tmp_path / f"{limit}.trace.json"
        tools, budget = registry(_fetch(secret)), Budget(max_steps=9, max_prompt_tokens=limit)
        result = play([act("fetch", key=secret)] * 9, tools, budget=budget, trace=Tracing(file=path, join=False)).result
        stopped.add((result.stop_reason, len(result.steps)))
        if len(result.steps) > 2:
            same(path)
    assert len([one for one in stopped if one[0] == "token_budget"]) > 2


def _fetch(secret: str) -> Callable[..., str]:
    counts: list[int] = []

    def fetch(key: str) -> str:
        """Fetch."""
        counts.append(1)
        return f"{len(counts)} {secret}"

    return fetch


def test_condensed_steps_that_held_secrets_replay_as_same_and_leak_nothing(tmp_path: Path) -> None:
    secret = KEYS["anthropic"]

    def look(at: str) -> str:
        """Look."""
        return f"{'x' * (int(at) * 7)} {secret} seen at {at} {'and more ' * 20}"

    script = [act("look", at=str(number)) for number in range(14)] + [finish(f"done with {secret}")]
    path = tmp_path / "run.trace.json"
    play(
        script,
        registry(look),
        context=ContextLimits(window_tokens=900, keep_steps=2),
        trace=Tracing(file=path, join=False),
    )
    recording = same(path)
    assert any(step.chat is not None and step.chat.condensed for step in recording.runs[0].run.steps)
    held = path.read_text()
    assert [secret[at : at + 8] for at in range(12, len(secret) - 7) if secret[at : at + 8] in held] == []


def test_a_conversation_with_secrets_replays_as_same(tmp_path: Path) -> None:
    import asyncio

    secret = KEYS["slack bot"]
    path = tmp_path / "chat.trace.json"

    def look() -> str:
        """Look."""
        return f"{secret} " + "word " * 300

    async def chat() -> None:
        agent = Agent(tools=registry(look), context=ContextLimits(max_observation_chars=500))
        script = [act("look"), finish(f"it is {secret}"), act("look"), finish("the same")]
        async with agent.conversation(llm=ScriptedModel(script), trace=Tracing(file=path, join=False)) as talk:
            await talk.send(f"what is {secret}?")
            await talk.send(f"sure that it is {secret}?")

    asyncio.run(chat())
    assert len(same(path).runs) == 2
    assert leaks(secret, {"trace file": path.read_bytes()}) == []


@pytest.mark.parametrize("protocol", ["text", "tools"])
@pytest.mark.parametrize("name", PLANTED)
def test_the_json_of_a_result_holds_no_secret_and_replays_as_same(name: str, protocol: str, tmp_path: Path) -> None:
    template, secret = PLANTED[name]
    result = LeakyRun(template.format(secret), protocol=protocol, limit=700).run(False)
    path = tmp_path / "result.json"
    path.write_text(result.to_json())
    assert leaks(secret, {"result": path.read_bytes()}) == []
    same(path)
    assert leaks(secret, {"result": result.to_json(mask=False)}) != []


def test_secrets_that_people_choose_cannot_be_tested_by_key_or_binding(tmp_path: Path) -> None:
    """The idempotency key and the approval's binding are made of the masked arguments: equal for different passwords of
    one placeholder, and no digest of the real ones."""
    from kernel.stores.ledger import approval_binding, idempotency_key

    path = tmp_path / "run.trace.json"
    real = {"password": "correct horse"}

    def login(password: str) -> str:
        """Log in."""
        return "ok"

    tools = ToolRegistry()
    tools.register(side_effect=True)(login)
    play(
        [act("login", **real), finish("done")],
        tools,
        confirm=lambda name, args: True,
        trace=Tracing(file=path, join=False),
    )
    run = same(path).runs[0].run
    (record,) = run.steps[0].calls
    assert contains_placeholder(record.call.args)
    held = path.read_text()
    assert idempotency_key(run.head.run_id, "login", compact_json(real), None) not in held
    assert approval_binding("login", compact_json(real), 1, 0) not in held
    assert record.key == idempotency_key(run.head.run_id, "login", compact_json(record.call.args), None)


def test_a_rule_cannot_change_what_the_format_defines(tmp_path: Path) -> None:
    """A user's pattern that hits outcomes, kinds, run ids and digests masks text alone."""
    path = tmp_path / "run.trace.json"
    masker = Masker.default().with_rules(by_regex("[a-z_]+", kind="word"), by_regex("[0-9]{3,}", kind="number"))
    tracing = Tracing(file=path, masker=masker, join=False)
    result = play(['{"action": "2"', act("3", a="4"), finish("done")], usage=Usage(), trace=tracing).result
    assert result.warnings == ()
    (recording,) = load(path)
    run = recording.runs[0].run
    assert run.head.run_id == result.run.head.run_id
    assert [step.decision and step.decision.kind for step in run.steps] == ["fault", "calls", "finish"]
    assert run.end is not None
    assert run.end.stop_reason == "finish"


def test_a_rule_that_fails_ends_the_recording_and_not_the_run(tmp_path: Path) -> None:
    """A masker that raises: nothing unmasked is written, and the result says that the recording stopped."""

    class Broken(Masker):
        def mask_learning(self, value: Any) -> tuple[Any, dict[str, str]]:
            if "task" in value:
                raise RuntimeError("the key is in this text")
            return value, {}

    path = tmp_path / "run.trace.json"
    result = play([finish("done")], trace=Tracing(file=path, masker=Broken(), join=False)).result
    assert result.ok
    assert result.warnings == ("recording stopped in run_started: RuntimeError",)


@pytest.mark.parametrize("offset", range(0, 60, 4))
def test_a_bound_through_a_secret_in_an_error_or_a_refusal_leaves_no_piece_of_it(offset: int, tmp_path: Path) -> None:
    """Texts of models, tools and checks are bounded before they are recorded, and never inside a word."""
    secret = KEYS["github"]
    path = tmp_path / "run.trace.json"

    def at(limit: int) -> str:
        return f"{('word ' * 1000)[: limit - offset - 1]} {secret} {secret}"

    def fail() -> str:
        """Fail."""
        raise RuntimeError(at(4000))

    errors = [ModelError(at(500), kind="server", status=503) for _ in range(2)]
    play(
        [errors[0], act("fail"), finish("one"), errors[1], finish("two"), finish("three")],
        registry(fail),
        finish_check=lambda answer, context: at(2000),
        budget=Budget(max_finish_refusals=3),
        trace=Tracing(file=path, join=False),
        clock=CountingClock(),
    )
    run = same(path).runs[0].run
    assert run.end is not None
    assert run.end.stop_reason == "finish_refused_exhausted"
    held = path.read_text()
    assert [secret[n : n + 8] for n in range(len(secret) - 7) if secret[n : n + 8] in held] == []


def test_pieces_of_a_secret_are_found_at_both_ends_of_a_cut() -> None:
    secret = KEYS["openai"]
    text, masked = f"a {secret} b", Masker.default().mask_text(f"a {secret} b")
    assert secrets_in(text, masked) == [secret]
    assert secrets_in(secret, Masker.default().mask_text(secret)) == [secret]
    assert secrets_in(f"{secret} {secret}", Masker.default().mask_text(f"{secret} {secret}")) == [secret, secret]
    for at in range(8, len(secret) - 8):
        left = without_parts(f"a {secret[:at]} … {secret[at:]} b", [secret])
        assert PLACEHOLDER.sub("", left) == "a  …  b"
    assert without_parts("nothing of it", [secret]) == "nothing of it"
