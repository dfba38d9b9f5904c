"""Which replicas could compute the prompts of others that decode, where both may be chosen?

Of every pair there are too many. What replicas for prompts cost depends little on those that decode: for
each kind of these, the cheapest for prompts on the same accelerators, and the cheapest of all are tried.
Weights and cache are in the same bits on both sides, and accelerators of one maker: no engine is known to
hand caches on between those of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tidegate.plan.ask import Replica
from tidegate.plan.disaggregated.front import Front, link_of
from tidegate.plan.disaggregated.sizing import least_replicas
from tidegate.plan.search.apart import Apart

FrontFor = Callable[[Replica], Front]
"""What is before replicas that decode."""


def front_alike(replica: Replica) -> Front:
    """Others like them, over the catalogue's link."""
    assert replica.deployment is not None
    return Front(prefill=replica, link=link_of(replica.deployment))


def pairs_of(alike: Sequence[Apart]) -> Iterator[Apart]:
    """Of kinds that differ; `alike`: each shape with its own kind before it, of which a rate is known."""
    for decode in alike:
        fitting = [each for each in alike if _fits(each, decode)]
        chosen: list[Apart] = []
        for among in ([each for each in fitting if _same_kind(each, decode)], fitting):
            best = min(among, key=_cost_of_prompts, default=decode)
            if best is not decode and best not in chosen:
                chosen.append(best)
        for each in chosen:
            found = Apart(decode.ask, decode.deployment, _before(each, decode))
            if found.station is not None:
                yield found


def _fits(prefill: Apart, decode: Apart) -> bool:
    """Whether it could be before the other: in the same bits, its other copies and groups being as many."""
    one, other = prefill.deployment, decode.deployment
    names = ("precision", "kv", "attention_dp", "ep", "pp")
    alike = all(getattr(one, name) == getattr(other, name) for name in names)
    written = prefill.front.prefill is prefill.replica  # not another that was asked for
    one_maker = _maker(prefill) == _maker(decode)
    return alike and written and one_maker and prefill.priced == decode.priced


def _maker(apart: Apart) -> str:
    return apart.deployment.accelerator.title.partition(" ")[0]


def _same_kind(one: Apart, other: Apart) -> bool:
    return one.deployment.accelerator.name == other.deployment.accelerator.name


def _cost_of_prompts(apart: Apart) -> float:
    """Dollars or accelerators of those that the rate takes, spare ones too; without one, for one a second."""
    sides, rate, price = apart.station, apart.ask.load.requests_per_s, apart.ask.terms.per_hour_usd
    assert sides is not None
    each = apart.replica.accelerators * (1.0 if price is None else price)
    return each * (least_replicas(apart.ask, sides, rate)[0] if rate else 1 / sides.prefill.sustained_per_s)


def _before(prefill: Apart, decode: Apart) -> Front:
    """The other's own, with such replicas for prompts."""
    link = decode.front.link
    if not link.shared:
        link = link_of(prefill.deployment, decode.deployment)
    return msgspec.structs.replace(
        decode.front, prefill=prefill.replica, link=link, per_hour_usd=prefill.ask.terms.per_hour_usd
    )
