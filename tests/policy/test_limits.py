"""Limits: exact waits, continuous refill, all or nothing, debt repaid first, hard never overshot."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import approx, used
from tidegate.core.reasons import Reason
from tidegate.core.request import Usage
from tidegate.policy.limits import Bucket, Charge, Denial, Estimate, Scope, Weights, admit, quota
from tidegate.policy.settings import LimitSettings, Metering, TokenWeights


def scope(name: str = "tenant a", **settings: object) -> Scope:
    return Scope.of(name, LimitSettings(**settings))  # type: ignore[arg-type]


def cost(likely: float, certain: float | None = None, bound: float | None = None) -> Estimate:
    return Estimate(likely if certain is None else certain, likely, likely if bound is None else bound)


def admitted(now: float, scopes: tuple[Scope, ...], estimate: Estimate) -> Charge:
    charge = admit(now, scopes, estimate)
    assert isinstance(charge, Charge), charge
    return charge


def denied(now: float, scopes: tuple[Scope, ...], estimate: Estimate) -> Denial:
    denial = admit(now, scopes, estimate)
    assert isinstance(denial, Denial)
    return denial


# -- the bucket -----------------------------------------------------------------------------------


def test_bucket_names_the_exact_wait() -> None:
    """A bucket refills continuously, and its wait is neither the burst's nor rounded to a window."""
    bucket = Bucket(rate_per_s=1, burst=10)

    for now, credits, wait_s in [
        (0.0, 10, 0.0),  # a full bucket takes a whole burst
        (0.0, 1, 1.0),  # then one more must wait for one credit, not for ten
        (0.95, 1, 0.05),  # 50 ms early is too early
        (1.0, 1, 0.0),  # and then it is there
        (1.0, 0.5, 0.5),
        (99.0, 11, inf),  # more than the burst never fits
        (99.0, 10, 0.0),
    ]:
        assert bucket.wait_s(now, credits) == approx(wait_s, abs=1e-9), (now, credits)
        if wait_s == 0.0:
            bucket.take(now, credits)


@pytest.mark.parametrize("poll_s", [0.01, 0.003, 0.0999, 0.1])
def test_polling_throws_no_refill_away(poll_s: float) -> None:
    """However often it is asked, ten a second are ten a second."""
    bucket = Bucket(rate_per_s=10, burst=10)
    bucket.take(0.0, 10)

    taken = 0
    for tick in range(1, int(10 / poll_s) + 1):
        if bucket.wait_s(tick * poll_s, 1) == 0.0:
            bucket.take(tick * poll_s, 1)
            taken += 1

    assert taken == approx(100, abs=1)


def test_idling_earns_one_burst() -> None:
    """After any idle time there is one burst, once."""
    bucket = Bucket(rate_per_s=6, burst=3)

    for now, wait_s in [
        (5.0, 0),
        (5.02, 0),
        (5.04, 0),
        (5.05, 1 / 6 - 0.05),
        (1_000, 0),
        (1_000, 0),
        (1_000, 0),
    ]:
        assert bucket.wait_s(now, 1) == approx(wait_s, abs=1e-9), now
        if wait_s == 0:
            bucket.take(now, 1)
    assert bucket.wait_s(1_000, 1) > 0


def test_asking_costs_nothing() -> None:
    """A refused try neither spends nor moves the instant at which it would be let in."""
    tenant = scope(tokens_per_minute=1_000)
    admitted(0.0, (tenant,), cost(900))

    for now in range(1, 6):
        denial = denied(float(now), (tenant,), cost(200))
        assert now + denial.retry_after_s == approx(6.0)  # 100 were left, and 100 more take 6 s
        assert denial.reason is Reason.TOKEN_QUOTA
    admitted(6.0, (tenant,), cost(200))


def test_returning_more_than_is_out_never_overfills() -> None:
    """A bucket holds its burst at most, whatever comes back to it."""
    bucket = Bucket(rate_per_s=1, burst=10)
    bucket.take(0.0, 4)
    bucket.give_back(4)
    bucket.give_back(4)

    assert bucket.available(0.0) == 10
    assert bucket.wait_s(0.0, 10) == 0
    bucket.take(0.0, 10)
    assert bucket.available(0.0) == approx(0)


