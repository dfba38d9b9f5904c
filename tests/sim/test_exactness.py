"""Exactness: a replica whose steps always take the same is a server whose queue theory knows.

First path by path: each wait is what the recursion of the ideal queue gives for the same arrivals, up to a
step. Then in distribution, at loads that take seconds. Heavy ones take minutes: `make exactness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from math import inf

import numpy as np
import pytest

from exactness import cases, theory
from exactness.cases import Case
from exactness.estimates import Coverage, Interval, coverage, over, replications
from exactness.report import Covered, Estimated, page
from exactness.systems import STEP_S, System, sample
from tests.policy.build import approx
from tests.server_process import REPOSITORY


@pytest.fixture(scope="module")
def cores() -> Iterator[Executor]:
    """All of them."""
    with ProcessPoolExecutor() as executor:
        yield executor


LOSSES = (
    System("M", 1, 0.5, governed=True, places=0),
    System("M", 4, 0.75, governed=True, places=0),
    System("M", 50, 0.95, governed=True, places=0),
)


# -- path by path ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "system",
    [
        System("M", 1, 0.9),
        System("D", 1, 0.9),
        System("E2", 1, 0.9),
        System("M", 4, 0.9),
        System("M", 1, 0.9, governed=True),
        System("M", 4, 0.9, governed=True),
        System("E2", 50, 0.95, governed=True),
    ],
    ids=str,
)
def test_each_wait_is_that_of_the_ideal_queue(system: System) -> None:
    """Up to one step, for who finds a server free joins the others at their next step; alone, to rounding."""
    gaps, services, waits = sample(system, 5_000, seed=1)

    ideal = theory.waits(system.servers, gaps.tolist(), services.tolist())

    slack = 1e-6 if system.servers == 1 else STEP_S * 1.001
    longer = waits - np.array(ideal)
    assert np.mean(np.array(ideal) > 0) > 0.5
    assert -1e-6 <= longer.min() <= longer.max() <= slack


@pytest.mark.parametrize("system", LOSSES, ids=str)
def test_who_is_refused_is_who_finds_all_servers_taken(system: System) -> None:
    """But for what a step changes: one customer in a thousand at most."""
    gaps, services, waits = sample(system, 5_000, seed=2)

    ideal = np.array(theory.refusals(system.servers, gaps.tolist(), services.tolist()))

    assert ideal.sum() > 200
    assert np.mean((waits == inf) != ideal) <= 0.001


# -- in distribution ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "load", "wait", "p99"),
    [
        (10, 0.90, 0.668732, 4.202798),
        (4, 0.90, 1.969383, 10.916500),
        (50, 0.95, 0.251638, 1.656679),
        (1, 0.90, 9.0, 44.998097),
    ],
)
def test_the_closed_forms_give_known_figures(servers: int, load: float, wait: float, p99: float) -> None:
    """Against figures that others have computed."""
    assert theory.mmc_wait(servers, load) == approx(wait, rel=1e-6)
    assert theory.mmc_wait_p99(servers, load) == approx(p99, rel=1e-6)


def test_controls_take_off_what_they_explain() -> None:
    """Of values that follow their control to the last bit nothing is left to chance."""
    controls = np.array([[0.3], [-0.1], [0.2], [-0.4], [0.1]])

    plain, freed = over(list(7 + 2 * controls[:, 0])), over(list(7 + 2 * controls[:, 0]), controls)

    assert plain.error > 0.2
    assert freed.value == approx(7.0)
    assert freed.error == approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        Case(System("M", 1, 0.5), 13_000),
        Case(System("D", 1, 0.5), 10_000),
        Case(System("E2", 1, 0.5), 17_000),
        Case(System("M", 4, 0.7, governed=True), 3_000),
        Case(System("M", 1, 0.5, governed=True, places=0), 2_000),
        Case(System("M", 4, 0.75, governed=True, places=0), 4_000),
    ],
    ids=lambda case: str(case.system),
)
def test_waits_and_losses_are_as_theory_has_them(case: Case, cores: Executor) -> None:
    """Twenty replications keep the bars that `make exactness` sets for heavier loads."""
    found = replications(case.system, case.requests, range(20), cores)

    for figure, exact in cases.exact(case.system).items():
        assert not Estimated(case, figure, exact, found[figure]).missed, figure


def test_intervals_hold_what_they_promise(cores: Executor) -> None:
    """Of 200 runs the 95 % interval of 90 to 99 % holds the exact mean."""
    case = Case(System("D", 1, 0.5), 1_000, range(1_000, 1_200))

    found = coverage(case, {"mean": theory.mg1_wait(0.5, 0.0)}, cores)["mean"]

    assert 0.90 <= found.held <= 0.99
    assert found.misled <= 1 - found.held


# -- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "missed"),
    [
        (2.00, 0.010, ""),
        (2.00, 0.030, "the interval is too wide"),
        (2.05, 0.010, "the exact value is outside"),
    ],
)
def test_a_bar_is_missed(value: float, error: float, missed: str) -> None:
    """By an interval that is too wide, or too far off; the page says which."""
    estimate = Estimated(Case(System("M", 4, 0.9), 100), "mean", 2.0, Interval(value, error, 30))

    assert estimate.missed == missed
    assert f"{missed or 'kept'} |" in page([estimate], [])


@pytest.mark.parametrize(
    ("held", "warned", "misled", "bar"),
    [
        (0.95, 0.0, 0.05, "kept"),
        (0.95, 1.0, 0.0, "kept"),
        (0.88, 0.4, 0.08, "not within 90% to 99%"),
        (0.88, 0.6, 0.08, "warned"),
        (0.80, 0.6, 0.09, "more than 8% miss unwarned"),
        (0.91, 0.0, 0.09, "more than 8% miss unwarned"),
        (0.995, 0.0, 0.005, "not within 90% to 99%"),
    ],
)
def test_intervals_may_miss_where_runs_warn(held: float, warned: float, misled: float, bar: str) -> None:
    """But only where most do, and then seldom without a warning."""
    covered = Covered(Case(System("M", 4, 0.9), 100), "p95", 2.0, Coverage(held, warned, misled))

    assert covered.row().endswith(f"| {bar} |")
    assert covered.missed == ("" if bar in ("kept", "warned") else bar)
    assert covered.row() in page([], [covered])


def test_the_page_is_of_these_cases_and_seeds() -> None:
    """docs/exactness.md has a row for each case of today, and no bar in it is missed."""
    text = (REPOSITORY / "docs" / "exactness.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| M/")]

    expected = [
        f"{str(case.system).replace(', ', ' | ')} | {case.requests:,} |"
        for case in cases.REPLICATIONS
        for _ in cases.exact(case.system)
    ] + [
        f"{str(case.system).replace(', ', ' | ')} | {case.requests:,} |"
        for case in cases.COVERAGE
        for _ in cases.exact_within(case.system)
    ]
    assert len(rows) == len(expected)
    for row, start in zip(rows, expected, strict=True):
        assert row.startswith(f"| {start}")
        assert row.endswith(("| kept |", "| warned |"))
