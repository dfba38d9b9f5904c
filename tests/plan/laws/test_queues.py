"""The classical queues: exact where theory is, and in agreement with themselves where it is not."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

from tidegate.core.errors import CallerError
from tidegate.plan.laws.queues import (
    Queue,
    erlang_b,
    erlang_c,
    load_for_blocking,
    rate_for_wait,
    servers_for_blocking,
    servers_for_wait,
    survival,
)

EXACT = 1e-9


def queue(servers: int, utilisation: float, **fields: float) -> Queue:
    """Servers that take a second for a request, as busy as that."""
    return Queue(servers=servers, rate_per_s=servers * utilisation, service_s=1.0, **fields)


def erlang_b_by_its_definition(servers: int, load: Fraction) -> Fraction:
    """The last term of the truncated Poisson distribution over the sum of all, in whole numbers."""
    terms = [Fraction(1)]
    for k in range(1, servers + 1):
        terms.append(terms[-1] * load / k)
    return terms[-1] / sum(terms)


def erlang_b_with_fifty_digits(servers: int, load: str) -> float:
    """The whole recursion, from no server on."""
    with localcontext() as context:
        context.prec = 50
        inverse, erlang = Decimal(1), Decimal(load)
        for k in range(1, servers + 1):
            inverse = 1 + k / erlang * inverse
        return float(1 / inverse)


@pytest.mark.parametrize(
    ("servers", "utilisation", "wait_probability", "mean_s", "p95_s", "p99_s"),
    [  # planners.md, section 2
        (10, 0.9, 0.668732, 0.668732, 2.593360, 4.202798),
        (4, 0.9, 0.787753, 1.969383, None, 10.916500),
        (50, 0.95, 0.629095, 0.251638, None, 1.656679),
        (1, 0.9, 0.9, 9.0, None, 44.998097),
    ],
)
def test_known_queues(
    servers: int,
    utilisation: float,
    wait_probability: float,
    mean_s: float,
    p95_s: float | None,
    p99_s: float,
) -> None:
    """M/M/c has its published figures."""
    known = queue(servers, utilisation)

    assert known.wait_probability == pytest.approx(wait_probability, abs=5e-7)
    assert known.mean_wait_s == pytest.approx(mean_s, abs=5e-7)
    assert known.wait_s(0.99) == pytest.approx(p99_s, abs=5e-7)
    if p95_s is not None:
        assert known.wait_s(0.95) == pytest.approx(p95_s, abs=5e-7)


@pytest.mark.parametrize(
    ("servers", "load"),
    [(1, "0.5"), (7, "6.3"), (40, "28"), (40, "39.9"), (120, "100"), (60, "90"), (90, "2.5")],
)
def test_erlang_is_exact_where_fractions_are(servers: int, load: str) -> None:
    """B and C are those of whole-number arithmetic."""
    offered = Fraction(load)
    lost = erlang_b_by_its_definition(servers, offered)

    assert erlang_b(servers, float(offered)) == pytest.approx(float(lost), rel=EXACT)
    if offered < servers:
        waits = lost / (1 - offered / servers * (1 - lost))
        assert erlang_c(servers, float(offered)) == pytest.approx(float(waits), rel=EXACT)


@pytest.mark.parametrize(
    ("servers", "load"),
    [(1_000, "990.25"), (5_000, "3000.5"), (20_000, "19990.125"), (100_000, "99800.5"), (20_000, "40000")],
)
def test_erlang_forgets_where_it_began(servers: int, load: str) -> None:
    """The steps that the recursion leaves out do not count, up to 100,000 servers."""
    assert erlang_b(servers, float(load)) == pytest.approx(
        erlang_b_with_fifty_digits(servers, load), rel=EXACT
    )


@given(st.integers(0, 300), st.floats(0.01, 400))
def test_erlang_b_is_a_truncated_poisson_distribution(servers: int, load: float) -> None:
    """As another library has it."""
    other = stats.poisson.pmf(servers, load) / stats.poisson.cdf(servers, load)
    assert erlang_b(servers, load) == pytest.approx(float(other), rel=1e-8, abs=1e-290)


def test_erlang_at_its_ends() -> None:
    """No server loses all, no load loses none, and what is below any number is 0."""
    assert erlang_b(0, 3.0) == 1.0
    assert erlang_b(0, 0.0) == 1.0
    assert erlang_b(5, 0.0) == 0.0
    assert erlang_b(100_000, 1.0) == 0.0
    assert erlang_c(5, 5.0) == erlang_c(5, 9.0) == 1.0


@pytest.mark.parametrize(
    ("servers", "utilisation", "p95_s"),
    [  # 40 slots of 10 s each
        (40, 0.50, 0.0),
        (40, 0.60, 0.0),
        (40, 0.70, 0.0),
        (40, 0.80, 1.1),
        (40, 0.90, 5.3),
        (40, 0.95, 12.9),
        (120, 10 / 12, 0.0),  # the same pooled over three replicas
    ],
)
def test_what_a_replica_of_forty_slots_waits(servers: int, utilisation: float, p95_s: float) -> None:
    """Nothing at P95 up to 70 %, 12.9 s at 95 %; pooled over three, nothing at 83 %."""
    slots = Queue(servers=servers, rate_per_s=servers / 10 * utilisation, service_s=10.0)

    assert slots.utilisation == pytest.approx(utilisation)
    assert slots.wait_s(0.95) == pytest.approx(p95_s, abs=0.05)


@pytest.mark.parametrize("service_cv2", [0.0, 0.4, 1.0, 5.0])
def test_one_server_is_pollaczek_and_khinchines(service_cv2: float) -> None:
    """With Poisson arrivals the mean is lambda E[S²] / (2 (1 - utilisation))."""
    one = queue(1, 0.8, service_cv2=service_cv2)

    assert one.mean_wait_s == pytest.approx(0.8 * (1 + service_cv2) / (2 * 0.2), rel=EXACT)


@given(
    st.integers(1, 200),
    st.floats(0.05, 0.99),
    st.floats(0, 9),
    st.floats(0.01, 9),
    st.floats(0.5, 0.999),
)
def test_mean_and_percentiles_are_of_one_distribution(
    servers: int, utilisation: float, arrivals_cv2: float, service_cv2: float, quantile: float
) -> None:
    """The mean is the integral of the tail, and a percentile is where the tail is what it says."""
    any_queue = queue(servers, utilisation, arrivals_cv2=arrivals_cv2, service_cv2=service_cv2)
    waits, relief = any_queue.wait_probability, any_queue.relief_per_s

    assert any_queue.mean_wait_s == pytest.approx(waits / relief, rel=EXACT)
    if (wait_s := any_queue.wait_s(quantile)) > 0:
        assert waits * exp(-relief * wait_s) == pytest.approx(1 - quantile, rel=1e-6)
        assert wait_s == pytest.approx(log(waits / (1 - quantile)) / relief, rel=EXACT)
    else:
        assert waits <= (1 - quantile) * (1 + EXACT)


@given(st.integers(1, 100), st.floats(0.01, 0.97), st.floats(0.5, 0.99))
def test_more_work_waits_longer_and_more_servers_shorter(
    servers: int, utilisation: float, quantile: float
) -> None:
    """Waits grow with the rate, the service and every variation; pooling never hurts."""
    base = queue(servers, utilisation)
    for worse in (
        replace(base, rate_per_s=base.rate_per_s * 1.02),
        replace(base, service_s=base.service_s * 1.02),
        replace(base, arrivals_cv2=2.0),
        replace(base, service_cv2=2.0),
    ):
        assert worse.wait_s(quantile) >= base.wait_s(quantile)
        assert worse.mean_wait_s >= base.mean_wait_s
    pooled = replace(base, servers=3 * servers, rate_per_s=3 * base.rate_per_s)
    for better in (replace(base, servers=servers + 1), pooled):
        assert better.wait_s(quantile) <= base.wait_s(quantile)
        assert better.mean_wait_s <= base.mean_wait_s


@given(st.floats(0.1, 500), st.sampled_from([0.5, 0.95, 0.99]), st.floats(0, 5))
def test_servers_for_a_wait_are_the_fewest(rate_per_s: float, quantile: float, most_wait_s: float) -> None:
    """They are enough, and one less is not."""
    asked = Queue(servers=1, rate_per_s=rate_per_s, service_s=1.0)
    servers = servers_for_wait(asked, quantile, most_wait_s)

    assert replace(asked, servers=servers).wait_s(quantile) <= most_wait_s
    assert servers == 1 or replace(asked, servers=servers - 1).wait_s(quantile) > most_wait_s


@given(st.integers(1, 300), st.sampled_from([0.5, 0.95, 0.99]), st.floats(0, 5))
def test_the_rate_for_a_wait_is_the_highest(servers: int, quantile: float, most_wait_s: float) -> None:
    """It is bearable, and a little more is not."""
    asked = Queue(servers=servers, rate_per_s=0.0, service_s=1.0)
    rate_per_s = rate_for_wait(asked, quantile, most_wait_s)

    assert replace(asked, rate_per_s=rate_per_s).wait_s(quantile) <= most_wait_s
    assert replace(asked, rate_per_s=rate_per_s * (1 + EXACT)).wait_s(quantile) > most_wait_s


@given(st.floats(0.1, 500), st.floats(0.001, 0.5))
def test_blocking_is_turned_round(load: float, most_blocked: float) -> None:
    """The fewest servers for a load, and the highest load for servers, meet the blocking and no more."""
    servers = servers_for_blocking(load, most_blocked)
    assert erlang_b(servers, load) <= most_blocked
    assert servers == 0 or erlang_b(servers - 1, load) > most_blocked

    highest = load_for_blocking(max(1, servers), most_blocked)
    assert erlang_b(max(1, servers), highest) == pytest.approx(most_blocked, rel=1e-6)


def test_overload_waits_without_end() -> None:
    """More work than servers is no error: its wait is infinite, at every percentile."""
    for utilisation in (1.0, 1.5):
        full = queue(3, utilisation)
        assert full.mean_wait_s == full.wait_s(0.5) == inf
        assert full.wait_probability == 1.0


def test_a_clockwork_never_waits() -> None:
    """Without any variation there is no queue; nobody waits before anybody has arrived."""
    assert queue(3, 0.9, arrivals_cv2=0.0, service_cv2=0.0).mean_wait_s == 0.0
    assert queue(3, 0.9, arrivals_cv2=0.0, service_cv2=0.0).wait_s(0.99) == 0.0
    assert queue(3, 0.0).wait_s(0.99) == 0.0
    assert survival(0.3, inf, 0.0) == 0.3
    assert survival(0.3, inf, 1.0) == 0.0


@pytest.mark.parametrize(
    "fields",
    [{"servers": 0}, {"rate_per_s": -1.0}, {"rate_per_s": inf}, {"service_s": 0.0}, {"arrivals_cv2": -0.1}],
)
def test_what_is_no_queue_is_refused(fields: dict[str, float]) -> None:
    """Nonsense is the caller's fault, and named."""
    with pytest.raises(CallerError, match=next(iter(fields))):
        replace(queue(2, 0.5), **fields)


def test_what_is_no_question_is_refused() -> None:
    """A quantile is below 1, a load is a number, and so are servers."""
    for ask in (
        lambda: queue(2, 0.5).wait_s(1.0),
        lambda: queue(2, 0.5).wait_s(95),
        lambda: erlang_b(-1, 1.0),
        lambda: erlang_b(1, float("nan")),
        lambda: erlang_c(0, 0.5),
        lambda: servers_for_wait(queue(2, 0.5), 0.9, -1.0),
        lambda: load_for_blocking(2, 1.0),
    ):
        with pytest.raises(CallerError):
            ask()
