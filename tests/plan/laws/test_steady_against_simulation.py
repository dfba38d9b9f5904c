"""The closed form and the simulator check each other: same engine, same gate, same arrivals.

Seeds are fixed, so each cell is one run. Means and medians are sharp; what lies beyond a gate that closes for
one request in ten is rare and comes in clumps, so that a run of some thousand requests knows its tail by a
third at best: up to 60 % of what is sustained tails are compared, at 80 % means and medians. A wider grid,
with intervals, is `python -m accuracy.closed_form`.
"""

from __future__ import annotations

import pytest

from tests.plan.replicas import LINE, Served, gamma, poisson, simulated
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.spread import Spread
from tidegate.plan.laws.steady import steady


def four(spread: Spread) -> tuple[float, float, float, float]:
    """As `Seen` has them."""
    return spread.mean, spread.p50, spread.p95, spread.p99


CELLS = [(name, 0.6) for name in sorted(LINE) if name != "demo, equal"]
CELLS += [("demo, mixed", 0.3)]


@pytest.mark.parametrize(("name", "utilisation"), CELLS)
def test_latencies_are_the_simulators(name: str, utilisation: float) -> None:
    """TPOT's mean within 4 %, TTFT's P95 within 15 %, and so on."""
    served = LINE[name]
    batch = served.batch
    rate = utilisation * batch.saturated(served.gate).requests_per_s
    seen = simulated(served, poisson(rate, 4000))
    found = steady(batch, Arrivals(rate_per_s=rate), served.gate)

    for field, within in {
        "ttft_s": (0.08, 0.08, 0.15, 0.25),
        "tpot_s": (0.04, 0.04, 0.12, 0.20),
        "e2e_s": (0.05, 0.05, 0.12, 0.20),
    }.items():
        values = zip(("mean", "p50", "p95", "p99"), four(getattr(found, field)), within, strict=True)
        for (what, value, bound), real in zip(values, seen.mean_and_percentiles(field), strict=True):
            assert value == pytest.approx(real, rel=bound), f"{field} {what}"
    mean, p50, *_ = seen.mean_and_percentiles("itl_s")
    assert found.itl_s.mean == pytest.approx(mean, rel=0.04)
    assert found.itl_s.p50 == pytest.approx(p50, rel=0.08)  # numbers are cut into six


@pytest.mark.parametrize("name", ["demo, mixed", "h100, long prompts"])
def test_near_the_knee_means_and_medians_are_the_simulators(name: str) -> None:
    """At 80 %, where the gate begins to close."""
    served = LINE[name]
    batch = served.batch
    rate = 0.8 * batch.saturated(served.gate).requests_per_s
    seen = simulated(served, poisson(rate, 6000))
    found = steady(batch, Arrivals(rate_per_s=rate), served.gate)

    ttft, tpot, e2e = (seen.mean_and_percentiles(field) for field in ("ttft_s", "tpot_s", "e2e_s"))
    assert found.ttft_s.p50 == pytest.approx(ttft[1], rel=0.2)
    assert found.tpot_s.mean == pytest.approx(tpot[0], rel=0.05)
    assert found.tpot_s.p95 == pytest.approx(tpot[2], rel=0.15)
    assert found.e2e_s.mean == pytest.approx(e2e[0], rel=0.06)
    assert found.itl_s.mean == pytest.approx(seen.mean_and_percentiles("itl_s")[0], rel=0.05)


def test_three_replicas_behind_one_queue() -> None:
    """They take turns: their prompts meet less often than those of one alone."""
    served = LINE["demo, mixed"]
    batch = served.batch
    rate = 3 * 0.6 * batch.saturated(served.gate).requests_per_s
    seen = simulated(served, poisson(rate, 6000), replicas=3)
    found = steady(batch, Arrivals(rate_per_s=rate, replicas=3), served.gate)

    ttft, tpot = seen.mean_and_percentiles("ttft_s"), seen.mean_and_percentiles("tpot_s")
    assert found.ttft_s.mean == pytest.approx(ttft[0], rel=0.1)
    assert found.ttft_s.p95 == pytest.approx(ttft[2], rel=0.2)
    assert found.tpot_s.mean == pytest.approx(tpot[0], rel=0.05)


def test_bursts_of_gamma_gaps() -> None:
    """Coefficient of variation 2 at half of what is sustained."""
    served = LINE["demo, mixed"]
    batch = served.batch
    rate = 0.5 * batch.saturated(served.gate).requests_per_s
    seen = simulated(served, gamma(rate, 4.0, 7000))
    found = steady(batch, Arrivals(rate_per_s=rate, cv2=4.0), served.gate)

    ttft, tpot = seen.mean_and_percentiles("ttft_s"), seen.mean_and_percentiles("tpot_s")
    assert found.ttft_s.p50 == pytest.approx(ttft[1], rel=0.15)
    assert found.ttft_s.p95 == pytest.approx(ttft[2], rel=0.25)
    assert found.tpot_s.mean == pytest.approx(tpot[0], rel=0.05)


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.9])
def test_answers_of_two_tokens_after_long_prompts(utilisation: float) -> None:
    """The one gap is a step: with others' prompts or without, it is never longer than one full of prompts."""
    served = Served("h100-8b", 8000, 2, 0.0, 0.0, 64)
    batch = served.batch
    full = batch.saturated(served.gate)
    rate = utilisation * full.requests_per_s
    seen = simulated(served, poisson(rate, 1500))
    found = steady(batch, Arrivals(rate_per_s=rate), served.gate)

    assert found.ttft_s.mean == pytest.approx(seen.mean_and_percentiles("ttft_s")[0], rel=0.2)
    assert found.tpot_s.mean == pytest.approx(seen.mean_and_percentiles("tpot_s")[0], rel=0.2)
    assert found.e2e_s.mean == pytest.approx(seen.mean_and_percentiles("e2e_s")[0], rel=0.15)
    assert found.tpot_s.p99 <= 1.05 * full.step_s
