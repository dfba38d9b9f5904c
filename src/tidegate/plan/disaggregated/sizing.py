"""How many replicas for prompts and how many that decode, over which link?

Each side is sized by what it does: prompts by TTFT and by compute, decoding by TPOT and by KV memory. The
link carries what the rate sends at `LINK_UTILISATION` at most, *and* one transfer within what TPOT leaves.
Latencies are those of `apart`. What there is already is shared out by `splitting`, and users who wait are
sized for by `users`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.plan.answer import Impossible
from tidegate.plan.answering import ENDLESS
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.shortfalls import impossible, over_budget_apart, too_many
from tidegate.plan.sizing import MOST_REPLICAS, NEAR
from tidegate.plan.station import Latencies

Counts = tuple[int, int]
"""Replicas for prompts, and replicas that decode."""


class SizeApart(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of both kinds."""

    prefill_replicas: int
    prefill_spare: int
    """So many may be lost; below 0: so many are missing."""
    decode_replicas: int
    decode_spare: int
    requests_per_s: float
    """In the busiest window."""
    accelerators: int
    sides: Sides
    latencies: Latencies
    """With every replica up."""
    most_per_s: float | None = None
    """Of what there is, the highest rate that the terms allow; None: it was sized for its rate."""

    @property
    def counts(self) -> Counts:
        """Of both kinds."""
        return self.prefill_replicas, self.decode_replicas

    @property
    def utilisations(self) -> dict[str, float]:
        """Of each part, of what it sustains."""
        return utilisations_of(self.sides, self.requests_per_s, self.counts)

    @property
    def utilisation(self) -> float:
        """Of the part that is nearest to its most."""
        return max(self.utilisations.values())

    @property
    def one_lost(self) -> float | None:
        """The same with one replica less, of the kind that is missed more; None: then none is left."""
        prefill, decode = self.counts
        if min(prefill, decode) < 2:
            return None
        left = ((prefill - 1, decode), (prefill, decode - 1))
        return max(max(utilisations_of(self.sides, self.requests_per_s, each).values()) for each in left)


def size_apart(ask: Ask, front: Front, sides: Sides | None = None) -> SizeApart | Impossible:
    """How many of each, or which rate they carry, or why not.

    ConfigurationError where there is nothing to size by.
    """
    load = ask.load
    if ask.terms.within_s is not None or (
        load.requests_per_s is None and load.users is None and not front.given
    ):
        raise ConfigurationError(
            ["--disaggregated: what comes, or what is there; write --qps, --users, --replicas or --gpus"]
        )
    sides = sides or Sides(ask, front)
    if (problem_of_all := impossible(ask, sides)) is not None:
        return problem_of_all
    if load.users is not None:
        from tidegate.plan.disaggregated.users import size_for_users  # it sizes by this again and again

        return size_for_users(ask, front, sides)
    if front.given:
        from tidegate.plan.disaggregated.splitting import share_out

        return share_out(ask, front, sides)
    assert load.requests_per_s is not None
    return size_for(ask, front, sides, load.requests_per_s)


def size_for(ask: Ask, front: Front, sides: Sides, rate: float) -> SizeApart | Impossible:
    """As many as it takes for that rate."""
    spare, least = ask.terms.spare_replicas, least_replicas(ask, sides, rate)
    needed: Counts | None = (least[0] - spare, least[1] - spare)
    if not both_held(ask, sides, rate, needed):
        if (problem := over_budget_apart(ask, sides)) is not None:
            return problem
        needed = needed_for(ask, sides, rate)
    if needed is None:
        return too_many(rate)
    counts = max(least[0], needed[0] + spare), max(least[1], needed[1] + spare)
    return fleet_of(ask, front, sides, (counts, needed), rate)


