"""Any trace file as spans: `read_traces` for a whole file, `find_trace` and `iter_traces` for large ones.

The format is found by content. Every refusal is a `kernel.errors.TraceError` of one line.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from replay.readers.index import find_trace, iter_traces
    from replay.readers.model import RawTrace, TraceFile
    from replay.readers.otlp_proto import split_frames
    from replay.readers.packed import kind_of
    from replay.readers.plain import MAX_BYTES, open_plain, read_plain
    from replay.readers.read import read_traces
    from replay.readers.source import Source, unpack
else:
    __getattr__ = door(
        __name__,
        index="find_trace iter_traces",
        model="RawTrace TraceFile",
        otlp_proto="split_frames",
        read="read_traces",
        packed="kind_of",
        plain="MAX_BYTES open_plain read_plain",
        source="Source unpack",
    )
