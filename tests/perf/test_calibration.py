"""A curve is found from what requests took."""

from __future__ import annotations

from math import log
from random import Random

import pytest

from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.perf import calibration
from tidegate.perf.calibration import fit

TRUTH = Linear(a_s=0.012, b_s_per_sequence=1e-4, c_s_per_context_token=6e-8, d_s_per_prefill_token=5e-5)
FREE = ("a_s", "b_s_per_sequence", "c_s_per_context_token", "d_s_per_prefill_token")
RNG = Random(1)
STEPS = [
    (
        decodes := RNG.randrange(100),
        decodes * RNG.randrange(100, 2000),
        ((RNG.randrange(1, 2000), 0),) * (n % 2),
    )
    for n in range(60)
]


def test_the_constants_behind_the_times_are_found() -> None:
    """From three times too slow, and from a third of it."""
    for factor in (3.0, 1 / 3):
        start = Linear(**{name: factor * getattr(TRUTH, name) for name in FREE})

        found = fit(
            start,
            lambda curve: [log(curve.step_s(*step) / TRUTH.step_s(*step)) for step in STEPS],
            free=FREE,
        )

        for name in FREE:
            assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3)


def test_what_is_not_free_stays() -> None:
    """Only the constants that are named are moved."""
    start = Linear(a_s=0.01, b_s_per_sequence=1e-4, d_s_per_prefill_token=1e-5)

    found = fit(start, lambda curve: [curve.step_s(10, 0) - 0.02], free=("a_s",))

    assert found.step_s(10, 0) == pytest.approx(0.02, rel=1e-4)
    assert (found.b_s_per_sequence, found.d_s_per_prefill_token) == (1e-4, 1e-5)


def test_without_scipy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users who do not calibrate do not need scipy."""
    monkeypatch.setattr(calibration, "find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"tidegate\[calibration\]"):
        fit(TRUTH, lambda curve: [0.0])
