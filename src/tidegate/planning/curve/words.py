"""How is a load-latency curve put in words and rows, for a terminal and for a page alike?"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from rich.table import Table

from tidegate.core.units import format_latency, format_number, format_ratio
from tidegate.plan.answer import CurvePoint, LoadCurve, Percentiles, UsersOfCurve
from tidegate.plan.ask import Terms
from tidegate.planning.columns import table_of

COARSE = 0.1
"""Between utilisations that have a row, up to `FINE`."""
FINE = 0.85


def percentiles_of(percentile: float) -> tuple[str, ...]:
    """Three of which a curve is drawn, the one that was asked for among them."""
    asked = f"P{100 * percentile:g}"
    names = {"P50", "P99", asked if asked not in ("P50", "P99") else "P95"}
    return tuple(sorted(names, key=lambda name: float(name.removeprefix("P"))))


def value_at(found: Percentiles, name: str) -> float:
    """Of a name that `percentiles_of` gives."""
    return {"P50": found.p50, "P95": found.p95, "P99": found.p99}.get(name, found.at_percentile)


def heldable(curve: LoadCurve) -> str:
    """What there is up to the highest rate that is held."""
    if not curve.budgeted:
        return "nobody waits"
    return "every budget holds" if curve.may_wait else "every budget holds, and nobody waits,"


def sentence(curve: LoadCurve) -> str:
    """Where the curve turns up, how far budgets hold, and where the load is."""
    if curve.users is not None:
        return _of_users(curve, curve.users)
    asked = f"P{100 * curve.percentile:g}"
    are = f"{curve.replicas:,} replicas" if curve.replicas != 1 else "1 replica"
    all_of_it = f"{are}, all up, sustain{'s' * (curve.replicas == 1)} {_rate(curve.sustained_per_s)}"
    if curve.knee_per_s is None:
        knee = f"TTFT {asked} has no knee"
    else:
        knee = f"TTFT {asked} turns up at {_at(curve, curve.knee_per_s)}, the knee"
    held = f"{heldable(curve)} at {asked} up to {_at(curve, curve.held_per_s)}"
    if not curve.held_per_s:
        held = f"{heldable(curve)} at {asked} at no rate"
    return f"{all_of_it}. {knee}; {held}. The plan is for {_at(curve, curve.asked_per_s)}."


def _of_users(curve: LoadCurve, users: UsersOfCurve) -> str:
    """The same where the curve is over users."""
    asked = f"P{100 * curve.percentile:g}"
    are = f"{curve.replicas:,} replicas" if curve.replicas != 1 else "1 replica"
    all_of_it = f"{are}, all up, sustain{'s' * (curve.replicas == 1)} {_rate(curve.sustained_per_s)}"
    knee = f"TTFT {asked} has no knee"
    if users.knee is not None:
        knee = f"TTFT {asked} turns up at {users.knee:,} users, the knee"
    held = f"{heldable(curve)} at {asked} up to {users.held:,} users ({_rate(curve.held_per_s)})"
    if not users.held:
        held = f"{heldable(curve)} at {asked} for not one user"
    return f"{all_of_it}. {knee}; {held}. The plan is for {users.asked:,} users ({_rate(curve.asked_per_s)})."


def load_at(point: CurvePoint) -> float:
    """Where it lies along the curve: a rate, or a number of users."""
    return point.requests_per_s if point.users is None else float(point.users)


def end_of(curve: LoadCurve) -> float:
    """Where the curve's axis ends."""
    return curve.sustained_per_s if curve.users is None else float(curve.users.most)


def curve_table(curve: LoadCurve) -> Table:
    """Coarse where little happens, and every marked point."""
    names = percentiles_of(curve.percentile)
    figures = [f"{figure}\n{name}" for figure in ("TTFT", "TPOT") for name in names]
    table = table_of("used" if curve.users is None else "users", "requests\nper s", *figures, text=("",))
    for number, point in enumerate(curve.points):
        if curve.users is not None:
            shown = bool(point.marks) or number % 3 == 0
        else:
            shown = bool(point.marks) or point.utilisation >= FINE or _round(point.utilisation)
        if shown:
            table.add_row(
                format_ratio(point.utilisation) if point.users is None else f"{point.users:,}",
                format_number(point.requests_per_s),
                *(format_latency(value_at(point.ttft_s, name)) for name in names),
                *(format_latency(value_at(point.tpot_s, name)) for name in names),
                ", ".join(mark_word(curve, mark) for mark in point.marks),
                style="bold" if point.marks else "",
            )
    return table


def mark_word(curve: LoadCurve, mark: str) -> str:
    """As it stands beside a point."""
    return {"asked": "plan", "knee": "knee"}.get(mark, "budgets" if curve.budgeted else "no waits")


def places(curve: LoadCurve) -> list[tuple[str, float]]:
    """Marks with their rates: those that lie within the curve."""
    asked, knee = curve.asked_per_s, curve.knee_per_s
    if curve.users is not None:
        asked, knee = float(curve.users.asked), curve.users.knee
    found: Sequence[tuple[str, float | None]] = (("plan", asked), ("knee", knee))
    return [(name, at) for name, at in found if at is not None and at < end_of(curve)]


def levels(terms: Terms) -> dict[str, float]:
    """Budgets, by the figure that they are of."""
    budgets = terms.budgets
    known = {"TTFT": budgets.ttft_s, "TPOT": budgets.tpot_s, "E2E": budgets.e2e_s}
    return {name: value for name, value in known.items() if value is not None}


def figure_of(point: CurvePoint, name: str) -> Percentiles:
    """TTFT, TPOT or E2E."""
    return {"TTFT": point.ttft_s, "TPOT": point.tpot_s, "E2E": point.e2e_s}[name]


def is_flat(curve: LoadCurve, name: str) -> bool:
    """Whether a figure is the same at every load, such as the pace of a replica of which that is given.

    So is what does not exist, such as the pace of answers of one token.
    """
    told = {figure_of(point, name).p99 for point in curve.points}
    return len({value for value in told if not isnan(value)}) <= 1


def _at(curve: LoadCurve, rate_per_s: float) -> str:
    return f"{_rate(rate_per_s)} ({format_ratio(rate_per_s / curve.sustained_per_s)})"


def _rate(rate_per_s: float) -> str:
    return f"{format_number(rate_per_s)} requests/s"


def _round(utilisation: float) -> bool:
    steps = utilisation / COARSE
    return abs(steps - round(steps)) < 1e-6
