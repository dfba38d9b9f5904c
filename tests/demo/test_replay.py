"""A trace for as long as one watches."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

from tidegate.demo.replay import TENANTS, endless, trace
from tidegate.workload.traces.rows import TraceRow


def test_a_trace_goes_round() -> None:
    """After its last request the first one comes again, with its lengths, and time never runs backwards."""
    rows = [TraceRow(0.0, 10, 1), TraceRow(1.0, 20, 2), TraceRow(4.0, 30, 3)]

    plan = list(islice(endless(rows, Random(0)), 7))

    assert [each.at_s for each in plan] == [0, 1, 4, 4, 5, 8, 8]
    assert [each.prompt_tokens for each in plan] == [10, 20, 30, 10, 20, 30, 10]
    assert {each.tenant for each in plan} <= {tenant.name for tenant in TENANTS}


def test_the_shipped_trace() -> None:
    """It begins at once, in order, and asks for nothing that a replica of the demo could not hold."""
    rows = trace()

    assert rows[0].arrived_s < 2
    assert all(first.arrived_s <= second.arrived_s for first, second in pairwise(rows))
    assert max(row.prompt_tokens + row.output_tokens for row in rows) < 16_384 - 8
