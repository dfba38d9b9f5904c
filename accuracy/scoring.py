"""How far are simulated times from measured ones?

TTFT and E2E count from the client's arrival; TPOT is (E2E - TTFT) / (output tokens - 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from accuracy.replay import Times
from accuracy.runs import Request
from tidegate.core.records import percentile


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of some requests, in seconds."""

    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    e2e_mean_s: float
    e2e_p99_s: float

    def errors(self, truth: Figures) -> Figures:
        """Relative errors against `truth`, in the place of seconds."""
        return Figures(
            **{name: getattr(self, name) / getattr(truth, name) - 1 for name in Figures.__struct_fields__}
        )


def measured(requests: Iterable[Request]) -> Times:
    """What the real engine did."""
    return {request.id: (request.first_token_s, request.last_token_s) for request in requests}


def figures(requests: Sequence[Request], times: Times) -> Figures:
    """Of these requests, whose first and last tokens came at `times`."""
    ttfts = sorted(times[request.id][0] - request.arrival_s for request in requests)
    e2es = sorted(times[request.id][1] - request.arrival_s for request in requests)
    tpots = sorted(tpot_s(request, times) for request in requests if request.output_tokens > 1)
    return Figures(
        ttft_mean_s=fmean(ttfts),
        ttft_p50_s=percentile(ttfts, 0.5),
        ttft_p99_s=percentile(ttfts, 0.99),
        tpot_mean_s=fmean(tpots),
        tpot_p99_s=percentile(tpots, 0.99),
        e2e_mean_s=fmean(e2es),
        e2e_p99_s=percentile(e2es, 0.99),
    )


def tpot_s(request: Request, times: Times) -> float:
    """Of one request with more than one output token."""
    first_s, last_s = times[request.id]
    return (last_s - first_s) / (request.output_tokens - 1)
