"""A replica as the gateway sees it: what does it hold, and may it be given more?

A replica takes work while it is below its gate: concurrency, KV tokens (prompt plus reserved output of
all that it holds) and prefill tokens still to be computed. What it is believed to hold is what was sent
from here, counted at the moment of choice, plus what its last scrape showed beyond that. Everything above
the gate waits in our queue, where it can still be reordered, moved or cancelled.

Whether it is in the set at all: not drained, not found dead by probes (`fall` bad ones in a row; `rise`
good ones bring it back), and not in a pause that it asked for. (Its breaker stands beside it.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tidegate.core.messages import ReplicaSeen
from tidegate.policy.settings import GateSettings, HealthSettings

DEFAULT_CONCURRENCY = 256
"""vLLM's default `max_num_seqs`; an engine that tells its slots overrides it."""


class Hold:
    """What one attempt occupies on a replica, from its dispatch to its end."""

    __slots__ = ("kv_tokens", "prefill_tokens", "released", "replica")

    def __init__(self, replica: Replica, kv_tokens: float, prefill_tokens: float) -> None:
        self.released: bool = False
        self.replica = replica
        self.kv_tokens = kv_tokens
        self.prefill_tokens = prefill_tokens


@dataclass(slots=True, eq=False)
class Replica:
    """One model server of a pool."""

    name: str
    gate: GateSettings
    health: HealthSettings
    weight: float = 1.0

    in_flight: int = 0
    kv_held: float = 0.0  # tokens
    prefill_held: float = 0.0  # tokens
    draining: bool = False
    up: bool = True
    since: float = -inf  # in the set since
    closed_until: float = -inf  # its own back-pressure: give it nothing new before
    busy_in_a_row: int = 0

    concurrency_limit: float = DEFAULT_CONCURRENCY  # requests that it may hold at once, before slow start
    kv_limit: float = inf  # KV tokens that it may hold at once
    prefill_limit: float | None = None  # prompt tokens still to be computed
    stale_after_s: float = field(init=False)
    slow_start_s: float = field(init=False)
    slots: float = inf
    kv_capacity: float = inf
    others: float = 0.0  # requests on it that are not ours, at the last scrape
    kv_others: float = 0.0
    seen_at: float = -inf
    probing: bool = False
    stirred: list[Replica] = field(default_factory=list)
    """Told once of what may change its rank; the reader clears `is_stirred`."""
    is_stirred: bool = False
    _others_seen: float = 0.0
    _good: int = 0
    _bad: int = 0

    # -- the set ----------------------------------------------------------------------------------

    def in_set(self, now: float) -> bool:
        """Whether routing may consider it at all."""
        return self.up and not self.draining and now >= self.closed_until

    def back_at(self, now: float) -> float:
        """When it is in the set again by itself; inf if only a probe or an operator can bring it back."""
        return max(now, self.closed_until) if self.up and not self.draining else inf

    def on_probe(self, now: float, ok: bool) -> bool:
        """Count a probe; True if that changed `up`. One bad probe in a row of good ones changes nothing."""
        self.probing = False
        self._good, self._bad = (self._good + 1, 0) if ok else (0, self._bad + 1)
        if self.up and self._bad >= self.health.fall:
            self.up = False
        elif not self.up and self._good >= self.health.rise:
            self.up = True
            self.since = now
        else:
            return False
        self._stir()
        return True

    def on_drain(self, now: float, drain: bool) -> None:
        """An operator takes it out of the set, or back into it."""
        if self.draining and not drain:
            self.since = now
        self.draining = drain
        self._stir()

    # -- the gate ---------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self.prefill_limit = self.gate.max_prefill_tokens
        self.stale_after_s = self.health.stale_after_s
        self.slow_start_s = self.health.slow_start_s
        self._set_limits()

    def _set_limits(self) -> None:
        """What is configured, else what the engine tells."""
        gate, told = self.gate, self.slots if self.slots < inf else DEFAULT_CONCURRENCY
        self.concurrency_limit = told if gate.max_concurrency is None else gate.max_concurrency
        self.kv_limit = self.kv_capacity if gate.kv_tokens is None else gate.kv_tokens
        self._stir()

    def _stir(self) -> None:
        if not self.is_stirred:
            self.is_stirred = True
            self.stirred.append(self)

    def may_have_room(self) -> bool:
        """Whether a request of some size might be given to it, as far as its gate and its state tell."""
        if not self.up or self.draining:
            return False
        cap = self.prefill_limit
        return not self.in_flight or (
            self.in_flight < self.concurrency_limit and (cap is None or self.prefill_held <= max(cap, 1.0))
        )

    def has_room(self, now: float, kv_tokens: float, prefill_tokens: float) -> bool:
        """Whether it may be given one more request now. An idle replica may always be given one."""
        running = float(self.in_flight)
        kv_held = self.kv_held
        if self.others and now < self.seen_at + self.stale_after_s:
            running, kv_held = running + self.others, kv_held + self.kv_others
        if not running:
            return True
        limit = self.concurrency_limit
        if self.slow_start_s:
            limit = max(1.0, limit * self._started(now))
        if running >= limit or kv_held + kv_tokens > self.kv_limit:
            return False
        cap = self.prefill_limit
        # Less than one token is what rounding has left behind, not a prompt.
        return cap is None or self.prefill_held < 1.0 or self.prefill_held + prefill_tokens <= cap

    def _started(self, now: float) -> float:
        return min(1.0, max(0.1, (now - self.since) / self.slow_start_s))

    # -- holds ------------------------------------------------------------------------------------

    def hold(self, kv_tokens: float, prefill_tokens: float) -> Hold:
        """Count one attempt as sent."""
        self.in_flight += 1
        self.kv_held += kv_tokens
        self.prefill_held += prefill_tokens
        self._stir()
        return Hold(self, kv_tokens, prefill_tokens)

    def on_first_token(self, hold: Hold) -> None:
        """Its prompt has been computed."""
        self.prefill_held -= hold.prefill_tokens
        hold.prefill_tokens = 0.0
        if self.prefill_limit is not None:
            self._stir()

    def grow(self, hold: Hold, kv_tokens: float) -> None:
        """It turned out to hold more KV than was reserved."""
        if kv_tokens > hold.kv_tokens:
            self.kv_held += kv_tokens - hold.kv_tokens
            hold.kv_tokens = kv_tokens
            self._stir()

    def release(self, hold: Hold) -> None:
        """The attempt is over. Exactly once."""
        assert not hold.released, "a hold is released once"
        hold.released = True
        self.in_flight -= 1
        if self.in_flight:
            self.kv_held -= hold.kv_tokens
            self.prefill_held -= hold.prefill_tokens
        else:
            self.kv_held = self.prefill_held = 0.0  # leaves no rounding behind
        self._stir()

    # -- what it says of itself -------------------------------------------------------------------

    def on_seen(self, now: float, seen: ReplicaSeen) -> None:
        """A scrape: learn its size, and what it holds beyond what we sent."""
        self.seen_at = now
        if seen.slots is not None:
            self.slots = float(seen.slots)
        if seen.kv_capacity_tokens is not None:
            self.kv_capacity = float(seen.kv_capacity_tokens)
        self._set_limits()
        if seen.running is not None:
            ours = max(self.in_flight, seen.in_flight_before)
            sample = max(0.0, seen.running + (seen.waiting or 0) - ours)
            # Ours may have come or gone while the scrape was on its way: others show in two scrapes in a row.
            self.others, self._others_seen = min(sample, self._others_seen), sample
        if seen.kv_used_ratio is not None and self.kv_limit < inf:
            # Reserved output is in `kv_held` before it is in the engine's cache: only an excess is others'.
            self.kv_others = (
                max(0.0, seen.kv_used_ratio * self.kv_limit - self.kv_held) if self.others else 0.0
            )

    def on_busy(self, now: float, retry_after_s: float | None) -> None:
        """It said 429 or 503: close its gate for as long as it asked, longer each time in a row.

        A replica that refuses at once looks least loaded; without this pause it would draw all traffic.
        """
        self.busy_in_a_row = min(self.busy_in_a_row + 1, 8)
        pause_s = retry_after_s if retry_after_s is not None else 0.25 * 2 ** (self.busy_in_a_row - 1)
        self.closed_until = max(self.closed_until, now + min(max(pause_s, 0.05), 30.0))

    def on_success(self) -> None:
        """It answered below 500."""
        self.busy_in_a_row = 0
