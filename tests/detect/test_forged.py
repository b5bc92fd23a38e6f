"""A recording that was edited, extended or written by another version is never `same`: it is refused, or the place is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel.errors import TraceError
from kernel.trace import seal, semconv as sc
from replay import import_file, load, replay
from replay.importers import save

FIXTURES = Path(__file__).parents[2] / "fixtures"
Document = dict[str, Any]
Edit = Callable[[Document], None]


def spans(document: Document) -> list[Document]:
    found: list[Document] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found


def first(document: Document, operation: str) -> Document:
    return next(span for span in spans(document) if span["name"].startswith(operation))


def text(key: str, value: str) -> Document:
    return {"key": key, "value": {"stringValue": value}}


def plain(value: Document) -> Any:
    kind, inner = next(iter(value.items()))
    if kind == "intValue":
        return int(inner)
    return [plain(one) for one in inner.get("values", [])] if kind == "arrayValue" else inner


def resealed(span: Document) -> None:
    """Mend the seal as a forger would."""
    kept = [one for one in span["attributes"] if one["key"] != sc.SEAL]
    values = {one["key"]: plain(one["value"]) for one in kept if one["key"].startswith(sc.SEALED)}
    span["attributes"] = [*kept, text(sc.SEAL, seal(values))]


def put(span: Document, key: str, value: Document) -> None:
    span["attributes"] = [*(one for one in span["attributes"] if one["key"] != key), {"key": key, "value": value}]
    resealed(span)


def extra(document: Document, operation: str, parent: str) -> None:
    """A span that a forger adds, with as little as a reader needs to show it."""
    span = copy.deepcopy(first(document, "execute_tool"))
    span.update(spanId="ab" * 8, parentSpanId=parent, name=f"{operation} wipe_disk")
    span["attributes"] = [text(sc.OPERATION, operation), text(sc.TOOL_NAME, "wipe_disk"), text(sc.TOOL_RESULT, "gone")]
    spans(document).append(span)


def below_step(operation: str) -> Edit:
    return lambda document: extra(document, operation, first(document, "step")["spanId"])


def below_root(operation: str) -> Edit:
    return lambda document: extra(document, operation, first(document, "invoke_agent")["spanId"])


def changed(operation: str, **fields: Any) -> Edit:
    return lambda document: first(document, operation).update(fields)


def forged(operation: str, key: str, value: str) -> Edit:
    return lambda document: put(first(document, operation), key, {"stringValue": value})


ERROR = {"code": 2, "message": "boom"}
EDITS: dict[str, tuple[Edit, str]] = {
    "a fifth execute_tool below a step": (below_step("execute_tool"), sc.OPERATION),
    "a fifth execute_tool below the run": (below_root("execute_tool"), sc.OPERATION),
    "a sixth chat below the run": (below_root("chat"), sc.OPERATION),
    "a call that succeeded marked as failed": (changed("execute_tool", status=ERROR), "status"),
    "a model call marked as failed": (changed("chat", status=ERROR), "status"),
    "a step marked as failed": (changed("step", status=ERROR), "status"),
    "the run marked as failed": (changed("invoke_agent", status=ERROR), "status"),
    "a call renamed": (changed("execute_tool", name="execute_tool wipe_disk"), "name"),
    "a model call renamed": (changed("chat", name="chat gpt-9"), "name"),
    "a step renamed": (changed("step", name="stage"), "name"),
    "the run renamed": (changed("invoke_agent", name="invoke_agent other"), "name"),
    "a call of another kind": (changed("execute_tool", kind=3), "kind"),
    "a model call of another kind": (changed("chat", kind=1), "kind"),
    "another model asked for in a chat": (forged("chat", sc.REQUEST_MODEL, "gpt-9"), sc.REQUEST_MODEL),
    "another provider in a chat": (forged("chat", sc.PROVIDER, "azure"), sc.PROVIDER),
    "an error type on a run that finished": (forged("invoke_agent", sc.ERROR_TYPE, "timeout"), sc.ERROR_TYPE),
    "a guard verdict that the guard did not give": (forged("step", sc.GUARD_VERDICT, "warned"), sc.GUARD_VERDICT),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_beside_the_sealed_content_is_named(name: str, tmp_path: Path) -> None:
    edit, attribute = EDITS[name]
    document = json.loads((FIXTURES / "order-5xx.trace.json").read_text())
    edit(document)
    target = tmp_path / "x.trace.json"
    target.write_text(json.dumps(document))
    result = replay(load(target)[0])
    assert result.verdict != "same"
    assert f"/{attribute}" in [divergence.path for divergence in result.divergences if divergence.cause == "file"]


def _settings(name: str, **more: Any) -> Edit:
    def edit(document: Document) -> None:
        root = first(document, "invoke_agent")
        held = next(one for one in root["attributes"] if one["key"] == name)
        value = {**json.loads(held["value"]["stringValue"]), **more}
        put(root, name, {"stringValue": json.dumps(value)})

    return edit


def _tool_setting(document: Document) -> None:
    root = first(document, "invoke_agent")
    held = next(one for one in root["attributes"] if one["key"] == sc.TOOL_DEFINITIONS)
    tools = json.loads(held["value"]["stringValue"])
    tools[0]["tracefirst"] = {**tools[0].get("tracefirst", {}), "warp": 9}
    put(root, sc.TOOL_DEFINITIONS, {"stringValue": json.dumps(tools)})


def _put(key: str, value: Document) -> Edit:
    return lambda document: put(first(document, "invoke_agent"), key, value)


FEATURE = {"arrayValue": {"values": [{"stringValue": "other-loop-rules"}]}}
REFUSED: dict[str, tuple[Edit, str]] = {
    "a newer format": (_put(sc.FORMAT, {"intValue": "99"}), "of format 99.*newer version"),
    "a newer format as text": (_put(sc.FORMAT, {"stringValue": "99"}), "of format 99.*newer version"),
    "no format at all": (_put(sc.FORMAT, {"intValue": "0"}), "is 0, which is no format"),
    "a format that is no number": (_put(sc.FORMAT, {"stringValue": "one"}), "'one', which is no format"),
    "a required feature": (_put(sc.REQUIRES, FEATURE), "requires other-loop-rules"),
    "a limit nobody knows": (_settings(sc.BUDGET, max_teleports=3), "tracefirst.budget/max_teleports"),
    "a guard rule nobody knows": (_settings(sc.GUARD, strict=True), "tracefirst.guard/strict"),
    "a policy nobody knows": (_settings(sc.POLICY, deny=[]), "tracefirst.policy/deny"),
    "a context rule nobody knows": (_settings(sc.CONTEXT, compress=True), "tracefirst.context/compress"),
    "a setting nobody knows": (_settings(sc.CONFIG, planner="tree"), "tracefirst.run.config/planner"),
    "a setting of a tool nobody knows": (_tool_setting, "gen_ai.tool.definitions/.*/warp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_another_version_wrote_is_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    edit, said = REFUSED[name]
    document = json.loads((FIXTURES / "order-5xx.trace.json").read_text())
    edit(document)
    target = tmp_path / "x.trace.json"
    target.write_text(json.dumps(document))
    with pytest.raises(TraceError, match=said):
        load(target)


def test_a_limit_that_did_not_exist_yet_is_no_limit(tmp_path: Path) -> None:
    """An older version wrote fewer settings: a default of today does not hold for its run."""
    document = json.loads((FIXTURES / "order-5xx.trace.json").read_text())
    root = first(document, "invoke_agent")
    put(root, sc.BUDGET, {"stringValue": '{"max_steps":8}'})
    target = tmp_path / "x.trace.json"
    target.write_text(json.dumps(document))
    (recording,) = load(target)
    budget = recording.runs[0].run.head.budget
    assert (budget.max_steps, budget.max_prompt_tokens, budget.timeout_s) == (8, None, None)


CHAT = [
    {"role": "system", "content": "Answer."},
    {"role": "user", "content": "How bad is it?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"what": "rate"}'}}],
    },
]
ANSWERED = [*CHAT, {"role": "tool", "tool_call_id": "a", "content": "12 %"}]


def imported(messages: list[Document], folder: Path) -> Path:
    source, target = folder / "chat.json", folder / "chat.trace.json"
    source.write_text(json.dumps({"messages": messages}))
    (recording,) = import_file(source)
    save(recording, target)
    return target


def _leaves(document: Document) -> int:
    return sum(len(span["attributes"]) for span in spans(document))


@pytest.mark.parametrize("messages", [CHAT, ANSWERED], ids=["open call", "no answer"])
def test_no_edit_of_an_import_without_an_end_passes(messages: list[Document], tmp_path: Path) -> None:
    """Every attribute of every span, each span and the closing mark itself, in turn: changed, or taken away."""
    target = imported(messages, tmp_path)
    assert replay(load(target)[0]).verdict == "imported"
    text_before = target.read_text()
    silent = []
    for number, span in enumerate(spans(json.loads(text_before))):
        for at, attribute in enumerate(span["attributes"]):
            for edit in ("changed", "removed"):
                document = json.loads(text_before)
                held = spans(document)[number]["attributes"]
                if edit == "removed":
                    del held[at]
                else:
                    kind, value = next(iter(held[at]["value"].items()))
                    other = (
                        str(int(value) + 1)
                        if kind == "intValue"
                        else (not value if kind == "boolValue" else f"x{value}")
                    )
                    held[at]["value"] = {kind: other} if kind != "arrayValue" else {"arrayValue": {"values": []}}
                if not _noticed(document, target):
                    silent.append((span["name"], attribute["key"], edit))
        if number:
            document = json.loads(text_before)
            del spans(document)[number]
            if not _noticed(document, target):
                silent.append((span["name"], "", "span removed"))
    assert silent == []


def _noticed(document: Document, target: Path) -> bool:
    target.write_text(json.dumps(document))
    try:
        return replay(load(target)[0]).verdict not in ("same", "imported")
    except TraceError:
        return True
