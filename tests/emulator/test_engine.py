"""Does an engine keep its plan in real time, whatever the clock does?"""

from __future__ import annotations

import asyncio
from math import inf, nextafter
from typing import cast

import msgspec
import pytest

from tests.emulator.clock_loop import ClockLoop
from tidegate.core.curve import Linear
from tidegate.emulator.engine import Choice, Engine
from tidegate.sim.profiles import Profile
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings

ROOMY = ReplicaSettings(max_num_seqs=8, max_batched_tokens=100, kv_tokens=10_000, context_tokens=10_000)
TEN_MS = Profile(curve=Linear(a_s=10e-3), replica=ROOMY)


class Reader:
    """Takes tokens, and notes when how many were there."""

    def __init__(self, loop: ClockLoop) -> None:
        self.loop = loop
        self.seen: list[tuple[float, tuple[int, ...]]] = []
        self.choices: list[Choice] = []

    def flush(self) -> None:
        self.seen.append((round(self.loop.now, 6), tuple(choice.ready for choice in self.choices)))


def running(*sizes: tuple[int, int], profile: Profile = TEN_MS) -> tuple[ClockLoop, Engine, Reader]:
    """An engine that has just been given one request with a choice of each size."""
    loop = ClockLoop()
    engine = Engine(profile, cast(asyncio.AbstractEventLoop, loop))
    reader = Reader(loop)
    for index, (prompt_tokens, output_tokens) in enumerate(sizes):
        choice = Choice(index, 0, Sequence(index, prompt_tokens, output_tokens), True, loop.now)
        choice.taker = reader
        reader.choices.append(choice)
    engine.submit(reader.choices)
    return loop, engine, reader


def test_tokens_come_at_the_end_of_their_steps() -> None:
    """One delivery per step, whatever number of choices; then the timer is gone."""
    loop, engine, reader = running((10, 2), (10, 3))

    while loop.due is not None:
        loop.fire()

    assert reader.seen == [(0.01, (1, 1)), (0.02, (2, 2)), (0.03, (2, 3))]
    assert all(choice.finished for choice in reader.choices)
    assert (engine.replica.running, engine.meter.generation_tokens, engine.meter.prompt_tokens) == (0, 5, 20)


def test_lateness_does_not_add_up() -> None:
    """A step begins where its predecessor was planned to end, so timers that are late never drift."""
    loop, _, reader = running((10, 4))

    while loop.due is not None:
        loop.fire(late_s=0.003)

    assert [seen_at for seen_at, _ in reader.seen] == pytest.approx([0.013, 0.023, 0.033, 0.043])


def test_what_is_overdue_comes_at_once() -> None:
    """After a long pause all due steps are made up for and delivered together."""
    loop, engine, reader = running((10, 9))

    loop.fire()
    loop.fire(late_s=0.045)
    loop.fire()

    assert reader.seen == [(0.01, (1,)), (0.065, (6,)), (0.07, (7,))]
    assert engine.meter.itl_s.sum == pytest.approx(0.06), (
        "metrics tell the plan, not the delay of this process"
    )


@pytest.mark.parametrize("steps", [2, 3, 7, 50, 260])
def test_a_timer_in_the_instant_before_the_last_boundary(steps: int) -> None:
    """Whoever waits gets the last token, though it is the very next instant that it is there."""
    loop, _, _ = running((10, steps))
    for _ in range(steps - 1):
        loop.fire()
    assert loop.due is not None
    last_at = loop.due[0]

    loop, engine, reader = running((10, steps))
    for _ in range(steps - 2):
        loop.fire()
    loop.now = nextafter(last_at, -inf)
    while loop.due is not None:
        loop.fire()

    assert reader.choices[0].finished
    assert engine.meter.generation_tokens == steps


def test_an_idle_engine_begins_when_work_comes() -> None:
    """Idle time is not made up for."""
    loop, engine, reader = running((10, 1))
    loop.fire()
    loop.now = 5.0

    engine.submit([later := Choice(0, 0, Sequence(0, 10, 1), True, 5.0)])
    later.taker = reader
    loop.fire()

    assert reader.seen[-1][0] == pytest.approx(5.01)
    assert engine.meter.ttft_s.sum == pytest.approx(0.02)


def test_a_stall_stops_the_step_and_going_on_completes_it() -> None:
    """What was left of the step is left of it still."""
    loop, engine, reader = running((10, 2))
    loop.now = 0.004

    engine.stall()
    engine.stall()
    assert loop.due is None
    loop.now = 1.0
    engine.go_on()
    engine.go_on()
    loop.fire()

    assert reader.seen == [(1.006, (1,))]


def test_work_that_comes_during_a_stall_waits() -> None:
    """An engine that was idle when it stalled begins when it goes on."""
    loop, engine, reader = running((10, 1))
    loop.fire()
    engine.stall()
    loop.now = 1.0

    engine.submit([later := Choice(0, 0, Sequence(0, 10, 1), True, 1.0)])
    later.taker = reader
    assert loop.due is None
    loop.now = 2.0
    engine.go_on()
    loop.fire()

    assert reader.seen[-1][0] == pytest.approx(2.01)


def test_a_cancelled_choice_is_told_nothing_more() -> None:
    """Not even what the step under way would have given it; the others go on."""
    loop, engine, reader = running((10, 5), (10, 2))

    engine.cancel(reader.choices[0])
    engine.cancel(reader.choices[0])
    loop.fire()
    loop.fire()

    assert reader.seen == [(0.01, (0, 1)), (0.02, (0, 2))]
    assert loop.due is None


def test_slowness_stretches_the_steps_that_follow() -> None:
    """From the next step on; the one under way ends as planned."""
    loop, engine, reader = running((10, 3))

    engine.slow(4.0)
    for _ in range(3):
        loop.fire()

    assert [seen_at for seen_at, _ in reader.seen] == pytest.approx([0.01, 0.05, 0.09])


def test_steps_shorter_than_the_clock_ticks() -> None:
    """A replica of 0.1 ms per step on a clock of 1 ms delivers about ten tokens at each tick."""
    fast = Profile(curve=TEN_MS.curve, replica=msgspec.structs.replace(ROOMY, speed=100.0))
    loop, _, reader = running((10, 100), profile=fast)

    ready: list[int] = []
    while loop.due is not None:
        loop.now = max(loop.now, -(-round(loop.due[0], 7) // 1e-3) * 1e-3)
        loop.fire()
        ready.append(reader.seen[-1][1][0])

    assert ready[-1] == 100
    assert len(ready) <= 20
