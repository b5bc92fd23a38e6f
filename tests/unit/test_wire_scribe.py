"""How conversations are told apart and put into runs, and what of an exchange is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.record import CountingIds
from kernel import Masker, Tracing
from kernel.errors import ConfigError
from kernel.trace import semconv as sc
from replay.readers import read_traces
from replay.wire.aside import Recorder, Setting
from replay.wire.exchange import Answer, Asked, Chunk
from replay.wire.gateway import Gateway
from replay.wire.player import Player
from replay.wire.scribe import Scribe
from replay.wire.stored import Book
from replay.wire.upstreams import environment, parse_upstreams, route
from replay.wire.veil import veiled_answer
from tests.wirelab import Recording, recorded, replayed, served
from tests.wireworld import Body, agent, brain, spoken


def runs_of(book: Book) -> list[tuple[str, int, int]]:
    assert book.recording is not None
    return [(one.run.head.task, one.run.head.turn, len(one.run.steps)) for one in book.recording.runs]


def test_a_history_that_the_server_keeps_is_one_conversation(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    previous: str | None = None
    told: list[Body] = [{"role": "user", "content": "why?"}]
    for results in ([], ["one"], ["one", "two"]):
        body = {"model": "m-1", "input": told, "previous_response_id": previous, "store": True}
        number, _ = recording.ask("responses", body)
        reply = spoken("responses", number, *brain("why?", results))
        recording.answer(number, "responses", reply)
        previous = reply["id"]
        told = [{"type": "function_call_output", "call_id": f"call_{number}", "output": f"seen {number}"}]
    book = recording.close()
    assert runs_of(book) == [("why?", 1, 3)]
    assert book.recording is not None
    run = book.recording.runs[0].run
    assert [call.result for step in run.steps for call in step.calls] == ["seen 1", "seen 2"]
    chat = run.steps[2].chat
    assert chat is not None
    assert chat.kept == 3, "the history that the server keeps is part of the request"


def test_a_conversation_that_a_call_starts_is_below_that_call(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    parent = agent("chat", "plan the whole journey")
    body = next(parent)
    reply = recording.exchange("chat", body)
    recording.run("chat", agent("chat", "plan the whole journey", system="You are the sub-agent."))
    recording.exchange("chat", parent.send(reply))
    recording.close()
    [trace] = read_traces(recording.path).traces
    spans = {span.span_id: span for span in trace.spans}
    roots = [span for span in trace.spans if sc.RUN_ID in span.attributes]
    inner = next(span for span in roots if "sub-agent" in str(span.attributes[sc.SYSTEM_INSTRUCTIONS]))
    above = spans[str(inner.parent_id)]
    assert above.attributes[sc.OPERATION] == sc.EXECUTE_TOOL
    assert above.attributes[sc.STEP_INDEX] == 1


def test_two_ways_on_from_one_reply_are_two_conversations(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    one = agent("chat", "why?")
    first = next(one)
    reply = recording.exchange("chat", first)
    second = one.send(reply)
    recording.exchange("chat", second)
    other = json.loads(json.dumps(second))
    other["messages"][-1]["content"] = "seen otherwise"
    recording.exchange("chat", other)
    book = recording.close()
    assert sorted(steps for _, _, steps in runs_of(book)) == [1, 2]


def test_a_program_that_tells_replies_in_other_words_is_one_conversation(tmp_path: Path) -> None:
    """As frameworks do that put calls and results into plain text."""
    recording = Recording(tmp_path / "r.trace.json")
    messages: list[Body] = [{"role": "user", "content": "why?"}]
    for _ in range(3):
        body = {"model": "m-1", "messages": list(messages)}
        number, _ = recording.ask("chat", body)
        recording.answer(number, "chat", spoken("chat", number, "I look.", {"q": "x", "round": number}))
        messages += [{"role": "assistant", "content": f"Calling look({number})"}, {"role": "user", "content": "Seen."}]
    assert runs_of(recording.close()) == [("why?", 1, 3)]


def test_an_attempt_again_is_the_same_step(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    body = next(agent("chat", "why?"))
    for status in (429, 500):
        number, _ = recording.ask("chat", body)
        chunk = Chunk(after_ns=1, data=b'{"error": {"message": "later"}}')
        recording.scribe.answered(
            number, Answer(status=status, chunks=(chunk,), end="complete", at_ns=recording.tick())
        )
    recording.exchange("chat", body, rounds=0)
    book = recording.close()
    assert runs_of(book) == [("why?", 1, 1)]
    assert book.recording is not None
    chat = book.recording.runs[0].run.steps[0].chat
    assert chat is not None
    assert [attempt.status for attempt in chat.attempts] == [429, 500]
    assert [exchange.step for exchange in book.exchanges] == [1, 1, 1]


def test_a_message_is_stored_once(tmp_path: Path) -> None:
    """The size of a file is linear in the conversation, although every request repeats it all."""
    sizes = []
    for rounds in (20, 40):
        recording = Recording(tmp_path / f"{rounds}.trace.json")
        recording.run("chat", agent("chat", "why?", look=lambda args: "r" * 500), rounds=rounds)
        recording.close()
        sizes.append(recording.path.stat().st_size)
    assert sizes[1] < 2.2 * sizes[0]


def test_every_request_is_had_back_whole(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    sent: list[Body] = []
    for dialect in ("chat", "responses", "anthropic", "gemini"):
        one = agent(dialect, f"why {dialect}?", follow_up="and then?")
        body = next(one)
        while body is not None:
            sent.append(body)
            try:
                body = one.send(recording.exchange(dialect, body))
            except StopIteration:
                break
    book = recording.close()
    assert [exchange.asked.body for exchange in book.exchanges] == sent


def test_a_call_with_broken_arguments_is_recorded_as_it_is(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    number, _ = recording.ask("chat", {"model": "m-1", "messages": [{"role": "user", "content": "why?"}]})
    reply = spoken("chat", number, "x", {"q": "x"})
    reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"q": '
    recording.answer(number, "chat", reply)
    book = recording.close()
    assert book.recording is not None
    [call] = book.recording.runs[0].run.steps[0].calls
    assert call.call.raw == '{"q": '
    assert call.call.fault is not None


@pytest.mark.parametrize("body", [None, [], 1, "text", {"messages": "none"}, {"messages": [{}]}, {"n": 2**70}])
def test_any_body_is_recorded_and_served(body: object, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    asked = Asked(upstream="openai", method="POST", target="/v1/chat/completions", body=body, at_ns=recording.tick())
    recording.scribe.asked(1, asked)
    chunk = Chunk(after_ns=1, data=b"\xff\x00 no text")
    recording.scribe.answered(1, Answer(status=200, chunks=(chunk,), end="complete", at_ns=recording.tick()))
    book = recording.close()
    found = Player(book).ask(asked)
    assert type(found).__name__ == "Served"
    assert book.exchanges[0].answer.body == b"\xff\x00 no text"


def test_an_ambiguous_request_is_counted(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.trace.json")
    body = {"model": "m-1", "messages": [{"role": "user", "content": "roll a die"}]}
    for number in (1, 2):
        asked, _ = recording.ask("chat", body)
        recording.answer(asked, "chat", spoken("chat", asked, f"{number}", None))
    player = Player(recording.close())
    answers = [served(player, "chat", body)["choices"][0]["message"]["content"] for _ in range(2)]
    assert answers == ["1", "2"]
    assert (player.account().verdict, player.account().ambiguous) == ("same", 1)


def test_fields_that_name_the_caller_are_left_out(tmp_path: Path) -> None:
    book = recorded(tmp_path / "r.trace.json", [("chat", agent("chat", "why?", user="a", metadata={"run": 1}))])
    player = Player(book)
    assert replayed(player, "chat", agent("chat", "why?", user="b", metadata={"run": 2})) != ""
    assert player.account().verdict == "same"


def test_a_secret_in_pieces_is_masked_in_the_first_of_them() -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    pieces = ["key ", secret[:9], secret[9:30], secret[30:] + " end", " of it"]
    events = [
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}).encode() + b"\n\n"
        for piece in pieces
    ]
    chunks = tuple(Chunk(after_ns=at, data=event) for at, event in enumerate(events))
    answer = Answer(status=200, headers={"content-type": "text/event-stream"}, chunks=chunks, end="complete")
    masked = veiled_answer(answer, Masker.default())
    texts = [json.loads(c.data[6:])["choices"][0]["delta"]["content"] for c in masked.chunks]
    assert len(texts) == 5
    assert texts[0] == "key "
    assert texts[2:] == ["", " end", " of it"]
    assert secret[:12] not in "".join(texts)
    assert [chunk.after_ns for chunk in masked.chunks] == [0, 1, 2, 3, 4]
    assert veiled_answer(masked, Masker.default()) == masked


def test_a_stream_without_secrets_keeps_its_chunks() -> None:
    chunks = tuple(
        Chunk(after_ns=at, data=data) for at, data in enumerate((b"data: {", b'"a": 1}', b"\n\n: ping\n", b"\n"))
    )
    answer = Answer(status=200, headers={"content-type": "text/event-stream"}, chunks=chunks, end="complete")
    assert veiled_answer(answer, Masker.default()) is not None
    assert veiled_answer(answer, Masker.default()).chunks == chunks


def test_upstreams_are_read_with_and_without_v1() -> None:
    for url in ("http://host:1/v1", "http://host:1/v1/", "http://host:1"):
        found = parse_upstreams([url], {})
        assert found["openai"].url("/v1/chat/completions") == "http://host:1/v1/chat/completions"
        assert found["anthropic"].url("/v1/messages") == "http://host:1/v1/messages"
        led = environment("http://g", found, {}, keys=False)
        assert led["OPENAI_BASE_URL"] == led["OPENAI_API_BASE"] == "http://g/openai/v1"
        assert led["ANTHROPIC_BASE_URL"] == "http://g/anthropic"
    other = parse_upstreams(
        ["openai=https://host/v1beta/openai", "anthropic=https://b"], {"OPENAI_BASE_URL": "http://no"}
    )
    assert environment("http://g", other, {}, keys=False)["OPENAI_BASE_URL"] == "http://g/openai"
    assert other["openai"].url("/chat/completions") == "https://host/v1beta/openai/chat/completions"
    assert parse_upstreams([], {"OPENAI_BASE_URL": "http://mine/v1"})["openai"].base == "http://mine"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "opnai=http://x",
            "--upstream opnai=http://x: 'opnai' is none of openai, anthropic, gemini; did you mean openai?",
        ),
        ("groq=http://x", "'groq' is none of openai, anthropic, gemini$"),
        ("foo", "--upstream foo: 'foo' is no http"),
        ("gemini=foo", "--upstream gemini=foo: 'foo' is no http"),
    ],
)
def test_an_upstream_that_nothing_would_ask_is_refused_as_it_was_typed(given: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        parse_upstreams([given], {})


def test_an_address_of_the_environment_is_refused_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_BASE_URL: 'foo'"):
        parse_upstreams([], {"ANTHROPIC_BASE_URL": "foo"})


def test_only_what_a_trace_file_took_is_counted(tmp_path: Path) -> None:
    scribe = Scribe(Tracing(directory=tmp_path), CountingIds("gateway"), "lab", Gateway.clock(), idle_s=60)
    body = {"model": "m", "messages": [{"role": "user", "content": "why?"}]}
    asked = Asked(upstream="openai", method="POST", target="/v1/chat/completions", body=body, at_ns=1)
    scribe.asked(1, asked)
    scribe.close()
    assert (scribe.exchanges, scribe.conversations, scribe.whole) == (1, 1, True)
    scribe.asked(2, asked)
    (journal,) = tmp_path.glob("*/*.journal")
    journal.with_name(journal.name.replace(".journal", ".json")).mkdir()
    scribe.close()
    assert (scribe.exchanges, scribe.conversations, scribe.whole) == (1, 1, False)
    lost = Scribe(Tracing(directory="/proc/nope"), CountingIds("lost"), "lab", Gateway.clock(), idle_s=60)
    lost.asked(1, asked)
    lost.close()
    assert (lost.exchanges, lost.conversations, lost.whole) == (0, 0, False)


@pytest.mark.parametrize("more", [{"directory": "app.py"}, {"directory": "app.py/below"}, {"otlp": "foo"}])
def test_a_recording_that_could_go_nowhere_is_refused_at_the_start(
    more: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()
    with pytest.raises(ConfigError, match=next(iter(more.values()))):
        Recorder(Setting(name="lab", idle_s=60, **more))


def test_the_child_reaches_the_gateway_past_any_proxy() -> None:
    led = environment("http://127.0.0.1:1", {}, {"HTTP_PROXY": "http://proxy", "NO_PROXY": "corp"}, keys=True)
    assert led["NO_PROXY"] == "corp,127.0.0.1,localhost"
    assert led["no_proxy"] == "127.0.0.1,localhost"
    assert led["OPENAI_API_KEY"]


def test_a_request_finds_its_upstream() -> None:
    names = ["openai", "anthropic", "gemini"]
    assert route("/anthropic/v1/messages", names) == ("anthropic", "/v1/messages")
    assert route("/v1/messages", names) == ("anthropic", "/v1/messages")
    assert route("/v1/chat/completions?x=1", names) == ("openai", "/v1/chat/completions?x=1")
    assert route("/v1beta/models/x:generateContent", names) == ("gemini", "/v1beta/models/x:generateContent")
    assert route("/v1/embeddings", names) == ("openai", "/v1/embeddings")
    assert route("/anything", ["mine"]) == ("mine", "/anything")
