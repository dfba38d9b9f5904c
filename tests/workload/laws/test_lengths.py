"""Lengths come side by side, or in the pairs that were measured."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.lengths import Independent, Lengths, Pairs
from tidegate.workload.laws.numbers import Exponential, Fixed, Law

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.sampled_from([Fixed(0), Exponential(0.1), Exponential(50)]))
def test_one_side_moves_without_the_other(seed: int, other: Law) -> None:
    """Another law of outputs leaves the prompts as they are, and nothing is below 1 token."""
    usual, changed = (
        list(islice(Independent(Exponential(20), law).lengths(Random(seed)), 20))
        for law in (Exponential(9), other)
    )

    assert [each.prompt_tokens for each in usual] == [each.prompt_tokens for each in changed]
    assert min(each.output_tokens for each in changed) >= 1


@given(SEEDS, st.lists(st.builds(Lengths, st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=9))
def test_pairs_stay_together(seed: int, pairs: list[Lengths]) -> None:
    """What is drawn is one of the pairs, never a prompt of one with the answer of another."""
    found = list(islice(Pairs(pairs).lengths(Random(seed)), 30))

    assert all(each in pairs for each in found)
    assert found == list(islice(Pairs(pairs).lengths(Random(seed)), 30))


def test_pairs_that_cannot_be() -> None:
    """There is at least one."""
    with pytest.raises(ConfigurationError, match="there are none"):
        Pairs([])
