"""The door of a room: its `__init__` names what others may use, and each name is imported when it is first asked for.

So a room can be looked through without paying for all that is in it, and `from kernel.record import Step` costs what `Step` costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def door(package: str, **names: str) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: for each of its modules, the names it offers, parted by blanks.

    Raises:
        AttributeError: for any other name, as a module does.
    """
    homes = {name: f"{package}.{module}" for module, offered in names.items() for name in offered.split()}

    def open_door(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return open_door
