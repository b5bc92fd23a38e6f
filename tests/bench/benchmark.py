"""Measures the kernel and the replay against a plain loop and against bare SDK spans, in one run, by CPU time.

    python tests/bench/benchmark.py            all sizes, a few minutes
    python tests/bench/benchmark.py --quick    small sizes only

Each figure is the median of interleaved rounds; compare ratios, not absolute times. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel import Agent, Budget, Reply, Request, ToolRegistry, Tracing, Usage
from kernel.trace.semconv import STEP_INDEX
from kernel.trace.span import Event, Span
from replay.loading import load
from replay.play.play import replay

USAGE = Usage(input_tokens=100, output_tokens=20)
tools = ToolRegistry()


@tools.register(
    name="look",
    description="Look something up.",
    params={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
async def look(args: dict[str, Any]) -> str:
    return args["query"].ljust(200, ".")


class Script:
    """A model that answers from a list."""

    protocol = "text"
    provider = "bench"
    name = "script"

    def __init__(self, steps: int) -> None:
        texts = [
            f'I look up item {i}.\n{{"action": "look", "args": {{"query": "item {i}"}}}}' for i in range(steps - 1)
        ]
        texts.append('{"action": "finish", "args": {"answer": "done"}}')
        self._replies = [Reply(text=text, finish_reason="stop", usage=USAGE) for text in texts]
        self._next = 0

    async def complete(self, request: Request) -> Reply:
        self._next += 1
        return self._replies[self._next - 1]


async def bare(steps: int, emit: Callable[[int], None] | None = None) -> str:
    """The loop without anything: ask, parse, act, append. `emit` makes the spans of a step."""
    model, messages = Script(steps), ["system", "task"]
    request: Any = None
    for step in range(steps):
        reply = await model.complete(request)
        action = json.loads(reply.text[reply.text.index("{") :])
        if emit is not None:
            emit(step)
        if action["action"] == "finish":
            return str(action["args"]["answer"])
        messages += [reply.text, await look(action["args"])]
    raise AssertionError("the script ends with a finish")


class Kept:
    """A sink that keeps the spans it is given."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def started(self, span: Span) -> None: ...
    def event(self, span: Span, event: Event) -> None: ...
    def ended(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None: ...


async def spans_of(steps: int) -> list[list[Span]]:
    """The spans that the kernel makes, step by step, so that the bare SDK can be given the very same ones."""
    kept = Kept()
    await kernel(steps, Tracing(sinks=[kept], mask=False, join=False))
    by_step: list[list[Span]] = [[] for _ in range(steps)]
    for span in kept.spans:
        by_step[span.attributes.get(STEP_INDEX, steps) - 1].append(span)
    return by_step


def sdk_tracer() -> Any:
    """A tracer of the OpenTelemetry SDK that keeps nothing."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return provider


async def cpu(work: Callable[[], Any], repeat: int) -> float:
    """CPU seconds of one call, sync or async, from `repeat` calls in a row. The event loop runs already: to start one costs
    more than a short run."""
    gc.collect()
    start = time.process_time()
    for _ in range(repeat):
        done = work()
        if inspect.isawaitable(done):
            await done
    return (time.process_time() - start) / repeat


async def rounds(count: int, repeat: int = 1, **works: Callable[[], Any]) -> dict[str, float]:
    """Medians of interleaved rounds, after one that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(count + 1):
        for name, work in works.items():
            seconds = await cpu(work, repeat)
            if number:
                taken[name].append(seconds)
    return {name: statistics.median(values) for name, values in taken.items()}


async def kernel(steps: int, trace: Any = False) -> None:
    agent = Agent(tools=tools, budget=Budget(max_steps=steps + 1))
    result = await agent.run("task", llm=Script(steps), trace=trace)
    assert result.ok, result.detail


async def bare_sdk(steps: int, spans: list[list[Span]]) -> None:
    tracer = sdk_tracer().get_tracer("bench")

    def emit(step: int) -> None:
        for span in spans[step]:
            tracer.start_span(span.name, attributes=span.attributes).end()

    await bare(steps, emit)


async def kernel_sdk(steps: int) -> None:
    await kernel(steps, Tracing(provider=sdk_tracer(), join=False))


def say(line: str = "") -> None:
    sys.stdout.write(line + "\n")


async def steps_table(sizes: tuple[int, ...], folder: Path) -> None:
    say("µs per step          bare   kernel      x   + file      x   bare+SDK   kernel+SDK      x")
    number = 0
    for steps in sizes:
        spans = await spans_of(steps)

        async def traced(steps: int = steps) -> None:
            nonlocal number
            number += 1
            await kernel(steps, folder / f"{number}.trace.json")

        found = await rounds(
            max(3, min(15, 2000 // steps)),
            max(1, 500 // steps),
            bare=lambda steps=steps: bare(steps),
            kernel=lambda steps=steps: kernel(steps),
            file=traced,
            sdk=lambda steps=steps, spans=spans: bare_sdk(steps, spans),
            both=lambda steps=steps: kernel_sdk(steps),
        )
        us = {name: seconds / steps * 1e6 for name, seconds in found.items()}
        say(
            f"{steps:>6} steps       {us['bare']:6.1f}   {us['kernel']:6.1f} {us['kernel'] / us['bare']:6.1f}"
            f"   {us['file']:6.1f} {us['file'] / us['bare']:6.1f}     {us['sdk']:6.1f}       {us['both']:6.1f}"
            f" {us['both'] / us['sdk']:6.2f}"
        )


async def replay_table(folder: Path) -> None:
    say()
    for steps in (20, 200):
        path = folder / f"replay-{steps}.trace.json"
        await kernel(steps, path)
        size = path.stat().st_size
        recording = load(path)[0]
        assert replay(recording).verdict == "same"
        found = await rounds(9, whole=lambda path=path: replay(load(path)[0]), only=lambda r=recording: replay(r))
        say(
            f"replay of {steps:>3} steps    {found['whole'] * 1e3:6.2f} ms with loading ({1 / found['whole']:6.0f} per second), "
            f"{found['only'] * 1e3:6.2f} ms without; recording {size / 1000:.0f} kB"
        )


async def measure(sizes: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        await steps_table(sizes, Path(name))
        await replay_table(Path(name))


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of kernel and replay to a plain loop.")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    asyncio.run(measure((10, 100) if quick else (10, 100, 1000, 10_000)))


if __name__ == "__main__":
    main()
