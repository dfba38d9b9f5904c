"""What is to be told of a fleet: its figures, what binds, why it is not fuller?"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.records import Budgets
from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.plan.answer import Afterwards, Answer, ClassAnswer, Impossible, Opening, Percentiles
from tidegate.plan.ask import TARGET_UTILISATION, Ask, HandFigures, Replica, Terms
from tidegate.plan.ceilings import CLOSE, highest
from tidegate.plan.deployed import step_times
from tidegate.plan.guessing import with_guesses
from tidegate.plan.residence import residence_of
from tidegate.plan.sizing import NEAR, Size, crowd_of, holds, size_of
from tidegate.plan.station import Bound, ClassLatencies, Latencies
from tidegate.plan.tenants import share_of
from tidegate.plan.unmet import missed

if TYPE_CHECKING:
    from tidegate.plan.classes import Nearest
    from tidegate.plan.closed.clients import ClosedCrowd
    from tidegate.plan.closed.users import Crowd

ROUGH_UTILISATION = 0.75
"""Above, TTFT in closed form is up to 25 % off and more, beside simulations (docs/closed-form.md)."""
ENDLESS = Latencies(
    wait_s=Percentiles.of(inf),
    ttft_s=Percentiles.of(inf),
    tpot_s=Percentiles.of(inf),
    e2e_s=Percentiles.of(inf),
)
"""Where more comes than is served."""


def answer_to(ask: Ask) -> Answer | Impossible:
    """The plan, or why there is none."""
    size = size_of(ask)
    return size if isinstance(size, Impossible) else with_reasons(ask, answer_of(ask, size), size)


def with_reasons(ask: Ask, answer: Answer, size: Size) -> Answer:
    """With why the fleet is not fuller, for which it is looked at from light to full."""
    serving = max(1, answer.replicas - answer.spare_replicas)
    if size.crowd is not None:
        from tidegate.plan.closed.grown import room_of_users, waits_of_users

        return msgspec.structs.replace(
            answer,
            room=room_of_users(size.crowd, ask.terms, answer.spare_replicas),
            waits=waits_of_users(size.crowd.having(replicas=serving), ask.terms),
        )
    return msgspec.structs.replace(
        answer,
        room=size.station.room(answer.replicas, answer.spare_replicas),
        waits=size.station.waits(serving),
    )


def answer_of(ask: Ask, size: Size) -> Answer:
    """What a fleet of that size is, does and costs."""
    replicas, station = size.replicas, size.station
    spare = max(0, min(size.spare_replicas, ask.terms.spare_replicas))
    load, rate, each = ask.load, size.requests_per_s, size.sustained_per_s
    opening = afterwards = None
    if size.crowd is not None:
        found, opening, afterwards = _of_users(ask.terms, size.crowd)
    else:
        found = station.latencies(rate, replicas) or ENDLESS
    bound = _bound(ask, size)
    closest = _nearest(ask, size) if ask.terms.classes else None
    if closest is not None:
        told = f"{bound.because} {closest.told(ask.terms.percentile)}"
        bound = msgspec.structs.replace(bound, because=told)
    memory = residence_of(ask.replica, load) if isinstance(ask.replica, Replica) else None
    answer = Answer(
        summary="",
        replica=ask.replica.name if isinstance(ask.replica, Replica) else None,
        step_times=step_times(ask.replica) if isinstance(ask.replica, Replica) else None,
        replicas=replicas,
        spare_replicas=spare,
        may_be_lost=max(0, size.spare_replicas),
        accelerators=ask.replica.accelerators * replicas if isinstance(ask.replica, Replica) else None,
        requests_per_s=rate,
        peak_ratio=load.peak_ratio,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        utilisation=size.utilisation,
        utilisation_one_lost=_one_lost(ask, size) if replicas > 1 else None,
        concurrency_per_replica=station.gates.least,
        gates=station.gates,
        requests_per_s_per_replica=each,
        output_tokens_per_s_per_replica=each * load.output_tokens,
        prompt_tokens_per_s_per_replica=each * load.prompt_tokens,
        binding=bound.binding,
        because=bound.because,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        itl_s=found.itl_s,
        classes=tuple(_class(ask, each) for each in found.classes),
        binding_class=None if closest is None else closest.name,
        opening=opening,
        afterwards=afterwards,
        kv_bytes_per_token=memory.kv_bytes_per_token if memory is not None else None,
        kv_bytes_per_sequence=memory.kv_bytes_per_sequence if memory is not None else None,
        memory=memory,
        cost_per_hour=cost_per_hour(ask, size),
        cost_per_million_output_tokens=cost_per_million(ask, size),
        price_per_accelerator_hour=ask.terms.per_hour_usd,
        price_source=price_source_of(ask),
        warnings=_warnings(ask, size),
    )
    return with_guesses(ask, msgspec.structs.replace(answer, summary=summary_of(answer)))


def _of_users(
    terms: Terms, crowd: Crowd | ClosedCrowd
) -> tuple[Latencies, Opening | None, Afterwards | None]:
    """What they meet as they go on, which fleets are sized by; where nothing is sized and nothing budgeted,
    what a benchmark of them would report, and beside it what comes afterwards.
    """
    going, run = crowd.latencies(terms), crowd.run(terms)
    opening = crowd.opening(run)
    sized = terms.replicas is None or terms.classes or terms.budgets != Budgets()
    if sized or run is None or opening is None:
        return going, opening, None
    told = (
        f"{opening.words} The latencies below are of such a run; later on TTFT is "
        f"{format_duration(going.ttft_s.p95, 3)} at P95."
    )
    afterwards = Afterwards(wait_s=going.wait_s, ttft_s=going.ttft_s, tpot_s=going.tpot_s, e2e_s=going.e2e_s)
    return run, msgspec.structs.replace(opening, words=told), afterwards


def _class(ask: Ask, found: ClassLatencies) -> ClassAnswer:
    budgets = ask.terms.budgets_of(found.name)
    return ClassAnswer(
        name=found.name,
        share=share_of(ask.load, found.name),
        budgets=budgets,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        held=found.held(budgets),
    )


def _nearest(ask: Ask, size: Size) -> Nearest | None:
    """With the spare replicas lost, for which a fleet is sized; with all of them where more comes than is
    served by these."""
    from tidegate.plan.classes import nearest

    serving = max(1, size.replicas - max(0, min(size.spare_replicas, ask.terms.spare_replicas)))
    found = size.station.latencies(size.requests_per_s, serving) or ENDLESS
    return nearest(found, ask.terms)


def cost_per_hour(ask: Ask, size: Size) -> float | None:
    """US dollars for all replicas; None where no price is known."""
    price = ask.terms.per_hour_usd
    each = ask.replica.accelerators if isinstance(ask.replica, Replica) else 1
    return None if price is None else price * each * size.replicas


def cost_per_million(ask: Ask, size: Size) -> float | None:
    """The same by output tokens, at the mean rate; None too where they do not carry it."""
    cost = cost_per_hour(ask, size) if size.utilisation <= 1 + NEAR else None
    per_hour = size.requests_per_s / ask.load.peak_ratio * ask.load.output_tokens * 3600
    return None if cost is None else cost / per_hour * 1e6


def price_source_of(ask: Ask) -> str:
    """Of the catalogue's price, if that is the one."""
    deployment = ask.replica.deployment if isinstance(ask.replica, Replica) else None
    price = deployment.accelerator.price if deployment is not None else None
    told = ask.terms.per_hour_usd
    if told is None:
        return ""
    if price is None or price.per_hour_usd != told:
        return "as asked"
    parts = [part for part in (price.source, price.dated) if part]
    if price.low_usd is not None and price.high_usd is not None:
        parts.append(f"elsewhere ${price.low_usd:,.2f} to ${price.high_usd:,.2f}")
    return ", ".join(parts)


