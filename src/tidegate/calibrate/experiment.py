"""Which requests tell batch and context apart, and show what prompts cost, within the time there is?

Batch and context are varied independently: with one context the one is proportional to the other, and points
that were held out came out 74 to 368 % off (own measurements of vLLM and llama.cpp on CPUs). So each batch
is measured at a short, a middling and a long context, each as far apart as memory and time allow; the
middling ones are held out. Prompts alone, of five lengths, show prefill.
"""

from __future__ import annotations

from math import ceil

import msgspec

SHORTEST_TOKENS = 64
LONGEST_TOKENS = 16_384
BATCHES = 5
PROMPTS = 5
LEAST_STEPS, MOST_STEPS = 24, 256
"""Of a cell in which the whole batch decodes."""
KV_SHARE = 0.9
"""Of the KV cache that a cell may fill: a preemption would spoil it."""
DECODE_SHARE = 0.25
"""Of the time; about as much goes for the prompts that decoding needs, the rest is spare."""
PREFILL_SHARE = 1 / 20
"""Of the time, that the prompts of one cell may take."""
CONTEXT_SHARE = 0.95
"""Of the longest sequence that is used: one text of a length has some per cent more tokens than another."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment must stay within."""

    max_num_seqs: int
    max_batched_tokens: int
    kv_tokens: int
    context_tokens: int
    for_s: float
    step_s: float
    """Of one sequence."""
    prefill_tokens_per_s: float


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Equal requests, all sent at once."""

    sequences: int
    prompt_tokens: int
    output_tokens: int
    steps: int = 0
    """In which all of them shall decode; 0: it is a prompt alone."""
    held_out: bool = False

    @property
    def name(self) -> str:
        """As a row of a table."""
        if not self.steps:
            return f"a prompt of {self.prompt_tokens:,}"
        return f"{self.sequences} x {self.prompt_tokens:,}"


def cells(limits: Limits) -> list[Cell]:
    """What is to be sent, the most telling first."""
    batches = _geometric(1, limits.max_num_seqs, BATCHES)
    each_s = limits.for_s * DECODE_SHARE / (3 * len(batches))
    steps = min(max(round(each_s / limits.step_s), LEAST_STEPS), MOST_STEPS)
    by_batch = [_of_batch(limits, batch, steps) for batch in batches]
    corners = [cell for own in (by_batch[0], by_batch[-1]) for cell in own if not cell.held_out]
    prompts = _prompts(limits)
    rest = [cell for own in by_batch[1:-1] for cell in own if not cell.held_out]
    held_out = [cell for own in by_batch for cell in own if cell.held_out]
    # Ends of the ranges, then what lies between; a run that is cut short has the more of the former.
    ordered = [*corners, prompts[0], prompts[-1], *_dealt(prompts[1:-1], held_out, rest)]
    return [*dict.fromkeys(ordered)]


def _of_batch(limits: Limits, batch: int, steps: int) -> list[Cell]:
    """One batch, at contexts as different as they can be."""
    affordable = limits.for_s * PREFILL_SHARE * limits.prefill_tokens_per_s / batch
    fits = limits.kv_tokens * KV_SHARE / batch
    made: list[Cell] = []
    longest = int(min(LONGEST_TOKENS, affordable, fits, limits.context_tokens))
    for prompt in _geometric(SHORTEST_TOKENS, longest, 3):
        # While the first of them decode, the prompts of the others are still computed.
        output = steps + ceil(max(batch / 4, batch * prompt / limits.max_batched_tokens)) + 4
        room = int(min(fits, CONTEXT_SHARE * limits.context_tokens)) - output
        if room >= min(SHORTEST_TOKENS, limits.context_tokens // 4):
            cell = Cell(sequences=batch, prompt_tokens=min(prompt, room), output_tokens=output, steps=steps)
            if not made or cell.prompt_tokens > made[-1].prompt_tokens:
                made.append(cell)
    if len(made) == 3:
        made[1] = msgspec.structs.replace(made[1], held_out=True)
    return made


def _prompts(limits: Limits) -> list[Cell]:
    affordable = limits.for_s * PREFILL_SHARE * limits.prefill_tokens_per_s
    longest = int(min(LONGEST_TOKENS, affordable, limits.kv_tokens, CONTEXT_SHARE * limits.context_tokens))
    lengths = _geometric(SHORTEST_TOKENS, longest, PROMPTS)
    held_out = len(lengths) // 2 if len(lengths) > 3 else None
    return [
        Cell(sequences=1, prompt_tokens=length, output_tokens=1, held_out=index == held_out)
        for index, length in enumerate(lengths)
    ]


def _geometric(least: int, most: int, count: int) -> list[int]:
    """Up to `count` whole numbers from `least` to `most`, each about as many times the one before."""
    if most <= least:
        return [max(1, min(least, most))]
    numbers = (least * (most / least) ** (index / (count - 1)) for index in range(count))
    return sorted({round(number) for number in numbers})


def _dealt(*hands: list[Cell]) -> list[Cell]:
    """One of each in turn, until all are out."""
    most = max(map(len, hands))
    return [hand[index] for index in range(most) for hand in hands if index < len(hand)]
