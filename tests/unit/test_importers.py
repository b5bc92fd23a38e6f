"""Chat-format trajectories become recordings that hold what the source has, and replay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel.errors import TraceError
from replay.explain import check
from replay.importers import save
from replay.loading import import_file, load
from replay.play.play import replay
from replay.play.recording import Recording

SYSTEM = {"role": "system", "content": "You help."}
USER = {"role": "user", "content": "Is the gateway up?"}
ANSWER = {"role": "assistant", "content": "It is up."}


def call(name: str, arguments: str = '{"service": "gateway"}', id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def gives(content: Any, id: str | None = "c1", **more: Any) -> dict[str, Any]:
    message = {"role": "tool", "content": content, **more}
    return message if id is None else {**message, "tool_call_id": id}


ROUND = [asks(call("status")), gives("up")]


def imported(tmp_path: Path, document: Any, **options: Any) -> Recording:
    (recording,) = import_file(written(tmp_path, document), **options)
    return recording


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "source.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def assert_same(recording: Recording) -> None:
    result = replay(recording)
    assert result.verdict == "imported", (result.first, result.why_not)
    assert (result.unused.model, result.unused.tools) == (0, 0)


def refusal(tmp_path: Path, document: Any) -> str:
    with pytest.raises(TraceError) as caught:
        import_file(written(tmp_path, document))
    assert caught.value.file == str(tmp_path / "source.json")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(tmp_path / "source.json"))


# ---- shapes


@pytest.mark.parametrize(
    "document",
    [
        [SYSTEM, USER, *ROUND, ANSWER],
        {"messages": [SYSTEM, USER, *ROUND, ANSWER]},
        {"traj": [SYSTEM, USER, *ROUND, ANSWER], "reward": 1.0},
        {"history": [SYSTEM, USER, *ROUND, ANSWER]},
        [[SYSTEM, USER, *ROUND, ANSWER]],
        [{"traj": [SYSTEM, USER, *ROUND, ANSWER]}],
    ],
)
def test_a_trajectory_is_found_in_every_shape(tmp_path: Path, document: Any) -> None:
    recording = imported(tmp_path, document)
    assert_same(recording)
    (recorded,) = recording.runs
    assert [len(step.calls) for step in recorded.run.steps] == [1, 0]
    assert recorded.run.end is not None and recorded.run.end.answer == "It is up."
    assert recorded.run.head.system == "You help."


def test_json_lines_hold_one_trajectory_a_line(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [USER, ANSWER]}), json.dumps([USER, *ROUND])]
    first, second = import_file(written(tmp_path, "\n".join(lines) + "\n"))
    assert first.trace_id != second.trace_id
    assert first.runs[0].run.end is not None
    assert second.runs[0].run.end is None


def test_equal_trajectories_of_one_file_are_told_apart(tmp_path: Path) -> None:
    first, second = import_file(written(tmp_path, [[USER, ANSWER], [USER, ANSWER]]))
    assert first.trace_id != second.trace_id


def test_each_user_message_is_a_turn_of_one_conversation(tmp_path: Path) -> None:
    recording = imported(tmp_path, [SYSTEM, USER, ANSWER, {"role": "user", "content": "And now?"}, *ROUND, ANSWER])
    assert_same(recording)
    assert [recorded.run.head.turn for recorded in recording.runs] == [1, 2]
    assert [recorded.run.head.task for recorded in recording.runs] == ["Is the gateway up?", "And now?"]
    assert recording.conversation is not None


def test_the_legacy_function_format_is_read(tmp_path: Path) -> None:
    spoken = {"role": "assistant", "content": None, "function_call": {"name": "status", "arguments": "{}"}}
    recording = imported(tmp_path, [USER, spoken, {"role": "function", "name": "status", "content": "up"}, ANSWER])
    assert_same(recording)
    assert recording.runs[0].run.steps[0].calls[0].result == "up"


def test_text_parts_are_read_as_their_text(tmp_path: Path) -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "up?"}]}
    assert imported(tmp_path, [user, ANSWER]).runs[0].run.head.task == "Is it up?"


# ---- what is there, and what is not


def test_what_the_source_lacks_is_named_and_not_made_up(tmp_path: Path) -> None:
    head = imported(tmp_path, [USER, *ROUND]).runs[0].run.head
    for name in ("times", "usage", "tool schemas", "model parameters", "system prompt", "model", "agent name"):
        assert name in head.absent
    assert head.source == "openai-chat"
    assert head.params.model == "" and head.system == ""
    assert [(tool.name, tool.parameters) for tool in head.tools] == [("status", {"type": "object"})]


def test_what_the_source_has_is_taken(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"service": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "status", "description": "Health", "parameters": schema}}]
    document = {"messages": [SYSTEM, USER, *ROUND], "model": "gpt-x", "tools": tools}
    head = imported(tmp_path, document, agent="ops").runs[0].run.head
    assert head.agent == "ops" and head.params.model == "gpt-x"
    assert head.tools[0].parameters == schema
    assert not {"tool schemas", "system prompt", "model", "agent name"} & set(head.absent)


def test_a_tool_that_the_source_does_not_list_is_named(tmp_path: Path) -> None:
    document = {"messages": [USER, *ROUND], "tools": [{"type": "function", "function": {"name": "other"}}]}
    recording = imported(tmp_path, document)
    assert "schema of tool status" in recording.runs[0].run.head.absent
    assert_same(recording)


def test_a_reply_keeps_its_text_and_its_calls_as_spelled(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, asks(call("status", '{ "service":"a" }'), content="I look. "), gives("up")])
    chat = recording.runs[0].run.steps[0].chat
    assert chat is not None and chat.reply is not None
    assert chat.reply.text == "I look. "
    assert chat.reply.tool_calls[0].arguments == '{ "service":"a" }'


def test_a_trajectory_that_ends_on_a_result_has_no_stop_reason(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, *ROUND])
    assert recording.runs[0].run.end is None
    result = replay(recording)
    assert result.verdict == "imported" and not result.complete


def test_a_last_user_message_without_a_reply_is_named(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, ANSWER, {"role": "user", "content": "###STOP###"}])
    assert len(recording.runs) == 1
    assert "reply to the last user message" in recording.runs[0].run.head.absent
    assert_same(recording)


def test_a_user_message_before_any_reply_is_a_turn_of_its_own(tmp_path: Path) -> None:
    second = {"role": "user", "content": "Hurry."}
    recording = imported(tmp_path, [SYSTEM, USER, second, *ROUND, ANSWER])
    assert [len(recorded.run.steps) for recorded in recording.runs] == [0, 2]
    assert recording.runs[0].run.end is None
    assert_same(recording)


def test_a_user_message_instead_of_a_reply_starts_the_next_turn(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, *ROUND, {"role": "user", "content": "Stop, do the other."}, ANSWER])
    assert [recorded.run.end is None for recorded in recording.runs] == [True, False]
    assert_same(recording)


# ---- pairing


def test_a_repeated_call_id_serves_the_result_behind_its_own_call(tmp_path: Path) -> None:
    second = [asks(call("logs")), gives("quiet")]
    third = [asks(call("status")), gives("down")]
    recording = imported(tmp_path, [USER, *ROUND, *second, *third, ANSWER])
    assert_same(recording)
    observed = replay(recording).observed[0]
    assert [record.result for step in observed.steps for record in step.calls] == ["up", "quiet", "down"]


def test_parallel_results_are_paired_by_id_where_ids_differ(tmp_path: Path) -> None:
    both = asks(call("status", id="a"), call("logs", id="b"))
    recording = imported(tmp_path, [USER, both, gives("quiet", "b"), gives("up", "a"), ANSWER])
    assert [record.result for record in recording.runs[0].run.steps[0].calls] == ["up", "quiet"]
    assert "order of tool messages" in recording.runs[0].run.head.absent
    assert_same(recording)


def test_parallel_results_are_paired_by_order_where_ids_are_equal(tmp_path: Path) -> None:
    both = asks(call("status", id="a"), call("logs", id="a"))
    recording = imported(tmp_path, [USER, both, gives("up", "a"), gives("quiet", "a"), ANSWER])
    assert [record.result for record in recording.runs[0].run.steps[0].calls] == ["up", "quiet"]
    assert_same(recording)


def test_last_calls_without_results_stay_open(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, *ROUND, asks(call("status", id="a"), call("logs", id="b")), gives("up", "a")])
    last = recording.runs[0].run.steps[-1]
    assert last.decision is None
    assert [record.outcome for record in last.calls] == ["ok", "unknown_outcome"]
    assert replay(recording).verdict == "imported"


# ---- actions in the text


FENCED = {"role": "assistant", "content": "I look.\n\n```bash\nls\n```", "action": "ls"}
SEEN = {"role": "user", "content": "a.txt {b}"}
NO_ACTION = {"role": "assistant", "content": "I think.", "action": ""}
FENCED_TEXT = {"role": "assistant", "content": FENCED["content"]}
COMPLAINT = {"role": "user", "content": "Give {one} action."}


def test_actions_in_the_text_are_sent_and_observed_as_in_the_source(tmp_path: Path) -> None:
    recording = imported(tmp_path, {"history": [SYSTEM, USER, FENCED, SEEN, FENCED, SEEN]})
    assert_same(recording)
    run = recording.runs[0].run
    chats = [step.chat for step in run.steps if step.chat is not None]
    assert [m.content for chat in chats for m in chat.new] == [
        SYSTEM["content"],
        USER["content"],
        FENCED["content"],
        SEEN["content"],
    ]
    assert [record.call.args for step in run.steps for record in step.calls] == [{"command": "ls"}] * 2


def test_a_complaint_about_the_form_is_replayed_as_the_source_spelled_it(tmp_path: Path) -> None:
    recording = imported(
        tmp_path, {"history": [USER, FENCED, SEEN, NO_ACTION, COMPLAINT, NO_ACTION, COMPLAINT, FENCED]}
    )
    assert_same(recording)
    steps = recording.runs[0].run.steps
    assert [step.feedback for step in steps] == [None, COMPLAINT["content"], COMPLAINT["content"], None]


def test_an_action_that_is_read_otherwise_here_stays_the_sources(tmp_path: Path) -> None:
    """What ran is what the source says it ran; the kernel's reading is named, and nothing is cut."""
    other = {**FENCED, "action": "rm -r ."}
    recording = imported(tmp_path, {"history": [USER, FENCED, SEEN, other, SEEN, FENCED]})
    assert_same(recording)
    steps = recording.runs[0].run.steps
    assert [r.call.args for step in steps for r in step.calls] == [{"command": c} for c in ("ls", "rm -r .", "ls")]
    assert [s.read_otherwise for s in check(recording).steps] == ["", 'run bash({"command":"ls"})', ""]


