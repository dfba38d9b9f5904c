"""What follows for prefill and decode on replicas of their own?

Reported, not gated: the columns leave out how caches travel, and some count devices in ways that cannot be.
"""

from __future__ import annotations

from typing import Final

from accuracy.planner.rows import Row
from accuracy.planner.scoring import INFEASIBLE, Error, engine_of
from tidegate.core.errors import ConfigurationError
from tidegate.perf.efficiencies import waiting_of
from tidegate.perf.memory import memory_of
from tidegate.plan.closed.loop import REQUESTS_PER_CLIENT, steps_of

ROUNDS: Final = 30
BUSIEST: Final = 0.95
LINK_SHARE: Final = 0.7
"""Of the rate between nodes, that a cache travels at."""


def error_apart(row: Row) -> Error | None:
    """None where the weights do not fit on the devices that the row counts."""
    try:
        ttft_s, tpot_s = paces_apart(row)
    except ConfigurationError:
        return None
    return Error(ttft=min(INFEASIBLE * 100, abs(ttft_s / row.ttft_s - 1)), tpot=abs(tpot_s / row.tpot_s - 1))


def paces_apart(row: Row) -> tuple[float, float]:
    """TTFT and TPOT: a queue before the prefill replicas, a transfer, decode steps without prompts."""
    prefill = row.deployments[0]
    prefills, decodes = (max(1, workers) for workers in row.workers)
    before, after = (steps_of(engine_of(each).curve) for each in row.deployments)
    waiting = waiting_of(row.software)
    prompt, output, copies = row.prompt_tokens, row.output_tokens, prefill.attention_dp
    chunk = min(prompt, prefill.max_batched_tokens)
    alone_s = prompt / chunk * before(0.0, 0.0, copies, chunk, (prompt - chunk) / 2)
    each_s = alone_s / copies / prefills
    sent_s = memory_of(prefill).kv_bytes_per_token * prompt
    sent_s /= LINK_SHARE * prefill.accelerator.node_link_bytes_per_s * prefill.tp
    ttft_s, tpot_s = alone_s, after(1.0, float(prompt), 0.0, 0.0, 0.0)
    for _ in range(ROUNDS):
        cycle_s = ttft_s + output * tpot_s
        running = max(1.0, row.clients * output * tpot_s / cycle_s / decodes)
        busy = min(BUSIEST, row.clients * each_s / cycle_s)
        queue_s = alone_s / prefills * busy / (1 - busy) / 2
        burst_s = row.clients * each_s / (2 * REQUESTS_PER_CLIENT)
        lead_s = waiting.overhead_s + waiting.alone * alone_s + queue_s + burst_s
        ttft_s = (ttft_s + lead_s + waiting.steps * tpot_s) / 2
        tpot_s = after(running, running * (prompt + output / 2), 0.0, 0.0, 0.0)
    return ttft_s, tpot_s + sent_s / output
