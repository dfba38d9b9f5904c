"""Retry budget: may one more attempt be made, or would retries make a bad minute worse?

Retries may be at most a share of the requests of the last seconds, plus a floor so that a quiet
service can retry at all. A retry spends when it is decided, so those that wait are counted too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

from tidegate.policy.settings import RetrySettings


@dataclass(slots=True)
class RetryBudget:
    """Requests and retries of the window, kept as two exponentially decayed counts."""

    settings: RetrySettings
    window_s: float = field(init=False)
    _requests: float = 0.0
    _retries: float = 0.0
    _seen_at: float = 0.0

    def __post_init__(self) -> None:
        self.window_s = self.settings.window_s

    def on_request(self, now: float) -> None:
        """A first attempt was dispatched."""
        self._decay(now)
        self._requests += 1

    def spend(self, now: float) -> bool:
        """Count one retry if the budget allows it."""
        self._decay(now)
        allowed = self._retries + 1 <= self.settings.floor + self.settings.budget_ratio * self._requests
        if allowed:
            self._retries += 1
        return allowed

    def _decay(self, now: float) -> None:
        elapsed_s = now - self._seen_at
        if elapsed_s > 0:
            kept = exp(-elapsed_s / self.window_s)
            self._requests *= kept
            self._retries *= kept
            self._seen_at = now
