"""Are columns what the records were, and measured as records are?"""

from __future__ import annotations

import pickle
from math import isnan, nan

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.simulate.records import record, records
from tidegate.core.records import Budgets, RequestRecord
from tidegate.simulate.columns import (
    ANSWERED,
    FIELDS,
    REASONS,
    TEXTS,
    Columns,
    e2e_s,
    held,
    ok,
    queued_s,
    tpot_s,
    ttft_s,
)

BUDGETS = st.builds(
    Budgets,
    ttft_s=st.none() | st.floats(0.1, 10),
    tpot_s=st.none() | st.floats(0.001, 1),
    e2e_s=st.none() | st.floats(0.1, 20),
)


def columns_of(found: list[RequestRecord]) -> Columns:
    """Those records as columns."""
    columns = Columns()
    for each in found:
        columns.add(each)
    return columns


@given(st.lists(records(), max_size=20))
def test_nothing_is_lost(found: list[RequestRecord]) -> None:
    """Every value of a record but its key is in the columns, in order of arrival."""
    columns = columns_of(found)
    names = {field: columns.names(field) for field in TEXTS}

    back = []
    for row in columns.rows():
        values = {field: row[field].item() for field in FIELDS}
        values |= {field: names[field][values[field]] for field in TEXTS}
        values["reason"] = None if values["reason"] == ANSWERED else REASONS[values["reason"]]
        for instant in ("dispatched_at", "first_token_at"):
            values[instant] = None if isnan(values[instant]) else values[instant]
        back.append(RequestRecord(**values))
    assert back == sorted(found, key=lambda each: each.arrived_at)
    assert len(columns) == len(found)


@given(st.lists(records(), min_size=1, max_size=20), BUDGETS)
def test_measured_as_records_are(found: list[RequestRecord], budgets: Budgets) -> None:
    """One definition of each figure, whether it is taken of one record or of a column."""
    rows = columns_of(found).rows()
    found = sorted(found, key=lambda each: each.arrived_at)
    event(f"held {sum(budgets.held_by(each) for each in found) > 0}")

    assert ok(rows).tolist() == [each.ok for each in found]
    assert e2e_s(rows).tolist() == [each.e2e_s for each in found]
    assert queued_s(rows).tolist() == [each.queued_s for each in found]
    for column, values in (
        (ttft_s(rows), [each.ttft_s for each in found]),
        (tpot_s(rows), [each.tpot_s for each in found]),
    ):
        want = [nan if value is None else value for value in values]
        assert column.tolist() == pytest.approx(want, rel=1e-15, nan_ok=True)
    assert held(rows, budgets).tolist() == [budgets.held_by(each) for each in found]


def test_columns_travel_and_go_on() -> None:
    """They reach another process whole, and take more after they were read."""
    columns = columns_of([record(number=1)])
    rows = columns.rows()
    columns.add(record(tenant="lab", number=2))
    there = pickle.loads(pickle.dumps(columns))

    assert (len(rows), len(columns)) == (1, 2)
    assert there.rows().tolist() == columns.rows().tolist()
    assert there.names("tenant") == ["acme", "lab"]