def fleet_of(ask: Ask, front: Front, sides: Sides, counts: tuple[Counts, Counts], rate: float) -> SizeApart:
    """So many, of which others are needed, at that rate."""
    (prefill, decode), needed = counts
    found = Pair(sides, prefill).latencies(rate, decode, ask.terms.percentile)
    assert isinstance(ask.replica, Replica)
    return SizeApart(
        prefill_replicas=prefill,
        prefill_spare=prefill - needed[0],
        decode_replicas=decode,
        decode_spare=decode - needed[1],
        requests_per_s=rate,
        accelerators=prefill * front.prefill.accelerators + decode * ask.replica.accelerators,
        sides=sides,
        latencies=found or ENDLESS,
    )


def least_replicas(ask: Ask, sides: Sides, rate: float) -> Counts:
    """Fewer for prompts, or fewer that decode, do not carry the rate; latencies may ask for more."""
    spare, target = ask.terms.spare_replicas, ask.terms.target_utilisation
    by_link = 1
    if not sides.transfer.link.shared:
        by_link = ceil(sides.transfer.utilisation(rate * sides.several, 1) / LINK_UTILISATION * (1 - NEAR))
    prefill, decode = (
        max(ceil(full * (1 - NEAR)) + spare, ceil(full / target * (1 - NEAR)), by_link)
        for full in _full(sides, rate)
    )
    return max(prefill, 1 + spare), max(decode, 1 + spare)


def needed_for(ask: Ask, sides: Sides, rate: float) -> Counts | None:
    """None of them spare. Prompts first, as if there were any number of the others."""
    terms, (full_prefill, full_decode) = ask.terms, _full(sides, rate)
    prefill = _fewest(lambda count: _prompts_held(ask, sides, rate, count), ceil(full_prefill * (1 - NEAR)))
    if prefill is None:
        return None
    for count in (prefill, 2 * prefill, 4 * prefill):  # an E2E budget may leave too little behind so few
        pair = Pair(sides, count)
        decode = _fewest(
            partial(pair.held, rate, terms.budgets, terms.percentile), ceil(full_decode * (1 - NEAR))
        )
        if decode is not None:
            return count, decode
    return None


def both_held(ask: Ask, sides: Sides, rate: float, counts: Counts | None) -> bool:
    """Whether so many, every one of them up, hold the budgets at that rate."""
    if counts is None or max(counts) > MOST_REPLICAS or not _prompts_held(ask, sides, rate, counts[0]):
        return False
    return Pair(sides, counts[0]).held(rate, ask.terms.budgets, ask.terms.percentile, counts[1])


def utilisations_of(sides: Sides, rate: float, counts: Counts) -> dict[str, float]:
    """Of each part, of what it sustains."""
    transfer, (prefill, decode) = sides.transfer, counts
    return {
        "prefill": rate / (prefill * sides.prefill.sustained_per_s),
        "link": transfer.utilisation(rate * sides.several, transfer.link.count(prefill, decode)),
        "decode": rate * sides.several / (decode * sides.decode.sustained_per_s),
    }


def _full(sides: Sides, rate: float) -> tuple[float, float]:
    """Replicas of each kind that the rate would keep as busy as they can be."""
    prefill, decode = sides.prefill, sides.decode
    nothing = 2.0 * MOST_REPLICAS
    return (
        rate / prefill.sustained_per_s if prefill.sustained_per_s else nothing,
        rate * sides.several / decode.sustained_per_s if decode.sustained_per_s else nothing,
    )


def _prompts_held(ask: Ask, sides: Sides, rate: float, replicas: int) -> bool:
    """Whether so many give first tokens in time."""
    budgets = ask.terms.budgets
    found = Pair(sides, replicas).first_tokens(rate)
    most = budgets.ttft_s if budgets.ttft_s is not None else budgets.e2e_s
    if found is None or most is None:
        return found is not None
    return found.quantile(ask.terms.percentile) <= most * (1 + NEAR)


def _fewest(enough: Callable[[int], bool], least: int) -> int | None:
    low = high = max(1, least)
    while not enough(high):
        low, high = high + 1, 2 * high
        if high > MOST_REPLICAS:
            return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high
