"""A small world for tests at the wire: a model that answers in every dialect, and agents that ask it. Imports nothing of
ours: programs that are recorded use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

Body = dict[str, Any]
Agent = Generator[Body, Body, str]
DIALECTS = ("chat", "responses", "anthropic", "gemini")
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m-1:generateContent",
}
STREAM_PATHS = PATHS | {"gemini": "/v1beta/models/m-1:streamGenerateContent?alt=sse"}
UPSTREAMS = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}


def path_of(dialect: str, streamed: bool) -> str:
    return (STREAM_PATHS if streamed else PATHS)[dialect]


# ---- the model: calls `look` until it has seen `rounds` results, then answers


def brain(task: str, results: list[str], rounds: int = 2) -> tuple[str, Body | None]:
    """What the model says: text, and the arguments of a call of `look` or None."""
    if len(results) < rounds:
        return f"Round {len(results) + 1}.", {"q": task, "round": len(results) + 1}
    return f"{task}: {results[-1] if results else 'nothing'}", None


def heard(dialect: str, body: Body) -> tuple[str, list[str]]:
    """The last task and the results after it, as the model reads a request."""
    task, results = "", []
    if dialect == "gemini":
        for content in body["contents"]:
            for part in content["parts"]:
                if "functionResponse" in part:
                    results.append(part["functionResponse"]["response"]["result"])
                elif content["role"] == "user":
                    task, results = part["text"], []
        return task, results
    items = body.get("input") if dialect == "responses" else body["messages"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        if item.get("type") == "function_call_output":
            results.append(item["output"])
        elif item.get("role") == "tool":
            results.append(item["content"])
        elif item.get("role") == "user" and isinstance(item["content"], str):
            task, results = item["content"], []
        elif item.get("role") == "user":
            results += [block["content"] for block in item["content"] if block["type"] == "tool_result"]
    return task, results


def spoken(dialect: str, number: int, text: str, args: Body | None) -> Body:
    """A reply as the body of a dialect's unstreamed answer."""
    if dialect == "chat":
        message: Body = {"role": "assistant", "content": text}
        if args is not None:
            function = {"name": "look", "arguments": json.dumps(args)}
            message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop" if args is None else "tool_calls"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {"id": f"c-{number}", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": usage}
    if dialect == "responses":
        parts = [{"type": "output_text", "text": text, "annotations": []}]
        output: list[Body] = [
            {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": parts}
        ]
        if args is not None:
            call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
            output.append({**call, "name": "look", "arguments": json.dumps(args)})
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m-1"}
        return {**whole, "output": output, "usage": usage}
    if dialect == "anthropic":
        blocks: list[Body] = [{"type": "text", "text": text}]
        if args is not None:
            blocks.append({"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": args})
        reason = "end_turn" if args is None else "tool_use"
        usage = {"input_tokens": 10, "output_tokens": 5}
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m-1"}
        return {**head, "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}
    gemini: list[Body] = [{"text": text}]
    if args is not None:
        gemini.append({"functionCall": {"name": "look", "args": args}})
    candidate = {"content": {"role": "model", "parts": gemini}, "finishReason": "STOP", "index": 0}
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m-1", "responseId": f"g-{number}"}


def streamed(dialect: str, body: Body) -> list[bytes]:
    """The same answer as a stream, an event each."""
    if dialect == "chat":
        return _chat_events(body)
    if dialect == "responses":
        return _responses_events(body)
    if dialect == "anthropic":
        return _anthropic_events(body)
    parts = body["candidates"][0]["content"]["parts"]
    events = []
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        pieces = [{"text": word} for word in _words(part["text"])] if "text" in part else [part]
        contents = [{"role": "model", "parts": [piece]} for piece in pieces]
        events += [{**body, "candidates": [{"content": content, "index": 0}]} for content in contents]
        if last:
            events[-1]["candidates"][0]["finishReason"] = "STOP"
    return [_event(event) for event in events]


def _event(data: Body, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


def _words(text: str, size: int = 5) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _chat_events(body: Body) -> list[bytes]:
    message, reason = body["choices"][0]["message"], body["choices"][0]["finish_reason"]
    head = {"id": body["id"], "object": "chat.completion.chunk", "model": body["model"]}
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in _words(message["content"])]
    for call in message.get("tool_calls", ()):
        deltas.append({"tool_calls": [{**call, "index": 0, "function": {"name": "look", "arguments": ""}}]})
        pieces = _words(call["function"]["arguments"])
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    events.append({**head, "choices": [], "usage": body["usage"]})
    return [*[_event(event) for event in events], b"data: [DONE]\n\n"]


def _responses_events(body: Body) -> list[bytes]:
    events: list[tuple[str, Body]] = [
        ("response.created", {"response": {**body, "status": "in_progress", "output": []}})
    ]
    for at, item in enumerate(body["output"]):
        events.append(("response.output_item.added", {"output_index": at, "item": {**item, "status": "in_progress"}}))
        if item["type"] == "message":
            for word in _words(item["content"][0]["text"]):
                told = {"output_index": at, "content_index": 0, "item_id": item["id"], "delta": word}
                events.append(("response.output_text.delta", told))
        else:
            for word in _words(item["arguments"]):
                told = {"output_index": at, "item_id": item["id"], "delta": word}
                events.append(("response.function_call_arguments.delta", told))
        events.append(("response.output_item.done", {"output_index": at, "item": item}))
    events.append(("response.completed", {"response": body}))
    return [_event({"type": name, "sequence_number": n, **data}, name) for n, (name, data) in enumerate(events)]


def _anthropic_events(body: Body) -> list[bytes]:
    start = {**body, "content": [], "stop_reason": None}
    events: list[Body] = [{"type": "message_start", "message": start}]
    for at, block in enumerate(body["content"]):
        if block["type"] == "text":
            opened, deltas = (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": w} for w in _words(block["text"])],
            )
        else:
            opened = {**block, "input": {}}
            pieces = _words(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": at, "content_block": opened})
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": at})
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return [_event(event, event["type"]) for event in events]


# ---- agents: ask until the model answers without a call


def agent(
    dialect: str,
    task: str,
    *,
    system: str = "Be brief.",
    look: Callable[[Body], str] = lambda args: f"seen {args['q']} {args['round']}",
    describe: str = "Look at something.",
    follow_up: str = "",
    **params: Any,
) -> Agent:
    """One conversation as a client of a dialect has it. Yields bodies of requests, is sent bodies of answers."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}, "round": {"type": "integer"}}}
    history: list[Body] = []
    final = ""
    for said in filter(None, (task, follow_up)):
        history.append(_user(dialect, said))
        while True:
            answer = yield _request(dialect, list(history), system, describe, schema) | params
            text, calls = _read(dialect, answer)
            history += _assistant(dialect, answer)
            if not calls:
                final = text
                break
            results = [(call_id, look(args)) for call_id, args in calls]
            history += _results(dialect, results)
    return final


def _user(dialect: str, text: str) -> Body:
    return {"role": "user", "parts": [{"text": text}]} if dialect == "gemini" else {"role": "user", "content": text}


def _request(dialect: str, history: list[Body], system: str, describe: str, schema: Body) -> Body:
    function = {"name": "look", "description": describe}
    if dialect == "chat":
        tool = {"type": "function", "function": {**function, "parameters": schema}}
        return {"model": "m-1", "messages": [{"role": "system", "content": system}, *history], "tools": [tool]}
    if dialect == "responses":
        tool = {"type": "function", **function, "parameters": schema}
        return {"model": "m-1", "instructions": system, "input": history, "tools": [tool]}
    if dialect == "anthropic":
        tool = {**function, "input_schema": schema}
        return {"model": "m-1", "max_tokens": 1000, "system": system, "messages": history, "tools": [tool]}
    declared = [{"functionDeclarations": [{**function, "parameters": schema}]}]
    return {"systemInstruction": {"parts": [{"text": system}]}, "contents": history, "tools": declared}


def _read(dialect: str, answer: Body) -> tuple[str, list[tuple[str, Body]]]:
    if dialect == "chat":
        message = answer["choices"][0]["message"]
        calls = [(c["id"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or ()]
        return message["content"], calls
    if dialect == "responses":
        texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        calls = [(i["call_id"], json.loads(i["arguments"])) for i in answer["output"] if i["type"] == "function_call"]
        return "".join(texts), calls
    if dialect == "anthropic":
        texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
        return "".join(texts), [(b["id"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]
    parts = answer["candidates"][0]["content"]["parts"]
    return "".join(p.get("text", "") for p in parts), [
        ("", p["functionCall"]["args"]) for p in parts if "functionCall" in p
    ]


def _assistant(dialect: str, answer: Body) -> list[Body]:
    if dialect == "chat":
        return [answer["choices"][0]["message"]]
    if dialect == "responses":
        return list(answer["output"])
    if dialect == "anthropic":
        return [{"role": "assistant", "content": answer["content"]}]
    return [answer["candidates"][0]["content"]]


def _results(dialect: str, results: list[tuple[str, str]]) -> list[Body]:
    if dialect == "chat":
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]
    if dialect == "responses":
        return [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]
    if dialect == "anthropic":
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
        return [{"role": "user", "content": blocks}]
    parts = [{"functionResponse": {"name": "look", "response": {"result": text}}} for _, text in results]
    return [{"role": "user", "parts": parts}]


def drive(one: Agent, exchange: Callable[[Body], Body]) -> str:
    """Run an agent to its end on whatever answers."""
    try:
        body = next(one)
        while True:
            body = one.send(exchange(body))
    except StopIteration as ended:
        return str(ended.value)