@given(
    st.floats(0.1, 1e4),
    st.floats(1, 1e5),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_no_window_admits_more_than_rate_and_burst(
    rate_per_s: float, burst: float, tries: list[tuple[float, float]]
) -> None:
    """In every window of every history, what was let in is at most rate x window + burst."""
    bucket = Bucket(rate_per_s, burst)
    now, taken = 0.0, []
    for gap_s, share in tries:
        now += gap_s
        if bucket.wait_s(now, share * burst) == 0.0:
            bucket.take(now, share * burst)
            taken.append((now, share * burst))

    for first, (since, _) in enumerate(taken):
        total = 0.0
        for at, credits in taken[first:]:
            total += credits
            assert total <= (rate_per_s * (at - since) + burst) * (1 + 1e-6) + 1e-6


@given(
    st.floats(0.1, 1e4),
    st.floats(1, 1e5),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), max_size=30),
    st.floats(0, 1),
)
def test_the_wait_is_the_first_instant_at_which_it_fits(
    rate_per_s: float, burst: float, takes: list[tuple[float, float]], share: float
) -> None:
    """At now + wait the credits are there, and just before they were not, whatever the debt."""
    bucket = Bucket(rate_per_s, burst)
    now = 0.0
    for gap_s, times in takes:
        now += gap_s
        bucket.take(now, times * burst)

    wait_s = bucket.wait_s(now, share * burst)
    assert bucket.wait_s(now + wait_s + 1e-6, share * burst) == 0.0
    if wait_s > 1e-3:
        assert bucket.wait_s(now + wait_s * 0.99, share * burst) > 0


# -- several scopes -------------------------------------------------------------------------------


def test_all_scopes_or_none() -> None:
    """What one scope refuses was not taken from another, and each kind of limit says its own reason."""
    fleet = scope("the fleet", tokens_per_minute=6_000)
    tenant = scope("tenant a", requests_per_minute=2, max_in_flight=1)
    both = (fleet, tenant)

    first = admitted(0.0, both, cost(100))
    assert denied(0.0, both, cost(100)).reason is Reason.CONCURRENCY_QUOTA
    first.settle(0.0, 100)
    admitted(0.0, both, cost(100)).settle(0.0, 100)  # the refused try has cost no request credit

    third = denied(0.0, both, cost(100))
    assert (third.reason, third.scope) == (Reason.REQUEST_QUOTA, "tenant a")
    assert third.retry_after_s == approx(30.0)
    assert fleet.tokens is not None
    assert fleet.tokens.available(0.0) == approx(5_800)
    assert (fleet.in_flight, tenant.in_flight) == (0, 0)


def test_the_tightest_scope_speaks() -> None:
    """Of several scopes that refuse, the one that needs the longest wait names it."""
    quick = scope("quick", tokens_per_minute=600, burst_s=10)
    slow = scope("slow", tokens_per_minute=60, burst_s=100)
    admitted(0.0, (quick, slow), cost(100))

    denial = denied(0.0, (quick, slow), cost(10))
    assert (denial.scope, denial.retry_after_s) == ("slow", approx(10.0))
    assert "60 tokens a minute" in denial.detail
    assert "10.0 s" in denial.detail


def test_in_flight_is_counted_until_settled() -> None:
    """A place is free again at once when its request is settled, however it ended."""
    tenant = scope(max_in_flight=1)
    for now in range(1_000):
        admitted(float(now), (tenant,), cost(1)).settle(now + 0.5, 0)
    assert tenant.in_flight == 0


def test_a_voided_charge_leaves_no_trace() -> None:
    """What was refused after its charge was taken gets back its request credit too."""
    tenant = scope(requests_per_minute=1, tokens_per_minute=60, max_in_flight=1)

    for _ in range(5):
        admitted(0.0, (tenant,), cost(60)).void()
    admitted(0.0, (tenant,), cost(60))


