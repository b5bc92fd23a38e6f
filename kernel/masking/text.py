"""Find the secrets of one text: one pass of one trigger pattern, with a precise look wherever it fires.

The trigger pattern starts with one of a few rare characters (`-`, `_`, `:`, `=`, `J` …), so the regex engine skips
over clean text with a character-set loop; only at such a character are the literals around it compared. Most texts
have no trigger at all and cost one failed search.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Final

from kernel.masking import shapes
from kernel.masking.context import Hit, NameKind, assignment, flag, scheme, url_password
from kernel.masking.formats import FORMATS, Format
from kernel.masking.names import kind_of_name, secret_in

_PIVOTS: Final = "-_.:="
_LONGEST_START: Final = 40  # characters; no literal of a format is longer
ESCAPED: Final = re.compile(r"\\u00[2-7]")
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.S)
# The last three letters of the names that `kind_of_name` knows.
_NAME_ENDS: Final = (
    "ord",
    "rds",
    "swd",
    "ase",
    "ode",
    "pwd",
    "ret",
    "ets",
    "ken",
    "jwt",
    "key",
    "ion",
    "kie",
    "ies",
    "ial",
    "als",
    "ure",
    "lue",
)
_GAPS: Final = (
    1,
    2,
    3,
    4,
    8,
)  # characters; a quote has 0, 1, 3 or 7 backslashes before it in JSON text up to four deep
_GAP: Final = r"[\"'\\ \t]"

_Detector = Callable[[str, int, NameKind], Hit | None]


def _format_triggers(row: Format) -> Iterator[tuple[str, str, str, _Detector]]:
    """For each start of `row`: the character to search for, the text before it, a pattern, and the precise look."""
    pattern, group, check, kind = row.compiled(), row.group, row.check, row.kind

    def detector(back: int) -> _Detector:
        def detect(text: str, at: int, kind_of: NameKind) -> Hit | None:
            match = pattern.match(text, at - back) if at >= back else None
            if match is None:
                return None
            if check is not None and not check(match[group]):
                return Hit(match.start(), match.end(), "", "", True)  # nothing, but need not be read again
            return Hit(match.start(group), match.end(group), kind, match[group], True)

        return detect

    for literal in row.starts:
        at = _pivot(literal)
        behind, ahead = re.escape(literal[: at + 1]), re.escape(literal[at + 1 :])
        around = (f"(?<={behind})" if at else "") + (f"(?={ahead})" if ahead else "") + row.near
        yield literal[at], literal[:at], around, detector(at)


def _pivot(literal: str) -> int:
    """The place of the character to search for: punctuation if there is any, else an A, else the last capital."""
    for at, char in enumerate(literal):
        if char in _PIVOTS:
            return at
    if "A" in literal:  # one letter for many rows: each further one makes all texts dearer
        return literal.rindex("A")
    return max(at for at, char in enumerate(literal) if char.isupper())


def _name_trigger(ends: tuple[str, ...]) -> str:
    """What stands before a `:` or `=` that follows a secret's name: the name's last letters, quotes and blanks."""
    by_width: dict[int, set[str]] = {}
    for end in ends:
        by_width.setdefault(len(end[-3:]), set()).add(end[-3:])

    def after(gap: int) -> str:
        rest = (_GAP if gap else "") + f"{{{gap}}}" * (gap > 1) + "[:=]"
        return "|".join(
            f"(?<={_letter_sets(some)}{rest})(?<=(?i:{'|'.join(sorted(some))}){rest})" for some in by_width.values()
        )

    gaps = "|".join(f"(?:{after(gap)})" for gap in _GAPS)
    return f"(?:{after(0)}|(?<={_GAP}[:=])(?:{gaps}))"


def _letter_sets(words: set[str]) -> str:
    """A set for each column of equally long `words`, in both cases: compared faster than the words themselves."""
    columns = ("".join(sorted(set(column))) for column in zip(*words, strict=True))
    return "".join(f"[{re.escape(column + column.upper())}]" for column in columns)


def _one_char(char: str, rows: list[tuple[str, str]]) -> str:
    """The pattern for one searched character, given the text before it and the pattern around it, for each row.

    Rows with text before it come first, behind one comparison of the last two characters of all those texts.
    """
    behind = [(before, around) for before, around in rows if before]
    parts = [f"{around}()" for before, around in rows if not before]
    if behind:
        width = min(2, *(len(before) for before, _ in behind))
        ends = sorted({re.escape(before[-width:] + char) for before, _ in behind})
        parts.insert(0, f"(?<={'|'.join(ends)})(?:{'|'.join(f'{around}()' for _, around in behind)})")
    return f"{re.escape(char)}(?:{'|'.join(parts)})"


class Scanner:
    """Finds the secrets of texts. Immutable, so one may serve all threads.

    Args:
        names: Further names of secrets (see `plain_name`); a value under one has the kind `named-secret`.
        context: Whether names, schemes and URLs are looked at; else only what is a credential by its own form.
    """

    def __init__(self, names: frozenset[str] = frozenset(), *, context: bool = True) -> None:
        self.names = names
        rows = [trigger for row in FORMATS for trigger in _format_triggers(row)]
        if context:
            by_name = _name_trigger(_NAME_ENDS + tuple(names))
            rows += [(char, "", r"(?=(?i:earer|asic)(?:[ \t]|%20))", scheme) for char in "Bb"]
            rows += [(":", "", r"(?=(?:\\*/){2}[^\s/@]{1,400}@)", url_password), ("-", "", r"(?=-[A-Za-z])", flag)]
            rows += [(char, "", by_name, assignment) for char in ":="]
        # Stable: apart from what `_one_char` puts first, the order of the table decides between rows of one character.
        rows.sort(key=lambda row: (row[0], not row[1]))
        self._detectors = [find for *_, find in rows]
        groups = groupby(rows, key=lambda row: row[0])
        self._trigger = re.compile("|".join(_one_char(char, [row[1:3] for row in some]) for char, some in groups))
        self._context = context

    def may_hold(self, text: str) -> bool:
        """False for a text without secrets, cheaply. Unicode escapes in JSON text can hide one."""
        return self._trigger.search(text) is not None or (self._context and shapes.may_hold(text))

    def kind_of(self, name: str) -> str | None:
        """The kind of secret that a value called `name` is, or None. Only the last part of a dotted name counts."""
        if self.names and plain_name(name) in self.names:
            return "named-secret"
        return kind_of_name(name)

    def find(self, text: str) -> list[Hit]:
        """The secrets of `text`, in order, without overlap. Time is linear in the length of the text."""
        match = self._trigger.search(text)
        if self._context and shapes.may_hold(text) and (shaped := shapes.shape_hits(text, self.kind_of)):
            return _apart([*self._triggered(text, match), *shaped])
        return self._triggered(text, match)

    def _triggered(self, text: str, match: re.Match[str] | None) -> list[Hit]:
        hits: list[Hit] = []
        done = 0
        while match:
            hit = self._detectors[(match.lastindex or 1) - 1](text, match.start(), self.kind_of)
            place = match.end()
            if hit is not None and hit.start >= done:
                if not hit.strong:
                    hit = self.format_at(text, hit)
                if hit.kind:
                    hits.append(hit)
                    done = hit.end
                place = max(place, hit.end)
            match = self._trigger.search(text, place)
        return hits

    def format_at(self, text: str, hit: Hit) -> Hit:
        """`hit`, or the known credential that begins at the same place and reaches at least as far.

        So one key has one placeholder, whether it was found by its name or by its form; and a private key of many lines
        is masked whole where only its first line looks like the value of a name.
        """
        forms = by_form()
        match = forms._trigger.search(text, hit.start, hit.start + _LONGEST_START)
        form = forms._detectors[(match.lastindex or 1) - 1](text, match.start(), self.kind_of) if match else None
        return form if form is not None and form.kind and form.start == hit.start and form.end >= hit.end else hit

    def kind_of_value(self, name: str, value: str) -> Hit | None:
        """The secret in `value`, a whole string found under the key `name`, or None."""
        kind = self.kind_of(name)
        skip = None if kind is None else secret_in(name.rpartition(".")[2], kind, value)
        if kind is None or skip is None:
            return None
        return self.format_at(value, Hit(skip, len(value), kind, value[skip:], False))


def _apart(hits: list[Hit]) -> list[Hit]:
    """Hits without overlap, in order: the one that begins first, of those the longest."""
    out: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if not out or hit.start >= out[-1].end:
            out.append(hit)
    return out


@cache
def scanner(names: frozenset[str] = frozenset()) -> Scanner:
    """The scanner for these further names; built once, because its pattern takes milliseconds to compile."""
    return Scanner(names)


@cache
def by_form() -> Scanner:
    """The scanner that knows credentials by their own form only."""
    return Scanner(context=False)


def plain_name(name: str) -> str:
    """`name` without case, punctuation and the path before its last dot."""
    return "".join(char for char in name.rpartition(".")[2].lower() if char.isalnum())


def replace(text: str, hits: list[Hit], stand_in: Callable[[Hit], str]) -> str:
    """`text` with each hit replaced; `hits` are in order and do not overlap."""
    parts: list[str] = []
    done = 0
    for hit in hits:
        parts += (text[done : hit.start], stand_in(hit))
        done = hit.end
    return "".join((*parts, text[done:]))


def json_literals(text: str, *, only: re.Pattern[str] | None = None) -> Iterator[tuple[int, int, str]]:
    """Start, end (quotes included) and decoded form of the JSON string literals of `text` in which `only` is found."""
    for match in _LITERAL.finditer(text):
        if only is None or only.search(match[0]):
            try:
                yield match.start(), match.end(), json.loads(match[0], strict=False)
            except ValueError:  # not JSON after all: no text of ours to look into
                continue


def in_literals(text: str, mask: Callable[[str], str], *, only: re.Pattern[str] | None = None) -> str:
    """Apply `mask` to the decoded form of each JSON string literal of `text`, and write back those that changed."""
    parts: list[str] = []
    done = 0
    for start, end, plain in json_literals(text, only=only):
        masked = mask(plain)
        if masked != plain:
            parts += (text[done:start], json.dumps(masked, ensure_ascii=text[start:end].isascii()))
            done = end
    return "".join((*parts, text[done:])) if parts else text
