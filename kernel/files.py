"""Files at rest: private to their owner, written whole, never over another unasked, and named by nothing but a name.

Everything the kernel and the command line keep on disk is made here, or with the same rules.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PRIVATE = 0o600
_NAME_CHARS = 80
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


def name_part(text: str, default: str, *, distinct: bool = True) -> str:
    """`text` as a part of a file name: what comes from a trace names a file only by way of this.

    Letters, digits, `_`, `-` and inner dots, at most 80: no separator, no dot at the start, so that the file stays in
    its folder. With `distinct`, text that had to be changed ends in a digest of it, so that two texts never share a
    name.
    """
    plain = _FOREIGN.sub("-", text).strip("-.")[:_NAME_CHARS].rstrip("-.")
    if plain == text or not distinct:
        return plain or default
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _NAME_CHARS - 9] or default}-{mark}"


def make_private(path: str | os.PathLike[str]) -> None:
    """Make an empty file that only its owner can read, where there is none; one that is there stays as it is.

    For databases, which others open by name. Raises `OSError`.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))


def write_whole(path: Path, data: bytes, *, replace: bool, fsync: bool = False) -> None:
    """Write a file that only its owner can read, whole or not at all, by way of a temporary one in its folder.

    Args:
        replace: whether a file that is there gives way. What is not a plain file never does.
    Raises:
        FileExistsError: something is there, and is not replaced.
        OSError: it cannot be written.
    """
    write_and_put(path, data, put_over if replace else put_new, fsync=fsync)


def write_and_put(path: Path, data: bytes, put: Callable[[Path, Path], None], *, fsync: bool = False) -> None:
    """As `write_whole`, where `put(temporary, path)` gives the file its name, or raises `OSError`."""
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        with open(file, "wb") as stream:
            stream.write(data)
            if fsync:
                stream.flush()
                os.fsync(stream.fileno())
        put(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fsync:
        sync_folder(path.parent)


def put_over(temporary: Path, path: Path) -> None:
    """Give a file its name in place of a plain file. Raises `FileExistsError` where something else is there."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "what is there is not a plain file", str(path))
    os.replace(temporary, path)


def put_new(temporary: Path, path: Path) -> None:
    """Give a file its name where that is free, in one step: of two writers at once only one succeeds.

    Raises `FileExistsError` where it is taken.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "the file exists", str(path)) from None
    except OSError:  # a file system without links: an empty file of ours holds the name until the real one takes it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))
        os.replace(temporary, path)
    else:
        temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable. What has no such thing, as Windows, needs no such thing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
