"""Is the cheapest found, are prices never guessed, and are accelerators ranked by what they read?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.catalog.accelerators import Price
from tidegate.catalog.catalog import Catalog
from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.plan.alternatives import Speed
from tidegate.plan.answer import Impossible
from tidegate.plan.ask import Ask, Kind, Load, Terms
from tidegate.plan.deployed import deployed
from tidegate.plan.search.candidate import Whole
from tidegate.plan.search.candidates import Space, precisions_of
from tidegate.plan.search.cheapest import Searched, search
from tidegate.plan.search.pairs import FrontFor
from tidegate.plan.search.pareto import front
from tidegate.plan.sizing import Size, size_of

CATALOG = Catalog.shipped()
PRICED = ("h100-sxm", "h200-sxm", "l40s", "l4", "a100-sxm")
TERMS = Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.04))


def chat(rate: float | None, prompt: float = 2000, output: float = 500) -> Load:
    """Equal requests."""
    return Load(kinds=(Kind(prompt_tokens=prompt, output_tokens=output),), requests_per_s=rate)


def space(names: Iterable[str], model: str = "Llama-3.1-8B", **values: object) -> Space:
    """Of accelerators by name."""
    accelerators = tuple(CATALOG.accelerator(name) for name in names)
    return Space(model=CATALOG.model(model), accelerators=accelerators, **values)  # type: ignore[arg-type]


def asked(
    where: Space,
    load: Load,
    terms: Terms = TERMS,
    *,
    kinds: tuple[str, ...] = ("aggregated",),
    front_for: FrontFor | None = None,
) -> Searched | Impossible:
    """What a search answers, at the catalogue's prices or those in the space."""

    def ask_for(deployment: Deployment) -> Ask:
        price = deployment.accelerator.price
        priced = msgspec.structs.replace(terms, per_hour_usd=price.per_hour_usd if price else None)
        return Ask(load=load, replica=deployed(deployment), terms=priced)

    return search(where, ask_for, kinds=kinds, front_for=front_for)


def found(
    where: Space, load: Load, terms: Terms = TERMS, *, kinds: tuple[str, ...] = ("aggregated",)
) -> Searched:
    """The same, which must be possible."""
    answer = asked(where, load, terms, kinds=kinds)
    assert isinstance(answer, Searched), answer
    return answer


def at(prices: dict[str, float | None], model: str = "Llama-3.1-8B", **values: object) -> Space:
    """Accelerators at these prices."""
    accelerators = tuple(
        msgspec.structs.replace(
            CATALOG.accelerator(name),
            price=None if usd is None else Price(per_hour_usd=usd, source="test", dated="2026-11-30"),
        )
        for name, usd in prices.items()
    )
    return Space(model=CATALOG.model(model), accelerators=accelerators, **values)  # type: ignore[arg-type]


def test_all_are_asked_and_the_cheapest_is_the_answer() -> None:
    """What the search finds is the least of what each deployment costs when it is sized by itself."""
    where, load = space(PRICED), chat(20)
    costs = []
    for deployment in where.deployments():
        price = deployment.accelerator.price
        assert price is not None
        try:
            replica = deployed(deployment)
        except Exception:
            continue
        size = size_of(Ask(load=load, replica=replica, terms=TERMS))
        if isinstance(size, Size):
            costs.append(price.per_hour_usd * size.replicas * deployment.devices)

    answer = found(where, load)

    assert answer.best.cost_per_hour == pytest.approx(min(costs))
    assert answer.best.cost_per_million_output_tokens == pytest.approx(
        min(costs) / (20 * 500 * 3600) * 1e6
    )  # an hour's cost over an hour's tokens


@pytest.mark.parametrize(
    "load",
    [
        chat(8),
        chat(200),
        chat(None),
        msgspec.structs.replace(chat(None), users=200),
        msgspec.structs.replace(chat(None), users=500, think_s=20.0),
    ],
    ids=["few", "many", "what one carries", "users who never think", "users who think"],
)
def test_the_least_cost_is_never_above_the_cost(load: Load) -> None:
    """Whatever is left out by its least cost could not have been the answer."""
    terms = msgspec.structs.replace(TERMS, per_hour_usd=3.0)
    if load.requests_per_s is None and load.users is None:
        terms = msgspec.structs.replace(terms, replicas=1, spare_replicas=0)
    for deployment in space(("h100-sxm", "l40s")).deployments():
        one = Whole(Ask(load=load, replica=deployed(deployment), terms=terms), deployment)
        if one.station is not None and one.key is not None:
            assert one.floor[0] <= one.key[0] * (1 + 1e-9), deployment
            again = Whole(one.ask, deployment)
            assert again.may_be_better((one.key[0] * 1.001, *one.key[1:])), deployment
            assert not again.may_be_better((one.key[0] * 0.5, *one.key[1:])), deployment
            point = one.point
            assert point.ttft_s >= one.alone[0] * (1 - 1e-6)
            assert point.tpot_s >= one.alone[1] * (1 - 1e-6)


