"""Claims about export, masking and scanning that were once wrong."""

from __future__ import annotations

import gzip
import string
from pathlib import Path

import pytest
import zstandard

from kernel.export.http import destination
from kernel.export.sink import Limits, OtlpSink, shutdown
from kernel.export.spool import SUFFIX
from kernel.masking import Masker
from kernel.trace.span import Span
from kernel.tracing import tracing_from
from replay.explain.scan import scan_bytes, scan_file

from ..e2e.otlp_server import OtlpServer, Reply

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


@pytest.mark.parametrize("exporters", ["", " ", "otlp", "console, otlp"])
def test_an_empty_list_of_exporters_counts_as_unset(exporters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables of the OpenTelemetry specification: an empty value is treated as unset."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporters)
    tracing = tracing_from(None)
    assert tracing is not None and tracing.otlp == "http://localhost:1"


@pytest.mark.parametrize("disabled", ["true", " TRUE "])
def test_a_disabled_sdk_sends_nothing(disabled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", disabled)
    assert tracing_from(None) is None


def test_a_web_page_has_taken_no_span(tmp_path: Path) -> None:
    """Jaeger's user interface answers every POST with its page and 200; what is sent there waits, and arrives later."""
    page = Reply(headers=(("Content-Type", "text/html; charset=utf-8"),), body=b"<!doctype html><title>UI</title>")
    with OtlpServer(default=page) as server:
        sink = OtlpSink(server.url, spool=tmp_path, limits=Limits(delay_s=0.01, retry_initial_s=0.02, retry_max_s=0.05))
        sink.ended(Span(trace_id="a" * 32, span_id="b" * 16, name="run", start_ns=1, end_ns=2))
        stats = sink.flush(0.3)
        assert (stats.sent, stats.waiting, stats.rejected) == (0, 1, 0)
        assert stats.last_error is not None and "web page" in stats.last_error
        server.default = Reply()
        stats = sink.flush(10)
        assert (stats.sent, stats.waiting) == (1, 0)


@pytest.mark.parametrize("form", ['{{"token": "{}"}}', "token: '{}'", "{}"])
def test_a_masked_part_makes_no_secret_of_the_rest(form: str) -> None:
    """A placeholder holds digits; beside one, a word is not more random than it was."""
    value = "sk-" + "-----BEGIN PRIVATE " + "KEY-----"
    once = Masker.default().mask({"token": value, "text": form.format(value)})
    assert once["token"].startswith("sk-~masked.private-key.")
    assert Masker.default().mask(once) == once


def test_a_span_cut_short_by_a_kill_is_not_said_to_have_found_no_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL can end a write in its middle; the next process counts the half line as lost and says both reasons."""
    with OtlpServer() as server:
        sink = OtlpSink(server.url, spool=tmp_path)
        target = destination(server.url)
        assert target is not None
        folder = tmp_path / target.digest
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{1:020d}-1-1{SUFFIX}").write_bytes(b'{"resourceSpans":[')
        assert sink.flush(10).dropped == 1
        assert sink.warnings() == [
            f"1 spans for {server.url}/v1/traces are lost: no room to wait, or killed while they were written"
        ]
        shutdown(0.1)
    assert "1 spans for" in caplog.text and "or killed while" in caplog.text
