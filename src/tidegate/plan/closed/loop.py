"""How fast is a replica for clients that send their next request when the last one is answered?

That is how engines are benchmarked: N clients, each with one request at a time. Then the rate is not given
but follows: N over what a request takes. Where fewer sequences fit than there are clients, the others wait,
and the answer says so: a replica whose KV memory is full queues, it does not fail.

Source of the form: an interactive closed system (Denning and Buzen, Operational analysis, 1978). Decoding
stops for the prompts of the others, X x seconds of a prompt of all time, and that is less than all of it (the
utilisation law); all begin at once, so that first prompts wait for half of the others (the burst), once in so
many requests.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, nan
from typing import Final, NamedTuple

import msgspec

from tidegate.core.curve import Curve
from tidegate.core.errors import ConfigurationError
from tidegate.perf.efficiencies import Waiting
from tidegate.perf.speculative import Verifying
from tidegate.plan.laws.engine import Engine

REQUESTS_PER_CLIENT: Final = 10.0
"""Of one benchmark run: InferenceMAX sends 10 x concurrency (its README, read 2026-11-30)."""
ROUNDS: Final = 10
"""Of a fixed point that halves its error in each."""
SHARPNESS: Final = 4.0
"""How sharply outputs divide into those that keep clients in step and those that do not."""
FEW: Final = 3.0
"""Other clients, from which on there are always some right before one."""
BUSIEST: Final = 0.9
"""Share of time in prompts, above which a closed loop no longer queues like an open one."""

StepS = Callable[[float, float, float, float, float], float]
"""Decoding sequences, their context in sum; equal chunks of prompts: how many, new tokens, tokens before."""


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """Who are alike, and what each of them asks for."""

    count: float
    prompt_tokens: float
    output_tokens: float
    cached_tokens: float = 0.0
    """Of a prompt, that the prefix cache has."""
    tokens_per_step: float = 1.0
    """That each of them gets of a step, mean; above 1 where the engine guesses ahead."""
    requests: float = REQUESTS_PER_CLIENT
    """Of each, one after the other, from a start at once."""
    alike: float = 1.0
    """1 where requests of all are exactly of these lengths, as those of benchmarks; 0 where lengths vary."""


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """Means over requests."""

    ttft_s: float
    """From the client's sending to its first token, waiting for a seat included."""
    tpot_s: float
    """nan for one output token."""
    e2e_s: float
    requests_per_s: float
    seats: int
    """Clients served at once."""
    waiting_s: float
    """Of the TTFT, for a seat."""
    binding: str
    """kv_memory or batch, where clients wait for a seat; clients where all are served."""
    queue_s: float
    """Of the TTFT, for prompts that happen to come before, once begun."""
    queued: float
    """Share of requests that find one, 0..1."""
    burst_s: float
    """Of the TTFT, for the prompts of those that begin together."""
    together: float
    """Share of requests that do, 0..1: the first of each client, and where the engine keeps them so more."""


class Paces(NamedTuple):
    """Of clients that all have a seat; fields of `Loop`, TPOT as if each step yielded one token."""

    ttft_s: float
    tpot_s: float
    queue_s: float
    queued: float
    burst_s: float
    together: float


def closed_loop(engine: Engine, clients: Clients, *, copies: int = 1, waiting: Waiting | None = None) -> Loop:
    """Of an engine with `copies` of attention, whose clients are shared out evenly.

    ConfigurationError for a request that can never be served.
    """
    waits = waiting or Waiting()
    seats, binding = _seats(engine, clients, copies, waits)
    inside = msgspec.structs.replace(clients, count=float(max(seats, copies)))  # idle copies step along
    chunk = min(clients.prompt_tokens - clients.cached_tokens, _room(engine, seats, copies))
    found = paces(steps_of(engine.curve), inside, chunk_tokens=chunk, copies=float(copies), waiting=waits)
    tpot_s = found.tpot_s / clients.tokens_per_step
    served_s = found.ttft_s + (clients.output_tokens - 1) * tpot_s
    rate_per_s = seats / served_s
    waiting_s = (clients.count - seats) / rate_per_s
    return Loop(
        ttft_s=waiting_s + found.ttft_s,
        tpot_s=tpot_s if clients.output_tokens > 1 else nan,
        e2e_s=waiting_s + served_s,
        requests_per_s=rate_per_s,
        seats=seats,
        waiting_s=waiting_s,
        binding=binding,
        queue_s=found.queue_s,
        queued=found.queued,
        burst_s=found.burst_s,
        together=found.together,
    )


