"""Claims about the scan for secrets that were left in files."""

import gzip
import json
import string
from pathlib import Path

import pytest

from kernel.masking import Masker
from replay.explain.scan import scan_bytes, scan_file

KEY = "gh" + "p_" + string.ascii_letters[:30] + "1234567"
WORD = "hunter" + "2-and-more"


def test_a_finding_names_file_line_column_and_kind() -> None:
    (finding,) = scan_bytes("run.trace.json", f'{{\n  "a": 1,\n  "note": "{KEY}"\n}}\n'.encode())
    assert (finding.file, finding.line, finding.column, finding.kind) == ("run.trace.json", 3, 12, "github-token")
    assert str(finding).startswith("run.trace.json:3:12: github-token: ")


def test_no_preview_shows_a_secret_even_of_a_neighbour() -> None:
    text = f"password={WORD} {KEY},{KEY} \x1b[31m token={KEY}\n"
    findings = scan_bytes("x", text.encode())
    assert [finding.kind for finding in findings] == ["password", "github-token", "github-token", "github-token"]
    for finding in findings:
        assert KEY[4:12] not in finding.preview and WORD[:7] not in finding.preview and "\x1b" not in finding.preview


def test_a_masked_trace_has_no_findings() -> None:
    record = {"attributes": [{"key": "args", "value": {"stringValue": json.dumps({"password": WORD, "k": KEY})}}]}
    assert len(scan_bytes("x", json.dumps(record).encode())) == 2
    assert scan_bytes("x", json.dumps(Masker.default().mask(record)).encode()) == []


def test_a_secret_hidden_by_unicode_escapes_is_found() -> None:
    hidden = json.dumps({"a": KEY}).replace("_", "\\u005f")
    (finding,) = scan_bytes("x", hidden.encode())
    assert finding.kind == "github-token"
    assert KEY[4:12] not in finding.preview


def test_gzip_is_read_and_damaged_gzip_is_named(tmp_path: Path) -> None:
    packed = gzip.compress(f"a\n{KEY}".encode(), mtime=0)
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed)
    (finding,) = scan_file(path)
    assert (finding.file, finding.line, finding.column) == (str(path), 2, 1)
    with pytest.raises(ValueError, match=r"t\.gz: damaged gzip"):
        scan_bytes("t.gz", packed[:-9])


def test_bytes_that_are_not_utf8_are_scanned_all_the_same() -> None:
    assert len(scan_bytes("x", b"\xff\xfe\x00" + KEY.encode())) == 1
