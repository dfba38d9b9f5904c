"""`python -m accuracy`: replay recorded runs, predict measured deployments, exit 1 if that is too far off."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from accuracy.bars import missed
from accuracy.methods import by_tables, calibrated
from accuracy.planner import report as planner_report
from accuracy.planner.results import planner
from accuracy.report import file, page, table
from accuracy.runs import read_runs

DOCS = Path(__file__).parents[1] / "docs"


def main() -> int:
    """Exit status: 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m accuracy", description=__doc__)
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", help="judge the runs in FOLDER instead; docs/ stays as it is"
    )
    arguments = parser.parse_args()
    known = read_runs()
    judged = known
    if arguments.runs is not None:
        names = {run.name for run in known}
        judged = [run for run in read_runs(arguments.runs) if run.name not in names]
    results = [by_tables(run, known) for run in judged] + [calibrated(run) for run in judged]
    console = Console()
    console.print(table(results))
    predicted = None
    if arguments.runs is None:
        predicted = planner()
        console.print(planner_report.table(predicted))
        (DOCS / "accuracy.md").write_text(page(results) + "\n" + planner_report.section(predicted))
        (DOCS / "accuracy.json").write_bytes(file(results, planner_report.builtins(predicted)))
    broken = predicted.missed() if predicted else []
    broken += [f"{result.run}, {result.method}: {name}" for result in results for name in missed(result)]
    for bar in broken:
        console.print(f"[red]missed:[/] {bar}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
