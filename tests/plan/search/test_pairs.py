"""Are replicas for prompts chosen by what prompts need, and those that decode by what decoding needs?"""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.search.test_cheapest import asked, chat, found, space
from tidegate.core.records import Budgets
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Kind, Load, Terms
from tidegate.plan.deployed import deployed
from tidegate.plan.disaggregated.front import Front, link_of
from tidegate.plan.disaggregated.sizing import size_apart
from tidegate.plan.search.apart import Apart
from tidegate.plan.search.candidate import Whole
from tidegate.plan.search.pairs import front_alike, pairs_of
from tidegate.plan.sizing import size_of

APART = ("disaggregated",)
NAMES = ("h100-sxm", "l40s", "l4")
TERMS = Terms(budgets=Budgets(ttft_s=1.5, tpot_s=0.04))
BITS = ("fp8",)


def cost(ask: Ask, front: Front) -> float | None:
    """Of one pair, in full; None where it does not hold."""
    size = size_apart(ask, front)
    return None if isinstance(size, Impossible) else front.cost(ask, *size.counts)


@pytest.mark.parametrize("prompt, output", [(6000, 100), (500, 800)])
def test_both_sides_are_chosen(prompt: int, output: int) -> None:
    """Never dearer than sides that are alike, and hardly dearer than the best of all pairs."""
    where, load = space(NAMES, weights=BITS, kv=BITS, tp=(1, 2, 4)), chat(20, prompt, output)
    best = found(where, load, TERMS, kinds=APART).best
    deployments = list(where.deployments())
    every: dict[tuple[str, int, str, int], float] = {}
    for decode in deployments:
        assert decode.accelerator.price is not None
        terms = Terms(budgets=TERMS.budgets, per_hour_usd=decode.accelerator.price.per_hour_usd)
        ask = Ask(load=load, replica=deployed(decode), terms=terms)
        for prefill in deployments:
            price = prefill.accelerator.price
            assert price is not None
            front = Front(
                prefill=deployed(prefill), link=link_of(prefill, decode), per_hour_usd=price.per_hour_usd
            )
            if (each := cost(ask, front)) is not None:
                key = (prefill.accelerator.name, prefill.tp, decode.accelerator.name, decode.tp)
                every[key] = each

    alike = min(each for key, each in every.items() if key[:2] == key[2:])
    chosen = (best.prefill_accelerator or "", best.prefill_tp or 0, best.accelerator, best.tp)
    assert best.cost_per_hour is not None
    assert best.cost_per_hour == pytest.approx(every[chosen])
    assert best.cost_per_hour <= alike * (1 + 1e-9)
    assert best.cost_per_hour <= 1.05 * min(every.values())


def test_pairs_are_in_the_same_bits_and_of_one_maker() -> None:
    """A cache that one side writes the other must be able to read."""
    where = space(("h100-sxm", "mi300x", "l40s"), tp=(1, 2))
    alike = []
    for deployment in where.deployments():
        assert deployment.accelerator.price is not None
        terms = Terms(budgets=TERMS.budgets, per_hour_usd=deployment.accelerator.price.per_hour_usd)
        one = deployed(deployment)
        apart = Apart(Ask(load=chat(5), replica=one, terms=terms), deployment, front_alike(one))
        if apart.station is not None:
            alike.append(apart)
    pairs = list(pairs_of(alike))

    assert pairs
    for each in pairs:
        prefill = each.front.prefill.deployment
        assert prefill is not None
        assert (prefill.precision, prefill.kv) == (each.deployment.precision, each.deployment.kv)
        assert (prefill.accelerator.name == "mi300x") == (each.deployment.accelerator.name == "mi300x")
        assert prefill != each.deployment


def test_of_what_there_is_tokens_are_compared() -> None:
    """So many replicas of one or the other: the cheapest per token, and it carries what it says."""

    def there(replica: object) -> Front:
        front = front_alike(replica)  # type: ignore[arg-type]
        return Front(prefill=front.prefill, link=front.link, replicas=8)

    where = space(("h100-sxm", "l40s"), weights=BITS, kv=BITS)
    answer = asked(where, chat(None), TERMS, kinds=APART, front_for=there)
    assert not isinstance(answer, Impossible), answer

    points = answer.found.points
    assert {each.replicas for each in points} == {8}
    costs = [each.cost_per_million_output_tokens or 0.0 for each in points]
    assert costs == sorted(costs)
    assert all(each.requests_per_s > 0 for each in points)


MOSTLY_CACHED = msgspec.structs.replace(chat(5, 16_000, 200), prefix_hit_ratio=0.9)
SELDOM_LONG = Load(
    kinds=(
        Kind(prompt_tokens=500, output_tokens=200, share=9),
        Kind(prompt_tokens=60_000, output_tokens=200, share=1),
    ),
    requests_per_s=1.0,
)


@pytest.mark.parametrize(
    ("load", "ttft_s", "percentile", "holding"),
    [
        # an L4 computes 1,600 tokens in 0.29 s, and 16,000 in 2.9 s; an H100 in 0.03 and 0.3 s
        (MOSTLY_CACHED, 0.3, 0.95, {"h100-sxm"}),
        (MOSTLY_CACHED, 0.6, 0.95, {"h100-sxm", "l4"}),
        (msgspec.structs.replace(MOSTLY_CACHED, prefix_hit_ratio=0.0), 0.3, 0.95, set()),
        # the mean prompt of 6,450 tokens takes an L4 1.2 s; of the half that is promised none is so long
        (SELDOM_LONG, 0.5, 0.5, {"h100-sxm", "l4"}),
        (SELDOM_LONG, 0.5, 0.95, set()),
    ],
)
def test_what_holds_the_budgets_is_not_ruled_out(
    load: Load, ttft_s: float, percentile: float, holding: set[str]
) -> None:
    """Neither by prompt tokens that come from the cache, nor by prompts that the percentile leaves out."""
    terms = Terms(budgets=Budgets(ttft_s=ttft_s, tpot_s=0.2), percentile=percentile)
    left: set[str] = set()
    for deployment in space(("h100-sxm", "l4"), weights=BITS, kv=BITS, tp=(1,)).deployments():
        one = deployed(deployment)
        ask = Ask(load=load, replica=one, terms=terms)
        apart, whole = Apart(ask, deployment, front_alike(one)), Whole(ask, deployment)

        assert (apart.station is None) == isinstance(size_apart(ask, front_alike(one)), Impossible)
        assert whole.station is not None or isinstance(size_of(ask), Impossible)
        left |= {deployment.accelerator.name} if apart.station is not None else set()
    assert left == holding
