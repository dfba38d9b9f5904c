"""Pools of clients have the rates, the bursts and the lengths that were published of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import inf, nan, sqrt
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import shared
from tidegate.config.traces import open_lines
from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.numbers import Quantiles
from tidegate.workload.requests import PlannedRequest, Sender
from tidegate.workload.sources.client_pools import ClientPool, ClientPoolSettings
from tidegate.workload.statistics.pools import pool_statistics
from tidegate.workload.traces.servegen import ClientLengths, ClientWindow, read_lengths, read_rates


def lengths(client: int, low: int, start_s: float = 0.0, prompt: str = "input_tokens") -> list[ClientLengths]:
    """Prompts from `low` to twice as long, answers of half that."""
    return [
        ClientLengths(client, start_s, prompt, Quantiles(((0, low), (1, 2 * low)))),
        ClientLengths(client, start_s, "output_tokens", Quantiles(((0, low / 2), (1, low)))),
    ]


@pytest.mark.parametrize(
    "name, days, clients, windows, rates, shares, cvs",
    [
        # The README counts 109 clients of m-mid; one of them never asked, and is not in the file.
        ("m-large", 14, 162, 99_839, (196, 48, 583), (0.16, 0.63), (1.2, 9.2, 13.2)),
        ("m-mid", 14, 108, 106_385, (1790, 0, 3445), (0.52, 0.79), (1.3, 8.4, 31.0)),
        ("m-small", 14, 43, 40_095, (1174, 0, 3880), (0.30, 0.93), (1.2, 9.1, 26.7)),
        ("deepseek-r1", 1, 73, 3_111, (16.0, 4.3, 42.5), (0.29, 0.68), (1.0, 5.8, 9.7)),
        ("mm-image", 1, 35, 2_094, (9.5, 4.9, 13.3), (0.14, 0.83), (1.4, 6.4, 13.0)),
    ],
)
def test_figures_of_published_pools(
    name: str,
    days: int,
    clients: int,
    windows: int,
    rates: tuple[float, ...],
    shares: tuple[float, ...],
    cvs: tuple[float, ...],
) -> None:
    """Clients, rates, whose they are, and how bursty, to the digits that were published."""
    found = pool_statistics(read_rates(open_lines(shared(f"servegen/{name}.client_rates.csv.gz"))))

    assert (found.days, found.clients, found.client_windows) == (days, clients, windows)
    digits = 0.05 if rates[0] < 100 else 0.5
    assert (found.rate_per_s.mean, found.least_rate_per_s, found.rate_per_s.max) == pytest.approx(
        rates, abs=digits
    )
    assert (found.top_client_share, found.top_ten_share) == pytest.approx(shares, abs=0.005)
    assert (found.cv.p50, found.cv.p95, found.cv.p99) == pytest.approx(cvs, abs=0.05)
    assert found.empty_windows == {"m-mid": 84, "m-small": 37}.get(name, 0)


def test_a_published_pool_comes_back() -> None:
    """A day of deepseek-r1 at a tenth: the rate of each half day, mean lengths within 5 %."""
    windows = list(read_rates(open_lines(shared("servegen/deepseek-r1.client_rates.csv.gz"))))
    tables = list(read_lengths(open_lines(shared("servegen/deepseek-r1.client_lengths.csv.gz"))))

    found = list(ClientPool(windows, tables, ClientPoolSettings(rate_factor=0.1), seed=7).starts())

    for half in (0, 1):
        expected = sum(each.rate_per_s * 60 for each in windows if each.start_s // 43_200 == half)
        # A client's counts vary by CV^2 as much as they number; the pool's CV is about 2.
        assert sum(each.at_s // 43_200 == half for each in found) == pytest.approx(
            expected, abs=5 * 3 * sqrt(expected)
        )
    assert mean(each.prompt_tokens for each in found) == pytest.approx(1_268, rel=0.05)
    assert mean(each.output_tokens for each in found) == pytest.approx(1_527, rel=0.05)
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)


def test_each_window_has_its_rate_and_its_bursts() -> None:
    """Over 400 runs of three windows: the counts' mean is the published rate, and the gaps have their CV."""
    windows = [
        ClientWindow(0, 0.0, 0.05, 3.0, "Gamma"),
        ClientWindow(0, 600.0, 0.2, 0.5, "Weibull"),
        ClientWindow(0, 1200.0, 0.1, 0.0, ""),
    ]
    counts: dict[int, list[int]] = defaultdict(list)
    gaps_s: dict[int, list[float]] = defaultdict(list)
    for seed in range(400):
        instants = [
            each.at_s for each in ClientPool(windows, lengths(0, 10), ClientPoolSettings(), seed).starts()
        ]
        by_window = Counter(int(at_s // 600) for at_s in instants)
        for window in range(3):
            counts[window].append(by_window[window])
        for earlier, later in pairwise(instants):
            if earlier // 600 == later // 600:
                gaps_s[int(earlier // 600)].append(later - earlier)

    for window, each in enumerate(windows):
        found = counts[window]
        assert mean(found) == pytest.approx(each.rate_per_s * 600, abs=5 * pstdev(found) / sqrt(400))
    # Gaps are cut by the window's end, the long ones more often: bursty ones look a little less so.
    assert pstdev(gaps_s[0]) / mean(gaps_s[0]) == pytest.approx(3.0, rel=0.3)
    assert pstdev(gaps_s[1]) / mean(gaps_s[1]) == pytest.approx(0.5, rel=0.1)
    assert pstdev(gaps_s[2]) / mean(gaps_s[2]) == pytest.approx(1.0, rel=0.1)


@given(st.integers(0, 2**32))
def test_clients_do_not_depend_on_each_other(seed: int) -> None:
    """Without the others a client asks for the same at the same instants."""
    windows = [ClientWindow(client, 600.0 * n, 0.02, 2.0, "Gamma") for client in range(3) for n in range(2)]
    tables = [table for client in range(3) for table in lengths(client, 10 * (client + 1))]
    settings = ClientPoolSettings(tenant_per_client=True, sender=Sender(tenant="pool"))

    together = list(ClientPool(windows, tables, settings, seed).starts())
    alone = list(ClientPool([each for each in windows if each.client == 1], tables, settings, seed).starts())

    assert [each for each in together if each.tenant == "pool-1"] == alone


def test_a_part_of_the_days() -> None:
    """The run begins where it was told to and ends in time; lengths are those of the hours that it is in."""
    windows = [ClientWindow(0, 600.0 * n, 1.0, 1.0, "Gamma") for n in range(72)]
    tables = [*lengths(0, 10), *lengths(0, 1000, 21_600.0)]

    found = list(ClientPool(windows, tables, ClientPoolSettings(from_s=21_000.0, for_s=900.0), 1).starts())

    assert 0 < found[0].at_s < 60 < 840 < found[-1].at_s < 900
    for each in found:
        assert (each.prompt_tokens >= 1000) == (each.at_s >= 600), each.at_s


def test_who_has_no_lengths_has_anothers() -> None:
    """Drawn by load among those that have them; prompts with images are text and images together."""
    windows = [ClientWindow(client, 0.0, 1.0, 1.0, "Gamma") for client in range(2)]
    images = lengths(1, 100, prompt="text_tokens") + lengths(1, 100, prompt="image_tokens")[:1]

    found = list(ClientPool(windows, images, ClientPoolSettings(tenant_per_client=True), 1).starts())

    assert {each.tenant for each in found} == {"default-0", "default-1"}
    assert all(200 <= each.prompt_tokens <= 400 and 50 <= each.output_tokens <= 100 for each in found)


def test_nobody_waits_in_a_pool() -> None:
    """No request has a next one."""
    pool = ClientPool([ClientWindow(0, 0.0, 1.0, 1.0, "Gamma")], lengths(0, 10), ClientPoolSettings(), 1)

    assert pool.after(PlannedRequest(at_s=0, prompt_tokens=1, output_tokens=1), 1.0, True) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: ClientPoolSettings(from_s=10.0), "from_s of a pool is a multiple of 600 s, not 10"),
        (lambda: ClientPoolSettings(for_s=nan), "for_s of a pool is above 0, not nan"),
        (lambda: ClientPoolSettings(rate_factor=inf), "rate_factor of a pool is above 0, not inf"),
        (lambda: ClientPool([], lengths(0, 10), ClientPoolSettings(), 0), "no client of the pool asks"),
        (
            lambda: ClientPool([ClientWindow(0, 0.0, 1.0, 1.0, "Gamma")], [], ClientPoolSettings(), 0),
            "no client of the pool has lengths; give its client_lengths file",
        ),
    ],
)
def test_pools_that_cannot_be(make: Callable[[], object], said: str) -> None:
    """What is wrong is named, and the remedy."""
    with pytest.raises(ConfigurationError, match=said):
        make()
