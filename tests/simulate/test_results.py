"""What is said of a simulation: as figures, as a table, as JSON, as HTML?"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from math import inf, nan
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from tests.simulate.settings import FILE, ran
from tidegate.core.records import Budgets
from tidegate.core.text import as_json
from tidegate.core.units import format_latency, format_number
from tidegate.sim.counts import Counts
from tidegate.simulate.figures import Window
from tidegate.simulate.html.page import as_html
from tidegate.simulate.html.plots import Axis, Mark, Plot, Series, as_figure
from tidegate.simulate.intervals import Estimate, spread_within
from tidegate.simulate.knee import curves_of
from tidegate.simulate.results import Conservation, PointResult, Result, point_over
from tidegate.simulate.run import RunResult
from tidegate.simulate.spectrum import Values
from tidegate.simulate.table import as_table, between, plus_minus, reason_words

FULL = FILE.replace("queue:", "gate: {max_concurrency: 2}\n    queue:")
"""Two replicas that take two requests each."""
BUDGETS = {"chat": Budgets(ttft_s=1.0, tpot_s=0.05), "batch": Budgets()}


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    """Two seeds of a load that is somewhat too much."""
    return [ran(seed=seed, load={"rate_per_s": 30.0}, plots=True) for seed in (1, 2)]


def point_of(**values: str) -> PointResult:
    """A point before its runs."""
    return PointResult(set=values, load="30 requests/s", budgets=BUDGETS)


def result_of(*points: PointResult, **changes: Any) -> Result:
    """A simulation with those points."""
    values = {"configuration": "f.yaml", "points": list(points)}
    return Result(**(values | changes))


def shown(result: Result, width: int = 80) -> str:
    """The table as it looks on a terminal."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(as_table(result))
    return capture.get()


def test_of_many_tenants_the_largest_are_shown(runs: list[RunResult]) -> None:
    """Not those whose names come first; and it is said that there are more."""
    point = point_over(point_of(), runs)
    assert point.figures is not None
    group = next(iter(point.figures.tenants.values()))
    tenants = {f"t{number:02}": msgspec.structs.replace(group, requests=number) for number in range(30)}
    figures = msgspec.structs.replace(point.figures, tenants=tenants)

    text = shown(result_of(msgspec.structs.replace(point, figures=figures)))

    assert re.findall(r"^ (t\d\d) ", text, re.MULTILINE) == [f"t{number}" for number in range(10, 30)]
    assert "the largest 20 tenants; --json shows 30" in text


def test_a_point_over_seeds(runs: list[RunResult]) -> None:
    """Its figures are means of its runs, and everything that came is accounted for."""
    point = point_over(point_of(), runs)

    assert point.seeds == (1, 2)
    assert point.conservation is not None
    assert point.conservation.holds
    assert point.conservation.arrived == sum(run.counts.arrived for run in runs if run.counts)
    assert point.figures is not None
    means = [run.figures.total.e2e_s.mean.value for run in runs]
    assert point.figures.total.e2e_s.mean.value == pytest.approx(sum(means) / 2)
    assert point.engines["llama"].utilisation_ratio.low <= point.engines["llama"].utilisation_ratio.value
    assert point_over(point_of(rate="3"), []) == point_of(rate="3")


@pytest.mark.parametrize(
    "changes, warning",
    [
        ({"steady": False}, "no steady state was found: the run is too short, or the load more than"),
        ({"counts": Counts(arrived=3, finished=2)}, "requests were lost or counted twice"),
        ({"window": Window(30.0, 30.0)}, "warm-up lasts until the last request came: there is next to"),
    ],
)
def test_warnings(runs: list[RunResult], changes: dict[str, Any], warning: str) -> None:
    """What makes figures doubtful is said beside them."""
    point = point_over(point_of(), [msgspec.structs.replace(runs[0], **changes)])

    assert any(each.startswith(warning) for each in point.warnings), point.warnings


