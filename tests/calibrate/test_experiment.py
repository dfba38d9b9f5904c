"""Experiments in virtual time: a known curve comes back, and the design is as it must be."""

from __future__ import annotations

import asyncio
from math import inf
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.calibrate.virtual import DELIVERY_S, TRUE, VirtualEngine
from tidegate.calibrate.experiment import CONTEXT_SHARE, LONGEST_TOKENS, Cell, Limits, cells
from tidegate.calibrate.live import Experiment, Measurement
from tidegate.calibrate.report import Report, report_of
from tidegate.calibrate.sources import Found
from tidegate.calibrate.streams import Stream, at_once, points_of
from tidegate.calibrate.told import Told
from tidegate.core.curve import Linear
from tidegate.core.errors import ConfigurationError
from tidegate.sim.profiles import Profile, named

LIMITS = Limits(
    max_num_seqs=32,
    max_batched_tokens=2048,
    kv_tokens=65_536,
    context_tokens=8192,
    for_s=120.0,
    step_s=0.02,
    prefill_tokens_per_s=20_000.0,
)


def told_of(profile: Profile) -> Told:
    """What an engine with metrics tells: all but its seats and its token budget."""
    return Told(
        kv_tokens=profile.replica.kv_tokens,
        context_tokens=profile.replica.context_tokens,
        block_tokens=profile.replica.block_tokens,
    )


def experiment(engine: VirtualEngine, told: Told, for_s: float = 60.0) -> Measurement:
    """What comes of one in virtual time."""
    return asyncio.run(Experiment(engine.send, told, for_s=for_s, now=engine.now).run())


def calibrated(profile: Profile, for_s: float = 60.0) -> Report:
    """The whole way, but for the sockets."""
    engine, told = VirtualEngine(profile), told_of(profile)
    found = experiment(engine, told, for_s)
    known = Told(max_num_seqs=found.seats).over(told)
    return report_of(
        Found(points=found.points, told=known, source="virtual"), file="p.yaml", date="2026-11-30"
    )


@pytest.mark.parametrize(
    "profile", [TRUE, named("demo"), named("vllm-cpu-tiny")], ids=["true", "demo", "tiny"]
)
def test_constants_come_back(profile: Profile) -> None:
    """Each within 1 %, the delivery apart from them, and the seats that nobody told."""
    report = calibrated(profile)
    found, true = report.profile.curve, profile.curve

    assert isinstance(found, Linear)
    assert isinstance(true, Linear)
    for name in Linear.__struct_fields__:
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.01, abs=1e-12), name
    assert report.first_token_overhead_s == pytest.approx(DELIVERY_S, rel=0.05)
    assert report.profile.replica.max_num_seqs == profile.replica.max_num_seqs
    assert report.held_out_error_ratio is not None
    assert report.held_out_error_ratio < 0.005
    measured = report.profile.measured
    assert measured is not None
    assert (measured.warnings, measured.assumed) == ((), ("max_batched_tokens",))
    assert measured.sequences.most == profile.replica.max_num_seqs


def test_each_batch_is_seen_at_contexts_far_apart() -> None:
    """Batch and context vary independently; what is held out lies between what is fitted."""
    planned = [cell for cell in cells(LIMITS) if cell.steps]

    for batch in {cell.sequences for cell in planned}:
        own = sorted((cell.prompt_tokens, cell.held_out) for cell in planned if cell.sequences == batch)
        assert [held_out for _, held_out in own] == [False, True, False], batch
        assert own[-1][0] > 16 * own[0][0], batch
    assert sorted({cell.sequences for cell in planned}) == [1, 2, 6, 13, 32]


def test_the_ends_come_first() -> None:
    """A run that is cut short has seen the smallest and the largest batch, and both ends of the prompts."""
    first = cells(LIMITS)[:6]

    assert {cell.sequences for cell in first if cell.steps} == {1, 32}
    assert len([cell for cell in first if not cell.steps]) == 2


