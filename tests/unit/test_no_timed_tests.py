"""No test depends on how busy the machine is: none asserts on elapsed time, and none in this process sleeps."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
FILES = sorted(path for path in TESTS.rglob("*.py") if not {"bench", "e2e"} & set(path.parts))
"""All but what measures, and what waits for a real server or for the moment of a kill."""


def calls(node: ast.AST) -> set[str]:
    """The functions of `time` that are called in a piece of code."""
    return {
        inner.func.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and isinstance(inner.func.value, ast.Name)
        and inner.func.value.id == "time"
    }


def complaints(text: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert) and calls(node) & CLOCKS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_assertion_reads_a_clock_and_no_test_sleeps(path: Path) -> None:
    text = path.read_text("utf-8")
    assert complaints(text) == []
    if (
        "e2e" not in path.parts
    ):  # what waits for a real server, or for the moment of a kill, has nothing else to wait for
        assert "sleep" not in calls(ast.parse(text))


def test_a_timed_assertion_would_be_found() -> None:
    assert complaints("import time\nassert time.monotonic() - began < 2\n") == [2]
    assert complaints("assert done(time.sleep)\n") == []
