"""What holds for all tests: none depends on how busy the machine is."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A temporary folder that any user may pass through, for tests that act as one who is not root.

    `tmp_path` is not: each session of pytest closes the folder above it anew.
    """
    with tempfile.TemporaryDirectory(prefix="tracefirst-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
