"""With which limits, queues and gates should disaggregated replicas be served?

To the gateway all of them are one address, their own router's: it cannot know on which side a request is. So
the gate is of all together, and what keeps decoding at its pace is that each engine that decodes takes no
more sequences than its gate. First tokens are those of the replicas for prompts: queue, deadlines and the
bounds of tenants are theirs, where nothing is decoded beside a prompt. What all of them sustain is what the
side does that has the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec

from tidegate.core.units import format_latency, format_number
from tidegate.plan.advice.advising import Basis, advised_on, kv_gate, prefill_gate
from tidegate.plan.advice.marginal import token_seconds
from tidegate.plan.advice.operating import Batch, Operating, prompt_at
from tidegate.plan.advised import Advice, BudgetAdvice, Choice, Figure, GateAdvice, WeightAdvice
from tidegate.plan.alternatives import Apart
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Load, Replica
from tidegate.plan.disaggregated.apart import prompts_of
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.tenants import Tenant
from tidegate.policy.settings import RoutingPolicy


def advise_apart(ask: Ask, front: Front, answer: Answer, tenants: Sequence[Tenant] = ()) -> Advice:
    """What the answer means for a configuration. Without `tenants`: those that the load names."""
    apart = answer.disaggregated
    assert apart is not None
    at = _operating(ask, front, answer, apart)
    gate = prefill_gate(ask, at)
    inside = max(1, ceil(float(gate.value or 0.0) / max(1.0, ask.load.prompt_tokens)))
    each = GateAdvice(  # of a replica for prompts, as guarantees are given by
        max_concurrency=Figure(value=inside, reason=""),
        kv_tokens=Figure(value=None, reason=""),
        max_prefill_tokens=gate,
    )
    basis = Basis(at=at, gate=each, weights=_weights(ask, front, answer))
    found = advised_on(ask, _for_prompts(ask, answer, apart), basis, tenants)
    return msgspec.structs.replace(
        found,
        gate=_gate(ask, answer, apart, (inside, gate)),
        budgets=_budgets(ask, found.budgets, apart, at),
        routing=Choice(
            value=RoutingPolicy.LEAST_TOKENS.value,
            reason="There is one address: the engines' own router shares requests out behind it.",
        ),
    )


def _for_prompts(ask: Ask, answer: Answer, apart: Apart) -> Answer:
    """The fleet as so many replicas for prompts, each with its part of those that decode."""
    lost = answer.spare_replicas // 2
    return msgspec.structs.replace(
        answer,
        replicas=apart.prefill_replicas,
        spare_replicas=lost,
        requests_per_s_per_replica=_sustained_per_s(ask, apart, lost),
    )


def _sustained_per_s(ask: Ask, apart: Apart, lost: int) -> float:
    """Of a replica for prompts and its part of the others, all up or with the spare ones lost: the less."""
    several = _several(ask.load)
    prefill, decode = (
        apart.prefill_requests_per_s_per_replica,
        apart.decode_requests_per_s_per_replica / several,
    )
    return min(
        min(up * prefill, (apart.decode_replicas - less) * decode) / up
        for less in {0, lost}
        for up in (apart.prefill_replicas - less,)
    )


def _several(load: Load) -> float:
    """Requests that have a second token, 0..1."""
    shares = sum(kind.share for kind in load.kinds)
    return sum(kind.share for kind in load.kinds if kind.output_tokens > 1) / shares


def _operating(ask: Ask, front: Front, answer: Answer, apart: Apart) -> Operating:
    """A replica for prompts that always has some, and its part of full batches that decode."""
    load, decode = ask.load, ask.replica
    assert isinstance(decode, Replica)
    prompts, fresh = Batch(front.prefill.engine, prompts_of(load), 0), 1.0 - load.prefix_hit_ratio
    places = answer.concurrency_per_replica * apart.decode_replicas
    return Operating(
        sequences=max(1, places // apart.prefill_replicas),
        step_s=Batch(decode.engine, load, answer.concurrency_per_replica).step_s(),
        full_step_s=max(prompts.full_step_s(kind) for kind in load.kinds),
        chunk_tokens=prompts.chunk_tokens / fresh,
        prefill_tokens_per_s=min(prompts.prefill_per_s(kind) for kind in load.kinds) / fresh,
        sustained_per_s=_sustained_per_s(ask, apart, answer.spare_replicas // 2),
        request_tokens=load.prompt_tokens + load.output_tokens,
        mean_prefill_s=prompts.prefill_s(load.prompt_tokens),
        tail_prefill_s=prompts.prefill_s(prompt_at(load, ask.terms.percentile)),
        longest_prefill_s=prompts.prefill_s(max(kind.prompt_tokens for kind in load.kinds)),
    )


def _gate(ask: Ask, answer: Answer, apart: Apart, prompts: tuple[int, Figure]) -> GateAdvice:
    """Of all together. `prompts`: requests and tokens that a replica for prompts is given."""
    (inside, tokens), each = prompts, answer.concurrency_per_replica
    decode = ask.replica
    assert isinstance(decode, Replica)
    on_way = ceil(answer.requests_per_s / answer.utilisation * apart.transfer_s)
    before = apart.prefill_replicas * inside + on_way
    held = int(kv_gate(ask, decode, answer).value or 0)
    request_tokens = ask.load.prompt_tokens + ask.load.output_tokens
    return GateAdvice(
        max_concurrency=Figure(
            value=apart.decode_replicas * each + before,
            reason=(
                f"{apart.decode_replicas:,} x {each:,} that decode, {apart.prefill_replicas:,} x {inside:,} "
                f"whose prompts are computed, {on_way:,} on the link. Start the engines that decode with "
                f"max_num_seqs {each:,}: the gateway cannot see on which side a request is."
            ),
        ),
        kv_tokens=Figure(
            value=ceil(apart.decode_replicas * held + before * request_tokens),
            reason=(
                f"{apart.decode_replicas:,} x {format_number(held)} where they are decoded, and those of "
                f"{before:,} requests before that."
            ),
        ),
        max_prefill_tokens=Figure(
            value=apart.prefill_replicas * int(tokens.value or 0),
            reason=f"{apart.prefill_replicas:,} x {format_number(float(tokens.value or 0))}. {tokens.reason}",
        ),
    )


def _weights(ask: Ask, front: Front, answer: Answer) -> WeightAdvice:
    """Seconds of a replica that decodes; those of one for prompts count by its accelerators."""
    load, decode = ask.load, ask.replica
    assert isinstance(decode, Replica)
    prompts = Batch(front.prefill.engine, prompts_of(load), 0)
    larger = front.prefill.accelerators / decode.accelerators
    computed_s = larger / min(prompts.prefill_per_s(kind) for kind in load.kinds)
    batch = Batch(decode.engine, load, answer.concurrency_per_replica)
    read = token_seconds(batch, load)
    input_s = computed_s + read.cached_input_s
    unit_s = max(input_s, read.output_s / 1000)

    def weight(seconds_each: float, what: str) -> Figure:
        value = float(f"{seconds_each / unit_s:.3g}")
        return Figure(value=value, reason=f"{format_latency(seconds_each)} of a replica: {what}.")

    return WeightAdvice(
        input=weight(unit_s, "computed once where prompts are, and read by each output token after it"),
        cached_input=weight(read.cached_input_s, "not computed, and read all the same"),
        output=weight(read.output_s, f"one of {batch.sequences} places for a step"),
    )


def _budgets(ask: Ask, found: BudgetAdvice, apart: Apart, at: Operating) -> BudgetAdvice:
    """With what the reasons of replicas that do both get wrong."""
    share, tail = f"P{100 * ask.terms.percentile:g}", format_latency(at.tail_prefill_s)
    queue = found.queue_s
    if queue.value is not None:
        queue = msgspec.structs.replace(
            queue,
            reason=(
                f"What {tail} of prefill, a step of {format_latency(at.full_step_s)} that is under way, and "
                "delivery leave of TTFT."
            ),
        )
    sent = f"{format_latency(apart.transfer_s)} of transfer are in the first gap."
    return msgspec.structs.replace(
        found,
        queue_s=queue,
        prefill_s=msgspec.structs.replace(
            found.prefill_s, reason=f"The {share} prompt, where nothing is decoded."
        ),
        tpot_s=msgspec.structs.replace(found.tpot_s, reason=f"{found.tpot_s.reason} {sent}"),
    )
