"""The configurations in `collector-config/` do what their comments say, with the real Collector and the real Jaeger."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.incident import agent as incident, hasty
from kernel import Agent
from replay import load, replay
from replay.report.emit import replay_spans, replay_trace_id, send_both

from .servers import (
    CONFIG_FOLDER,
    CollectorServer,
    JaegerServer,
    free_port,
    get_json,
    post_json,
    programs,
    running_collector,
    running_jaeger,
    servers_available,
    wait_until,
)

_unavailable = servers_available()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_unavailable is not None, reason=str(_unavailable))]

SERVICE = "tracefirst-e2e"
ROOT = Path(__file__).parents[2]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JaegerServer]:
    with running_jaeger(folder=tmp_path_factory.mktemp("jaeger")) as server:
        yield server


@pytest.fixture(scope="module")
def agent(jaeger: JaegerServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorServer]:
    folder = tmp_path_factory.mktemp("agent")
    with running_collector("agent", folder=folder, upstream=jaeger.otlp_http) as server:
        yield server


@pytest.mark.parametrize("config", ["agent", "gateway", "balancer"])
def test_collector_configuration_is_valid_and_starts_with_its_defaults(config: str, tmp_path: Path) -> None:
    """`validate` accepts the file with no variable set, and the Collector reports itself healthy on free ports."""
    checked = subprocess.run(
        [programs().collector, "validate", "--config", CONFIG_FOLDER / f"{config}.yaml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=30,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    with running_collector(config, folder=tmp_path / config) as server:
        assert server.metric("otelcol_process_uptime") > 0


def test_jaeger_configuration_starts_with_its_ui_settings(jaeger: JaegerServer) -> None:
    """Jaeger reads jaeger.yaml and jaeger-ui.json (it refuses to start on either) and answers on its API."""
    assert get_json(f"{jaeger.ui}/api/services") is not None


def test_compare_link_names_both_traces() -> None:
    """Every link pattern hangs on an attribute of replays, and is filled from those and the trace id alone."""
    patterns = json.loads((CONFIG_FOLDER / "jaeger-ui.json").read_text())["linkPatterns"]
    names = {
        "tracefirst.replay.original_trace_id": "ORIGINAL",
        "tracefirst.replay.original_span_id": "SPAN",
        "trace.traceID": "REPLAY",
    }
    assert {pattern["key"] for pattern in patterns} <= set(names)
    urls = [pattern["url"] for pattern in patterns]
    for name, value in names.items():
        urls = [url.replace(f"#{{{name}}}", value) for url in urls]
    assert urls == ["/trace/ORIGINAL...REPLAY", "/trace/ORIGINAL", "/trace/ORIGINAL?uiFind=SPAN"]


def test_spans_reach_the_fixture_file_and_both_jaeger_apis(agent: CollectorServer, jaeger: JaegerServer) -> None:
    """One run, one copy on disk that can be read back, one in Jaeger; ids, parents and attributes are those sent."""
    trace_id = new_trace_id()
    root = span(trace_id, "invoke_agent", {"tracefirst.ok": True, "tracefirst.stop_reason": "finish"})
    step = span(trace_id, "step", {"tracefirst.step.index": 1}, parent=root)
    send(agent, step, root)

    assert {s["spanId"] for s in in_jaeger(jaeger, trace_id, 2)} == {step["spanId"], root["spanId"]}
    on_disk = {s["spanId"]: s for s in fixture_spans(agent, trace_id)}
    assert on_disk[step["spanId"]]["parentSpanId"] == root["spanId"]
    assert attributes(on_disk[step["spanId"]]) == {"tracefirst.step.index": 1}
    legacy = {s["spanID"]: s for s in jaeger.legacy(trace_id)}
    tags = {tag["key"]: tag["value"] for tag in legacy[root["spanId"]]["tags"]}
    assert tags["tracefirst.ok"] is True
    assert tags["tracefirst.stop_reason"] == "finish"


def test_replay_can_be_searched_by_its_divergence(agent: CollectorServer, jaeger: JaegerServer) -> None:
    """A replay keeps its link to the original, and Jaeger's tag search finds it by the short verdict attributes."""
    original, replay = new_trace_id(), new_trace_id()
    first = span(original, "invoke_agent", {"tracefirst.ok": True})
    again = span(
        replay,
        "invoke_agent",
        {
            "tracefirst.replay.original_trace_id": original,
            "tracefirst.replay.verdict": "diverged",
            "tracefirst.replay.divergence": "tool_args",
        },
    )
    again["links"] = [{"traceId": original, "spanId": first["spanId"]}]
    send(agent, first, again)

    (stored,) = in_jaeger(jaeger, replay, 1)
    assert stored["links"][0]["traceId"] == original
    tags = urllib.parse.quote(json.dumps({"tracefirst.replay.divergence": "tool_args"}))
    found = get_json(f"{jaeger.ui}/api/traces?service={SERVICE}&tags={tags}&lookback=1h&limit=20")
    assert [trace["traceID"] for trace in found["data"]] == [replay]


