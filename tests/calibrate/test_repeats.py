"""What runs beside an engine only delays it: the quieter repeats count, and how many do not is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.calibrate.test_experiment import told_of
from tests.calibrate.virtual import TRUE, VirtualEngine
from tidegate.calibrate.advice import Judged, warnings_of
from tidegate.calibrate.experiment import Cell
from tidegate.calibrate.live import ROUNDS, Experiment
from tidegate.calibrate.points import Point, decoding
from tidegate.calibrate.repeats import SLOWER, repeat_errors, undisturbed
from tidegate.calibrate.report import Report, report_of
from tidegate.calibrate.sources import Found
from tidegate.calibrate.streams import Stream
from tidegate.calibrate.told import Told
from tidegate.core.curve import Linear
from tidegate.perf.regression import fit


def repeats(*seconds: float, name: str = "4 x 64") -> list[Point]:
    """Steps of one kind that took so long, each in a run of its own."""
    return [
        msgspec.structs.replace(
            decoding(name, each, 1, sequences=4, context_tokens=400, held_out=False), run=run
        )
        for run, each in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        ((1.0, 1.1, 1.2), (1.0, 1.1, 1.2)),
        ((1.0, 1.1, 1.26), (1.0, 1.1)),
        ((3.0, 1.0, 2.9, 1.05, 1.2, 1.31, 2.0, 2.0), (1.0, 1.05, 1.2, 1.31)),  # 1.25 times 1.05
        ((5.0,), (5.0,)),
    ],
)
def test_which_repeats_were_disturbed(seconds: Sequence[float], kept: Sequence[float]) -> None:
    """Those that took over a quarter longer than the quietest quarter of their kind; others stay in order."""
    assert [each.step_s for each in undisturbed(repeats(*seconds))] == list(kept)
    other = repeats(9.0, name="1 x 64")
    assert undisturbed([*other, *repeats(*seconds)])[0] is other[0]


def test_how_far_repeats_are_apart() -> None:
    """As errors of the other runs' median would be; a run is no repeat of itself, nor of another kind."""
    points = [*repeats(0.8, 1.0, 2.0), *repeats(7.0, name="1 x 64")]
    one_run = [msgspec.structs.replace(each, run=5) for each in points]

    assert repeat_errors(points) == pytest.approx([1.5 / 0.8 - 1, 0.4, 0.55])
    assert repeat_errors(one_run) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(1e-4, 10)), min_size=1, max_size=60))
