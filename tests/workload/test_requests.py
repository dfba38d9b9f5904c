"""A plan is arrivals, lengths and tenants together, and nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import inf, nan, sqrt
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.laws.arrivals import Constant, Poisson, Replay
from tidegate.workload.laws.lengths import Lengths, same_lengths, trace_lengths
from tidegate.workload.requests import (
    OpenLoop,
    PlannedRequest,
    Sender,
    TenantShare,
    plan_requests,
    replayed,
)
from tidegate.workload.traces.rows import TraceRow

SEEDS = st.integers(0, 2**32)
ROWS = st.lists(
    st.builds(TraceRow, st.floats(0, 100), st.integers(0, 9_999), st.integers(0, 9_999)), max_size=40
)


@given(ROWS)
def test_a_replayed_plan_keeps_the_pairs_of_the_trace(rows: list[TraceRow]) -> None:
    """Request n has the arrival and both lengths of row n; what cannot be asked for becomes 1 token."""
    rows.sort(key=lambda row: row.arrived_s)

    plan = list(plan_requests(Replay(rows), trace_lengths(rows), Random(0)))

    assert [(r.at_s, r.prompt_tokens, r.output_tokens) for r in plan] == [
        (row.arrived_s, max(1, row.prompt_tokens), max(1, row.output_tokens)) for row in rows
    ]


@given(SEEDS)
def test_tenants_move_nobodys_arrivals(seed: int) -> None:
    """With the same dice, a different mix of tenants has the same arrivals."""
    mixes = [[TenantShare("a")], [TenantShare("a"), TenantShare("b", 3)]]

    plans = [
        list(islice(plan_requests(Poisson(9), same_lengths(1, 1), Random(seed), tenants=mix), 30))
        for mix in mixes
    ]

    assert [r.at_s for r in plans[0]] == [r.at_s for r in plans[1]]


@given(SEEDS)
def test_a_plan_is_a_function_of_its_dice(seed: int) -> None:
    """The same seed plans the same requests, tenants included."""
    tenants = [TenantShare("a"), TenantShare("b", 2)]

    first, second = (
        list(islice(plan_requests(Poisson(9), same_lengths(5, 7), Random(seed), tenants=tenants), 30))
        for _ in range(2)
    )

    assert first == second


def test_tenants_ask_in_proportion_to_their_weights() -> None:
    """Of 20,000 requests each tenant makes its share, within five standard errors."""
    tenants = [TenantShare("gold", 3), TenantShare("free", 1)]
    plan = plan_requests(Constant(1), same_lengths(1, 1), Random(4), tenants=tenants)

    counts = Counter(request.tenant for request in islice(plan, 20_000))

    assert counts["gold"] / 20_000 == pytest.approx(0.75, abs=5 * sqrt(0.75 * 0.25 / 20_000))


def test_a_plan_ends_before_its_duration() -> None:
    """An arrival at the very end is no longer part of it."""
    plan = plan_requests(Constant(2), same_lengths(1, 1), Random(0), for_s=1.5)

    assert [request.at_s for request in plan] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("tokens", [0, -1])
def test_lengths_that_cannot_be(tokens: int) -> None:
    """Prompt and answer have at least one token."""
    with pytest.raises(ConfigurationError, match="at least 1 prompt token"):
        Lengths(tokens, 1)
    with pytest.raises(ConfigurationError, match="at least 1 output token"):
        Lengths(1, tokens)


@pytest.mark.parametrize("weight", [0.0, -1.0, inf, nan])
def test_a_weight_that_cannot_be(weight: float) -> None:
    """A weight is above 0 and finite."""
    with pytest.raises(ConfigurationError, match="a weight is above 0"):
        TenantShare("a", weight)


def test_a_plan_without_tenants() -> None:
    """Somebody must ask."""
    with pytest.raises(ConfigurationError, match="at least one tenant"):
        list(plan_requests(Constant(1), same_lengths(1, 1), Random(0), tenants=[]))


@given(ROWS, SEEDS)
def test_a_trace_is_replayed_as_it_is(rows: list[TraceRow], seed: int) -> None:
    """Instants and lengths of each row; what cannot be asked for becomes 1 token."""
    rows.sort(key=lambda row: row.arrived_s)

    plan = list(replayed(rows, Random(seed)))

    assert [(r.at_s, r.prompt_tokens, r.output_tokens) for r in plan] == [
        (row.arrived_s, max(1, row.prompt_tokens), max(1, row.output_tokens)) for row in rows
    ]


def test_conversations_and_blocks_of_a_trace() -> None:
    """A conversation has one tenant; full blocks are shared as recorded, and with no other trace."""
    rows = [
        TraceRow(float(n), 40, 1, session=n % 5, turn=n // 5, prefix=(7, 8, 9 + n), prefix_block_tokens=16)
        for n in range(50)
    ]
    tenants = [TenantShare("a"), TenantShare("b")]

    plan = list(replayed(rows, Random(1), tenants=tenants, name="one"))
    other = list(replayed(rows, Random(1), tenants=tenants, name="other"))

    assert {r.tenant for r in plan} == {"a", "b"}
    assert len({(r.session, r.tenant) for r in plan}) == len({r.session for r in plan}) == 5
    assert [r.turn for r in plan] == [row.turn for row in rows]
    assert {len(r.prefix) for r in plan} == {2}
    assert len({r.prefix for r in plan}) == 1
    assert not {*plan[0].prefix} & {*other[0].prefix}
    assert not {r.session for r in plan} & {r.session for r in other}


def test_a_trace_is_asked_for_by_its_sender() -> None:
    """All that a sender says stands in each request, and its tenant where one is drawn beside others."""
    rows = [TraceRow(float(n), 40, 1, session=n % 5) for n in range(50)]
    sender = Sender(tenant="lab", priority="batch", model="large", max_tokens=9, streams=False)

    plan = list(replayed(rows, Random(1), sender=sender))
    drawn = list(replayed(rows, Random(1), sender=sender, tenants=[TenantShare("a"), TenantShare("b")]))

    assert {(r.tenant, r.priority, r.model, r.max_tokens, r.streams) for r in plan} == {
        ("lab", "batch", "large", 9, False)
    }
    assert {r.tenant for r in drawn} == {"a", "b"}
    assert [msgspec.structs.replace(r, tenant="lab") for r in drawn] == plan


def test_nobody_waits_in_an_open_loop() -> None:
    """It starts all that was planned, and nothing follows an answer."""
    plan = [PlannedRequest(at_s=0.0, prompt_tokens=1, output_tokens=1)]
    workload = OpenLoop(plan)

    assert list(workload.starts()) == plan
    assert workload.after(plan[0], 1.0, True) is None  # type: ignore[func-returns-value]
