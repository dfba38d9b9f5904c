"""Which deployment serves a load within its budgets at the least cost, and what are the others worth?

For each accelerator and each way to share a replica out, the cheapest precision is found: candidates are
taken up by their least possible cost, and are sized in full until the next cannot be better. Where two cost
the same, more bits are better. A price is never guessed: accelerators without one are compared by their
number, apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf, isnan
from typing import TypeVar

import msgspec

from tidegate.catalog.accelerators import Accelerator
from tidegate.core.errors import ConfigurationError
from tidegate.perf.deployment import Deployment
from tidegate.perf.precisions import BITS
from tidegate.plan.alternatives import Found, Point, RuledOut
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask
from tidegate.plan.disaggregated.sizing import size_apart
from tidegate.plan.search.apart import Apart, Candidate
from tidegate.plan.search.candidate import AskFor, Whole
from tidegate.plan.search.candidates import Space, fits
from tidegate.plan.search.costs import Key
from tidegate.plan.search.pairs import FrontFor, front_alike, pairs_of
from tidegate.plan.search.pareto import Goods, dominated, front
from tidegate.plan.search.shortfalls import no_room, not_within
from tidegate.plan.search.speeds import speeds_of

C = TypeVar("C", bound=Candidate)

KINDS = ("aggregated", "disaggregated")
MOST_DEARER = 4.0
"""Times the cheapest: what costs more is not looked at for being faster, where budgets are held anyway."""


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The best, and what it was chosen from."""

    deployment: Deployment
    ask: Ask
    kind: str
    best: Point
    found: Found

    @property
    def same_load(self) -> bool:
        """Whether all carry what was asked for; else each carries what it can, and tokens are compared."""
        return self.ask.load.requests_per_s is not None or self.ask.load.users is not None

    @property
    def following(self) -> Point | None:
        """The cheapest on other accelerators."""
        others = self.found.points if self.best.cost_per_hour is not None else self.found.unpriced
        return next((each for each in others if each.accelerator != self.best.accelerator), None)


def search(
    space: Space, ask_for: AskFor, *, kinds: Collection[str] = KINDS, front_for: FrontFor | None = None
) -> Searched | Impossible:
    """Of all that the space has. `front_for`: what is before replicas that decode; None: others like them.

    Where only disaggregated ones are asked for, and not which compute prompts, both kinds are chosen.
    ConfigurationError, as `ask_for` has it, where it is for want of something other than memory that no
    deployment can be asked about.
    """
    return _Search(space, ask_for, kinds, front_for).searched()