# -- what cannot be known -------------------------------------------------------------------------


def test_learned_debt_is_repaid_first() -> None:
    """What a stream used beyond its reservation blocks the next one until it has been refilled."""
    tenant = scope(tokens_per_minute=600)  # 10 a second, 600 deep

    charge = admitted(0.0, (tenant,), cost(100))
    charge.extend(0.0, 300)  # totals so far, not increments
    charge.extend(0.0, 700)
    charge.extend(0.0, 650)  # an older total changes nothing
    assert denied(0.0, (tenant,), cost(0)).retry_after_s == approx(10.0)  # even what costs nothing
    charge.settle(0.0, 900)

    assert denied(0.0, (tenant,), cost(10)).retry_after_s == approx(31.0)  # 300 of debt, and its own 10
    admitted(31.0, (tenant,), cost(10))


def test_an_estimate_above_the_burst_waits_for_all_of_it() -> None:
    """A prediction may be wrong, so it never makes a request impossible: the rest becomes debt."""
    tenant = scope(tokens_per_minute=600)

    charge = admitted(0.0, (tenant,), cost(5_000, certain=100))
    assert charge.reserved == [600]
    assert denied(0.0, (tenant,), cost(5_000, certain=100)).retry_after_s == approx(60.0)


def test_what_certainly_exceeds_the_burst_never_fits() -> None:
    """A cost that no tokeniser could bring under the burst is refused for good, and says so."""
    tenant = scope(tokens_per_minute=600)

    admitted(0.0, (tenant,), cost(600, certain=600)).settle(0.0, 0)  # exactly the burst passes
    denial = denied(0.0, (tenant,), cost(601, certain=601))
    assert (denial.reason, denial.retry_after_s) == (Reason.NEVER_FITS, inf)
    assert "never hold more than 600" in denial.detail


def test_hard_reserves_the_upper_bound() -> None:
    """Twenty at once, each able to spend all that is left: one is let in, and nothing is overshot."""
    tenant = scope(tokens_per_minute=10, metering=Metering.HARD)
    estimate = cost(2, certain=1, bound=10)

    answers = [admit(0.0, (tenant,), estimate) for _ in range(20)]
    (charge,) = [each for each in answers if isinstance(each, Charge)]
    charge.extend(1.0, 9)  # within what is reserved: nothing more is taken
    charge.settle(1.0, 4)
    assert tenant.tokens is not None
    assert tenant.tokens.available(1.0) == approx(6 + 1 / 6)


def test_hard_refuses_what_nothing_bounds() -> None:
    """Where no bound is known, a hard scope cannot keep its promise and says what to do."""
    denial = denied(0.0, (scope(tokens_per_minute=10, metering=Metering.HARD),), cost(1, bound=inf))

    assert denial.reason is Reason.NEVER_FITS
    assert "unbounded" in denial.detail
    assert "max_tokens" in denial.detail


@given(st.lists(st.tuples(st.floats(0, 90), st.floats(0, 1), st.floats(0, 1)), max_size=60))
def test_no_window_overshoots_a_hard_limit(steps: list[tuple[float, float, float]]) -> None:
    """What is let in less what comes back is at most rate x window + burst, whichever window is looked at."""
    tenant = scope(tokens_per_minute=60, burst_s=100, metering=Metering.HARD)  # 1 a second, 100 deep
    now, moves = 0.0, [(0.0, 0.0)]
    live: list[Charge] = []
    for gap_s, size, used_up in steps:
        now += gap_s
        charge = admit(now, (tenant,), cost(0, bound=size * 100))
        if isinstance(charge, Charge):
            live.append(charge)
            moves.append((now, size * 100))
        if live and used_up < 0.5:
            ending = live.pop(0)
            ending.settle(now, ending.reserved[0] * used_up)
            moves.append((now, ending.reserved[0] * (used_up - 1)))

    for first, (since, _) in enumerate(moves):
        total = 0.0
        for at, credits in moves[first:]:
            total += credits
            assert total <= at - since + 100 + 1e-6


