"""The shared cases of broken model text: the first call, the further ones in order, or no call at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.parse import parse

_CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "parser_cases.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("case", _CASES, ids=[case["id"] for case in _CASES])
def test_case_is_read_as_expected(case: dict[str, Any]) -> None:
    parsed = parse(case["raw"])
    calls = [{"name": call.name, "args": call.args} for call in parsed.calls]
    expected = [] if case["expect"] == "unparsable" else [case["expect"], *case.get("more", [])]
    assert calls == expected, case["why"]
