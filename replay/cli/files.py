"""From the names on the command line to recordings: folders, many traces in one file, and what cannot be read."""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from kernel.errors import ConfigError, TraceError
from kernel.trace import SUFFIX
from replay.loading import assemble, load
from replay.play import Recording

WHOLE_BYTES = 64 * 2**20
"""Larger files are read trace by trace, by way of an index."""

STANDARD_INPUT = "-"
_SHOWN_IDS = 10


def expand(names: Sequence[str]) -> list[str]:
    """Files in the order given; a folder stands for its `*.trace.json`, in order of name, and for the folders in it that
    cannot be read: they are refused when it is their turn, so that none is passed over."""
    found: list[str] = []
    for name in names:
        if os.path.isdir(name):
            found.extend(sorted(_below(name)) or [name])
        else:
            found.append(name)
    return found


def _below(folder: str) -> Iterator[str]:
    """The recordings of a folder and of those in it, by way of links too, each folder once, and what cannot be looked at."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            status = os.stat(place)
            with os.scandir(place) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            yield place
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in inside:
            kind = _kind(entry)
            if kind == "folder":
                waiting.append(entry.path)
            elif kind == "unknown" or entry.name.endswith(SUFFIX):
                yield entry.path


def _kind(entry: os.DirEntry[str]) -> str:
    """`folder`, `file`, or `unknown` where it cannot be looked at. A link leads to what it is a link to."""
    try:
        return "folder" if stat.S_ISDIR(os.stat(entry.path).st_mode) else "file"
    except OSError as error:
        leads_nowhere = isinstance(error, FileNotFoundError) or error.errno == errno.ELOOP
        return "file" if leads_nowhere else "unknown"


def recordings(
    name: str, *, trace_id: str | None = None, every: bool = False, whole_bytes: int = WHOLE_BYTES
) -> Iterator[Recording]:
    """The recordings of a file that were asked for, one by one. A file beyond `whole_bytes` is never held whole.

    Raises:
        TraceError: the file cannot be read as a trace.
        click.UsageError: it holds several, and none was chosen.
    """
    if name == STANDARD_INPUT:
        with standard_input() as held:
            try:
                for recording in recordings(held, trace_id=trace_id, every=every, whole_bytes=whole_bytes):
                    yield msgspec.structs.replace(recording, file=name)
            except TraceError as error:
                raise TraceError(error.message.replace(held, "standard input"), file=name, line=error.line) from None
        return
    path = Path(name)
    must_be_file(path, name)
    if path.stat().st_size > whole_bytes:
        yield from _streamed(path, trace_id, every)
        return
    found = load(path, trace_id=trace_id)
    if len(found) > 1 and not every:
        _ask_to_choose(name, [recording.trace_id for recording in found], trace_id)
    yield from found


@contextmanager
def standard_input() -> Iterator[str]:
    """A file that holds what standard input gives, for as long as it is needed: a pipe can be read only once.

    Raises:
        click.UsageError: standard input is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("- reads standard input, which is a terminal: pipe a trace into it, or name a file.")
    with tempfile.NamedTemporaryFile(prefix="replay-") as held:
        shutil.copyfileobj(sys.stdin.buffer, held)
        held.flush()
        yield held.name


def one_recording(name: str, trace_id: str | None) -> Recording:
    """The one recording of a file. Raises as `recordings`."""
    return next(recordings(name, trace_id=trace_id))


def _streamed(path: Path, trace_id: str | None, every: bool) -> Iterator[Recording]:
    from replay.readers import find_trace, iter_traces

    if trace_id is not None and len(trace_id) == 32:
        yield assemble(find_trace(path, trace_id.lower()), str(path))
        return
    wanted = (trace_id or "").lower()
    if every:
        chosen = False
        for trace in iter_traces(path):
            if trace.trace_id.startswith(wanted):
                chosen = True
                yield assemble(trace, str(path))
        if not chosen:
            raise TraceError(f"{path}: holds no trace {trace_id}", file=str(path))
        return
    ids = [trace.trace_id for trace in iter_traces(path) if trace.trace_id.startswith(wanted)]
    if len(ids) != 1:
        if not ids:
            raise TraceError(f"{path}: holds no trace {trace_id}", file=str(path))
        _ask_to_choose(str(path), ids, trace_id)
    yield assemble(find_trace(path, ids[0]), str(path))


def _ask_to_choose(name: str, ids: Sequence[str], trace_id: str | None) -> None:
    shown = "".join(f"\n  {one}" for one in ids[:_SHOWN_IDS])
    more = f"\n  and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
    which = f" whose id begins with {trace_id}" if trace_id else ""
    raise click.UsageError(
        f"{name} holds {len(ids)} traces{which}; choose one with --trace ID, or take them with --all:{shown}{more}"
    )


def keep_files(target: str | None, names: Sequence[str], *, force: bool = False) -> None:
    """Refuse, before any work, to write over a file: over one that is read always, as a recording cannot be made again,
    over another unless `force`. Raises `click.UsageError`, or `ConfigError` for the latter."""
    if target is None or not os.path.lexists(target):
        return
    for name in names:
        if os.path.exists(name) and os.path.exists(target) and os.path.samefile(target, name):
            raise click.UsageError(f"--output {target} is the recording itself and is not written over: name another")
    if not force or not os.path.isfile(target) or os.path.islink(target):
        from replay.report import unwritable

        raise ConfigError(unwritable(Path(target), FileExistsError(errno.EEXIST, "", target)))


def must_be_file(path: Path, name: str) -> None:
    """Refuse what is absent or a folder. Raises `TraceError`; what is no plain file is refused where it is opened."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode):
            return
        os.scandir(path).close()
    except FileNotFoundError:
        raise TraceError(f"{name}: no such file{_meant(name)}", file=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{name}: cannot be read: {reason}; nothing in it was looked at", file=name) from None
    if held := next((file for file in _below(name) if file.endswith(SUFFIX)), None):
        raise TraceError(f"{name}: is a folder; this verb takes one file, such as {held}", file=name)
    raise TraceError(f"{name}: no *.trace.json in this folder", file=name)


def _meant(name: str) -> str:
    context = click.get_current_context(silent=True)
    verbs = [verb for verb in getattr(context and context.find_root().command, "commands", ()) if verb != "run"]
    near = difflib.get_close_matches(name, verbs, 1)
    return f"; did you mean the verb `{near[0]}`?" if near else ""


def message_of(error: Exception, name: str) -> str:
    """What to tell about a file that failed: the error's own words, or for an unforeseen one its type and place."""
    if isinstance(error, TraceError):
        return error.message
    if isinstance(error, OSError):
        return f"{name}: cannot be read: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"{name}: there is not enough memory to read it"
    if isinstance(error, RecursionError):
        return f"{name}: its content is nested too deeply"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{name}: unexpected {type(error).__name__}: {error}{place}; please report this as a defect"
