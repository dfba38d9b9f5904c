"""How many replicas for prompts and how many that decode, over which link?

Each side is sized by what it does: prompts by TTFT and by compute, decoding by TPOT and by KV memory. The
link carries what the rate sends at `LINK_UTILISATION` at most, *and* one transfer within what TPOT leaves.
Latencies are those of `apart`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.perf.deployment import Deployment
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Replica, Terms
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Pair, Sides
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.sizing import MOST_REPLICAS, NEAR, size_of
from tidegate.plan.station import Latencies

LIGHT = 1e-3
"""Of what is sustained: a rate at which requests hardly meet."""


class SizeApart(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of both kinds."""

    prefill_replicas: int
    prefill_spare: int
    decode_replicas: int
    decode_spare: int
    requests_per_s: float
    """In the busiest window."""
    accelerators: int
    sides: Sides
    latencies: Latencies
    """With every replica up."""

    @property
    def utilisations(self) -> dict[str, float]:
        """Of each part, of what it sustains."""
        return _utilisations(self.sides, self.requests_per_s, self.prefill_replicas, self.decode_replicas)

    @property
    def utilisation(self) -> float:
        """Of the part that is nearest to its most."""
        return max(self.utilisations.values())

    @property
    def one_lost(self) -> float | None:
        """The same with one replica less, of the kind that is missed more; None: then none is left."""
        prefill, decode = self.prefill_replicas, self.decode_replicas
        if min(prefill, decode) < 2:
            return None
        left = ((prefill - 1, decode), (prefill, decode - 1))
        return max(max(_utilisations(self.sides, self.requests_per_s, *each).values()) for each in left)


def link_of(deployment: Deployment) -> Link:
    """Between nodes: every device of a replica sends."""
    device = deployment.accelerator
    return Link(
        bytes_per_s=device.node_link_bytes_per_s * deployment.devices,
        latency_s=device.link_latency_s,
        shared=False,
    )


def least_replicas(ask: Ask, sides: Sides) -> tuple[int, int]:
    """Fewer for prompts, or fewer that decode, do not carry the rate; latencies may ask for more."""
    spare, target = ask.terms.spare_replicas, ask.terms.target_utilisation
    by_link = 1
    if not sides.transfer.link.shared:
        rate = (ask.load.requests_per_s or 0.0) * sides.several
        by_link = ceil(sides.transfer.utilisation(rate, 1) / LINK_UTILISATION * (1 - NEAR))
    prefill, decode = (
        max(ceil(full * (1 - NEAR)) + spare, ceil(full / target * (1 - NEAR)), by_link)
        for full in _full(ask, sides)
    )
    return max(prefill, 1 + spare), max(decode, 1 + spare)


def _full(ask: Ask, sides: Sides) -> tuple[float, float]:
    """Replicas of each kind that the rate would keep as busy as they can be."""
    rate, prefill, decode = ask.load.requests_per_s or 0.0, sides.prefill, sides.decode
    nothing = 2.0 * MOST_REPLICAS
    return (
        rate / prefill.sustained_per_s if prefill.sustained_per_s else nothing,
        rate * sides.several / decode.sustained_per_s if decode.sustained_per_s else nothing,
    )


