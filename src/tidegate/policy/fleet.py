"""The replicas of every pool: who comes and goes, who is probed, and what does an attempt say of its replica?

Composes health, breaker and gate of each replica for the governor. Health is decided here and nowhere else:
drivers only report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tidegate.core.errors import CallerError
from tidegate.core.messages import (
    Command,
    FailureKind,
    Probe,
    Probed,
    ReplicaAdded,
    ReplicaSeen,
)
from tidegate.core.request import Request
from tidegate.policy.breakers import CLOSED
from tidegate.policy.pool import Member, Pool
from tidegate.policy.timers import Timers

NEUTRAL = frozenset({FailureKind.BUSY})
"""Says nothing about a replica's health."""


@dataclass(slots=True, eq=False)
class Fleet:
    """Every replica by its name, which is unique in the fleet. Methods return the pool to look at, if any."""

    pools: dict[str, Pool]
    timers: Timers[object]
    members: dict[str, Member] = field(default_factory=dict)

    # -- coming and going -------------------------------------------------------------------------

    def add(self, event: ReplicaAdded, now: float) -> Pool:
        """A replica joins its pool, and is probed at once."""
        pool = self.pools.get(event.pool)
        if pool is None:
            raise CallerError(f"replica {event.replica} joins {event.pool}, which is no pool")
        if event.replica in self.members:
            raise CallerError(f"replica {event.replica} is there already")
        member = self.members[event.replica] = pool.add(event, now)
        self._probe_at(now, member)
        return pool

    def remove(self, name: str) -> None:
        """A replica is gone; what runs there keeps its hold until it ends."""
        member = self.members.pop(name, None)
        if member is not None:
            member.pool.remove(name)
            self.timers.forget()

    def drain(self, name: str, now: float, drain: bool) -> Pool | None:
        """Out of the set, or back into it."""
        member = self.members.get(name)
        if member is None:
            return None
        member.replica.on_drain(now, drain)
        member.pool.look_again_at(member)
        return member.pool

    # -- what it says of itself -------------------------------------------------------------------

    def seen(self, event: ReplicaSeen, now: float) -> Pool | None:
        """A scrape has come back."""
        member = self.members.get(event.replica)
        if member is None:
            return None
        member.pool.on_seen(member, event, now)
        return member.pool

    def probe(self, member: Member, out: list[Command]) -> None:
        """Ask for a probe unless one is under way. Its answer sets the time of the next one."""
        member.probe_at = inf
        if not member.replica.probing:
            member.replica.probing = True
            out.append(Probe(replica=member.replica.name))

    def probed(self, event: Probed, now: float) -> Pool | None:
        """A probe has come back."""
        member = self.members.get(event.replica)
        if member is None:
            return None
        changed = member.replica.on_probe(now, event.ok)
        if changed:
            member.pool.look_again_at(member)
            if not member.replica.up:
                member.pool.on_cache_lost(member)
        self._probe_at(now + member.replica.health.interval_s, member)
        return member.pool if changed else None

    def _probe_at(self, when: float, member: Member) -> None:
        member.probe_at = when
        self.timers.set(when, member)

    # -- what an attempt says of it ---------------------------------------------------------------

    def answered(self, member: Member, request: Request, status: int, trial: int, now: float) -> None:
        """It answered below 500."""
        black_holes = member.pool.black_holes
        if status == 404:
            self._not_found(member, request, trial, now)
            return
        member.breaker.on_success(now, trial)
        member.replica.on_success()
        if black_holes.suspect and status < 300 and request.generates:
            black_holes.on_answered(member.key, request.tenant)

    def _not_found(self, member: Member, request: Request, trial: int, now: float) -> None:
        """What a 404 says of a replica is mostly nothing."""
        pool, breaker = member.pool, member.breaker
        if not (request.generates and pool.black_holes.on_not_found(member.key, request.tenant)):
            breaker.on_neutral(trial)
        elif breaker.state is not CLOSED:
            breaker.on_failure(now, trial)
        elif pool.may_open_breaker():
            breaker.open(now)
        pool.look_again_at(member)

    def failed(
        self,
        member: Member,
        kind: FailureKind,
        trial: int,
        now: float,
        out: list[Command],
        pause_s: float | None = None,
    ) -> None:
        """An attempt on it failed; `pause_s` is how long it asked to be left alone."""
        member.pool.look_again_at(member)
        if kind in NEUTRAL:
            member.breaker.on_neutral(trial)
            member.replica.on_busy(now, pause_s)
            return
        member.breaker.on_failure(now, trial, member.pool.may_open_breaker())
        if kind is FailureKind.CONNECT:
            member.pool.on_cache_lost(member)  # nobody listens there
        if kind is FailureKind.CONNECT and not member.replica.probing and not member.removed:
            self.probe(member, out)
