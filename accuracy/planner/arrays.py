"""The planner's own formulas for many rows at once: numbers become arrays, formulas stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from accuracy.planner.rows import Row
from tidegate.perf.efficiencies import Efficiencies, Waiting
from tidegate.perf.roofline import Rates, Roofline, rates_of
from tidegate.perf.work import UNLIMITED, Span, Work, work_of
from tidegate.plan.closed.loop import Clients, paces

Array = NDArray[np.float64]
SPANS = 4
"""No model has more kinds of attention; others have some of nothing."""
NOTHING = Span(limit_tokens=UNLIMITED, read_bytes=0.0, decode_flops=0.0, prefill_flops=0.0)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as arrays."""

    rows: tuple[Row, ...]
    work: Work
    rates: Rates
    clients: Clients
    copies: Array
    chunk_tokens: Array

    def chosen(self, mask: NDArray[np.bool_]) -> Fleet:
        """Some of the rows."""
        rows = tuple(row for row, take in zip(self.rows, mask, strict=True) if take)
        values = {name: _cut(getattr(self, name), mask) for name in self.__struct_fields__ if name != "rows"}
        return Fleet(rows=rows, **values)


def fleet(rows: Sequence[Row]) -> Fleet:
    """Of rows that are not disaggregated."""
    deployments = [row.deployments[0] for row in rows]
    copies = _array(each.attention_dp for each in deployments)
    clients = np.maximum(_array(row.clients for row in rows), copies)
    prompts = _array(row.prompt_tokens for row in rows)
    budgets = _array(each.max_batched_tokens for each in deployments)
    return Fleet(
        rows=tuple(rows),
        work=_stacked([_padded(work_of(each)) for each in deployments]),
        rates=_stacked([rates_of(each) for each in deployments]),
        clients=Clients(
            count=clients,  # type: ignore[arg-type]
            prompt_tokens=prompts,  # type: ignore[arg-type]
            output_tokens=_array(row.output_tokens for row in rows),  # type: ignore[arg-type]
        ),
        copies=copies,
        chunk_tokens=np.maximum(1.0, np.minimum(prompts, budgets - clients / copies)),
    )


def predicted(fleet: Fleet, reached: Efficiencies, waiting: Waiting) -> tuple[Array, Array]:
    """TTFT and TPOT, if all clients have a seat. Efficiencies and waiting may be arrays, too."""
    roof = Roofline(work=fleet.work, rates=fleet.rates, reached=reached)

    def step_s(decodes: Any, context: Any, prompts: Any, new: Any, before: Any) -> Any:
        seconds = roof.tokens_s(decodes + prompts * new) + roof.sequences_s(decodes + prompts)
        each = context / np.maximum(decodes, 1e-9)
        return seconds + roof.decode_s(decodes, each) + prompts * roof.prefill_s(new, before)

    found = paces(
        step_s,
        fleet.clients,
        chunk_tokens=fleet.chunk_tokens,  # type: ignore[arg-type]
        copies=fleet.copies,  # type: ignore[arg-type]
        waiting=waiting,
    )
    return found.ttft_s, found.tpot_s  # type: ignore[return-value]


def _padded(work: Work) -> Work:
    missing = SPANS - len(work.spans)
    return msgspec.structs.replace(work, spans=work.spans + (NOTHING,) * missing)


def _array(values: Iterable[float]) -> Array:
    return np.array([float(value) for value in values])


def _stacked(values: Sequence[Any]) -> Any:
    """Equal structures of numbers as one of arrays."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(_stacked([value[place] for value in values]) for place in range(len(first)))
    if isinstance(first, msgspec.Struct):
        names = first.__struct_fields__
        return type(first)(**{name: _stacked([getattr(value, name) for value in values]) for name in names})
    return np.array(values, dtype=float)


def _cut(value: Any, mask: NDArray[np.bool_]) -> Any:
    """A structure of arrays, some places of each."""
    if isinstance(value, tuple):
        return tuple(_cut(each, mask) for each in value)
    if isinstance(value, msgspec.Struct):
        cut = {name: _cut(getattr(value, name), mask) for name in value.__struct_fields__}
        return type(value)(**cut)
    return value[mask] if isinstance(value, np.ndarray) else value
