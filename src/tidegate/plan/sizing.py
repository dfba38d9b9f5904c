"""How many replicas does a load need, or which load do so many replicas carry?

Two conditions size a fleet, both in the busiest window: with every replica up it is used to the target at
most, and with the spare ones lost it still holds every budget.
"""

from __future__ import annotations

from math import ceil, inf

import msgspec

from tidegate.core.units import format_number, format_ratio
from tidegate.plan.answer import Answer, Impossible, Percentiles
from tidegate.plan.ask import Ask, HandFigures, Load, Replica, Terms
from tidegate.plan.ceilings import highest
from tidegate.plan.hand import hand_station
from tidegate.plan.served import served_station
from tidegate.plan.station import Latencies, Station

MOST_REPLICAS = 100_000
"""A load that needs more is a misprint."""
ROUNDS = 50
"""Of a search for what users who wait send."""
NEAR = 1e-9
"""Relative width in which two figures are the same."""
ENDLESS = Latencies(
    wait_s=Percentiles.of(inf),
    ttft_s=Percentiles.of(inf),
    tpot_s=Percentiles.of(inf),
    e2e_s=Percentiles.of(inf),
)
"""Where more comes than is served."""


def answer_to(ask: Ask) -> Answer | Impossible:
    """The plan, or why there is none."""
    station = station_of(ask)
    return station if isinstance(station, Impossible) else sized(ask, station)


def station_of(ask: Ask) -> Station | Impossible:
    """The replica that is asked about, under its load and terms."""
    if isinstance(ask.replica, HandFigures):
        return hand_station(ask.replica, ask.load, ask.terms)
    return served_station(ask.replica, ask.load, ask.terms)


def sized(ask: Ask, station: Station) -> Answer | Impossible:
    """The same for a replica that is understood."""
    load, terms = ask.load, ask.terms
    if load.users is not None:
        load = msgspec.structs.replace(load, requests_per_s=_rate_of_users(load, terms, station))
    rate = load.requests_per_s
    if rate is None:
        replicas = terms.replicas or 1
        lost = min(terms.spare_replicas, replicas - 1)
        rate = highest_rate(station, terms, replicas, lost)
        return _answer(ask, station, rate, (replicas, lost))
    needed = fewest(station, terms, rate)
    if isinstance(needed, Impossible):
        return needed
    by_target = ceil(rate / (terms.target_utilisation * station.sustained_per_s) * (1 - NEAR))
    replicas = terms.replicas or max(needed + terms.spare_replicas, by_target)
    return _answer(ask, station, rate, (replicas, replicas - needed))


def holds(station: Station, terms: Terms, rate_per_s: float, replicas: int) -> bool:
    """Whether so many replicas, every one of them up, hold the budgets at that rate."""
    found = station.latencies(rate_per_s, replicas)
    return found is not None and found.held(terms.budgets)


def fewest(station: Station, terms: Terms, rate_per_s: float) -> int | Impossible:
    """Replicas that hold the budgets at that rate, none of them spare."""
    least = max(1, ceil(rate_per_s / station.sustained_per_s * (1 - NEAR)))
    if least > MOST_REPLICAS:
        return _too_many(station, rate_per_s)
    low, high = least, least
    while not holds(station, terms, rate_per_s, high):
        low, high = high + 1, 2 * high
        if high > MOST_REPLICAS:
            return _too_many(station, rate_per_s)
    while low < high:
        middle = (low + high) // 2
        if holds(station, terms, rate_per_s, middle):
            high = middle
        else:
            low = middle + 1
    return high


def highest_rate(station: Station, terms: Terms, replicas: int, lost: int) -> float:
    """Requests/s that they carry: at the target with all up, within every budget with `lost` of them lost."""
    most = terms.target_utilisation * replicas * station.sustained_per_s
    return highest(lambda rate: holds(station, terms, rate, replicas - lost), most)


