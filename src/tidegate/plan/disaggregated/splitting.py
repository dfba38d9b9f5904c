"""How are replicas that there are best shared out, and which rate do they carry then?

The rate of a split is known to be no more than what each part sustains at its most. Splits are looked at from
the most hopeful on, until none of those that are left can be better: prompts and decoding are matched where
both are near their most at once.
"""

from __future__ import annotations

import msgspec

from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.ceilings import highest
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.shortfalls import over_budget_apart
from tidegate.plan.disaggregated.sizing import Counts, SizeApart, both_held, fleet_of, needed_for

BELOW = 1 - 1e-9
"""Of what is sustained: at all of it, queues have no end."""
BETTER = 1e-3
"""Relative; a split that carries no more than so much more is not looked for."""


def share_out(ask: Ask, front: Front, sides: Sides) -> SizeApart | Impossible:
    """The split that carries most, at the rate of the load, or else at the highest that holds."""
    best = best_split(ask, front, sides)
    if isinstance(best, Impossible):
        return best
    counts, most = best
    spare = ask.terms.spare_replicas
    rate = ask.load.requests_per_s
    if rate is None:
        needed = counts[0] - spare, counts[1] - spare
        return msgspec.structs.replace(fleet_of(ask, front, sides, (counts, needed), most), most_per_s=most)
    found = fleet_of(ask, front, sides, (counts, needed_for(ask, sides, rate) or counts), rate)
    return msgspec.structs.replace(found, most_per_s=most)


def best_split(ask: Ask, front: Front, sides: Sides) -> tuple[Counts, float] | Impossible:
    """Into prompts and decoding, and the rate that it carries."""
    decode, spare = ask.replica, ask.terms.spare_replicas
    assert isinstance(decode, Replica)
    splits = [(most_of(ask, sides, each), each) for each in front.splits(decode, spare)]
    if not splits:
        return _too_few(ask, front, decode)
    best, carried = splits[0][1], 0.0
    # The most hopeful first; of two alike that with fewer for prompts.
    for most, counts in sorted(splits, key=lambda each: (-each[0], each[1])):
        if most <= carried * (1 + BETTER):
            break
        rate = carried_by(ask, sides, counts, above=carried)
        if rate > carried:
            best, carried = counts, rate
    if carried:
        return best, carried
    return over_budget_apart(ask, sides) or _nothing_held(ask, best)


def most_of(ask: Ask, sides: Sides, counts: Counts) -> float:
    """Requests/s that so many of each cannot exceed, by what their parts sustain."""
    target, spare = ask.terms.target_utilisation, ask.terms.spare_replicas
    prefill, decode = counts
    shares = [
        (each, min(target * count, (count - spare) * BELOW))
        for each, count in (
            (sides.prefill.sustained_per_s, prefill),
            (sides.decode.sustained_per_s / sides.several, decode),
        )
    ]
    links = sides.transfer.link.count(prefill, decode)
    sending_s = sides.transfer.sending_s * sides.several
    by_link = LINK_UTILISATION * links / sending_s if sending_s else float("inf")
    return min(by_link, *(each * count for each, count in shares))


def carried_by(ask: Ask, sides: Sides, counts: Counts, *, above: float = 0.0) -> float:
    """The highest rate within the terms; 0 where it is not above what another split carries."""
    spare = ask.terms.spare_replicas
    left = counts[0] - spare, counts[1] - spare

    def held(rate: float) -> bool:
        return both_held(ask, sides, rate, left)

    if above and not held(above * (1 + BETTER)):
        return 0.0
    return highest(held, most_of(ask, sides, counts))


def _too_few(ask: Ask, front: Front, decode: Replica) -> Impossible:
    spare, each = ask.terms.spare_replicas, front.prefill.accelerators
    least = 1 + spare
    if front.accelerators is None:
        needed, there, what = 2 * least, front.replicas or 0, "replicas"
    else:
        needed, there, what = least * (each + decode.accelerators), front.accelerators, "accelerators"
    told = f", {spare} of each kind spare" if spare else ""
    lower = ", or --spare 0" if spare else ""
    are = f"{there:,} {what} are" if there != 1 else f"1 {what[:-1]} is"
    return Impossible(
        problem=f"{are} too few to be apart: one kind computes prompts, the other decodes{told}",
        remedy=f"{needed} {what} or more would do{lower}",
        binding="latency_budget",
        needed=needed,
        available=there,
        unit=what,
    )


def _nothing_held(ask: Ask, counts: Counts) -> Impossible:
    return Impossible(
        problem=f"{sum(counts)} replicas, however they are shared out, hold the budgets at no rate",
        remedy="more replicas, fewer of them spare, or more time would do",
        binding="latency_budget",
    )