def steps_of(curve: Curve | Verifying) -> StepS:
    """The curve with chunks that are alike."""

    def step_s(decodes: float, context: float, prompts: float, new: float, before: float) -> float:
        chunks = [(new, before)] * int(prompts)
        return curve.step_s(decodes, context, chunks)  # type: ignore[arg-type]

    return step_s


def _seats(engine: Engine, clients: Clients, copies: int, waiting: Waiting) -> tuple[int, str]:
    """How many are served at once, and what keeps the others waiting."""
    longest = clients.prompt_tokens + clients.output_tokens
    if clients.count < 1 or clients.output_tokens < 1 or clients.prompt_tokens <= clients.cached_tokens:
        problem = "clients: there must be 1 or more, with a prompt that is not all cached, and an output"
        raise ConfigurationError([problem])
    if longest > min(engine.context_tokens, engine.kv_tokens / copies):
        room = min(engine.context_tokens, engine.kv_tokens // copies)
        raise ConfigurationError([f"a request of {longest:g} tokens never fits: {room} do"])
    held = clients.prompt_tokens + waiting.output_reserved * clients.output_tokens
    blocks = ceil(held / engine.block_tokens) * engine.block_tokens
    fit = max(1, int(engine.kv_tokens / copies / blocks)) * copies
    seats = min(int(clients.count), fit, engine.max_num_seqs)
    if seats == int(clients.count):
        return seats, "clients"
    return seats, "kv_memory" if fit < engine.max_num_seqs else "batch"


def _room(engine: Engine, seats: int, copies: int) -> float:
    """Prompt tokens of a step of one copy, beside its decoding sequences."""
    return max(1.0, (engine.max_batched_tokens - seats * (1 + engine.draft_tokens)) / copies)


def paces(step_s: StepS, clients: Clients, *, chunk_tokens: float, copies: float, waiting: Waiting) -> Paces:
    """Of clients that all have a seat. No branches: all may be arrays."""
    count, output = clients.count, clients.output_tokens / clients.tokens_per_step  # in steps
    new = clients.prompt_tokens - clients.cached_tokens
    each = clients.prompt_tokens + clients.output_tokens / 2  # context, on the mean of an output
    middle = clients.cached_tokens + (new - chunk_tokens) / 2  # of the chunks of a prompt
    alone_s = new / chunk_tokens * step_s(0.0, 0.0, copies, chunk_tokens, middle)
    decoding_s = step_s(count, count * each, 0.0, 0.0, 0.0)
    beside_s = step_s(count, count * each, copies, chunk_tokens, middle)
    added_s = new / chunk_tokens * (beside_s - decoding_s) / copies
    others = count - copies
    first = 1 / clients.requests
    in_step = 1 / (1 + (output / waiting.in_step_tokens) ** SHARPNESS)
    together = first + (1 - first) * waiting.together * in_step
    burst_s = together * others * added_s / 2
    before = 1 - _above(1 - others / (FEW * copies))  # of others, as many as can be before one
    behind = clients.alike * in_step * waiting.behind * before
    behind_s = behind * added_s
    tpot_s, ttft_s, pace_s = decoding_s + others * added_s / output, alone_s, decoding_s
    for _ in range(ROUNDS):
        cycle_s = ttft_s + output * tpot_s
        busy = BUSIEST - _above(BUSIEST - count * added_s / cycle_s)
        queue_s = copies * waiting.queue * busy / (1 - busy) * added_s * others / count + behind_s
        ttft_s = waiting.overhead_s + waiting.alone * alone_s + waiting.steps * pace_s + queue_s + burst_s
        running = count * output * tpot_s / (ttft_s + output * tpot_s)
        running = copies + _above(running - copies)
        stalled = waiting.beside * others * added_s / (ttft_s + output * tpot_s)
        pace_s = step_s(running, running * each, 0.0, 0.0, 0.0)
        tpot_s = (tpot_s + pace_s + stalled * tpot_s) / 2
    # In the time of one request, each of the others has its prompt computed too: no cycle is shorter.
    missing_s = _above(waiting.alone * count * added_s - ttft_s - (output - 1) * tpot_s)
    queue_s, ttft_s = queue_s + missing_s, ttft_s + missing_s
    queued = busy + (1 - busy) * (1 - _above(1 - behind))
    return Paces(ttft_s, tpot_s, queue_s, queued, burst_s, together)


def _above(value: float) -> float:
    return (value + abs(value)) / 2
