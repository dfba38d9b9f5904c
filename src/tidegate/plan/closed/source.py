"""How many requests do so many users have under way, who wait for an answer, think, and ask again?

A finite source: whoever waits sends nothing, so that no queue grows without end. The number under way is a
birth-death process with births (users - n) / think and, as deaths, what is completed with n under way; of the
law of thinking only the mean matters. It tends to `users` as thinking tends to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property

Numbers = list[tuple[int, float]]
"""How many, ascending, and the share of time."""

NEGLIGIBLE = 1e-9
"""Numbers rarer than this, relative to the likeliest, are left out."""


class Source:
    """Users before so many places, which complete so many requests per second with so many of them taken."""

    def __init__(
        self, users: int, think_s: float, places: int, completed_per_s: Callable[[int], float]
    ) -> None:
        self.users, self.think_s, self.places = users, think_s, places
        self.completed_per_s = completed_per_s

    @cached_property
    def under_way(self) -> Numbers:
        """At any instant."""
        return under_way(self.users, self.think_s, self.completed_per_s)

    @cached_property
    def found(self) -> Numbers:
        """By who asks, of the others: as if he were not there (the arrival theorem; Sevcik and Mitrani, The
        distribution of queuing network states at input and output instants, JACM 28 (1981)).
        """
        return under_way(self.users - 1, self.think_s, self.completed_per_s)

    @cached_property
    def rate_per_s(self) -> float:
        """Requests per second that they come to send."""
        return sum(share * self.completed_per_s(n) for n, share in self.under_way)

    @cached_property
    def occupied(self) -> float:
        """Places that are taken, 0..1."""
        return sum(share * min(n, self.places) for n, share in self.under_way) / self.places


def under_way(users: int, think_s: float, completed_per_s: Callable[[int], float]) -> Numbers:
    """Requests, up and down from the likeliest number. `completed_per_s` grows with its argument."""
    if think_s == 0 or users == 0:
        return [(users, 1.0)]

    def ratio(n: int) -> float:
        return (users - n + 1) / think_s / completed_per_s(n)

    # The ratio of neighbours falls: the likeliest is the last that is likelier than the one before it.
    likeliest = bisect_left(range(1, users + 1), True, key=lambda n: ratio(n) < 1)
    below, share = [], 1.0
    for n in range(likeliest, 0, -1):
        share /= ratio(n)
        if share < NEGLIGIBLE:
            break
        below.append((n - 1, share))
    above, share = [(likeliest, 1.0)], 1.0
    for n in range(likeliest + 1, users + 1):
        share *= ratio(n)
        if share < NEGLIGIBLE:
            break
        above.append((n, share))
    shares = [*reversed(below), *above]
    total = sum(share for _, share in shares)
    return [(n, share / total) for n, share in shares]


def gathered(numbers: Numbers, edges: tuple[float, ...]) -> Numbers:
    """The same in groups of neighbours, each at its rounded mean; a group ends at each of the edges, 0..1."""
    found: Numbers = []
    held, sums, upto, place = 0.0, 0.0, 0.0, 0
    for n, share in numbers:
        held, sums, upto = held + share, sums + n * share, upto + share
        if upto >= edges[place] - 1e-12:
            found.append((round(sums / held), held))
            held, sums = 0.0, 0.0
            while place < len(edges) - 1 and upto >= edges[place] - 1e-12:
                place += 1
    if held:
        found.append((round(sums / held), held))
    return found
