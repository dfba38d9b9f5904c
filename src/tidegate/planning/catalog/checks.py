"""Can the figures of a catalogue file be, each by itself and beside each other?

It judges what has been read, whatever entry it stands in, by the names of the fields: sizes, rates and prices
are above 0, or at least 0 where nothing of it is a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tidegate.catalog.models import Experts, GroupedAttention, Layers
from tidegate.catalog.precisions import PRECISIONS
from tidegate.config.problems import Problem, Where, did_you_mean
from tidegate.config.ranges import Range

_ABOVE_0 = Range(0, 1e24, above=True)
_FROM_0 = Range(0, 1e24)
_LAYERS = Range(1, 4096)
_MAY_BE_0 = frozenset(
    (
        "size",
        "shared_size",
        "indexer_heads",
        "indexer_dim",
        "ratio",
        "per_hour_usd",
        "low_usd",
        "high_usd",
        "link_latency_s",
        "parameters",
        "state_elements",
    )
)
_PRECISIONS = ("precision", "attention_precision", "dense_precision")


def problems_of(value: object, where: Where = ()) -> list[Problem]:
    """Everything in it, however deep, that cannot be."""
    return list(_problems(value, where))


def _problems(value: object, where: Where) -> Iterator[Problem]:
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _problems(getattr(value, field), (*where, field))
        yield from _beside(value, where)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _problems(each, (*where, key))
        if where[-1:] == ("flops_per_s",):
            yield from _rates(value, where)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _problems(each, (*where, index))
    elif isinstance(value, str):
        yield from _text(value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, where)


def _number(value: float, where: Where) -> Iterator[Problem]:
    bounds = _FROM_0 if where[-1] in _MAY_BE_0 else _ABOVE_0
    if not bounds.holds(value):
        yield Problem(where, f"is {value:,.12g}; it must be {bounds}")


def _text(value: str, where: Where) -> Iterator[Problem]:
    if where[-1] in _PRECISIONS and value not in PRECISIONS:
        yield Problem(where, f"is not known; {did_you_mean(value, PRECISIONS)}")


def _rates(rates: Mapping[str, object], where: Where) -> Iterator[Problem]:
    if "bf16" not in rates:
        yield Problem(where, "lacks bf16; it needs a number: what has no rate of its own is computed in it")
    for precision in rates:
        if precision not in PRECISIONS:
            yield Problem((*where, precision), f"is not known; {did_you_mean(precision, PRECISIONS)}")


def _beside(value: msgspec.Struct, where: Where) -> Iterator[Problem]:
    if isinstance(value, GroupedAttention) and value.kv_heads > 0 and value.heads % value.kv_heads:
        yield Problem((*where, "kv_heads"), f"is {value.kv_heads}; it must divide the {value.heads} heads")
    if isinstance(value, Experts) and value.chosen > value.count:
        yield Problem((*where, "chosen"), f"is {value.chosen}; there are only {value.count} experts")
    if isinstance(value, Layers) and value.count > _LAYERS.high:
        yield Problem((*where, "count"), f"is {value.count:,}; it must be {_LAYERS}")
    memory, usable = getattr(value, "memory_bytes", None), getattr(value, "usable_bytes", None)
    if memory is not None and usable is not None and usable > memory:
        yield Problem((*where, "usable_bytes"), f"is {usable:,}; the memory has {memory:,}")
    low, high = getattr(value, "low_usd", None), getattr(value, "high_usd", None)
    if low is not None and high is not None and low > high:
        yield Problem((*where, "low_usd"), f"is {low:g}; it must be at most high_usd, {high:g}")