def size_apart(ask: Ask, prefill: Replica, link: Link, sides: Sides | None = None) -> SizeApart | Impossible:
    """How many of each for a rate, or why not. ConfigurationError where there is nothing to size by."""
    rate, terms = ask.load.requests_per_s, ask.terms
    if rate is None or terms.replicas is not None or terms.within_s is not None:
        raise ConfigurationError(
            ["--disaggregated: sized for a rate and budgets; write --qps, and no number of replicas"]
        )
    sides = sides or Sides(ask, prefill, link)
    if (problem := _impossible(ask, sides)) is not None:
        return problem
    spare, least = terms.spare_replicas, least_replicas(ask, sides)
    needed: tuple[int, int] | None = (least[0] - spare, least[1] - spare)
    if not _both_held(ask, sides, rate, needed):
        if (problem := _over_budget(ask, sides)) is not None:
            return problem
        needed = _needed(ask, sides, rate)
    if needed is None:
        return _too_many(rate)
    counts = max(least[0], needed[0] + spare), max(least[1], needed[1] + spare)
    found = Pair(sides, counts[0]).latencies(rate, counts[1], terms.percentile)
    assert found is not None
    decoder = ask.replica
    assert isinstance(decoder, Replica)
    return SizeApart(
        prefill_replicas=counts[0],
        prefill_spare=counts[0] - needed[0],
        decode_replicas=counts[1],
        decode_spare=counts[1] - needed[1],
        requests_per_s=rate,
        accelerators=counts[0] * prefill.accelerators + counts[1] * decoder.accelerators,
        sides=sides,
        latencies=found,
    )


def _needed(ask: Ask, sides: Sides, rate: float) -> tuple[int, int] | None:
    """None of them spare. Prompts first, as if there were any number of the others."""
    terms, (full_prefill, full_decode) = ask.terms, _full(ask, sides)
    prefill = _fewest(lambda count: _prompts_held(ask, sides, count), ceil(full_prefill * (1 - NEAR)))
    if prefill is None:
        return None
    for count in (prefill, 2 * prefill, 4 * prefill):  # an E2E budget may leave too little behind so few
        pair = Pair(sides, count)
        decode = _fewest(partial(_held, pair, rate, terms), ceil(full_decode * (1 - NEAR)))
        if decode is not None:
            return count, decode
    return None


def _both_held(ask: Ask, sides: Sides, rate: float, counts: tuple[int, int] | None) -> bool:
    if counts is None or max(counts) > MOST_REPLICAS or not _prompts_held(ask, sides, counts[0]):
        return False
    return _held(Pair(sides, counts[0]), rate, ask.terms, counts[1])


def _held(pair: Pair, rate: float, terms: Terms, decode_replicas: int) -> bool:
    found = pair.latencies(rate, decode_replicas, terms.percentile)
    return found is not None and found.held(terms.budgets)


def _impossible(ask: Ask, sides: Sides) -> Impossible | None:
    """What no number of replicas changes."""
    terms, transfer, decode = ask.terms, sides.transfer, ask.replica
    assert isinstance(decode, Replica)
    tokens = ask.load.longest_tokens
    if tokens > min(decode.engine.context_tokens, decode.engine.kv_tokens):
        size = size_of(ask)  # the same is told of replicas that do both
        return size if isinstance(size, Impossible) else None
    if (problem := _over_link(ask, sides)) is not None:
        return problem
    tpot_s = terms.budgets.tpot_s
    if tpot_s is None or sides.decode.gates.least:
        return None
    alone_s = sides.decode.batch.saturated(1).tpot_s
    needed_s = alone_s + transfer.alone_s / sides.gaps
    moved, sent = format_duration(transfer.alone_s, 3), format_number(transfer.kv_bytes / 1e9)
    rate = needed_for_one(ask, sides)
    would_do = "a larger budget or faster replicas" if rate is None else _link_of(rate)
    return Impossible(
        problem=(
            f"the TPOT budget of {format_duration(tpot_s, 3)} is below what a request alone gets, "
            f"{format_duration(needed_s, 3)}: {sent} GB of KV cache take {moved} over the link, in the first "
            f"of {format_number(sides.gaps)} gaps"
        ),
        remedy=f"{would_do} would do",
        binding="latency_budget" if rate is None else "link",
        needed=needed_s,
        available=tpot_s,
        unit="s",
    )


def transfer_budget_s(ask: Ask, sides: Sides) -> float | None:
    """Within it one transfer leaves a request alone its TPOT; None: there is no such budget."""
    tpot_s = ask.terms.budgets.tpot_s
    return None if tpot_s is None else (tpot_s - sides.decode.batch.saturated(1).tpot_s) * sides.gaps


