"""Claims about export, masking and scanning that were once wrong."""

from __future__ import annotations

import gzip
import string
from pathlib import Path

import pytest
import zstandard

from replay.scan import scan_bytes, scan_file

KEY = "gh" + "p_" + string.ascii_letters[:30] + "1234567"
TEXT = f"a\n{KEY}\n"


def framed(*messages: bytes) -> bytes:
    """Messages as the Collector's file exporter writes them when it packs or writes protobuf."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


@pytest.mark.parametrize(
    "data",
    [
        zstandard.compress(TEXT.encode()),
        zstandard.compress(b"a\n") + zstandard.compress(KEY.encode()),
        gzip.compress(b"a\n", mtime=0) + gzip.compress(KEY.encode(), mtime=0),
        framed(zstandard.compress(b"a"), zstandard.compress(KEY.encode())),
    ],
    ids=["zstd", "zstd frames", "gzip members", "messages of zstd"],
)
def test_a_packed_secret_is_found_at_its_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(data)
    (finding,) = scan_file(path)
    assert (finding.kind, finding.line, finding.column) == ("github-token", 2, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_secret_in_utf16_is_found(encoding: str) -> None:
    (finding,) = scan_bytes("x", TEXT.encode(encoding))
    assert (finding.kind, finding.line) == ("github-token", 2)


@pytest.mark.parametrize(
    "data",
    [
        zstandard.compress(TEXT.encode() * 99)[:-9],
        zstandard.compress(TEXT.encode())[:6] + b"\0" * 40,
        framed(zstandard.compress(TEXT.encode() * 99)[:-9]),
        b"BZh91AY&SY",
        b"\xfd7zXZ\0",
        b"PK\x03\x04",
    ],
    ids=["cut", "damaged", "cut message", "bzip2", "xz", "zip"],
)
def test_what_the_scan_cannot_unpack_is_not_called_clean(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^x: damaged"):
        scan_bytes("x", data)
