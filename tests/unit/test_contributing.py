"""The newcomer's map names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PATHS = sorted({name for name in re.findall(r"`([\w./-]+\.(?:py|jsonl|sh))`", TEXT) if "/" in name})


@pytest.mark.parametrize("name", PATHS)
def test_each_path_on_the_map_is_there(name: str) -> None:
    assert any((ROOT / base / name).exists() for base in ("", "kernel", "replay")), name


def test_each_room_is_on_the_map() -> None:
    rooms = {path.parent.name for room in ("kernel", "replay") for path in (ROOT / room).glob("*/__init__.py")}
    block = TEXT.split("```")[3]
    assert rooms <= set(re.findall(r"\b[a-z]+\b", block))
