"""What can no number of disaggregated replicas do, and what would make it possible?"""

from __future__ import annotations

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Sides
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.sizing import MOST_REPLICAS, NEAR, size_of
from tidegate.plan.unmet import over_budget

LIGHT = 1e-3
"""Of what is sustained: a rate at which requests hardly meet."""


def impossible(ask: Ask, sides: Sides) -> Impossible | None:
    """What no number of replicas changes."""
    terms, transfer, decode = ask.terms, sides.transfer, ask.replica
    assert isinstance(decode, Replica)
    tokens = ask.load.longest_tokens
    if tokens > min(decode.engine.context_tokens, decode.engine.kv_tokens):
        size = size_of(ask)  # the same is told of replicas that do both
        return size if isinstance(size, Impossible) else None
    if (problem := _no_room_for_prompts(ask, sides)) is not None:
        return problem
    if (problem := over_link(ask, sides, ask.load.requests_per_s or 0.0)) is not None:
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


def _no_room_for_prompts(ask: Ask, sides: Sides) -> Impossible | None:
    """Where a replica that computes prompts is too small for the longest."""
    prompt = max(kind.prompt_tokens for kind in ask.load.kinds)
    room = sides.prefill.longest_tokens
    if prompt + 1 <= room and sides.prefill.gates.least:
        return None
    return Impossible(
        problem=(
            f"a prompt of {format_number(prompt)} tokens does not fit into the KV cache of a replica for "
            f"prompts, {format_number(room)} tokens"
        ),
        remedy="a larger --prefill-tp, a larger --prefill-gpu or shorter prompts would do",
        binding="kv_memory",
        needed=prompt + 1,
        available=room,
        unit="tokens",
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


def over_link(ask: Ask, sides: Sides, rate_per_s: float) -> Impossible | None:
    """Where all share one, and it is too slow for the rate."""
    rate, transfer = rate_per_s * sides.several, sides.transfer
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


def over_budget_apart(ask: Ask, sides: Sides) -> Impossible | None:
    """Where even requests that hardly meet are not within a budget."""
    terms = ask.terms
    light = LIGHT * min(sides.prefill.sustained_per_s, sides.decode.sustained_per_s / sides.several)
    found = Pair(sides, 1, users=False).latencies(light, 1, terms.percentile)
    if found is None:
        return too_many(light)
    return over_budget(found, terms, "disaggregated replicas take")


def too_many(rate: float) -> Impossible:
    """Where a rate is a misprint."""
    return Impossible(
        problem=f"{format_number(rate)} requests/s would take more than {MOST_REPLICAS:,} replicas",
        remedy="check the rate, or give more time",
        binding="queueing",
    )


def format_bytes_per_s(rate: float) -> str:
    """As links are told: `50 GB/s`."""
    return f"{format_number(rate / 1e9)} GB/s"
