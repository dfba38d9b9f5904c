"""`python -m accuracy.planner --fit`: fit the efficiencies anew, print them as efficiencies.py has them."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from accuracy.planner.arrays import fleet
from accuracy.planner.fitting import LISTED, Constants, fitted, measured
from accuracy.planner.rows import may_be_fitted, read_rows
from tidegate.perf.deployment import SOFTWARE


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(prog="python -m accuracy.planner", description=__doc__)
    parser.add_argument("--fit", action="store_true", required=True, help="fit to the rows not held out")
    parser.parse_args()
    rows = [row for row in read_rows() if may_be_fitted(row)]
    sys.stdout.write(shown(fitted(measured(fleet(rows)))))
    return 0


def shown(constants: Constants) -> str:
    """Literals for `tidegate.perf.efficiencies`, to three digits."""

    def one(name: str) -> str:
        return np.format_float_positional(constants[name], 3, fractional=False, trim="-")

    def many(name: str, of: tuple[str, ...]) -> str:
        return "(" + ", ".join(one(f"{name}.{each}") for each in of) + ")"

    waiting = ("overhead_s", "steps", "together")
    alike = ("queue", "alone", "beside", "behind", "in_step_tokens")
    plain = [name for name in constants if "." not in name and name not in alike]
    lines = ["SHARED"]
    lines += [f'    "{name}": {many(name, of)},' for name, of in LISTED.items()]
    lines += [f'    "{name}": {one(name)},' for name in plain]
    for title, names in (
        ("BY_SOFTWARE", ("layer_s", "expert_layer_s", "sequence_s")),
        ("WAITING_BY_SOFTWARE", waiting),
    ):
        lines.append(title)
        for software in SOFTWARE:
            values = ", ".join(f'"{name}": {one(f"{name}.{software}")}' for name in names)
            lines.append(f'    "{software}": {{{values}}},')
    lines.append("SHARED_WAITING")
    lines += [f'    "{name}": {one(name)},' for name in alike]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
