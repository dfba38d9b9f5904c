"""How is a running demo told where there is no terminal? A line every few seconds."""

from __future__ import annotations

from tidegate.demo.snapshot import BudgetLook, Snapshot
from tidegate.demo.view import duration


def line(look: Snapshot) -> str:
    """One line of what the screen shows."""
    running = " ".join(f"{each.running}" for each in look.replicas)
    queued = ", ".join(f"{name} {requests}" for name, requests in look.queued.items())
    parts = [
        f"{look.elapsed_s:5.1f}s",
        f"{look.offered_per_s:.1f} requests/s",
        f"running {running}",
        f"queued {queued}",
        *(_budget(each) for each in look.budgets),
    ]
    if look.degradation:
        parts.append(f"degraded: {', '.join(look.degradation)}")
    return "; ".join(parts)


def _budget(each: BudgetLook) -> str:
    word = {None: "-", True: "HELD", False: "MISSED"}[each.held]
    return f"{each.priority} TTFT P95 {duration(each.ttft_p95_s)} TPOT P95 {duration(each.tpot_p95_s)} {word}"
