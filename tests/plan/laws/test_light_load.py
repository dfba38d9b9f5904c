"""Where requests hardly meet, is no sequence stalled by prompts that go to replicas that are empty?"""

from __future__ import annotations

import pytest

from tests.plan.replicas import Served, poisson, simulated
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.steady import steady


@pytest.mark.parametrize("output", [2, 20])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("used", [0.02, 0.1])
def test_short_answers_at_light_load(output: int, replicas: int, used: float) -> None:
    """TPOT is within 20 % in the mean and E2E within 6 %: of several replicas an empty one is chosen."""
    served = Served("h100-8b", 2000, output, 0.0, 0.0, 64)
    rate = used * replicas * served.batch.saturated(64).requests_per_s
    seen = simulated(served, poisson(rate, 1200, seed=3), replicas, seed=3)
    found = steady(served.batch, Arrivals(rate_per_s=rate, replicas=replicas), 64)

    assert found.tpot_s.mean == pytest.approx(seen.mean_and_percentiles("tpot_s")[0], rel=0.2)
    assert found.e2e_s.mean == pytest.approx(seen.mean_and_percentiles("e2e_s")[0], rel=0.06)