@pytest.mark.parametrize(
    "count, far, warned, noted",
    [
        (20_000, 0, (), ()),
        (3_000, 0, (), ("fewer than 100 samples of a run lie beyond P99",)),
        (200, 0, ("too few samples lie beyond P99 to bound",), ("fewer than 100 samples of a run lie",)),
        (20_000, 40, (), ("intervals are of one short run, and wide: --repeat 5",)),
        (20_000, 8, ("the run is far too short",), ()),
    ],
)
def test_in_degrees(count: int, far: int, warned: tuple[str, ...], noted: tuple[str, ...]) -> None:
    """What is only wide is a note; a warning is kept for what is likely too narrow, or has no end."""
    rng = np.random.default_rng(count)
    values = rng.lognormal(0.0, 0.1, count)
    values[rng.choice(count, far, replace=False)] = 1e5  # of which the mean is made: the fewer the less sure
    spreads = {name: spread_within(np.ones(20_000)) for name in ("tpot_s", "e2e_s", "queued_s")}
    run = ran()
    total = msgspec.structs.replace(run.figures.total, ttft_s=spread_within(values), **spreads)
    figures = msgspec.structs.replace(run.figures, total=total)
    point = point_over(point_of(), [msgspec.structs.replace(run, figures=figures, steady=True)])

    for said, starts in ((point.warnings, warned), (point.notes, noted)):
        found = [each for each in said if "saturation" not in each]
        assert len(found) == len(starts), said
        assert all(each.startswith(start) for each, start in zip(found, starts, strict=True)), said


def test_a_tail_of_bursts() -> None:
    """Enough samples of a single burst are still no bound."""
    spread = spread_within(np.concatenate([np.linspace(0, 1, 20_000), np.linspace(5, 9, 400)]))
    run = ran()
    total = msgspec.structs.replace(run.figures.total, ttft_s=spread)
    figures = msgspec.structs.replace(run.figures, total=total)
    point = point_over(point_of(), [msgspec.structs.replace(run, figures=figures)])

    assert "p99" not in spread.thin
    assert any("P99 are a few bursts, which set no bound" in each for each in point.warnings)


def test_nothing_was_answered() -> None:
    """Then there is one warning, and no figure."""
    point = point_over(point_of(), [ran(load={"rate_per_s": 1e-6})])

    assert point.warnings == ("nothing was answered: there is nothing to measure",)
    assert "nothing was answered" in shown(result_of(point))


def test_conservation() -> None:
    """All that arrived has ended in one way, or is in flight."""
    found = Conservation(
        arrived=7, finished=2, broken=1, rejected=1, evicted=1, cancelled=1, in_flight=1, retries=3
    )

    assert found.holds
    assert not msgspec.structs.replace(found, finished=3).holds


def test_the_table_of_a_point(runs: list[RunResult]) -> None:
    """A terminal of 80 columns shows every figure whole, with how sure it is."""
    text = shown(result_of(point_over(point_of(), runs[:1])))

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for words in ("TTFT", "95 % intervals: within one run, from its 32 slowest waves", "chat"):
        assert words in text
    arrived = runs[0].counts.arrived if runs[0].counts else 0
    assert re.search(rf"of all +{arrived:,} arrived \(\d+ retries\) = [\d,]+ finished \+ ", text)
    assert re.search(r"goodput +\d+\.\d% \([\d.]+\.\.[\d.]+%\)", text)


def test_near_saturation() -> None:
    """Where half of all queue, a run says little until for how long is known; several runs say more."""
    full = ran(FULL, load={"rate_per_s": 3.0, "for_s": 400.0})  # of which half queue, as long as they may
    around = np.random.default_rng(1).permutation(np.linspace(0.0, 2.0, 400))

    def warned(queued: Values, runs: int = 1) -> bool:
        total = msgspec.structs.replace(full.figures.total, queued_s=spread_within(queued))
        run = msgspec.structs.replace(full, figures=msgspec.structs.replace(full.figures, total=total))
        return any("near saturation" in each for each in point_over(point_of(), [run] * runs).warnings)

    assert warned(around[:100])
    assert not warned(around)  # known to a tenth
    assert not warned(around[:100], runs=2)
    assert not warned(np.where(np.arange(100) % 5, 0.0, 5.0))  # most do not queue
    assert warned(np.ones(20))  # too few for an interval
    assert not any("near saturation" in each for each in point_over(point_of(), [full]).warnings)


def test_reasons_in_words() -> None:
    """A gateway's reason stands as it is; an engine's status says whose it is, and what 400 means."""
    keys = ("queue_full", "status_400", "status_500")
    words = ["queue_full", "engine: too long (400)", "engine: status 500"]
    assert [reason_words(key) for key in keys] == words


def test_the_table_of_a_sweep(runs: list[RunResult]) -> None:
    """A row for each point, those that cannot be and those that were not run among them."""
    text = shown(
        result_of(
            point_over(PointResult(set={"limits.max_in_flight": "3"}), runs),
            PointResult(set={"limits.max_in_flight": "x"}, problems=("needs a whole number",)),
            PointResult(set={"limits.max_in_flight": "5"}),
        )
    )

    assert "95 % intervals: Student's t over 2 seeds" in text
    assert re.search(r"^ 3 +\d", text, re.MULTILINE)
    assert re.search(r"^ x +left out", text, re.MULTILINE)
    assert re.search(r"^ 5 +not run", text, re.MULTILINE)


