"""The index of prefixes: what it knows, what it forgets, and that it is what was sent."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, given
from hypothesis import strategies as st

from tidegate.policy.affinity import PrefixIndex


def known(index: PrefixIndex, prefix: Sequence[int]) -> dict[int, int]:
    """How many blocks of a prompt each replica was sent, by its key."""
    depths: dict[int, int] = {}
    for depth, bits in enumerate(index.match(prefix), start=1):
        depths |= dict.fromkeys(index.keys(bits), depth)
    return depths


def test_what_was_sent_where() -> None:
    """Each replica is known for as much as it was sent from the first block on, and no more."""
    index = PrefixIndex()
    for key, prefix in [(1, (10, 11, 12)), (2, (10, 11, 22)), (3, (30,))]:
        index.sent(key, prefix, most=100)

    for prefix, depths in [
        ((10, 11, 12, 13), {1: 3, 2: 2}),
        ((10, 11, 22), {1: 2, 2: 3}),
        ((30, 31), {3: 1}),
        ((11, 12), {1: 2, 2: 1}),  # names of blocks say all before them: nobody asks for this
        ((99, 10), {}),
        ((), {}),
    ]:
        assert known(index, prefix) == depths, prefix


def test_the_end_of_the_oldest_prompt_is_forgotten_first() -> None:
    """As an engine frees blocks: what a prompt began with outlives what it ended with."""
    index = PrefixIndex()
    index.sent(1, (10, 11, 12), most=5)
    index.sent(1, (20, 21, 22), most=5)
    assert known(index, (10, 11, 12)) == {1: 2}

    index.sent(1, (10,), most=5)  # asked again: now it is the latest
    index.sent(1, (30, 31), most=5)
    assert (known(index, (10, 11)), known(index, (20, 21, 22))) == ({1: 1}, {1: 2})


def test_nothing_is_kept_where_nothing_fits() -> None:
    """A replica whose cache is smaller than a block."""
    index = PrefixIndex()
    index.sent(1, (10, 11), most=0)

    assert (known(index, (10,)), len(index)) == ({}, 0)


def test_replicas_that_come_and_go_leave_nothing() -> None:
    """Not a block, and not a bit: the thousandth costs what the first did."""
    index = PrefixIndex()
    for key in range(1_000):
        index.sent(key, (10, 11, key), most=100)
        if key >= 2:
            index.forget(key - 2)

    assert known(index, (10, 11)) == {998: 2, 999: 2}
    assert max(index.match((10,))) < 2**3
    assert len(index) == 6
    index.check()


PREFIXES = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(
    lambda path: tuple(int("1" + "".join(map(str, path[: n + 1]))) for n in range(len(path)))
)
"""Paths in a tree, named by all of their steps so far."""


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | PREFIXES), max_size=60),
    st.integers(1, 12),
    PREFIXES,
)
def test_it_is_a_list_of_the_latest_blocks_of_each(
    steps: list[tuple[int, tuple[int, ...] | None]], most: int, asked: tuple[int, ...]
) -> None:
    """A plain list for each replica, latest last, would say the same of every prompt."""
    index = PrefixIndex()
    lists: dict[int, list[int]] = {}
    for key, prefix in steps:
        if prefix is None:
            index.forget(key)
            lists.pop(key, None)
        else:
            index.sent(key, prefix, most)
            blocks = [block for block in lists.get(key, []) if block not in prefix]
            lists[key] = (blocks + list(reversed(prefix)))[-most:]
        index.check()

    depths = {
        key: next((n for n, block in enumerate(asked) if block not in blocks), len(asked))
        for key, blocks in lists.items()
    }
    assert known(index, asked) == {key: depth for key, depth in depths.items() if depth}
    assert len(index) == sum(map(len, lists.values())) <= 4 * most
    event(f"known to {len(known(index, asked))}")