def _answer(ask: Ask, station: Station, rate_per_s: float, counts: tuple[int, int]) -> Answer:
    """Of a fleet of `counts`: replicas, and how many of them may be lost (below 0: so many are missing)."""
    replicas, spare = counts
    lost = max(0, spare)
    load, terms, each = ask.load, ask.terms, station.sustained_per_s
    found = station.latencies(rate_per_s, replicas) or ENDLESS
    accelerators = ask.replica.accelerators * replicas if isinstance(ask.replica, Replica) else None
    cost = terms.per_hour_usd * (accelerators or replicas) if terms.per_hour_usd is not None else None
    mean_rate = rate_per_s / load.peak_ratio
    answer = Answer(
        summary="",
        replicas=replicas,
        spare_replicas=lost,
        accelerators=accelerators,
        requests_per_s=rate_per_s,
        utilisation=rate_per_s / (replicas * each),
        utilisation_one_lost=rate_per_s / ((replicas - 1) * each) if replicas > 1 else None,
        concurrency_per_replica=station.gates.least,
        gates=station.gates,
        requests_per_s_per_replica=each,
        output_tokens_per_s_per_replica=each * load.output_tokens,
        prompt_tokens_per_s_per_replica=each * load.prompt_tokens,
        binding=station.bound.binding,
        because=station.bound.because,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        cost_per_hour=cost,
        cost_per_million_output_tokens=(
            cost / (mean_rate * load.output_tokens * 3600) * 1e6 if cost is not None else None
        ),
        room=station.room(replicas, lost),
        waits=station.waits(max(1, replicas - lost)),
        warnings=_warnings(found, terms, counts),
    )
    return msgspec.structs.replace(answer, summary=summary_of(answer))


def summary_of(answer: Answer) -> str:
    """How many, how full, at which price: one sentence."""
    replicas = f"{answer.replicas} replica{'s' * (answer.replicas != 1)}"
    rate = f"{format_number(answer.requests_per_s)} requests/s"
    spare = f", {answer.spare_replicas} of them spare," if answer.spare_replicas else ""
    verb = "carry" if answer.replicas != 1 or spare else "carries"
    used = f"{format_ratio(answer.utilisation)} utilisation"
    if answer.utilisation_one_lost is not None:
        used += f", {format_ratio(answer.utilisation_one_lost)} with one lost"
    cost = f"; {format_usd(answer.cost_per_hour)} an hour" if answer.cost_per_hour is not None else ""
    return f"{replicas}{spare} {verb} {rate} at {used}{cost}."


def format_usd(amount: float) -> str:
    """Dollars, with cents below a hundred."""
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"


def _warnings(found: Latencies, terms: Terms, counts: tuple[int, int]) -> tuple[str, ...]:
    replicas, spare = counts
    if spare < 0:
        return (f"{replicas} replicas do not hold the budgets; {replicas - spare} would, none of them spare",)
    if spare < min(terms.spare_replicas, replicas - 1):
        return (f"no budget is held with {spare + 1} lost",)
    return ()


def _rate_of_users(load: Load, terms: Terms, station: Station) -> float:
    """What so many users send who wait for the answer and think: Little's law, where it agrees with itself.

    The more replicas, the shorter the answers take and the more is sent: the fastest answer gives the most.
    """
    assert load.users is not None
    rate = load.users / (load.think_s + load.output_tokens / station.sustained_per_s)
    for _ in range(ROUNDS):
        needed = fewest(station, terms, rate)
        if isinstance(needed, Impossible):
            return rate
        found = station.latencies(rate, needed + terms.spare_replicas)
        if found is None:
            return rate
        following = load.users / (load.think_s + found.e2e_s.mean)
        if abs(following - rate) <= NEAR * rate:
            return following
        rate = following
    return rate


def _too_many(station: Station, rate_per_s: float) -> Impossible:
    return Impossible(
        problem=f"{format_number(rate_per_s)} requests/s would take more than {MOST_REPLICAS:,} replicas",
        remedy=f"one sustains {format_number(station.sustained_per_s)}; check the rate",
        binding=station.bound.binding,
        needed=rate_per_s,
        available=MOST_REPLICAS * station.sustained_per_s,
        unit="requests_per_s",
    )
