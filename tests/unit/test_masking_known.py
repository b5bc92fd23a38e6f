"""A secret that was found once is nowhere in the run: not in prose, not in a call's syntax, not on the side of a replay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Budget, FinishContext, Reply, ScriptedModel, ToolCall, ToolRegistry
from kernel.masking import Known, Masker
from replay import load, replay, scan_file
from replay.cli.app import main
from tests.helpers import act, finish

SECRET = "hunter2xyzQ"
TEXTS = {
    "one line of JSON": '{"thought":"t","action":"login","args":{"password":"%s"}}',
    "a key with an escape": '{"thought":"t","action":"login","args":{"p\\u0061ssword":"%s"}}',
    "a list under the name": '{"thought":"t","action":"login","args":{"password":["%s"]}}',
    "the value before its name": '{"thought":"t","action":"login","args":{"h":[{"value":"%s","name":"password"}]}}',
    "name, scope, value": '{"thought":"t","action":"login","args":{"e":[{"name":"DB_PASSWORD","scope":"a","value":"%s"}]}}',
    "an XML invoke": '<invoke name="login"><parameter name="password">%s</parameter></invoke>',
    "arg_key and arg_value": "<tool_call>login\n<arg_key>password</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    "function=": "<tool_call>\n<function=login>\n<parameter=password>\n%s\n</parameter>\n</function>\n</tool_call>",
    "ReAct": 'Thought: t\nAction: login\nAction Input: {"password":\n\n"%s"}',
    "Python": 'Thought: t\n```python\nlogin(password  =  "%s")\n```',
    "a block of code": '```json\n{"action": "login", "args": {"password"\n : \n"%s"}}\n```',
}
CALLS = {
    "blank lines": '{"password"\n:\n\n "%s"}',
    "twenty blanks": '{"password":' + " " * 20 + '"%s"}',
    "an object as the value": '{"u":[{"name":"db_password","value":{"raw":"%s"}}]}',
    "an escaped name": '{"pass\\u0077ord": "%s"}',
}


def registry() -> ToolRegistry:
    tools = ToolRegistry()

    @tools.register(name="login", description="d", params={"type": "object"}, returns="s", side_effect=True)
    async def login(args: dict[str, Any]) -> str:
        return "ok"

    return tools


def recorded(path: Path, replies: list[Any], tools: ToolRegistry, protocol: str = "text", **agent: Any) -> str:
    model = ScriptedModel(replies, protocol=protocol)  # type: ignore[arg-type]
    runner = Agent(name="s", tools=tools, budget=Budget(max_steps=6), **agent)
    asyncio.run(runner.run("t", llm=model, trace=path))
    return path.read_text("utf-8")


def assert_same(path: Path) -> None:
    [recording] = load(path)
    result = replay(recording)
    assert (result.verdict, result.divergences) == ("same", ())


@pytest.mark.parametrize("name", TEXTS)
def test_a_value_under_a_secrets_name_is_masked_in_every_syntax_of_a_call(tmp_path: Path, name: str) -> None:
    path = tmp_path / "r.trace.json"
    held = recorded(path, [TEXTS[name] % SECRET, finish("ok")], registry())
    assert SECRET not in held
    assert_same(path)


@pytest.mark.parametrize("name", CALLS)
def test_a_value_under_a_secrets_name_is_masked_in_structured_calls(tmp_path: Path, name: str) -> None:
    path = tmp_path / "r.trace.json"
    call = Reply(tool_calls=(ToolCall(name="login", arguments=CALLS[name] % SECRET, id="1"),))
    held = recorded(path, [call, Reply(text="ok")], registry(), protocol="tools")
    assert SECRET not in held and "~masked." in held
    assert_same(path)


def test_a_value_masked_by_its_name_is_masked_in_the_prose_beside_it_and_after_it(tmp_path: Path) -> None:
    tools = ToolRegistry()

    @tools.tool
    def login() -> dict[str, str]:
        """Log in."""
        return {"note": "your key is sk-test-123", "token": "sk-test-123"}

    @tools.tool
    def echo(text: str) -> str:
        """Echo."""
        return f"<{text}>"

    path = tmp_path / "r.trace.json"
    script = [act("login"), act("echo", text="use sk-test-123 now"), finish("it was sk-test-123")]
    held = recorded(path, script, tools)
    assert "sk-test-123" not in held
    assert_same(path)


@pytest.mark.parametrize("secret", ['pa"ss\\wo1rd', "pass/wörd@1", "a&b<c>9x", "with blank 7"])
def test_a_known_value_is_masked_in_its_spellings(secret: str) -> None:
    from html import escape
    from urllib.parse import quote

    known = Known()
    known.learn({secret: "~masked.password.0000~"})
    for spelling in (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe=""),
        escape(secret),
    ):
        assert known.mask_text(f"x {spelling} y") == "x ~masked.password.0000~ y"


@pytest.mark.parametrize("word", ["admin", "Sommer", "123456", "password", "secretary", "20260101"])
def test_plain_words_and_numbers_are_not_looked_for_elsewhere(word: str) -> None:
    known = Known()
    known.learn({word: "~masked.password.0000~"})
    assert known.mask_text(f"the {word} of the day") == f"the {word} of the day"


def test_a_short_value_is_looked_for_as_a_whole_word() -> None:
    known = Known()
    known.learn({"ab12cd": "~masked.secret.0000~"})
    assert known.mask_text("trace 00ab12cdef, code ab12cd.") == "trace 00ab12cdef, code ~masked.secret.0000~."


def test_scan_finds_a_named_value_again_in_prose(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"password": SECRET, "note": f"log in with {SECRET}"}))
    assert [finding.kind for finding in scan_file(path)] == ["password", "password"]
    assert all(SECRET not in str(finding) for finding in scan_file(path))


# ---- the side of a replay

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
AGENT = """
from kernel import Agent, Budget
def check(answer, context):
    if context.attempt == 1: raise RuntimeError("no: {key}")
