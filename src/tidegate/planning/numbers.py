"""What number does an option say, in its one unit?

Numbers are read here and not by the command line's parser, so that a unit that does not belong, a zero or a
nan are told in a sentence, to people and as data alike. `.8`, `1e3`, `1_000` and `1,000` are numbers; `2k` is
none, for it may be 2000 or 2048.
"""

from __future__ import annotations

import re

from tidegate.core.errors import ConfigurationError
from tidegate.core.text import printable
from tidegate.core.units import format_number, seconds_of

_DIGITS = r"(?:[0-9]+(?:[_,][0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NUMBER = re.compile(rf"[-+]?{_DIGITS}", re.ASCII)
_RATE = re.compile(rf"({_DIGITS})\s*([kKMGT]?)(bit|b|B)(?:/s|ps)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"([-+]?[0-9]+),([0-9]+)", re.ASCII)
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_THOUSANDS = {"k": (1000, 1024), "m": (1_000_000, 1_048_576)}
_PER_S = {"/s": 1.0, "/sec": 1.0, "/min": 60.0, "/m": 60.0, "/h": 3600.0, "/hour": 3600.0, "/d": 86_400.0}


LEAST, MOST = 1e-9, 1e12
"""Of numbers above 0: what is beyond is a slip of the keyboard, and would overflow in a product."""
MOST_OF = {"replicas": 100_000, "accelerators": 1_000_000}
SLOWEST, FASTEST = 1.0, 1e18
"""Bytes/s of a link."""
LONGEST_S = 10 * 365 * 86_400.0
"""Of times, for the same reason: ten years."""


def number_of(option: str, text: str, unit: str, *, least: float = 0.0, above: bool = True) -> float:
    """The number, above `least` (or at least it), at most `MOST`. ConfigurationError names the option."""
    value = _plain(option, text, unit)
    bound = f"{'above' if above else 'at least'} {least:g}"
    if not (value > least if above else value >= least):
        raise ConfigurationError([f"{option}: {printable(text)!r} cannot be; give {unit} {bound}"])
    if value > MOST or 0 < value < LEAST:
        problem = f"{option}: {printable(text)!r} is too {'large' if value > MOST else 'small'} to plan with"
        raise ConfigurationError([f"{problem}; give {unit} from {max(least, LEAST):g} to {MOST:,.0f}"])
    return value


def count_of(option: str, text: str, unit: str, *, least: int = 1) -> int:
    """The same for what is counted."""
    value = number_of(option, text, unit, least=least, above=False)
    if value > (most := MOST_OF.get(unit, MOST)):
        raise ConfigurationError([f"{option}: {value:,.0f} are too many; give {most:,} {unit} at most"])
    if value != int(value):
        raise ConfigurationError([f"{option}: {printable(text)!r} is no whole number of {unit}"])
    return int(value)


def ratio_of(option: str, text: str, *, most: float = 1.0, above: bool = False) -> float:
    """A share from 0, or `above` it, to `most`; `40%` is 0.4."""
    words = text.strip()
    percent = words.endswith("%")
    value = _plain(option, words.removesuffix("%"), "a share") / (100 if percent else 1)
    if not 0 <= value <= most or (above and not value):
        shares = f"{'above 0, up' if above else 'from 0'} to {most:g}"
        remedy = f"{value:g} % is {value / 100:g}" if not percent and 1 < value <= 100 else "write 0.4 or 40%"
        raise ConfigurationError([f"{option}: {printable(text)!r} is no share {shares}; {remedy}"])
    return value


def duration_of(option: str, text: str) -> float:
    """Seconds, above 0, and ten years at most."""
    seconds = pause_of(option, text)
    if not seconds >= LEAST:
        raise ConfigurationError([f"{option}: {printable(text)!r} is no time to do anything in; give more"])
    return seconds


def pause_of(option: str, text: str) -> float:
    """Seconds, from 0 on, which needs no unit, and ten years at most."""
    seconds = 0.0 if text.strip() == "0" else seconds_of(option, text)
    if seconds > LONGEST_S:
        raise ConfigurationError([f"{option}: {printable(text)!r} is too long to plan with; give less"])
    return seconds


def rate_of(option: str, text: str) -> float:
    """Bytes/s of `50GB/s`, or of `400Gb`, which are bits, as links are sold. Raises ConfigurationError."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not _value(match[1]) > 0:
        problem = f"{option}: {printable(text)!r} is no rate of a link above 0"
        raise ConfigurationError([f"{problem}; write 50GB/s, or 400Gb for bits"])
    rate = _value(match[1]) * _PREFIXES[match[2].upper()] / (8 if match[3].startswith("b") else 1)
    if not SLOWEST <= rate <= FASTEST:
        problem = f"{option}: {printable(text)!r} is too {'fast' if rate > FASTEST else 'slow'} to plan with"
        raise ConfigurationError([f"{problem}; write a rate as 50GB/s, or 400Gb for bits"])
    return rate


def percentile_of(option: str, text: str) -> float:
    """A share from 0.5 to below 1 of `95` or `p95`."""
    value = number_of(option, text.strip().lower().removeprefix("p"), "a percentile")
    if not 50 <= value <= 99.9:
        remedy = f"write {100 * value:g}" if 0.5 <= value < 1 else "95 is usual"
        raise ConfigurationError([f"{option}: {value:g} is not from 50 to 99.9; {remedy}"])
    return round(value / 100, 6)


def _plain(option: str, text: str, unit: str) -> float:
    words = text.strip().lower()
    match = _NUMBER.match(words)
    if match is not None and match.end() == len(words):
        return _value(words)
    raise ConfigurationError([f"{option}: {printable(text)!r} is not {unit}; {_remedy(match, words)}"])


def _remedy(match: re.Match[str] | None, words: str) -> str:
    if match is None:
        return "write a number, as in 0.5, 1000, 1_000 or 1e3"
    if comma := _DECIMAL_COMMA.fullmatch(words):
        return f"a comma stands between thousands; write {comma[1]}.{comma[2]}"
    if _NUMBER.fullmatch(whole := words.replace(",", "").replace("_", "")):
        return f"thousands have three digits; write {whole}"
    value, rest = _value(match[0]), words[match.end() :].strip()
    if rest in _THOUSANDS:
        decimal, binary = (format_number(value * factor).replace(",", "") for factor in _THOUSANDS[rest])
        return f"write {decimal} or {binary}"
    per = next((seconds for end, seconds in _PER_S.items() if rest.endswith(end)), None)
    if per is not None:
        return f"write it without its unit, per second: {value / per:.6g}"
    return f"write it without {printable(rest)!r}: {value:.6g}"


def _value(digits: str) -> float:
    """Of what `_NUMBER` matches."""
    return float(digits.replace(",", "").replace("_", ""))
