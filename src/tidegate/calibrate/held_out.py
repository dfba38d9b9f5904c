"""Which points of a run that nobody designed are kept from the fit, to judge it by?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.calibrate.points import Point

PARTS, HELD_OUT = 8, (2, 5)
"""Of eight stretches of the run the third and the sixth: neighbours in time share their batch, so that single
points would be judged by what the fit has seen."""
LEAST_POINTS = 24


def split(points: Sequence[Point]) -> list[Point]:
    """The same, in order of time, two stretches of them held out; none if there are few."""
    if len(points) < LEAST_POINTS:
        return [*points]
    return [
        msgspec.structs.replace(each, held_out=index * PARTS // len(points) in HELD_OUT)
        for index, each in enumerate(points)
    ]
