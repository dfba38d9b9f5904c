"""What does the page of the closed form say?"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

from accuracy.closed_form_cases import CASES, LAST, LOADS, MOST_SEQUENCES, SECOND, SEEDS, WARM_UP
from accuracy.closed_form_values import FIGURES, Point

TRUSTED: Final = 0.25
"""Relative error up to which a figure is called trusted."""

PAGE = """\
# How near is the closed form?

<!-- Written by `python -m accuracy.closed_form`. Change accuracy/closed_form_report.py, not this page. -->

`tidegate plan` computes latencies at a replica by a closed form (`tidegate.plan.laws.steady`), where
`tidegate simulate` lets each request happen. Both take step times from the same curve: this page says nothing
of real engines, which [accuracy](accuracy.md) does. Here {count} cases (`accuracy/closed_form_cases.py`) are
computed and simulated at {loads} of the sustained rate: {runs} runs each, seeds {first}
to {last}, without the first {warm_up:.0%} of the requests. A whole governor queues in order of arrival at the
gate, which lets {gate} in or, where the KV cache holds less, fewer.

## In one sentence

{verdict}

{direction}

## Errors by load

Of each figure, over the {count} cases: median and worst relative error without its sign, and how many of the
cases lie inside the 95 % interval of the simulations, where nobody can tell the two apart.

{errors}

## What the simulations know

Half of that interval, relative: median and worst. A run at 80 and 90 % has {most:,} requests (of several
replicas twice as many) and begins empty, which makes its waits rather too short than too long.

{halves}

## The worst, case by case

Signed errors at the load where they are largest, of those that lie outside the interval; `-`: there is none.

{cases}

## What the comparison changed

{first_named} cases were named before any was run. They showed that the spread of TPOT counted the bursts of
all arrivals for each of several replicas that share them (P95 up to 54 % too high). {then_named} more, named
after that was corrected, showed that replicas do not take turns, as had been assumed (TTFT P95 up to 61 % too
low); how irregularly they are chosen is now a constant, counted in the simulator's routing and not fitted to
latencies. Answers of a few tokens were corrected as well. The tables above are of the corrected form. Of the
following {fresh} cases, all of several replicas, none was run before that:

{afterwards}
"""


def page(points: list[Point]) -> str:
    """All of it."""
    points, afterwards = points[: len(CASES) * len(LOADS)], points[len(CASES) * len(LOADS) :]
    return PAGE.format(
        count=len(CASES),
        loads=", ".join(f"{load:.0%}" for load in LOADS[:-1]) + f" and {LOADS[-1]:.0%}",
        runs=len(SEEDS),
        first=SEEDS[0],
        last=SEEDS[-1],
        warm_up=WARM_UP,
        verdict=verdict(points),
        direction=direction(points),
        first_named=len(CASES) - len(SECOND),
        then_named=len(SECOND),
        fresh=len(LAST),
        most=CASES[0].requests(LOADS[-1]),
        errors=_by_load(points, _errors),
        halves=_by_load(points, _halves),
        cases=_by_case(points),
        gate=MOST_SEQUENCES,
        afterwards=_by_load(afterwards, _errors),
    )


def verdict(points: list[Point]) -> str:
    """Up to which load each figure is within `TRUSTED`, beyond what the simulations cannot tell."""
    upto: dict[float, list[str]] = {}
    for name in FIGURES:
        held = 0.0
        for load in LOADS:
            if any(_off(point, name) > TRUSTED for point in _at(points, load)):
                break
            held = load
        upto.setdefault(held, []).append(name)
    told = [
        f"{_listed(names)} up to {load:.0%}" for load, names in sorted(upto.items()) if 0 < load < LOADS[-1]
    ]
    always = upto.get(LOADS[-1], [])
    never = upto.get(0.0, [])
    sentence = f"As far as the simulations can tell, the closed form is within {TRUSTED:.0%} in every case of"
    parts = [*told, *([f"{_listed(always)} at every load"] if always else [])]
    sentence += f" {'; '.join(parts)}." if parts else " nothing."
    if never:
        sentence += f" {_listed(never)} may be further off even at {LOADS[0]:.0%}."
    return sentence


def direction(points: list[Point]) -> str:
    """In which direction TTFT is off at high load."""
    parts = []
    for load in LOADS[-2:]:
        errors = [point.error("TTFT P95") for point in _at(points, load) if not point.inside("TTFT P95")]
        parts.append(f"from {min(errors):+.0%} to {max(errors):+.0%} at {load:.0%}")
    return (
        f"Where TTFT P95 can be told from the simulated one, it is off {' and '.join(parts)}: too long for "
        "one replica, more often too short for several that share a queue."
    )


def _off(point: Point, name: str) -> float:
    """Relative error; 0 inside the interval."""
    return 0.0 if point.inside(name) else abs(point.error(name))


def _at(points: list[Point], load: float) -> list[Point]:
    return [point for point in points if point.load == load]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _errors(points: list[Point], name: str) -> str:
    off = [abs(point.error(name)) for point in points]
    inside = sum(point.inside(name) for point in points)
    return f"{median(off):.0%}, {max(off):.0%}; {inside}"


def _halves(points: list[Point], name: str) -> str:
    halves = [point.half(name) for point in points]
    return f"{median(halves):.0%}, {max(halves):.0%}"


def _by_load(points: list[Point], cell: Callable[[list[Point], str], str]) -> str:

    lines = [f"| load | {' | '.join(FIGURES)} |", "| --- " * (len(FIGURES) + 1) + "|"]
    for load in LOADS:
        some = _at(points, load)
        lines.append(f"| {load:.0%} | {' | '.join(cell(some, name) for name in FIGURES)} |")
    return "\n".join(lines)


def _by_case(points: list[Point]) -> str:
    lines = [f"| case | {' | '.join(FIGURES)} |", "| --- " * (len(FIGURES) + 1) + "|"]
    for case in CASES:
        own = [point for point in points if point.case == str(case)]
        cells = []
        for name in FIGURES:
            worst = max(own, key=lambda point: _off(point, name))
            told = f"{worst.error(name):+.0%} at {worst.load:.0%}"
            cells.append("-" if worst.inside(name) else told)
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)
