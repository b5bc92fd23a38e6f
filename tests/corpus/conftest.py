"""The corpus of real trajectories: its folder, or a skip that says where it was looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpus() -> Path:
    named = os.environ.get("TRACEFIRST_CORPUS")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip(f"no corpus at {folder}: set TRACEFIRST_CORPUS to the folder that holds tau-bench, swe-agent, …")
    return folder