def needed_for_one(ask: Ask, sides: Sides) -> float | None:
    """Bytes/s with which one transfer is within its budget; None: there is none, or no link is so fast."""
    budget_s, transfer = transfer_budget_s(ask, sides), sides.transfer
    if budget_s is None or budget_s <= transfer.link.latency_s:
        return None
    return transfer.kv_bytes / (budget_s - transfer.link.latency_s)


def _link_of(rate: float) -> str:
    return f"a link of {format_bytes_per_s(rate)} or more"


def _over_link(ask: Ask, sides: Sides) -> Impossible | None:
    """Where all share one, and it is too slow for the rate."""
    rate, transfer = (ask.load.requests_per_s or 0.0) * sides.several, sides.transfer
    used = transfer.utilisation(rate, 1)
    if not transfer.link.shared or used <= LINK_UTILISATION * (1 + NEAR):
        return None
    needed = max(transfer.needed_bytes_per_s(rate), needed_for_one(ask, sides) or 0.0)
    return Impossible(
        problem=(
            f"{format_number(rate)} requests/s send {format_number(transfer.kv_bytes / 1e9)} GB each, "
            f"{format_ratio(used)} of a link of {format_bytes_per_s(transfer.link.bytes_per_s)}, "
            f"where {format_ratio(LINK_UTILISATION)} is the most"
        ),
        remedy=f"{_link_of(needed)} would do, or a KV cache in fewer bits",
        binding="link",
        needed=needed,
        available=transfer.link.bytes_per_s,
        unit="bytes_per_s",
    )


def _over_budget(ask: Ask, sides: Sides) -> Impossible | None:
    """Where even requests that hardly meet are not within a budget."""
    terms = ask.terms
    light = LIGHT * min(sides.prefill.sustained_per_s, sides.decode.sustained_per_s / sides.several)
    found = Pair(sides, 1).latencies(light, 1, terms.percentile)
    if found is None:
        return _too_many(light)
    for name, told, budget in (
        ("TTFT", found.ttft_s, terms.budgets.ttft_s),
        ("TPOT", found.tpot_s, terms.budgets.tpot_s),
        ("E2E", found.e2e_s, terms.budgets.e2e_s),
    ):
        if budget is not None and told.at_percentile > budget * (1 + NEAR):
            least = format_duration(told.at_percentile, 3)
            return Impossible(
                problem=(
                    f"the {name} budget of {format_duration(budget, 3)} is below what disaggregated replicas "
                    f"take for requests that meet no others, {least} at P{100 * terms.percentile:g}"
                ),
                remedy=f"a budget above {least}, shorter requests, or faster replicas would do",
                binding="latency_budget",
                needed=told.at_percentile,
                available=budget,
                unit="s",
            )
    return None


def _prompts_held(ask: Ask, sides: Sides, replicas: int) -> bool:
    """Whether so many give first tokens in time."""
    rate, budgets = ask.load.requests_per_s, ask.terms.budgets
    found = sides.prefill.first_tokens(rate or 0.0, replicas)
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


def _too_many(rate: float) -> Impossible:
    return Impossible(
        problem=f"{format_number(rate)} requests/s would take more than {MOST_REPLICAS:,} replicas",
        remedy="check the rate, or give more time",
        binding="queueing",
    )


def _utilisations(sides: Sides, rate: float, prefill: int, decode: int) -> dict[str, float]:
    transfer = sides.transfer
    return {
        "prefill": rate / (prefill * sides.prefill.sustained_per_s),
        "link": transfer.utilisation(rate * sides.several, transfer.link.count(prefill, decode)),
        "decode": rate * sides.several / (decode * sides.decode.sustained_per_s),
    }


def format_bytes_per_s(rate: float) -> str:
    """As links are told: `50 GB/s`."""
    return f"{format_number(rate / 1e9)} GB/s"
