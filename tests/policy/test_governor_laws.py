"""Laws of the governor: whatever comes, goes, breaks and hangs, accounts are kept and ends come once.

`fleet.py` drives, `ledger.py` objects. Dense on purpose: with sparse arrivals most rules are never reached.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.policy.fleet import Fleet, Weather
from tidegate.core.messages import Command, FailureKind
from tidegate.core.records import RequestRecord
from tidegate.policy.governor import Governor
from tidegate.policy.settings import RoutingPolicy

WEATHERS = st.builds(
    Weather,
    seed=st.integers(0, 2**32),
    arrivals_per_s=st.sampled_from([1.0, 4.0, 12.0]),
    span_s=st.sampled_from([5.0, 15.0]),
    faults=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    cancels=st.sampled_from([0.0, 0.2, 0.6]),
    chaos_s=st.sampled_from([0.3, 2.0, 50.0]),
    routing=st.sampled_from(RoutingPolicy),
    patience_s=st.sampled_from([0.3, 4.0, 10.0]),
    slow_start_s=st.sampled_from([0.0, 0.0, 2.0]),
    tight=st.booleans(),
)

FIXED = [
    Weather(
        seed=seed,
        routing=list(RoutingPolicy)[seed % len(RoutingPolicy)],
        patience_s=(0.5, 4.0, 10.0)[seed % 3],
        faults=(0.2, 0.5)[seed % 2],
        slow_start_s=2.0 if seed % 5 == 0 else 0.0,
        tight=seed % 4 != 3,
    )
    for seed in range(8)
]

REACHED = [
    *("queueing", "dispatch after waiting", "retry", "retry after waiting", "abort", "stale"),
    *("open", "half open", "found down", "back up", "clamp", "fallback", "prefix known"),
    *(f"failed:{kind.value}" for kind in FailureKind),
    *(f"cancelled:{where}" for where in ("queued", "running", "retrying", "streaming")),
    *(f"truncate:{reason}" for reason in ("TOTAL_TIMEOUT", "SHUTTING_DOWN")),
    *(
        f"reject:{reason}"
        for reason in (
            *("NEVER_FITS", "UNKNOWN_MODEL", "REQUEST_QUOTA", "TOKEN_QUOTA", "CONCURRENCY_QUOTA"),
            *("QUEUE_FULL", "WAIT_TOO_LONG", "SHED", "NO_REPLICA", "SHUTTING_DOWN"),
        )
    ),
    *(
        f"evict:{reason}"
        for reason in (
            *("DISPLACED", "QUEUE_TIMEOUT", "TTFT_TIMEOUT", "TOTAL_TIMEOUT", "SHUTTING_DOWN"),
            *("UPSTREAM_BUSY", "UPSTREAM_ERROR", "UPSTREAM_TIMEOUT"),
        )
    ),
]


@settings(max_examples=40)
@given(WEATHERS)
def test_every_law_holds_in_every_weather(weather: Weather) -> None:
    """Gauges return to zero, charges balance, one outcome each, and no command is out of place."""
    fleet = Fleet.of(weather)
    fleet.run()
    for name in REACHED:
        if fleet.ledger.count[name]:
            event(name)


def test_the_laws_are_tested_where_they_matter() -> None:
    """Every state, every reason that policy can give and every kind of failure comes up in the fixed runs."""
    count: Counter[str] = Counter()
    for weather in FIXED:
        fleet = Fleet.of(weather)
        fleet.run()
        count += fleet.ledger.count
    assert [name for name in REACHED if not count[name]] == []


def replayed(fleet: Fleet, merged: bool) -> tuple[list[Command], list[RequestRecord]]:
    """What a fresh governor of the same seed says to the same tape.

    `merged`: a wake-up at the instant of the next event is left to `handle`, which lets it pass first.
    """
    governor = Governor(fleet.settings, Random(fleet.weather.seed))
    commands: list[Command] = []
    tape = fleet.tape
    for index, (now, told, _) in enumerate(tape):
        if told is not None:
            commands += governor.handle(told, now)
        elif not merged or index + 1 == len(tape) or tape[index + 1][0] != now:
            commands += governor.on_wakeup(now)
    return commands, governor.take_ended()


@pytest.mark.parametrize("merged", [False, True], ids=["call by call", "deadlines passed by handle"])
@pytest.mark.parametrize("weather", FIXED[: len(RoutingPolicy)], ids=lambda weather: weather.routing.value)
def test_the_same_tape_gives_the_same_commands(weather: Weather, merged: bool) -> None:
    """Policy has no clock and no dice of its own: a tape replays to the last command and record."""
    fleet = Fleet.of(weather)
    fleet.run()
    wakeups = sum(told is None for _, told, _ in fleet.tape)
    assert wakeups > 50, "a tape without wake-ups shows little"

    commands, records = replayed(fleet, merged)
    assert commands == [command for _, _, given_then in fleet.tape for command in given_then]
    assert records == fleet.ledger.records
