"""How is a length of time read from a setting, and how are times, numbers and ratios shown?

Inside, durations are float seconds and names end in `_s`; people write `200ms`, `1.5m` or `8h`. A number
without a unit is refused: it cannot be known whether 30 meant seconds or milliseconds.
"""

from __future__ import annotations

import re
from math import isfinite, isnan

from tidegate.core.errors import ConfigurationError

_SECONDS_OF = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds, at least 0, of a number and a unit (us, ms, s, m, h, d). Raises ConfigurationError."""
    match = _DURATION.fullmatch(text.strip())
    unit_s = _SECONDS_OF.get(match[2]) if match else None
    if match is None or unit_s is None:
        raise ConfigurationError([f"{text!r} is not a duration: write a number and a unit, {_example(text)}"])
    seconds = float(match[1]) * unit_s
    if not isfinite(seconds):
        raise ConfigurationError([f"{text[:20]!r}... is longer than any duration can be"])
    return seconds


def seconds_of(option: str, text: str) -> float:
    """`parse_duration` of what an option of the command line says; what is wrong with it names the option."""
    try:
        return parse_duration(text)
    except ConfigurationError as error:
        raise ConfigurationError([f"{option}: {problem}" for problem in error.problems]) from None


def format_duration(seconds: float, digits: int = 6) -> str:
    """The shortest text that reads back as `seconds`, rounded to `digits` significant digits.

    Hours, minutes and days only where they are whole: 90 seconds are `90s`, and 120 are `2m`.
    """
    if isnan(seconds):
        return "-"
    if not isfinite(seconds) or seconds < 0:
        return f"{seconds:g}s"
    rounded = float(f"{seconds:.{digits}g}")
    for unit in ("d", "h", "m"):
        if rounded >= _SECONDS_OF[unit] and rounded % _SECONDS_OF[unit] == 0:
            return f"{rounded / _SECONDS_OF[unit]:.0f}{unit}"
    unit = next((name for name in ("s", "ms") if rounded >= _SECONDS_OF[name]), "us" if rounded else "s")
    return f"{_plain(rounded / _SECONDS_OF[unit], digits)}{unit}"


def format_span(seconds: float) -> str:
    """Three digits in seconds, minutes, hours or days, whichever is read with least effort: `58.4m`."""
    for unit in ("d", "h", "m"):
        if seconds >= 2 * _SECONDS_OF[unit]:
            return f"{_plain(seconds / _SECONDS_OF[unit], 3)}{unit}"
    return format_duration(seconds, 3)


def format_latency(seconds: float) -> str:
    """Three digits, in seconds at most: `120s` and not `2m`; `-` for nan, which is no measurement."""
    return f"{format_number(seconds)}s" if seconds >= 60 else format_duration(seconds, 3)


def format_number(value: float) -> str:
    """Three digits, and more only before the point: `1,235`; `-` for nan."""
    if isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_ratio(ratio: float) -> str:
    """In percent with one decimal, unless that is 0; more where it is nearly 100 %; `-` for nan."""
    if isnan(ratio):
        return "-"
    digits = next((digits for digits in (1, 2, 3) if round(ratio, 2 + digits) < 1), 1)
    return f"{ratio:.{digits}%}".replace(".0%", "%")


def _plain(value: float, digits: int) -> str:
    """`value` to so many significant digits, never as a power of ten."""
    number = float(f"{value:.{digits}g}")
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".")


def _example(text: str) -> str:
    number = text.strip()
    return (
        f"as in {number}s or {number}ms" if number.isdecimal() and number.isascii() else "as in 30s or 200ms"
    )
