"""Which runs are made of a command line, and which points are left out?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulate.settings import FILE
from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.simulate.load import Load
from tidegate.simulate.plan import (
    Impossible,
    Plan,
    Point,
    header_of,
    judged_points,
    runs_of,
    values_of,
    warm_up_of,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small fleet, in a file."""
    path = tmp_path / "tidegate.yaml"
    path.write_text(FILE)
    return path


def planned(file: Path, *sweeps: str, **changes: Any) -> list[Point]:
    """The points of a plan, all of which can be."""
    found = judged_points(Plan(file=file, load=Load(askers=()), sweeps=sweeps, **changes))
    possible = [each for each in found if isinstance(each, Point)]
    assert len(possible) == len(found)
    return possible


def test_a_sweep_over_options_and_settings(file: Path) -> None:
    """Options of the run change the load, every other key the file."""
    found = planned(file, "rate=5,7", "replicas=1..3", "pools.*.queue.max_requests=9")

    assert len(found) == 6
    assert [point.load.rate_per_s for point in found] == [5, 5, 5, 7, 7, 7]
    assert [len(point.scenario.pools["llama"]) for point in found] == [1, 2, 3, 1, 2, 3]
    assert {point.scenario.governor.pools["llama"].queue.max_requests for point in found} == {9}


def test_every_option_can_be_swept(file: Path) -> None:
    """Each is read as what it is."""
    file.write_text(file.read_text().replace("{profile: demo}", "{}"))
    (point,) = planned(file, "profile=demo", "cv=2", "prompt_tokens=9", "output_tokens=8", "requests=7")
    load = point.load

    assert (load.cv, load.prompt_tokens, load.output_tokens, load.requests) == (2.0, 9, 8, 7)
    assert point.profile == "demo"


def test_a_profile_that_would_do_nothing(file: Path) -> None:
    """The file has the last word on what engines are: a sweep over nothing is refused, with the remedy."""
    (found,) = judged_points(Plan(file=file, load=Load(askers=()), profile="h100-8b"))
    (one, two) = planned(file, "simulation.pools.*.profile=demo,h100-8b")

    assert isinstance(found, Impossible)
    assert found.problems == (
        "--profile h100-8b: the file says what every engine is; set simulation.pools.*.profile instead, "
        "by --set or --sweep",
    )
    assert one.scenario != two.scenario


def test_settings_at_every_point(file: Path) -> None:
    """`--set` and budgets hold for all; a sweep of the same setting has the last word."""
    values = values_of(["limits.max_in_flight=3", "replicas=1"])
    found = planned(file, "limits.max_in_flight=4,5", values=values, budgets=Budgets(e2e_s=9.0))

    limits = [point.scenario.governor.limits for point in found]
    assert [each.max_in_flight for each in limits if each is not None] == [4, 5]
    assert {len(point.scenario.pools["llama"]) for point in found} == {1}
    assert {budgets.e2e_s for point in found for budgets in point.terms.budgets.values()} == {9.0}


@pytest.mark.parametrize(
    "sweep, remedy",
    [("rat=3,4", 'did you mean "rate"?'), ("nonsense=3", 'known are "routing", "replicas", "profile",')],
)
def test_a_sweep_of_nothing(file: Path, sweep: str, remedy: str) -> None:
    """A key that neither is an option nor can be a path of the file is refused, and told the options."""
    with pytest.raises(ConfigurationError, match="neither an option nor a path of the file") as caught:
        planned(file, sweep)

    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "sweep, problem",
    [
        ("rate=3,fast", "rate=fast: is not a number"),
        ("requests=3,1.5", "requests=1.5: is not a whole number"),
        ("replicas=1,2.5", "replicas=2.5: is not a whole number"),
        ("rate=3,-1", "--rate is above 0, not -1"),
        ("profile=demo,h200", "profile 'h200' is not known; there are: "),
        (
            "pools.llama.queue.max_requests=1,x",
            "pools.llama.queue.max_requests: needs a whole number, not text",
        ),
        ("replicas=1,0", "pools.*.replicas: is 0; it must be from 1 to 10,000"),
        ("trace=azure-conv,none", "trace none: No such file or directory"),
        ("pools.llama.nonsense=1", "pools.llama.nonsense: is not a setting"),
    ],
)
def test_a_point_that_cannot_be(file: Path, sweep: str, problem: str) -> None:
    """It is named with its problem, and the others are there."""
    text = file.read_text().replace("{profile: demo}", "{}")
    file.write_text(text)
    found = judged_points(Plan(file=file, load=Load(askers=()), sweeps=(sweep,)))
    left_out = [each for each in found if isinstance(each, Impossible)]

    assert len(left_out) == 1
    assert problem in left_out[0].problems[0]
    assert len(found) - len(left_out) == sweep.count(",")


def test_the_runs_of_a_point(file: Path) -> None:
    """One for each seed; the first keeps plots and a trace of its batches."""
    plan = Plan(file=file, load=Load(askers=()), seed=5, repeat=3)
    (point,) = planned(file)
    runs = list(runs_of(plan, point, records=False, plots=True, perfetto=Path("t.json")))

    assert [run.seed for run in runs] == [5, 6, 7]
    assert [run.plots for run in runs] == [True, False, False]
    assert [run.perfetto for run in runs] == [Path("t.json"), None, None]


def test_the_header(file: Path) -> None:
    """A line says what will be run, before it is."""
    plan = Plan(file=file, load=Load(askers=()), sweeps=("rate=5,6",), repeat=2)

    assert header_of(plan, judged_points(plan)) == (
        f"simulating {file}: 2 points, the first of them: 1 pool, 2 replicas; "
        "5 requests/s, Poisson, 512 prompt tokens, 128 output tokens, for 10m; seeds 1 to 2"
    )


@pytest.mark.parametrize("text, found", [("auto", "auto"), ("none", 0.0), ("30s", 30.0), ("2m", 120.0)])
def test_warm_up(text: str, found: str | float) -> None:
    """Looked for, left out, or told."""
    assert warm_up_of(text) == found


@pytest.mark.parametrize("text", ["limits.max_in_flight", "=3", "limits.max_in_flight="])
def test_settings_without_a_value(text: str) -> None:
    """They are refused with an example."""
    with pytest.raises(ConfigurationError, match=r"write KEY=VALUE, such as limits\.max_in_flight=100"):
        values_of([text])
