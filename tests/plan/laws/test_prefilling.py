"""Do replicas that only compute prompts answer when the closed form says so?"""

from __future__ import annotations

import pytest

from tests.plan.replicas import Served, poisson, simulated
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.prefilling import first_tokens


@pytest.mark.parametrize(
    "profile, prompt, prompt_cv", [("h100-8b", 2000, 0.0), ("h100-8b", 6000, 0.5), ("demo", 1000, 0.5)]
)
@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("used", [0.5, 0.7])
def test_first_tokens_come_as_they_are_simulated(
    profile: str, prompt: int, prompt_cv: float, replicas: int, used: float
) -> None:
    """The mean is within 15 % and P95 within 35 %, also where several replicas share one queue: each gets
    nearly every so manieth request, for whoever comes goes to the one with the least to do.
    """
    served = Served(profile, prompt, 1, prompt_cv, 0.0, 10**4)
    alone_s, shares = served.batch.alone
    rate = used * replicas / float((alone_s * shares).sum())
    mean, _, p95, _ = simulated(served, poisson(rate, 1500, seed=3), replicas, seed=3).mean_and_percentiles(
        "ttft_s"
    )
    found = first_tokens(served.batch, Arrivals(rate_per_s=rate, replicas=replicas))

    assert found.mean == pytest.approx(mean, rel=0.15)
    assert found.p95 == pytest.approx(p95, rel=0.35)
