"""Why is a fleet not used to the full? Each reason, alone, as a utilisation."""

from __future__ import annotations

from tidegate.core.units import format_number, format_ratio
from tidegate.plan.answer import Room
from tidegate.plan.ask import Terms

AZURE_CHAT_PEAK_RATIO = 1.54
"""Requests of the busiest minute over those of the mean one, in the hour of chat that ships with tidegate:
`tidegate trace stats azure-conv`."""


def queue_room(terms: Terms, isolated: float, pooled: float, replicas: int) -> Room:
    """The knee: up to there every budget holds, or nobody waits for a turn if no budget says how long."""
    waits = terms.budgets.ttft_s is None and terms.budgets.e2e_s is None
    what = "waits nothing" if waits else "holds its budgets"
    words = f"P{100 * terms.percentile:g} {what} to {format_ratio(isolated)} of one"
    if replicas > 1:
        words += f", {format_ratio(pooled)} of {replicas} pooled"
    return Room(reason="queue", utilisation=pooled, words=words)


def lost_room(pooled: float, replicas: int, lost: int) -> Room:
    """What the others can take over."""
    if not lost:
        return Room(reason="lost_replica", utilisation=None, words="no replica may be lost: none is spare")
    left = replicas - lost
    of = f"{lost} of {replicas} replicas" if replicas > 1 else "a replica"
    return Room(
        reason="lost_replica",
        utilisation=pooled * left / replicas,
        words=f"{of} may be lost: {left} take{'s' * (left == 1)} over",
    )


def burst_room(peak_ratio: float) -> Room:
    """How much busier than the mean the busiest minute is."""
    if peak_ratio > 1:
        words = f"planned for: the busiest minute is {format_number(peak_ratio)} x the mean"
        return Room(reason="burst", utilisation=None, words=words)
    return Room(
        reason="burst",
        utilisation=1 / AZURE_CHAT_PEAK_RATIO,
        words=f"Azure chat: the busiest minute is {AZURE_CHAT_PEAK_RATIO:g} x the mean",
    )
