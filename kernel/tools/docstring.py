"""Read what a docstring says of a function: its first paragraph, its parameters and what it returns.

Google, NumPy and Sphinx layouts are read, in their plain forms; anything else is left alone.
"""

import inspect
import re
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """The parts of a docstring that a model is shown, each as one line; empty where nothing is said."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


_PARAMETERS: Final = frozenset({"args", "arguments", "parameters", "params", "attributes"})
_RETURNS: Final = frozenset({"returns", "return"})
_SECTION: Final = re.compile(r"([A-Z][A-Za-z ]{2,20}):\s*$")
_RULE: Final = re.compile(r"-{3,}\s*$")
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_SPHINX: Final = re.compile(r":(param|parameter|arg|argument|returns?)\s*(?:[^:]*?(\w+))?\s*:\s*(.*)")


def read_docstring(text: str) -> Docstring:
    """Read a docstring as written; never raises."""
    lines = inspect.cleandoc(text).splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    returns = ""
    index, leading = 0, True
    while index < len(lines):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        section = _SECTION.match(line)
        if line.strip() and _RULE.match(following):
            body, index = _numpy_body(lines, index + 2)
            title, entry = line.strip().lower(), _NUMPY
        elif section:
            body, index = _indented(lines, index + 1)
            title, entry = section[1].lower(), _GOOGLE
        elif match := _SPHINX.match(line):
            more, index = _indented(lines, index + 1, stop_at_blank=True)
            value = _one_line([match[3], *more])
            if match[1].startswith("return"):
                returns = value
            elif match[2]:
                parameters[match[2]] = value
            leading = False
            continue
        else:
            leading = leading and (bool(line.strip()) or not description)
            if leading and line.strip():
                description.append(line)
            index += 1
            continue
        leading = False
        if title in _PARAMETERS:
            parameters.update(_entries(body, entry))
        elif title in _RETURNS:
            returns = _one_line([ln for ln in body if ln.startswith(" ")] if entry is _NUMPY else body)
    return Docstring(description=_one_line(description), parameters=parameters, returns=returns)


def _indented(lines: list[str], start: int, *, stop_at_blank: bool = False) -> tuple[list[str], int]:
    """The indented lines from `start`, without their common margin, and the index after them."""
    end = start
    while end < len(lines) and (lines[end].startswith((" ", "\t")) or not (lines[end].strip() or stop_at_blank)):
        end += 1
    return inspect.cleandoc("\n" + "\n".join(lines[start:end])).splitlines(), end


def _numpy_body(lines: list[str], start: int) -> tuple[list[str], int]:
    """The lines up to the next title that is underlined."""
    end = start
    while end < len(lines) and not (end + 1 < len(lines) and _RULE.match(lines[end + 1])):
        end += 1
    return lines[start:end], end


def _entries(body: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Named entries that start at the margin; deeper lines continue the entry above them."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body:
        match = None if line.startswith((" ", "\t")) else entry.match(line)
        if match:
            current = found.setdefault(match[1], [])
            current.extend(match.groups()[1:])
        elif line.startswith((" ", "\t")):
            current.append(line)
        elif line.strip():
            current = []
    return {name: text for name, lines in found.items() if (text := _one_line(lines))}


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
