"""Masking: secrets leave the process only as stable, typed placeholders. Imports nothing else of the kernel.

A secret that was found once, by its name, its form or a rule, is masked wherever its value stands later in the run.

What is not found: a secret cut in two (by a message boundary or a line break); base64 or percent-encoding of a
secret as a whole; a password in free prose ("the password is ..."); in text, the lines after the first of a quoted
password, what follows a double quote inside a single-quoted one, triple quotes, and a list under a secret's name
(in parsed data it is).
"""

from kernel.masking.context import Hit
from kernel.masking.known import SHORTEST_NAMED, Known, spellings
from kernel.masking.masker import Masker
from kernel.masking.placeholder import PLACEHOLDER, contains_placeholder, placeholder
from kernel.masking.rules import Rule, by_call, by_name, by_path, by_regex

__all__ = [
    "PLACEHOLDER",
    "SHORTEST_NAMED",
    "Hit",
    "Known",
    "Masker",
    "Rule",
    "by_call",
    "by_name",
    "by_path",
    "by_regex",
    "contains_placeholder",
    "placeholder",
    "spellings",
]
