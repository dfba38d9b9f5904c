"""Ranking: the least loaded that fits, found without looking at all of them."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tidegate.policy.ranking import Ranking

LOADS = st.sampled_from([0.0, 1.0, 1.5, 2.0])
CHANGES = st.lists(st.tuples(st.integers(0, 9), st.none() | LOADS), min_size=10, max_size=60)


@given(CHANGES, st.sets(st.integers(0, 9)), LOADS | st.just(inf), st.randoms(use_true_random=False))
def test_the_least_loaded_that_fits(
    changes: list[tuple[int, float | None]], fitting: set[int], most: float, rng: Random
) -> None:
    """After any changes it is one of the least loaded that fit, and none if none does below the bound."""
    ranking, loads = Ranking[str](), dict[int, float]()
    for key, load in changes:
        if load is None:
            ranking.drop(key)
            loads.pop(key, None)
        else:
            ranking.place(key, f"item {key}", load)
            loads[key] = load

    found = ranking.least(lambda item: int(item[5:]) in fitting, most, rng)

    able = {key: load for key, load in loads.items() if key in fitting and load <= most}
    least = {f"item {key}" for key, load in able.items() if load == min(able.values())}
    event(f"{min(len(least), 3)} equals")
    assert len(ranking) == len(loads)
    assert found in least if least else found is None


@pytest.mark.parametrize("fitting", [range(8), (0, 1, 5, 7), (3,)])
def test_equals_are_drawn_by_the_dice(fitting: range | tuple[int, ...]) -> None:
    """Among equals that fit each is as likely as any other, whatever lies between them."""
    ranking, rng = Ranking[int](), Random(1)
    for key in range(8):
        ranking.place(key, key, 2.0)
    ranking.place(8, 8, 3.0)

    drawn = Counter(ranking.least(fitting.__contains__, inf, rng) for _ in range(8_000))

    assert sorted(each for each in drawn if each is not None) == list(fitting)
    assert all(abs(count - 8_000 / len(fitting)) < 200 for count in drawn.values())
