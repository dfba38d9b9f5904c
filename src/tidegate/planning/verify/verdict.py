"""Do closed form and simulation say the same, which of them is to be trusted, and do the budgets hold?

They agree in a figure where the plan's is within the simulation's 95 % interval, or as near as the plan can
be: within a tolerance, or the time of a step, half of which a request waits on average to be looked at.
Of thirteen intervals of 95 % one misses in every second run even where all is right: hence the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite, isnan
from typing import Literal

import msgspec

from tidegate.core.units import format_latency, format_number, format_ratio, format_span
from tidegate.plan.advice.advising import DELIVERY_S
from tidegate.plan.advice.operating import operating_point
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, HandFigures
from tidegate.simulate.figures import Group
from tidegate.simulate.intervals import PERCENTILES, Estimate

TOLERANCE, TAIL_TOLERANCE = 0.10, 0.20
"""Of the simulated figure: the second for TTFT and for every P99, which rest on few requests."""
FEW_REFUSED = 0.01
"""Share of requests, 0..1: with more of them refused, latencies are those of the ones that were lucky."""
WIDE = 0.5
"""A half interval over its figure, beyond which a simulation has not found the figure."""

DONE = "offline.done_s"
"""When batch work is."""

Trust = Literal["both", "simulation", "closed_form", "neither"]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, twice."""

    name: str
    """`ttft_s.p95`: where it stands in the answer."""
    closed_form: float
    simulated: Estimate
    agrees: bool = False
    trust: Trust = "neither"
    because: str = ""
    """Why that one; empty where they agree."""


class BoundSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The bound of a tenant's TTFT, and the worst that was seen of it."""

    tenant: str
    bound_s: float
    worst_s: float
    holds: bool


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated."""

    total: Group
    sustained_per_s: Estimate
    """Requests per second of one replica that was asked for more."""
    warnings: tuple[str, ...]
    bounds: tuple[BoundSeen, ...]
    seeds: int
    measured_s: float
    """Of all seeds together."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, simulated."""

    sentence: str
    """Whether both say the same, and which to trust."""
    agrees: bool
    budgets_hold: bool | None
    """In simulation; None: there are none."""
    budgets: str
    """The same in a sentence."""
    held_ratio: Estimate
    """Requests that held every budget and were not refused, of all, 0..1."""
    refused_ratio: float
    figures: tuple[Compared, ...]
    bounds: tuple[BoundSeen, ...]
    seeds: int
    measured_s: float
    requests: int
    warnings: tuple[str, ...]
    """Of the simulation."""


class Verified(Answer, frozen=True, kw_only=True):
    """An answer, and what a simulation says of it."""

    verify: Verification


def verdict_of(ask: Ask, answer: Answer, seen: Seen) -> Verification:
    """What the simulation says of the plan."""
    total = seen.total
    refused = 1 - total.ok / total.requests if total.requests else 0.0
    figures = tuple(_figures(ask, answer, seen, refused))
    holds, sentence = _budgets(ask, total)
    return Verification(
        sentence=sentence_of(figures),
        agrees=all(each.agrees for each in figures),
        budgets_hold=holds,
        budgets=sentence,
        held_ratio=total.goodput_ratio,
        refused_ratio=refused,
        figures=figures,
        bounds=seen.bounds,
        seeds=seen.seeds,
        measured_s=seen.measured_s,
        requests=total.requests,
        warnings=seen.warnings,
    )


def _figures(ask: Ask, answer: Answer, seen: Seen, refused: float) -> Iterator[Compared]:
    total, step_s = seen.total, operating_point(ask, answer).step_s + DELIVERY_S
    met = answer.going_on
    latencies = (
        ("ttft_s", met.ttft_s, total.ttft_s, step_s),
        ("tpot_s", met.tpot_s, total.tpot_s, 0.0),
        ("e2e_s", met.e2e_s, total.e2e_s, step_s),
    )
    for name, planned, spread, slack_s in latencies:
        for at in PERCENTILES:
            tolerance = TAIL_TOLERANCE if name == "ttft_s" or at == "p99" else TOLERANCE
            figure = Compared(
                name=f"{name}.{at}", closed_form=getattr(planned, at), simulated=getattr(spread, at)
            )
            why = _why(ask, name, refused)
            yield judged(figure, (tolerance, slack_s), why, thin=at in spread.thin)
    rate, sustained = answer.requests_per_s, seen.sustained_per_s
    full = answer.replicas
    rates = (
        ("requests_per_s", rate, total.answered_per_s),
        ("output_tokens_per_s", rate * ask.load.output_tokens, total.output_tokens_per_s),
        ("requests_per_s_per_replica", answer.requests_per_s_per_replica, sustained),
        (
            "utilisation",
            answer.utilisation,
            Estimate(
                rate / full / sustained.value, rate / full / sustained.high, rate / full / sustained.low
            ),
        ),
    )
    for name, closed_form, simulated in rates:
        figure = Compared(name=name, closed_form=closed_form, simulated=simulated)
        yield judged(figure, (TOLERANCE, 0.0), _why(ask, name, refused))


