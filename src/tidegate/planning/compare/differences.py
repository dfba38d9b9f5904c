"""How do two configurations differ, and which of them carries more?"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from os.path import commonpath
from pathlib import Path

import msgspec

from tidegate.core.units import format_number
from tidegate.plan.answering import format_usd
from tidegate.planning.compare.deciding import NOTHING
from tidegate.planning.compare.side import Side

SAME = 0.005
"""Relative width in which two rates are called the same."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that decides, and is not the same."""

    setting: str
    a: str
    b: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides."""

    summary: str
    a: Side
    b: Side
    rate_ratio: float | None
    """What B carries over what A does; None: one of them carries nothing, or has no answer."""
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


def comparison_of(a: Side, b: Side) -> Comparison:
    """Both, and what is to be said of them together."""
    first, second = names_of(a, b)
    notes = [f"{name}: {note}" for name, side in ((first, a), (second, b)) for note in side.notes]
    lengths = {(side.prompt_tokens, side.output_tokens) for side in (a, b) if not side.impossible}
    if len(lengths) > 1:
        notes.append(
            "The loads are not alike: "
            + " and ".join(
                f"{format_number(p)} prompt and {format_number(o)} output tokens" for p, o in sorted(lengths)
            )
            + "; rates are of different requests"
        )
    if None not in (a.budgets, b.budgets) and a.budgets != b.budgets:
        notes.append("Their budgets are not alike; --ttft, --tpot and --e2e give both the same")
    if a.carried_per_s is None or b.carried_per_s is None:
        notes.append(
            "Rates are those that all replicas sustain; how much budgets leave, a saved answer does not say"
        )
    rates = _rates(a, b)
    known = not a.impossible and not b.impossible and min(rates) > 0
    return Comparison(
        summary=_summary(a, b),
        a=a,
        b=b,
        rate_ratio=rates[1] / rates[0] if known else None,
        differences=tuple(_differences(a, b)),
        notes=tuple(dict.fromkeys(notes)),
    )


def names_of(a: Side, b: Side) -> tuple[str, str]:
    """The files' names, with as much of their paths as tells them apart."""
    one, other = Path(a.file), Path(b.file)
    if one.name != other.name or one == other or one.is_absolute() != other.is_absolute():
        return (one.name, other.name) if one.name != other.name else (str(one), str(other))
    shared = commonpath([one, other])
    return str(one.relative_to(shared or ".")), str(other.relative_to(shared or "."))


def _rates(a: Side, b: Side) -> tuple[float, float]:
    """Within budgets where that is known of both, else what is sustained."""
    if a.carried_per_s is None or b.carried_per_s is None:
        return a.sustained_per_s, b.sustained_per_s
    return a.carried_per_s, b.carried_per_s


def _summary(a: Side, b: Side) -> str:
    first, second = names_of(a, b)
    sides = ((first, a), (second, b))
    if impossible := [f"{name} has no answer: {side.impossible}." for name, side in sides if side.impossible]:
        return " ".join(impossible)
    one, other = _rates(a, b)
    if not min(one, other):
        idle = first if not one else second
        return f"{idle} holds its budgets at no rate; the other, at {_rate(max(one, other))}."
    verb = "sustains" if a.carried_per_s is None or b.carried_per_s is None else "carries"
    if isclose(one, other, rel_tol=SAME):
        return f"{second} {verb} the rate of {first}, {_rate(one)}, {_with(a, b)}."
    rates = f"{format_number(other)} against {_rate(one)}"
    return f"{second} {verb} {format_number(other / one)} x the rate of {first}, {rates}, {_with(a, b)}."


def _rate(rate_per_s: float) -> str:
    return f"{format_number(rate_per_s)} requests/s"


def _with(a: Side, b: Side) -> str:
    """At the price of what."""
    more = b.replicas - a.replicas
    words = f"with {abs(more):,} {'more' if more > 0 else 'fewer'} replica{'s' * (abs(more) != 1)}"
    if not more:
        words = "with as many replicas"
    if a.cost_per_hour is None or b.cost_per_hour is None:
        return words
    dearer = b.cost_per_hour - a.cost_per_hour
    if isclose(dearer, 0.0, abs_tol=0.005):
        return f"{words}, at the same price"
    return f"{words}, for {format_usd(abs(dearer))} an hour {'more' if dearer > 0 else 'less'}"


def _differences(a: Side, b: Side) -> list[Difference]:
    """In the order of A. Of an answer, what both know; of a class or tenant of one alone, its name."""
    if a.kind != b.kind:
        one = {name: value for name, value in a.settings.items() if name in b.settings}
        other = {name: value for name, value in b.settings.items() if name in one}
    else:
        one, other = _without_alone(a.settings, b.settings), _without_alone(b.settings, a.settings)
    names = [*one, *(name for name in other if name not in one)]
    found = [Difference(setting=name, a=one.get(name, NOTHING), b=other.get(name, NOTHING)) for name in names]
    return [each for each in found if each.a != each.b]


def _without_alone(own: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """One line for each class and tenant that the other side does not have."""
    known = {_whose(name) for name in others}
    found: dict[str, str] = {}
    for name, value in own.items():
        whose = _whose(name)
        found |= {name: value} if whose is None or whose in known else {whose: "there"}
    return found


def _whose(setting: str) -> str | None:
    """`tenant acme` of `tenant acme limits burst_s`."""
    kind, _, rest = setting.partition(" ")
    return f"{kind} {rest.split(' ')[0]}" if kind in ("class", "tenant") else None
