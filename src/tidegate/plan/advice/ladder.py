"""At which pressure should each step of degradation begin, so that it works before the queue is full?

Pressure is how full the queue is. A plausible burst fills it in so many seconds; a step takes some before it
helps. It must begin while as much of the queue is left as fills in that time.
"""

from __future__ import annotations

from math import ceil

from tidegate.core.units import format_latency, format_number
from tidegate.plan.advice.operating import Operating
from tidegate.plan.advised import StepAdvice
from tidegate.plan.answer import Answer
from tidegate.plan.ask import Load
from tidegate.plan.room import AZURE_CHAT_PEAK_RATIO
from tidegate.plan.tenants import classes_of

BOUNDS = {"clamp": (0.3, 0.8), "fallback": (0.4, 0.9), "shed": (0.5, 0.95)}
"""Pressures between which each begins: below is no pressure, above is next to full."""
APART = 0.2
"""From where a step begins down to where it may end: what a step's own effect must not cross at once."""
UNFIT = {
    "fallback": "It needs another pool.",
    "shed": ("In a single class it refuses all alike; a full queue refuses who is furthest above its share."),
}
"""Why a step is named and not used; shedding is, where there is a lower class to shed."""
TOO_LATE = "By then the queue is full: answers would be cut, and as many requests refused."
SETTLED_S = 1.0
"""Until the gateway believes its own measurement of how fast a queue drains (`policy.prediction`)."""


def ladder(load: Load, answer: Answer, at: Operating, queue_requests: float) -> tuple[StepAdvice, ...]:
    """The steps, in their order, for a queue of so many requests."""
    burst_per_s = AZURE_CHAT_PEAK_RATIO * answer.requests_per_s
    serving_per_s = (answer.replicas - answer.spare_replicas) * at.sustained_per_s
    over_per_s = burst_per_s - serving_per_s
    # A fleet with room to spare is full only when twice what it sustains comes.
    if over_per_s <= 0:
        burst_per_s, over_per_s = 2 * serving_per_s, serving_per_s
    fill_s = queue_requests / over_per_s
    # Never the usual answer where all are alike: a clamp then cuts every one of them by what is too much.
    clamp = max(1, ceil(load.output_tokens * serving_per_s / burst_per_s))
    burst = f"{format_number(burst_per_s)} requests/s fill the queue in {format_latency(fill_s)}"
    works_s = {
        "clamp": (clamp * at.token_s, "a clamped answer frees its place after"),
        "fallback": (at.full_step_s, "another pool has begun after"),
        "shed": (SETTLED_S, "how fast the queue drains is known after"),
    }
    lowest = classes_of(load)[-1:] if len(classes_of(load)) > 1 else None
    steps: list[StepAdvice] = []
    for step, (after_s, what) in works_s.items():
        low, high = BOUNDS[step]
        above = round(min(max(1 - after_s / fill_s, low), high), 2)
        if steps:  # in order: what is refused last hurts most
            above = max(above, steps[-1].above)
        unfit = UNFIT.get(step, "") if step != "shed" or lowest is None else ""
        if step == "clamp" and after_s >= fill_s:
            unfit = TOO_LATE
        steps.append(
            StepAdvice(
                step=step,
                above=above,
                below=round(above - APART, 2),
                dwell_s=max(SETTLED_S, float(f"{after_s:.2g}")),
                reason=" ".join((f"{burst}; {what} {format_latency(after_s)}.", unfit)).strip(),
                max_tokens=clamp if step == "clamp" else None,
                classes=lowest if step == "shed" else None,
                active=not unfit,
            )
        )
    return tuple(steps)
