"""Live and simulated: what a gateway saw, how long its wire was, and when two sides agree."""

from __future__ import annotations

import asyncio
from io import StringIO
from random import Random

import msgspec
import pytest
from rich.console import Console

from tests.demo.test_neighbours import QUOTA, record, run
from tidegate.core.records import Distribution, RequestRecord
from tidegate.demo.neighbours import scenario
from tidegate.demo.neighbours.agreement import Agreement, agreement_of
from tidegate.demo.neighbours.comparison import compare
from tidegate.demo.neighbours.scenario import BY_TOKENS, NOISY
from tidegate.demo.neighbours.seen import seen_of
from tidegate.demo.neighbours.side_by_side import agreement
from tidegate.demo.neighbours.wire import network_of, time_round_trips
from tidegate.demo.stage import Stage, configured
from tidegate.workload.requests import PlannedRequest


def at_gateway(tenant: str, arrived_at: float, ttft_s: float | None = 0.1) -> RequestRecord:
    """A request as a gateway recorded it."""
    return RequestRecord(
        request_id=0,
        tenant=tenant,
        priority="",
        pool="demo",
        arrived_at=arrived_at,
        first_token_at=None if ttft_s is None else arrived_at + ttft_s,
        ended_at=arrived_at + 1,
    )


def test_what_a_gateway_saw() -> None:
    """Requests at the instants of their arrival, a tenant's in their order; what was not sent lacks."""
    planned = [
        PlannedRequest(at_s=at_s, tenant=tenant, prompt_tokens=tokens, output_tokens=1)
        for at_s, tenant, tokens in [(0.0, "ada", 10), (0.5, NOISY, 20), (0.6, "ada", 30), (0.7, "ada", 40)]
    ]
    clients = [
        msgspec.structs.replace(record(each.tenant), request_id=number, arrived_at=100 + each.at_s)
        for number, each in enumerate(planned)
    ]
    clients[2] = msgspec.structs.replace(clients[2], dispatched_at=None)
    gateway = [
        at_gateway("ada", 100.75, None),
        at_gateway(NOISY, 100.80, 3.0),
        at_gateway("ada", 100.25, 0.25),
    ]

    found = seen_of(BY_TOKENS, planned, clients[::-1], gateway)

    assert [each.prompt_tokens for each in found.requests] == [10, 40, 20]
    assert [each.at_s for each in found.requests] == pytest.approx([0.25, 0.75, 0.80])
    assert found.ttfts_s == [0.25]
    assert seen_of(BY_TOKENS, planned, [], []).requests == []


@pytest.mark.parametrize(
    ("trips_s", "delay_s", "jitter_s"),
    [
        ([0.001 * number for number in range(11)], 0.0005, 0.004),  # quick: 1 ms, on average: 5 ms
        ([0.002], 0.001, 0.0),
        ([-0.001, -0.002], 0.0, 0.0),  # timers may be early, wires not
        ([], 0.0, 0.0),
    ],
)
def test_a_wire_as_it_was_measured(trips_s: list[float], delay_s: float, jitter_s: float) -> None:
    """There and back in the time of a quick trip, and what an average one takes beyond that on the way."""
    found = network_of(trips_s)

    assert (found.delay_s, found.jitter_s) == pytest.approx((delay_s, jitter_s))
    assert found.problems() == []


def test_the_wire_is_timed_until_told_otherwise() -> None:
    """Checks go to every engine in turn, and end when cancelled."""
    assert asyncio.run(five_trips()) == 5


async def five_trips() -> int:
    """Once around four engines, and one more."""
    stage = Stage(configured(scenario.CONFIG), scenario.profile(1.0), Random(0))
    await stage.start()
    trips_s: list[float] = []
    try:
        timing = asyncio.create_task(
            time_round_trips([engine.port for engine in stage.engines.values()], trips_s)
        )
        while len(trips_s) < 5:  # noqa: ASYNC110 - what is timed tells nobody
            await asyncio.sleep(0.02)
        timing.cancel()
        await asyncio.gather(timing, return_exceptions=True)
    finally:
        await stage.stop()

    assert timing.cancelled()
    return len(trips_s)


LIVE = compare([run(0.2), run(2.0, 30), run(0.22, 11)], QUOTA, seed=0, speed=1.0, complete=True)


def compared(*simulated_s: float) -> Agreement:
    """With a live run of 200 ms, 2 s and 220 ms at the gateways."""
    ttfts_s = [Distribution.of([ttft_s] * 5) for ttft_s in (0.2, 2.0, 0.22)]
    runs = [run(ttft_s, served) for ttft_s, served in zip(simulated_s, (0, 30, 11), strict=True)]
    return agreement_of(LIVE, ttfts_s, runs, Distribution.of([0.001, 0.003]))


@pytest.mark.parametrize(
    ("found", "within", "same_ranking", "said"),
    [
        (compared(0.2, 2.0, 0.22), True, True, "within 0.0% of the gateways'"),
        (compared(0.229, 1.75, 0.23), True, True, "within 14.5%"),
        (compared(0.2, 2.4, 0.22), False, True, "within 20.0%"),
        (compared(0.225, 2.0, 0.2), True, False, "in ANOTHER order"),
    ],
)
def test_when_two_sides_agree(found: Agreement, within: bool, same_ranking: bool, said: str) -> None:
    """Mean, P50 and P95 of every run within 15 %, and the runs in the same order."""
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        console.print(agreement(found))
    text = " ".join(captured.get().split())

    assert (found.within, found.same_ranking, found.agrees) == (
        within,
        same_ranking,
        within and same_ranking,
    )
    assert said in text
    assert "2ms on average" in text
    assert "…" not in text


def test_sides_of_a_run() -> None:
    """Ratios are each side's own, and shares of the quota are over the time of each."""
    found = compared(0.2, 2.1, 0.22)
    by_requests = found.runs[1]

    assert by_requests.gateway.slowdown == pytest.approx(10)
    assert by_requests.simulated.slowdown == pytest.approx(10.5)
    assert by_requests.differences == pytest.approx({"mean": 0.05, "p50": 0.05, "p95": 0.05})
    assert by_requests.simulated.quota_ratio == pytest.approx(30 * 100_200 / 1_100_000)
    assert found.runs[0].simulated.quota_ratio == 0
