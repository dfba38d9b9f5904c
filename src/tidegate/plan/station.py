"""What must be known of a replica to size a fleet of it, wherever that knowledge comes from?"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tidegate.core.records import Budgets
from tidegate.plan.answer import Binding, Gates, Percentiles, Room, Wait
from tidegate.plan.ask import Terms

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
"""Utilisations of which waits are told."""
SLACK = 1 + 1e-9
"""Times a budget, up to which it is held: what rounding makes is no miss."""


class ClassLatencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of one class meet."""

    name: str
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles

    def held(self, budgets: Budgets) -> bool:
        """Whether at the percentile that was asked for they are within every budget; undefined is within."""
        pairs = (
            (self.ttft_s, budgets.ttft_s),
            (self.tpot_s, budgets.tpot_s),
            (self.e2e_s, budgets.e2e_s),
        )
        return not any(budget is not None and found.at_percentile > budget * SLACK for found, budget in pairs)


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """What requests meet at one rate."""

    wait_s: Percentiles
    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    itl_s: Percentiles | None = None
    """Over gaps between tokens; None: not known."""
    sequences: float | None = None
    """In the batch of a replica, mean."""
    classes: tuple[ClassLatencies, ...] = ()
    """Where classes have budgets of their own."""

    def held(self, budgets: Budgets) -> bool:
        """Whether the requests at the percentile that was asked for are within every budget.

        Where none says how long a request may wait, it may not. What is undefined, as TPOT of one token, is
        within all.
        """
        if budgets.ttft_s is None and budgets.e2e_s is None and self.wait_s.at_percentile > 0:
            return False
        whole = ClassLatencies(name="", ttft_s=self.ttft_s, tpot_s=self.tpot_s, e2e_s=self.e2e_s)
        return whole.held(budgets)

    def within(self, terms: Terms) -> bool:
        """The same of what the terms ask: of each class where classes have budgets of their own."""
        if not self.classes:
            return self.held(terms.budgets)
        if not terms.may_wait and self.wait_s.at_percentile > 0:
            return False
        return all(each.held(terms.budgets_of(each.name)) for each in self.classes)


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a replica from more, and the sentence that says so."""

    binding: Binding
    because: str


class Station(Protocol):
    """A kind of replica, under a load and terms that it knows."""

    @property
    def gates(self) -> Gates:
        """How many requests one may have at once."""

    @property
    def sustained_per_s(self) -> float:
        """Requests per second of one replica that always has as many as its gates let in."""

    @property
    def full_tpot_s(self) -> float:
        """TPOT of such a replica."""

    @property
    def decode_steps(self) -> float:
        """Of a request after its first token, mean."""

    def completed_per_s(self, inside: int) -> float:
        """Requests per second of one replica that always has so many, at most as many as its gates let in."""

    def tpot_s(self, inside: int) -> float:
        """TPOT there, mean."""

    @property
    def bound(self) -> Bound:
        """Why its gates and its rate are not higher."""

    def latencies(self, rate_per_s: float, replicas: int) -> Latencies | None:
        """At that rate for all of them, from one queue. None where the queue would grow without end."""

    def within(self, terms: Terms, rate_per_s: float, replicas: int) -> bool:
        """Whether these are within what such terms ask: the same kind of terms, of other budgets maybe."""

    def waits(self, replicas: int) -> tuple[Wait, ...]:
        """How long requests wait for a turn, from 50 % to 95 %, pooled over so many."""

    def room(self, replicas: int, lost: int) -> tuple[Room, ...]:
        """Why a fleet of so many, of which some may be lost, is not used to the full."""