@given(
    st.lists(
        st.tuples(
            st.floats(0, 30), st.floats(0, 80), st.floats(0, 300), st.sampled_from(["wait", "end", "void"])
        ),
        max_size=50,
    )
)
def test_what_is_settled_is_all_that_is_spent(steps: list[tuple[float, float, float, str]]) -> None:
    """However reservations, extensions and ends follow each other, debt is what was used above the refill."""
    tenant = scope(tokens_per_minute=6, burst_s=1_000, max_in_flight=5)  # 100 deep
    assert tenant.tokens is not None
    now, spent = 0.0, 0.0
    live: list[tuple[Charge, float]] = []
    for gap_s, likely, real, ending in steps:
        now += gap_s
        charge = admit(now, (tenant,), cost(likely, certain=0))
        if isinstance(charge, Charge):
            live.append((charge, real))
        if live and ending != "wait":
            charge, real = live.pop(0)
            if ending == "void":
                charge.void()
            else:
                charge.extend(now, real / 2)
                charge.settle(now, real)
                spent += real
    for charge, _ in live:
        charge.settle(now, 0)

    assert tenant.in_flight == 0
    # Never less than all that was used without any refill, never more than with all of it.
    assert 100 - spent - 1e-6 <= tenant.tokens.available(now) <= min(100, 100 - spent + now / 10) + 1e-6


# -- what a token costs ---------------------------------------------------------------------------


def credits_of(usage: Usage, settings: TokenWeights) -> float:
    return Weights(settings).cost(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)


def test_cached_tokens_cost_their_own_weight() -> None:
    """Cached prompt tokens may be free, cannot exceed the prompt, and count fully by default."""
    free = TokenWeights(cached_input=0.0)

    for weights, usage, credits in [
        (TokenWeights(), used(10_000, 0, 8_000), 10_000),
        (free, used(10_000, 0, 8_000), 2_000),
        (free, used(100, 10, 500), 10),
        (TokenWeights(input=1, cached_input=0.1, output=4), used(100, 10, 50), 50 + 5 + 40),
    ]:
        assert credits_of(usage, weights) == approx(credits)


def test_five_cached_prompts_fit_where_one_uncached_does() -> None:
    """Settled at 2,000 each, five prompts of 10,000 tokens fit a limit of 10,000."""
    tenant = scope(tokens_per_minute=10_000)
    free = TokenWeights(cached_input=0.0)

    for _ in range(5):
        admitted(0.0, (tenant,), cost(2_000)).settle(0.0, credits_of(used(10_000, 0, 8_000), free))
    assert denied(0.0, (tenant,), cost(2_000)).reason is Reason.TOKEN_QUOTA


# -- what is left ---------------------------------------------------------------------------------


def test_quota_shows_the_tightest_bucket_of_each_kind() -> None:
    """The headers speak of the scope that will refuse first; debt shows as nothing left."""
    wide = scope("wide", requests_per_minute=100, tokens_per_minute=1_000)
    narrow = scope("narrow", requests_per_minute=10, tokens_per_minute=60_000)
    charge = admitted(0.0, (wide, narrow), cost(400))

    seen = quota(0.0, (wide, narrow))
    assert seen is not None
    assert (seen.limit_requests, seen.remaining_requests, seen.reset_requests_s) == (10, 9, approx(6.0))
    assert (seen.limit_tokens, seen.remaining_tokens, seen.reset_tokens_s) == (1_000, 600, approx(24.0))

    charge.settle(0.0, 5_000)
    seen = quota(0.0, (wide, narrow))
    assert seen is not None
    assert seen.remaining_tokens == 0


def test_quota_is_absent_where_nothing_is_limited() -> None:
    """No limit, no header; a limit of one kind leaves the other out."""
    assert quota(0.0, ()) is None
    assert quota(0.0, (scope(max_in_flight=3),)) is None
    seen = quota(0.0, (scope(requests_per_minute=5),))
    assert seen is not None
    assert (seen.limit_requests, seen.limit_tokens) == (5, None)
