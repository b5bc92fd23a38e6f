"""Spans of other frameworks as model calls, tool calls and agents.

Three tiers, the surest first: messages as JSON in the attributes of the conventions (or events), attributes with
numbers in their names, and whole requests in one attribute.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kernel.record import ModelParams, Usage
from kernel.trace import ERROR, Resource, Span
from replay.importers.events import from_events
from replay.importers.indexed import listed, openinference, openllmetry
from replay.importers.shapes import Chat, decoded, joined, messages_of, reply_of, system_messages, to_chat

_LLM_OPERATIONS = ("chat", "generate_content", "text_completion", "completion")
_BLOBS_IN = ("gcp.vertex.agent.llm_request", "input.value", "gen_ai.prompt", "langfuse.observation.input")
_BLOBS_OUT = ("gcp.vertex.agent.llm_response", "output.value", "gen_ai.completion", "langfuse.observation.output")


class ModelCall(Struct, kw_only=True):
    """One call to a model as a span tells it. `messages` and `reply` are chat-format, None where the span has none;
    a None among the messages is one that is missing. `failure` is the type and the text of the error that the call ended in;
    `lost` says why the content is not whole."""

    span: Span
    framework: str
    messages: list[Chat | None] | None
    reply: Chat | None
    tools: list[Chat] | None
    params: ModelParams
    provider: str
    usage: Usage
    response_model: str | None
    response_id: str | None
    failure: tuple[str, str] | None = None
    lost: str = ""


def framework_of(span: Span, resource: Resource | None) -> str:
    """Who wrote the span, or "" where it is nobody we know."""
    keys, scope = span.attributes, resource.scope_name if resource is not None else ""
    if scope == "pydantic-ai" or "logfire.json_schema" in keys:
        return "pydantic-ai"
    if "ai.operationId" in keys:
        return "vercel-ai-sdk"
    if "langsmith.span.kind" in keys:
        return "langsmith"
    if "openinference.span.kind" in keys:
        return "openinference"
    if "llm.request.type" in keys or "traceloop.span.kind" in keys or "gen_ai.is_streaming" in keys:
        return "openllmetry"
    if "gcp.vertex.agent.llm_request" in keys:
        return "google-adk"
    if any(
        k in keys for k in ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system", "gen_ai.input.messages")
    ):
        return "otel-genai"
    return "langfuse" if keys.get("langfuse.observation.type") == "GENERATION" else ""


def role_of(span: Span, framework: str) -> str:
    """`model`, `tool`, `agent`, or "" for the wrappers that frameworks put around them."""
    get = span.attributes.get
    operation = get("gen_ai.operation.name")
    kinds = [get("openinference.span.kind"), get("langsmith.span.kind"), get("traceloop.span.kind")]
    kind = next((str(k).lower() for k in kinds if k), "")
    vercel = str(get("ai.operationId") or "")
    if kind == "tool" or operation == "execute_tool" or vercel == "ai.toolCall" or _is_pydantic_tool(span, framework):
        return "tool"
    if kind == "llm" or operation in _LLM_OPERATIONS or vercel.endswith((".doGenerate", ".doStream")):
        return "model"
    if kind in ("agent", "workflow") or operation in ("invoke_agent", "create_agent"):
        return "agent"
    if framework == "pydantic-ai" and get("gen_ai.agent.name"):
        return "agent"
    if vercel in ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"):
        return "agent"
    if kind or operation or vercel:
        return ""
    if get("llm.request.type") in ("chat", "completion") or "gen_ai.prompt.0.role" in span.attributes:
        return "model"
    if get("langfuse.observation.type") == "GENERATION":
        return "model"
    return "model" if get("gen_ai.system") and get("gen_ai.request.model") else ""


def _is_pydantic_tool(span: Span, framework: str) -> bool:
    return framework == "pydantic-ai" and "gen_ai.tool.name" in span.attributes


def agent_name(span: Span) -> str:
    """The name of an agent span."""
    keys = (
        "gen_ai.agent.name",
        "agent.name",
        "agent_name",
        "graph.node.id",
        "traceloop.entity.name",
        "ai.telemetry.functionId",
    )
    found = next((span.attributes[k] for k in keys if isinstance(span.attributes.get(k), str)), "")
    return found or span.name


def read_model_call(span: Span, framework: str) -> ModelCall:
    """What a span tells of a model call."""
    messages, indexed = _input(span)
    messages = None if messages is None else joined(messages)
    reply = _reply(span)
    lost = (
        f"{span.dropped} of its attributes were dropped, and each message is some of them"
        if indexed and span.dropped
        else ""
    )
    holes = messages is not None and any(message is None for message in messages)
    lost = lost or _cut(span)
    if (lost or holes) and (in_one := _from_blobs(span, _BLOBS_IN, messages_of)):
        messages, lost = list(in_one), ""
    return ModelCall(
        span=span,
        framework=framework,
        messages=messages,
        reply=reply,
        tools=_tools(span),
        params=_params(span),
        provider=first_text(
            span, "gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider"
        ),
        usage=_usage(span),
        response_model=first_text(span, "gen_ai.response.model", "ai.response.model", "llm.model_name") or None,
        response_id=first_text(span, "gen_ai.response.id", "ai.response.id") or None,
        failure=failure_of(span) if reply is None else None,
        lost=lost,
    )


def failure_of(span: Span) -> tuple[str, str] | None:
    """Type and text of the failure that a span tells, or None."""
    events = [event.attributes for event in span.events if event.name == "exception"]
    named = first_text(span, "error.type", "exception.type")
    if span.status != ERROR and not named:
        return None
    kinds = [named, *(str(e["exception.type"]) for e in events if e.get("exception.type")), "error"]
    texts = [span.status_message, *(str(e["exception.message"]) for e in events if e.get("exception.message"))]
    kind = next(kind for kind in kinds if kind)
    return kind, next((text for text in texts if text), kind)


_JSON_MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "ai.prompt.messages")


def _cut(span: Span) -> str:
    """What an exporter's length limit has cut: JSON that begins and does not end."""
    for name in _JSON_MESSAGES:
        value = span.attributes.get(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{") and isinstance(decoded(value, 1), str):
            return f"{name} was cut at {len(value)} characters, by a length limit of its exporter"
    return ""


def _input(span: Span) -> tuple[list[Chat | None] | None, bool]:
    """The request's messages, and whether they are spread over attributes."""
    attributes = span.attributes
    found: list[Chat | None]
    for name in ("gen_ai.input.messages", "ai.prompt.messages"):
        read = messages_of(attributes[name]) if name in attributes else None
        if read is not None:
            return [*_system(span, read), *read], False
    for indexed in (openinference(attributes, "input_messages"), openllmetry(attributes, "prompt")):
        if indexed is not None:
            found = indexed
            if found[0] is None:
                found = [*_system(span, []), *found[1:]]
            return [chat for item in found for chat in (to_chat(item) if item is not None else [None])], True
    events, _ = from_events(span)
    if events is not None:
        return list(events), False
    blob = _from_blobs(span, _BLOBS_IN, messages_of)
    return (None if blob is None else [*_system(span, blob), *blob]), False


def _system(span: Span, messages: list[Chat]) -> list[Chat]:
    """System instructions that the span keeps apart from the messages."""
    if messages and messages[0].get("role") in ("system", "developer"):
        return []
    return system_messages(span.attributes.get("gen_ai.system_instructions"))


def _reply(span: Span) -> Chat | None:
    attributes = span.attributes
    reply = reply_of(attributes.get("gen_ai.output.messages"))
    if reply is None and ("ai.response.text" in attributes or "ai.response.toolCalls" in attributes):
        calls = decoded(attributes.get("ai.response.toolCalls"))
        message = {"role": "assistant", "content": attributes.get("ai.response.text")}
        reply = to_chat({**message, "tool_calls": calls} if isinstance(calls, list) else message)[0]
    for indexed in (openinference(attributes, "output_messages"), openllmetry(attributes, "completion")):
        if reply is None and indexed is not None:
            reply = reply_of([item for item in indexed if item is not None])
    if reply is None:
        reply = from_events(span)[1]
    if reply is None:
        reply = _from_blobs(span, _BLOBS_OUT, reply_of)
    if reply is not None and "finish_reason" not in reply:
        reasons = decoded(attributes.get("gen_ai.response.finish_reasons", attributes.get("ai.response.finishReason")))
        reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
        if isinstance(reason, str):
            reply = {**reply, "finish_reason": reason}
    return reply


def _from_blobs(span: Span, names: tuple[str, ...], read: Any) -> Any:
    for name in names:
        if (value := span.attributes.get(name)) is not None and (found := read(value)):
            return found
    return None


def _tools(span: Span) -> list[Chat] | None:
    attributes = span.attributes
    found = decoded(attributes.get("gen_ai.tool.definitions", attributes.get("ai.prompt.tools")))
    if not isinstance(found, list):
        schemas = listed(attributes, "llm.tools") or ()
        found = [
            item["tool"].get("json_schema")
            for item in schemas
            if isinstance(item, dict) and isinstance(item.get("tool"), dict)
        ]
    if not found:
        found = [item for item in listed(attributes, "llm.request.functions") or () if isinstance(item, dict)]
    if not found:
        asked = decoded(attributes.get("model_request_parameters"))
        if isinstance(asked, dict):
            kinds = (asked.get("function_tools"), asked.get("output_tools"))
            found = [tool for kind in kinds if isinstance(kind, list) for tool in kind]
    tools = [_tool(decoded(item)) for item in found]
    return [tool for tool in tools if tool is not None] or None


def _tool(data: Any) -> Chat | None:
    """A tool definition with `name`, `description` and `parameters`."""
    if not isinstance(data, dict):
        return None
    inner = data["function"] if isinstance(data.get("function"), dict) else data
    names = ("parameters", "parameters_json_schema", "inputSchema", "input_schema")
    schema = decoded(next((inner[name] for name in names if inner.get(name) is not None), {}))
    if not isinstance(inner.get("name"), str):
        return None
    return {"name": inner["name"], "description": inner.get("description"), "parameters": schema}


_SAMPLING = {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"}
_READ = {"model", "temperature", "top_p", "topP", "seed", "stop", "stop_sequences", "stopSequences", *_SAMPLING}
_NOT_SAMPLING = {"messages", "input", "tools", "tool_choice", "stream", "stream_options", "functions", "instructions"}


def _params(span: Span) -> ModelParams:
    """Every parameter of the request that the span tells: the known ones in their fields, all others as `extra`."""
    given = decoded(span.attributes.get("llm.invocation_parameters"))
    asked = dict(given) if isinstance(given, dict) else {}
    for key, value in span.attributes.items():
        for prefix in ("gen_ai.request.", "ai.settings."):
            if key.startswith(prefix) and value is not None:
                asked[key.removeprefix(prefix)] = decoded(value)
    if (kind := span.attributes.get("gen_ai.output.type")) is not None:
        asked["output_type"] = kind
    model = asked.get("model") or first_text(span, "ai.model.id", "llm.model_name", "langfuse.observation.model.name")
    stop = next((asked[name] for name in ("stop", "stop_sequences", "stopSequences") if asked.get(name)), ())
    limit = next((whole(asked[name]) for name in sorted(_SAMPLING) if asked.get(name) is not None), None)
    extra = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in sorted(asked.items())
        if name not in _READ | _NOT_SAMPLING and not name.startswith("functions.") and value is not None
    }
    return ModelParams(
        model=model if isinstance(model, str) else "",
        temperature=number(asked.get("temperature")),
        top_p=number(asked.get("top_p", asked.get("topP"))),
        seed=whole(asked.get("seed")),
        max_output_tokens=limit,
        stop=(stop,) if isinstance(stop, str) else tuple(str(item) for item in stop),
        extra=extra,
    )


def _usage(span: Span) -> Usage:
    blob = decoded(span.attributes.get("langfuse.observation.usage_details"))
    kept = blob if isinstance(blob, dict) else {}

    def count(*names: str, short: str = "") -> int | None:
        found = next(
            (span.attributes[name] for name in names if span.attributes.get(name) is not None), kept.get(short)
        )
        return whole(found)

    return Usage(
        input_tokens=count(
            "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
            "ai.usage.promptTokens", short="input",
        ),
        output_tokens=count(
            "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
            "ai.usage.outputTokens", "ai.usage.completionTokens", short="output",
        ),
        cache_read_tokens=count(
            "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
        ),
        cache_write_tokens=count(
            "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_write_input_tokens",
            "llm.token_count.prompt_details.cache_write", "ai.usage.cacheCreationInputTokens",
        ),
        reasoning_tokens=count(
            "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "llm.usage.reasoning_tokens",
            "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
        ),
    )  # fmt: skip


def whole(value: Any) -> int | None:
    """A count, also where a store made text of it."""
    found = number(value)
    return int(found) if found is not None and found == int(found) and found >= 0 else None


def number(value: Any) -> float | None:
    """A number, also where a store made text of it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if found - found == 0 else None


def first_text(span: Span, *names: str) -> str:
    return next(
        (span.attributes[n] for n in names if isinstance(span.attributes.get(n), str) and span.attributes[n]), ""
    )
