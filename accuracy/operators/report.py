"""What is said of operators: a section of docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accuracy.operators.checks import Check
from accuracy.operators.ratios import Ratio
from accuracy.operators.tables import SYSTEMS

HEAD: Final = """\
## Operators alone

The constants come from whole deployments. Operators that were measured alone
(`../shared/data/engine-ops-aiconfigurator`: vLLM's kernels, captured) are a check that they mean what they
are called: the first figure is the median error of the formulas with the constants that ship, the second
that of the same formulas with constants of their own. Products are those of matrices of a layer's size with
1 to 16,384 tokens; decoding and prompts are attention over 256 tokens and more, whose launch (in the
overhead of a layer as shipped) is taken from the table; experts are chosen evenly in the table, and
unevenly in deployments, which is why what they are read at is above the bandwidth as shipped. All-reduces
of deployments wait until all devices have come, those of the table do not.
"""

RATIOS: Final = """\
`message_size` of the all-reduces is in elements of two bytes: so read, eight A100 reach 228 GB/s on the bus
and eight H100 469, which is what such nodes are known for; in bytes it would be half.

What each table's operators reach ships with tidegate (`tidegate/data/operators.toml`, written by `python -m
accuracy.operators`). A plan uses it for A100, L40S and RTX PRO 6000, of which there are no measured
deployments, as a factor on the shared constants: how much better or worse operators are there than on H100,
H200 and B200. On the devices of the measured deployments it does not, for there plans
are worse with it: left out of the fit, H100, H200, B200 and B300 were met to 10.1 % in TPOT (mean of the
medians) without and to 11.7 % with tables (rows not held out). For A100 there is an independent check:
static batches on A100 and H100 with engines of 2024 (`../shared/data/engine-throughput-argonne`), of which
the ratio can be compared.
"""


def section(checks: Sequence[Check], ratios: Sequence[Ratio]) -> str:
    """Two tables, and what they mean."""
    operators = list(dict.fromkeys(check.operator for check in checks))
    found = {(check.operator, check.accelerator): check for check in checks}
    rows = []
    for operator in operators:
        known = [found.get((operator, name)) for name in SYSTEMS]
        rows.append([operator, *(_both(check) for check in known)])
    head = ["operator", *(f"`{name}`" for name in SYSTEMS)]
    compared = [
        [
            each.software,
            str(each.tp),
            str(each.cases),
            f"{each.measured:.2f}",
            f"{each.with_table:.2f}",
            f"{each.without:.2f}",
            _percent(each.error_with_table),
            _percent(each.error_without),
        ]
        for each in ratios
    ]
    columns = ["engine", "devices", "batches", "A100 / H100", "with table", "without"]
    return "\n".join(
        [
            HEAD,
            _markdown(head, rows),
            RATIOS,
            _markdown([*columns, "error with", "error without"], compared),
        ]
    )


def _both(check: Check | None) -> str:
    return f"{100 * check.shipped:.0f} / {100 * check.own:.0f} %" if check else ""


def _percent(error: float) -> str:
    return f"{100 * error:.1f} %"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