@settings(max_examples=8, deadline=None)
@given(
    usd=st.lists(st.floats(0.1, 20), min_size=3, max_size=3),
    which=st.integers(0, 2),
    factor=st.floats(0.1, 1.0),
)
def test_a_cheaper_price_never_makes_the_answer_dearer(usd: list[float], which: int, factor: float) -> None:
    """Nor does it change who is best, unless it is the one that became cheaper."""
    names = ("h100-sxm", "l40s", "l4")
    before = found(at(dict(zip(names, usd, strict=True)), tp=(2,)), chat(20))
    cheaper = [price * factor if place == which else price for place, price in enumerate(usd)]
    after = found(at(dict(zip(names, cheaper, strict=True)), tp=(2,)), chat(20))

    assert after.best.cost_per_hour is not None
    assert before.best.cost_per_hour is not None
    assert after.best.cost_per_hour <= before.best.cost_per_hour * (1 + 1e-9)
    assert after.best.accelerator in (before.best.accelerator, names[which])


@settings(max_examples=8, deadline=None)
@given(names=st.permutations(PRICED), rate=st.floats(1, 300))
def test_more_accelerators_never_make_the_best_worse(names: list[str], rate: float) -> None:
    """Each one more is only one more to choose from."""
    costs = []
    for count in range(1, len(names) + 1):
        answer = asked(space(names[:count], tp=(1,), weights=("fp8",)), chat(rate))
        if isinstance(answer, Searched):
            assert answer.best.cost_per_hour is not None
            costs.append(answer.best.cost_per_hour)

    assert costs == sorted(costs, reverse=True)


def test_what_has_no_price_is_apart_and_never_free() -> None:
    """Without a price it is in no ranking by cost; where none has one, the fewest are the answer."""
    answer = found(at({"h100-sxm": 2.95, "b300-sxm": None}), chat(20))
    assert {point.accelerator for point in answer.found.points} == {"h100-sxm"}
    assert [point.accelerator for point in answer.found.unpriced] == ["b300-sxm"]
    assert answer.best.accelerator == "h100-sxm"

    answer = found(at({"l4": None, "b300-sxm": None}), chat(20))
    assert answer.found.points == ()
    assert answer.best.accelerator == "b300-sxm"
    assert answer.best.cost_per_hour is None
    assert answer.following is not None
    assert answer.following.accelerator == "l4"


def test_a_free_accelerator_is_one_with_a_price() -> None:
    """Nought is a price: somebody who owns them may say so."""
    assert found(at({"h100-sxm": 2.95, "l4": 0.0}), chat(20)).best.accelerator == "l4"


def test_more_bits_where_they_cost_nothing() -> None:
    """So small a load takes as many accelerators in any precision: then it is the published one."""
    answer = found(at({"h200-sxm": 6.0}), chat(0.1))

    assert (answer.best.weights, answer.best.kv) == ("bf16", "bf16")
    assert answer.found.as_published == msgspec.structs.replace(answer.best, on_front=False)


def test_the_front_has_what_nothing_beats() -> None:
    """In each of cost, TTFT and TPOT, the less the better; equals are both on it."""
    for goods, expected in [
        ([(1, 1, 1)], [True]),
        ([(1, 2, 2), (2, 1, 2), (2, 2, 1)], [True, True, True]),
        ([(1, 2, 2), (1, 2, 3)], [True, False]),
        ([(1, 1, 1), (1, 1, 1)], [True, True]),
        ([(3, 3, 3), (1, 1, 1), (2, 0, 2)], [False, True, True]),
    ]:
        assert front(goods) == expected, goods


def test_no_point_on_the_front_is_beaten_by_another() -> None:
    """Of those that are told; and each accelerator has its cheapest among them."""
    answer = found(space(PRICED), chat(20), kinds=("aggregated", "disaggregated"))
    points = answer.found.points
    goods = [(point.cost_per_hour or 0.0, point.ttft_s, point.tpot_s) for point in points]

    assert [point.on_front for point in points] == front(goods)
    assert points[0].on_front
    assert {point.accelerator for point in points} == set(PRICED)
    assert answer.best == msgspec.structs.replace(points[0], on_front=False)