def judged(
    figure: Compared, tolerance: tuple[float, float], why: tuple[Trust, str], *, thin: bool = False
) -> Compared:
    """With its verdict, by a relative and an absolute tolerance."""
    closed_form, found = figure.closed_form, figure.simulated
    within = max(tolerance[0] * found.value, tolerance[1])
    if found.low <= closed_form <= found.high or abs(closed_form - found.value) <= within:
        return msgspec.structs.replace(figure, agrees=True, trust="both")
    if isnan(found.value):
        return msgspec.structs.replace(
            figure, trust="closed_form", because="the simulation has no such figure: nothing was answered"
        )
    if isfinite(closed_form) and not found.high - found.low <= 2 * WIDE * found.value:
        why = _unsure(thin)
    trust, because = why
    return msgspec.structs.replace(figure, trust=trust, because=because)


def _unsure(thin: bool) -> tuple[Trust, str]:
    """Of a figure whose interval is as wide as itself."""
    if thin:
        return "closed_form", "too few requests lie beyond that percentile for the simulation to find it"
    return "neither", "seeds differ by as much as the figure itself: the load is next to what can be served"


def _why(ask: Ask, name: str, refused: float) -> tuple[Trust, str]:
    """Which figure to trust where both differ, and why."""
    if refused > FEW_REFUSED and name not in ("requests_per_s_per_replica", "utilisation"):
        return "simulation", (
            f"it refused {format_ratio(refused)} by limits, queue and deadlines, which the closed form does "
            "not know"
        )
    if isinstance(ask.replica, HandFigures):
        return "simulation", (
            "it has fixed lengths and steps at which requests must wait; M/M/c takes lengths for random, and "
            "time for continuous"
        )
    reasons = {
        "ttft_s": "it has the gateway's own queue and gates, and every chunk of every prompt in its step",
        "tpot_s": "it has every prompt that is computed between two tokens, at the batch of that moment",
        "e2e_s": "it adds up what each request met, not percentiles",
    }
    usual = "it counts what was really served, with gaps that the closed form does not know"
    return "simulation", reasons.get(name, usual)


def sentence_of(figures: tuple[Compared, ...]) -> str:
    """Whether both say the same, and which to trust where they differ most."""
    apart = [each for each in figures if not each.agrees]
    terms = f"within 95 % intervals, or {TOLERANCE:.0%} (TTFT and P99: {TAIL_TOLERANCE:.0%}, or a step)"
    if not apart:
        return f"Closed form and simulation agree in all {len(figures)} figures, {terms}."
    worst = max(apart, key=_distance)
    trusted = {
        "simulation": "trust the simulation",
        "closed_form": "trust the closed form",
        "neither": "trust neither",
        "both": "",
    }[worst.trust]
    found = worst.simulated
    return (
        f"Closed form and simulation disagree in {len(apart)} of {len(figures)} figures ({terms}); most in "
        f"{label_of(worst)}: {shown(worst, worst.closed_form)} against {shown(worst, found.value)}"
        f"{interval_of(worst)}; {trusted}: {worst.because}."
    )


def _distance(figure: Compared) -> float:
    found = figure.simulated.value
    return abs(figure.closed_form - found) / found if found > 0 else inf


def label_of(figure: Compared) -> str:
    """As people read it: `TTFT P95`."""
    name, _, at = figure.name.partition(".")
    known = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}
    if figure.name == DONE:
        return "done in"
    plain = name.replace("_per_s_per_replica", "/s sustained per replica").replace("_per_s", "/s")
    return f"{known[name]} {at.upper()}" if at else plain.replace("_", " ")


def shown(figure: Compared, value: float) -> str:
    """A value of it, with its unit."""
    if isnan(value):
        return "-"
    if not isfinite(value):
        return "no end"
    if figure.name == "utilisation":
        return format_ratio(value)
    if figure.name == DONE:
        return format_span(value)
    return format_latency(value) if "_s." in figure.name else format_number(value)


def interval_of(figure: Compared) -> str:
    """In brackets; empty where there is none."""
    low, high = figure.simulated.low, figure.simulated.high
    if isnan(low) or isnan(high):
        return ""
    return f" ({shown(figure, max(0.0, low))} to {shown(figure, high)})"


def _budgets(ask: Ask, total: Group) -> tuple[bool | None, str]:
    budgets, asked = ask.terms.budgets, ask.terms.percentile
    if budgets.ttft_s is None and budgets.tpot_s is None and budgets.e2e_s is None:
        return None, "No budgets were asked for."
    found = total.goodput_ratio
    holds = found.value >= asked
    ratio = format_ratio(found.value)
    if not isnan(found.low):
        ratio += f" ({format_ratio(max(0.0, found.low))} to {format_ratio(min(1.0, found.high))})"
    unsure = not isnan(found.low) and (found.low >= asked) != (found.high >= asked)
    words = f"Simulated, the budgets {'hold' if holds else 'do not hold'}{', though not for sure' * unsure}"
    return (
        holds,
        f"{words}: {ratio} of requests are within all; asked were {format_ratio(asked)}.",
    )
