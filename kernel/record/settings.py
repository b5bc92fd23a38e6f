"""Settings that cannot work are refused when they are given, each by its name, with its value and what it should be."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from kernel.errors import ConfigError
from kernel.record.messages import ModelParams
from kernel.record.run import Budget, ContextLimits, Guard, Policy, Price

S = TypeVar("S", bound=msgspec.Struct)
_FIELD = re.compile(r"\$\.(\w+)")
_NO_LIMIT = "more than 0, or None for no limit"

_Range: TypeAlias = tuple[float, float, str]
_USD: _Range = (0, math.inf, "0 or more US dollars")
_RANGES: Mapping[type, Mapping[str, _Range]] = {
    Budget: {
        "max_steps": (1, math.inf, "at least 1, or None for no limit"),
        "max_errors": (1, math.inf, "at least 1"),
        "max_finish_refusals": (1, math.inf, "at least 1"),
        "model_retries": (0, math.inf, "at least 0"),
        "max_prompt_tokens": (1, math.inf, _NO_LIMIT),
        "max_total_output_tokens": (1, math.inf, _NO_LIMIT),
        "max_output_tokens": (1, math.inf, _NO_LIMIT),
        "max_cost_usd": (math.ulp(0.0), math.inf, _NO_LIMIT),
        "timeout_s": (math.ulp(0.0), math.inf, _NO_LIMIT),
    },
    Guard: {
        "window": (1, math.inf, "at least 1"),
        "max_warnings": (1, math.inf, "at least 1"),
        "similarity": (0, 1.000001, "from 0 to 1, or None"),
    },
    ContextLimits: {
        "max_observation_chars": (100, math.inf, "at least 100"),
        "keep_steps": (1, math.inf, "at least 1"),
        "window_tokens": (1, math.inf, _NO_LIMIT),
    },
    Price: dict.fromkeys(("input_usd", "output_usd", "cache_read_usd", "cache_write_usd"), _USD),
    ModelParams: {"max_output_tokens": (1, math.inf, _NO_LIMIT)},
    Policy: {},
}
"""Least, bound (which is too much), and how both are put into words."""


def checked_settings(given: Any, kind: type[S], name: str, of: str = "") -> S:
    """The settings as a trace records them; `of` names whose they are, where there are several.

    Raises:
        ConfigError: they are of another kind, or a field is of another type or out of its range.
    """
    if not isinstance(given, kind):
        raise ConfigError(f"{name}{of} is {shown(given)}, it must be a {kind.__name__}")
    try:
        fields = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not msgspec.UNSET}
        settings = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_mistyped(error, given, of)}") from None
    ranges: Mapping[str, _Range] = _RANGES[kind]
    for field, (least, bound, words) in ranges.items():
        value = getattr(settings, field)
        if isinstance(value, (int, float)) and not least <= value < bound:
            raise ConfigError(f"{name}: {field}{of} is {value}, it must be {words}")
    return settings


def checked_prices(given: Any) -> dict[str, Price]:
    """Prices by model. Raises `ConfigError`."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"prices is {type(given).__name__}, it must be a dict of model name to Price")
    for model in given:
        if not isinstance(model, str):
            raise ConfigError(f"prices: the model {model!r} is {type(model).__name__}, it must be named by text")
    return {model: checked_settings(price, Price, "prices", f' of "{model}"') for model, price in given.items()}


def check_number(name: str, value: Any, *, least: float = math.ulp(0.0), whole: bool = False, none: str = "") -> None:
    """Refuse what is no number, or less than `least`; `none` says what None means, where that is allowed.

    Raises:
        ConfigError: it is refused.
    """
    if value is None and none:
        return
    kinds: tuple[type[float], ...] = (int,) if whole else (int, float)
    if isinstance(value, kinds) and not isinstance(value, bool) and least <= value < math.inf:
        return
    kind = "a whole number" if whole else "a number"
    bound = f"of at least {least:g}" if least >= 1 else "of 0 or more" if not least else "of more than 0"
    raise ConfigError(f"{name} is {value!r}, it must be {kind} {bound}" + (f", or None {none}" if none else ""))


def check_function(name: str, value: Any) -> None:
    """Refuse what cannot be called, and is not None. Raises `ConfigError`."""
    if value is not None and not callable(value):
        raise ConfigError(f"{name} is {shown(value)}, it must be a function")


def check_kind(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Refuse a value of another type. Raises `ConfigError`."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {shown(value)}, it must be {words}")


def shown(value: Any) -> str:
    """A value that is of the wrong type: its type, and what it is."""
    return f"{type(value).__name__} ({value!r:.80})"


def _mistyped(error: msgspec.ValidationError, given: msgspec.Struct, of: str) -> str:
    """`max_steps is '2': expected int, got str`, from what msgspec says."""
    said, _, place = str(error).partition(" - at ")
    words = said.replace("`", "").replace(" | null", " or None").replace("null", "None")
    found = _FIELD.search(place)
    if found is None:
        return str(error)
    return f"{found[1]}{of} is {getattr(given, found[1])!r:.80}: {words[0].lower()}{words[1:]}"
