"""How many replicas of each kind do users need who wait for an answer, think, and ask again?

By Little's law N users who think for Z and wait R for an answer send X = N / (R + Z), and R is what requests
meet at that rate: the point where both hold is found by bisection. Whoever waits for a first token sends
nothing (`source`), so that no queue grows without end; where answers are decoded users are taken for as many
requests that come by themselves.

Source: J. D. C. Little, "A proof for the queuing formula L = lambda W" (Operations Research 9, 1961); for
closed systems, D. A. Menasce et al., "Performance by Design" (2004), interactive response time law.
"""

from __future__ import annotations

from math import inf

import msgspec

from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.apart import LINK_UTILISATION, Sides
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.pair import Pair
from tidegate.plan.disaggregated.shortfalls import over_link
from tidegate.plan.disaggregated.sizing import Counts, SizeApart, fleet_of, needed_for, size_for
from tidegate.plan.disaggregated.splitting import best_split

CLOSE = 1e-4
"""Relative width to which a rate is found."""
BELOW = 1 - 1e-6
"""Of what is sustained: at all of it, nobody is ever answered."""
MOST_ROUNDS = 20
"""Until a fleet is what its own users need; two or three are usual."""


def size_for_users(ask: Ask, front: Front, sides: Sides) -> SizeApart | Impossible:
    """As many as it takes, or what there is.

    A fleet that is sized for more than its users send can be smaller, and then they send less still: so each
    fleet is one that holds, and the last is the one that its own users ask for.
    """
    if front.given:
        return _of_what_there_is(ask, front, sides)
    rate, found = min(_alone_per_s(ask, sides), _most_over_link(sides)), None
    for _ in range(MOST_ROUNDS):
        smaller = size_for(ask, front, sides, rate)
        if isinstance(smaller, Impossible):
            return smaller
        rate = rate_of_users(ask, sides, smaller.counts)
        if found is not None and smaller.counts == found.counts:
            break
        found = smaller
    assert found is not None
    if (problem := over_link(ask, sides, rate)) is not None:
        return problem
    spare = found.prefill_spare, found.decode_spare
    needed = found.counts[0] - spare[0], found.counts[1] - spare[1]
    return fleet_of(ask, front, sides, (found.counts, needed), rate)


def rate_of_users(ask: Ask, sides: Sides, counts: Counts) -> float:
    """Requests per second that they come to send to so many replicas."""
    users, think_s = ask.load.users, ask.load.think_s
    assert users is not None
    pair = Pair(sides, counts[0])

    sustained = min(
        counts[0] * sides.prefill.sustained_per_s, counts[1] * sides.decode.sustained_per_s / sides.several
    )
    alone = _alone_per_s(ask, sides)
    low, high = 0.0, min(BELOW * sustained, alone)
    rate, tries = high if high == alone else high / 2, 0
    while high - low > CLOSE * high:
        sent = users / (think_s + pair.mean_s(rate, counts[1]))
        if abs(sent - rate) <= CLOSE * rate / 2:
            break
        low, high = (rate, high) if sent >= rate else (low, rate)
        # What they would send is a good guess, mostly; halves end it.
        tries += 1
        rate = sent if low < sent < high and tries % 3 else (low + high) / 2
    return rate


def _alone_per_s(ask: Ask, sides: Sides) -> float:
    """What they would send if nobody were in another's way."""
    load = ask.load
    assert load.users is not None
    fresh = sides.prefill.batch.lengths.fresh()
    first_s = sum(share * sides.prefill.batch.alone_s(tokens) for tokens, share in fresh)
    rest_s = sides.transfer.alone_s + sides.gaps * sides.decode.batch.saturated(1).tpot_s
    return load.users / (load.think_s + first_s + sides.several * rest_s)


def _most_over_link(sides: Sides) -> float:
    """Requests per second that one link carries which all share; inf where each has its own."""
    sending_s = sides.transfer.sending_s * sides.several
    return LINK_UTILISATION / sending_s if sides.transfer.link.shared and sending_s else inf


def _of_what_there_is(ask: Ask, front: Front, sides: Sides) -> SizeApart | Impossible:
    """Shared out as for the highest rate, and asked by all of them."""
    anybody = msgspec.structs.replace(ask, load=msgspec.structs.replace(ask.load, users=None))
    best = best_split(anybody, front, Sides(anybody, front))
    if isinstance(best, Impossible):
        return best
    counts, most = best
    rate = rate_of_users(ask, sides, counts)
    needed = needed_for(ask, sides, rate) or counts
    return msgspec.structs.replace(fleet_of(ask, front, sides, (counts, needed), rate), most_per_s=most)
