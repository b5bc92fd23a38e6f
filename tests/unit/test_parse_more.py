"""Further texts as models write them, family by family: what is made is read, what is quoted, cut off or played is not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kernel.parse import parse

_CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "parser_more.jsonl").read_text("utf-8").splitlines()
]

HOSTILE = (
    "{}{}",
    "~~~\n",
    "wipe\n{",
    "[TOOL_CALLS]f[ARGS]{} ",
    "> Action: f\n",
    '{"a":',
    '{{"a":',
    "```",
    "<",
    "<tool_call>",
    "<!--",
    "<example>",
    "```bash\ncat <<EOF\n",
    '"+"',
    "\nUser: x",
)


@pytest.mark.parametrize("case", _CASES, ids=[case["id"] for case in _CASES])
def test_case_is_read_as_expected(case: dict[str, Any]) -> None:
    parsed = parse(case["raw"])
    calls = [{"name": call.name, "args": call.args} for call in parsed.calls]
    expected = [] if case["expect"] == "unparsable" else [case["expect"], *case.get("more", [])]
    assert calls == expected, case["why"]
    assert (parsed.fault is None) == bool(calls)


def test_strings_put_together_are_ambiguous_and_doubled_braces_a_repair() -> None:
    assert parse('{"action": "f", "args": {"a": "x" + "y"}}').fault.rule == "ambiguous"  # type: ignore[union-attr]
    assert parse('<tool_call>{{"name": "f", "arguments": {"a": 1}}}</tool_call>').calls[0].repaired


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_grows_with_the_text_only(unit: str) -> None:
    """Ten times the text takes far less than a hundred times the work, as a quadratic reading would.

    The work of this thread's own processor time, which others on the machine do not lengthen, at its least of several.
    """

    def work_ns(size: int) -> int:
        text = "I think\n" + unit * (size // len(unit))
        taken = []
        for _ in range(5):
            start = time.thread_time_ns()
            parse(text)
            taken.append(time.thread_time_ns() - start)
        return min(taken)

    assert work_ns(50_000) < 40 * max(work_ns(5_000), 2_000_000)