def test_wide_tables(runs: list[RunResult]) -> None:
    """In 80 columns names are folded if need be, and figures are all whole."""
    long = {"routing": "prefix_affinity", "time_scale": "2", "pools.*.gate.max_concurrency": "64"}
    sweep = shown(result_of(*(point_over(PointResult(set=long), runs) for _ in range(2))))
    point = point_over(point_of(), runs[:1])
    assert point.figures is not None
    names = {f"production-tenant-{name}-of-many": each for name, each in point.figures.tenants.items()}
    figures = msgspec.structs.replace(point.figures, tenants=names)
    whole = shown(result_of(msgspec.structs.replace(point, figures=figures)))

    for text in (sweep, whole):
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80
    for part in ("prefix_", "affinity", "max_", "concurrency", format_latency(figures.total.ttft_s.max)):
        assert part in sweep + whole


def test_json(runs: list[RunResult]) -> None:
    """Every key has its unit, and what does not exist is null."""
    found = json.loads(as_json(result_of(point_over(point_of(), runs[:1]))))
    (point,) = found["points"]

    assert list(found)[:4] == ["tidegate", "configuration", "boundaries", "interval_level"]
    assert set(found["boundaries"]) == {"ttft_s", "tpot_s", "e2e_s", "queued_s"}
    assert point["figures"]["total"]["ttft_s"]["p99"].keys() == {"value", "low", "high"}
    assert point["figures"]["total"]["token_share"]["low"] is None
    assert point["engines"]["llama"]["prefix_hit_ratio"]["value"] is None
    assert (
        point["conservation"]["arrived"]
        == point["conservation"]["finished"]
        + point["conservation"]["rejected"]
        + point["conservation"]["evicted"]
    )


@pytest.mark.parametrize(
    "estimate, text",
    [
        (Estimate(0.0217, 0.0215, 0.0219), "21.5..21.9ms"),
        (Estimate(0.9, 0.8, 1.1), "800ms..1.1s"),
        (Estimate(0.9, -0.8, 1.1), "0..1.1s"),
        (Estimate(0.9, 0.8, inf), ">800ms"),
        (Estimate(0.9, -inf, 1.1), "0..1.1s"),
    ],
)
def test_intervals_in_words(estimate: Estimate, text: str) -> None:
    """The unit stands once where both ends have it, and no time is below 0."""
    assert between(estimate, format_latency) == text


@pytest.mark.parametrize(
    "estimate, text",
    [
        (Estimate(0.5, 0.4, 0.7), "500ms\n±150ms"),
        (Estimate(0.5, 0.4, 0.71), "500ms\n<710ms"),
        (Estimate(0.5, 0.1, 0.6), "500ms\n±250ms"),
        (Estimate(0.5, 0.4, inf), "500ms\n>400ms"),
        (Estimate(0.5, -inf, 0.6), "500ms\n0s..600ms"),
        (Estimate(0.5, 0.5, 0.5), "500ms\n±0s"),
        (Estimate(0.5), "500ms"),
    ],
)
def test_intervals_in_a_word(estimate: Estimate, text: str) -> None:
    """Half of it; of one that reaches more than twice as far up as down, the upper end."""
    assert plus_minus(estimate, format_latency) == text


# -- the knee ---------------------------------------------------------------------------------------


def test_curves(runs: list[RunResult]) -> None:
    """The number with the most values is the load; other settings make a curve each, words make none."""
    swept = [
        point_over(point_of(routing=routing, rate=rate), runs)
        for routing in ("random", "least_tokens")
        for rate in ("10", "9", "11")
    ]
    words = [point_over(point_of(routing=name), runs) for name in "abcd"]
    curves = curves_of(swept)

    assert [(curve.key, curve.label, curve.loads) for curve in curves] == [
        ("rate", "routing=random", (9, 10, 11)),
        ("rate", "routing=least_tokens", (9, 10, 11)),
    ]
    assert [curve.knee for curve in curves] == [None, None]
    assert curves_of(words) == []
    assert curves_of([]) == []
    assert len(re.findall("<figure>", as_html(result_of(*swept), [None] * 6))) == 2 + 3


def test_the_knee_of_a_curve(runs: list[RunResult]) -> None:
    """It is the point itself, and the table names it."""
    calm, busy = (point_over(point_of(), [run]) for run in (ran(), runs[0]))
    points = [
        msgspec.structs.replace(busy if rate == 5 else calm, set={"rate": str(rate)}) for rate in range(1, 6)
    ]
    (curve,) = curves_of(points)

    assert curve.knee is points[3]
    assert "knee: rate=4 (beyond it TTFT P95 grows faster than rate)" in shown(result_of(*points))


