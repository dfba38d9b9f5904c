"""Latencies at a constant rate: limits that are known, and laws that always hold."""

from __future__ import annotations

from math import inf, isnan

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.plan.replicas import LINE, Served, flat
from tidegate.core.errors import CallerError
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.lengths import Lengths
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.queues import Queue
from tidegate.plan.laws.spread import Spread
from tidegate.plan.laws.steady import Steady, steady

served = st.builds(
    Served,
    st.sampled_from(["h100-8b", "demo", "demo-128k", "vllm-cpu-tiny"]),
    st.integers(1, 4000),
    st.integers(20, 1000),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([8, 16]),
)
"""Answers of 20 tokens or more: below, gaps are few, and are what happens to stand behind a prompt."""


def at(served: Served, utilisation: float, **arrivals: float) -> Steady:
    """Such a share of what one replica, or each of several, sustains."""
    batch = served.batch
    replicas = int(arrivals.pop("replicas", 1))
    rate = utilisation * replicas * batch.saturated(served.gate).requests_per_s
    return steady(batch, Arrivals(rate_per_s=rate, replicas=replicas, **arrivals), served.gate)


def spreads(found: Steady) -> dict[str, Spread]:
    """Those that are laws of latencies."""
    return {name: getattr(found, name) for name in ("wait_s", "ttft_s", "itl_s", "tpot_s", "e2e_s")}


@pytest.mark.parametrize("name", sorted(LINE))
def test_alone_a_request_takes_its_own_time(name: str) -> None:
    """Light load: TTFT is the prompt's own steps, TPOT one sequence's, E2E their sum."""
    one = replace_lengths(LINE[name])
    batch, found = one.batch, at(one, 1e-4)

    alone_s = batch.alone_s(one.prompt)
    assert found.ttft_s.p50 == pytest.approx(alone_s, rel=1e-6)
    assert found.tpot_s.mean == pytest.approx(batch.decode_s(1), rel=2e-3)
    assert found.itl_s.p99 == pytest.approx(batch.decode_s(1), rel=2e-3)
    assert found.e2e_s.mean == pytest.approx(alone_s + (one.output - 1) * batch.decode_s(1), rel=5e-3)
    assert found.wait_probability < 1e-6


def replace_lengths(served: Served) -> Served:
    """The same with every prompt and output as long as the mean."""
    return served._replace(prompt_cv=0.0, output_cv=0.0)


def test_a_residual_step_and_the_own_one() -> None:
    """Many decode, prompts cost nothing: TTFT is uniform between one step and two, and so is its mean."""
    batch = Batch(flat(1e-3), Lengths.of(10, 1000))
    found = steady(batch, Arrivals(rate_per_s=50.0), 400)

    assert found.ttft_s.mean == pytest.approx(1.5e-3, rel=5e-3)
    for ratio in (0.1, 0.5, 0.95):
        assert found.ttft_s.quantile(ratio) == pytest.approx((1 + ratio) * 1e-3, abs=0.11e-3)  # fifths
    assert found.tpot_s.p99 == pytest.approx(1e-3, rel=1e-6)
    assert found.sequences == pytest.approx(50.0 * (0.999 + 1.5e-3), rel=1e-3)


@pytest.mark.parametrize("utilisation", [0.3, 0.8, 0.95])
def test_one_at_a_time_is_an_m_d_1_queue(utilisation: float) -> None:
    """Gate 1, flat steps: waits are Pollaczek and Khinchine's, and nothing stalls anybody."""
    batch = Batch(flat(1e-3, gate=1), Lengths.of(10, 1000))
    rate = utilisation * batch.saturated(1).requests_per_s
    found = steady(batch, Arrivals(rate_per_s=rate))
    queue = Queue(servers=1, rate_per_s=rate, service_s=1.0, service_cv2=0.0)

    assert found.ttft_s.mean == pytest.approx(queue.mean_wait_s, rel=0.02)
    assert found.ttft_s.p95 == pytest.approx(queue.wait_s(0.95), rel=0.06)  # waits are cut in fifths
    assert found.tpot_s.mean == pytest.approx(1e-3)
    assert found.itl_s.p99 == pytest.approx(1e-3)