def summary_of(answer: Answer) -> str:
    """How many, how full, at which price: one sentence."""
    replicas = f"{answer.replicas:,} replica{'s' * (answer.replicas != 1)}"
    if answer.replica is not None:
        replicas += f" of {answer.replica}"
    rate = f"{format_number(answer.requests_per_s)} requests/s"
    spare = f", {answer.spare_replicas:,} of them spare," if answer.spare_replicas else ""
    one = answer.replicas == 1
    carry = f"{'carries' if one else 'carry'} {rate} at"
    if answer.utilisation > 1 + NEAR:
        carry = f"{'does' if one else 'do'} not carry {rate}:"
    used = f"{format_ratio(answer.utilisation)} utilisation"
    if answer.utilisation_one_lost is not None:
        used += f", {format_ratio(answer.utilisation_one_lost)} with one lost"
    cost = ""
    if answer.cost_per_hour is not None:
        cost = f"; {format_usd(answer.cost_per_hour)} an hour"
        if answer.cost_per_million_output_tokens is not None:
            cost += f", {format_usd(answer.cost_per_million_output_tokens)} per million output tokens"
    return f"{replicas}{spare} {carry} {used}{cost}."


def format_usd(amount: float) -> str:
    """Dollars, with cents below a hundred."""
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"


