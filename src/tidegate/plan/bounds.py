"""What keeps a replica from more, in a word and in a sentence with its figure?"""

from __future__ import annotations

from math import ceil

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.perf.drafting import bound_of_step
from tidegate.plan.answer import Binding, Gates
from tidegate.plan.ask import Load, Replica, Terms
from tidegate.plan.laws.batching import Batch, Saturated
from tidegate.plan.laws.speculating import pace_of
from tidegate.plan.station import Bound

SHOWN = 0.01
"""Least share of a step that is told."""
PARTS: tuple[Binding, ...] = ("compute", "bandwidth", "link")


def bound_of(replica: Replica, load: Load, terms: Terms, batch: Batch, full: Saturated) -> Bound:
    """Of the gate that is least, `full` being the batch there."""
    gates = gates_of(batch, terms)
    least = gates.least
    if gates.kv == least:
        return _kv_memory(replica, load, least)
    if gates.batch == least:
        return Bound(
            binding="batch",
            because=(
                f"The batch limit binds: the engine takes {least:,} sequences (max_num_seqs), its KV cache "
                f"holds {gates.kv:,}; TPOT is {format_duration(full.tpot_s / pace_of(batch), 3)} there."
            ),
        )
    return _step(replica, terms, batch, full)


def gates_of(batch: Batch, terms: Terms) -> Gates:
    """How many a replica may have at once. The TPOT gate is None where the batch's own limit comes first."""
    tpot_s = terms.budgets.tpot_s
    tpot = batch.tpot_gate(tpot_s) if tpot_s is not None else None
    return Gates(kv=batch.kv_gate, batch=batch.batch_gate, tpot=None if tpot == batch.batch_gate else tpot)


def sequence_tokens(replica: Replica, load: Load) -> int:
    """Of the longest kind of request at its end, in whole blocks."""
    block = replica.engine.block_tokens
    return ceil(load.longest_tokens / block) * block


def _kv_memory(replica: Replica, load: Load, gate: int) -> Bound:
    pool = f"{format_number(replica.engine.kv_tokens)} tokens of KV cache"
    mean = load.prompt_tokens + load.output_tokens
    return Bound(
        binding="kv_memory",
        because=(
            f"KV memory binds: {pool} hold {gate:,} requests of {format_number(mean)} tokens at their end."
        ),
    )


def _step(replica: Replica, terms: Terms, batch: Batch, full: Saturated) -> Bound:
    gate = gates_of(batch, terms).least
    budget = format_duration(terms.budgets.tpot_s or 0.0, 3)
    if full.binding == "prefill":
        return Bound(
            binding="compute",
            because=(
                f"Compute binds: with {gate:,} at once every step is full of prompts "
                f"({batch.engine.max_batched_tokens:,} tokens), and takes {format_duration(full.step_s, 3)}."
            ),
        )
    shares = _shares(replica, batch, full)
    binding = max(PARTS, key=lambda name: shares.get(name, 0.0))
    parts = ", ".join(f"{format_ratio(share)} {name}" for name, share in shares.items() if share >= SHOWN)
    if (pace := pace_of(batch)) > 1:
        parts = f"for {format_number(pace)} tokens of each; {parts}"
    return Bound(
        binding=binding,
        because=(
            f"{binding.capitalize()} binds: with {gate:,} at once a step takes "
            f"{format_duration(full.step_s, 3)} ({parts}); with one more, TPOT is over its {budget}."
        ),
    )


def _shares(replica: Replica, batch: Batch, full: Saturated) -> dict[str, float]:
    """Of a step of the full batch, by what they are spent on, the largest first.

    Of a measured replica it is known what prompts add to steps, which is computing, and that the rest is not.
    """
    if replica.deployment is None:
        prompts = 1 - batch.decode_s(full.decodes) / full.step_s
        found = {"compute": prompts, "bandwidth": 1 - prompts}
    else:
        tokens = round(full.requests_per_s * full.step_s * batch.prompt_tokens)
        chunks = ((tokens, 0),) if tokens else ()
        bound = bound_of_step(replica.deployment, full.decodes, full.decodes * batch.context_tokens, chunks)
        seconds = {
            "compute": bound.compute_s,
            "bandwidth": bound.bandwidth_s,
            "link": bound.link_s,
            "overhead": bound.overhead_s,
        }
        found = {name: each / sum(seconds.values()) for name, each in seconds.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))