def test_replays_of_one_recording_are_traces_of_their_own_that_a_search_finds(jaeger: JaegerServer) -> None:
    """Replays that differ are several traces. All started within the last hour, and each is
    found by its verdict, its cause, and what the replay stopped at."""
    [recording] = load(ROOT / "fixtures" / "order-5xx.trace.json")
    reworded = Agent(name=incident.name, system="Be brief.", tools=incident.tools, budget=incident.budget)
    results = [replay(recording), replay(recording, reworded), replay(recording, hasty)]
    for result in results:
        send_both(result, jaeger.otlp_http, now_ns=time.time_ns())
    ids = [replay_trace_id(result) for result in results]
    for trace_id, result in zip(ids, results, strict=True):
        names = [span["name"] for span in in_jaeger(jaeger, trace_id, len(replay_spans(result)))]
        assert names.count("invoke_agent incident") == 1
    searches = [
        {"tracefirst.replay.verdict": "same"},
        {"tracefirst.replay.verdict": "drifted", "tracefirst.replay.kind": "request"},
        {"tracefirst.replay.cause": "budget", "tracefirst.replay.stop_reason.replayed": "max_steps"},
    ]
    for trace_id, tags in zip(ids, searches, strict=True):
        wanted = urllib.parse.quote(json.dumps(tags))
        url = f"{jaeger.ui}/api/traces?service=incident-demo&tags={wanted}&lookback=1h&limit=20"
        wait_until(lambda url=url: get_json(url)["data"], what=f"the search for {tags}")
        assert [trace["traceID"] for trace in get_json(url)["data"]] == [trace_id]


def test_secrets_are_masked_and_token_counts_are_not(agent: CollectorServer, jaeger: JaegerServer) -> None:
    """Key formats go, wherever they stand (also after a \\n inside JSON text); JSON stays JSON; counts and look-alikes
    stay. Holds for the file and for Jaeger."""
    trace_id = new_trace_id()
    key = "sk-proj-AbCd_1234-efGH5678ijKL"
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"my key:\n{key}\nthanks"}]}])
    planted = span(
        trace_id,
        "chat",
        {
            "gen_ai.input.messages": messages,
            "http.request.header.authorization": "Bearer abcdefghijklmnopqrstuvwxyz",
            "nested": [f"use {key}", "AKIAABCDEFGHIJKLMNOP"],
            "gen_ai.usage.input_tokens": 1234,
            "gen_ai.tool.call.id": "task-550e8400-e29b-41d4-a716-446655440000",
        },
    )
    planted["status"] = {"code": 2, "message": f"401: invalid key {key}"}
    planted["events"] = [{"timeUnixNano": "1", "name": "exception", "attributes": otlp({"exception.message": key})}]
    send(agent, planted)

    (seen,) = in_jaeger(jaeger, trace_id, 1)
    (kept,) = fixture_spans(agent, trace_id)
    for copy in (seen, kept):
        text = json.dumps(copy)
        assert key not in text
        assert "abcdefghijklmnop" not in text
        assert "AKIAABCDEFGHIJKLMNOP" not in text
        got = attributes(copy)
        assert json.loads(got["gen_ai.input.messages"])[0]["parts"][0]["content"] == "my key:\n****\nthanks"
        assert got["gen_ai.usage.input_tokens"] == 1234
        assert got["gen_ai.tool.call.id"] == "task-550e8400-e29b-41d4-a716-446655440000"
        assert got["redaction.masked.count"] == 3


