"""Any trace file as spans: `read_traces` for a whole file, `find_trace` and `iter_traces` for large ones.

The format is found by content. Every refusal is a `kernel.errors.TraceError` of one line.
"""

from __future__ import annotations

from replay.readers.index import find_trace, iter_traces
from replay.readers.model import RawTrace, TraceFile
from replay.readers.read import read_traces

__all__ = ["RawTrace", "TraceFile", "find_trace", "iter_traces", "read_traces"]
