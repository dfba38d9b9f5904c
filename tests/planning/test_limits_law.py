"""Does a tenant that sends all it can delay the others beyond what they are promised?

The limits as they are emitted, the gateway's own governor, simulated engines: one tenant floods, the others
keep to their limits.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from tests.plan.advice.test_advising import asked
from tidegate.config.loading import parse
from tidegate.core.curve import Linear
from tidegate.core.records import RequestRecord
from tidegate.plan.advice.advising import advise
from tidegate.plan.advised import Advice
from tidegate.plan.answer import Answer
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, Kind, Load
from tidegate.plan.laws.engine import Engine
from tidegate.plan.tenants import tenants_of
from tidegate.planning.emit.emitting import emitted
from tidegate.sim.run import simulate
from tidegate.simulate.fleet import scenario_of
from tidegate.workload.laws.arrivals import Poisson
from tidegate.workload.requests import OpenLoop, PlannedRequest

SPAN_S = 60.0
DEMO = Engine(
    curve=Linear(a_s=15e-3, b_s_per_sequence=1e-4, c_s_per_context_token=1e-7, d_s_per_prefill_token=5e-5),
    max_num_seqs=32,
    max_batched_tokens=2_048,
    kv_tokens=262_144,
    context_tokens=131_072,
)


def kind(tenant: str, prompt_tokens: int, output_tokens: int, share: float) -> Kind:
    return Kind(prompt_tokens=prompt_tokens, output_tokens=output_tokens, share=share, tenant=tenant)


def planned(ask: Ask, answer: Answer, seed: int, floods_per_s: float) -> list[PlannedRequest]:
    """Others at random instants, at the rates of the plan; `noisy` far more than its own, after a silence."""
    rng, requests = Random(seed), []
    whole = sum(each.share for each in ask.load.kinds)
    for number, each in enumerate(ask.load.kinds):
        flooding = each.tenant == "noisy"
        rate = floods_per_s if flooding else answer.requests_per_s * each.share / whole
        instants = Poisson(rate).instants(Random(seed * 100 + number))
        requests += [
            PlannedRequest(
                at_s=at_s,
                prompt_tokens=int(each.prompt_tokens),
                output_tokens=int(each.output_tokens),
                tenant=each.tenant,
            )
            for at_s in takewhile(lambda at_s: at_s < SPAN_S, instants)
            if not flooding or at_s > 5 + rng.random()
        ]
    return sorted(requests, key=lambda each: each.at_s)


def ran(
    ask: Ask, seed: int, floods_per_s: float, *, limited: bool = True
) -> tuple[Advice, list[RequestRecord]]:
    answer = answer_to(ask)
    assert isinstance(answer, Answer)
    tenants = tenants_of(ask.load, {})
    advice = advise(ask, answer, tenants)
    text = emitted((ask, answer, advice), tenants, Path("t.yaml")).configuration
    unlimited = {} if limited else {"tenants.*.limits": "null"}
    config = parse(text, "t.yaml", values=unlimited)
    records: list[RequestRecord] = []
    requests = planned(ask, answer, seed, floods_per_s)
    simulate(scenario_of(config), OpenLoop(iter(requests)), seed, on_record=records.append)
    return advice, records


ALIKE = (
    kind("noisy", 1_000, 200, 1),
    kind("ada", 1_000, 200, 1),
    kind("ben", 1_000, 200, 1),
)
LONG = (
    kind("noisy", 100_000, 200, 40),
    kind("ada", 1_000, 200, 50),
    kind("ben", 1_000, 200, 50),
    kind("cyd", 1_000, 200, 50),
)
PROMPTS_ONLY = (kind("noisy", 4_000, 1, 1), kind("ada", 300, 100, 1), kind("ben", 2_000, 20, 1))
ANSWERS_ONLY = (kind("noisy", 50, 800, 1), kind("ada", 1_000, 50, 1))
UNEQUAL = (kind("noisy", 1_000, 200, 1), kind("ada", 1_000, 200, 8), kind("ben", 1_000, 200, 1))
MOSTLY_ADA = (kind("noisy", 3_000, 1, 1), kind("ada", 3_000, 1, 20), kind("ben", 500, 1, 1))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("ask", "floods_per_s"),
    [
        (asked(1.0, Load(kinds=ALIKE, requests_per_s=6.0), DEMO), 20.0),
        (asked(1.0, Load(kinds=ALIKE, requests_per_s=6.0), DEMO, spare_replicas=1), 200.0),
        (asked(2.0, Load(kinds=PROMPTS_ONLY, requests_per_s=12.0), DEMO), 50.0),
        (asked(2.0, Load(kinds=ANSWERS_ONLY, requests_per_s=3.0), DEMO), 50.0),
        (asked(1.0, Load(kinds=UNEQUAL, requests_per_s=8.0), DEMO), 50.0),
        # One sends most of what comes, so that its weight is raised.
        (asked(2.0, Load(kinds=MOSTLY_ADA, requests_per_s=15.0), DEMO), 50.0),
        # A noisy neighbour: 40 prompts of 100,000 tokens a minute, beside three chats on four replicas.
        (asked(2.0, Load(kinds=LONG, requests_per_s=190 / 60), DEMO, percentile=0.75, replicas=4), 40 / 60),
        (asked(2.0, Load(kinds=LONG, requests_per_s=190 / 60), DEMO, percentile=0.75, replicas=4), 10.0),
    ],
    ids=[
        "alike",
        "alike, one spare",
        "prompts only",
        "answers only",
        "unequal",
        "mostly one",
        "noisy neighbour",
        "flooding neighbour",
    ],
)
def test_a_tenant_that_sends_all_it_can_delays_no_other_beyond_its_bound(
    ask: Ask, floods_per_s: float, seed: int
) -> None:
    """The worst TTFT of each other tenant is within its bound, and the one gets what it may have."""
    advice, records = ran(ask, seed, floods_per_s)

    noisy = [each for each in records if each.tenant == "noisy"]
    assert any(each.ok for each in noisy)
    assert not all(each.ok for each in noisy)
    for name in {each.tenant for each in ask.load.kinds} - {"noisy"}:
        own = [each for each in records if each.tenant == name]
        worst_s = max(each.ttft_s for each in own if each.ok and each.ttft_s is not None)
        bound_s = advice.tenants[name].ttft_bound_s.value
        assert bound_s is not None
        assert worst_s <= bound_s


def test_what_is_planned_is_let_in_beside_who_floods() -> None:
    """Of a tenant that is planned to send four fifths, by equal weights, beside one that sends all it can."""
    ask = asked(1.0, Load(kinds=UNEQUAL, requests_per_s=8.0), DEMO)
    refused, asks = 0, 0
    for seed in (1, 2, 3):
        _, records = ran(ask, seed, 50.0)
        own = [each for each in records if each.tenant == "ada"]
        refused, asks = refused + sum(not each.ok for each in own), asks + len(own)

    assert asks > 1000
    assert refused <= 0.01 * asks  # more than half of them, if each might send a third


SHORT_AND_LONG = (kind("ada", 400, 20, 6), kind("ben", 400, 600, 1))


def test_short_answers_are_let_in_before_they_are_learned() -> None:
    """Beside a tenant whose answers are thirty times as long, as whose they are reserved at first."""
    refused, asks = 0, 0
    for seed in range(1, 6):
        advice, records = ran(asked(1.0, Load(kinds=SHORT_AND_LONG, requests_per_s=7.0), DEMO), seed, 0.0)
        own = [each for each in records if each.tenant == "ada"]
        refused, asks = refused + sum(not each.ok for each in own), asks + len(own)

    assert advice.tenants["ada"].refused_at_first_ratio <= 0.01
    assert asks > 1000
    assert refused <= 0.02 * asks  # a fifth of them, if only what answers cost were in the bucket


def test_without_the_limits_it_does() -> None:
    """The bound is the limits' doing: without them the same flood delays the others, or has them refused."""
    ask = asked(2.0, Load(kinds=LONG, requests_per_s=190 / 60), DEMO, percentile=0.75, replicas=4)
    advice, records = ran(ask, 1, 10.0, limited=False)

    bound_s = advice.tenants["ada"].ttft_bound_s.value
    own = [each for each in records if each.tenant == "ada" and each.ttft_s is not None]
    assert bound_s is not None
    assert max(each.ttft_s or 0.0 for each in own) > bound_s
