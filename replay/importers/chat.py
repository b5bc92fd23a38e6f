"""Chat-format trajectory files: one JSON document or JSON lines, in the shapes that tools write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel.errors import TraceError
from kernel.record import ModelParams, ToolSpec, parse_json
from kernel.trace import tool_from_json
from replay.importers.messages import read_message, refuse
from replay.importers.model import Dialogue
from replay.importers.shapes import to_chat
from replay.importers.text import is_text_protocol, read_text
from replay.importers.turns import Reading, read_turns
from replay.readers import open_plain, read_plain

ACCEPTED = (
    'a list of chat messages, {"messages": […]}, {"traj": […]} (tau-bench), {"history": […]} (SWE-agent), '
    "a list of these, or one a line, and ToolBench answers"
)
_KEYS = ("traj", "messages", "history")
_HEAD_BYTES = 4096
_SPANS = re.compile(rb'"(?:resourceSpans|resource_spans|scopeSpans|batches|traceID|tracefirst)"\s*:')
ABSENT = ("times", "usage", "finish reasons", "tool outcomes", "tool effects", "budget", "guard", "policy")
"""What no chat-format file has. Each result is recorded as `ok` with the text that the model was shown."""


def read_json(path: Path) -> Any | None:
    """The JSON of a file; for JSON lines a list. None where it is no text, or holds spans: those files can be large.

    Raises:
        TraceError: the file is no plain one, or the JSON is cut or broken; the message says where.
    """
    with open_plain(path) as file:
        if _SPANS.search(file.read(_HEAD_BYTES)):
            return None
    data = read_plain(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if not text.strip():
        raise TraceError(f"{path}: is empty. Accepted: {ACCEPTED}.", file=str(path))
    if text.lstrip()[:1] not in "[{":
        return None
    try:
        return _parse(text)
    except ValueError as error:
        whole = error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and _is_json(lines[0][1]):
        return [_line(line, number, path) for number, line in lines]
    raise TraceError(f"{path}: is not valid JSON, or cut off: {whole}. Accepted: {ACCEPTED}.", file=str(path))


def _parse(text: str) -> Any:
    """Raises `ValueError` with line and column. Duplicate keys, NaN and large numbers are read as Python reads them."""
    try:
        return parse_json(text)
    except ValueError:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _is_json(line: str) -> bool:
    try:
        _parse(line)
    except ValueError:
        return False
    return True


def _line(line: str, number: int, path: Path) -> Any:
    try:
        return _parse(line)
    except ValueError as error:
        text = f"{path}: line {number} is not valid JSON, or cut off: {error}. Accepted: {ACCEPTED}."
        raise TraceError(text, file=str(path), line=number) from None


def trajectories(document: Any) -> Iterator[tuple[str, Any]]:
    """Each trajectory of a document with its place (a JSON Pointer); none where it holds no chat messages."""
    if isinstance(document, dict):
        if any(isinstance(document.get(key), list) for key in _KEYS):
            yield "", document
        elif (found := _toolbench(document)) is not None:
            yield found
    elif isinstance(document, list) and document:
        if _is_message(document[0]):
            yield "", {"messages": document}
        elif all(isinstance(item, (dict, list)) for item in document) and any(
            any(trajectories(item)) for item in document[:1]
        ):
            for index, item in enumerate(document):
                yield f"/{index}", {"messages": item} if isinstance(item, list) else item


def _toolbench(document: dict[str, Any]) -> tuple[str, Any] | None:
    """The path of a ToolBench answer tree that its search took in the end."""
    answer = document.get("answer_generation")
    paths = answer.get("train_messages") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(paths, list) or not paths or not isinstance(paths[-1], list):
        return None
    place = f"/answer_generation/train_messages/{len(paths) - 1}"
    return place, {"messages": paths[-1], "functions": answer.get("function"), "trajectory_format": "toolbench"}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and not any(isinstance(value.get(key), list) for key in _KEYS)


def read_dialogue(document: Any, place: str, file: str, agent: str | None) -> Dialogue:
    """One trajectory as a dialogue.

    Raises:
        TraceError: it is not a dialogue with a model; the message names file, place and remedy.
    """
    key = (
        next((key for key in _KEYS if isinstance(document.get(key), list)), None)
        if isinstance(document, dict)
        else None
    )
    if key is None:
        raise refuse(file, place or "/", "is no trajectory", f"Accepted: {ACCEPTED}")
    listed = document[key]
    at = f"{place}/{key}"
    if not listed:
        raise refuse(file, at, "the list of messages is empty", "There is nothing to import")
    spelt = [(f"{at}/{index}", chat) for index, data in enumerate(listed) for chat in _spelt(data)]
    if key == "messages" and isinstance(system := document.get("system"), (str, list)) and system:
        spelt.insert(0, (f"{place}/system", {"role": "system", "content": system}))
    listed = [chat for _, chat in spelt]
    messages = [read_message(chat, file, where) for where, chat in spelt]
    is_text = is_text_protocol(document, listed, messages)
    read = Reading(turns=[], sent=[], absent=[]) if is_text else read_turns(messages, file)
    params, tools = _params(document), _tools(document, file, place)
    name = agent or _agent(document, listed)
    lacks = {"model": not params.model, "model parameters": True, "agent name": not name}
    dialogue = Dialogue(
        agent=name or "imported",
        source=_source(document, key),
        turns=tuple(read.turns),
        sent=read.sent,
        system=read.system,
        params=params,
        tools=tools,
        absent=(*ABSENT, *read.absent, *(what for what, lacking in lacks.items() if lacking)),
    )
    return read_text(dialogue, listed, messages, file) if is_text else dialogue


def _spelt(data: Any) -> list[Any]:
    """A message whose calls or results are content blocks, as Anthropic writes them, as chat messages; any other as it is."""
    content = data.get("content") if isinstance(data, dict) else None
    blocks = content if isinstance(content, list) else []
    called = any(isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result") for block in blocks)
    return list(to_chat(data)) if called else [data]


def _source(document: dict[str, Any], key: str) -> str:
    named = str(document.get("trajectory_format", ""))
    for known in ("mini-swe-agent", "toolbench"):
        if named.startswith(known):
            return known
    return "swe-agent" if key == "history" else "openai-chat"


def _params(document: dict[str, Any]) -> ModelParams:
    model = document.get("model")
    return ModelParams(model=model) if isinstance(model, str) else ModelParams()


def _tools(document: dict[str, Any], file: str, place: str) -> tuple[ToolSpec, ...] | None:
    listed = document.get("tools", document.get("functions"))
    if not isinstance(listed, list) or not listed:
        return None
    tools = []
    for index, data in enumerate(listed):
        try:
            tools.append(tool_from_json(data))
        except (AttributeError, TypeError, KeyError) as error:
            where = f"{place}/tools/{index}"
            raise refuse(
                file, where, f"is no tool definition ({error})", 'Give {"type": "function", "function": {…}}'
            ) from None
    return tuple(tools)


def _agent(document: dict[str, Any], listed: list[Any]) -> str:
    for found in (document.get("agent"), *(m.get("agent") for m in listed if isinstance(m, dict))):
        if isinstance(found, str) and found:
            return found
    return ""