def test_one_sequence_decodes_as_fast_as_its_weights_are_read() -> None:
    """Llama-2-7B in fp16: 13.2 GB a token, so 254 tokens/s at most on H100, and the order is bandwidth's."""
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008  # query, key, value, output; gate, up, down
    weights_bytes = 2 * (32 * layer + 4096 * 32000)
    names = ("l4", "h100-sxm", "l40s", "h200-sxm", "a100-sxm", "b200-sxm")

    answer = found(space(names, "Llama-2-7b", tp=(1,), weights=("fp16",), kv=("fp16",)), chat(1, 500, 100))
    speeds = {speed.accelerator: speed for speed in answer.found.speeds}

    assert [speed.accelerator for speed in answer.found.speeds] == [
        "b200-sxm",
        "h200-sxm",
        "h100-sxm",
        "a100-sxm",
        "l40s",
        "l4",
    ]
    for name, tokens_per_s in [("h100-sxm", 253.5), ("a100-sxm", 154.3), ("l40s", 65.4), ("l4", 22.7)]:
        speed = speeds[name]
        assert speed.weights_bytes == pytest.approx(weights_bytes, rel=1e-6)
        assert speed.most_tokens_per_s == pytest.approx(tokens_per_s, rel=1e-3), name
        assert speed.tokens_per_s < speed.most_tokens_per_s
    assert all(_reads(speed) for speed in answer.found.speeds)


def _reads(speed: Speed) -> bool:
    return speed.most_tokens_per_s == pytest.approx(speed.bandwidth_bytes_per_s / speed.weights_bytes)


def test_precisions_are_what_an_accelerator_computes_in() -> None:
    """As published first; int8 only where there is no fp8; none with more bits than were published."""
    for model, accelerator, expected in [
        ("Llama-3.1-8B", "h100-sxm", ("bf16", "fp8")),
        ("Llama-3.1-8B", "a100-sxm", ("bf16", "int8")),
        ("Llama-3.1-8B", "b200-sxm", ("bf16", "fp8", "fp4")),
        ("Llama-3.1-8B", "t4", ("bf16", "int8")),
        ("DeepSeek-V3", "h100-sxm", ("fp8",)),
    ]:
        assert precisions_of(CATALOG.model(model), CATALOG.accelerator(accelerator)) == expected


@pytest.mark.parametrize(
    "where, terms, problem, remedy, binding",
    [
        (space(("l4", "t4"), "Llama-3.1-405B"), TERMS, "8 x NVIDIA L4 have", "--tp 32", "kv_memory"),
        (
            space(("h100-sxm",), "Llama-3.1-405B", weights=("bf16",)),
            TERMS,
            "in bf16 does not fit",
            "--quant fp8",
            "kv_memory",
        ),
        (space(("l4",), "Llama-3.1-70B", tp=(3,)), TERMS, "cannot be shared by 3", "multiple", "kv_memory"),
        (
            space(("l4", "l40s"), "Llama-3.1-70B"),
            Terms(budgets=Budgets(tpot_s=0.005)),
            "the TPOT budget of 5ms is below one step",
            "larger budget",
            "latency_budget",
        ),
    ],
    ids=["no room", "fewer bits would do", "heads", "budget"],
)  # fmt: skip
def test_why_nothing_holds(where: Space, terms: Terms, problem: str, remedy: str, binding: str) -> None:
    """The largest or the nearest is named, with figures, and what would make it possible."""
    answer = asked(where, chat(8), terms)

    assert isinstance(answer, Impossible)
    assert problem in answer.problem
    assert remedy in answer.remedy
    assert answer.binding == binding
    if answer.needed is not None and answer.available is not None:
        assert answer.needed > answer.available


def test_only_disaggregated_ones() -> None:
    """Where nothing else is asked about: those without a price too, and the reasons are theirs."""
    apart = ("disaggregated",)
    every: list[dict[str, float | None]] = [{"h100-sxm": 2.95}, {"b300-sxm": None}]
    for prices in every:
        best = found(at(prices), chat(20), kinds=apart).best
        assert best.kind == "disaggregated"
        assert best.prefill_replicas is not None
        assert 2 <= best.prefill_replicas <= best.replicas - 2  # one of each may be lost

    answer = asked(space(("h100-sxm",)), chat(8), Terms(budgets=Budgets(tpot_s=0.001)), kinds=apart)
    assert isinstance(answer, Impossible)
    assert "over the link" in answer.problem


@pytest.mark.parametrize(
    "load",
    [chat(20, output=1), msgspec.structs.replace(chat(None, output=1), users=40)],
    ids=["a rate", "users who wait"],
)
@pytest.mark.parametrize("tpot_s", [0.04, 1e-4])
def test_answers_of_one_token_have_no_tpot(load: Load, tpot_s: float) -> None:
    """They are searched all the same, by cost and TTFT, whatever the TPOT budget: it is of none of them."""
    terms = Terms(budgets=Budgets(ttft_s=1.0, tpot_s=tpot_s))
    points = found(space(("h100-sxm", "l40s")), load, terms).found.points

    assert {point.accelerator for point in points} == {"h100-sxm", "l40s"}
    assert [point.cost_per_hour for point in points] == sorted(point.cost_per_hour or 0 for point in points)
