"""RFC 3339 times and protobuf durations as nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FRACTION = re.compile(r"\.(\d+)")
_DURATION = re.compile(r"(-?)(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
_UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def rfc3339_ns(text: str) -> int:
    """`2017-01-26T16:46:31.639875001-05:00` as nanoseconds since 1970. Raises `ValueError`."""
    fraction = _FRACTION.search(text)
    digits = fraction[1] if fraction else ""
    whole = _FRACTION.sub("", text)
    moment = datetime.fromisoformat(whole)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (seconds.days * 86400 + seconds.seconds) * 10**9 + int(digits[:9].ljust(9, "0"))


def duration_ns(text: str) -> int:
    """`22938000ns`, `0.5s` or `1m30s` as nanoseconds. Raises `ValueError`."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is no duration")
    total = 0
    for _, number, unit in parts:
        whole, _, fraction = number.partition(".")
        scale = _UNIT_NS[unit]
        total += int(whole) * scale + int(fraction[:9].ljust(9, "0")) * scale // 10**9
    return -total if text.startswith("-") else total