def test_prefill_stalls_show_in_the_tail_of_gaps() -> None:
    """Two masses: most gaps are a decode step's, some are longer by a prompt."""
    one = Served("demo", 1000, 200, 0.0, 0.0, 32)
    found = at(one, 0.4)
    batch = one.batch

    assert found.itl_s.p50 == pytest.approx(batch.decode_s(found.sequences), rel=0.03)
    assert found.itl_s.p99 >= batch.decode_s(found.sequences) + 0.9 * batch.prefill_s(found.sequences)
    assert found.itl_s.p99 > 3 * found.tpot_s.p99


def test_one_token_answers_have_no_gaps() -> None:
    """TPOT is undefined; E2E is TTFT."""
    found = at(Served("demo", 500, 1, 0.5, 0.5, 32), 0.5)

    assert isnan(found.tpot_s.mean)
    assert isnan(found.itl_s.p99)
    assert found.e2e_s == found.ttft_s


def test_overload_is_infinite() -> None:
    """From what is sustained on; not below."""
    one = LINE["demo, equal"]
    for utilisation in (1.0, 3.0):
        found = at(one, utilisation * (1 + 1e-9))
        assert found.ttft_s.p50 == found.e2e_s.p99 == found.tpot_s.mean == inf
        assert found.utilisation == pytest.approx(utilisation)
    assert at(one, 0.999).ttft_s.p99 < inf


def test_there_is_a_rate_and_a_replica() -> None:
    """Nothing else has latencies."""
    batch = LINE["demo, equal"].batch
    for arrivals in (
        Arrivals(rate_per_s=0.0),
        Arrivals(rate_per_s=inf),
        Arrivals(rate_per_s=1.0, replicas=0),
    ):
        with pytest.raises(CallerError):
            steady(batch, arrivals)


def test_the_least_gate_is_taken_unless_one_is_given() -> None:
    """A cache for 6 sequences waits where a batch of 64 would not."""
    known = Served("h100-8b", 4000, 200, 0.0, 0.0, 64).batch
    tight = Batch(replace(known.engine, kv_tokens=6 * 4208), known.lengths)
    rate = 0.9 * tight.saturated(6).requests_per_s

    assert steady(tight, Arrivals(rate_per_s=rate)) == steady(tight, Arrivals(rate_per_s=rate), 6)
    assert steady(tight, Arrivals(rate_per_s=rate)).wait_s.p95 > 0
    assert steady(known, Arrivals(rate_per_s=rate)).wait_s.p95 == 0


@settings(max_examples=40)
@given(served, st.floats(0.01, 0.98), st.floats(0.2, 3), st.integers(1, 4))
def test_laws_are_laws(one: Served, utilisation: float, cv2: float, replicas: int) -> None:
    """Percentiles ascend, all are finite, and E2E holds TTFT and every TPOT."""
    found = at(one, utilisation, cv2=cv2, replicas=replicas)

    assert found.utilisation == pytest.approx(utilisation)
    assert 0 <= found.wait_probability <= 1
    assert 0 < found.sequences <= one.gate * (1 + 1e-9)
    for name, spread in spreads(found).items():
        assert list(spread.at) == sorted(spread.at), name
        assert 0 <= spread.mean < inf, name
        assert spread.at[0] * (1 - 1e-9) <= spread.mean, name
    assert found.ttft_s.at[0] >= 0.9 * one.batch.decode_s(0)
    mean_s = found.ttft_s.mean + (one.output - 1) * found.itl_s.mean
    assert found.e2e_s.mean == pytest.approx(mean_s, rel=0.2)


