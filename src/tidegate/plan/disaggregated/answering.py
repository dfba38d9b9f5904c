"""What is to be told of disaggregated replicas: figures, what binds, the same in replicas that do both?"""

from __future__ import annotations

from math import inf

import msgspec

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.plan.alternatives import Apart, Whole
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import format_usd, price_source_of
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.bounds import bound_of
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Pair
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.disaggregated.sizing import SizeApart, needed_for_one, size_apart, transfer_budget_s
from tidegate.plan.residence import residence_of
from tidegate.plan.sizing import size_of
from tidegate.plan.station import Bound


def disaggregated_answer(ask: Ask, prefill: Replica, link: Link) -> Answer | Impossible:
    """The plan, with the same in replicas that do both beside it."""
    size = size_apart(ask, prefill, link)
    if isinstance(size, Impossible):
        return size
    decode, sides, found = ask.replica, size.sides, size.latencies
    assert isinstance(decode, Replica)
    assert sides.decode.full is not None
    replicas = size.prefill_replicas + size.decode_replicas
    each = size.requests_per_s / size.utilisation / replicas
    bound, memory = _bound(ask, size), residence_of(decode, ask.load)
    cost = _cost(ask, size.accelerators)
    answer = Answer(
        summary="",
        replica=decode.name if prefill.name == decode.name else f"{prefill.name} and {decode.name}",
        replicas=replicas,
        spare_replicas=2 * ask.terms.spare_replicas,
        may_be_lost=min(size.prefill_spare, size.decode_spare),
        accelerators=size.accelerators,
        requests_per_s=size.requests_per_s,
        peak_ratio=ask.load.peak_ratio,
        prompt_tokens=ask.load.prompt_tokens,
        output_tokens=ask.load.output_tokens,
        utilisation=size.utilisation,
        utilisation_one_lost=size.one_lost,
        concurrency_per_replica=sides.decode.gates.least,
        gates=sides.decode.gates,
        requests_per_s_per_replica=each,
        output_tokens_per_s_per_replica=each * ask.load.output_tokens,
        prompt_tokens_per_s_per_replica=each * ask.load.prompt_tokens,
        binding=bound.binding,
        because=bound.because,
        wait_s=found.wait_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        itl_s=found.itl_s,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        kv_bytes_per_sequence=memory.kv_bytes_per_sequence,
        memory=memory,
        cost_per_hour=cost,
        cost_per_million_output_tokens=_per_million(ask, cost),
        price_per_accelerator_hour=ask.terms.per_hour_usd,
        price_source=price_source_of(ask),
        disaggregated=_figures(ask, prefill, link, size),
    )
    return msgspec.structs.replace(answer, summary=_summary(answer, size, prefill))


def comparison_of(answer: Answer) -> str:
    """Against replicas that do both, in a sentence."""
    apart = answer.disaggregated
    assert apart is not None
    whole = apart.whole
    if whole.replicas is None or whole.accelerators is None:
        return f"Aggregated it is impossible: {whole.impossible}."
    told = f"{whole.replicas:,} replica{'s' * (whole.replicas != 1)}, {whole.accelerators:,} accelerators"
    ratio = (answer.accelerators or 0) / whole.accelerators
    more = f"{format_number(ratio)} x as many" if ratio > 1 else f"{format_ratio(ratio)} of them"
    saying = "as many" if ratio == 1 else more
    return f"Aggregated, the same holds with {told}: disaggregated it takes {saying}."


def _bound(ask: Ask, size: SizeApart) -> Bound:
    """Of the part that is used most, where a link that is used to its 70 % counts as full."""
    sides, used = size.sides, size.utilisations
    part = max(used, key=lambda name: used[name] / (LINK_UTILISATION if name == "link" else 1.0))
    shares = ", ".join(f"{name} {format_ratio(each)}" for name, each in used.items())
    if part == "link":
        sent = format_number(sides.transfer.kv_bytes / 1e9)
        return Bound(
            binding="link",
            because=f"The link binds: {sent} GB of KV cache per request ({shares} of what each sustains).",
        )
    if part == "prefill":
        each_s = format_duration(1 / sides.prefill.sustained_per_s, 3)
        return Bound(
            binding="compute",
            because=(
                f"Compute binds: a prompt of {format_number(ask.load.prompt_tokens)} tokens takes {each_s} "
                f"of a replica that does nothing else ({shares} of what each sustains)."
            ),
        )
    decode = ask.replica
    assert isinstance(decode, Replica)
    assert sides.decode.full is not None
    left = msgspec.structs.replace(ask.terms.budgets, tpot_s=sides.left_s)
    terms = msgspec.structs.replace(ask.terms, budgets=left)
    return bound_of(decode, sides.decodes, terms, sides.decode.batch, sides.decode.full)


