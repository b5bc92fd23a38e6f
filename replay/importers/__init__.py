"""Other people's trajectories and traces as recordings that replay.

Nothing is invented: what a source lacks is named in `RunHead.absent`, and where the kernel would have done something
else than the source did, the recording ends there and says so.
"""

from __future__ import annotations

from pathlib import Path

from kernel.errors import TraceError
from kernel.masking import Masker
from replay.importers.build import build
from replay.importers.chat import ACCEPTED, read_dialogue, read_json, trajectories
from replay.importers.save import save
from replay.importers.trace import import_trace
from replay.play import Recording

__all__ = ["ACCEPTED", "holds_chat", "import_chat", "import_trace", "save"]


def holds_chat(path: Path) -> bool:
    """Whether a file holds chat messages that `import_file` could read."""
    try:
        document = read_json(path)
        return document is not None and any(True for _ in trajectories(document))
    except (TraceError, OSError):
        return False


def import_chat(path: Path, *, agent: str | None = None, masker: Masker | None = None) -> list[Recording]:
    """The recordings of a file of chat messages; none where it holds no such messages.

    Args:
        agent: name for the agent of chat messages; without it the source's own, or `imported`.
        masker: masks secrets in chat messages before anything is made of them; None masks nothing.
    Raises:
        TraceError: the messages are broken; the text names file, place and remedy.
    """
    document = read_json(path)
    if masker is not None and document is not None:
        document = masker.mask(document)
    found = [] if document is None else list(trajectories(document))
    recordings: list[Recording] = []
    seen: dict[str, int] = {}
    for place, trajectory in found:
        dialogue = read_dialogue(trajectory, place, str(path), agent)
        recording = build(dialogue, str(path))
        copies = seen.get(recording.trace_id, 0)
        seen[recording.trace_id] = copies + 1
        recordings.append(build(dialogue, str(path), ordinal=copies) if copies else recording)
    return recordings