MINI: dict[str, Any] = {"trajectory_format": "mini-swe-agent-1"}


def says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("THOUGHT: see it.\n\n```bash\nhead -1 tides.csv\n```", "head -1 tides.csv"),
        (
            "A class:\n```python\nclass A:\n    def f(\n        action: type[_P],\n    ): ...\n```\nand\n```bash\ngrep x\n```",
            "grep x",
        ),
        ("```mswea_bash_command\nls -la\n```", "ls -la"),
        ("```bash\ncat <<'E'\n```json\n{}\n```\nE\n```", "cat <<'E'"),
    ],
)
def test_mini_swe_agent_ran_the_one_block_of_shell_code(tmp_path: Path, text: str, command: str) -> None:
    recording = imported(tmp_path, {**MINI, "messages": [SYSTEM, USER, says(text), SEEN, FENCED_TEXT]})
    assert_same(recording)
    [record] = recording.runs[0].run.steps[0].calls
    assert (list(record.call.args.values()), record.outcome, record.result) == ([command], "ok", SEEN["content"])


def test_two_blocks_were_refused_by_mini_swe_agent_and_nothing_ran(tmp_path: Path) -> None:
    text = "I ran:\n```bash\nrm tides.bak\n```\nand again:\n```bash\nls -la\n```"
    told = {"role": "user", "content": "Please give EXACTLY ONE action, found 2 actions."}
    other = {"role": "user", "content": "Please give EXACTLY ONE action, found 0 actions."}
    recording = imported(tmp_path, {**MINI, "messages": [USER, says(text), told, says("Well."), other, FENCED_TEXT]})
    assert_same(recording)
    steps = recording.runs[0].run.steps
    assert [len(step.calls) for step in steps] == [0, 0, 1]
    assert [step.feedback for step in steps] == [told["content"], other["content"], None]


