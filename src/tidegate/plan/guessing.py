"""Is it worth it that an engine guesses ahead, and up to how many requests at once?

Where few decode, a step reads weights for hardly any products, and the products of guesses cost next to
nothing. Where many do, products bind, and those of wrong guesses are work in vain.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tidegate.core.units import format_duration, format_number, format_ratio
from tidegate.perf.memory import draft_weights_bytes
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Load, Replica
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.speculating import batch_of
from tidegate.plan.served import lengths_of
from tidegate.plan.speculated import Speculated

LOOKED_AT = 64
"""Numbers at once, as far apart as their ratio is."""


def with_guesses(ask: Ask, answer: Answer) -> Answer:
    """With what guesses do, and a warning where they slow a full batch down."""
    if not isinstance(ask.replica, Replica):
        return answer
    gate = answer.concurrency_per_replica
    found = speculated(ask.replica, ask.load, gate)
    if found is None:
        return answer
    warnings = (*answer.warnings, *_in_vain(found, gate))
    return msgspec.structs.replace(answer, speculation=found, warnings=warnings)


def _in_vain(found: Speculated, gate: int) -> tuple[str, ...]:
    if found.token_at_gate_s <= found.plain_token_at_gate_s:
        return ()
    least, remedy = found.break_even_concurrency, "leave --draft out"
    if least is not None and least > 1:
        remedy = f"let in fewer than {least:,} (--max-num-seqs), or {remedy}"
    return (f"with {gate:,} at once, drafting makes tokens slower than they are without it; {remedy}",)


def speculated(replica: Replica, load: Load, gate: int) -> Speculated | None:
    """Beside the same replica without guesses; None where it makes none, or is a measured one."""
    deployment = replica.deployment
    if deployment is None or deployment.speculation is None:
        return None
    from tidegate.plan.deployed import deployed

    guessing, draft = deployment.speculation, deployment.draft
    plain = deployed(msgspec.structs.replace(deployment, speculation=None)).engine
    lengths, yielded = lengths_of(load), guessing.tokens_per_step
    found, without = batch_of(replica.engine, lengths), Batch(plain, lengths)
    most = replica.engine.max_num_seqs
    told = Speculated(
        draft=guessing.draft.name,
        draft_tokens=guessing.draft_tokens,
        acceptance_ratio=guessing.acceptance_ratio,
        accepted_tokens_per_step=yielded,
        draft_tp=None if draft is None else draft.tp,
        draft_weights_bytes=draft_weights_bytes(deployment),
        token_alone_s=found.decode_s(1) / yielded,
        plain_token_alone_s=without.decode_s(1),
        token_at_gate_s=found.decode_s(gate) / yielded,
        plain_token_at_gate_s=without.decode_s(gate),
        break_even_concurrency=_break_even(found, without, yielded, most),
        because="",
    )
    return msgspec.structs.replace(told, because=_sentence(told, gate, most))


def _break_even(found: Batch, without: Batch, yielded: float, most: int) -> int | None:
    """The least number from which on, up to `most`, no number is faster with guesses."""

    def faster(inside: int) -> bool:
        return found.decode_s(inside) < yielded * without.decode_s(inside)

    if faster(most):
        return None
    looked_at = sorted({ceil(most ** (each / LOOKED_AT)) for each in range(LOOKED_AT)})
    low, high = max((each for each in looked_at if faster(each)), default=0), most
    while low and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if faster(middle) else (low, middle)
    return low + 1


def _sentence(told: Speculated, gate: int, most: int) -> str:
    yielded, right = format_number(told.accepted_tokens_per_step), format_ratio(told.acceptance_ratio)
    guesses = f"{told.draft_tokens} token{'s' * (told.draft_tokens != 1)}"
    alone = _beside(told.token_alone_s, told.plain_token_alone_s)
    full = _beside(told.token_at_gate_s, told.plain_token_at_gate_s)
    return (
        f"{told.draft} drafts {guesses} a step, each right in {right}: {yielded} tokens per step. Decoding "
        f"alone takes {alone} a token for 1 request, {full} for {gate:,}; "
        f"{_verdict(told.break_even_concurrency, most)}."
    )


def _beside(guessed_s: float, plain_s: float) -> str:
    return f"{format_duration(guessed_s, 3)} instead of {format_duration(plain_s, 3)}"


def _verdict(break_even: int | None, most: int) -> str:
    if break_even is None:
        return f"it pays up to {most:,} at once, the batch limit"
    if break_even == 1:
        return "it never pays"
    return f"from {break_even:,} at once on it costs more than it gives"
