"""Do values lie where an axis says, and are its ticks round?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.scale import Scale


@pytest.mark.parametrize(
    "low, high, logarithmic, ticks",
    [
        (0.0, 1.0, False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (3.0, 47.0, False, [10, 20, 30, 40]),
        (0.1, 8.0, True, [0.1, 0.2, 0.5, 1, 2, 5]),
        (0.02, 30.0, True, [0.1, 1, 10]),  # where there is no room between powers of ten
    ],
)
def test_ticks_are_round(low: float, high: float, logarithmic: bool, ticks: list[float]) -> None:
    """Steps of 1, 2 or 5, or powers of ten."""
    scale = Scale(low=low, high=high, start=0, end=1, logarithmic=logarithmic)

    assert scale.ticks() == pytest.approx(ticks)


@given(st.floats(0.001, 1e6), st.floats(1.01, 1e6), st.floats(0, 1), st.booleans())
def test_an_axis_goes_from_end_to_end(low: float, factor: float, part: float, logarithmic: bool) -> None:
    """The ends lie at the ends, what is between them between, and ticks are never beyond."""
    high = low * factor
    scale = Scale(low=low, high=high, start=100, end=0, logarithmic=logarithmic)

    assert (scale(low), scale(high)) == pytest.approx((100, 0), abs=1e-6)
    assert -1e-6 <= scale(low + part * (high - low)) <= 100 + 1e-6
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in scale.ticks())
