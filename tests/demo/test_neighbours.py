"""The noisy neighbour: its traffic, its rules, and what counts as proof."""

from __future__ import annotations

from io import StringIO
from math import nan

import msgspec
import pytest
from rich.console import Console

from tidegate.bench.load import LoadRecord
from tidegate.core.reasons import Reason
from tidegate.demo.neighbours import scenario
from tidegate.demo.neighbours.comparison import Comparison, Quota, compare
from tidegate.demo.neighbours.figures import RunFigures, figures_of
from tidegate.demo.neighbours.scenario import BASELINE, BY_REQUESTS, BY_TOKENS, NOISY, OTHERS
from tidegate.demo.neighbours.view import verdict
from tidegate.demo.stage import shipped

QUOTA = Quota(
    tokens_per_minute=1_100_000,
    burst_tokens=150_000,
    capacity_tokens_per_minute=4_000_000,
    tenants=4,
    equal_share_tokens_per_minute=1_000_000,
)


def test_the_traffic_is_the_same_whatever_the_rule() -> None:
    """The noisy tenant moves nobody's request, and each keeps to the request limit of all."""
    requests = scenario.traffic(seed=1, for_s=300.0, speed=1.0)
    others = [each for each in requests if each.tenant != NOISY]

    assert scenario.under(BASELINE, requests) == others
    assert scenario.under(BY_REQUESTS, requests) == scenario.under(BY_TOKENS, requests) == requests
    assert [each.at_s for each in requests] == sorted(each.at_s for each in requests)
    for name in (*OTHERS, NOISY):
        per_minute = sum(each.tenant == name for each in requests) / 5
        assert 35 < per_minute <= scenario.REQUESTS_PER_MINUTE, name


def test_speed_changes_nothing_but_the_pace() -> None:
    """The same requests at half the time between them, and limits, waits and steps to match."""
    slow, fast = (scenario.traffic(seed=1, for_s=30.0, speed=speed) for speed in (1.0, 2.0))
    config = shipped(scenario.CONFIG)
    ruled = scenario.ruled(config, BY_TOKENS, 2.0)
    before, after = config.tenants[NOISY].limits, ruled.tenants[NOISY].limits

    assert [msgspec.structs.replace(each, at_s=2 * each.at_s) for each in fast] == slow
    assert before is not None
    assert after is not None
    assert before.tokens_per_minute is not None
    assert after.tokens_per_minute == 2 * before.tokens_per_minute
    assert after.burst_s == before.burst_s / 2
    assert ruled.classes["default"].max_wait_s == config.classes["default"].max_wait_s / 2
    assert scenario.profile(2.0).curve == scenario.profile(1.0).curve
    assert scenario.profile(2.0).replica.speed == 2 * scenario.profile(1.0).replica.speed


def test_what_the_file_says_of_the_fleet() -> None:
    """Its capacity, an equal share that every quota reaches, and a bucket that holds one noisy prompt."""
    config = shipped(scenario.CONFIG)
    (pool,) = config.pools.values()
    capacity = scenario.capacity_tokens_per_minute(len(pool.replicas))

    assert capacity == pytest.approx(4.18e6, rel=0.005)
    for tenant in config.tenants.values():
        limits = tenant.limits
        assert limits is not None
        assert limits.tokens_per_minute is not None
        assert limits.tokens_per_minute >= capacity / len(config.tenants)
        bucket = limits.tokens_per_minute * limits.burst_s / 60
        assert bucket > scenario.NOISY_PROMPT_TOKENS + scenario.NOISY_OUTPUT_TOKENS


def test_request_limits_stand_alone() -> None:
    """Under the request rule nobody has a token limit, and everybody the same number of requests."""
    ruled = scenario.ruled(shipped(scenario.CONFIG), BY_REQUESTS, 1.0)

    for tenant in ruled.tenants.values():
        assert tenant.limits is not None
        assert (tenant.limits.requests_per_minute, tenant.limits.tokens_per_minute) == (60.0, None)


def record(tenant: str, ttft_s: float | None = 0.2, reason: Reason | None = None) -> LoadRecord:
    """A request that was planned at 0; without a first token, it was still open when the run ended."""
    ok = reason is None and ttft_s is not None
    return LoadRecord(
        request_id=0,
        tenant=tenant,
        priority="",
        pool="demo",
        arrived_at=0.0,
        dispatched_at=0.01,
        first_token_at=ttft_s,
        ended_at=1.0,
        prompt_tokens=100_000,
        output_tokens=200,
        asked_tokens=200,
        reason=reason,
        error="" if ok else "http_429" if reason else "unfinished",
        status=200 if ok else 429 if reason else 0,
    )


def test_figures_of_a_run() -> None:
    """Others and noisy apart, in the scenario's seconds; who got no token is counted, not timed."""
    found = figures_of(
        BY_TOKENS,
        [
            record("ada"),
            record("ben", ttft_s=None),
            record(NOISY),
            record(NOISY, None, Reason.TOKEN_QUOTA),
            record(NOISY, None),
        ],
        speed=4.0,
        sent_s=60.0,
    )

    assert (found.others.requests, found.others.started) == (2, 1)
    assert found.others.ttft_s.p95 == pytest.approx(0.8)
    assert found.others.failed == {"unfinished": 1}
    assert (found.noisy.requests, found.noisy.served, found.noisy.refused) == (3, 1, 1)
    assert found.noisy_tokens_per_minute == 100_200
    assert found.lag_s.max == pytest.approx(0.04)


def run(ttft_s: float, served: int = 0) -> RunFigures:
    """A minute in which every other got its first token after `ttft_s`."""
    return figures_of(BY_TOKENS, [record("ada", ttft_s)] * 5 + [record(NOISY)] * served, 1.0, 60.0)


def compared(ttft_s: float, served: int, complete: bool = True, quota: Quota = QUOTA) -> Comparison:
    """Against a baseline of 200 ms, with request limits that make it two seconds."""
    return compare([run(0.2), run(2.0, 30), run(ttft_s, served)], quota, seed=0, speed=1.0, complete=complete)


GREEDY = msgspec.structs.replace(QUOTA, equal_share_tokens_per_minute=1_200_000)


@pytest.mark.parametrize(
    ("found", "held", "said"),
    [
        (compared(0.22, 11), True, "Limit tokens, not requests."),
        (compared(0.25, 11), False, "did NOT keep the promise"),
        (compared(0.22, 10), False, "did NOT keep the promise"),
        (compared(0.22, 11, quota=GREEDY), False, "did NOT keep the promise"),
        (compared(0.22, 11, complete=False), False, "proves nothing"),
    ],
)
def test_the_promise(found: Comparison, held: bool, said: str) -> None:
    """1.2 times the baseline, and 95 % of a quota of at least an equal share, over the whole time."""
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        console.print(verdict(found))
    text = " ".join(captured.get().split())

    assert found.held is held
    assert said in text
    assert "10.00" in text  # the ratio under request limits
    assert "…" not in text


def test_nothing_is_compared_with_nothing() -> None:
    """Without a baseline there is no ratio, and no promise that was kept."""
    empty = figures_of(BASELINE, [], 1.0, 0.0)
    found = compare([empty, empty, empty], QUOTA, seed=0, speed=1.0, complete=True)

    assert str(found.slowdown_by_tokens) == str(nan)
    assert not found.held