def test_a_10_mb_attribute_passes_whole_with_its_neighbours(agent: CollectorServer, jaeger: JaegerServer) -> None:
    """A huge tool result loses neither itself nor the spans that share its request."""
    trace_id = new_trace_id()
    root = span(trace_id, "invoke_agent", {})
    result = "".join(hashlib.sha256(str(i).encode()).hexdigest() + "\n" for i in range(154_000))
    assert len(result) > 10_000_000
    tools = [span(trace_id, "execute_tool", {"gen_ai.tool.call.result": f"small {i}"}, parent=root) for i in range(8)]
    big = span(trace_id, "execute_tool", {"gen_ai.tool.call.result": result}, parent=root)
    send(agent, *tools[:4], big, *tools[4:], root)

    stored = {s["spanId"]: s for s in in_jaeger(jaeger, trace_id, 10)}
    assert attributes(stored[big["spanId"]])["gen_ai.tool.call.result"] == result
    on_disk = {s["spanId"]: s for s in fixture_spans(agent, trace_id)}
    assert attributes(on_disk[big["spanId"]])["gen_ai.tool.call.result"] == result
    assert len(on_disk) == 10


def test_gateway_keeps_a_flagged_run_whole_and_few_of_the_healthy(jaeger: JaegerServer, tmp_path: Path) -> None:
    """A step is held, a later step is flagged: both are in Jaeger before the root exists. The root, long after the
    decision, follows. Of healthy runs only the sampled share arrives, and a straggler does not bring one back."""
    # Which of them are sampled depends on the ids alone, so these are always the same.
    healthy = [hashlib.sha256(f"healthy {number}".encode()).hexdigest()[:32] for number in range(40)]
    env = {"TRACEFIRST_DECISION_WAIT": "5s", "TRACEFIRST_ROOT_WAIT": "1s", "TRACEFIRST_KEEP_PERCENT": "10"}
    with running_collector("gateway", folder=tmp_path, upstream=jaeger.otlp_http, env=env) as gateway:
        flagged = new_trace_id()
        root = span(flagged, "invoke_agent", {"tracefirst.ok": False, "tracefirst.stop_reason": "loop_detected"})
        send(gateway, span(flagged, "step", {"tracefirst.step.index": 1}, parent=root))
        send(gateway, span(flagged, "step", {"tracefirst.step.index": 2, "tracefirst.flagged": True}, parent=root))
        assert len(in_jaeger(jaeger, flagged, 2)) == 2

        # The first is still going on, so the clock decides; by then the flagged run, which is older, had its time too.
        send(gateway, span(healthy[0], "step", {"tracefirst.step.index": 1}))
        for trace_id in healthy[1:]:
            one = span(trace_id, "invoke_agent", {"tracefirst.ok": True})
            send(gateway, span(trace_id, "step", {"tracefirst.step.index": 1}, parent=one), one)
        wait_until(lambda: sum(decisions(gateway)) == 41, what="a decision on every run")
        sampled = decisions(gateway)[0] - 1
        assert 0 < sampled < 12, "about a tenth of 40"

        def sampled_runs() -> list[str] | None:
            present = [trace_id for trace_id in healthy if len(jaeger.spans(trace_id)) == 2]
            return present if len(present) == sampled else None

        kept = wait_until(sampled_runs, what="the sampled healthy runs") or []
        dropped = [trace_id for trace_id in healthy if trace_id not in kept]
        assert dropped[0] == healthy[0]

        send(gateway, span(dropped[0], "step", {"tracefirst.flagged": True}))
        send(gateway, root)
        assert root["spanId"] in {one["spanId"] for one in in_jaeger(jaeger, flagged, 3)}
        assert not any(jaeger.spans(trace_id) for trace_id in dropped)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("step", {"tracefirst.guard.verdict": "warned"}),
        ("execute_tool", {"tracefirst.tool.outcome": "denied"}),
        ("chat", {"error.type": "RateLimitError"}),
        ("chat", {"gen_ai.response.finish_reasons": ["content_filter"]}),
        ("chat", {"gen_ai.usage.input_tokens": 600_000}),
        ("step", {"tracefirst.step.index": 75}),
        ("invoke_agent", {"tracefirst.ok": False}),
        ("invoke_agent", {"tracefirst.usage.cost_usd": 3.5}),
        ("invoke_agent", {"tracefirst.replay.original_trace_id": "0" * 31 + "1"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_every_policy_keeps_its_run(
    name: str, attrs: dict[str, Any], strict: CollectorServer, jaeger: JaegerServer
) -> None:
    """Each mark by itself is enough, at once: without tracefirst.flagged, without a sampled share, and on a child also
    without a root (`decision_wait` is half an hour here)."""
    trace_id = new_trace_id()
    parent = None if name == "invoke_agent" else span(trace_id, "invoke_agent", {})
    send(strict, span(trace_id, name, attrs, parent=parent))
    assert in_jaeger(jaeger, trace_id, 1)


def test_a_slow_run_is_kept(strict: CollectorServer, jaeger: JaegerServer) -> None:
    """The root's own duration is enough."""
    trace_id = new_trace_id()
    send(strict, span(trace_id, "invoke_agent", {"tracefirst.ok": True}, seconds=600))
    assert in_jaeger(jaeger, trace_id, 1)


@pytest.fixture(scope="module")
def strict(jaeger: JaegerServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorServer]:
    """A gateway that keeps nothing without a reason."""
    folder = tmp_path_factory.mktemp("strict")
    env = {"TRACEFIRST_KEEP_PERCENT": "0"}
    with running_collector("gateway", folder=folder, upstream=jaeger.otlp_http, env=env) as server:
        yield server


def test_balancer_gives_each_run_one_gateway(jaeger: JaegerServer, tmp_path: Path) -> None:
    """Runs spread over two gateways, and none is torn: each one's unflagged step arrives with its flagged one."""
    env = {"TRACEFIRST_KEEP_PERCENT": "0"}
    with (
        running_collector("gateway", folder=tmp_path / "1", upstream=jaeger.otlp_http, env=env) as one,
        running_collector("gateway", folder=tmp_path / "2", upstream=jaeger.otlp_http, env=env) as two,
        running_collector(
            "balancer", folder=tmp_path / "b", upstream=f"[{one.otlp_grpc}, {two.otlp_grpc}]"
        ) as balancer,
    ):
        runs = [new_trace_id() for _ in range(16)]
        send(balancer, *(span(trace_id, "step", {"tracefirst.step.index": 1}) for trace_id in runs))
        send(balancer, *(span(trace_id, "step", {"tracefirst.flagged": True}) for trace_id in runs))
        for trace_id in runs:
            in_jaeger(jaeger, trace_id, 2)
        shares = [gateway.metric("otelcol_receiver_accepted_spans") for gateway in (one, two)]
        assert sum(shares) == 32
        assert min(shares) > 0


def test_spans_wait_on_disk_while_jaeger_is_away(tmp_path: Path) -> None:
    """Sent while Jaeger is down, kept over a restart of the Collector, delivered when Jaeger is back."""
    port = free_port()
    upstream = f"http://127.0.0.1:{port}"
    env = {"TRACEFIRST_RETRY_MAX_INTERVAL": "1s"}
    before, after = new_trace_id(), new_trace_id()
    with running_collector("agent", folder=tmp_path / "agent", upstream=upstream, env=env) as first:
        send(first, span(before, "invoke_agent", {"tracefirst.ok": True}))
        assert fixture_spans(first, before), "the fixture does not depend on Jaeger"
    with running_collector("agent", folder=tmp_path / "agent", upstream=upstream, env=env) as second:
        send(second, span(after, "invoke_agent", {"tracefirst.ok": True}))
        assert fixture_spans(second, before), "a restart appends, it does not truncate"
        with running_jaeger(folder=tmp_path / "jaeger", otlp_http_port=port) as late:
            in_jaeger(late, before, 1)
            in_jaeger(late, after, 1)


def new_trace_id() -> str:
    """Another trace id on each call, the same ones in each run: sampling hashes them."""
    return hashlib.sha256(f"trace {next(_numbers)}".encode()).hexdigest()[:32]


def span(
    trace_id: str, name: str, attrs: dict[str, Any], *, parent: dict[str, Any] | None = None, seconds: int = 1
) -> dict[str, Any]:
    """An OTLP JSON span that ended just now."""
    end = time.time_ns()
    made: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": hashlib.sha256(f"span {next(_numbers)}".encode()).hexdigest()[:16],
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(end - seconds * 1_000_000_000),
        "endTimeUnixNano": str(end),
        "attributes": otlp(attrs),
    }
    return made if parent is None else made | {"parentSpanId": parent["spanId"]}


def otlp(attrs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in attrs.items()]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_any_value(one) for one in value]}}
        case _:
            return {"stringValue": value}


