"""Is no planned request refused while another tenant has room, and is the rest shared by weight?"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.advice.test_advising import answered, asked
from tidegate.plan.advice.advising import advise
from tidegate.plan.advice.shares import filled
from tidegate.plan.ask import Kind, Load
from tidegate.plan.tenants import tenants_of

ADMITTED = 2.8 * 2_000
"""Credits/s of two replicas that sustain 2 requests/s each, at 70 %; a request costs 1,000 and 100 x 10."""


def rates(planned: dict[str, float], weights: dict[str, float]) -> dict[str, float]:
    """Of what may be admitted, by tenant, where so many requests/s of each are planned."""
    kinds = tuple(
        Kind(prompt_tokens=1_000, output_tokens=100, share=each, tenant=name)
        for name, each in planned.items()
    )
    load = Load(kinds=kinds, requests_per_s=sum(planned.values()))
    answer = answered(requests_per_s=sum(planned.values()))
    advice = advise(asked(4.0, load), answer, tenants_of(load, weights))
    return {name: float(each.tokens_per_minute.value or 0) / 60 for name, each in advice.tenants.items()}


@pytest.mark.parametrize(
    ("planned", "weights", "shared"),
    [
        # Next to nothing is planned: by weight, which is 1 where none is said.
        ({"a": 1e-6, "b": 1e-6}, {}, {"a": 1.4, "b": 1.4}),
        ({"a": 1e-6, "b": 1e-6}, {"a": 3.0}, {"a": 2.1, "b": 0.7}),
        # A tenth more than is planned of each, 2.2, and of 0.6 that are left its part by weight.
        ({"a": 1.8, "b": 0.2}, {}, {"a": 1.98 + 0.3, "b": 0.22 + 0.3}),
        ({"a": 1.8, "b": 0.2}, {"b": 2.0}, {"a": 1.98 + 0.2, "b": 0.22 + 0.4}),
        # 3.6 may be admitted of 4 replicas' worth: what is planned fits, but not a tenth more of all.
        ({"a": 3.3, "b": 0.2}, {}, {"a": 3.3, "b": 0.3}),
        # 5 are planned: b has room for its busiest minute, 1.54 x, and a what is left.
        ({"a": 4.8, "b": 0.2}, {}, {"a": 3.6 - 0.308, "b": 0.308}),
        ({"a": 2.5, "b": 2.5}, {}, {"a": 1.8, "b": 1.8}),
        ({"a": 2.5, "b": 2.5}, {"a": 2.0}, {"a": 2.4, "b": 1.2}),
    ],
)
def test_what_each_may_send(
    planned: dict[str, float], weights: dict[str, float], shared: dict[str, float]
) -> None:
    """In requests/s: what is planned first, then by weight; where not all fits, max-min fairly by weight."""
    found = rates(planned, weights)

    assert {name: each / 2_000 for name, each in found.items()} == pytest.approx(shared, rel=2e-3)


def test_it_is_said_what_a_tenant_may_use_and_what_it_is_guaranteed() -> None:
    """With what is planned of it; a tenant that is alone has all there is."""
    kinds = tuple(
        Kind(prompt_tokens=1_000, output_tokens=100, share=each, tenant=name)
        for name, each in (("a", 9), ("b", 1))
    )
    shared = advise(asked(4.0, Load(kinds=kinds, requests_per_s=2.0)), answered()).tenants["a"]
    alone = advise(asked(4.0), answered()).tenants["default"]

    assert shared.tokens_per_minute.reason == (
        "81.4% of the 2.8 requests/s that may be admitted: 4,560 credits/s; 3,600 are planned, and what is "
        "left is shared by weight. Guaranteed, whatever the others do within their limits: prefill of 9,091 "
        "tokens/s."
    )
    assert (
        alone.tokens_per_minute.reason == "100% of the 2.8 requests/s that may be admitted: 5,600 credits/s."
    )


def test_who_may_send_more_than_its_share_of_prefill_waits_for_the_bursts_of_others() -> None:
    """It is guaranteed what their rates leave, after their bursts; the others what their weights say."""
    kinds = (
        Kind(prompt_tokens=1_000, output_tokens=1, share=20, tenant="most"),
        Kind(prompt_tokens=1_000, output_tokens=1, share=1, tenant="few"),
    )
    # 9,091 tokens/s of prefill each, as beside ten that decode; 7 requests/s of 1,001 tokens.
    answer = answered(replicas=1, per_s=10.0, requests_per_s=7.0, utilisation=0.7)
    found = advise(asked(2.0, Load(kinds=kinds, requests_per_s=7.0)), answer).tenants
    most, few = found["most"], found["few"]
    whole = 2 * few.guaranteed_tokens_per_s

    def may_send(name: str) -> float:
        """Tokens per second: a burst is so many seconds of them."""
        return found[name].burst_tokens / float(found[name].burst_s.value or 0)

    assert may_send("most") > whole / 2
    assert most.guaranteed_tokens_per_s == pytest.approx(whole - may_send("few"), rel=0.01)
    assert most.guaranteed_tokens_per_s > may_send("most")
    bound_s = float(most.ttft_bound_s.value or 0)
    assert bound_s > (few.burst_tokens + most.burst_tokens + 1_001) / most.guaranteed_tokens_per_s


@given(st.data())
def test_a_level_fills_all_parts(data: st.DataObject) -> None:
    """All is shared out, within each part's bounds; who has more than another for its weight needed it."""
    amounts = st.floats(0.0, 100.0)
    rows = data.draw(st.lists(st.tuples(st.floats(0.1, 10.0), amounts, amounts | st.just(inf)), min_size=1))
    weights = [weight for weight, _, _ in rows]
    least, most = [min(row[1:]) for row in rows], [max(row[1:]) for row in rows]
    high = min(sum(most), 10 * sum(least) + 100)
    whole = sum(least) + data.draw(st.floats(0.0, 1.0)) * (high - sum(least))
    parts = filled(whole, weights, least, most)

    assert sum(parts) == pytest.approx(whole, rel=1e-6, abs=1e-6)
    assert all(low <= part <= up for low, part, up in zip(least, parts, most, strict=True))
    for part, weight, low in zip(parts, weights, least, strict=True):
        for other, own_weight, up in zip(parts, weights, most, strict=True):
            richer = part / weight > other / own_weight * (1 + 1e-6) + 1e-9
            assert not richer or part == low or other == up