def test_some_of_each_kind_stay(given: list[tuple[int, float]]) -> None:
    """The quietest quarter of each kind at least, and none of what stays took much longer than that."""
    points = [point for kind, seconds in given for point in repeats(seconds, name=f"{kind}")]
    kept = undisturbed(points)

    for name in {each.name for each in points}:
        before = sorted(each.step_s for each in points if each.name == name)
        after = sorted(each.step_s for each in kept if each.name == name)
        assert after == before[: len(after)]
        assert 4 * len(after) >= len(before)
        assert after[-1] <= SLOWER * before[(len(before) - 1) // 4]


def measured_beside(neighbour: float, for_s: float = 60.0) -> tuple[VirtualEngine, Report]:
    """A virtual engine of which that share of the answers take two to four times as long."""
    rng, engine = Random(7), VirtualEngine()

    async def send(cell: Cell) -> list[Stream]:
        streams = await engine.send(cell)
        slower = rng.uniform(2, 4) if rng.random() < neighbour else 1.0
        return [slowed(each, slower) for each in streams]

    experiment = Experiment(send, told_of(TRUE), for_s=for_s, now=engine.now)
    found = asyncio.run(experiment.run())
    told = Found(points=found.points, told=told_of(TRUE), source="virtual", repeated=True)
    return engine, report_of(told, file="", date="")


def slowed(stream: Stream, times: float) -> Stream:
    """The same answer, had everything taken so many times as long."""
    begin, record = stream.record.arrived_at, stream.record
    assert record.first_token_at is not None
    later = [begin + times * (at - begin) for at in (record.first_token_at, record.ended_at)]
    return Stream(
        record=msgspec.structs.replace(record, first_token_at=later[0], ended_at=later[1]),
        deltas=tuple((begin + times * (at - begin), count) for at, count in stream.deltas),
    )


def test_a_neighbour_that_comes_and_goes() -> None:
    """With four answers in ten delayed two to four times, constants are within 10 %, and it is told."""
    _, report = measured_beside(0.4, for_s=300.0)
    curve, measured = report.profile.curve, report.profile.measured

    assert isinstance(curve, Linear)
    assert isinstance(TRUE.curve, Linear)
    for name in Linear.__struct_fields__[:4]:
        assert getattr(curve, name) == pytest.approx(getattr(TRUE.curve, name), rel=0.1), name
    assert measured is not None
    assert 0.3 < measured.disturbed_ratio < 0.5
    (said,) = [each for each in measured.warnings if "something else runs beside the engine" in each]
    assert said.startswith(f"{measured.disturbed_ratio:.0%} of the repeats took over 25% longer")
    assert "the true error is larger than the stated one" in said


def test_a_quiet_machine() -> None:
    """Nothing is left out, nothing said, and the experiment ends when it has been repeated thrice."""
    engine, report = measured_beside(0.0, for_s=1000.0)
    measured = report.profile.measured

    assert measured is not None
    assert (measured.disturbed_ratio, measured.warnings) == (0.0, ())
    assert measured.repeat_error_ratio is not None
    assert measured.repeat_error_ratio < 0.02
    assert max(engine.cells.count(cell) for cell in engine.cells if cell.steps > 16) == ROUNDS


def test_repeats_that_differ_are_repeated_for_longer() -> None:
    """While they do, the experiment goes on, up to the end of its time."""
    engine, _ = measured_beside(0.4, for_s=300.0)

    assert max(engine.cells.count(cell) for cell in engine.cells if cell.steps > 16) > ROUNDS
    assert engine.now() < 310.0


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (Judged(error_ratio=0.1, repeat_error_ratio=0.09, disturbed_ratio=0.19), []),
        (
            Judged(error_ratio=0.1, disturbed_ratio=0.21, whole_error_ratio=0.3),
            [
                "21% of the repeats took over 25% longer than the quietest quarter of their kind, and were "
                "left out (with them, held-out points are 30% off): something else runs beside the engine"
            ],
        ),
        (
            Judged(error_ratio=0.2, repeat_error_ratio=0.15),
            ["held-out points are 20% off in the mean, and 15% off other runs of the same: these"],
        ),
        (Judged(error_ratio=0.2, repeat_error_ratio=0.02), ["the line does not describe this engine"]),
    ],
)
def test_what_is_said_of_noise(judged: Judged, said: list[str]) -> None:
    """A line that is off because repeats are is told from one that is off by itself."""
    points = [
        decoding("x", 0.01 + 1e-4 * n + 1e-6 * n * c, 1, sequences=n, context_tokens=n * c, held_out=False)
        for n in (1, 4, 16)
        for c in (64, 512, 4096)
    ]
    found = [
        each
        for each in warnings_of(fit([each.observation for each in points]), points, judged)
        if "d (each" not in each
    ]

    assert len(found) == len(said), found
    for warning, words in zip(found, said, strict=True):
        assert words in warning


def test_rows_that_are_no_repeats_are_all_kept() -> None:
    """Of a run that nobody designed, points of one name are different steps."""
    points = [
        decoding("up to 16 at once", n * 0.01, 1, sequences=n, context_tokens=n * 100 * k, held_out=False)
        for n in (9, 12, 16)
        for k in (1, 2, 3)
    ] + repeats(0.02, 0.04)
    measured = report_of(Found(points=points, told=Told(), source=""), file="", date="").profile.measured

    assert measured is not None
    assert measured.points == len(points)
    assert measured.repeat_error_ratio is None
