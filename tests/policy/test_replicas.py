"""Replicas: when one has room, when it is in the set, and what scrapes and refusals teach about it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.messages import ReplicaSeen
from tidegate.policy.replicas import Hold, Replica
from tidegate.policy.settings import GateSettings, HealthSettings


def replica(
    gate: GateSettings | None = None, health: HealthSettings | None = None, since: float = 0.0
) -> Replica:
    return Replica("r0", gate or GateSettings(), health or HealthSettings(), since=since)


def seen(**values: float) -> ReplicaSeen:
    return ReplicaSeen(replica="r0", **values)  # type: ignore[arg-type]


# -- the gate -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "room"),
    [
        (GateSettings(), True),
        (GateSettings(max_concurrency=2), True),
        (GateSettings(max_concurrency=1), False),
        (GateSettings(kv_tokens=200), True),  # exactly
        (GateSettings(kv_tokens=199), False),
        (GateSettings(max_prefill_tokens=120), True),
        (GateSettings(max_prefill_tokens=119), False),
    ],
)
def test_each_gate_binds_exactly_at_its_limit(gate: GateSettings, room: bool) -> None:
    """Concurrency, KV and waiting prefill each let in what just fits, and not one more."""
    one = replica(gate)
    one.hold(100, 60)
    assert one.has_room(0.0, 100, 60) is room


def test_an_idle_replica_takes_anyone() -> None:
    """An estimate above every limit is still tried where nothing else would be in its way."""
    one = replica(GateSettings(kv_tokens=10, max_prefill_tokens=10))
    assert one.has_room(0.0, 10**9, 10**9)


def test_a_large_prompt_needs_no_idle_replica() -> None:
    """A prompt above the prefill cap goes once no other prompt is being computed, though streams run on."""
    one = replica(GateSettings(max_prefill_tokens=1_000))
    for tokens in (0.1, 0.2, 0.3):  # sums of these leave a rounding residue
        one.on_first_token(one.hold(1, tokens))
    holds = [one.hold(1, tokens) for tokens in (33.3, 7.7, 12.1)]
    assert not one.has_room(0.0, 5_000, 5_000)
    for hold in holds:
        one.on_first_token(hold)
    assert one.has_room(0.0, 5_000, 5_000)


def test_a_stream_that_grows_holds_more() -> None:
    """KV beyond the reservation counts; a figure below it does not shrink what is reserved."""
    one = replica(GateSettings(kv_tokens=100))
    hold = one.hold(50, 10)
    one.grow(hold, 40)
    assert one.kv_held == 50
    one.grow(hold, 70)
    assert not one.has_room(0.0, 31, 1)
    one.release(hold)
    assert one.kv_held == 0


def test_slow_start() -> None:
    """A newcomer's gate grows from a tenth to all of it, but always takes one."""
    one = replica(GateSettings(max_concurrency=10), HealthSettings(slow_start_s=100), since=1_000.0)
    held = 0
    for now, limit in [(1_000.0, 1), (1_009.0, 1), (1_030.0, 3), (1_099.9, 10), (2_000.0, 10)]:
        while one.has_room(now, 1, 1):
            one.hold(1, 1)
            held += 1
        assert held == limit, now


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hold", "first", "grow", "release"]), st.floats(0, 1e5), st.integers(0, 9)
        ),
        max_size=100,
    )
)
def test_holds_balance(steps: list[tuple[str, float, int]]) -> None:
    """Whatever attempts do, an idle replica holds exactly nothing, and a busy one what its holds say."""
    one = replica()
    holds: list[Hold] = []
    for step, tokens, index in steps:
        if step == "hold":
            holds.append(one.hold(tokens, tokens / 2))
        elif holds:
            hold = holds[index % len(holds)]
            if step == "first":
                one.on_first_token(hold)
            elif step == "grow":
                one.grow(hold, tokens)
            else:
                holds.remove(hold)
                one.release(hold)
        assert one.in_flight == len(holds)
        assert abs(one.kv_held - sum(hold.kv_tokens for hold in holds)) < 1e-3
        assert abs(one.prefill_held - sum(hold.prefill_tokens for hold in holds)) < 1e-3
    for hold in holds:
        one.release(hold)
    assert (one.in_flight, one.kv_held, one.prefill_held) == (0, 0.0, 0.0)


