"""Is the knee of a curve where latency turns up?"""

from __future__ import annotations

import pytest

from tidegate.core.knee import knee_place


@pytest.mark.parametrize(
    "loads, waits, place",
    [
        ([10, 20, 30, 40, 50], [1, 1, 1, 2, 20], 3),
        ([10, 20, 30, 40, 50], [1, 2, 3, 4, 5], None),  # a line has none
        ([10, 20, 30, 40, 50], [9, 5, 4, 3, 2], None),  # nor has what falls
        ([10, 20, 30], [1, 1, 20], None),  # too few points to tell
    ],
)
def test_the_knee(loads: list[float], waits: list[float], place: int | None) -> None:
    """The last load before latency turns up."""
    assert knee_place(loads, waits) == place
