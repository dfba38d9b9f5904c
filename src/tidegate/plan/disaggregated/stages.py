"""Where does the time of a request go, and how much of its budgets may each stage take?

Four stages: the wait for a replica that computes prompts, the prompt, its transfer (the wait for the link is
in it), and decoding (the wait for a place is in it). What must be computed takes what it takes; what a budget
leaves is for waiting: of TTFT for the queue, of TPOT, over all gaps, for the transfer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.plan.alternatives import Stage
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.pair import Pair, Parts
from tidegate.plan.disaggregated.sizing import SizeApart


def stages_of(ask: Ask, size: SizeApart) -> tuple[Stage, ...]:
    """In their order; none where more comes than is served."""
    pair = Pair(size.sides, size.prefill_replicas)
    parts = pair.parts(size.requests_per_s, size.decode_replicas)
    return () if parts is None else tuple(_stages(ask, size, parts))


def _stages(ask: Ask, size: SizeApart, parts: Parts) -> Iterator[Stage]:
    share, budgets = ask.terms.percentile, ask.terms.budgets
    prefill_s, decoded_s = parts.prefill_s.quantile(share), parts.decoded_s.quantile(share)
    for_tokens_s = None if budgets.tpot_s is None else budgets.tpot_s * size.sides.gaps
    yield Stage(
        stage="queue",
        mean_s=parts.ttft_s.mean - parts.prefill_s.mean,
        at_percentile_s=max(0.0, parts.ttft_s.quantile(share) - prefill_s),
        budget_s=None if budgets.ttft_s is None else max(0.0, budgets.ttft_s - prefill_s),
        of="ttft_s",
    )
    yield Stage(
        stage="prefill",
        mean_s=parts.prefill_s.mean,
        at_percentile_s=prefill_s,
        budget_s=None if budgets.ttft_s is None else min(prefill_s, budgets.ttft_s),
        of="ttft_s",
    )
    yield Stage(
        stage="transfer",
        mean_s=parts.link_wait_s.mean + parts.sending_s,
        at_percentile_s=parts.link_wait_s.quantile(share) + parts.sending_s,
        budget_s=None if for_tokens_s is None else max(0.0, for_tokens_s - decoded_s),
        of="tpot_s",
    )
    yield Stage(
        stage="decode",
        mean_s=parts.decoded_s.mean,
        at_percentile_s=decoded_s,
        budget_s=None if for_tokens_s is None else min(decoded_s, for_tokens_s),
        of="tpot_s",
    )
