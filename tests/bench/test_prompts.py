"""Prompts have their length, and no two of them help each other in a prefix cache."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.bench.prompts import Prompts

PROMPTS = Prompts(seed=1)
NUMBERS = st.integers(0, 2**24 - 1)


@given(NUMBERS, st.integers(1, 70_000))
def test_a_prompt_has_four_bytes_per_token(number: int, tokens: int) -> None:
    """And nothing in it that JSON would escape."""
    text = PROMPTS.text(number, tokens)

    assert len(text) == 4 * tokens
    assert json.dumps(text.decode()).encode() == b'"' + text + b'"'


@given(st.tuples(NUMBERS, NUMBERS).filter(lambda pair: pair[0] != pair[1]), st.integers(4, 5_000))
def test_no_two_prompts_begin_alike(pair: tuple[int, int], tokens: int) -> None:
    """They differ within the first four tokens, less than any engine caches by."""
    first, second = (PROMPTS.text(number, tokens)[:16] for number in pair)

    assert first != second


@given(NUMBERS, st.integers(1, 5_000), st.integers(0, 2**32))
def test_a_prompt_is_a_function_of_its_seed(number: int, tokens: int, seed: int) -> None:
    """The same seed, number and length give the same text."""
    assert Prompts(seed).text(number, tokens) == Prompts(seed).text(number, tokens)


def test_another_seed_shares_no_start() -> None:
    """A second run with another seed finds no prompt of the first in a cache."""
    starts = {Prompts(seed).text(0, 100)[:32] for seed in range(200)}

    assert len(starts) == 200


def test_bytes_per_token_can_be_told() -> None:
    """For a tokenizer that is known to need more or fewer."""
    assert len(Prompts(1, bytes_per_token=1.5).text(0, 100)) == 150
