"""How many replicas does each hour of a day need, and what does following the day save?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.plan.answer import HourAnswer
from tidegate.plan.arrivals import Hour
from tidegate.plan.ask import Ask
from tidegate.plan.sizing import Size, size_of


def schedule_of(ask: Ask, hours: Sequence[Hour]) -> tuple[HourAnswer, ...]:
    """Each hour sized for its own busiest minute, with the same terms. Hours that cannot be are left out."""
    found = []
    for hour in hours:
        load = msgspec.structs.replace(ask.load, requests_per_s=hour.requests_per_s)
        size = size_of(msgspec.structs.replace(ask, load=load))
        if isinstance(size, Size):
            found.append(
                HourAnswer(
                    hour=hour.hour,
                    requests_per_s=hour.requests_per_s,
                    replicas=size.replicas,
                    utilisation=size.utilisation,
                )
            )
    return tuple(found)