@given(
    st.builds(
        Limits,
        max_num_seqs=st.integers(1, 1024),
        max_batched_tokens=st.integers(16, 16_384),
        kv_tokens=st.integers(512, 10_000_000),
        context_tokens=st.integers(256, 1_000_000),
        for_s=st.floats(1, 3600),
        step_s=st.floats(1e-5, 1),
        prefill_tokens_per_s=st.floats(10, 1e7),
    )
)
def test_no_cell_is_too_large(limits: Limits) -> None:
    """Whatever the engine: each cell fits into its memory, each request into its context; none twice."""
    planned = cells(limits)

    assert len(set(planned)) == len(planned) > 0
    for cell in planned:
        assert 1 <= cell.sequences <= limits.max_num_seqs
        assert 1 <= cell.prompt_tokens <= LONGEST_TOKENS
        assert cell.output_tokens >= max(1, cell.steps)
        if cell.steps:
            whole = cell.prompt_tokens + cell.output_tokens
            assert whole <= CONTEXT_SHARE * limits.context_tokens
            assert cell.sequences * whole <= limits.kv_tokens


def test_the_time_is_kept() -> None:
    """Nothing is begun after the end, and the experiment is repeated while there is time, thrice at most."""
    engine = VirtualEngine()
    experiment(engine, told_of(TRUE), for_s=20.0)
    long = VirtualEngine()
    experiment(long, told_of(TRUE), for_s=1000.0)

    assert 15.0 < engine.now() < 25.0
    counts = [long.cells.count(cell) for cell in dict.fromkeys(long.cells) if cell.steps > 16]
    assert max(counts) == 3


def test_an_engine_that_takes_longer_for_prompts_than_was_thought() -> None:
    """Where the first answers end before the last begin, the next round asks for longer ones."""
    slow = msgspec.structs.replace(
        TRUE, replica=msgspec.structs.replace(TRUE.replica, max_batched_tokens=128)
    )
    engine = VirtualEngine(slow)
    found = experiment(engine, told_of(slow), for_s=600.0)

    assert max(point.sequences for point in found.points) == slow.replica.max_num_seqs
    lengths: dict[tuple[int, int], set[int]] = {}
    for cell in engine.cells:
        lengths.setdefault((cell.sequences, cell.prompt_tokens), set()).add(cell.output_tokens)
    assert any(2 * short in seen for seen in lengths.values() for short in seen)


def failing(stream: Stream, error: str, output_tokens: int = 0) -> Stream:
    """The same answer, had it failed."""
    record = msgspec.structs.replace(
        stream.record, status=0 if error else 200, error=error, output_tokens=output_tokens
    )
    return Stream(record=record, deltas=stream.deltas[:output_tokens])


@pytest.mark.parametrize(
    ("error", "output_tokens", "said"),
    [("http_404_NotFoundError", 0, "http_404_NotFoundError"), ("", 1, "answered 1 of 24 tokens in a stream")],
)
def test_an_engine_that_does_not_answer(error: str, output_tokens: int, said: str) -> None:
    """The first answer tells that nothing can be measured, and why."""
    engine = VirtualEngine()

    async def send(cell: Cell) -> list[Stream]:
        return [failing(each, error, output_tokens) for each in await engine.send(cell)]

    with pytest.raises(ConfigurationError, match=said):
        asyncio.run(Experiment(send, Told(), for_s=10, now=engine.now).run())
    assert len(engine.cells) == 1


def at(*spans: tuple[float, float]) -> list[Stream]:
    """Answers whose first and last tokens came then."""
    (like,) = asyncio.run(VirtualEngine().send(Cell(sequences=1, prompt_tokens=8, output_tokens=2, steps=1)))
    return [Stream(record=like.record, deltas=((first, 1), (last, 48))) for first, last in spans]


@pytest.mark.parametrize(
    ("spans", "seats"),
    [
        ([(1, 2), (1.1, 2.1), (2.2, 3.2), (2.3, 3.3)], 2),  # the others waited for these to end
        ([(1, 2), (1, 2), (1, 2), (1, 2)], 4),
        # One came in one piece, at its end.
        ([(2, 2), (1.1, 2), (2.2, 3.2), (2.3, 3.3), (3.4, 4.4), (3.5, 4.5)], 2),
        ([(1, 2.25), (1.1, 2.25), (2.2, 3.2), (2.21, 3.3)], 2),  # two ends came after the next beginnings
        ([(1, 2), (2, 3), (3, 4)], 1),
        ([(1, 1), (1, 1)], 1),
    ],
)
def test_seats_by_answers_that_came_at_once(spans: list[tuple[float, float]], seats: int) -> None:
    """As many as were answered together for longest: a client that is late now and then misses none."""
    assert at_once(at(*spans)) == seats


