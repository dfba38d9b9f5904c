"""How is what may be admitted shared out to tenants?

Each tenant has what is planned of it and a little more, and its weight's part of the rest: no limit refuses
what is planned while another tenant has more than that. Where not all fits it is shared max-min fairly by
weight (Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2): a level rises, and each has its weight
x the level, until it has what it needs; what it leaves goes to the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

import msgspec

from tidegate.plan.advice.senders import Fleet, Sender
from tidegate.plan.room import AZURE_CHAT_PEAK_RATIO

ABOVE_PLAN = 1.1
"""Limits over the planned rate: at exactly that rate a bucket runs empty now and then, however deep it is."""
BUSIEST = AZURE_CHAT_PEAK_RATIO
"""The same at most, where limits cannot let in all that is planned: who is planned to send less than its part
by weight has room for its busiest minute."""
REST = "what is left is shared by weight"
TOO_MUCH = "all are planned to send more than may be admitted, which is shared by weight"


def shared_out(fleet: Fleet, senders: Sequence[Sender]) -> list[Sender]:
    """With what each may send: all of them together what may be admitted."""
    weights = [each.share for each in senders]
    planned = [each.planned_credits_per_s(fleet) for each in senders]
    whole = fleet.admitted_per_s * fleet.request_credits
    rest = whole - ABOVE_PLAN * sum(planned)
    if rest >= 0:
        said = REST
        shared = [ABOVE_PLAN * own + rest * each for own, each in zip(planned, weights, strict=True)]
    else:
        fits = sum(planned) <= whole
        said, least = (REST, planned) if fits else (TOO_MUCH, [0.0] * len(planned))
        shared = filled(whole, weights, least, [BUSIEST * own for own in planned])
    return [
        msgspec.structs.replace(each, credits_per_s=credits, shared=said)
        for each, credits in zip(senders, shared, strict=True)
    ]


def filled(
    whole: float, weights: Sequence[float], least: Sequence[float], most: Sequence[float]
) -> list[float]:
    """`whole` in parts of weight x one level, none below its least or above its most.

    The sum of what is least must not exceed the whole, nor the whole that of what is most, but by rounding.
    """

    def parts(level: float) -> list[float]:
        return [
            min(max(weight * level, low), high)
            for weight, low, high in zip(weights, least, most, strict=True)
        ]

    # Between the levels at which a part begins or ends to grow, their sum is straight.
    bounds = zip((*weights, *weights), (*least, *most), strict=True)
    marks = sorted({0.0, *(bound / weight for weight, bound in bounds if bound < inf)})
    at = bisect_left(marks, whole, key=lambda level: sum(parts(level)))
    if at == 0:
        return parts(0.0)
    low = marks[at - 1]
    high = marks[at] if at < len(marks) else 2 * low + whole / min(weights)
    below, above = sum(parts(low)), sum(parts(high))
    return parts(low + (high - low) * (whole - below) / (above - below) if above > below else low)