# ---- what other chats have


def test_system_messages_at_the_start_are_one(tmp_path: Path) -> None:
    second = {"role": "system", "content": "Be brief."}
    recording = imported(tmp_path, [SYSTEM, second, USER, ANSWER])
    assert recording.runs[0].run.head.system == f"{SYSTEM['content']}\n\nBe brief."
    assert any("2 system messages" in name for name in recording.runs[0].run.head.absent)
    assert_same(recording)


def test_a_system_message_in_the_middle_is_sent_as_the_users_and_named(tmp_path: Path) -> None:
    middle = {"role": "system", "content": "Answer now."}
    recording = imported(tmp_path, [USER, ANSWER, middle, ANSWER])
    assert [recorded.run.head.task for recorded in recording.runs] == [USER["content"], "Answer now."]
    assert any("system message in the middle" in name for name in recording.runs[0].run.head.absent)
    assert_same(recording)


def test_a_greeting_before_the_task_is_named(tmp_path: Path) -> None:
    greeting = {"role": "assistant", "content": "How can I help?"}
    recording = imported(tmp_path, [greeting, USER, ANSWER])
    assert any("before the task" in name for name in recording.runs[0].run.head.absent)
    assert_same(recording)


def test_a_part_that_is_no_text_is_kept_as_its_json(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "a.png"}}
    recording = imported(tmp_path, [{"role": "user", "content": [{"type": "text", "text": "See "}, image]}, ANSWER])
    assert recording.runs[0].run.head.task == 'See {"type":"image_url","image_url":{"url":"a.png"}}'
    assert_same(recording)