def _figures(ask: Ask, prefill: Replica, link: Link, size: SizeApart) -> Apart:
    decode, sides, transfer = ask.replica, size.sides, size.sides.transfer
    assert isinstance(decode, Replica)
    used = size.utilisations
    pair = Pair(sides, size.prefill_replicas)
    return Apart(
        prefill_replica=prefill.name,
        prefill_replicas=size.prefill_replicas,
        prefill_spare_replicas=size.prefill_spare,
        prefill_requests_per_s_per_replica=sides.prefill.sustained_per_s,
        prefill_utilisation=used["prefill"],
        decode_replica=decode.name,
        decode_replicas=size.decode_replicas,
        decode_spare_replicas=size.decode_spare,
        decode_requests_per_s_per_replica=sides.decode.sustained_per_s,
        decode_utilisation=used["decode"],
        kv_bytes_per_request=transfer.kv_bytes,
        link_bytes_per_s=link.bytes_per_s,
        link_utilisation=used["link"],
        link_needed_bytes_per_s=transfer.needed_bytes_per_s(size.requests_per_s * sides.several),
        transfer_s=transfer.alone_s,
        transfer_budget_s=transfer_budget_s(ask, sides),
        link_needed_for_one_bytes_per_s=needed_for_one(ask, sides),
        first_gap_s=pair.first_gap_s(size.requests_per_s, size.decode_replicas, ask.terms.percentile),
        whole=_whole(ask),
    )


def _whole(ask: Ask) -> Whole:
    size = size_of(ask)
    if isinstance(size, Impossible):
        return Whole(
            replicas=None,
            accelerators=None,
            cost_per_hour=None,
            ttft_s=None,
            tpot_s=None,
            e2e_s=None,
            itl_p99_s=None,
            impossible=str(size),
        )
    assert isinstance(ask.replica, Replica)
    found = size.station.latencies(size.requests_per_s, size.replicas)
    accelerators = size.replicas * ask.replica.accelerators
    return Whole(
        replicas=size.replicas,
        accelerators=accelerators,
        cost_per_hour=_cost(ask, accelerators),
        ttft_s=found.ttft_s.at_percentile if found else inf,
        tpot_s=found.tpot_s.at_percentile if found else inf,
        e2e_s=found.e2e_s.at_percentile if found else inf,
        itl_p99_s=found.itl_s.p99 if found and found.itl_s else None,
    )


def _cost(ask: Ask, accelerators: int) -> float | None:
    price = ask.terms.per_hour_usd
    return None if price is None else price * accelerators


def _per_million(ask: Ask, cost: float | None) -> float | None:
    rate = ask.load.requests_per_s
    if cost is None or rate is None:
        return None
    return cost / (rate / ask.load.peak_ratio * ask.load.output_tokens * 3600) * 1e6


def _summary(answer: Answer, size: SizeApart, prefill: Replica) -> str:
    lost = answer.spare_replicas // 2
    spare = f", {lost:,} of each spare," if lost else ""
    each = f" of {prefill.name}" if prefill.name != answer.replica else ""
    used = ", ".join(f"{name} {format_ratio(share)}" for name, share in size.utilisations.items())
    cost = ""
    if answer.cost_per_hour is not None and answer.cost_per_million_output_tokens is not None:
        per_million = format_usd(answer.cost_per_million_output_tokens)
        cost = f"; {format_usd(answer.cost_per_hour)} an hour, {per_million} per million output tokens"
    decoder = "" if each else f" of {answer.replica}"
    plural = "s" * (size.prefill_replicas != 1)
    return (
        f"{size.prefill_replicas:,} replica{plural}{each} for prompts and {size.decode_replicas:,} that "
        f"decode{decoder}{spare} carry {format_number(answer.requests_per_s)} requests/s at "
        f"{format_ratio(answer.utilisation)} utilisation ({used}){cost}."
    )
