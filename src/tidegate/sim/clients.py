"""What do clients do: when do they ask, when do they give up, and when do they come back?

A client that is refused comes back as the official OpenAI SDK does (openai 3.57, `_base_client.py`): at
most `max_retries` times; after what the gateway told it to wait, if that is at most 120 s; else after 0.5 s,
doubled each time up to 8 s, less up to a quarter of it by the dice. Each time is a new request. An answer
that breaks once it has begun is not asked for again, as no SDK can.

The gateway tells it whether to come back at all (`x-should-retry`): after refusals that a later try may
outlive. `obeys=False` is a client that knows nothing of that: it decides by status alone.
"""

from __future__ import annotations

from random import Random

import msgspec

FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 0.5, 8.0
LONGEST_WAIT_S = 120.0
"""Told to wait longer than this, the SDK does not come back."""
RETRIED = (408, 409, 429)
"""Statuses that it retries, beside all from 500 on."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How all clients behave."""

    max_retries: int = 2
    obeys: bool = True
    """It does as the gateway's headers say: whether to come back, and when."""
    patience_s: float | None = None
    """It leaves if no first token has come after so long; None: it waits for as long as the gateway does."""
    hang_up_after_s: float | None = None
    """It leaves if the answer is not complete after so long."""

    def problems(self) -> list[str]:
        """What of it cannot be."""
        said = []
        if self.max_retries < 0:
            said.append(f"clients.max_retries: is at least 0, not {self.max_retries}")
        for name, value in (("patience_s", self.patience_s), ("hang_up_after_s", self.hang_up_after_s)):
            if value is not None and not value > 0:
                said.append(f"clients.{name}: is a time above 0 s, not {value:g}")
        return said


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is none, as far as a client sees it."""

    status: int
    retryable: bool | None = None
    """What the gateway says of it; an engine's own answer does not say."""
    retry_after_s: float | None = None


def comes_back_after_s(settings: ClientSettings, refusal: Refusal, retries: int, rng: Random) -> float | None:
    """Seconds until a client that has retried `retries` times asks again; None if it does not."""
    if retries >= settings.max_retries:
        return None
    told_s = refusal.retry_after_s if settings.obeys else None
    willing = refusal.retryable if settings.obeys else None
    if willing is None:
        willing = refusal.status >= 500 or refusal.status in RETRIED
    if not willing or (told_s is not None and told_s > LONGEST_WAIT_S):
        return None
    if told_s is not None and told_s > 0:
        return told_s
    back_off_s: float = min(FIRST_BACK_OFF_S * 2**retries, LONGEST_BACK_OFF_S)
    return back_off_s * (1.0 - 0.25 * rng.random())