def test_calls_and_results_in_content_blocks_and_a_system_beside_the_messages_are_read(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "status", "input": {"service": "x"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "up"}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]}
    messages = [USER, said, {"role": "user", "content": [result]}, ANSWER]
    recording = imported(tmp_path, {"model": "m", "system": "Be brief.", "messages": messages})
    assert [turn.run.head.task for turn in recording.runs] == [USER["content"]]
    run = recording.runs[0].run
    assert (run.head.system, run.end and run.end.answer) == ("Be brief.", "It is up.")
    [made] = run.steps[0].calls
    assert (made.call.name, made.call.args, made.result) == ("status", {"service": "x"}, "up")
    assert_same(recording)


@pytest.mark.parametrize("place", ["arguments", "args", "input", "parameters"])
def test_arguments_are_read_wherever_a_call_has_them(tmp_path: Path, place: str) -> None:
    asked = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "name": "status", place: {"service": "x"}}],
    }
    recording = imported(tmp_path, [USER, asked, gives("up"), ANSWER])
    assert recording.runs[0].run.steps[0].calls[0].call.args == {"service": "x"}
    assert_same(recording)


def test_code_in_a_plain_chat_is_no_action(tmp_path: Path) -> None:
    plain = {"role": "assistant", "content": FENCED["content"]}
    recording = imported(tmp_path, [USER, plain, USER, plain])
    assert_same(recording)
    assert [recorded.run.end is not None for recorded in recording.runs] == [True, True]


# ---- where the kernel would do something else


def test_arguments_that_cannot_be_read_were_handed_over_raw(tmp_path: Path) -> None:
    """The source went on, so the run does; that the kernel would not have run the call is a note."""
    broken = asks(call("status", '{"service": "gate'))
    recording = imported(tmp_path, [USER, *ROUND, broken, gives("Error: bad JSON"), ANSWER])
    run = recording.runs[0].run
    [record] = run.steps[1].calls
    assert (record.call.raw, record.result) == ('{"service": "gate', "Error: bad JSON")
    assert run.end is not None and run.end.answer == ANSWER["content"]
    assert "not run status" in check(recording).steps[1].read_otherwise
    assert_same(recording)


def test_arguments_that_the_schema_refuses_ran_in_the_source(tmp_path: Path) -> None:
    tool = {"name": "status", "parameters": {"type": "object", "properties": {"service": {"type": "integer"}}}}
    document = {"messages": [USER, *ROUND, ANSWER], "tools": [{"type": "function", "function": tool}]}
    recording = imported(tmp_path, document)
    run = recording.runs[0].run
    assert [record.outcome for record in run.steps[0].calls] == ["ok"] and run.end is not None
    assert "/service" in check(recording).steps[0].read_otherwise
    assert_same(recording)


def test_an_empty_reply_ends_the_import(tmp_path: Path) -> None:
    empty = {"role": "assistant", "content": ""}
    recording = imported(tmp_path, [USER, ANSWER, USER, empty, USER, ANSWER])
    assert len(recording.runs) == 2
    assert any("/messages/3" in name for name in recording.runs[-1].run.head.absent)
    assert_same(recording)


