"""What a cut left of a secret, and where a place of a text is once its secrets are placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kernel.masking import PLACEHOLDER, placeholder
from kernel.record import Fault

_SHORTEST_PART = 8  # characters: a shorter piece of a secret is not looked for
_PART = placeholder("part", "")


def secrets_in(text: str, masked: str) -> list[str]:
    """What the placeholders in `masked` stand for in `text`, found by the text between them."""
    found, at = [], 0
    plain = PLACEHOLDER.split(masked)
    for number, part in enumerate(plain):
        last = number == len(plain) - 1
        start = len(text) - len(part) if last and part else text.find(part, at) if part else at if number == 0 else -1
        if last and not part:
            start = len(text)
        if start < at:
            continue
        if number and start > at:
            found.append(text[at:start])
        at = start + len(part)
    return [secret for secret in found if len(secret) > _SHORTEST_PART]


def without_parts(text: str, secrets: Iterable[str]) -> str:
    """`text` without beginnings and ends of `secrets` that a cut has left in it, the longest pieces first."""
    known = tuple(secrets)
    while pieces := [piece for secret in known for begins in (True, False) if (piece := _piece(text, secret, begins))]:
        text = text.replace(max(pieces, key=len), _PART)
    return text


def _piece(text: str, secret: str, begins: bool) -> str:
    """The longest beginning (or end) of `secret` in `text`, "" for none."""
    if (secret[:_SHORTEST_PART] if begins else secret[-_SHORTEST_PART:]) not in text:
        return ""
    least, most = _SHORTEST_PART, len(secret)  # what holds a piece holds every shorter one
    while least < most:
        middle = (least + most + 1) // 2
        if (secret[:middle] if begins else secret[-middle:]) in text:
            least = middle
        else:
            most = middle - 1
    return secret[:least] if begins else secret[-least:]


def moved(fault: Fault, text: str, masked: str) -> tuple[Fault, Callable[[str], str]]:
    """A fault at its place in the masked text, and what mends other texts that name the place."""
    place = _place_in(fault.position, text, masked)
    if place == fault.position or fault.position <= 0:
        return fault, lambda other: other

    def mend(other: str) -> str:
        return other.replace(f" {fault.position}", f" {place}")

    return replace(fault, position=place, message=mend(fault.message)), mend


def _place_in(position: int, text: str, masked: str) -> int:
    """Where in `masked` an offset of `text` is."""
    at = shift = 0
    for hit in PLACEHOLDER.finditer(masked):
        start = hit.start() + shift  # where in `text` the secret begins
        rest = masked[hit.end() :]
        following = PLACEHOLDER.split(rest, 1)[0]
        end = text.find(following, start) if following else len(text)
        if end < 0 or position < end:
            break
        shift += (end - start) - (hit.end() - hit.start())
        at = end
    return position - shift if position >= at else position
