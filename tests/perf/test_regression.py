"""Steps of a known line, with and without noise: its constants come back, or what is missing is said."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import nnls

from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.perf.regression import CONSTANTS, OVERHEAD, Observation, fit, nonnegative

TRUE = Linear(
    a_s=15e-3,
    b_s_per_sequence=0.1e-3,
    c_s_per_context_token=0.1e-6,
    d_s_per_prefill_token=50e-6,
    e_s_per_prefill_token_squared=2e-9,
)
OVERHEAD_S = 2e-3


def decoding(curve: Linear, sequences: int, context: int, factor: float = 1.0) -> Observation:
    """A decode step of sequences that have so much context each."""
    tokens = sequences * context
    return Observation(
        seconds=curve.step_s(sequences, tokens) * factor,
        steps=1,
        sequences=sequences,
        context_tokens=tokens,
    )


def prompt(curve: Linear, tokens: int, factor: float = 1.0) -> Observation:
    """A prompt alone, up to its first token at the client, in chunks of 2,048."""
    starts = range(0, tokens, 2048)
    seconds = sum(curve.step_s(0, 0, [(min(2048, tokens - start), start)]) for start in starts)
    return Observation(
        seconds=(seconds + OVERHEAD_S) * factor,
        steps=len(starts),
        sequences=len(starts),
        prefill_tokens=tokens,
        prefill_tokens_squared=tokens**2,
        first_tokens=1,
    )


def measured(curve: Linear = TRUE, noise: float = 0.0, seed: int = 1) -> Iterator[Observation]:
    """Batch and context, each by itself, and prompts alone."""
    rng = Random(seed)
    for sequences in (1, 2, 4, 8, 16, 32):
        for context in (64, 512, 2048):
            yield decoding(curve, sequences, context, 1 + rng.gauss(0, noise))
    for tokens in (64, 256, 1024, 2048, 4096, 8192):
        yield prompt(curve, tokens, 1 + rng.gauss(0, noise))


def test_exact_points() -> None:
    """Every constant comes back, with the overhead apart, and nothing is in doubt."""
    found = fit([*measured()])

    for name in Linear.__struct_fields__:
        assert getattr(found.curve, name) == pytest.approx(getattr(TRUE, name), rel=1e-6), name
    assert found.first_token_overhead_s == pytest.approx(OVERHEAD_S, rel=1e-6)
    assert (found.unseen, found.confounded) == ((), ())
    assert max(abs(found.error(each)) for each in measured()) < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_noisy_points(seed: int) -> None:
    """With errors of 2 % each constant is within four of its standard errors."""
    found = fit([each for again in range(4) for each in measured(noise=0.02, seed=10 * seed + again)])

    for name, error in found.standard_errors.items():
        true = OVERHEAD_S if name == OVERHEAD else getattr(TRUE, name)
        value = found.first_token_overhead_s if name == OVERHEAD else getattr(found.curve, name)
        assert abs(value - true) < 4 * error, name
    assert set(found.standard_errors) <= set(CONSTANTS)


def test_a_stall_loses_its_weight() -> None:
    """Where one point in ten took three times as long, constants stay within 5 %."""
    points = [*measured(noise=0.005), *measured(noise=0.005, seed=2)]
    stalled = [
        msgspec.structs.replace(each, seconds=each.seconds * (3 if index % 10 == 5 else 1))
        for index, each in enumerate(points)
    ]
    found = fit(stalled).curve

    assert found.a_s == pytest.approx(TRUE.a_s, rel=0.05)
    assert found.d_s_per_prefill_token == pytest.approx(TRUE.d_s_per_prefill_token, rel=0.05)


@pytest.mark.parametrize(
    ("points", "confounded"),
    [
        # The error of one context only: its held-out points were 74 to 368 % off.
        ([decoding(TRUE, n, 512) for n in (1, 2, 4, 8, 16)], {"b_s_per_sequence", "c_s_per_context_token"}),
        ([decoding(TRUE, 8, n) for n in (64, 256, 512, 2048, 4096)], {"a_s", "b_s_per_sequence"}),
        (
            [*measured()][:18] + [prompt(TRUE, 512)] * 4,
            {"d_s_per_prefill_token", "e_s_per_prefill_token_squared", OVERHEAD},
        ),
    ],
)
def test_what_the_points_cannot_tell_apart(points: list[Observation], confounded: set[str]) -> None:
    """Constants that were not varied independently are named together, however well the line fits."""
    found = fit(points)

    assert found.confounded
    assert {name for group in found.confounded for name in group} <= confounded


def test_what_no_point_speaks_of() -> None:
    """Without a prompt its constants are 0, and unseen."""
    found = fit([each for each in measured() if not each.prefill_tokens])

    assert found.unseen == ("d_s_per_prefill_token", "e_s_per_prefill_token_squared", OVERHEAD)
    assert found.curve.d_s_per_prefill_token == 0
    assert found.curve.a_s == pytest.approx(TRUE.a_s)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "0 points are too few"),
        ([decoding(TRUE, n, 10) for n in (1, 2, 3, 4)], "4 points are too few for 3 constants: it takes 5"),
        ([decoding(TRUE, n, 10, 0.0) for n in range(1, 9)], "a point takes no time"),
        ([decoding(TRUE, n, 10, float("nan")) for n in range(1, 9)], "a point takes no time"),
    ],
)
def test_points_that_are_none(points: list[Observation], said: str) -> None:
    """Too few of them, or times that cannot be, are refused."""
    with pytest.raises(ConfigurationError, match=said):
        fit(points)


@given(
    st.lists(st.lists(st.just(0.0) | st.floats(1e-9, 10), min_size=4, max_size=4), min_size=5, max_size=9),
    st.lists(st.floats(-10, 10), min_size=9, max_size=9),
)
@example([[0.0, 0.0, 0.0, 1e-160], [0.0, 0.0, 1.0, 0.0], *[[0.0] * 4] * 3], [1.0, 1.0, *[0.0] * 7])
def test_nonnegative_least_squares(rows: list[list[float]], target: list[float]) -> None:
    """As near to the target as scipy's solution, and without negative values, whatever the columns."""
    design, wanted = np.array(rows), np.array(target[: len(rows)])
    found = nonnegative(design, wanted)

    assert (found >= 0).all()
    assert np.linalg.norm(design @ found - wanted) <= nnls(design, wanted)[1] + 1e-6