def test_a_second_answer_in_a_row_ends_the_import(tmp_path: Path) -> None:
    recording = imported(tmp_path, [USER, *ROUND, ANSWER, ANSWER, USER])
    assert any(name.startswith("everything from /messages/4 on:") for name in recording.runs[0].run.head.absent)
    assert_same(recording)


def test_an_answer_that_is_a_call_here_stays_the_answer(tmp_path: Path) -> None:
    text = {"role": "assistant", "content": '{"action": "status", "args": {"service": "gateway"}}'}
    recording = imported(tmp_path, [USER, *ROUND, ANSWER, USER, text, USER, ANSWER])
    ends = [recorded.run.end for recorded in recording.runs]
    assert [end.answer if end else None for end in ends] == [ANSWER["content"], text["content"], ANSWER["content"]]
    assert_same(recording)


# ---- files


@pytest.mark.parametrize("agent", [None, "ops"])
def test_a_saved_import_loads_again_equal(tmp_path: Path, agent: str | None) -> None:
    broken = asks(call("status", "{"))
    for messages in ([USER, *ROUND, ANSWER, USER, *ROUND], [USER, *ROUND, broken], [USER, asks(call("logs"))]):
        recording = imported(tmp_path, [SYSTEM, *messages], agent=agent)
        save(recording, tmp_path / "saved.trace.json")
        (loaded,) = load(tmp_path / "saved.trace.json")
        assert msgspec.structs.replace(loaded, file=recording.file) == recording
        assert replay(loaded).verdict == replay(recording).verdict


def test_importing_twice_writes_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        save(imported(tmp_path, [USER, *ROUND, ANSWER, USER, ANSWER]), tmp_path / f"{name}.trace.json")
    assert (tmp_path / "one.trace.json").read_bytes() == (tmp_path / "other.trace.json").read_bytes()


# ---- refusals


@pytest.mark.parametrize(
    ("document", "place", "what"),
    [
        ([USER, gives("up")], "/messages/1", "answers no call"),
        ([USER, ANSWER, gives("up")], "/messages/2", "answers no call"),
        ([USER, *ROUND, gives("again", "c9")], "/messages/3", "'c9' answers no call of /messages/1"),
        (
            [USER, asks(call("a", id="1"), call("b", id="2")), gives("x", "1"), ANSWER],
            "/messages/1",
            "'b' (2) has no result",
        ),
        ([USER, asks(call("status")), gives("x", name="logs")], "/messages/2", "'logs', the call of 'status'"),
        ([USER, {"role": "critic", "content": "no"}], "/messages/1", "the role 'critic' is unknown"),
        ([USER, {"content": "no role"}], "/messages/1", "the role None is unknown"),
        ([USER, "text"], "/messages/1", "is text, not a message"),
        (
            [USER, asks({"function": {"name": "status", "kwargs": {}}})],
            "/messages/1/tool_calls/0",
            "no arguments in a place",
        ),
        ([USER, {"role": "assistant", "body": "It is up."}], "/messages/1", "has no content, but body"),
        ([USER, {"role": "user", "content": [3]}], "/messages/1/content/0", "is a number, not a part"),
        ([USER, asks({"id": "x"})], "/messages/1/tool_calls/0", "names no function"),
        ([{"role": "user", "content": 3}, ANSWER], "/messages/0", "content is a number"),
        ({"traj": []}, "/traj", "empty"),
        ({"messages": [SYSTEM, USER]}, "messages", "nothing to replay"),
        ({"messages": [USER, ANSWER], "tools": ["status"]}, "/tools/0", "no tool definition"),
        ([{"messages": [USER, ANSWER]}, {"x": 1}], "/1", "is no trajectory"),
    ],
)
def test_a_broken_trajectory_is_refused_with_its_place(tmp_path: Path, document: Any, place: str, what: str) -> None:
    text = refusal(tmp_path, document)
    assert text.startswith(f": {place}: ")
    assert what in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"messages": [{"role": "user", "con', "cut off"),
        ("", "is empty"),
        ("[]", "holds no chat messages"),
        ('{"some": "thing"}', "holds no chat messages"),
        ("once upon a time", "holds no chat messages"),
        ('[{"role": "user", "content": "a"}]\n{"messages": [', "line 2 is not valid JSON"),
    ],
)
def test_a_file_without_a_trajectory_is_refused_with_what_is_accepted(tmp_path: Path, text: str, what: str) -> None:
    found = refusal(tmp_path, text)
    assert what in found and "accepted: " in found.lower()
