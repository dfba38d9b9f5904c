"""What keeps a replica from more, in a word and in a sentence with its figure?"""

from __future__ import annotations

from math import ceil

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.plan.answer import Gates
from tidegate.plan.ask import Load, Replica, Terms
from tidegate.plan.batching import Batch, Saturated
from tidegate.plan.station import Bound

MOSTLY = 0.5
"""Share of a step from which on its prompts are what it is made of."""


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
                f"holds {gates.kv:,}; TPOT is {format_duration(full.tpot_s, 3)} there."
            ),
        )
    return _step(terms, batch, least, full)


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


def _step(terms: Terms, batch: Batch, gate: int, full: Saturated) -> Bound:
    budget = format_duration(terms.budgets.tpot_s or 0.0, 3)
    if full.binding == "prefill":
        return Bound(
            binding="compute",
            because=(
                f"Compute binds: with {gate:,} at once every step is full of prompts "
                f"({batch.engine.max_batched_tokens:,} tokens), and takes {format_duration(full.step_s, 3)}."
            ),
        )
    prompts = 1 - batch.decode_s(full.decodes) / full.step_s
    what, share = ("Compute", prompts) if prompts > MOSTLY else ("Bandwidth", 1 - prompts)
    rest = "computing prompts" if prompts > MOSTLY else "reading weights and KV cache"
    return Bound(
        binding="compute" if prompts > MOSTLY else "bandwidth",
        because=(
            f"{what} binds: with {gate:,} at once a step takes {format_duration(full.step_s, 3)}, "
            f"{format_ratio(share)} of it {rest}; with one more, TPOT is over its {budget}."
        ),
    )
