"""What does the page say?"""

from __future__ import annotations

from typing import NamedTuple

from exactness.cases import COVERAGE_SEEDS, COVERED, MEAN_WITHIN, MISLED, P99_WITHIN, SEEDS, Case
from exactness.estimates import Coverage, Interval
from exactness.systems import STEP_S
from exactness.theory import erlang_b

NAMES = {"mean": "mean wait", "p95": "P95 wait", "p99": "P99 wait", "refused": "refused"}
BARS = {"mean": MEAN_WITHIN, "p99": P99_WITHIN, "refused": MEAN_WITHIN}

PAGE = """\
# How exact is the simulator?

<!-- Written by `make exactness`. Change exactness/report.py, not this page. -->

Where queueing theory is exact, the simulator can be held to it: a replica whose steps always take the same
is a server (its mean service here: 1 s, {steps:,} steps), and a bound on its batch is the number of servers.
The queue is kept by the replica's own scheduler, or by the governor, with the whole simulator around it. How
accurate the simulator is about real engines is another question: [accuracy](accuracy.md).

`make exactness` writes this page, and fails where a bar is missed. That each wait is that of the ideal queue,
and each refusal that of the ideal loss system, customer by customer, `tests/sim/test_exactness.py` shows in
seconds.

Why steps so short? Who finds a server free joins the others at their next step, and holds the server half a
step longer than it is served. With a thousand steps a service, M/M/50/50 at 0.95 would refuse {long:.2%} more
than theory says; with these it is {short:.4%}.

## Means, tails and losses

{count} independent runs each, without their first tenth; seeds {first} to {last}, if no others are said. The
half-width is that of the 95 % interval, relative: at most {mean:.0%} (P99: {p99:.0%}). The exact value must
lie inside the 99.9 % interval; how far off the estimate is stands in standard errors, too. Control variables
with known means take off what luck a run had with its draws (`exactness/estimates.py`). Seeds were named
before they were run (`exactness/cases.py`).

| queue at its load | kept by | customers a run | figure | exact | simulated | half-width | off by | bars |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{replications}

## Intervals

A single run states intervals, too, by its slowest waves (`tidegate.simulate.intervals`). {runs} runs of each
system, seeds {cover_first} to {cover_last}: the 95 % interval of {least:.0%} to {most:.0%} of them must hold
the exact figure, and at most {misled:.0%} of all may miss it without a warning: the nominal 5 %, and two
standard errors of {runs} runs. A run warns where its interval may be too narrow: it is far too short, near
saturation, or the percentile has no upper end. Where most runs do, misses without a warning are all that
counts, and the row says *warned*. What is only wide is a note and no warning.

| queue at its load | kept by | customers a run | figure | exact | held by | warned | missed, unwarned | bar |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{coverage}
"""


class Estimated(NamedTuple):
    """A figure over replications, beside the truth."""

    case: Case
    figure: str
    exact: float
    found: Interval

    @property
    def missed(self) -> str:
        """What of the bars it misses; empty: nothing."""
        if self.found.half_width(0.95) > BARS[self.figure] * self.found.value:
            return "the interval is too wide"
        inside = abs(self.found.value - self.exact) <= self.found.half_width(0.999)
        return "" if inside else "the exact value is outside"

    def row(self) -> str:
        """Of the table."""
        value, error = self.found.value, self.found.error
        cells = [
            *_system(self.case),
            NAMES[self.figure] + _seeds(self.case),
            f"{self.exact:.4f}",
            f"{value:.4f}",
            f"{self.found.half_width(0.95) / value:.1%} ({BARS[self.figure]:.0%})",
            f"{value / self.exact - 1:+.2%}, {(value - self.exact) / error:+.1f} errors",
            self.missed or "kept",
        ]
        return _row(cells)


class Covered(NamedTuple):
    """How the intervals of single runs did, beside the truth."""

    case: Case
    figure: str
    exact: float
    found: Coverage

    @property
    def within(self) -> bool:
        """Whether as many intervals hold the truth as should."""
        least, most = COVERED
        return least <= self.found.held <= most

    @property
    def missed(self) -> str:
        """What of the bar it misses; empty: nothing."""
        least, most = COVERED
        if self.found.misled > MISLED:
            return f"more than {MISLED:.0%} miss unwarned"
        warned = self.found.warned > 0.5
        return "" if self.within or warned else f"not within {least:.0%} to {most:.0%}"

    def row(self) -> str:
        """Of the table."""
        shares = [f"{share:.1%}" for share in self.found]
        bar = self.missed or ("kept" if self.within else "warned")
        return _row([*_system(self.case), NAMES[self.figure], f"{self.exact:.4f}", *shares, bar])


def page(estimated: list[Estimated], covered: list[Covered]) -> str:
    """Markdown."""
    return PAGE.format(
        steps=round(1 / STEP_S),
        long=_more_refused(1e-3),
        short=_more_refused(STEP_S),
        count=len(SEEDS),
        first=SEEDS[0],
        last=SEEDS[-1],
        mean=MEAN_WITHIN,
        p99=P99_WITHIN,
        replications="\n".join(each.row() for each in estimated),
        runs=len(COVERAGE_SEEDS),
        cover_first=COVERAGE_SEEDS[0],
        cover_last=COVERAGE_SEEDS[-1],
        least=COVERED[0],
        most=COVERED[1],
        misled=MISLED,
        coverage="\n".join(each.row() for each in covered),
    )


def _more_refused(step_s: float) -> float:
    """By M/M/50/50 at 0.95, relative, where each service lasts half a step more."""
    return erlang_b(50, 47.5 * (1 + step_s / 2)) / erlang_b(50, 47.5) - 1


def _seeds(case: Case) -> str:
    return "" if case.seeds == SEEDS else f", seeds {case.seeds[0]} to {case.seeds[-1]}"


def _system(case: Case) -> list[str]:
    name, kept_by = str(case.system).split(", ")
    return [name, kept_by, f"{case.requests:,}"]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