# -- the set --------------------------------------------------------------------------------------


def test_one_bad_probe_changes_nothing() -> None:
    """Alternating probes never move it; three bad in a row take it out once, two good bring it back."""
    one = replica()
    assert not any(one.on_probe(float(n), ok=bool(n % 2)) for n in range(40))

    bad = [one.on_probe(50.0, ok=False) for _ in range(5)]
    assert bad == [False, False, True, False, False]
    assert (one.in_set(50.0), one.back_at(50.0)) == (False, inf)
    assert [one.on_probe(60.0, ok=True) for _ in range(3)] == [False, True, False]
    assert one.in_set(60.0)
    assert one.since == 60.0


def test_drained_is_out_of_the_set_at_once() -> None:
    """A drain takes effect with the event; the way back counts as a new start, asking twice does not."""
    one = replica()
    one.on_drain(5.0, True)
    assert (one.in_set(5.0), one.back_at(5.0)) == (False, inf)
    one.on_drain(9.0, False)
    assert one.in_set(9.0)
    one.on_drain(11.0, False)
    assert one.since == 9.0


@pytest.mark.parametrize(
    ("retry_after_s", "pauses"),
    [
        (None, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]),
        (3.0, [3.0, 3.0]),
        (0.0, [0.05]),
        (900.0, [30.0]),
    ],
)
def test_busy_closes_the_gate(retry_after_s: float | None, pauses: list[float]) -> None:
    """Its own Retry-After is honoured within bounds; without one the pause doubles each time in a row."""
    one, now = replica(), 0.0
    for pause_s in pauses:
        one.on_busy(now, retry_after_s)
        assert one.back_at(now) == now + pause_s
        assert not one.in_set(now + pause_s * 0.99)
        now += pause_s
        assert one.in_set(now)
    one.on_success()
    one.on_busy(now, None)
    assert one.back_at(now) == now + 0.25


def test_a_late_refusal_shortens_no_pause() -> None:
    """Of several that came at once, the longest pause holds."""
    one = replica()
    one.on_busy(0.0, 10.0)
    one.on_busy(0.1, 1.0)
    assert one.back_at(0.1) == 10.0


# -- scrapes --------------------------------------------------------------------------------------


def test_what_others_run_there_counts() -> None:
    """Requests that are not ours take room while two scrapes in a row show them and the last is fresh."""
    one = replica(GateSettings(max_concurrency=4), HealthSettings(stale_after_s=10))
    one.hold(1, 1)
    one.on_seen(1.0, seen(running=3, waiting=1))
    assert one.has_room(1.0, 1, 1)  # one scrape alone may be a race with our own
    one.on_seen(2.0, seen(running=3, waiting=1))
    assert not one.has_room(2.0, 1, 1)
    assert not one.has_room(11.99, 1, 1)
    assert one.has_room(12.0, 1, 1)  # stale: our own count is what is left


def test_a_frozen_scrape_hides_no_load_of_ours() -> None:
    """A replica that reports idle for ever is as loaded as what was sent there."""
    one = replica(GateSettings(max_concurrency=2))
    for now in range(5):
        one.on_seen(float(now), seen(running=0, waiting=0))
        assert one.has_room(float(now), 1, 1) is (now < 2)
        if now < 2:
            one.hold(1, 1)


def test_an_engine_tells_its_size() -> None:
    """Slots and KV capacity come from the scrape unless the configuration sets them."""
    one, fixed = replica(), replica(GateSettings(max_concurrency=7, kv_tokens=70))
    assert (one.concurrency_limit, one.kv_limit) == (256, inf)
    for each in (one, fixed):
        each.on_seen(0.0, seen(slots=4, kv_capacity_tokens=1_000))
    assert (one.concurrency_limit, one.kv_limit) == (4, 1_000)
    assert (fixed.concurrency_limit, fixed.kv_limit) == (7, 70)


def test_kv_of_others_takes_room() -> None:
    """KV use beyond what we hold is others', while others are there."""
    one = replica(GateSettings(kv_tokens=1_000))
    one.hold(300, 0)
    for _ in range(2):
        one.on_seen(0.0, seen(running=2, waiting=0, kv_used_ratio=0.8))
    assert one.has_room(0.0, 200, 0)
    assert not one.has_room(0.0, 201, 0)
