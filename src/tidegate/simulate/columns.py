"""How are a million records kept in memory, and read as columns?

One packed row of 75 bytes for each request, texts as numbers; numpy reads the rows where they lie. Columns
cross from one process to another as they are.
"""

from __future__ import annotations

from math import nan
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.core.reasons import Reason
from tidegate.core.records import ROUNDING, Budgets, RequestRecord

Rows = np.ndarray[tuple[int], np.dtype[np.void]]
"""One element per request, with the fields of `FIELDS`."""
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

FIELDS: Final = {
    "request_id": "i8",
    "arrived_at": "f8",
    "dispatched_at": "f8",  # nan where never reached, as the next
    "first_token_at": "f8",
    "ended_at": "f8",
    "charged_credits": "f8",
    "prompt_tokens": "u4",
    "output_tokens": "u4",
    "cached_tokens": "u4",
    "tenant": "u4",  # an index into the names, as the next three
    "pool": "u2",
    "replica": "u2",
    "priority": "u2",
    "status": "u2",
    "attempts": "u2",
    "reason": "u1",  # an index into `REASONS`, or `ANSWERED`
}
REASONS: Final = tuple(Reason)
ANSWERED: Final = 255
"""No reason: the engine's own answer was passed on."""
TEXTS: Final = ("tenant", "priority", "pool", "replica")
_ROW = Struct("<qdddddIIIIHHHHHB")
_DTYPE = np.dtype([(name, f"<{kind}") for name, kind in FIELDS.items()])
_NUMBER_OF: dict[Reason | None, int] = {reason: number for number, reason in enumerate(REASONS)}
_NUMBER_OF[None] = ANSWERED


class Columns:
    """The records of one run, as they ended."""

    __slots__ = ("_data", "_numbers", "_rows")

    def __init__(self) -> None:
        self._data = bytearray()
        self._rows: Rows | None = None
        self._numbers: tuple[dict[str, int], ...] = tuple({} for _ in TEXTS)

    def __len__(self) -> int:
        return len(self._data) // _ROW.size

    def __getstate__(self) -> tuple[bytearray, tuple[dict[str, int], ...]]:
        """What travels between processes: nothing twice."""
        return self._data, self._numbers

    def __setstate__(self, state: tuple[bytearray, tuple[dict[str, int], ...]]) -> None:
        """The columns as they were."""
        self._data, self._numbers = state
        self._rows = None

    def add(self, record: RequestRecord) -> None:
        """Keep a record. Its `key` is not kept."""
        tenants, priorities, pools, replicas = self._numbers
        dispatched_at, first_token_at = record.dispatched_at, record.first_token_at
        self._data += _ROW.pack(
            record.request_id,
            record.arrived_at,
            nan if dispatched_at is None else dispatched_at,
            nan if first_token_at is None else first_token_at,
            record.ended_at,
            record.charged_credits,
            record.prompt_tokens,
            record.output_tokens,
            record.cached_tokens,
            tenants.setdefault(record.tenant, len(tenants)),
            pools.setdefault(record.pool, len(pools)),
            replicas.setdefault(record.replica, len(replicas)),
            priorities.setdefault(record.priority, len(priorities)),
            record.status,
            record.attempts,
            _NUMBER_OF[record.reason],
        )

    def names(self, field: str) -> list[str]:
        """The texts that the numbers of a field of `TEXTS` stand for, in the order of their first use."""
        return list(self._numbers[TEXTS.index(field)])

    def rows(self) -> Rows:
        """All records, ascending by arrival; those that arrived together in the order in which they ended."""
        if self._rows is None or len(self._rows) != len(self):
            # Taken in an order it is a copy: a view of the buffer would forbid it to grow.
            rows = np.frombuffer(self._data, _DTYPE)
            self._rows = rows[np.argsort(rows["arrived_at"], kind="stable")]
        return self._rows


# The same measures as those of a RequestRecord, for all at once; tests hold them together.


def ok(rows: Rows) -> Mask:
    """Answered by an engine with a 2xx, to its natural end."""
    status = rows["status"]
    answered: Mask = (rows["reason"] == ANSWERED) & (status >= 200) & (status < 300)
    return answered


def ttft_s(rows: Rows) -> Floats:
    """Arrival at the gateway to the first token; nan where there was none."""
    waits: Floats = rows["first_token_at"] - rows["arrived_at"]
    return waits


def tpot_s(rows: Rows) -> Floats:
    """(E2E - TTFT) / (output tokens - 1); nan where fewer than 2 tokens were seen."""
    after = rows["output_tokens"].astype(np.float64) - 1
    after[after < 1] = nan
    times: Floats = (rows["ended_at"] - rows["first_token_at"]) / after
    return times


def e2e_s(rows: Rows) -> Floats:
    """Arrival at the gateway to the end, whatever the end was."""
    times: Floats = rows["ended_at"] - rows["arrived_at"]
    return times


def queued_s(rows: Rows) -> Floats:
    """Arrival to the last dispatch; to the end for a request that was never dispatched."""
    dispatched_at = rows["dispatched_at"]
    left = np.where(np.isnan(dispatched_at), rows["ended_at"], dispatched_at)
    waits: Floats = left - rows["arrived_at"]
    return waits


def held(rows: Rows, budgets: Budgets) -> Mask:
    """Whether each request succeeded within every budget that applies to it."""
    good = ok(rows)
    for found, budget_s in (
        (ttft_s, budgets.ttft_s),
        (tpot_s, budgets.tpot_s),
        (e2e_s, budgets.e2e_s),
    ):
        if budget_s is not None:
            good &= ~(found(rows) > budget_s * ROUNDING)  # nan is above nothing: the budget does not apply
    return good