agent = Agent(name="s", system="{word} {key}", budget=Budget(max_steps=3), finish_check={check})
"""


def project(folder: Path, word: str, check: str = "None") -> None:
    (folder / "ag.py").write_text(AGENT.format(key=KEY, word=word, check=check))


@pytest.fixture(name="folder")
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ag", raising=False)
    model = [finish("x"), finish("x")]
    recorded(tmp_path / "a.trace.json", model, ToolRegistry(), system=f"token {KEY}")
    return tmp_path


@pytest.mark.parametrize("options", [[], ["-v"], ["--format", "json"], ["--output", "o.trace.json"]])
@pytest.mark.parametrize(("word", "check", "status"), [("token", "None", 0), ("key", "None", 1), ("token", "check", 1)])
def test_todays_secrets_are_masked_before_anything_is_compared_or_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], word: str, check: str, status: int
) -> None:
    """The same prompt with a key in it is no drift; another prompt, or a check that fails with the key, is shown without."""
    project(folder, word, check)
    with pytest.raises(SystemExit) as ended:
        main(["a.trace.json", "--agent", "ag:agent", *options])
    said = capsys.readouterr()
    assert ended.value.code == status, said.out
    assert KEY not in said.out + said.err
    assert all(KEY not in file.read_text() for file in folder.glob("*.json"))


def test_a_masker_of_the_project_is_found_by_its_replays(folder: Path) -> None:
    (folder / "rules.py").write_text(
        "from kernel.masking import Masker, by_regex\nmasker = Masker.default().with_rules(by_regex(r'P-\\d+', kind='patient'))\n"
    )
    (folder / "pyproject.toml").write_text('[tool.tracefirst]\nmasker = "rules:masker"\n')
    import sys

    sys.modules.pop("rules", None)
    from rules import masker  # type: ignore[import-not-found]

    from kernel import Tracing

    agent = Agent(name="s", system="patient P-4711", budget=Budget(max_steps=3))
    path = folder / "p.trace.json"
    asyncio.run(agent.run("t", llm=ScriptedModel([finish("x")]), trace=Tracing(file=path, masker=masker)))
    [recording] = load(path)
    result = replay(recording, agent)
    assert result.verdict == "same" and "P-4711" not in repr(result)


def test_a_masker_setting_that_names_none_is_an_error(folder: Path) -> None:
    from kernel import ConfigError

    (folder / "pyproject.toml").write_text('[tool.tracefirst]\nmasker = "json:dumps"\n')
    [recording] = load(folder / "a.trace.json")
    with pytest.raises(ConfigError, match=r"\[tool.tracefirst\] masker names a kernel.Masker"):
        replay(recording, Agent(name="s"))


def test_a_finish_check_of_today_may_await(folder: Path) -> None:
    async def check(answer: str, context: FinishContext) -> str | None:
        return f"no {KEY}" if context.attempt == 1 else None

    [recording] = load(folder / "a.trace.json")
    result = replay(recording, Agent(name="s", system=f"token {KEY}", finish_check=check, budget=Budget(max_steps=6)))
    assert KEY not in repr(result) and result.first is not None and result.first.kind == "feedback"


def test_masking_again_changes_nothing() -> None:
    masker = Masker.default()
    once, secrets = masker.mask_learning({"password": SECRET, "note": SECRET})
    assert list(secrets) == [SECRET]
    assert masker.mask_learning(once) == (once, {})