@settings(max_examples=60)
@given(
    st.sampled_from(["h100-8b", "demo", "demo-128k", "vllm-cpu-tiny", "constant"]),
    st.sampled_from([1, 100, 2000, 8000]),
    st.sampled_from([1, 2, 3, 20, 500]),
    st.floats(0, 3),
    st.one_of(st.floats(0.05, 0.98), st.sampled_from([1e-12, 1e-8, 1e-6])),
    st.sampled_from([1, 3]),
)
def test_a_wait_is_part_of_ttft_and_ttft_of_e2e(
    name: str, prompt: int, output: int, cv: float, utilisation: float, replicas: int
) -> None:
    """At every level, of the shortest answers too, from hardly any load to nearly all."""
    found = at(Served(name, prompt, output, cv, cv, 8), utilisation, replicas=replicas)

    levels = zip(found.wait_s.at, found.ttft_s.at, found.e2e_s.at, strict=True)
    assert all(wait_s <= ttft_s <= e2e_s for wait_s, ttft_s, e2e_s in levels)
    assert 0 <= found.wait_s.mean <= found.ttft_s.mean <= found.e2e_s.mean < inf


@pytest.mark.parametrize("name", sorted(LINE))
def test_hardly_anybody_is_served_as_one_alone(name: str) -> None:
    """Whoever comes once in years is the one who is asked about: the number inside is his share of time."""
    one = replace_lengths(LINE[name])
    rare = at(one, 1e-12)

    assert rare.e2e_s.mean == pytest.approx(at(one, 1e-5).e2e_s.mean, rel=1e-3)
    assert rare.sequences > 0


@settings(max_examples=40)
@given(served, st.floats(0.02, 0.8))
def test_latencies_rise_with_the_rate(one: Served, utilisation: float) -> None:
    """Means and medians; of TTFT and E2E the tail too, but for what cutting laws into pieces costs."""
    low, high = spreads(at(one, utilisation)), spreads(at(one, min(0.97, utilisation * 1.15)))
    slack = 1.05
    for name in low:
        assert high[name].mean * slack >= low[name].mean, name
    for name in ("wait_s", "ttft_s", "e2e_s"):
        assert high[name].p95 * slack * 1.05 >= low[name].p95, name


@settings(max_examples=40)
@given(served, st.floats(0.05, 0.8))
def test_latencies_rise_with_lengths(one: Served, utilisation: float) -> None:
    """At the same rate longer prompts, and longer outputs, are not faster, but for what cutting costs."""
    batch = one.batch
    rate = utilisation * batch.saturated(one.gate).requests_per_s
    base = steady(batch, Arrivals(rate_per_s=rate), one.gate)
    for longer in (one._replace(prompt=one.prompt * 5 // 4 + 1), one._replace(output=one.output * 5 // 4)):
        assume(rate < 0.97 * longer.batch.saturated(one.gate).requests_per_s)
        found = steady(longer.batch, Arrivals(rate_per_s=rate), one.gate)
        assert found.ttft_s.mean * 1.12 >= base.ttft_s.mean
        assert found.e2e_s.mean * 1.03 >= base.e2e_s.mean
        assert found.tpot_s.mean * 1.15 >= base.tpot_s.mean
        assert found.utilisation >= base.utilisation


@settings(max_examples=40)
@given(served, st.floats(0.1, 0.9))
def test_pooling_never_hurts(one: Served, utilisation: float) -> None:
    """The same share of two replicas with one queue waits no longer than of one."""
    alone, pooled = at(one, utilisation), at(one, utilisation, replicas=2)

    assert pooled.wait_s.mean <= alone.wait_s.mean * 1.001 + 1e-9
    assert pooled.ttft_s.mean <= alone.ttft_s.mean * 1.03


@settings(max_examples=40)
@given(served, st.floats(0.1, 0.9), st.floats(1.2, 6))
def test_bursts_never_help(one: Served, utilisation: float, cv2: float) -> None:
    """More varied gaps wait longer."""
    even, bursts = at(one, utilisation), at(one, utilisation, cv2=cv2)

    assert bursts.wait_s.mean >= even.wait_s.mean
    assert bursts.ttft_s.mean * 1.02 >= even.ttft_s.mean
