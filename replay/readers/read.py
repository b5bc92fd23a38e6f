"""Read a whole file: find its format by its content and hand it to that format's reader."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replay.readers import json_text, otlp_proto
from replay.readers.gather import Gather
from replay.readers.model import TraceFile
from replay.readers.refusal import refuse
from replay.readers.source import Source, load


def read_traces(source: Path | bytes, *, name: str | None = None) -> TraceFile:
    """Read every trace of a file, or of bytes, into memory.

    Args:
        name: How messages call the source; the path, unless given.
    Raises:
        TraceError: the source cannot be read as traces; one line with the place, what was found and the remedy.
    """
    with collector_paused():
        loaded = load(source, name)
        gather = Gather(loaded.name)
        for note in loaded.notes:
            gather.note(note)
        format_ = _read_into(gather, loaded)
        if not gather:
            refuse(
                loaded.name, "it is a trace file without a single span", remedy="Check what was sampled or filtered."
            )
        return TraceFile(name=loaded.name, format=format_, traces=gather.finish())


def _read_into(gather: Gather, source: Source) -> str:
    if source.data.startswith(b"version https://git-lfs.github.com/spec/"):
        refuse(source.name, "this is a Git LFS pointer, not the file itself", remedy="Run `git lfs pull`.")
    messages = otlp_proto.split_frames(source)
    if messages is not None:
        return otlp_proto.read_frames(messages, gather, source)
    if source.is_binary:
        return otlp_proto.read_message(source.data, gather, source.name)
    return json_text.read(source, gather)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking the growing heap: it would take half of the loading time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
