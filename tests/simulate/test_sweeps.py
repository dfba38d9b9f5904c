"""Are the points of a sweep those that were written?"""

from __future__ import annotations

import pytest

from tidegate.core.errors import ConfigurationError
from tidegate.simulate.sweeps import label_of, points_of, settings_of


@pytest.mark.parametrize(
    "spec, values",
    [
        ("10..60:10", ["10", "20", "30", "40", "50", "60"]),
        ("1..4", ["1", "2", "3", "4"]),
        ("10..35:10", ["10", "20", "30"]),
        ("0.1..0.3:0.1", ["0.1", "0.2", "0.3"]),
        ("1..16*2", ["1", "2", "4", "8", "16"]),
        ("100..1000:450", ["100", "550", "1000"]),
        ("a,b", ["a", "b"]),
        ("5, 10..12, 20", ["5", "10", "11", "12", "20"]),
        ("[x, y],[z]", ["[x, y]", "[z]"]),
        ("{a: 1, b: 2},null", ["{a: 1, b: 2}", "null"]),
    ],
)
def test_values(spec: str, values: list[str]) -> None:
    """Lists, ranges by steps and by factors, and what looks like a list in the file."""
    assert [point["key"] for point in points_of([f"key={spec}"])] == values


def test_every_combination() -> None:
    """The last changes fastest; no sweep is one point with nothing set."""
    points = points_of(["rate=1,2", "routing=a,b"])

    assert [label_of(point) for point in points] == [
        "rate=1 routing=a",
        "rate=1 routing=b",
        "rate=2 routing=a",
        "rate=2 routing=b",
    ]
    assert points_of([]) == [{}]
    assert label_of({}) == ""


@pytest.mark.parametrize(
    "sweeps, problem",
    [
        (["rate"], "--sweep rate: write KEY=VALUES, such as rate=10..60:10"),
        (["=3"], "--sweep =3: write KEY=VALUES, such as rate=10..60:10"),
        (["rate=1", "rate=2"], "--sweep rate: stands twice; give all its values in one"),
        (["rate="], "--sweep rate=: a value is empty; remove the comma, or write it"),
        (["rate=1,,2"], "--sweep rate=1,,2: a value is empty; remove the comma, or write it"),
        (["rate=1..3,2"], "--sweep rate=1..3,2: a value stands twice; remove one"),
        (["rate=1..x"], "--sweep rate=1..x: is no range; write FROM..TO, FROM..TO:STEP or FROM..TO*FACTOR"),
        (["rate=3..1"], "--sweep rate=3..1: a range goes up, by a step above 0 or a factor above 1"),
        (["rate=1..3:0"], "--sweep rate=1..3:0: a range goes up, by a step above 0 or a factor above 1"),
        (["rate=1..3*1"], "--sweep rate=1..3*1: a range goes up, by a step above 0 or a factor above 1"),
        (["rate=0..3*2"], "--sweep rate=0..3*2: a range goes up, by a step above 0 or a factor above 1"),
        (["rate=1..99999"], "--sweep rate=1..99999: has more than 10,000 values"),
        (["a=1..200", "b=1..200"], "--sweep: 40,000 points are more than 10,000; widen the steps"),
    ],
)
def test_what_cannot_be(sweeps: list[str], problem: str) -> None:
    """A sweep that cannot be is refused before anything runs, with what to write."""
    with pytest.raises(ConfigurationError) as caught:
        points_of(sweeps)
    assert caught.value.problems == [problem]


def test_options_and_paths() -> None:
    """What is no option of the run is a path of the file; two have short names."""
    point = {"rate": "3", "routing": "random", "replicas": "2", "limits.max_in_flight": "9"}

    assert settings_of(point, ["rate", "profile"]) == (
        {"rate": "3"},
        {"pools.*.routing.policy": "random", "pools.*.replicas": "2", "limits.max_in_flight": "9"},
    )
