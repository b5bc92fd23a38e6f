"""The page on the trace format names every attribute and event of ours, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from kernel.trace import semconv as sc

PAGE = (Path(__file__).parents[2] / "docs" / "trace-format.md").read_text("utf-8")


def test_the_page_names_what_there_is() -> None:
    ours = {value for value in vars(sc).values() if isinstance(value, str) and value.startswith("tracefirst.")}
    assert set(re.findall(r"^\| `(tracefirst\.[\w.]+)` \|", PAGE, re.MULTILINE)) == ours