def test_a_cell_with_a_failure_is_no_point() -> None:
    """Nor is one whose batch was never whole, or that lacks an answer."""
    engine = VirtualEngine()
    cell = Cell(sequences=3, prompt_tokens=64, output_tokens=40, steps=30)
    streams = asyncio.run(engine.send(cell))
    engine.until(inf)
    late = msgspec.structs.replace(
        streams[0], deltas=tuple((at + 100, deltas) for at, deltas in streams[0].deltas)
    )

    assert len(points_of(cell, streams, 2048)) == 3
    assert points_of(cell, [failing(streams[0], "reset"), *streams[1:]], 2048) == []
    assert points_of(cell, streams[1:], 2048) == []
    assert points_of(cell, [late, *streams[1:]], 2048) == []


def test_tokens_that_come_several_at_a_time() -> None:
    """A step is a token, not a delta."""
    engine = VirtualEngine()
    cell = Cell(sequences=2, prompt_tokens=64, output_tokens=100, steps=90)
    streams = [
        Stream(
            record=each.record,
            deltas=tuple((at, n // 4) for at, n in each.deltas if n % 4 == 0),
        )
        for each in asyncio.run(engine.send(cell))
    ]
    points = points_of(cell, streams, 2048)

    assert len(points) > 1
    for point in points:
        assert point.step_s == pytest.approx(TRUE.curve.step_s(2, point.context_tokens), rel=0.01)


def test_late_tokens_hardly_matter() -> None:
    """With each token up to 2 ms late, and a stall of 50 ms, constants stay within a few per cent."""
    rng, engine = Random(5), VirtualEngine()

    async def send(cell: Cell) -> list[Stream]:
        stall_at = engine.now() + rng.uniform(0, 4)
        return [
            Stream(
                record=each.record,
                deltas=tuple(
                    (at + rng.uniform(0, 2e-3) + (0.05 if at > stall_at else 0.0), n) for at, n in each.deltas
                ),
            )
            for each in await engine.send(cell)
        ]

    found = asyncio.run(Experiment(send, told_of(TRUE), for_s=60, now=engine.now).run())
    measured = Found(points=found.points, told=Told(), source="")
    curve = report_of(measured, file="", date="").profile.curve
    true = TRUE.curve
    assert isinstance(curve, Linear)
    assert isinstance(true, Linear)
    for name in Linear.__struct_fields__[:4]:
        assert getattr(curve, name) == pytest.approx(getattr(true, name), rel=0.05), name


def test_a_tokenizer_of_its_own() -> None:
    """Prompts have as many tokens as were planned by the engine's count, whatever it makes of the text."""
    engine = VirtualEngine()

    async def send(cell: Cell) -> list[Stream]:
        counted = round(1.5 * cell.prompt_tokens) + 20
        return await engine.send(msgspec.structs.replace(cell, prompt_tokens=counted))

    asyncio.run(Experiment(send, told_of(TRUE), for_s=60, now=engine.now).run())

    planned = [cell for cell in engine.cells[2:] if cell.steps > 16]
    assert min(cell.prompt_tokens for cell in planned) == pytest.approx(64, abs=1)
    assert max(cell.prompt_tokens for cell in planned) > TRUE.replica.context_tokens * 0.9
    for cell in engine.cells:
        assert cell.prompt_tokens + cell.output_tokens <= TRUE.replica.context_tokens


def test_what_could_not_be_measured_is_named() -> None:
    """A cell that the engine refuses is missing from the points, and says why."""
    engine = VirtualEngine()

    async def send(cell: Cell) -> list[Stream]:
        streams = await engine.send(cell)
        return [failing(each, "http_400") for each in streams] if cell.prompt_tokens > 5000 else streams

    found = asyncio.run(Experiment(send, told_of(TRUE), for_s=60, now=engine.now).run())

    assert found.failures
    assert set(found.failures.values()) == {"http_400: "}
    assert all("5," in name or "7," in name or "8," in name for name in found.failures)
    assert max(point.prompt_tokens for point in found.points) <= 5000
