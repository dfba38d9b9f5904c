"""How many are in the batch: the queues that theory knows are special cases."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.replicas import LINE, flat
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.lengths import Lengths
from tidegate.plan.laws.population import Arrivals, Population, Stay, population, usual_decodes
from tidegate.plan.laws.queues import Queue

ALONE = Stay(decodes=1.0, prompt_s=1e-6, behind_s=0.0, stalled=0.0)


def moments(held: Population) -> tuple[float, float]:
    """Mean and variance of the number inside."""
    numbers = np.arange(held.first, held.first + len(held.shares))
    mean = float(numbers @ held.shares)
    return mean, float((numbers - mean) ** 2 @ held.shares)


def test_without_stalls_or_a_gate_that_binds_it_is_poissons() -> None:
    """M/G/infinity: a step that does not grow serves any number, whatever the law of outputs."""
    for output_cv in (0.0, 1.0):
        batch = Batch(flat(), Lengths.of(10, 1001, 0.0, output_cv))
        held = population(batch, Arrivals(rate_per_s=5.0), 100, ALONE)
        for n in range(12):
            expected = 5.0**n / factorial(n) * 2.718281828459045**-5.0
            assert held.shares[n - held.first] == pytest.approx(expected, rel=1e-4), n
        assert held.wait_probability < 1e-12


@pytest.mark.parametrize("output_cv", [0.0, 1.0])
@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.8, 0.95])
def test_a_gate_of_one_is_pollaczek_and_khinchines(output_cv: float, utilisation: float) -> None:
    """M/G/1: the chance to wait and the mean wait, within 1 %: a step's length is all that differs."""
    batch = Batch(flat(gate=1), Lengths.of(10, 1000, 0.0, output_cv))
    arrivals = Arrivals(rate_per_s=utilisation * batch.saturated(1).requests_per_s)
    held = population(batch, arrivals, 1, ALONE)
    queue = Queue(servers=1, rate_per_s=arrivals.rate_per_s, service_s=1.0, service_cv2=output_cv**2)

    assert held.wait_probability == pytest.approx(queue.wait_probability, rel=0.01)
    assert held.wait_probability / held.relief_per_s == pytest.approx(queue.mean_wait_s, rel=0.01)


@pytest.mark.parametrize("gate", [4, 40])
def test_flat_steps_before_a_gate_are_erlangs(gate: int) -> None:
    """M/M/c: places in a batch whose steps do not grow are servers."""
    batch = Batch(flat(gate=gate), Lengths.of(10, 1000, 0.0, 1.0))
    for utilisation in (0.5, 0.8, 0.95):
        arrivals = Arrivals(rate_per_s=utilisation * batch.saturated(gate).requests_per_s)
        held = population(batch, arrivals, gate, ALONE)
        queue = Queue(servers=gate, rate_per_s=arrivals.rate_per_s, service_s=1.0)

        assert held.wait_probability == pytest.approx(queue.wait_probability, rel=0.03)
        assert held.wait_probability / held.relief_per_s == pytest.approx(queue.mean_wait_s, rel=0.03)


def test_stalls_and_bursts_spread_it_by_their_peakedness() -> None:
    """Fixed outputs: variance over mean is ca² / (1 - stalled)²; exponential ones: half as much above 1."""
    for stalled, cv2, output_cv, expected in [
        (0.3, 1.0, 0.0, 1 / 0.49),
        (0.0, 3.0, 0.0, 3.0),
        (0.3, 2.0, 0.0, 2 / 0.49),
        (0.0, 3.0, 1.2, 1 + 2 * Batch(flat(), Lengths.of(1, 1e4, 0, 1.2)).evenness),
    ]:
        stay = Stay(decodes=30.0, prompt_s=1e-6, behind_s=0.0, stalled=stalled)
        batch = Batch(flat(), Lengths.of(10, 1001, 0.0, output_cv))
        mean, variance = moments(population(batch, Arrivals(rate_per_s=30.0, cv2=cv2), 400, stay))

        assert mean == pytest.approx(30.0 / (1 - stalled), rel=1e-3)
        assert variance / mean == pytest.approx(expected, rel=0.01)


@given(
    st.sampled_from(sorted(LINE)),
    st.floats(0.01, 0.99),
    st.floats(0.1, 9),
    st.integers(1, 8),
    st.floats(0, 0.8),
)
def test_chances_sum_to_one(name: str, utilisation: float, cv2: float, replicas: int, stalled: float) -> None:
    """Whatever is asked: shares are of the gates, and the closed gate is part of the last of them."""
    served = LINE[name]
    batch = served.batch
    rate = utilisation * batch.saturated(served.gate).requests_per_s
    stay = Stay(
        decodes=usual_decodes(batch, rate, served.gate), prompt_s=0.05, behind_s=0.01, stalled=stalled
    )
    arrivals = Arrivals(rate_per_s=rate * replicas, cv2=cv2, replicas=replicas)
    held = population(batch, arrivals, served.gate, stay)

    assert float(held.shares.sum()) == pytest.approx(1, abs=1e-4)
    assert bool((held.shares >= 0).all())
    assert 0 <= held.wait_probability <= 1
    assert held.first + len(held.shares) - 1 <= served.gate * replicas
    assert held.relief_per_s > 0


@given(st.sampled_from(sorted(LINE)), st.floats(0.02, 0.95))
def test_the_usual_number_keeps_up(name: str, utilisation: float) -> None:
    """At it, as many leave as come; it rises with the rate."""
    served = LINE[name]
    batch, full = served.batch, served.batch.saturated(served.gate)
    rate = utilisation * full.requests_per_s
    usual = usual_decodes(batch, rate, served.gate)

    leave = usual * (1 - rate * batch.prefill_s(usual)) / (batch.decode_steps * batch.decode_s(usual))
    assert leave == pytest.approx(rate, rel=0.02)
    assert usual <= usual_decodes(batch, rate * 1.04, served.gate) <= full.decodes


@pytest.mark.parametrize("utilisation", [0.01, 0.6, 0.9, 0.99])
def test_of_many_replicas_only_likely_numbers_are_looked_at(utilisation: float) -> None:
    """10,000 servers and more: what is left out changes neither Erlang's mean nor his chance to wait."""
    batch = Batch(flat(gate=200), Lengths.of(10, 1000, 0.0, 1.0))
    replicas = 60
    rate = utilisation * replicas * batch.saturated(200).requests_per_s
    held = population(batch, Arrivals(rate_per_s=rate, replicas=replicas), 200, ALONE)
    queue = Queue(servers=200 * replicas, rate_per_s=rate, service_s=1.0)

    mean, variance = moments(held)
    assert mean == pytest.approx(min(rate, 200 * replicas), rel=1e-3)
    assert variance == pytest.approx(rate, rel=0.02 if utilisation < 0.99 else 0.3)
    assert held.wait_probability == pytest.approx(queue.wait_probability, rel=0.15, abs=1e-9)


@pytest.mark.parametrize("gate", [1, 40])
def test_arrivals_like_clockwork_have_a_number_too(gate: int) -> None:
    """Neither gaps nor lengths vary: the number hardly does, and stays what Little's law says."""
    batch = Batch(flat(gate=gate), Lengths.of(10, 1001))
    rate = 0.7 * batch.saturated(gate).requests_per_s
    mean, variance = moments(population(batch, Arrivals(rate_per_s=rate, cv2=0.0), gate, ALONE))

    assert mean == pytest.approx(rate, rel=0.15)
    assert variance <= max(1.0, 0.1 * rate)
