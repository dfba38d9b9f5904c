"""Which of several are not worse than another in everything?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Goods = tuple[float, ...]
"""Of each the less the better."""


def dominated(one: Goods, others: Iterable[Goods]) -> bool:
    """Whether another is at least as good in everything, and better in something."""
    return any(_as_good(other, one) and other != one for other in others)


def front(goods: Sequence[Goods]) -> list[bool]:
    """Of each, whether none of the others dominates it."""
    return [not dominated(one, goods) for one in goods]


def _as_good(one: Goods, other: Goods) -> bool:
    return all(mine <= its for mine, its in zip(one, other, strict=True))
