"""`python -m exactness`: simulate queues that theory knows, write how near, exit 1 if that is not enough."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from rich.console import Console

from exactness.cases import COVERAGE, COVERAGE_SEEDS, REPLICATIONS, SEEDS, Case, exact
from exactness.estimates import coverage, replications
from exactness.report import Covered, Estimated, page

PAGE = Path(__file__).parents[1] / "docs" / "exactness.md"


def estimated(case: Case, cores: Executor) -> list[Estimated]:
    """Each figure of a case that theory knows."""
    found = replications(case.system, case.requests, SEEDS, cores)
    return [Estimated(case, figure, value, found[figure]) for figure, value in exact(case.system).items()]


def covered(case: Case, cores: Executor) -> Covered:
    """The mean of a case, or its losses."""
    figure, value = next(iter(exact(case.system).items()))
    return Covered(case, figure, value, coverage(case.system, value, case.requests, COVERAGE_SEEDS, cores))


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
            intervals.append(covered(case, cores))
            console.print(intervals[-1].row())
    PAGE.write_text(page(estimates, intervals))
    missed = [each.missed for each in estimates] + [each.missed for each in intervals]
    return 1 if any(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
