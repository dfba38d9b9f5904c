"""How many tokens a step of guesses yields, counted by hand and by dice."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.curve import Grid, Line, Linear, Table
from tidegate.core.errors import ConfigurationError
from tidegate.perf.heads import LOOKUP, lookup
from tidegate.perf.speculative import Speculation, Verifying, accepted_tokens, accepted_variance, left_over
from tidegate.sim.settings import Speculation as Drawn
from tidegate.sim.speculation import drawn_steps

RATIO = st.floats(0, 1)
TOKENS = st.integers(1, 16)


@pytest.mark.parametrize(
    ("ratio", "draft_tokens", "yielded"),
    [
        (0.8, 4, 3.3616),  # (1 - 0.8^5) / 0.2
        (0.7, 3, 2.533),
        (0.6, 1, 1.6),
        (0.85, 1, 1.85),  # DeepSeek-V3 with one guess: 85 to 90 % of them are right, and 1.8 x the tokens
        (0.0, 4, 1.0),  # only the model's own
        (1.0, 4, 5.0),  # each guess, and the model's own
    ],
)
def test_tokens_per_step_by_hand(ratio: float, draft_tokens: int, yielded: float) -> None:
    """(1 - a^(k+1)) / (1 - a), and its two limits."""
    assert accepted_tokens(ratio, draft_tokens) == pytest.approx(yielded)


def test_their_variance_by_hand() -> None:
    """Two guesses that are right by halves: 1, 2 or 3 tokens with 1/2, 1/4 and 1/4."""
    assert accepted_tokens(0.5, 2) == 1.75
    assert accepted_variance(0.5, 2) == pytest.approx((1 / 2 + 4 / 4 + 9 / 4) - 1.75**2)


@given(RATIO, RATIO, TOKENS)
def test_more_right_guesses_yield_more(one: float, other: float, draft_tokens: int) -> None:
    """From 1 to k + 1, growing in the ratio and in k; where all or none are right, the number is sure."""
    low, high = sorted((one, other))
    assert 1 <= accepted_tokens(low, draft_tokens) <= accepted_tokens(high, draft_tokens) <= draft_tokens + 1
    assert accepted_tokens(low, draft_tokens) <= accepted_tokens(low, draft_tokens + 1)
    assert accepted_variance(low, draft_tokens) >= 0
    for sure in (0.0, 1.0):
        assert accepted_variance(sure, draft_tokens) == pytest.approx(0)


@pytest.mark.parametrize(("ratio", "draft_tokens"), [(0.8, 4), (0.5, 2), (0.3, 6), (1.0, 3), (0.0, 2)])
def test_steps_of_an_output_as_the_simulator_draws_them(ratio: float, draft_tokens: int) -> None:
    """An output of n tokens takes (n + what is left over) / tokens per step, within 1 % of 5,000 outputs."""
    rng, drawn = Random(7), Drawn(draft_tokens=draft_tokens, acceptance_ratio=ratio)
    for tokens in (range(36, 48), range(100, 112)):  # a multiple of k + 1 would be met by chance
        steps = [drawn_steps(each, drawn, rng) for each in tokens for _ in range(400)]
        mean = sum(tokens) / len(tokens)
        expected = (mean + left_over(ratio, draft_tokens)) / accepted_tokens(ratio, draft_tokens)
        assert sum(steps) / len(steps) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"draft_tokens": 0, "acceptance_ratio": 0.5}, "draft_tokens: 0 must be 1 or more"),
        ({"acceptance_ratio": 1.2}, "acceptance_ratio: 1.2 must be from 0 to 1"),
        ({"acceptance_ratio": -0.1}, "acceptance_ratio: -0.1 must be from 0 to 1"),
        ({"acceptance_ratio": float("nan")}, "acceptance_ratio: nan must be from 0 to 1"),
    ],
)
def test_guesses_that_cannot_be(values: dict[str, float], words: str) -> None:
    """The fault is named."""
    with pytest.raises(ConfigurationError, match=words):
        Speculation(draft=lookup(), **values)  # type: ignore[arg-type]


def test_what_is_looked_up_needs_no_pass() -> None:
    """And a model makes one for each guess."""
    found = Speculation(draft=lookup(), acceptance_ratio=0.3, draft_tokens=5)
    assert (found.draft.name, found.passes) == (LOOKUP, 0)


def test_a_verifying_curve_tells_the_curve_of_its_guesses() -> None:
    """Four tokens of each of ten sequences, which attend to their guesses as well."""
    line = Linear(a_s=1.0, b_s_per_sequence=0.1, c_s_per_context_token=1e-3, d_s_per_prefill_token=1e-2)
    table = Table(
        tokens=Line(points=(1.0, 100.0), seconds=(1.0, 100.0)),
        decode=Grid(rows=(0.0, 1.0), columns=(0.0, 100.0), seconds=((0.0, 0.0), (0.0, 1.0))),
    )
    verifying = {
        curve: Verifying(curve=curve, draft_tokens=3, acceptance_ratio=0.5) for curve in (line, table)
    }

    assert verifying[line].step_s(10, 500.0) == pytest.approx(1 + 10 * 0.1 + 530 * 1e-3 + 30 * 1e-2)
    assert verifying[table].step_s(10, 500.0, [(5, 0)]) == pytest.approx(45 + 10 * 0.53)
    assert verifying[line].tokens_per_step == 1.875
