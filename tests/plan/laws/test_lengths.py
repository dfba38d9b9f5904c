"""Lengths of requests: exact moments, and laws in pieces that have them too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import CallerError
from tidegate.plan.laws.lengths import Kind, Lengths, pieces

cvs = st.floats(0, 2)


@given(cvs)
def test_pieces_of_a_law_have_its_mean_and_nearly_its_variance(cv: float) -> None:
    """Shares sum to one, the mean is 1; what varies inside of pieces is lost, little of it."""
    law = pieces(cv)

    assert sum(share for _, share in law) == pytest.approx(1, rel=1e-12)
    assert sum(value * share for value, share in law) == pytest.approx(1, rel=1e-9)
    variance = sum((value - 1) ** 2 * share for value, share in law)
    assert 0.9 * cv * cv - 1e-12 <= variance <= cv * cv * (1 + 1e-9) + 1e-12


@given(st.floats(1, 1e5), st.floats(1, 1e4), cvs, cvs, st.floats(0, 0.9))
def test_prompts_and_outputs_keep_their_means(
    prompt: float, output: float, prompt_cv: float, output_cv: float, hit_ratio: float
) -> None:
    """Only what the prefix cache has is missing from prompts; an output has its first token at least."""
    kind = Kind(prompt_tokens=prompt, output_tokens=output, prompt_cv=prompt_cv, output_cv=output_cv)
    lengths = Lengths(kinds=(kind, kind), hit_ratio=hit_ratio)

    assert sum(share for _, share in lengths.fresh()) == pytest.approx(1)
    assert sum(tokens * share for tokens, share in lengths.fresh()) == pytest.approx(prompt * (1 - hit_ratio))
    assert sum(tokens * share for tokens, share in lengths.outputs()) == pytest.approx(output)
    assert min(tokens for tokens, _ in lengths.outputs()) >= 1


def test_kinds_count_by_their_shares() -> None:
    """Shares need not sum to one."""
    short, long = (
        Kind(prompt_tokens=100, output_tokens=10, share=3),
        Kind(prompt_tokens=500, output_tokens=50),
    )
    lengths = Lengths(kinds=(short, long))

    assert lengths.mean(lambda kind: kind.prompt_tokens) == 200
    assert lengths.fresh() == [(100, 0.75), (500, 0.25)]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens": 0},
        {"output_tokens": 0.5},
        {"prompt_cv": -1},
        {"output_cv": float("nan")},
        {"share": 0},
    ],
)
def test_requests_that_cannot_be_are_refused(fields: dict[str, float]) -> None:
    """A prompt and an output have a token, and nothing is negative."""
    with pytest.raises(CallerError):
        Kind(**({"prompt_tokens": 1, "output_tokens": 1} | fields))


def test_lengths_without_anything_to_compute_are_refused() -> None:
    """There is a kind, and not all of every prompt comes from the cache."""
    with pytest.raises(CallerError):
        Lengths(kinds=())
    with pytest.raises(CallerError):
        Lengths(kinds=(Kind(prompt_tokens=1, output_tokens=1),), hit_ratio=1.0)