def attributes(one: dict[str, Any]) -> dict[str, Any]:
    """Attributes of an OTLP JSON span as plain values; lists stay as they are."""
    plain: dict[str, Any] = {}
    for pair in one.get("attributes", []):
        ((kind, value),) = pair["value"].items()
        plain[pair["key"]] = int(value) if kind == "intValue" else value
    return plain


def send(server: CollectorServer, *spans: dict[str, Any]) -> None:
    """POST the spans in one OTLP/HTTP request; the server must take all of them."""
    resource = {"attributes": otlp({"service.name": SERVICE})}
    scope_spans = [{"scope": {"name": "tests"}, "spans": list(spans)}]
    reply = post_json(
        f"{server.otlp_http}/v1/traces", {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}
    )
    assert not (reply.get("partialSuccess") or {}).get("rejectedSpans"), reply


def in_jaeger(jaeger: JaegerServer, trace_id: str, count: int) -> list[dict[str, Any]]:
    """Wait until Jaeger has `count` spans of the trace, and return them."""

    def all_there() -> list[dict[str, Any]] | None:
        spans = jaeger.spans(trace_id)
        return spans if len(spans) >= count else None

    spans = wait_until(all_there, what=f"{count} spans of {trace_id} in Jaeger")
    assert spans is not None and len(spans) == count
    return spans


def fixture_spans(agent: CollectorServer, trace_id: str) -> list[dict[str, Any]]:
    """Spans of the trace in the fixture file: written before the sender had its answer."""
    spans = [
        one
        for line in agent.fixtures.read_text().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for one in scope["spans"]
    ]
    return [one for one in spans if one["traceId"] == trace_id]


def decisions(gateway: CollectorServer) -> tuple[int, int]:
    """How many runs the gateway has kept and dropped so far."""
    name = "otelcol_processor_tail_sampling_global_count_traces_sampled"
    return int(gateway.metric(name, sampled="true")), int(gateway.metric(name, sampled="false"))
