"""Exit status, one meaning each."""

from __future__ import annotations

SAME, DIFFERENT, USAGE, UNUSABLE = 0, 1, 2, 3
"""Exit status. With several files the worst wins in the order 3, 1, 0: an unusable file is never hidden."""
