"""Laws of a tape: what was recorded is what was called, in any weather, and through bytes it replays."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.parity.reach import COMMANDS, RACES, shows
from tests.policy.fleet import Fleet, Weather, settings_of
from tests.policy.test_governor_laws import FIXED, WEATHERS
from tidegate.core.messages import (
    Arrived,
    Cancelled,
    DrainAsked,
    Event,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Probed,
    Progressed,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaSeen,
    ShutdownAsked,
)
from tidegate.core.request import Request, Usage
from tidegate.policy.tape import Entry, Recorder, Tape, replay


def recorded(fleet: Fleet) -> list[bytes]:
    """A run, recorded: its calls made again of a governor with a recorder before it."""
    lines: list[bytes] = []
    recorder = Recorder.of(fleet.settings, fleet.weather.seed, lines.append)
    for now, told, _ in fleet.tape:
        if told is None:
            recorder.on_wakeup(now)
        else:
            recorder.handle(told, now)
    assert recorder.take_ended() == fleet.ledger.records
    return lines


def calls_of(lines: list[bytes]) -> list[Entry]:
    """The calls of a tape."""
    return list(Tape.read(lines).calls)


@settings(max_examples=25)
@given(WEATHERS)
def test_a_run_is_on_its_tape_and_replays(weather: Weather) -> None:
    """Each call is a line, to the last bit of its instant, and a fresh governor says the same to it."""
    fleet = Fleet.of(weather)
    fleet.run()

    lines = recorded(fleet)

    calls = [Entry(now=now, event=told, commands=commands) for now, told, commands in fleet.tape]
    assert calls_of(lines) == calls
    tape = Tape.read(lines)
    assert (tape.header.settings, tape.header.seed) == (fleet.settings, weather.seed)
    assert replay(tape) is None
    assert not tape.cut_off
    for name in shows(calls):
        event(name)


def test_the_runs_show_every_kind_of_command_and_every_race() -> None:
    """The law above is of little worth where nothing happens; these weathers are of its kind."""
    shown: Counter[str] = Counter()
    for weather in FIXED:
        fleet = Fleet.of(weather)
        fleet.run()
        shown += shows(Entry(now=now, event=told, commands=out) for now, told, out in fleet.tape)

    assert [name for name in COMMANDS + RACES if not shown[name]] == []


# -- what no driver would tell --------------------------------------------------------------------

SMALL = st.integers(0, 3)
REPLICAS = st.sampled_from(["large-0", "large-1", "small-0", "nobody"])
TEXT = st.text(max_size=5)
SECONDS = st.floats(0, 1e4, allow_nan=False)
OPTIONAL_SECONDS = st.none() | SECONDS
COUNTS = st.integers(0, 10**6)
USAGES = st.none() | st.builds(
    Usage, prompt_tokens=COUNTS, output_tokens=COUNTS, cached_tokens=st.integers(0, 100)
)


def of_attempt(told: type[Event], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """What is told of an attempt of one of a few requests, which may exist or not."""
    return st.builds(told, request_id=SMALL, attempt=st.integers(0, 3), **fields)


REQUESTS = st.builds(
    Request,
    request_id=SMALL,
    model=st.sampled_from(["large", "small", "none"]),
    tenant=st.sampled_from(["tight", "hard"]) | TEXT,
    key=TEXT,
    priority=st.sampled_from(["high", "middle", "low"]),
    prompt_bytes=COUNTS,
    prompt_tokens_known=st.integers(0, 100),
    max_tokens=st.none() | COUNTS,
    choices=st.integers(1, 4),
    generates=st.booleans(),
    streams=st.booleans(),
    body_bytes=COUNTS,
    affinity=st.none() | st.integers(0, 2**64 - 1),
    prefix=st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple),
    prefix_block_tokens=st.floats(0, 1e4),
    timeout_s=OPTIONAL_SECONDS,
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Arrived, REQUESTS),
    of_attempt(FirstToken),
    of_attempt(Progressed, output_tokens=COUNTS),
    of_attempt(Finished, status=st.sampled_from([200, 404]), usage=USAGES, output_tokens=COUNTS),
    of_attempt(
        Failed,
        kind=st.sampled_from(FailureKind),
        committed=st.booleans(),
        usage=USAGES,
        retry_after_s=OPTIONAL_SECONDS,
        detail=TEXT,
    ),
    st.builds(Cancelled, SMALL, COUNTS, USAGES),
    st.builds(Probed, REPLICAS, st.booleans()),
    st.builds(ReplicaSeen, REPLICAS, running=st.none() | SMALL, kv_used_ratio=st.none() | st.floats(0, 1)),
    st.builds(
        ReplicaAdded,
        st.sampled_from(["large", "small"]),
        REPLICAS,
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        max_concurrency=st.none() | st.integers(1, 3),
    ),
    st.builds(ReplicaRemoved, REPLICAS),
    st.builds(DrainAsked, REPLICAS, st.booleans()),
    st.builds(ShutdownAsked, SECONDS),
)
STEPS = st.lists(st.tuples(st.none() | EVENTS, st.sampled_from([0.0, 0.001, 0.3, 7.0])), max_size=60)


@settings(max_examples=200)
@given(STEPS, st.integers(0, 2**64 - 1))
def test_what_can_be_told_can_be_replayed(steps: list[tuple[Event | None, float]], seed: int) -> None:
    """Also what no driver would tell; where the governor raises, it raises the same again."""
    lines: list[bytes] = []
    recorder = Recorder.of(settings_of(Weather(seed=0)), seed, lines.append)
    made = 0
    for (told, _), now in zip(steps, accumulate(after_s for _, after_s in steps), strict=True):
        made += 1
        try:
            _ = recorder.on_wakeup(now) if told is None else recorder.handle(told, now)
        except Exception as error:
            event(f"raised {type(error).__name__}")
            break

    calls = calls_of(lines)
    assert len(calls) == made
    assert replay(Tape.read(lines)) is None
    for call in calls:
        for command in call.commands:
            event(type(command).__name__)
