"""What is kept of one comparison of the closed form with simulations?"""

from __future__ import annotations

from typing import Final

import msgspec

FIGURES: Final = {
    "TTFT mean": ("ttft_s", "mean"),
    "TTFT P50": ("ttft_s", "p50"),
    "TTFT P95": ("ttft_s", "p95"),
    "TTFT P99": ("ttft_s", "p99"),
    "TPOT mean": ("tpot_s", "mean"),
    "TPOT P95": ("tpot_s", "p95"),
    "E2E mean": ("e2e_s", "mean"),
    "E2E P95": ("e2e_s", "p95"),
}
"""Field of `tidegate.plan.laws.steady.Steady`, and of its spread."""


class Interval(msgspec.Struct, frozen=True):
    """Over independent runs."""

    mean_s: float
    half_s: float
    """Of the 95 % interval."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A case at a load."""

    case: str
    load: float
    """Of the sustained rate."""
    gate: int
    """Of each replica."""
    rate_per_s: float
    closed_s: dict[str, float]
    """By figure."""
    simulated: dict[str, Interval]

    def error(self, figure: str) -> float:
        """Relative, signed."""
        return self.closed_s[figure] / self.simulated[figure].mean_s - 1

    def inside(self, figure: str) -> bool:
        """Whether the simulations cannot tell it from the truth."""
        found = self.simulated[figure]
        return abs(self.closed_s[figure] - found.mean_s) <= found.half_s

    def half(self, figure: str) -> float:
        """Half of the interval, relative."""
        found = self.simulated[figure]
        return found.half_s / found.mean_s

    def told(self) -> str:
        """One line for a terminal."""
        errors = (
            f"{name} {self.error(name):+.0%}{' in' if self.inside(name) else ''} (±{self.half(name):.0%})"
            for name in FIGURES
        )
        return f"{self.case}; {self.load:.0%}: {', '.join(errors)}"
