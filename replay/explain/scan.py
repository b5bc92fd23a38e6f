"""Look for secrets that were not masked, in trace files and any other text file; never show one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernel.errors import TraceError
from kernel.masking import Hit, Known, Masker, placeholder, spellings
from kernel.masking.text import ESCAPED, json_literals
from replay.readers import MAX_BYTES, Source, kind_of, read_plain, split_frames, unpack

_CONTEXT: Final = 24  # characters shown on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One secret in one file. `line` and `column` count from 1, in characters; `preview` has every secret masked."""

    file: str
    line: int
    column: int
    kind: str
    preview: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.kind}: {self.preview}"


def scan_file(path: str | Path, *, masker: Masker | None = None) -> list[Finding]:
    """The findings in one file. Raises TraceError if unreadable, ValueError if it is packed and cannot be unpacked."""
    return scan_bytes(str(path), read_plain(Path(path)), masker=masker)


def scan_bytes(name: str, data: bytes, *, masker: Masker | None = None) -> list[Finding]:
    """The findings in `data`, plain or packed by gzip or zstd, also message by message as the Collector does.

    In order of position. What is not UTF-8 is read with replacement characters.

    Raises:
        ValueError: `data` is packed in another way, damaged or cut short: nothing unread counts as clean. The message
            names the file.
    """
    text = _text(name, data)
    hits = _hits(text, masker or Masker.default())
    findings: list[Finding] = []
    line, line_start = 1, 0
    for at, hit in enumerate(hits):
        line += text.count("\n", line_start, hit.start)
        line_start = text.rfind("\n", 0, hit.start) + 1
        before = max(line_start, hit.start - _CONTEXT, hits[at - 1].end if at else 0)
        after = min(hit.end + _CONTEXT, hits[at + 1].start if at + 1 < len(hits) else len(text))
        shown = placeholder(hit.kind, hit.secret, strong=hit.strong)
        preview = _harmless(text[before : hit.start] + shown + text[hit.end : after].partition("\n")[0])
        findings.append(
            Finding(file=name, line=line, column=hit.start - line_start + 1, kind=hit.kind, preview=preview)
        )
    return findings


def _text(name: str, data: bytes) -> str:
    """What `data` says. The messages of a framed file stand on lines of their own."""
    if frames := split_frames(Source(name=name, data=data)):
        data = b"\n".join(_messages(name, [message for _, message in frames]))
    else:
        data = _unpacked(name, data)
    # Without its zero bytes, UTF-16 (what PowerShell's `>` writes) reads as the plain text wherever that is ASCII.
    return data.replace(b"\0", b"").decode("utf-8", "replace")


def _messages(name: str, messages: list[bytes]) -> Iterator[bytes]:
    total = 0
    for message in messages:
        yield (plain := _unpacked(name, message))
        total += len(plain)
        if total > MAX_BYTES:
            raise ValueError(f"{name}: holds more than {MAX_BYTES >> 20} MiB; scan the unpacked text in parts")


def _unpacked(name: str, data: bytes) -> bytes:
    kind = kind_of(data) or "data"
    notes: list[str] = []
    try:
        plain = unpack(data, name, notes)
    except TraceError as error:
        raise ValueError(f"{name}: damaged {kind} ({error}); write the file again, or scan the unpacked text") from None
    if notes:
        raise ValueError(f"{name}: damaged {kind} ({notes[0]}); write the file again, or scan the unpacked text")
    return plain


def _hits(text: str, masker: Masker) -> list[Hit]:
    """The secrets of `text`; one that only shows when a JSON string literal is decoded stands for the whole literal."""
    hits = masker.find(text)
    for start, end, plain in json_literals(text, only=ESCAPED) if "\\u00" in text else ():
        hits += [hit._replace(start=start, end=end) for hit in masker.find(plain)[:1]]
    hits += _again(text, hits)
    hits.sort(key=lambda hit: (hit.start, -hit.end))
    apart: list[Hit] = []
    for hit in hits:
        if not apart or hit.start >= apart[-1].end:
            apart.append(hit)
    return apart


def _again(text: str, hits: list[Hit]) -> list[Hit]:
    """Where the values of `hits` stand once more, without the name that gave them away."""
    known, by_value = Known(), {}
    for hit in hits:
        if not hit.strong:
            by_value.update(dict.fromkeys(spellings(hit.secret), hit))
            known.learn({hit.secret: hit.secret})
    return [by_value[text[start:end]]._replace(start=start, end=end) for start, end in known.find(text)]


def _harmless(text: str) -> str:
    """`text` without line breaks, terminal controls and invisible characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