class _Search:
    def __init__(
        self, space: Space, ask_for: AskFor, kinds: Collection[str], front_for: FrontFor | None
    ) -> None:
        self._space, self._front_for, self._kinds = space, front_for or front_alike, kinds
        self._deployments = 0
        self._refused: ConfigurationError | None = None
        self._candidates: list[Whole] = []
        self._impossible: dict[str, list[Whole]] = {}
        for deployment in space.deployments():
            self._deployments += 1
            try:
                ask = ask_for(deployment)
            except ConfigurationError as error:
                self._refused = error if fits(deployment) else self._refused
                continue
            self._add(Whole(ask, deployment))
        self._aparts: list[Apart] = []

    def searched(self) -> Searched | Impossible:
        """The best, if any holds."""
        if not self._candidates and not self._impossible:
            return self._no_room()
        priced = [each for each in self._candidates if each.priced]
        unpriced = [each for each in self._candidates if not each.priced]
        both = "aggregated" in self._kinds
        chosen: list[Candidate] = list(_bests(priced, _by_accelerator)) if both else []
        if not self._batch_work():
            exact = [_goods(each) for each in chosen]
            for group in _groups(priced, _by_shape) if both else []:
                self._further(group, chosen, exact)
            for apart in self._disaggregated(priced):
                self._further([apart], chosen, exact)
        others: list[Candidate] = list(
            _bests(unpriced, _by_accelerator)
            if both
            else _bests(list(self._disaggregated(unpriced)), _by_accelerator)
        )
        if not chosen and not others:
            return not_within(self._asked(), self._why)
        best = min(chosen or others, key=_exact_key)
        return Searched(
            deployment=best.deployment,
            ask=best.ask,
            kind=best.kind,
            best=best.point,
            found=self._found(chosen, others),
        )

    def _no_room(self) -> Impossible:
        """Raises what was said of the last that there would be room for, and that cannot be asked about."""
        if self._refused is not None:
            raise self._refused
        return no_room(self._space)

    def _add(self, candidate: Whole) -> None:
        if candidate.station is None:
            name = candidate.deployment.accelerator.name
            self._impossible.setdefault(name, []).append(candidate)
        else:
            self._candidates.append(candidate)

    def _batch_work(self) -> bool:
        """Nobody waits for it: there is no latency to be better in."""
        return any(each.ask.terms.within_s is not None for each in self._candidates)

    def _further(self, group: Sequence[Candidate], chosen: list[Candidate], exact: list[Goods]) -> None:
        """Size the best of a group, unless what is known is better in everything, or it is far dearer."""
        most = MOST_DEARER * min((goods[0] for goods in exact), default=inf)
        hopeful = [
            each
            for each in group
            if each.floor[0] <= most and not dominated((each.floor[0], *each.alone), exact)
        ]
        best = _best(hopeful, (most, inf, inf))
        if best is None or best in chosen:
            return
        chosen.append(best)
        exact.append(_goods(best))

    def _disaggregated(self, wholes: Sequence[Whole]) -> Iterable[Apart]:
        """Of each shape, in the precision that is best where replicas do both."""
        if "disaggregated" not in self._kinds:
            return
        alike: list[Apart] = []
        for group in _groups(wholes, _by_shape):
            load, terms = group[0].ask.load, group[0].ask.terms
            if "aggregated" in self._kinds and (load.requests_per_s is None or terms.replicas is not None):
                return
            known = [each for each in group if "key" in each.__dict__ and each.key is not None]
            like = min(known, key=_exact_key) if known else min(group, key=lambda each: each.floor)
            apart = Apart(like.ask, like.deployment, self._front_for(like.replica))
            if apart.station is not None:
                alike.append(apart)
        self._aparts += alike
        yield from alike
        if "aggregated" not in self._kinds:
            for apart in pairs_of(alike):
                self._aparts.append(apart)
                yield apart

    def _found(self, chosen: Sequence[Candidate], others: Sequence[Candidate]) -> Found:
        ordered = sorted(chosen, key=lambda each: _goods(each))
        on_front = front([_goods(each) for each in ordered])
        told = [
            msgspec.structs.replace(each.point, on_front=on)
            for each, on in zip(ordered, on_front, strict=True)
        ]
        cheapest: dict[str, Point] = {}
        for point in told:
            cheapest.setdefault(point.accelerator, point)
        kept = [point for point in told if point.on_front or cheapest[point.accelerator] is point]
        held = {each.deployment.accelerator.name for each in (*chosen, *others)}
        return Found(
            points=tuple(kept),
            unpriced=tuple(sorted((each.point for each in others), key=lambda each: each.accelerators)),
            as_published=self._as_published(),
            speeds=speeds_of(self._space, self._asked()),
            ruled_out=tuple(
                self._ruled_out(each) for each in self._space.accelerators if each.name not in held
            ),
            deployments=self._deployments,
            sized=sum("size" in each.__dict__ for each in (*self._candidates, *self._aparts)),
        )

    def _as_published(self) -> Point | None:
        if "aggregated" not in self._kinds:
            return None
        model = self._space.model
        whole = [
            each
            for each in self._candidates
            if each.priced
            and each.deployment.precision == model.precision
            and BITS.get(each.deployment.kv, 16.0) >= 16
        ]
        best = _best(whole)
        return best.point if best is not None else None

    def _asked(self) -> list[Whole]:
        return [*self._candidates, *(each for some in self._impossible.values() for each in some)]

    @property
    def _why(self) -> Callable[[Whole], Impossible] | None:
        return None if "aggregated" in self._kinds else self._why_not_apart

    def _why_not_apart(self, one: Whole) -> Impossible:
        found = size_apart(one.ask, self._front_for(one.replica))
        if isinstance(found, Impossible):
            return found
        return Impossible(  # its shape or its bits were not those that were tried apart
            problem="the best where replicas do both does not hold when they are apart",
            remedy="another --tp or --quant would do",
            binding="latency_budget",
        )

    def _ruled_out(self, accelerator: Accelerator) -> RuledOut:
        tried = [each for each in self._asked() if each.deployment.accelerator.name == accelerator.name]
        if not tried:
            reason = no_room(msgspec.structs.replace(self._space, accelerators=(accelerator,)))
        else:
            reason = not_within(tried, self._why)
        return RuledOut(accelerator=accelerator.name, because=str(reason))


def _best(candidates: Sequence[C], below: Key | None = None) -> C | None:
    """That with the least key below another, of those that hold; sized are only those that may be it."""
    best: C | None = None
    for each in sorted(candidates, key=lambda one: one.floor):
        if below is not None and each.floor >= below:
            break
        if below is not None and not each.may_be_better(below):
            continue
        if each.key is not None and (below is None or each.key < below):
            best, below = each, each.key
    return best


def _bests(candidates: Sequence[C], by: object) -> Iterable[C]:
    for group in _groups(candidates, by):
        if (best := _best(group)) is not None:
            yield best


def _groups(candidates: Sequence[C], by: object) -> list[list[C]]:
    assert callable(by)
    groups: dict[object, list[C]] = {}
    for each in candidates:
        groups.setdefault(by(each.deployment), []).append(each)
    return list(groups.values())


def _by_accelerator(deployment: Deployment) -> object:
    return deployment.accelerator.name


def _by_shape(deployment: Deployment) -> object:
    return deployment.accelerator.name, deployment.tp, deployment.attention_dp


def _exact_key(candidate: Candidate) -> Key:
    assert candidate.key is not None
    return candidate.key


def _goods(candidate: Candidate) -> Goods:
    """Cost, TTFT and TPOT; cost only, of batch work."""
    point, cost = candidate.point, _exact_key(candidate)[0]
    if isnan(point.ttft_s):
        return (cost,)
    return cost, point.ttft_s, 0.0 if isnan(point.tpot_s) else point.tpot_s  # nan: answers of one token