# -- HTML -------------------------------------------------------------------------------------------


class Checked(HTMLParser):
    """Elements opened and closed in order, with nothing that is fetched or run."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        assert tag not in ("script", "link", "iframe", "img", "object")
        assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onload"}
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one without content."""
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It closes the one opened last."""
        assert self.open.pop() == tag


def test_the_report_is_one_sound_file(runs: list[RunResult]) -> None:
    """Every element is closed; no script, nothing fetched; every plot has words for who cannot see it."""
    points = [point_over(point_of(rate=str(rate)), runs) for rate in range(1, 5)]
    left_out = PointResult(set={"rate": "<b>"}, problems=("is <i>not</i> a number",))
    text = as_html(result_of(*points, left_out, interrupted=True), [runs[0].plots] * 4 + [None])
    page = Checked(text)

    # Two of the load, three distributions, five over time for each of four points.
    plots = re.findall(r'<svg viewBox="0 0 420 260" role="img" aria-label="[^"]+', text)
    assert len(plots) == 2 + 3 + 4 * 5
    assert "url(" not in text
    assert "http" not in text
    assert "<b>" not in text
    assert "is &lt;i&gt;not&lt;/i&gt; a number" in text
    assert "interrupted" in text
    assert page.seen.count("details") == 4
    assert all(word in text for word in ("prefers-color-scheme: dark", 'lang="en"', "<title>"))


def test_the_report_of_one_point_without_plots(runs: list[RunResult]) -> None:
    """It has tables at least; nothing is folded away."""
    text = as_html(result_of(point_over(point_of(), runs)), [None])

    assert Checked(text).seen.count("details") == 0
    assert "By pool" not in text
    assert "Student&#x27;s t over 2 seeds" in text


def plot(**changes: Any) -> Plot:
    """A small plot."""
    values: dict[str, Any] = {
        "title": "Waits",
        "series": [Series(name="a", x=[1.0, 2.0, 3.0], y=[1.0, nan, 3.0])],
        "x": Axis(label="load", shown=format_number),
        "y": Axis(label="wait", shown=format_number),
    }
    return Plot(**(values | changes))


def test_what_cannot_be_drawn_is_left_out() -> None:
    """nan is no point, and on a logarithmic axis 0 is none; a plot of nothing says so."""
    (points,) = re.findall(r'points="([^"]*)"', as_figure(plot()))
    logarithmic = Axis(label="wait", shown=format_number, logarithmic=True)
    nothing = plot(series=[Series(name="a", x=[0.0], y=[0.0])], y=logarithmic)

    assert len(points.split()) == 2
    assert "nothing to show" in as_figure(nothing)
    assert "nothing to show" in as_figure(plot(series=[]))


def test_everything_is_drawn_inside() -> None:
    """No point, interval or mark leaves the plot; stacked areas add up to its height."""
    series = [
        Series(name=name, x=[0.0, 5.0, 10.0], y=[0.25, 0.5, 0.75], low=[0.1, nan, 0.5], high=[0.4, nan, 0.9])
        for name in "ab"
    ]
    lines = as_figure(plot(series=series, marks=[Mark(12.0, "budget")]))
    areas = as_figure(plot(series=series, stacked=True))

    for text in (lines, areas):
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)[ \"]", text):
            assert 0 <= float(x) <= 420
            assert 0 <= float(y) <= 260
    assert lines.count('class="bar"') == 4  # two of six have no interval
    assert "budget" in lines
    assert areas.count("<polygon") == 2


@pytest.mark.parametrize(
    "low, high, logarithmic, ticks",
    [
        (0, 1, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0, 37, False, ["0", "10", "20", "30"]),
        (0.003, 40, True, ["0.01", "0.1", "1", "10"]),
        (0.01, 0.06, True, ["0.01", "0.02", "0.05"]),
    ],
)
def test_ticks(low: float, high: float, logarithmic: bool, ticks: list[str]) -> None:
    """Round numbers, a handful of them."""
    axis = Axis(label="x", shown=lambda value: f"{value:.3g}", logarithmic=logarithmic)
    figure = as_figure(plot(series=[Series(name="a", x=[low, high], y=[1.0, 2.0])], x=axis))

    assert re.findall(r'text-anchor="middle">([\d.]+)<', figure) == ticks


def test_the_example_of_overload_has_refusals_in_its_plots(runs: list[RunResult]) -> None:
    """So that the plots above are of something."""
    plots = runs[0].plots

    assert plots is not None
    assert sum(map(sum, plots.timeline.refusals.values())) > 0
