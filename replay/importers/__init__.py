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
from replay.play import Recording, load

__all__ = ["holds_chat", "import_file", "import_trace", "save"]


def holds_chat(path: Path) -> bool:
    """Whether a file holds chat messages that `import_file` could read."""
    try:
        document = read_json(path)
        return document is not None and any(True for _ in trajectories(document))
    except (TraceError, OSError):
        return False


def import_file(path: Path | str, *, agent: str | None = None, masker: Masker | None = None) -> list[Recording]:
    """All recordings of a file that other software wrote, found by content: chat messages, or spans.

    Args:
        agent: name for the agent of chat messages; without it the source's own, or `imported`.
        masker: masks secrets in chat messages before anything is made of them; None masks nothing.
    Raises:
        TraceError: the file holds neither, or one that is broken; the message names file, place and remedy.
    """
    path = Path(path)
    document = read_json(path)
    if masker is not None and document is not None:
        document = masker.mask(document)
    found = [] if document is None else list(trajectories(document))
    if not found:
        return _from_spans(path)
    recordings: list[Recording] = []
    seen: dict[str, int] = {}
    for place, trajectory in found:
        dialogue = read_dialogue(trajectory, place, str(path), agent)
        recording = build(dialogue, str(path))
        copies = seen.get(recording.trace_id, 0)
        seen[recording.trace_id] = copies + 1
        recordings.append(build(dialogue, str(path), ordinal=copies) if copies else recording)
    return recordings


def _from_spans(path: Path) -> list[Recording]:
    try:
        return load(path)
    except TraceError as error:
        found = str(error).removeprefix(str(path)).lstrip(":, ")
        text = f"{path}: holds no chat messages; read as a trace: {found} Also accepted: {ACCEPTED}."
        raise TraceError(text, file=str(path), line=error.line) from None