def _one_lost(ask: Ask, size: Size) -> float:
    left = size.replicas - 1
    rate = size.requests_per_s if size.crowd is None else crowd_of(ask, size.station, left).rate_per_s
    return rate / (left * size.sustained_per_s)


def _bound(ask: Ask, size: Size) -> Bound:
    """What binds a replica; where a budget breaks below the target, that requests are in each other's way.

    A gate that is small for want of memory is what makes them wait before it: that goes on binding.
    """
    terms, station = ask.terms, size.station
    if size.crowd is not None:
        return size.crowd.bound(station.bound)
    usual = min(terms.target_utilisation, TARGET_UTILISATION)
    serving = max(1, size.replicas - max(0, size.spare_replicas))
    all_of_it = serving * station.sustained_per_s
    if holds(station, terms, usual * all_of_it, serving):
        return station.bound
    most = highest(lambda ratio: holds(station, terms, ratio * all_of_it, serving), usual, CLOSE)
    beyond = station.latencies(min(most * 1.01, 0.999) * all_of_it, serving) or ENDLESS
    told = f"from {format_ratio(most)} of what is sustained on, {_missed(beyond, terms)}"
    if station.bound.binding in ("kv_memory", "batch") and beyond.wait_s.at_percentile > 0:
        return Bound(
            binding=station.bound.binding, because=f"{station.bound.because} {told[0].upper()}{told[1:]}."
        )
    return Bound(binding="queueing", because=f"Queueing binds: {told}. {station.bound.because}")


def _missed(found: Latencies, terms: Terms) -> str:
    at, first = f"P{100 * terms.percentile:g}", next(missed(found, terms), None)
    if first is not None:
        whose = f" of class {first.class_name}" if first.class_name else ""
        return f"{first.figure} {at}{whose} is over its {format_duration(first.budget_s, 3)}"
    return f"requests wait at {at}, and no TTFT budget says that they may"


def _warnings(ask: Ask, size: Size) -> tuple[str, ...]:
    return (*_missing(ask.terms, size), *_unknown(ask), *_rough(ask, size))


def _rough(ask: Ask, size: Size) -> tuple[str, ...]:
    """Where latencies of a batch are told that are not to be trusted."""
    computed = isinstance(ask.replica, Replica) and size.crowd is None and ask.terms.within_s is None
    if not computed or not ROUGH_UTILISATION < size.utilisation < 1:
        return ()
    return (
        f"above {format_ratio(ROUGH_UTILISATION)} utilisation TTFT may be off by a third, near 90% by a "
        "factor of two; `tidegate simulate` is the check",
    )


def _unknown(ask: Ask) -> tuple[str, ...]:
    """What two figures leave out of latencies that have a budget."""
    budgets = ask.terms.budgets
    if isinstance(ask.replica, HandFigures) and (budgets.ttft_s is not None or budgets.e2e_s is not None):
        return ("TTFT and E2E are without the prompt's own time, which two figures do not tell",)
    return ()


def _missing(terms: Terms, size: Size) -> tuple[str, ...]:
    replicas, spare = size.replicas, size.spare_replicas
    if spare < 0:
        few = f"{replicas} replicas do" if replicas != 1 else "1 replica does"
        what = "hold the budgets" if terms.classes or terms.budgets != Budgets() else "carry this load"
        return (f"{few} not {what}; {replicas - spare} would, none of them spare",)
    if spare < min(terms.spare_replicas, replicas - 1):
        return (f"no budget is held with {spare + 1} lost",)
    return ()
