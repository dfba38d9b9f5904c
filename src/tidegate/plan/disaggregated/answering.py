"""What is to be told of disaggregated replicas: figures, what binds, the same in replicas that do both?"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.plan.alternatives import Apart, Whole
from tidegate.plan.answer import Answer, Impossible
from tidegate.plan.answering import cost_per_hour, format_usd, price_source_of
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.bounds import bound_of
from tidegate.plan.disaggregated.apart import LINK_UTILISATION
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.shortfalls import needed_for_one, transfer_budget_s
from tidegate.plan.disaggregated.sizing import SizeApart, size_apart
from tidegate.plan.disaggregated.stages import stages_of
from tidegate.plan.residence import residence_of
from tidegate.plan.sizing import NEAR, Size, size_of
from tidegate.plan.station import Bound, Latencies


def disaggregated_answer(ask: Ask, front: Front) -> Answer | Impossible:
    """The plan, with the same in replicas that do both beside it."""
    size = size_apart(ask, front)
    return size if isinstance(size, Impossible) else answer_of_size(ask, front, size)


def answer_of_size(ask: Ask, front: Front, size: SizeApart) -> Answer:
    """What a fleet of that size is, does and costs."""
    decode, sides, found = ask.replica, size.sides, size.latencies
    assert isinstance(decode, Replica)
    assert sides.decode.full is not None
    replicas = size.prefill_replicas + size.decode_replicas
    each = size.requests_per_s / size.utilisation / replicas
    bound, memory = bound_apart(ask, size), residence_of(decode, ask.load)
    cost, spare = front.cost(ask, *size.counts), min(size.prefill_spare, size.decode_spare)
    answer = Answer(
        summary="",
        replica=_name(front.prefill, decode),
        replicas=replicas,
        spare_replicas=2 * max(0, min(spare, ask.terms.spare_replicas)),
        may_be_lost=max(0, spare),
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
        cost_per_million_output_tokens=_per_million(ask, size, cost),
        price_per_accelerator_hour=ask.terms.per_hour_usd,
        price_source=price_source_of(ask),
        disaggregated=_figures(ask, front, size),
        warnings=tuple(_warnings(ask, size)),
    )
    return msgspec.structs.replace(answer, summary=_summary(answer, size))


def _name(prefill: Replica, decode: Replica) -> str:
    return decode.name if prefill.name == decode.name else f"{prefill.name} and {decode.name}"


def _warnings(ask: Ask, size: SizeApart) -> Iterator[str]:
    spare, most = min(size.prefill_spare, size.decode_spare), size.most_per_s
    if most is not None and size.requests_per_s > most * (1 + NEAR):
        yield (
            f"these replicas do not carry {format_number(size.requests_per_s)} requests/s within the terms: "
            f"{format_number(most)} is the most"
        )
    elif 0 <= spare < ask.terms.spare_replicas:
        yield f"no budget is held with {spare + 1} of each kind lost"


def comparison_of(answer: Answer) -> str:
    """Against replicas that do both, in a sentence."""
    apart = answer.disaggregated
    assert apart is not None
    whole = apart.whole
    if whole.replicas is None or whole.accelerators is None:
        return f"Aggregated it is impossible: {whole.impossible}."
    if apart.most_requests_per_s is not None and whole.requests_per_s is not None:
        return _rates_compared(answer, apart, whole)
    told = f"{whole.replicas:,} replica{'s' * (whole.replicas != 1)}, {whole.accelerators:,} accelerators"
    ratio = (answer.accelerators or 0) / whole.accelerators
    more = f"{format_number(ratio)} x as many" if ratio > 1 else f"{format_ratio(ratio)} of them"
    saying = "as many" if ratio == 1 else more
    return f"Aggregated, the same holds with {told}: disaggregated it takes {saying}."


def _rates_compared(answer: Answer, apart: Apart, whole: Whole) -> str:
    carried, most = whole.requests_per_s or 0.0, apart.most_requests_per_s or 0.0
    told = (
        f"Aggregated, {whole.accelerators:,} accelerators, {whole.replicas:,} "
        f"replica{'s' * (whole.replicas != 1)}, carry {format_number(carried)} requests/s"
    )
    if not carried:
        return f"{told}: within these terms they carry none."
    return f"{told}: disaggregated {answer.accelerators:,} carry {format_number(most / carried)} x that."


def bound_apart(ask: Ask, size: SizeApart) -> Bound:
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


def _figures(ask: Ask, front: Front, size: SizeApart) -> Apart:
    decode, sides, transfer = ask.replica, size.sides, size.sides.transfer
    assert isinstance(decode, Replica)
    used = size.utilisations
    pair = Pair(sides, size.prefill_replicas)
    return Apart(
        prefill_replica=front.prefill.name,
        prefill_replicas=size.prefill_replicas,
        prefill_spare_replicas=max(0, size.prefill_spare),
        prefill_accelerators_per_replica=front.prefill.accelerators,
        prefill_price_per_accelerator_hour=front.price(ask),
        prefill_requests_per_s_per_replica=sides.prefill.sustained_per_s,
        prefill_utilisation=used["prefill"],
        decode_replica=decode.name,
        decode_replicas=size.decode_replicas,
        decode_spare_replicas=max(0, size.decode_spare),
        decode_accelerators_per_replica=decode.accelerators,
        decode_requests_per_s_per_replica=sides.decode.sustained_per_s,
        decode_utilisation=used["decode"],
        kv_bytes_per_request=transfer.kv_bytes,
        link_bytes_per_s=front.link.bytes_per_s,
        link_utilisation=used["link"],
        link_needed_bytes_per_s=transfer.needed_bytes_per_s(size.requests_per_s * sides.several),
        transfer_s=transfer.alone_s,
        transfer_budget_s=transfer_budget_s(ask, sides),
        link_needed_for_one_bytes_per_s=needed_for_one(ask, sides),
        first_gap_s=pair.first_gap_s(size.requests_per_s, size.decode_replicas, ask.terms.percentile),
        stages=stages_of(ask, size),
        most_requests_per_s=size.most_per_s,
        whole=_whole(ask, size),
    )


def _whole(ask: Ask, size: SizeApart) -> Whole:
    """The same load on replicas that do both; of what there is, as many accelerators as those have."""
    assert isinstance(ask.replica, Replica)
    if size.most_per_s is not None and ask.load.users is None:
        terms, load = ask.terms, msgspec.structs.replace(ask.load, requests_per_s=None)
        replicas = max(1, size.accelerators // ask.replica.accelerators)
        terms = msgspec.structs.replace(
            terms, replicas=replicas, spare_replicas=min(terms.spare_replicas, replicas - 1)
        )
        ask = Ask(load=load, replica=ask.replica, terms=terms)
    return _whole_of(ask, size_of(ask))


def _whole_of(ask: Ask, size: Size | Impossible) -> Whole:
    if isinstance(size, Impossible):
        return Whole(
            replicas=None,
            accelerators=None,
            requests_per_s=None,
            cost_per_hour=None,
            ttft_s=None,
            tpot_s=None,
            e2e_s=None,
            itl_p99_s=None,
            impossible=str(size),
        )
    assert isinstance(ask.replica, Replica)
    if size.crowd is not None:
        found: Latencies | None = size.crowd.latencies(ask.terms)
    else:
        found = size.station.latencies(size.requests_per_s, size.replicas) if size.requests_per_s else None
    return Whole(
        replicas=size.replicas,
        accelerators=size.replicas * ask.replica.accelerators,
        requests_per_s=size.requests_per_s,
        cost_per_hour=cost_per_hour(ask, size),
        ttft_s=found.ttft_s.at_percentile if found else inf,
        tpot_s=found.tpot_s.at_percentile if found else inf,
        e2e_s=found.e2e_s.at_percentile if found else inf,
        itl_p99_s=found.itl_s.p99 if found and found.itl_s else None,
    )


def _per_million(ask: Ask, size: SizeApart, cost: float | None) -> float | None:
    if cost is None or size.utilisation > 1 + NEAR:
        return None
    return cost / (size.requests_per_s / ask.load.peak_ratio * ask.load.output_tokens * 3600) * 1e6


def _summary(answer: Answer, size: SizeApart) -> str:
    lost = answer.spare_replicas // 2
    spare = f", {lost:,} of each spare," if lost else ""
    apart = answer.disaggregated
    assert apart is not None
    alike = apart.prefill_replica == apart.decode_replica
    of_prompts = "" if alike else f" of {apart.prefill_replica}"
    used = ", ".join(f"{name} {format_ratio(share)}" for name, share in size.utilisations.items())
    cost = ""
    if answer.cost_per_hour is not None:
        cost = f"; {format_usd(answer.cost_per_hour)} an hour"
        if answer.cost_per_million_output_tokens is not None:
            cost += f", {format_usd(answer.cost_per_million_output_tokens)} per million output tokens"
    plural = "s" * (size.prefill_replicas != 1)
    first = f"{size.prefill_replicas:,} replica{plural}{of_prompts} for prompts"
    rate = f"{format_number(answer.requests_per_s)} requests/s"
    carry = f"carry {rate} at" if answer.utilisation <= 1 + NEAR else f"do not carry {rate}:"
    return (
        f"{first} and {size.decode_replicas:,} that "
        f"decode of {apart.decode_replica}{spare} {carry} "
        f"{format_ratio(answer.utilisation)} utilisation ({used}){cost}."
    )
