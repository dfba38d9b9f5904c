"""How many replicas of each kind does each hour of a day need?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tidegate.plan.answer import HourAnswer
from tidegate.plan.arrivals import Hour
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.sizing import SizeApart, size_apart


def schedule_apart(ask: Ask, front: Front, hours: Sequence[Hour]) -> tuple[HourAnswer, ...]:
    """Each hour sized for its own busiest minute, whatever there is. Hours that cannot be are left out."""
    return tuple(_hours(ask, msgspec.structs.replace(front, replicas=None, accelerators=None), hours))


def _hours(ask: Ask, front: Front, hours: Sequence[Hour]) -> Iterator[HourAnswer]:
    for hour in hours:
        load = msgspec.structs.replace(ask.load, requests_per_s=hour.requests_per_s)
        size = size_apart(msgspec.structs.replace(ask, load=load), front)
        if isinstance(size, SizeApart):
            yield HourAnswer(
                hour=hour.hour,
                requests_per_s=hour.requests_per_s,
                replicas=sum(size.counts),
                prefill_replicas=size.prefill_replicas,
                utilisation=size.utilisation,
            )
