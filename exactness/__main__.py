"""`python -m exactness`: simulate queues that theory knows, write how near, exit 1 if that is not enough."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from rich.console import Console

from exactness.cases import COVERAGE, REPLICATIONS, Case, exact, exact_within
from exactness.estimates import coverage, replications
from exactness.report import Covered, Estimated, page

PAGE = Path(__file__).parents[1] / "docs" / "exactness.md"


def estimated(case: Case, cores: Executor) -> list[Estimated]:
    """Each figure of a case that theory knows."""
    found = replications(case.system, case.requests, case.seeds, cores)
    return [Estimated(case, figure, value, found[figure]) for figure, value in exact(case.system).items()]


def covered(case: Case, cores: Executor) -> list[Covered]:
    """Each figure of which a run states an interval, and that theory knows."""
    truths = exact_within(case.system)
    found = coverage(case, truths, cores)
    return [Covered(case, figure, value, found[figure]) for figure, value in truths.items()]


def main() -> int:
    """Exit status: 1 if a bar is missed."""
    argparse.ArgumentParser(prog="python -m exactness", description=__doc__).parse_args()
    console = Console(highlight=False, soft_wrap=True)
    estimates, intervals = list[Estimated](), list[Covered]()
    with ProcessPoolExecutor() as cores:
        for case in REPLICATIONS:
            for estimate in estimated(case, cores):
                console.print(estimate.row())
                estimates.append(estimate)
        for case in COVERAGE:
            for interval in covered(case, cores):
                console.print(interval.row())
                intervals.append(interval)
    PAGE.write_text(page(estimates, intervals))
    missed = [each.missed for each in estimates] + [each.missed for each in intervals]
    return 1 if any(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
