"""The one place where a file to be read is opened: plain files only, and never more of one than memory should hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, NoReturn

from replay.readers.refusal import refuse

MAX_BYTES = 512 * 2**20
"""What is read as a whole, after unpacking. Lines of OTLP/JSON may be more: they are read trace by trace."""

_HEAD_BYTES = 4096
_KINDS = {
    stat.S_IFIFO: "a pipe, which can be read only once",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_plain(path: Path, name: str | None = None) -> BinaryIO:
    """Open a plain file for reading, also by way of a link to one.

    Whatever else has a name would block, never end, or do something when it is read, and is not opened.

    Raises:
        TraceError: there is no such file, it cannot be read, or it is no plain file.
    """
    name = name or str(path)
    try:
        _must_be_plain(os.stat(path), name)
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        _refuse(error, name)
    stream = os.fdopen(file, "rb")
    _must_be_plain(os.fstat(file), name)  # what was opened, whatever happened to its name since
    return stream


def _must_be_plain(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        refuse(name, "this is a directory", remedy="Name the trace files in it.")
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no plain file")
        refuse(name, f"this is {kind}", remedy="Save its content to a file and name that.")


def _refuse(error: OSError | ValueError, name: str) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        refuse(name, "no such file", remedy="Check the path.")
    if isinstance(error, OSError):
        refuse(name, f"cannot be read: {error.strerror or error}", remedy="Check the path and its permissions.")
    refuse(name, f"no name of a file: {error}", remedy="Check the path.")


def read_plain(path: Path, name: str | None = None) -> bytes:
    """The bytes of a plain file. Raises `TraceError` where there are none to read, or more than `MAX_BYTES`."""
    name = name or str(path)
    with open_plain(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(_HEAD_BYTES)
        if size > MAX_BYTES or not head.strip(b"\0"):
            must_begin(head, name)
        try:
            data = head + stream.read(MAX_BYTES + 1 - len(head))
        except OSError as error:
            _refuse(error, name)
    if len(data) > MAX_BYTES:
        too_large(name, f"it is more than {MAX_BYTES >> 20} MiB in one piece")
    return data


def must_begin(head: bytes, name: str) -> None:
    """Refuse a file of zeros, which a crash or a download that was cut leaves, before more of it is read."""
    if head and not head.strip(b"\0"):
        refuse(name, "it begins with zeros only: nothing was written there", remedy="Copy the file again.")


def too_large(name: str, what: str) -> NoReturn:
    """Refuse what would not fit into memory."""
    refuse(name, what, remedy="Export it as JSON lines, one request a line: those are read trace by trace.")
